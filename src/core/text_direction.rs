//! Characters that change the direction of text (UAX #9): with them a caller could make a line read as another.

use std::borrow::Cow;

/// The text with these characters escaped as JSON writes them.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_directional) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| match is_directional(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

fn is_directional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
