//! English words that say nothing about a tool. A task in whole sentences has so many of them that the words which tell tools apart
//! would be beyond the limit of a query.

/// In the order of the alphabet.
const STOP_WORDS: [&str; 81] = [
    "a", "about", "after", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "before", "but", "by",
    "can", "could", "did", "do", "does", "each", "for", "from", "had", "has", "have", "he", "her", "him", "his", "how",
    "i", "if", "in", "into", "is", "it", "its", "just", "let", "me", "more", "my", "need", "of", "on", "or", "our",
    "please", "she", "should", "so", "some", "such", "sure", "than", "that", "the", "their", "them", "then", "there",
    "these", "they", "this", "those", "to", "want", "was", "we", "were", "what", "when", "where", "which", "while",
    "will", "with", "would", "you",
];

pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_can_be_searched() {
        assert!(STOP_WORDS.is_sorted() && is_stop_word("the") && !is_stop_word("weather"));
    }
}
