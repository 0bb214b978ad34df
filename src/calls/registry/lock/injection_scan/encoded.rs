//! Blocks of Base64 (RFC 4648), which may hide a text from a reader.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Minimum length of a block; shorter ones are often names, hashes or paths.
const SHORTEST: usize = 48;

/// Length from which a block is always reported, with any decoded content.
const LONG: usize = 400;

/// Minimum share of printable characters for decoded bytes to count as a text.
const TEXT: f64 = 0.95;

/// Describes the first block in a text.
pub(super) fn find(text: &str) -> Option<String> {
    if text.len() < SHORTEST {
        return None;
    }
    text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/' | '-' | '_' | '='))
        .filter(|block| block.len() >= SHORTEST && is_mixed(block))
        .find_map(|block| {
            let length = block.len();
            match decoded(block) {
                Some(text) if is_text(&text) => Some(format!("{length} characters of Base64 that decode to a text")),
                Some(_) if length >= LONG => Some(format!("{length} characters of Base64")),
                _ => None,
            }
        })
}

/// Excludes words, paths and hexadecimal numbers, which have one case or no digits.
fn is_mixed(block: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| block.as_bytes().iter().any(kind);
    has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit)
}

fn decoded(block: &str) -> Option<Vec<u8>> {
    /// Padding is often left out, and the last bits are not always zero.
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let block: String = block.trim_end_matches('=').replace('-', "+").replace('_', "/");
    // A single remaining character does not encode a byte.
    let whole = if block.len() % 4 == 1 { &block[..block.len() - 1] } else { &block };
    GeneralPurpose::new(&STANDARD, LENIENT).decode(whole).ok()
}

fn is_text(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (mut all, mut printable) = (0_u32, 0_u32);
    for character in text.chars() {
        all += 1;
        printable +=
            u32::from(character != char::REPLACEMENT_CHARACTER && (!character.is_control() || character == '\n'));
    }
    all > 0 && f64::from(printable) / f64::from(all) >= TEXT
}
