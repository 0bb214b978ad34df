//! One spelling for texts: those that look the same, or decode to the same, are found as the same.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

use crate::rules::RULES;

/// How deep encodings are undone, one within the other.
const MAX_DEPTH: usize = 3;
/// A value has at most so many spellings.
const MAX_SPELLINGS: usize = 12;
/// Longer texts are not decoded.
const MAX_DECODED: usize = 4 << 10;
/// Bytes from the most to the least common in texts and addresses.
const COMMON: &[u8] = b" etaoinsrhldcu.mfpgwyb/-v";
/// Bytes of a text of which the rarest is looked for.
const MAX_RANKED: usize = 32;
/// Bytes between two letters of a word that is written one by one.
const MAX_GAP: usize = 4;
/// The letters and digits of a number that is found in other groups: a shorter one stands by chance where two others meet.
const MIN_NUMBER: usize = 8;
/// Letters that look like capitals, in the order of the alphabet; of X there is none.
const SMALL_CAPITALS: &str = "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡxʏᴢ";
/// The first of 26 letters each: in circles, in squares, and of flags.
const ENCLOSED: [u32; 3] = [0x1f150, 0x1f170, 0x1f1e6];
/// Bytes of a text that are normalized at once.
const MAX_PART: usize = 4 << 10;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A text as it is stored: in NFKC, without invisible characters, other than ASCII in lower case, white space as one space. ASCII
/// keeps its case, since people read it.
pub fn stored(text: &str) -> String {
    stored_up_to(text, usize::MAX)
}

/// The same, of as much of the text as gives `max` bytes or few more: NFKC makes up to eleven bytes of one.
pub(crate) fn stored_up_to(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    let mut rest = text;
    while !rest.is_empty() && out.len() < max {
        let (part, after) = rest.split_at(part_of(rest));
        let part: Cow<'_, str> = if part.is_ascii() {
            Cow::Borrowed(part)
        } else {
            icu_normalizer::ComposingNormalizerBorrowed::new_nfkc().normalize(part)
        };
        push_stored(&part, &mut out);
        rest = after;
    }
    out.truncate(out.trim_end().len());
    out
}

/// The length of the part that is normalized at once. It ends before an ASCII character, which no character of before joins.
fn part_of(text: &str) -> usize {
    let end = text.floor_char_boundary(MAX_PART);
    match text.as_bytes()[..end].iter().rposition(u8::is_ascii) {
        Some(at) if at > 0 && end < text.len() => at,
        _ => end,
    }
}

fn push_stored(text: &str, out: &mut String) {
    for character in text.chars() {
        if character.is_whitespace() || character.is_control() {
            if !out.ends_with(' ') && !out.is_empty() {
                out.push(' ');
            }
        } else if character.is_ascii() {
            out.push(character);
        } else if !is_invisible(character) {
            out.extend(character.to_lowercase());
        }
    }
}

/// Characters that are not drawn: format characters, joiners, selectors, tags.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{2800}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A value and its decodings, each in the stored form, the plainest last.
pub(crate) fn spellings(value: &str) -> Vec<String> {
    let mut all = vec![stored(value)];
    let bare = all[0].trim_matches(|character: char| "<>\"'`()[]".contains(character)).to_owned();
    if !bare.is_empty() && bare != all[0] {
        all.push(bare);
    }
    let (mut at, mut depth_ends, mut depth) = (0, all.len(), 0);
    while at < all.len() && depth < MAX_DEPTH && all.len() < MAX_SPELLINGS {
        let decoded = decodings(&all[at]);
        for text in decoded {
            let text = stored(&text);
            if !text.is_empty() && !all.contains(&text) && all.len() < MAX_SPELLINGS {
                all.push(text);
            }
        }
        at += 1;
        if at == depth_ends {
            (depth, depth_ends) = (depth + 1, all.len());
        }
    }
    all
}

/// The texts that decode from a word, of encodings within each other too.
pub fn decoded(word: &str) -> impl Iterator<Item = String> {
    spellings(word).into_iter().skip(1)
}

/// The texts that decode from a text in one step.
fn decodings(text: &str) -> Vec<String> {
    if text.len() > MAX_DECODED {
        return Vec::new();
    }
    let mut found = Vec::new();
    if text.contains('%') {
        found.extend(percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned));
    }
    if text.contains('&') {
        found.push(html_escape::decode_html_entities(text).into_owned());
    }
    if text.contains('\\') {
        found.push(without_escapes(text));
    }
    if text.contains('=') {
        found.push(without_quoted_printable(text));
    }
    found.extend(binary(text));
    found.retain(|decoded| decoded != text);
    found
}

/// Base64 or hexadecimal digits that say a text.
pub(crate) fn binary(text: &str) -> Option<String> {
    let compact: Cow<'_, str> =
        if text.contains(' ') { Cow::Owned(text.replace(' ', "")) } else { Cow::Borrowed(text) };
    if compact.len() < 8 || !compact.is_ascii() {
        return None;
    }
    let hexadecimal = compact.strip_prefix("0x").unwrap_or(&compact);
    let bytes = hex::decode(hexadecimal)
        .or_else(|_| STANDARD.decode(compact.as_bytes()))
        .or_else(|_| URL_SAFE.decode(compact.as_bytes()))
        .ok()?;
    let text = String::from_utf8(without_zeros(bytes)).ok()?;
    let is_text = text.len() >= 4 && text.chars().all(|character| !character.is_control() || character.is_whitespace());
    is_text.then_some(text)
}

/// ASCII characters in UTF-16, in either order of its bytes, as themselves.
fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    let are_zero = |from: usize| bytes.iter().skip(from).step_by(2).all(|byte| *byte == 0);
    let (low_first, high_first) = (are_zero(1), are_zero(0));
    match bytes.len() % 2 {
        0 if low_first => bytes.into_iter().step_by(2).collect(),
        0 if high_first => bytes.into_iter().skip(1).step_by(2).collect(),
        _ => bytes,
    }
}

/// `\n`, `\"`, `\u0041`, `\u{41}` and `\x41` as the characters that they mean.
pub fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (begin, digits) = match rest.as_bytes() {
            [b'u', b'{', code @ ..] => (2, code.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count()),
            [b'u', ..] => (1, 4),
            [b'x', ..] => (1, 2),
            _ => (1, 0),
        };
        let code = rest.get(begin..begin + digits).filter(|_| digits > 0);
        let character = code.and_then(|code| u32::from_str_radix(code, 16).ok()).and_then(char::from_u32);
        if let Some(character) = character {
            out.push(character);
            rest = &rest[begin + digits..];
            rest = rest.strip_prefix('}').filter(|_| begin == 2).unwrap_or(rest);
        } else if let Some(next) = rest.chars().next() {
            out.push(if matches!(next, 'n' | 'r' | 't') { ' ' } else { next });
            rest = &rest[next.len_utf8()..];
        }
    }
    out.push_str(rest);
    out
}

/// `=40` as `@`.
fn without_quoted_printable(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        let byte = rest.get(..2).filter(|_| *first == b'=').and_then(|pair| hex::decode(pair).ok());
        match byte {
            Some(byte) => {
                out.extend(byte);
                bytes = rest.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Texts within a longer text that is encoded as a whole or word by word.
pub(crate) fn hidden_in(text: &str, max: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || "+/=_-%&;#\\".contains(character)));
    for word in words.filter(|word| word.len() >= 6) {
        let is_encoded = word.len() >= 12 && !word.contains(['%', '&', '\\'])
            || word.contains(['%', '\\'])
            || word.contains('&') && word.contains(';')
            || word.contains('=');
        if is_encoded && found.len() < max {
            found.extend(spellings(word).into_iter().skip(1).filter(|text| text.len() >= 4));
        }
    }
    if text.contains(['%', '&', '\\', '=']) && text.len() <= MAX_DECODED {
        found.extend(decodings(text).into_iter().map(|decoded| stored(&decoded)));
    }
    found.truncate(max);
    found
}

/// The first place of [`places`].
pub(crate) fn find(text: &str, needle: &str) -> Option<usize> {
    places(text, needle).next()
}

/// Where `needle` stands in `text`, ASCII letters of either case being the same, not within a longer word or number.
pub(crate) fn places(text: &str, needle: &str) -> impl Iterator<Item = usize> {
    Needle { bytes: needle.as_bytes(), rare: 0 }.places(text)
}

/// A text that is looked for in many others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needle<'a> {
    bytes: &'a [u8],
    /// The place of the byte that is looked for first.
    rare: usize,
}

impl<'a> Needle<'a> {
    /// The byte that is rarest in most texts is looked for first: few places have to be compared then.
    pub(crate) fn new(text: &'a str) -> Self {
        let rank =
            |byte: u8| COMMON.iter().position(|common| *common == byte.to_ascii_lowercase()).unwrap_or(COMMON.len());
        let ranked = text.bytes().take(MAX_RANKED).enumerate();
        let rare = ranked.max_by_key(|(_, byte)| rank(*byte)).map_or(0, |(at, _)| at);
        Self { bytes: text.as_bytes(), rare }
    }

    /// The first place of [`Self::places`].
    pub(crate) fn find(self, text: &str) -> Option<usize> {
        self.places(text).next()
    }

    fn places(self, text: &str) -> impl Iterator<Item = usize> + use<'a, '_> {
        let Self { bytes: needle, rare } = self;
        // An empty text stands nowhere.
        let (byte, text) = needle.get(rare).map_or((0, &[][..]), |byte| (*byte, text.as_bytes()));
        let found = memchr::memchr2_iter(byte.to_ascii_lowercase(), byte.to_ascii_uppercase(), text);
        found.filter_map(move |at| at.checked_sub(rare)).filter(move |&at| {
            // Within a long word of one letter, each place would be compared as a whole.
            is_edge(text, at.wrapping_sub(1), needle[0])
                && is_edge(text, at + needle.len(), needle[needle.len() - 1])
                && text.get(at..at + needle.len()).is_some_and(|part| part.eq_ignore_ascii_case(needle))
        })
    }
}

/// Where the letters and digits of `needle` stand in `text` one by one, with something else between most of them.
pub(crate) fn find_spaced(text: &str, needle: &str) -> Option<usize> {
    let letters: Vec<u8> = needle.bytes().filter(|byte| is_word(*byte)).collect();
    let (text, first) = (text.as_bytes(), *letters.first()?);
    let mut starts = memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text);
    let is_alone = |at: usize| is_edge(text, at.wrapping_sub(1), first) && is_edge(text, at + 1, first);
    let is_spaced = |at: &usize| is_alone(*at) && spaced_at(&text[*at..], &letters);
    starts.find(is_spaced)
}

fn spaced_at(text: &[u8], letters: &[u8]) -> bool {
    let (mut rest, mut gaps) = (text, 0);
    for letter in letters {
        let gap = rest.iter().take(MAX_GAP).take_while(|byte| !is_word(**byte)).count();
        match rest.get(gap) {
            Some(byte) if byte.eq_ignore_ascii_case(letter) => rest = &rest[gap + 1..],
            _ => return false,
        }
        gaps += usize::from(gap > 0);
    }
    gaps * 2 > letters.len()
}

/// The letters and digits of a text, without what stands between them.
pub(crate) fn letters_of(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| is_word(*byte)).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Whether a long number is among these letters, in whatever groups its digits are written.
pub(crate) fn has_number(letters: &[u8], number: &str) -> bool {
    let number = letters_of(number);
    let digits = number.iter().filter(|byte| byte.is_ascii_digit()).count();
    number.len() >= MIN_NUMBER && digits * 2 > number.len() && memchr::memmem::find(letters, &number).is_some()
}

/// The text with Latin letters in place of those that look the same, where a word has both kinds.
pub fn without_look_alikes(text: &str) -> Option<String> {
    let latin = |character: char| match character.is_ascii() {
        true => None,
        false => RULES.look_alikes.get(&character).copied(),
    };
    let is_mixed = |word: &str| {
        word.chars().any(|character| character.is_ascii_alphabetic()) && word.chars().any(|one| latin(one).is_some())
    };
    let has_mixed = !text.is_ascii() && text.split(|character: char| !character.is_alphanumeric()).any(is_mixed);
    has_mixed.then(|| text.chars().map(|character| latin(character).unwrap_or(character)).collect())
}

/// The text without marks on its letters, and with Latin letters in place of small capitals and of letters in circles, squares and flags.
pub fn in_plain_letters(text: &str) -> Option<String> {
    let apart = icu_normalizer::DecomposingNormalizerBorrowed::new_nfkd().normalize(text);
    let letters = apart.chars().filter(|character| !is_mark(*character));
    let plain: String = letters.map(|character| plain_letter(character).unwrap_or(character)).collect();
    (plain != text).then_some(plain)
}

/// Accents, strokes and the like, which are drawn over the letter before.
fn is_mark(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

fn plain_letter(character: char) -> Option<char> {
    if character.is_ascii() {
        return None;
    }
    let code = u32::from(character);
    let enclosed = ENCLOSED.iter().find_map(|first| code.checked_sub(*first).filter(|place| *place < 26));
    let small = || SMALL_CAPITALS.chars().zip(0..).find(|(known, _)| *known == character).map(|(_, place)| place);
    char::from_u32(u32::from('a') + enclosed.or_else(small)?)
}

/// Whether the byte beside a place belongs to another word.
fn is_edge(text: &[u8], beside: usize, own: u8) -> bool {
    // A path that begins within another one is not that path.
    !(is_word(own) || own == b'/') || text.get(beside).is_none_or(|byte| !is_word(*byte))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

#[cfg(test)]
mod tests;
