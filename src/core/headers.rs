//! Functions that several readers of HTTP headers need.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};

/// Why a header that may be sent once has no usable value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    Duplicate,
    /// It has characters other than visible ASCII, spaces and tabs.
    NotText,
}

/// The value of a header that may be sent once; `None` if it is absent.
/// Errors: the header is duplicate or not text.
pub fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, HeaderError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| HeaderError::NotText),
        (Some(_), Some(_)) => Err(HeaderError::Duplicate),
    }
}

/// A media type without its parameters (RFC 9110 §8.3.1), in the case in which it is written.
pub fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// The media type of a message's content, without parameters; empty if none is declared.
pub fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map_or("", essence)
}

/// Whether it is the media type of JSON values one after the other, each on its line; without parameters.
pub fn is_json_lines(essence: &str) -> bool {
    const NAMES: [&str; 8] = [
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
        "application/json-seq",
        "application/stream+json",
    ];
    NAMES.iter().any(|name| essence.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_header_is_read_if_it_is_sent_once_as_text() {
        let mut headers = HeaderMap::new();
        assert_eq!(single(&headers, &CONTENT_TYPE), Ok(None));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        assert_eq!(single(&headers, &CONTENT_TYPE), Ok(Some("text/plain")));
        headers.append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        assert_eq!(single(&headers, &CONTENT_TYPE), Err(HeaderError::Duplicate));
        headers.insert(CONTENT_TYPE, HeaderValue::from_bytes("é".as_bytes()).unwrap());
        assert_eq!(single(&headers, &CONTENT_TYPE), Err(HeaderError::NotText));
    }

    #[test]
    fn a_content_type_is_read_without_its_parameters() {
        for (value, expected) in
            [("text/html", "text/html"), (" Text/HTML ; charset=utf-8; a=b", "Text/HTML"), (";", ""), ("", "")]
        {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
            assert_eq!(content_type(&headers), expected, "{value:?}");
        }
        assert_eq!(content_type(&HeaderMap::new()), "");
    }
}
