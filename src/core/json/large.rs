//! Integers beyond 64 bits that a double does not hold, either. A parsed value has them rounded, so they are found by their digits in the text: a text
//! without [`FEWEST_DIGITS`] digits in a row, which is nearly every one, is only scanned.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// `i64::MIN` has nineteen digits.
const FEWEST_DIGITS: usize = 19;

/// Maximum paths reported for one text: a list of identifiers may have any number.
const MAX_PATHS: usize = 1_000;

/// Key of a tool's metadata for the paths of numbers that became strings.
pub const LARGE_NUMBERS: &str = "large_numbers";

/// One such integer in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LargeInteger {
    /// JSON Pointer (RFC 6901).
    pub(super) path: String,
    pub(super) place: Range<usize>,
}

/// A text in which these integers are strings of their digits.
#[derive(Debug, PartialEq, Eq)]
pub struct Exact<'t> {
    pub text: Cow<'t, [u8]>,
    /// Where they are, as JSON Pointers; at most [`MAX_PATHS`].
    pub paths: Vec<String>,
}

/// Puts quotes around those integers at the positions where `wanted` is true. The text is JSON.
pub fn exact(text: &[u8], wanted: impl Fn(&str) -> bool) -> Exact<'_> {
    let mut found = find(text);
    found.retain(|large| wanted(&large.path));
    if found.is_empty() {
        return Exact { text: Cow::Borrowed(text), paths: Vec::new() };
    }
    let mut quoted = Vec::with_capacity(text.len() + found.len() * 2);
    let mut done = 0;
    for LargeInteger { place, .. } in &found {
        quoted.extend_from_slice(&text[done..place.start]);
        quoted.push(b'"');
        quoted.extend_from_slice(&text[place.clone()]);
        quoted.push(b'"');
        done = place.end;
    }
    quoted.extend_from_slice(&text[done..]);
    found.truncate(MAX_PATHS);
    Exact { text: Cow::Owned(quoted), paths: found.into_iter().map(|large| large.path).collect() }
}

/// The value with approximate numbers where the paths name such strings of digits: for validation against a schema
/// that expects numbers.
pub fn with_numbers(mut value: Value, paths: &[Value]) -> Value {
    for path in paths.iter().filter_map(Value::as_str) {
        if let Some(text @ Value::String(_)) = value.pointer_mut(path)
            && let Some(digits) = text.as_str().filter(|digits| is_large(digits.as_bytes()))
            && let Ok(number) = digits.parse::<f64>()
        {
            *text = number.into();
        }
    }
    value
}

/// All of them, in the order of the text.
pub(super) fn find(text: &[u8]) -> Vec<LargeInteger> {
    if may_hold(text) { Scan { text, at: 0, open: Vec::new() }.run() } else { Vec::new() }
}

/// Checks every nineteenth byte: so many digits in a row cannot fit between two of them.
fn may_hold(text: &[u8]) -> bool {
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = FEWEST_DIGITS - 1;
    while at < text.len() {
        let mut end = at;
        if is_digit(at) {
            let mut start = at;
            while start > 0 && is_digit(start - 1) {
                start -= 1;
            }
            while is_digit(end) {
                end += 1;
            }
            if end - start >= FEWEST_DIGITS {
                return true;
            }
        }
        at = end + FEWEST_DIGITS;
    }
    false
}

/// Whether a number's text is an integer beyond 64 bits that a double would round. One with a fraction or an exponent is not an
/// integer.
fn is_large(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    let text = std::str::from_utf8(number).unwrap_or_default();
    digits.len() >= FEWEST_DIGITS
        && digits.iter().all(u8::is_ascii_digit)
        && text.parse::<i64>().is_err()
        && text.parse::<u64>().is_err()
        && !is_double(text)
}

/// Whether the digits are a double as JavaScript writes it: `120000000000000000000` is 1.2e20.
fn is_double(text: &str) -> bool {
    // The shortest digits that identify the value, without an exponent.
    text.parse::<f64>().is_ok_and(|value| value.to_string() == text)
}

/// A scan over valid JSON text.
struct Scan<'t> {
    text: &'t [u8],
    at: usize,
    open: Vec<Open>,
}

/// An open list or object.
enum Open {
    List {
        index: usize,
    },
    /// `key` is the position of the member's name; `None` before it.
    Object {
        key: Option<Range<usize>>,
    },
}

impl Scan<'_> {
    fn run(mut self) -> Vec<LargeInteger> {
        let mut found = Vec::new();
        while let Some(&byte) = self.text.get(self.at) {
            let start = self.at;
            self.at += 1;
            match byte {
                b'[' => self.open.push(Open::List { index: 0 }),
                b'{' => self.open.push(Open::Object { key: None }),
                b']' | b'}' => _ = self.open.pop(),
                b',' => match self.open.last_mut() {
                    Some(Open::List { index }) => *index += 1,
                    Some(Open::Object { key }) => *key = None,
                    None => {}
                },
                b'"' => {
                    self.pass_string();
                    if let Some(Open::Object { key: key @ None }) = self.open.last_mut() {
                        *key = Some(start..self.at);
                    }
                }
                b'-' | b'0'..=b'9' => {
                    self.pass_number();
                    if is_large(&self.text[start..self.at]) {
                        found.push(LargeInteger { path: self.path(), place: start..self.at });
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// To the position after the closing quote.
    fn pass_string(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
        self.at = self.text.len();
    }

    fn pass_number(&mut self) {
        let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
        while self.text.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
    }

    fn path(&self) -> String {
        self.open.iter().fold(String::new(), |path, open| match open {
            Open::List { index } => format!("{path}/{index}"),
            Open::Object { key } => {
                let written = key.clone().and_then(|key| self.text.get(key)).unwrap_or_default();
                let key = serde_json::from_slice::<String>(written).unwrap_or_default();
                format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn paths(text: &str) -> Vec<String> {
        find(text.as_bytes()).into_iter().map(|large| large.path).collect()
    }

    #[test]
    fn only_integers_beyond_64_bits_are_found_with_their_path() {
        for (text, expected) in [
            ("99999999999999999999", &[""][..]),
            (r#"{"n": 18446744073709551616}"#, &["/n"]),
            (r#"{"n": 18446744073709551615, "m": -9223372036854775808}"#, &[]),
            (r#"{"n": -9223372036854775809}"#, &["/n"]),
            (
                r#"[1, [99999999999999999999, {"a/b~\"c\"": [0, 36893488147419103233]}]]"#,
                &["/1/0", "/1/1/a~1b~0\"c\"/1"],
            ),
            (r#"{"s": "99999999999999999999", "t": "\"99999999999999999999"}"#, &[]),
            (r#"{"f": 1e20, "g": 99999999999999999999.0, "h": 99999999999999999999e1}"#, &[]),
            (r#"{"99999999999999999999": 1, "x": {}, "y": 99999999999999999999}"#, &["/y"]),
            ("00000000000000000000000", &[]),
            // Doubles as JavaScript writes them, and others with a digit more.
            ("[120000000000000000000, -123456789012345680000]", &[]),
            ("[120000000000000000001, -123456789012345683968]", &["/0", "/1"]),
        ] {
            assert_eq!(paths(text), expected, "{text}");
        }
    }

    #[test]
    fn digits_become_a_string_and_a_schema_still_sees_a_number() {
        let Exact { text, paths } = exact(br#"{"n":99999999999999999999,"m":[1,18446744073709551616]}"#, |_| true);
        assert_eq!(&*text, br#"{"n":"99999999999999999999","m":[1,"18446744073709551616"]}"#);
        assert_eq!(paths, ["/n", "/m/1"]);
        let named: Vec<Value> = ["/n", "/m/1", "/s", "/none"].map(Value::from).to_vec();
        let mut value: Value = serde_json::from_slice(&text).unwrap();
        value["s"] = "no digits".into();
        assert_eq!(
            with_numbers(value, &named),
            json!({"n": 1e20, "m": [1, 18_446_744_073_709_551_616.0], "s": "no digits"})
        );
        assert_eq!(exact(b"[99999999999999999999]", |path| path != "/0").paths, Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn a_row_of_digits_is_found_at_any_position(before in 0_usize..60, digits in 0_usize..40, after in 0_usize..60) {
            let text = format!("{}{}{}", "x".repeat(before), "7".repeat(digits), "1x".repeat(after));
            let row = digits + usize::from(after > 0);
            prop_assert_eq!(may_hold(text.as_bytes()), row >= FEWEST_DIGITS);
        }
    }
}
