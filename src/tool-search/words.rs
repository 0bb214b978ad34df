//! The words of texts and names.

use std::cell::RefCell;
use std::collections::HashMap;

use rust_stemmers::{Algorithm, Stemmer};

/// Maximum characters of a text that are read; the rest is ignored.
pub(crate) const MAX_TEXT: usize = 16_384;

/// Maximum letters of a word; the rest is ignored.
const MAX_WORD: usize = 32;

/// Maximum stems that are kept.
const MAX_KNOWN: usize = 16_384;

/// The words of a text, in lower case: sequences of letters or of digits, with `camelCase` split. Chinese, Japanese and Korean have no
/// spaces between words, so each pair of adjacent characters is a word.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let text = beginning(text, MAX_TEXT);
    for run in text.split(|character: char| !character.is_alphanumeric()) {
        let characters: Vec<char> = run.chars().collect();
        for part in characters.chunk_by(|a, b| is_cjk(*a) == is_cjk(*b)) {
            match part {
                [] => {}
                [first, ..] if !is_cjk(*first) => split_name(part, &mut words),
                [only] => words.push(only.to_string()),
                several => words.extend(several.windows(2).map(|pair| pair.iter().collect::<String>())),
            }
        }
    }
    words
}

/// `getHTTPStatus` → `get`, `http`, `status`; `top10Results` → `top`, `10`, `results`.
fn split_name(run: &[char], words: &mut Vec<String>) {
    let mut start = 0;
    for (at, before) in run.iter().enumerate().map(|(index, character)| (index + 1, *character)) {
        let ends = run.get(at).is_none_or(|here| {
            let begins_word = here.is_uppercase()
                && (!before.is_uppercase() || run.get(at + 1).is_some_and(|next| next.is_lowercase()));
            begins_word || before.is_numeric() != here.is_numeric()
        });
        if ends {
            words.push(lower_case(&run[start..at]));
            start = at;
        }
    }
}

/// The first letters of a word. Most are ASCII, which takes no table of characters.
fn lower_case(word: &[char]) -> String {
    let letters = word.iter().take(MAX_WORD);
    match word.iter().all(char::is_ascii) {
        true => letters.map(char::to_ascii_lowercase).collect(),
        false => letters.flat_map(|character| character.to_lowercase()).collect(),
    }
}

/// The first characters of a text, at most so many.
pub(crate) fn beginning(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

/// Han, kana and hangul (Unicode blocks).
pub(crate) fn is_cjk(character: char) -> bool {
    matches!(u32::from(character),
        0x1100..=0x11FF | 0x3005..=0x3007 | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x20000..=0x323AF)
}

/// The words of a text, each by its stem.
pub fn stems(text: &str) -> Vec<String> {
    let stems = Stems::new();
    words(text).iter().map(|word| stems.of(word)).collect()
}

/// The stems of English words. Other words keep their form: their beginnings are matched.
pub(crate) struct Stems {
    stemmer: Stemmer,
    known: RefCell<HashMap<String, String>>,
}

impl Stems {
    pub(crate) fn new() -> Self {
        Self { stemmer: Stemmer::create(Algorithm::English), known: RefCell::default() }
    }

    pub(crate) fn of(&self, word: &str) -> String {
        if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return word.to_owned();
        }
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.entry(word.to_owned()).or_insert_with(|| self.stemmer.stem(word).into_owned()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_split_into_words() {
        for (text, expected) in [
            ("getHTTPStatus", vec!["get", "http", "status"]),
            ("snake_case-and.dots", vec!["snake", "case", "and", "dots"]),
            ("top10Results", vec!["top", "10", "results"]),
            ("文書検索 A", vec!["文書", "書検", "検索", "a"]),
            ("CAFÉ", vec!["café"]),
            ("", vec![]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_read_is_bounded() {
        assert_eq!(words(&"a ".repeat(1_000_000)).len(), MAX_TEXT / 2);
        assert_eq!(words(&"a".repeat(10_000))[0].len(), MAX_WORD);
    }

    #[test]
    fn english_words_have_stems() {
        let stems = Stems::new();
        for (word, stem) in [("searching", "search"), ("searches", "search"), ("queries", "queri"), ("検索", "検索")]
        {
            assert_eq!(stems.of(word), stem);
        }
    }
}
