//! Text for a person who decides by it: no character is invisible, and no two texts look alike because of one.

use std::borrow::Cow;
use std::fmt::Write;

/// Letters of other scripts that look like Latin ones: names that consist of them read as others.
const LATIN_LOOKALIKES: &str = "авекмнорстухѕіјһԁԛԝӏьАВЕКМНОРСТУХЅІЈҮԌԚԜӀΑΒΕΖΗΙΚΜΝΟΡΤΥΧοανρυικχτωγ";

/// Whether a character is invisible or displayed out of place: control characters, zero-width characters, directional marks, tags,
/// variation selectors, blank letters. (Unicode 16: general categories Cc and Cf without the visible signs of the latter, and
/// `Default_Ignorable_Code_Point`.) Line ends and tabs are none.
pub fn is_hidden(character: char) -> bool {
    matches!(character,
        '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}'
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        && character != '\r'
}

/// Whether the text has neither hidden nor control characters.
pub fn is_visible(text: &str) -> bool {
    !text.contains(|character: char| character.is_control() || is_hidden(character))
}

/// The text with all hidden and control characters escaped, as `\u200b` or, above U+FFFF, `\u{e0041}`. No two texts become one:
/// backslashes before an escape, or before a `u`, are doubled.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |character| character.is_control() || is_hidden(character))
}

/// The name of a member, escaped as [`visible`] does. Text that could be read as another name is escaped too: letters
/// of several scripts in one name, letters that look like Latin ones, combining marks, and all other characters that
/// are neither ASCII nor letters.
pub fn visible_name(name: &str) -> Cow<'_, str> {
    let is_plain_script = name.is_ascii() || has_plain_script(name);
    escaped(name, |character| {
        let is_plain = character.is_ascii() || (is_plain_script && script_of(character).is_some());
        character.is_control() || is_hidden(character) || !is_plain
    })
}

fn escaped(text: &str, hides: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hides) && !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut backslashes = 0;
    for character in text.chars() {
        if character == '\\' {
            backslashes += 1;
            escaped.push(character);
            continue;
        }
        let is_hidden = hides(character);
        if is_hidden || character == 'u' {
            escaped.extend(std::iter::repeat_n('\\', backslashes));
        }
        backslashes = 0;
        // Writing to a string cannot fail.
        let _ = match u32::from(character) {
            _ if !is_hidden => escaped.write_char(character),
            code @ ..=0xffff => write!(escaped, "\\u{code:04x}"),
            code => write!(escaped, "\\u{{{code:x}}}"),
        };
    }
    Cow::Owned(escaped)
}

/// Scripts whose letters nobody takes for letters of another script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    Hebrew,
    Arabic,
    Devanagari,
    Thai,
    EastAsian,
}

/// `None` for a character that is no letter of these scripts, or is easily taken for a letter of another.
fn script_of(character: char) -> Option<Script> {
    Some(match character {
        // With their vowel signs, which are no letters of their own.
        '\u{900}'..='\u{963}' => Script::Devanagari,
        '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' => Script::Thai,
        _ if !character.is_alphabetic() => return None,
        'a'..='z' | 'A'..='Z' => Script::Latin,
        // The dotless i, kra, the n with an apostrophe and the long s.
        '\u{131}' | '\u{138}' | '\u{149}' | '\u{17f}' | '\u{aa}' | '\u{ba}' => return None,
        '\u{c0}'..='\u{17f}' => Script::Latin,
        '\u{370}'..='\u{3ff}' => Script::Greek,
        '\u{400}'..='\u{52f}' => Script::Cyrillic,
        '\u{5d0}'..='\u{5ea}' => Script::Hebrew,
        '\u{620}'..='\u{64a}' | '\u{66e}'..='\u{6d3}' => Script::Arabic,
        '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' => {
            Script::EastAsian
        }
        _ => return None,
    })
}

/// Whether all letters are of one script, and not all of them look like Latin ones.
fn has_plain_script(name: &str) -> bool {
    let mut letters = name.chars().filter(|character| character.is_alphabetic());
    let Some(first) = letters.clone().next().and_then(script_of) else { return false };
    let looks_latin = first != Script::Latin && letters.clone().all(|letter| LATIN_LOOKALIKES.contains(letter));
    letters.all(|letter| script_of(letter) == Some(first)) && !looks_latin
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text before it was escaped.
    fn original(shown: &str) -> String {
        let (mut text, mut rest) = (String::new(), shown);
        while let Some(at) = rest.find('\\') {
            text.push_str(&rest[..at]);
            let backslashes = rest[at..].bytes().take_while(|byte| *byte == b'\\').count();
            rest = &rest[at + backslashes..];
            let Some(after) = rest.strip_prefix('u') else {
                text.extend(std::iter::repeat_n('\\', backslashes));
                continue;
            };
            text.extend(std::iter::repeat_n('\\', backslashes / 2));
            if backslashes % 2 == 0 {
                continue;
            }
            let (code, after) = match after.strip_prefix('{') {
                Some(code) => code.split_once('}').unwrap(),
                None => after.split_at(4),
            };
            text.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
            rest = after;
        }
        text + rest
    }

    #[test]
    fn every_hidden_character_is_shown() {
        for character in [
            '\u{0}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{202e}',
            '\u{2028}',
            '\u{2060}',
            '\u{2065}',
            '\u{206a}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0020}',
            '\u{e0045}',
            '\u{e007f}',
            '\u{e0100}',
            '\u{e01ef}',
            '\n',
            '\t',
        ] {
            let text = format!("acme{character}");
            let (value, name) = (visible(&text), visible_name(&text));
            assert!(value.is_ascii() && value.starts_with("acme\\u") && value == name, "{character:?}: {value}");
        }
        for plain in ["", "acme", "Größe 7 €", "имя", "名前", "a\\b", "C:\\dir"] {
            assert_eq!(visible(plain), plain);
        }
    }

    #[test]
    fn what_looks_like_an_escape_is_told_from_one() {
        for (text, shown) in [
            ("to\u{200b}", "to\\u200b"),
            ("to\\u200b", "to\\\\u200b"),
            ("to\\\\u200b", "to\\\\\\\\u200b"),
            ("to\\\u{200b}", "to\\\\\\u200b"),
            ("C:\\users", "C:\\\\users"),
            ("C:\\dir\\", "C:\\dir\\"),
            ("\u{e0041}b", "\\u{e0041}b"),
        ] {
            assert_eq!((&*visible(text), &*visible_name(text)), (shown, shown));
        }
    }

    #[test]
    fn names_that_look_alike_are_told_apart() {
        for (name, shown) in [
            ("amount", "amount"),
            ("größe", "größe"),
            ("prénom", "prénom"),
            ("имя_файла", "имя_файла"),
            ("名前", "名前"),
            ("ユーザーの名前", "ユーザーの名前"),
            ("이름", "이름"),
            ("नाम_हिन्दी", "नाम_हिन्दी"),
            ("ชื่อ", "ชื่อ"),
            // With one Cyrillic letter, and with nothing but Cyrillic and Greek ones that look like Latin ones.
            ("\u{430}mount", "\\u0430mount"),
            ("сору", "\\u0441\\u043e\\u0440\\u0443"),
            ("ο", "\\u03bf"),
            // Full width, mathematical letters, a dotless i, a combining mark, spaces and hyphens that are not ASCII.
            ("ｔｏ", "\\uff54\\uff4f"),
            ("\u{1d41a}b", "\\u{1d41a}b"),
            ("\u{131}d", "\\u0131d"),
            ("pre\u{301}nom", "pre\\u0301nom"),
            ("a\u{a0}b", "a\\u00a0b"),
            ("a\u{2010}b", "a\\u2010b"),
            ("n\u{661}", "n\\u0661"),
        ] {
            assert_eq!(visible_name(name), shown, "{name:?}");
        }
    }

    proptest! {
        /// So no two texts, and no two names, are shown as one.
        #[test]
        fn what_is_shown_is_one_text_alone(
            text in prop_oneof![
                r"[\\u{}0-9ab\x{200b}\x{e0041}\x{202e}\x{430}é ]{0,16}",
                r"\\{0,3}u?(200b|\{e0041\})?[\x{200b}\x{e0041}]?",
                any::<String>(),
            ],
        ) {
            prop_assert_eq!(original(&visible(&text)), &*text);
            prop_assert_eq!(original(&visible_name(&text)), &*text);
            prop_assert!(!visible(&text).chars().any(|character| character.is_control() || is_hidden(character)));
        }
    }
}
