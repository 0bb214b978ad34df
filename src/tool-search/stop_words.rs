//! Words that say nothing about a tool, by language.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// The languages of each word, as bits.
static LANGUAGES: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| {
    let mut languages = HashMap::<&str, u32>::new();
    let lines = include_str!("stop_words.txt").lines().filter(|line| !line.starts_with('#'));
    for (number, (_, words)) in lines.filter_map(|line| line.split_once(": ")).enumerate() {
        for word in words.split(' ') {
            *languages.entry(word).or_default() |= 1 << number;
        }
    }
    languages
});

/// The words of a query that say something: without the stop words of English, and of another language that has more of them in
/// the query. All words if none is left.
pub(crate) fn without_stop_words(words: Vec<String>) -> Vec<String> {
    let left = without_any(&words);
    if left.is_empty() { words } else { left }
}

/// Whether no word says something.
pub(crate) fn are_stop_words(words: &[String]) -> bool {
    without_any(words).is_empty()
}

fn without_any(words: &[String]) -> Vec<String> {
    let languages = |word: &String| LANGUAGES.get(word.as_str()).copied().unwrap_or_default();
    let having = |language: u32| words.iter().filter(|word| languages(word) & language != 0).count();
    let english = having(ENGLISH);
    let others = (1..u32::BITS).map(|bit| (having(1 << bit), 1 << bit));
    let other = others.filter(|(count, _)| *count > english.max(1)).max().map_or(0, |(_, language)| language);
    let says_nothing: HashSet<&String> = words.iter().filter(|word| languages(word) & (ENGLISH | other) != 0).collect();
    words.iter().filter(|word| !says_nothing.contains(word)).cloned().collect()
}

/// The first line of the file.
const ENGLISH: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::words;

    #[test]
    fn stop_words_of_the_language_are_left_out() {
        for (text, left) in [
            ("what is the weather in the city", vec!["weather", "city"]),
            ("Wie wird das Wetter in der Stadt", vec!["wetter", "stadt"]),
            ("quel est le temps dans la ville", vec!["temps", "ville"]),
            ("which of the", vec!["which", "of", "the"]),
            ("die roll", vec!["die", "roll"]),
            ("", vec![]),
        ] {
            assert_eq!(without_stop_words(words(text)), left, "{text}");
        }
    }
}
