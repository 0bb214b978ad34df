//! Texts of a server, for people to read.

/// Maximum characters of a server's text in a reason or an error.
const MAX_CHARACTERS: usize = 500;

/// The text without control characters, truncated.
pub(crate) fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').take(MAX_CHARACTERS).collect()
}
