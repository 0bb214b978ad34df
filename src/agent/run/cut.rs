//! Shortens texts that are too long for a model and of which nothing is stored: errors, answers of sub-agents, results of
//! another gateway.

use serde_json::Value;

use sekisho_calls::tool::how_to_read_on;

/// The start of a text that is longer than `max` bytes, and how to read on with the tool, whose parameters these are.
pub(super) fn cut(mut text: String, max: usize, parameters: Option<&Value>) -> String {
    let whole = text.len();
    if whole > max {
        text.truncate(text.floor_char_boundary(max));
        let shown = text.len();
        let next = how_to_read_on(parameters);
        text.push_str(&format!("\n[cut: the first {shown} of {whole} bytes are shown; {next}]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_with_a_note() {
        assert_eq!(cut("関所".into(), 6, None), "関所");
        let short = cut("関所".into(), 5, None);
        assert!(short.starts_with("関\n[cut: the first 3 of 6 bytes are shown"), "{short}");
    }
}
