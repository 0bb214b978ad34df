//! The parts of a text that identify something: mail addresses, hosts, accounts, paths, keys, long numbers.

use crate::destination::DestinationKind;
use crate::rules::RULES;

/// A text has at most so many of them that are looked at.
pub(crate) const MAX_TOKENS: usize = 64;

/// A part of a text that identifies something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: DestinationKind,
    pub(crate) identity: String,
}

/// All tokens of a text that identify something, without repetition.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut found: Vec<Token> = Vec::new();
    for word in words(text) {
        if found.len() >= MAX_TOKENS {
            break;
        }
        found.extend(token(word).filter(|token| !found.contains(token)));
    }
    found
}

/// The hosts of the links of a text, with repetition.
pub(crate) fn hosts(text: &str) -> impl Iterator<Item = String> {
    let hosts = words(text).filter(|word| word.len() >= 4 && mail(word).is_none());
    hosts.filter_map(|word| host(word).map(|token| token.identity))
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
    let (local, domain) = address.rsplit_once('@')?;
    let domain = domain.split(['/', '?', ':']).next()?.trim_end_matches('.');
    let is_domain = domain.contains('.')
        && domain.chars().all(|character| character.is_alphanumeric() || matches!(character, '.' | '-' | '_'));
    let local = local.rsplit(['/', ':', '=']).next()?;
    (is_domain && !local.is_empty()).then(|| Token::new(DestinationKind::Mail, &format!("{local}@{domain}")))
}

fn host(word: &str) -> Option<Token> {
    let (has_scheme, rest) = match word.split_once("://") {
        Some((_, rest)) => (true, rest),
        None => (false, word),
    };
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = authority.split_once(':').map_or(authority, |(name, _)| name).trim_end_matches('.');
    let has_www = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("www."));
    let bare = if has_www { &name[4..] } else { name };
    let is_name = !bare.is_empty()
        && bare.chars().all(|character| character.is_alphanumeric() || matches!(character, '.' | '-' | '_'));
    let top = bare.rsplit_once('.').map(|(_, top)| top.to_ascii_lowercase());
    let is_host = has_scheme || has_www || top.is_some_and(|top| RULES.domains.contains(&top));
    (is_name && is_host).then(|| Token::new(DestinationKind::Host, bare))
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
