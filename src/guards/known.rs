//! Finds secrets, e-mail addresses and card numbers in texts. A text that only looks like one is replaced too: that is the safer
//! mistake.

mod normalized;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use self::normalized::Normalized;
use crate::Detector;

/// Private keys, tokens of known forms, and passwords. Where a group is matched, only that is the secret.
///
/// A part that goes on over the beginnings of others, and of itself, does not belong here: each search would read to the end of the
/// text before it knows that this part is not found.
static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?x)
        -----BEGIN\x20[A-Z0-9\x20]*PRIVATE\x20KEY-----(?s:.*?)(?:-----END\x20[A-Z0-9\x20]*PRIVATE\x20KEY-----|\z)
        | \b(?:AKIA|ASIA)[A-Z2-7]{16}\b
        | \bgh[pousr]_[A-Za-z0-9]{36,}
        | \bgithub_pat_[A-Za-z0-9_]{22,}
        | \bglpat-[A-Za-z0-9_-]{20,}
        | \bxox[a-z]-[A-Za-z0-9-]{10,}
        | \b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}
        | \bsk_[0-9a-f]{16}_[0-9a-f]{64}\b
        | \bsk-[A-Za-z0-9_-]{20,}
        | \bAIza[A-Za-z0-9_-]{35}
        | \b(?:hf|npm)_[A-Za-z0-9]{30,}
        | (?i:\bbearer)\s+([A-Za-z0-9._~+/-]{16,}=*)
        | ://[^\s/:@]*:([^\s/@]+)@
        | (?i:password|passwd|secret|api[_-]?key|access[_-]?key|access[_-]?token|auth[_-]?token|private[_-]?key)
          \\*["']?\s*[:=]\s*\\*["']?([^\s"',;&\\]{8,})
        "#,
    )
});

/// JSON Web Tokens. They have a search of their own, since one without an end goes on over everything in base64.
static WEB_TOKENS: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"));

/// Also as in URLs, with `%40`. Any letters: addresses may be internationalized (RFC 6531).
static EMAILS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?x)
        [\p{L}\p{N}._%+'&~-]+
        (?:@|%40)
        (?:[\p{L}\p{N}](?:[\p{L}\p{N}-]*[\p{L}\p{N}])?\.)+
        \p{L}[\p{L}\p{N}-]*[\p{L}\p{N}]
        ",
    )
});

/// Digits in groups that single spaces or hyphens divide.
static DIGIT_GROUPS: LazyLock<Regex> = LazyLock::new(|| compiled(r"[0-9]+(?:[ -][0-9]+)*"));

/// The digits of a card number (ISO/IEC 7812).
const CARD_DIGITS: Range<usize> = 13..20;

/// The places of findings in a text, in order.
pub(crate) type Finder = fn(&str) -> Vec<Range<usize>>;

/// The search of a detector whose forms are here.
pub(crate) fn finder(detector: Detector) -> Option<Finder> {
    match detector {
        Detector::Secrets => Some(secrets),
        Detector::Emails => Some(emails),
        Detector::CardNumbers => Some(card_numbers),
        Detector::PersonalNumbers | Detector::Injections | Detector::HiddenText | Detector::DataLinks => None,
    }
}

/// The places of findings in a text, or in the text as a person reads it, in order. Both are searched: an
/// invisible character may be within a finding, or divide two of them.
pub(crate) fn find(finder: Finder, text: &str) -> Vec<Range<usize>> {
    let mut found = finder(text);
    if let Some(normalized) = Normalized::of(text) {
        let places = finder(&normalized.text);
        found.extend(places.iter().map(|place| normalized.original(place)));
        found.sort_unstable_by_key(|place| place.start);
        found = joined(found);
    }
    found
}

fn emails(text: &str) -> Vec<Range<usize>> {
    EMAILS.find_iter(text).map(|found| found.range()).collect()
}

pub(crate) fn replaced(text: &str, places: &[Range<usize>], replacement: &str) -> String {
    let (mut struck, mut done) = (String::with_capacity(text.len()), 0);
    for place in places {
        struck.push_str(text.get(done..place.start).unwrap_or_default());
        struck.push_str(replacement);
        done = place.end;
    }
    struck.push_str(text.get(done..).unwrap_or_default());
    struck
}

fn secrets(text: &str) -> Vec<Range<usize>> {
    let found = SECRETS.captures_iter(text).filter_map(|captures| {
        let part = captures.iter().skip(1).flatten().next();
        part.or_else(|| captures.get(0)).map(|found| found.range())
    });
    let mut found: Vec<_> = found.chain(WEB_TOKENS.find_iter(text).map(|token| token.range())).collect();
    found.sort_unstable_by_key(|place| place.start);
    joined(found)
}

/// Places that overlap become one.
pub(crate) fn joined(places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(places.len());
    for place in places {
        match joined.last_mut() {
            Some(last) if place.start < last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    joined
}

/// A card number begins and ends where digits or a group of them do.
fn card_numbers(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for run in DIGIT_GROUPS.find_iter(text).filter(|run| !is_fraction(text, run.start())) {
        let groups = groups(text, run.range());
        let mut first = 0;
        while first < groups.len() {
            match card_number(text, &groups[first..]) {
                Some(count) => {
                    found.push(groups[first].start..groups[first + count - 1].end);
                    first += count;
                }
                None => first += 1,
            }
        }
    }
    found
}

/// Whether the digits stand after a decimal point.
fn is_fraction(text: &str, start: usize) -> bool {
    matches!(text.as_bytes().get(..start), Some([.., digit, b'.']) if digit.is_ascii_digit())
}

fn groups(text: &str, run: Range<usize>) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (begin, end) = (run.start, run.end);
    let mut start = begin;
    for (at, _divider) in text[run].match_indices([' ', '-']) {
        groups.push(start..begin + at);
        start = begin + at + 1;
    }
    groups.push(start..end);
    groups
}

/// How many of the groups are the longest card number at their beginning.
fn card_number(text: &str, groups: &[Range<usize>]) -> Option<usize> {
    let (mut digits, mut longest) = (Vec::new(), None);
    for (index, group) in groups.iter().enumerate() {
        digits.extend_from_slice(text.as_bytes().get(group.clone())?);
        if digits.len() >= CARD_DIGITS.end {
            break;
        }
        if CARD_DIGITS.contains(&digits.len()) && is_card(&digits) {
            longest = Some(index + 1);
        }
    }
    longest
}

/// The first digit of a payment card is 2 to 6.
fn is_card(digits: &[u8]) -> bool {
    matches!(digits.first(), Some(b'2'..=b'6')) && passes_luhn(digits)
}

/// ISO/IEC 7812-1, annex B.
fn passes_luhn(digits: &[u8]) -> bool {
    let weighted = digits.iter().rev().enumerate().map(|(index, digit)| {
        let digit = u32::from(digit - b'0');
        match index % 2 {
            0 => digit,
            _ if digit > 4 => 2 * digit - 9,
            _ => 2 * digit,
        }
    });
    weighted.sum::<u32>() % 10 == 0
}

#[expect(clippy::expect_used, reason = "the patterns are constants, which tests compile")]
fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a valid pattern")
}
