//! The distinct words of all tools, sorted, so that those with one beginning stand together.

use crate::words::{beginning, is_cjk};

/// Minimum letters of a beginning that is matched.
const SHORTEST_BEGINNING: usize = 3;
/// Maximum words looked up for one beginning.
const MAX_COMPLETIONS: usize = 64;
/// Minimum letters of a word that may be misspelt.
const SHORTEST_MISSPELT: usize = 5;
/// Maximum words that a misspelt one is compared with, and may stand for.
const MAX_COMPARED: usize = 4_096;
const MAX_MEANT: usize = 4;

/// Words in the order of their bytes; a word's number is its position.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary(Vec<Box<str>>);

impl Vocabulary {
    /// The vocabulary of words that are sorted and distinct.
    pub(crate) fn of_sorted(words: Vec<Box<str>>) -> Self {
        Self(words)
    }

    /// The number of a word.
    pub(crate) fn number(&self, word: &str) -> Option<usize> {
        self.0.binary_search_by(|other| (**other).cmp(word)).ok()
    }

    /// Numbers of words that are like one that is no word: those that begin with it or are a beginning of it, or else those that
    /// differ in one letter.
    pub(crate) fn alike(&self, word: &str) -> Vec<usize> {
        let letters = word.chars().count();
        let shortest = if word.chars().all(is_cjk) { 1 } else { SHORTEST_BEGINNING };
        let longer = self.beginning_with(word).filter(|_| letters >= shortest).take(MAX_COMPLETIONS);
        let shorter = (SHORTEST_BEGINNING + 1..letters).filter_map(|letters| self.number(beginning(word, letters)));
        let found: Vec<_> = longer.chain(shorter).collect();
        if !found.is_empty() || letters < SHORTEST_MISSPELT || !word.chars().all(char::is_alphabetic) {
            return found;
        }
        let with_first_letter = self.beginning_with(beginning(word, 1)).take(MAX_COMPARED);
        let is_meant = |number: &usize| self.0.get(*number).is_some_and(|other| differ_in_one_letter(word, other));
        with_first_letter.filter(is_meant).take(MAX_MEANT).collect()
    }

    fn beginning_with<'s>(&'s self, start: &'s str) -> impl Iterator<Item = usize> {
        let first = self.0.partition_point(|other| **other < *start);
        let words = self.0.iter().enumerate().skip(first);
        words.take_while(move |(_, other)| other.starts_with(start)).map(|(number, _)| number)
    }
}

/// Whether one letter is changed, added or left out, or two adjacent ones are exchanged.
fn differ_in_one_letter(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    match a.len().abs_diff(b.len()) {
        0 => {
            let is_exchanged = a.len() > 1 && a[0] == b[1] && a[1] == b[0] && a[2..] == b[2..];
            !a.is_empty() && (a[1..] == b[1..] || is_exchanged)
        }
        1 if a.len() < b.len() => *a == b[1..],
        1 => a[1..] == *b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_those_alike() {
        let words = ["calcul", "calendar", "forecast", "search", "weather", "検索"];
        let vocabulary = Vocabulary::of_sorted(words.iter().map(|word| (*word).into()).collect());
        for (word, expected) in [
            ("cal", vec!["calcul", "calendar"]),
            ("ca", vec![]),
            ("searching", vec!["search"]),
            ("cacul", vec!["calcul"]),
            ("wether", vec!["weather"]),
            ("weahter", vec!["weather"]),
            ("forecasts", vec!["forecast"]),
            ("forecest", vec!["forecast"]),
            ("wezzher", vec![]),
            ("検", vec!["検索"]),
        ] {
            let found: Vec<_> = vocabulary.alike(word).into_iter().map(|number| words[number]).collect();
            assert_eq!(found, expected, "{word}");
        }
        assert_eq!((vocabulary.number("search"), vocabulary.number("sear")), (Some(3), None));
    }

    #[test]
    fn letters_that_differ_are_counted() {
        for (a, b, expected) in [
            ("abc", "abc", false),
            ("abc", "abd", true),
            ("abc", "ab", true),
            ("ab", "abc", true),
            ("abcd", "acbd", true),
            ("abcd", "badc", false),
            ("", "a", true),
            ("", "", false),
            ("a", "abc", false),
        ] {
            assert_eq!(differ_in_one_letter(a, b), expected, "{a} {b}");
        }
    }
}
