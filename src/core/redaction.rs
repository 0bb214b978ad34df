//! Removes credentials that an upstream repeats from the texts that are passed on: errors, answers, `/readyz` and logs. The
//! exact credentials sent are available; nothing is guessed from the form of a text.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;
use url::form_urlencoded::byte_serialize;

/// The replacement of a secret in a text.
const REDACTED: &str = "[redacted]";

/// A shorter secret is removed only where it is a separate word: it may be part of many.
const MIN_BYTES_ANYWHERE: usize = 6;

/// An even shorter one is ignored: it would match everywhere, and could be guessed anyway.
const MIN_BYTES: usize = 4;

/// A shorter one may stand in the data of an answer by chance.
const MIN_BYTES_IN_ANSWERS: usize = 16;

/// Headers that look like credentials and are not.
const NOT_SECRET: [HeaderName; 4] = [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE, header::USER_AGENT];

/// The secrets sent to an upstream, in the forms in which they may be repeated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SentSecrets {
    /// Longest first, so that no part of a secret is removed before the whole.
    forms: Vec<String>,
    /// Settings that are words, which any text may have.
    words: Vec<String>,
    /// The forms of settings that may be no credentials; `forms` has them, too.
    guessed: Vec<String>,
    /// Whether they are removed only where they are whole, as they are written.
    only_whole: bool,
}

impl fmt::Debug for SentSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SentSecrets({})", self.forms.len() + self.words.len())
    }
}

impl SentSecrets {
    /// A setting of fewer bytes, all letters, may be a word of any text.
    pub const MIN_LONG_WORD: usize = 12;

    /// Unchanged, and encoded for a URL, for Base64 and for JSON.
    pub fn add(&mut self, secret: &str) {
        let secret = secret.trim();
        if secret.len() < MIN_BYTES {
            return;
        }
        let form = byte_serialize(secret.as_bytes()).collect::<String>();
        let in_json = Value::from(secret).to_string();
        let mut forms = vec![secret.to_owned(), form.replace('+', "%20"), form];
        let in_json = in_json.trim_matches('"');
        // Some encoders escape slashes, too.
        forms.extend([in_json.to_owned(), in_json.replace('/', "\\/")]);
        forms.extend([STANDARD.encode(secret), STANDARD_NO_PAD.encode(secret), URL_SAFE_NO_PAD.encode(secret)]);
        for form in forms {
            self.guessed.retain(|guess| *guess != form);
            if !self.forms.contains(&form) {
                self.forms.push(form);
            }
        }
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// Settings that only look like credentials: errors lose them, and answers keep them, where one is data such as the id of a folder.
    pub fn add_guesses(&mut self, guesses: Self) {
        let new: Vec<_> = guesses.forms.into_iter().filter(|form| !self.forms.contains(form)).collect();
        self.guessed.extend(new.iter().cloned());
        self.forms.extend(new);
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        self.words.extend(guesses.words);
    }

    /// A setting that may be no more than a word, such as the password `orders`: one is removed only as it is written, where it is a
    /// separate word. Credentials of requests are removed anywhere.
    pub fn add_setting(&mut self, setting: &str) {
        let setting = setting.trim();
        let is_word = setting.len() < Self::MIN_LONG_WORD && setting.bytes().all(|byte| byte.is_ascii_alphabetic());
        if !is_word {
            self.add(setting);
        } else if setting.len() >= MIN_BYTES {
            self.words.push(setting.to_owned());
        }
    }

    /// All headers that are marked as sensitive.
    pub fn add_headers(&mut self, headers: &HeaderMap) {
        for (name, value) in headers.iter().filter(|(name, value)| value.is_sensitive() && !NOT_SECRET.contains(name)) {
            if name == header::COOKIE {
                self.add_cookies(value);
            } else {
                self.add_header(value);
            }
        }
    }

    /// A header's value, and its credential part: after the scheme, and inside of `Basic`.
    pub fn add_header(&mut self, value: &HeaderValue) {
        let text = String::from_utf8_lossy(value.as_bytes());
        self.add(&text);
        let Some((scheme, credential)) = text.trim().split_once(' ') else { return };
        self.add(credential);
        if !scheme.eq_ignore_ascii_case("basic") {
            return;
        }
        let decoded = STANDARD.decode(credential.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some(decoded) = decoded else { return };
        self.add(&decoded);
        if let Some((_, password)) = decoded.split_once(':') {
            self.add(password);
            // RFC 6749 requires clients to encode theirs.
            self.add(&percent_decode_str(&password.replace('+', " ")).decode_utf8_lossy());
        }
    }

    /// A URL with a password, and the password; nothing of another text.
    pub fn add_password_of(&mut self, text: &str) {
        let url = Url::parse(text).ok();
        if let Some(password) = url.as_ref().and_then(Url::password) {
            self.add(text);
            self.add(password);
            self.add(&percent_decode_str(password).decode_utf8_lossy());
        }
    }

    fn add_cookies(&mut self, value: &HeaderValue) {
        let text = String::from_utf8_lossy(value.as_bytes());
        for (_, value) in text.split(';').filter_map(|pair| pair.split_once('=')) {
            self.add(value);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.forms.is_empty() && self.words.is_empty()
    }

    /// For the answers of calls that succeeded, which are data: only long ones, and only where they are whole.
    #[must_use]
    pub fn of_answers(mut self) -> Self {
        self.forms.retain(|form| form.len() >= MIN_BYTES_IN_ANSWERS && !self.guessed.contains(form));
        self.words.clear();
        Self { only_whole: true, ..self }
    }

    /// The text without the secrets, in upper or lower case; the words among settings only as they are written.
    pub fn strike<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.only_whole && !self.forms.iter().any(|form| text.contains(form.as_str())) {
            return Cow::Borrowed(text);
        }
        let mut kept = String::new();
        let mut done = 0;
        let mut at = 0;
        while at < text.len() {
            match self.at(text, at) {
                Some(length) => {
                    kept.push_str(text.get(done..at).unwrap_or_default());
                    kept.push_str(REDACTED);
                    at += length;
                    done = at;
                }
                None => at += 1,
            }
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        kept.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(kept)
    }

    /// As [`strike`](Self::strike), for each string of a value, including the names of its members.
    pub fn strike_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(struck) = self.strike(text) {
                    *text = struck;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.strike_value(item)),
            Value::Object(members) => self.strike_members(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// As [`strike_value`](Self::strike_value), for an object's members.
    pub fn strike_members(&self, members: &mut Map<String, Value>) {
        members.values_mut().for_each(|member| self.strike_value(member));
        if members.keys().any(|name| matches!(self.strike(name), Cow::Owned(_))) {
            let named = std::mem::take(members).into_iter();
            members.extend(named.map(|(name, member)| (self.strike(&name).into_owned(), member)));
        }
    }

    /// The length of the secret that starts there.
    fn at(&self, text: &str, at: usize) -> Option<usize> {
        let rest = text.as_bytes().get(at..)?;
        let first = rest.first()?;
        let begins_here = |form: &&String| {
            let bytes = form.as_bytes();
            // The end of a truncated text may be the start of a secret.
            let length = bytes.len().min(rest.len());
            (length == bytes.len() || !self.only_whole)
                && bytes.first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
                && rest[..length].eq_ignore_ascii_case(&bytes[..length])
                && (length >= MIN_BYTES_ANYWHERE || length == bytes.len() && is_word(text.as_bytes(), at, length))
        };
        let is_word_here =
            |word: &&String| rest.starts_with(word.as_bytes()) && is_word(text.as_bytes(), at, word.len());
        let form = self.forms.iter().find(begins_here).map(|form| form.len().min(rest.len()));
        form.or_else(|| self.words.iter().find(is_word_here).map(String::len))
    }
}

fn is_word(text: &[u8], at: usize, length: usize) -> bool {
    let is_letter = |at: Option<usize>| {
        at.and_then(|at| text.get(at)).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    !is_letter(at.checked_sub(1)) && !is_letter(at.checked_add(length))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets(all: &[&str]) -> SentSecrets {
        let mut secrets = SentSecrets::default();
        all.iter().for_each(|secret| secrets.add(secret));
        secrets
    }

    fn sent(name: HeaderName, value: &str) -> SentSecrets {
        let mut headers = HeaderMap::new();
        let mut value = HeaderValue::from_str(value).unwrap();
        value.set_sensitive(true);
        headers.insert(name, value);
        let mut secrets = SentSecrets::default();
        secrets.add_headers(&headers);
        secrets
    }

    #[test]
    fn a_secret_is_removed_in_each_form_it_may_be_repeated_in() {
        let known = secrets(&["S3CRET/k\"ey+"]);
        for repeated in [
            "S3CRET/k\"ey+",
            "s3cret/k\"ey+",
            "S3CRET%2Fk%22ey%2B",
            "S3CRET/k\\\"ey+",
            "S3CRET\\/k\\\"ey+",
            "UzNDUkVUL2siZXkr",
            "S3CRET/k\"ey+S3CRET/k\"ey+",
        ] {
            let text = format!("denied for {repeated}, ü");
            let struck = known.strike(&text);
            assert!(struck.starts_with("denied for [redacted]") && struck.ends_with(", ü"), "{struck}");
            assert!(!struck.to_lowercase().contains("cret") && !struck.contains("UzND"), "{struck}");
        }
        assert!(matches!(known.strike("denied for S3CRET/key"), Cow::Borrowed(_)));
        assert_eq!(known.strike("cut off: S3CRET/k"), "cut off: [redacted]");
        assert!(matches!(SentSecrets::default().strike("anything"), Cow::Borrowed(_)));
    }

    #[test]
    fn the_credential_of_a_header_is_found_without_its_scheme() {
        for (name, value, repeated) in [
            (header::AUTHORIZATION, "Bearer t0ken-123", "t0ken-123"),
            (header::AUTHORIZATION, "Bearer t0ken-123", "Bearer t0ken-123"),
            (header::AUTHORIZATION, "Basic YWxpY2U6aHVudGVyMjI=", "YWxpY2U6aHVudGVyMjI="),
            (header::AUTHORIZATION, "Basic YWxpY2U6aHVudGVyMjI=", "YWxpY2U6aHVudGVyMjI"),
            (header::AUTHORIZATION, "Basic YWxpY2U6aHVudGVyMjI=", "alice:hunter22"),
            (header::AUTHORIZATION, "basic YWxpY2U6aHVudGVyMjI=", "hunter22"),
            (header::AUTHORIZATION, "Basic aWQ6YSUyRmIrY2RlZg==", "a/b cdef"),
            (HeaderName::from_static("x-api-key"), "k3y-value", "k3y-value"),
            (header::COOKIE, "a=plain; session=c00kie-1", "c00kie-1"),
        ] {
            let text = format!("no entry for {repeated}!");
            assert_eq!(sent(name.clone(), value).strike(&text), "no entry for [redacted]!", "{name}: {value}");
        }
        assert!(sent(header::ACCEPT, "application/json").is_empty());
        let mut headers = HeaderMap::new();
        headers.insert("x-plain", HeaderValue::from_static("not marked"));
        let mut plain = SentSecrets::default();
        plain.add_headers(&headers);
        assert!(plain.is_empty());
    }

    #[test]
    fn a_short_secret_is_removed_as_a_word_and_a_tiny_one_not_at_all() {
        let short = secrets(&["abcd", "xyz"]);
        assert_eq!(short.strike("abcd (abcd) abcde 1abcd xyz"), "[redacted] ([redacted]) abcde 1abcd xyz");
        // The longer of two is removed first.
        assert_eq!(secrets(&["secret", "secret-long"]).strike("secret-long"), "[redacted]");
    }

    #[test]
    fn a_setting_that_is_a_word_is_removed_only_as_it_is_written() {
        let of_setting = |setting: &str| {
            let mut secrets = SentSecrets::default();
            secrets.add_setting(setting);
            secrets
        };
        assert_eq!(of_setting("Error").strike("an error, Errors, Error"), "an error, Errors, [redacted]");
        let long = of_setting("correcthorsebattery");
        assert_eq!(long.strike("for CorrectHorseBatterystaple"), "for [redacted]staple");
        assert!(of_setting("abc").is_empty() && !of_setting("Error").is_empty());
    }

    #[test]
    fn a_credential_of_letters_is_removed_anywhere() {
        let credential = secrets(&["hunterpass"]);
        assert_eq!(credential.strike("key_HunterPass2 hunterpa"), "key_[redacted]2 [redacted]");
    }

    #[test]
    fn an_answer_loses_long_secrets_where_they_are_whole() {
        let known = sent(header::AUTHORIZATION, "Bearer t0ken-of-the-gateway").of_answers();
        let mut answer = json!({
            "token_type": "Bearer", "part": "t0ken-of", "next": "/pets?token=t0ken-of-the-gateway&page=2",
            "sent": "Bearer t0ken-of-the-gateway",
        });
        known.strike_value(&mut answer);
        let expected = json!({
            "token_type": "Bearer", "part": "t0ken-of", "next": "/pets?token=[redacted]&page=2", "sent": "[redacted]",
        });
        assert_eq!(answer, expected);
        assert!(matches!(secrets(&["orders-2026"]).of_answers().strike("orders-2026"), Cow::Borrowed(_)));
        assert_eq!(SentSecrets::default().of_answers().strike("anything"), "anything");
        let mut known = secrets(&["k3y-of-the-gateway"]);
        known.add_guesses(secrets(&["id-of-a-folder-1234567", "k3y-of-the-gateway"]));
        let text = "k3y-of-the-gateway id-of-a-folder-1234567";
        assert_eq!(known.strike(text), "[redacted] [redacted]");
        assert_eq!(known.of_answers().strike(text), "[redacted] id-of-a-folder-1234567");
    }

    #[test]
    fn no_string_of_a_value_keeps_a_secret() {
        let mut value = json!({"a": ["t0ken-123"], "t0ken-123": {"b": "x t0ken-123"}, "n": 1});
        secrets(&["t0ken-123"]).strike_value(&mut value);
        assert_eq!(value, json!({"a": ["[redacted]"], "[redacted]": {"b": "x [redacted]"}, "n": 1}));
    }
}
