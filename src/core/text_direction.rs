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

/// The text with these and all control characters escaped, for a person who decides by what it says.
pub fn visible(text: &str) -> Cow<'_, str> {
    let hides = |c: char| c.is_control() || is_directional(c) || is_invisible(c);
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| match hides(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

/// Takes no space, so that two texts look alike.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

fn is_directional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
