//! The parts of a text that identify something: mail addresses, hosts, accounts, paths, keys, long numbers.

use std::net::Ipv6Addr;
use std::str::FromStr as _;

use crate::destination::DestinationKind;
use crate::rules::RULES;
use crate::values::cut;

/// A text has at most so many of them that are looked at.
pub(crate) const MAX_TOKENS: usize = 64;
/// The length of an address of IPv6 with the bracket that ends it, at most.
const MAX_IPV6: usize = 46;
/// The length of the name of a host, at most: a longer one is none.
const MAX_HOST: usize = 255;
/// Schemes of links after which browsers need no slashes.
const WEB: [&str; 5] = ["http", "https", "ftp", "ws", "wss"];

/// A part of a text that identifies something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: DestinationKind,
    pub(crate) identity: String,
}

/// All tokens of a text that identify something, without repetition.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut found: Vec<Token> = Vec::new();
    for token in addresses_in_brackets(text).chain(words(text).filter_map(token)) {
        if found.len() >= MAX_TOKENS {
            break;
        }
        if !found.contains(&token) {
            found.push(token);
        }
    }
    found
}

/// The hosts of the links of a text, with repetition.
pub(crate) fn hosts(text: &str) -> impl Iterator<Item = String> {
    let hosts = words(text).filter(|word| word.len() >= 4 && mail(word).is_none()).filter_map(host);
    addresses_in_brackets(text).chain(hosts).map(|token| token.identity)
}

/// Addresses of IPv6 in brackets, as URLs have them.
fn addresses_in_brackets(text: &str) -> impl Iterator<Item = Token> {
    let begins = text.match_indices('[').map(|(at, _)| cut(&text[at + 1..], MAX_IPV6));
    let addresses = begins.filter_map(|begin| begin.split([']', '%']).next());
    addresses.filter(|address| Ipv6Addr::from_str(address).is_ok()).map(|text| Token::new(DestinationKind::Host, text))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let separators = |character: char| character.is_whitespace() || "<>\"'()[]{},;|`".contains(character);
    text.split(separators).map(|word| word.trim_matches(|character: char| ".:!?*".contains(character)))
}

/// The token that a word is.
pub(crate) fn token(word: &str) -> Option<Token> {
    if word.len() < 4 {
        return (word.starts_with('/') && word.len() > 1).then(|| Token::new(DestinationKind::Path, word));
    }
    mail(word).or_else(|| host(word)).or_else(|| other(word))
}

impl Token {
    fn new(kind: DestinationKind, identity: &str) -> Self {
        Self { kind, identity: identity.to_ascii_lowercase() }
    }
}

fn mail(word: &str) -> Option<Token> {
    let address = word.strip_prefix("mailto:").unwrap_or(word);
    let (before, domain) = address.rsplit_once('@')?;
    let domain = domain.split(['/', '?', ':']).next()?.trim_end_matches('.');
    let is_domain = domain.contains('.')
        && domain.chars().all(|character| character.is_alphanumeric() || matches!(character, '.' | '-' | '_'));
    // A link may have an address in it, which is not where it leads.
    let start = before.split(['/', '?', '#', '\\']).next()?;
    let is_link = start.len() < before.len() && !start.contains('@') && host(start).is_some();
    if !is_domain || is_link || after_scheme(word).is_some() {
        return None;
    }
    // Of several addresses in one word, none is the one that counts.
    let local = if before.contains('@') { before } else { before.rsplit(['/', ':', '=']).next()? };
    (!local.is_empty()).then(|| Token::new(DestinationKind::Mail, &format!("{local}@{domain}")))
}

/// What follows the scheme of a link. Browsers take `https:/a` and `https:\\a` for `https://a`.
fn after_scheme(word: &str) -> Option<&str> {
    let is_web = |before: &str| {
        let scheme = before.rsplit(|character: char| !character.is_ascii_alphabetic()).next().unwrap_or_default();
        WEB.iter().any(|web| scheme.eq_ignore_ascii_case(web))
    };
    let slashes = ['/', '\\'];
    let (before, after) = word.split_once(':')?;
    if !before.contains(slashes) && is_web(before) {
        return Some(after.trim_start_matches(slashes));
    }
    let (before, after) = word.split_once("://")?;
    // Another link stands in a part of the first one, which leads to the host at its beginning.
    let first = before.strip_prefix("//").unwrap_or(before);
    let start = first.split(['/', '?', '#', '\\']).next()?;
    let is_part = start.len() < first.len() && host(start).is_some();
    (!is_part).then(|| if is_web(before) { after.trim_start_matches(slashes) } else { after })
}

fn host(word: &str) -> Option<Token> {
    let scheme = after_scheme(word);
    // A link without a scheme has the scheme of its page.
    let rest = scheme.unwrap_or_else(|| word.strip_prefix("//").unwrap_or(word));
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = authority.split_once(':').map_or(authority, |(name, _)| name).trim_end_matches('.');
    let has_www = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("www."));
    let bare = if has_www { &name[4..] } else { name };
    let is_name = bare.chars().all(|character| character.is_alphanumeric() || matches!(character, '.' | '-' | '_'));
    let top = bare.rsplit_once('.').map(|(_, top)| top.to_ascii_lowercase());
    let is_host = is_name && (has_www || top.is_some_and(|top| RULES.domains.contains(&top)));
    // A link whose host has other characters leads somewhere, too.
    (!bare.is_empty() && (scheme.is_some() || is_host)).then(|| Token::new(DestinationKind::Host, cut(bare, MAX_HOST)))
}

fn other(word: &str) -> Option<Token> {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    if word.contains('/') && !word.starts_with("//") || word.starts_with("~/") {
        return Some(Token::new(DestinationKind::Path, word.trim_end_matches('/'))).filter(|_| digits + letters > 0);
    }
    let rest = word.len() - digits - letters;
    if letters == 0 && digits >= 5 && !is_moment(word) {
        let compact: String = word.chars().filter(char::is_ascii_digit).collect();
        let kind = if word.starts_with('+') { DestinationKind::Phone } else { DestinationKind::Number };
        return Some(Token::new(kind, if rest == 0 { word } else { &compact }));
    }
    let is_code = rest == 0 || word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte));
    if letters > 0 && digits > 0 && letters + digits >= 20 && is_code {
        return Some(Token { kind: DestinationKind::Key, identity: word.to_owned() });
    }
    (digits >= 5 && letters > 0 && is_code).then(|| Token::new(DestinationKind::Account, word))
}

/// A date or a time: digits with separators.
pub(crate) fn is_moment(word: &str) -> bool {
    let parts: Vec<&str> = word.split(['-', ':', '.', 'T', ' ']).collect();
    let is_date = parts.iter().any(|part| part.len() == 4) && parts.iter().all(|part| matches!(part.len(), 1 | 2 | 4));
    let are_digits = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'Z'));
    are_digits && (parts.len() >= 3 && is_date || parts.len() >= 2 && word.contains(':'))
}
