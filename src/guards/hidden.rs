//! Characters that are invisible to a person but read by a model.

use std::fmt::Write;

use sekisho_core::visible_text::is_hidden;

/// Escapes every hidden character as `\u{…}`, so that it is visible and a terminal does not interpret it.
pub fn escape_hidden(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{{{:x}}}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Describes the hidden characters of a text.
pub fn hidden_characters(text: &str) -> Option<String> {
    // Nearly all texts are plain, and most of them ASCII.
    if !text.chars().any(is_hidden) {
        return None;
    }
    let characters: Vec<char> = text.chars().collect();
    let suspect = |at: &usize| is_hidden(characters[*at]) && !is_at_home(&characters, *at);
    let found: Vec<usize> = (0..characters.len()).filter(suspect).collect();
    let first = *found.first()?;
    let smuggled: String = found.iter().filter_map(|at| tag_letter(characters[*at])).take(40).collect();
    let code = u32::from(characters[first]);
    let mut message = match found.len() {
        1 => format!("an invisible character, U+{code:04X} at character {first}"),
        count => format!("{count} invisible characters, the first is U+{code:04X} at character {first}"),
    };
    if !smuggled.is_empty() {
        let _ = write!(message, "; tag characters spell {smuggled:?}");
    }
    Some(message)
}

/// Whether scripts or emoji need the character here: a joiner between non-ASCII characters, or one variation selector
/// after a character that has variants.
fn is_at_home(characters: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| characters.get(before));
    let Some(before) = before.filter(|before| !before.is_ascii()) else {
        // Keycap emoji begin with a digit, `#` or `*`.
        return characters[at] == '\u{fe0f}' && characters.get(at + 1) == Some(&'\u{20e3}');
    };
    match characters[at] {
        '\u{fe0e}' | '\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => !is_hidden(*before),
        '\u{200c}' | '\u{200d}' => {
            let after = characters.get(at + 1).is_some_and(|after| !after.is_ascii() && !is_hidden(*after));
            after && (!is_hidden(*before) || *before == '\u{fe0f}')
        }
        _ => false,
    }
}

/// The ASCII letter that a tag character (U+E0020 to U+E007E) encodes.
fn tag_letter(character: char) -> Option<char> {
    u32::from(character).checked_sub(0xe0000).and_then(char::from_u32).filter(|letter| (' '..='~').contains(letter))
}
