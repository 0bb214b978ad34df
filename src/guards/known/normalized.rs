//! A text in the form that the patterns of the detectors are written for, with the places that its parts have in the original:
//! without invisible characters, with one plain space for any, and with ASCII for full-width letters, other digits and HTML
//! character references.

use std::ops::Range;

use sekisho_core::visible_text::is_hidden;

/// Maximum characters of an HTML character reference, with `&` and `;`.
const MAX_REFERENCE: usize = 12;

/// Named references of characters that are in findings of detectors, or divide them (HTML, section 13.5).
const NAMED: [(&str, char); 26] = [
    ("amp", '&'),
    ("apos", '\''),
    ("colon", ':'),
    ("commat", '@'),
    ("dash", '-'),
    ("emsp", ' '),
    ("ensp", ' '),
    ("equals", '='),
    ("gt", '>'),
    ("hairsp", ' '),
    ("hyphen", '-'),
    ("lowbar", '_'),
    ("lt", '<'),
    ("nbsp", ' '),
    ("num", '#'),
    ("numsp", ' '),
    ("period", '.'),
    ("plus", '+'),
    ("puncsp", ' '),
    ("quot", '"'),
    ("shy", '\u{ad}'),
    ("sol", '/'),
    ("thinsp", ' '),
    ("zwj", '\u{200d}'),
    ("zwnj", '\u{200c}'),
    ("NewLine", '\n'),
];

/// The text, and where its parts were.
#[derive(Debug)]
pub(super) struct Normalized {
    pub(super) text: String,
    /// In order; each goes on until the next.
    pieces: Vec<Piece>,
}

/// A part of the text that was copied, or that stands for another one.
#[derive(Debug)]
struct Piece {
    /// Where it begins in the normalized text.
    at: usize,
    original: Range<usize>,
    is_copied: bool,
}

impl Normalized {
    /// `None` for a text that is in this form already, as most are. Takes time and memory in proportion to the text.
    pub(super) fn of(text: &str) -> Option<Self> {
        if is_plain(text) {
            return None;
        }
        let mut normalized = Self { text: String::with_capacity(text.len()), pieces: Vec::new() };
        let (mut at, mut is_changed) = (0, false);
        while let Some(character) = text[at..].chars().next() {
            let (character, length) = reference(&text[at..]).unwrap_or((character, character.len_utf8()));
            let original = at..at + length;
            at = original.end;
            is_changed |= !normalized.push(character, original, text);
        }
        is_changed.then_some(normalized)
    }

    /// Where a part of it is in the original.
    pub(super) fn original(&self, place: &Range<usize>) -> Range<usize> {
        let first = self.piece(place.start);
        let last = self.piece(place.end.saturating_sub(1));
        let start = first.map_or(0, |piece| piece.start_of(place.start));
        start..last.map_or(start, |piece| piece.end_of(place.end))
    }

    fn piece(&self, at: usize) -> Option<&Piece> {
        let after = self.pieces.partition_point(|piece| piece.at <= at);
        after.checked_sub(1).and_then(|index| self.pieces.get(index))
    }

    /// Adds a character of the original; returns whether it is there as it was.
    fn push(&mut self, character: char, original: Range<usize>, text: &str) -> bool {
        if is_hidden(character) {
            return false;
        }
        let plain = plain(character);
        if plain == ' ' && self.text.ends_with(' ') {
            // One space stands for all of them.
            if let Some(piece) = self.pieces.last_mut() {
                match piece.is_copied {
                    false => piece.original.end = original.end,
                    true => {
                        // The copied space becomes a piece of its own.
                        piece.original.end -= 1;
                        let space = Piece {
                            at: self.text.len() - 1,
                            original: piece.original.end..original.end,
                            is_copied: false,
                        };
                        if piece.original.is_empty() {
                            self.pieces.pop();
                        }
                        self.pieces.push(space);
                    }
                }
            }
            return false;
        }
        let is_copied = text.get(original.clone()).is_some_and(|text| text.chars().eq([plain]));
        let at = self.text.len();
        self.text.push(plain);
        match self.pieces.last_mut() {
            Some(piece) if is_copied && piece.is_copied && piece.original.end == original.start => {
                piece.original.end = original.end;
            }
            _ => self.pieces.push(Piece { at, original, is_copied }),
        }
        is_copied
    }
}

impl Piece {
    fn start_of(&self, at: usize) -> usize {
        self.original.start + if self.is_copied { at - self.at } else { 0 }
    }

    /// `end`: in the normalized text, behind a character of this piece.
    fn end_of(&self, end: usize) -> usize {
        if self.is_copied { self.original.start + (end - self.at) } else { self.original.end }
    }
}

/// Whether nothing in it needs to be replaced: decided without looking at characters.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n' | b'\r');
    text.is_ascii() && text.as_bytes().iter().all(|byte| is_plain(byte) && *byte != b'&') && !text.contains("  ")
}

fn plain(character: char) -> char {
    let code = u32::from(character);
    let digit = |zero: u32| char::from_digit((code - zero) % 10, 10).unwrap_or(character);
    match character {
        '\n' | '\r' => character,
        _ if character.is_whitespace() => ' ',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => '-',
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(code - 0xfee0).unwrap_or(character),
        '\u{fe6b}' => '@',
        '\u{2024}' | '\u{fe52}' | '\u{ff61}' => '.',
        // Arabic, Persian, Devanagari and mathematical digits.
        '\u{660}'..='\u{669}' => digit(0x660),
        '\u{6f0}'..='\u{6f9}' => digit(0x6f0),
        '\u{966}'..='\u{96f}' => digit(0x966),
        '\u{1d7ce}'..='\u{1d7ff}' => digit(0x1d7ce),
        _ => character,
    }
}

/// The character for which the HTML character reference at the beginning of a text stands, and the length of that.
fn reference(text: &str) -> Option<(char, usize)> {
    let rest = text.strip_prefix('&')?;
    let (character, length) = match rest.strip_prefix('#') {
        Some(number) => numeric_reference(number).map(|(character, length)| (character, 1 + length))?,
        None => {
            let length = prefix_length(rest, u8::is_ascii_alphanumeric);
            let (_, character) = *NAMED.iter().find(|(known, _)| rest.get(..length) == Some(known))?;
            rest.get(length..)?.strip_prefix(';')?;
            (character, length)
        }
    };
    let has_end = rest.get(length..)?.starts_with(';');
    Some((character, 1 + length + usize::from(has_end)))
}

/// Browsers read numbers without the semicolon too.
fn numeric_reference(number: &str) -> Option<(char, usize)> {
    let hex = number.strip_prefix(['x', 'X']);
    let (digits, radix) = hex.map_or((number, 10), |hex| (hex, 16));
    let is_digit = if hex.is_some() { u8::is_ascii_hexdigit } else { u8::is_ascii_digit };
    let length = prefix_length(digits, is_digit);
    let code = u32::from_str_radix(digits.get(..length)?, radix).ok()?;
    Some((char::from_u32(code)?, length + usize::from(hex.is_some())))
}

/// The bytes at the beginning of a text that are parts of a reference.
fn prefix_length(text: &str, is_part: impl Fn(&u8) -> bool) -> usize {
    text.bytes().take(MAX_REFERENCE).take_while(is_part).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_read_as_a_person_reads_it() {
        for (text, expected) in [
            ("4111\u{a0}1111", "4111 1111"),
            ("4111 \u{2009}\t 1111", "4111 1111"),
            ("a\u{200b}b\u{feff}c", "abc"),
            ("４１１１－ａ＠ｂ．ｃ", "4111-a@b.c"),
            ("٤١١١ ۴۱ ४१ \u{1d7d2}\u{1d7ff}", "4111 41 41 49"),
            ("a&#64;b&#x2E;c &commat; &nbsp;&#160;x", "a@b.c @ x"),
            ("a&#64b", "a@b"),
            ("41&shy;11&#8203;11", "411111"),
            ("a\u{2011}b", "a-b"),
        ] {
            let normalized = Normalized::of(text).unwrap();
            assert_eq!(normalized.text, expected, "{text:?}");
            assert_eq!(normalized.original(&(0..expected.len())), 0..text.len(), "{text:?}");
        }
        for plain in ["", "a b\nc\r\n", "x & y && z &unknown; &#; &#x110000; &", "größe 名前", "&#1234567890123;"] {
            assert!(Normalized::of(plain).is_none(), "{plain:?}");
        }
    }

    proptest! {
        /// Each character has the place of an original character, and the places are in the order of the text.
        #[test]
        fn places_are_those_of_the_original(
            text in prop_oneof![any::<String>(), "(a|4| |\u{a0}|\u{200b}|４|&#64;|&nbsp;|é|\\t){0,24}"],
        ) {
            let Some(normalized) = Normalized::of(&text) else { return Ok(()) };
            let mut end = 0;
            for (at, character) in normalized.text.char_indices() {
                let original = normalized.original(&(at..at + character.len_utf8()));
                prop_assert!(original.start >= end, "{original:?} after {end}");
                let of = text.get(original.clone());
                prop_assert!(of.is_some_and(|of| !of.is_empty()), "{original:?}");
                let of = of.unwrap_or_default();
                prop_assert!(of.starts_with('&') || plain(of.chars().next().unwrap_or_default()) == character);
                end = original.end;
            }
        }
    }
}
