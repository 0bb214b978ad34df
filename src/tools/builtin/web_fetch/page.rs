//! Converts the bytes of a response to a page: detects content type and encoding, and truncates it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{html, markdown};
use sekisho_core::call::Deadline;
use sekisho_core::error::{Blame, CallError, ErrorCode};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Format {
    #[default]
    Markdown,
    Text,
}

/// The input, and the limits of the output.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) content_type: Option<String>,
    pub(super) body: Bytes,
    /// Whether the body was longer.
    pub(super) cut: bool,
    pub(super) url: Url,
    pub(super) format: Format,
    /// Deepest nesting of tags that becomes Markdown.
    pub(super) max_depth: usize,
    pub(super) max_characters: usize,
    pub(super) max_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: Option<String>,
    pub(super) content: String,
    pub(super) content_type: Option<String>,
    /// The format of the content, which may be simpler than requested.
    pub(super) format: Format,
    pub(super) truncated: bool,
}

/// Time limit of the conversion to Markdown; after that the page is converted to text, which is fast.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Reads the page on a blocking thread. Dropping the future stops it soon.
/// Errors: `tool_error` for content that is not text.
pub(super) async fn read(reading: Reading, deadline: Deadline) -> Result<Page, CallError> {
    let stop = Stop { at: Instant::now() + TIME_LIMIT, hung_up: Arc::default() };
    let _on_drop = StopOnDrop(Arc::clone(&stop.hung_up));
    let work = tokio::task::spawn_blocking(move || read_here(&reading, &stop));
    match tokio::time::timeout_at(deadline.0, work).await {
        Ok(Ok(page)) => page,
        Ok(Err(panic)) => Err(CallError::internal(panic)),
        Err(_) => Err(CallError::new(ErrorCode::Timeout, "the page could not be read in time").blaming(Blame::Network)),
    }
}

/// Signals a conversion to stop: its time is up, or its caller is gone.
#[derive(Debug)]
pub(super) struct Stop {
    at: Instant,
    hung_up: Arc<AtomicBool>,
}

impl Stop {
    pub(super) fn requested(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed) || Instant::now() >= self.at
    }

    #[cfg(test)]
    pub(super) fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, hung_up: Arc::default() }
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn read_here(reading: &Reading, stop: &Stop) -> Result<Page, CallError> {
    let media = MediaType::parse(reading.content_type.as_deref());
    let kind = media.kind(&reading.body).ok_or_else(|| {
        let name = media.name.as_deref().unwrap_or("of an unspecified type");
        CallError::tool(format!("the document is {name}, not text; only pages and text documents can be fetched"))
    })?;
    let text = decode(&reading.body, &media, kind);
    let (title, content, format) = match kind {
        Kind::Text => (None, text.into_owned(), Format::Text),
        Kind::Html => {
            let converted = (reading.format == Format::Markdown)
                .then(|| markdown::convert(&text, &reading.url, reading.max_depth, stop))
                .flatten();
            let format = if converted.is_some() { Format::Markdown } else { Format::Text };
            (html::title(&text), converted.unwrap_or_else(|| html::plain_text(&text)), format)
        }
    };
    let (content, shortened) = shorten(tidy(&content), reading.max_characters, reading.max_bytes);
    Ok(Page { title, content, content_type: media.name, format, truncated: shortened || reading.cut })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Html,
    Text,
}

/// A `Content-Type` header (RFC 9110 §8.3.1).
struct MediaType {
    /// Type and subtype in lower case.
    name: Option<String>,
    charset: Option<&'static Encoding>,
}

impl MediaType {
    fn parse(header: Option<&str>) -> Self {
        let mut parts = header.unwrap_or_default().split(';').map(str::trim);
        let name = parts.next().map(str::to_ascii_lowercase).filter(|name| name.contains('/'));
        let charset = parts.find_map(|parameter| {
            let (key, label) = parameter.split_once('=')?;
            key.trim()
                .eq_ignore_ascii_case("charset")
                .then(|| Encoding::for_label(label.trim_matches(['"', ' ']).as_bytes()))?
        });
        Self { name, charset }
    }

    /// The format to read the content as; `None` for anything but text.
    fn kind(&self, body: &[u8]) -> Option<Kind> {
        let Some(name) = &self.name else { return sniff(body) };
        let (main, sub) = name.split_once('/')?;
        match (main, sub) {
            ("text", "html") | ("application", "xhtml+xml") => Some(Kind::Html),
            ("text", _) => Some(Kind::Text),
            ("application", "json" | "xml" | "javascript" | "ecmascript" | "yaml" | "x-yaml" | "toml" | "sql") => {
                Some(Kind::Text)
            }
            ("application", "x-ndjson" | "jsonl" | "graphql" | "x-sh" | "x-javascript" | "x-www-form-urlencoded") => {
                Some(Kind::Text)
            }
            ("application" | "model" | "message", _) if sub.ends_with("+json") || sub.ends_with("+xml") => {
                Some(Kind::Text)
            }
            _ => None,
        }
    }
}

/// Without a declared type: text has no NUL bytes, and HTML begins with a known tag.
fn sniff(body: &[u8]) -> Option<Kind> {
    let start = &body[..body.len().min(512)];
    if start.contains(&0) {
        return None;
    }
    let start = String::from_utf8_lossy(start).trim_start().to_ascii_lowercase();
    let html = ["<!doctype html", "<html", "<head", "<body"].iter().any(|mark| start.starts_with(mark));
    Some(if html { Kind::Html } else { Kind::Text })
}

/// Byte order mark, then the header, then the declaration in an HTML page, then UTF-8 if it is valid, then
/// windows-1252: the order of the WHATWG Encoding and HTML standards.
fn decode<'a>(body: &'a [u8], media: &MediaType, kind: Kind) -> Cow<'a, str> {
    let stated = media.charset.or_else(|| (kind == Kind::Html).then(|| html::charset(body)).flatten());
    let encoding = stated.unwrap_or_else(|| match std::str::from_utf8(body) {
        Ok(_) => UTF_8,
        // A character truncated at the end of the body does not change the encoding.
        Err(error) if error.error_len().is_none() => UTF_8,
        Err(_) => WINDOWS_1252,
    });
    encoding.decode(body).0
}

/// Drops control characters and runs of empty lines.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut newlines = 0;
    for character in text.trim().chars() {
        match character {
            '\n' => newlines += 1,
            _ if character.is_control() && character != '\t' => continue,
            _ => newlines = 0,
        }
        if newlines <= 2 {
            tidied.push(character);
        }
    }
    tidied
}

/// The text within both bounds, and whether it was truncated.
fn shorten(mut text: String, max_characters: usize, max_bytes: usize) -> (String, bool) {
    let by_characters = text.char_indices().nth(max_characters).map_or(text.len(), |(at, _)| at);
    let end = text.floor_char_boundary(by_characters.min(max_bytes));
    let shortened = end < text.len();
    text.truncate(end);
    (text, shortened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(content_type: Option<&str>, body: &[u8]) -> Reading {
        Reading {
            content_type: content_type.map(str::to_owned),
            body: Bytes::copy_from_slice(body),
            cut: false,
            url: Url::parse("https://example.com/").unwrap(),
            format: Format::Markdown,
            max_depth: 256,
            max_characters: 1_000,
            max_bytes: 10_000,
        }
    }

    fn page(content_type: Option<&str>, body: &[u8]) -> Result<Page, CallError> {
        read_here(&reading(content_type, body), &Stop::after(Duration::from_secs(60)))
    }

    #[test]
    fn text_is_decoded_in_its_declared_encoding() {
        for (content_type, body, expected) in [
            (Some("text/plain"), "grün".as_bytes(), "grün"),
            (Some("text/plain; charset=ISO-8859-1"), b"gr\xfcn", "grün"),
            (Some("Text/Plain;Charset=\"shift_jis\""), b"\x93\xfa\x96{", "日本"),
            (Some("text/plain"), b"gr\xfcn", "grün"),
            (Some("text/plain; charset=nonsense"), "grün".as_bytes(), "grün"),
            (Some("text/plain"), b"\xff\xfeg\0r\0", "gr"),
            (Some("text/plain; charset=utf-8"), b"a\xffb", "a\u{fffd}b"),
            (Some("text/html"), b"<meta charset=iso-8859-1><p>gr\xfcn", "grün"),
            (Some("text/html"), b"<meta http-equiv=x content='text/html; charset=EUC-JP'>\xc6\xfc\xcb\xdc", "日本"),
            (Some("text/html; charset=utf-8"), "<meta charset=iso-8859-1>grün".as_bytes(), "grün"),
            (Some("application/json"), br#"{"a": 1}"#, r#"{"a": 1}"#),
            (Some("application/ld+json"), b"{}", "{}"),
            (Some("text/csv"), b"a,<b>\n", "a,<b>"),
            (None, b"<!DOCTYPE html><p>hi", "hi"),
            (None, b"just words", "just words"),
            (Some("text/plain"), b"a\0b\x1b[31m\r\n\n\n\n\nc", "ab[31m\n\nc"),
        ] {
            assert_eq!(page(content_type, body).unwrap().content, expected, "{content_type:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_name() {
        for (content_type, named) in [
            (Some("image/png"), "image/png"),
            (Some("application/pdf"), "application/pdf"),
            (Some("application/octet-stream"), "application/octet-stream"),
            (Some("video/mp4; codecs=x"), "video/mp4"),
            (None, "of an unspecified type"),
        ] {
            let error = page(content_type, b"\x89PNG\0\0").unwrap_err();
            assert_eq!(error.code(), ErrorCode::ToolError);
            assert!(error.message().contains(named), "{error}");
        }
    }

    #[test]
    fn content_is_cut_between_characters() {
        for (max_characters, max_bytes, expected) in
            [(3, 100, ("日本語", false)), (2, 100, ("日本", true)), (9, 8, ("日本", true)), (9, 2, ("", true))]
        {
            let (text, shortened) = shorten("日本語".into(), max_characters, max_bytes);
            assert_eq!((text.as_str(), shortened), expected);
        }
    }
}
