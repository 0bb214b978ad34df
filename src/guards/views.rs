//! A text as it is written, normalized, and decoded.

use std::borrow::Cow;

use sekisho_core::visible_text::is_hidden;

/// Characters of an encoded word, at least: shorter ones say no sentence.
const MIN_RUN: usize = 24;
/// Encoded words of a text that are decoded.
const MAX_RUNS: usize = 16;
/// Bytes of a text that are looked at together.
const BLOCK: usize = 64;
/// Bytes of an encoded word that are decoded.
const MAX_RUN: usize = 4 << 10;

/// The text as the rules search it first. Borrowed: it is written so.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let stored = sekisho_flow::normalized(text);
    Cow::Owned(sekisho_flow::without_look_alikes(&stored).unwrap_or(stored))
}

/// Whether nobody reads it otherwise than it is written.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x80..);
    // Whole blocks: several bytes are compared at once then.
    let is_plain_block = |block: &[u8]| block.iter().fold(true, |all, byte| all & is_plain(*byte));
    text.as_bytes().chunks(BLOCK).all(is_plain_block) && (text.is_ascii() || has_ordinary_letters(text))
}

fn has_ordinary_letters(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| !byte.is_ascii()) {
        let mut letters = rest[at..].chars();
        if !letters.next().is_some_and(is_ordinary) {
            return false;
        }
        rest = letters.as_str();
    }
    true
}

/// Common letters and signs other than ASCII that normalization keeps, but for their case, and that look like no other. An ellipsis
/// becomes three points, which says the same.
fn is_ordinary(character: char) -> bool {
    matches!(character,
        '\u{a1}'..='\u{a7}' | '\u{a9}' | '\u{ab}' | '\u{ae}' | '\u{b0}' | '\u{b1}' | '\u{b6}' | '\u{b7}' | '\u{bb}'
        | '\u{bf}'..='\u{12f}' | '\u{134}'..='\u{13e}' | '\u{141}'..='\u{148}' | '\u{14a}'..='\u{17e}' | '\u{1ea0}'..='\u{1ef9}'
        | '\u{2012}'..='\u{2016}' | '\u{2018}'..='\u{201e}' | '\u{2022}' | '\u{2026}' | '\u{20ac}' | '\u{2190}'..='\u{21ff}'
        | '\u{2500}'..='\u{257f}' | '\u{3001}'..='\u{3020}' | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fe}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{1f300}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1faff}')
}

/// Texts that are hidden in it: in tag characters, HTML references, escapes and encoded words, and between hidden characters.
/// `is_plain`: [`plain`] has left it as it is.
pub(crate) fn decoded(text: &str, is_plain: bool) -> Vec<String> {
    let mut found = Vec::new();
    if !is_plain {
        let tags: String = text.chars().filter_map(of_tag).collect();
        found.extend((!tags.is_empty()).then_some(tags));
        // A model reads a hidden character between two words as their space.
        found.extend(text.contains(is_hidden).then(|| text.replace(is_hidden, " ")));
        found.extend(without_colours(text));
        found.extend(sekisho_flow::in_plain_letters(text));
    }
    // Quoted-printable ends a line within a word so.
    if text.contains("=\n") || text.contains("=\r\n") {
        found.push(text.replace("=\r\n", "").replace("=\n", ""));
    }
    if text.contains("\\u") || text.contains("\\x") {
        found.push(sekisho_flow::without_escapes(text));
    }
    if text.contains("&#") {
        found.push(html_escape::decode_html_entities(text).into_owned());
    }
    for run in runs(text).into_iter().take(MAX_RUNS) {
        found.extend(sekisho_flow::decoded(&run[..run.len().min(MAX_RUN)]));
    }
    found
}

/// The text without the sequences that set colours: a terminal shows the letters around one as one word.
fn without_colours(text: &str) -> Option<String> {
    let (first, rest) = text.split_once("\u{1b}[")?;
    let mut plain = first.to_owned();
    for part in rest.split("\u{1b}[") {
        let after = part.trim_start_matches(|character: char| character.is_ascii_digit() || character == ';');
        plain.push_str(after.strip_prefix('m').unwrap_or(after));
    }
    Some(plain)
}

/// The ASCII character that a tag character (U+E0020 to U+E007E) encodes.
fn of_tag(character: char) -> Option<char> {
    u32::from(character).checked_sub(0xe0000).and_then(char::from_u32).filter(|letter| (' '..='~').contains(letter))
}

/// Long words of the letters of Base64 and of percent-encoding. Looks only at every [`MIN_RUN`]th byte, and around those that may
/// be of one.
fn runs(text: &str) -> Vec<&str> {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'%');
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), MIN_RUN - 1);
    while let Some(byte) = bytes.get(at) {
        if !is_of(*byte) {
            at += MIN_RUN;
            continue;
        }
        let start = bytes[..at].iter().rposition(|byte| !is_of(*byte)).map_or(0, |before| before + 1);
        let end = bytes[at..].iter().position(|byte| !is_of(*byte)).map_or(bytes.len(), |length| at + length);
        if end - start >= MIN_RUN && may_be_encoded(&bytes[start..end]) {
            found.extend(text.get(start..end));
        }
        at = end + MIN_RUN;
    }
    found
}

/// Words, paths and digests have one case, or are no text in hexadecimal digits.
fn may_be_encoded(run: &[u8]) -> bool {
    let has = |kind: fn(&u8) -> bool| run.iter().any(kind);
    has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) || run.contains(&b'%') || is_hexadecimal_text(run)
}

/// Pairs of digits for ASCII characters from the space on, after `0x` or without it.
fn is_hexadecimal_text(run: &[u8]) -> bool {
    let mut pairs = run.strip_prefix(b"0x").unwrap_or(run).chunks(2);
    pairs.all(|pair| matches!(pair, [b'2'..=b'7', digit] if digit.is_ascii_hexdigit()))
}

/// Escapes by which a terminal does more than colour a text, and characters that turn its direction, in a text without letters that
/// are written from right to left: both hide text.
pub(crate) fn hides_text(text: &str) -> Option<&'static str> {
    if text.is_ascii() {
        return (text.contains('\u{1b}') && has_escape(text)).then_some("terminal_escape");
    }
    if text.chars().any(|character| of_tag(character).is_some()) && !is_flag(text) {
        return Some("tag_characters");
    }
    if has_escape(text) {
        return Some("terminal_escape");
    }
    let is_turned = |character: char| matches!(character, '\u{202d}' | '\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_right_to_left = |character: char| matches!(character, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fefc}');
    if text.contains(is_turned) && !text.contains(is_right_to_left) {
        return Some("turned_text");
    }
    has_hidden_run(text).then_some("invisible_characters")
}

/// Flags of regions end with a tag, and begin with a black flag.
fn is_flag(text: &str) -> bool {
    let mut in_flag = false;
    text.chars().all(|character| {
        if matches!(character, '\u{1f3f4}') {
            in_flag = true;
        } else if of_tag(character).is_none() && character != '\u{e007f}' {
            in_flag = false;
        }
        of_tag(character).is_none() || in_flag
    })
}

/// Anything but a sequence that sets colours or weight. A terminal does not show text after parameter 8.
fn has_escape(text: &str) -> bool {
    text.split('\u{1b}').skip(1).any(|rest| {
        let Some(rest) = rest.strip_prefix('[') else { return true };
        let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        rest.as_bytes().get(length) != Some(&b'm') || has_concealed(&rest[..length])
    })
}

fn has_concealed(parameters: &str) -> bool {
    let mut parameters = parameters.split(';');
    while let Some(parameter) = parameters.next() {
        match parameter {
            "8" => return true,
            // A colour follows, by its number or by three parts.
            "38" | "48" | "58" => {
                let parts = if parameters.next() == Some("2") { 3 } else { 1 };
                parameters.by_ref().take(parts).for_each(drop);
            }
            _ => {}
        }
    }
    false
}

/// Four hidden characters in a row hide bits; scripts and emoji need fewer. Tags are looked at before.
fn has_hidden_run(text: &str) -> bool {
    let mut run = 0;
    text.chars().any(|character| {
        let is_tag = of_tag(character).is_some() || character == '\u{e007f}';
        run = if is_hidden(character) && !is_tag { run + 1 } else { 0 };
        run >= 4
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_letters_need_no_normalization() {
        let ordinary = ('\u{80}'..=char::MAX).filter(|character| is_ordinary(*character) && *character != '…');
        for character in ordinary {
            let text = format!("a{character}b{character}");
            let expected: String = text.chars().flat_map(char::to_lowercase).collect();
            assert_eq!(sekisho_flow::normalized(&text), expected, "{character:?}");
            assert_eq!(sekisho_flow::without_look_alikes(&expected), None, "{character:?}");
            assert_eq!(hides_text(&text), None, "{character:?}");
        }
        for text in ["a\u{a0}b", "e\u{301}", "\u{200b}", "か\u{3099}", "раypal", "\u{1b}[m", "\u{7f}", "ﬁ"] {
            assert!(!is_plain(text), "{text:?}");
        }
    }
}
