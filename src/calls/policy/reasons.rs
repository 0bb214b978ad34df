//! The reasons that a rule can give, as its text has them: by them the rule is found that gave a reason.

use std::ops::Range;

use regorus::unstable::{Token, TokenKind};

/// Least characters of a text with values that are filled in, besides them: of fewer, a reason says too little.
const MIN_CHARACTERS: usize = 4;

/// The texts of one rule, each in its parts between the values that `sprintf` fills in.
#[derive(Debug)]
pub(super) struct Reasons(Vec<Vec<String>>);

impl Reasons {
    /// The texts within a rule. `extent`: its place in the file, in bytes.
    pub(super) fn within(tokens: &[Token], extent: &Range<u32>) -> Self {
        let texts = tokens.iter().filter(|token| extent.contains(&token.1.start)).filter_map(|token| match token.0 {
            TokenKind::RawString => Some(token.1.text().to_owned()),
            TokenKind::String => serde_json::from_str::<String>(&format!("\"{}\"", token.1.text())).ok(),
            _ => None,
        });
        Self(texts.map(|text| parts(&text)).filter(|parts| says_enough(parts)).collect())
    }

    /// How many characters of a text of the rule the reason has; 0 where it has none of the texts.
    pub(super) fn fit(&self, reason: &str) -> usize {
        self.0.iter().filter(|parts| fits(parts, reason)).map(|parts| length(parts)).max().unwrap_or_default()
    }
}

fn says_enough(parts: &[String]) -> bool {
    length(parts) >= if parts.len() == 1 { 1 } else { MIN_CHARACTERS }
}

fn length(parts: &[String]) -> usize {
    parts.iter().map(String::len).sum()
}

/// Between the verbs of `sprintf`, such as `%s` and `%.2f`.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut rest) = (Vec::new(), String::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        part.push_str(before);
        if let Some(literal) = after.strip_prefix('%') {
            part.push('%');
            rest = literal;
            continue;
        }
        let verb = after.find(|character: char| character.is_ascii_alphabetic());
        rest = verb.and_then(|at| after.get(at + 1..)).unwrap_or_default();
        parts.push(std::mem::take(&mut part));
    }
    part.push_str(rest);
    parts.push(part);
    parts
}

/// Whether the reason has the parts in their order, the first at its beginning and the last at its end.
fn fits(parts: &[String], reason: &str) -> bool {
    let [first, middle @ .., last] = parts else { return parts.first().is_some_and(|only| only == reason) };
    let Some(rest) = reason.strip_prefix(&**first) else { return false };
    let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
    middle.iter().all(|part| match rest.split_once(&**part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_the_text_that_it_was_made_of() {
        for (text, reason, expected) in [
            ("no deletes", "no deletes", 10),
            ("no deletes", "no deletes at all", 0),
            ("%s needs the role %s", "crm__list needs the role operator", 16),
            ("%s needs the role %s", "crm__list needs a role", 0),
            ("above 100%%: %d", "above 100%: 7", 12),
            ("above 100%%: %d", "above 100: 7", 0),
            ("costs %.2f USD today", "costs 3.50 USD today", 16),
            ("no", "no", 2),
            ("%s", "anything", 0),
            ("%s: %v", "a: b", 0),
            ("%", "anything", 0),
            ("", "", 0),
        ] {
            let texts = [parts(text)].into_iter().filter(|parts| says_enough(parts)).collect();
            assert_eq!(Reasons(texts).fit(reason), expected, "{text}: {reason}");
        }
    }
}
