//! Converts an API's response into a tool's output: JSON, text, images and other bytes.

mod headers;
mod lines;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method, header};
use serde_json::{Map, Value, json};

use super::body::{essence, is_json};
use sekisho_core::call::{McpResult, ToolOutput};
use sekisho_core::error::CallError;
use sekisho_core::headers::is_json_lines;
use sekisho_core::json;
use sekisho_core::json::LARGE_NUMBERS;
use sekisho_outbound::{OutboundResponse, check_status};

/// In the metadata: how the body differs from the declaration.
pub(crate) const NOTE: &str = "note";

/// The response's value: JSON unchanged, text as a string, any other body as
/// `{media_type, content_base64, size_bytes}`, an empty body as null, the headers where HEAD asks for them. Status,
/// media type and the headers that a next call needs are in the metadata. A body that differs from its declared type is
/// text: the action of the call is done.
/// Errors of [`check_status`]: only 2xx is success.
pub(crate) fn output(response: &OutboundResponse, method: &Method) -> Result<ToolOutput, CallError> {
    check_status(response)?;
    let media_type = media_type(&response.headers);
    let Body { mut value, large, note } = body(response, media_type.as_deref());
    let mut metadata = Map::new();
    metadata.insert("status".into(), response.status.as_u16().into());
    if let Some(media_type) = media_type {
        metadata.insert("media_type".into(), essence(&media_type).into());
    }
    let shown = headers::shown(response);
    let mut text = None;
    if *method == Method::HEAD {
        value = headers::all(response).into();
    } else if value.is_null() && !shown.is_empty() {
        // A model sees nothing but the text.
        text = Some(headers::as_text(response.status, &shown));
    }
    let passed_on: Map<_, _> = shown.into_iter().chain(headers::of_api(response)).collect();
    if !passed_on.is_empty() {
        metadata.insert("headers".into(), passed_on.into());
    }
    if let Some(note) = note {
        metadata.insert(NOTE.into(), note.into());
    }
    if response.cut {
        metadata.insert("truncated".into(), true.into());
    }
    if !large.is_empty() {
        metadata.insert(LARGE_NUMBERS.into(), large.into());
        // A model gets the numbers as the API wrote them.
        text = Some(String::from_utf8_lossy(&response.body).into_owned());
    }
    Ok(ToolOutput { value, text, metadata, ..ToolOutput::default() })
}

/// Returns an image as image content for MCP clients; a model gets its type and size instead of base64 text.
pub(crate) fn show_image(output: &mut ToolOutput) {
    let media_type = output.metadata.get("media_type").and_then(Value::as_str).unwrap_or_default();
    let field = |name: &str| output.value.get(name).filter(|_| media_type.starts_with("image/"));
    let (Some(data), Some(size)) = (field("content_base64"), field("size_bytes")) else { return };
    let text = format!("{media_type}, {size} bytes");
    let content =
        vec![json!({"type": "text", "text": text}), json!({"type": "image", "data": data, "mimeType": media_type})];
    output.mcp = Some(Box::new(McpResult { content, ..McpResult::default() }));
    output.text = Some(text);
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(header::CONTENT_TYPE)?.to_str().ok()?.to_owned())
}

/// A body that was read.
struct Body {
    value: Value,
    /// The paths of integers in it that became strings.
    large: Vec<String>,
    note: Option<String>,
}

impl From<(Value, Vec<String>)> for Body {
    fn from((value, large): (Value, Vec<String>)) -> Self {
        Self { value, large, note: None }
    }
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self { value, large: Vec::new(), note: None }
    }
}

fn body(response: &OutboundResponse, media_type: Option<&str>) -> Body {
    let bytes = &response.body;
    if bytes.is_empty() {
        return Value::Null.into();
    }
    match media_type {
        Some(name) if is_json(name) => json_or_text(bytes, name),
        Some(name) if is_json_lines(&essence(name)) => {
            lines::values(bytes, response.cut).map_or_else(|| Value::from(text(bytes, name)).into(), Body::from)
        }
        Some(name) if is_text(&essence(name)) => Value::from(text(bytes, name)).into(),
        Some(name) => encoded(&essence(name), bytes).into(),
        // Without a media type it is detected from the bytes (RFC 9110 §8.3).
        None => json::parse_answer(bytes).map_or_else(
            |_| match std::str::from_utf8(bytes) {
                Ok(text) => Value::from(text).into(),
                Err(_) => encoded("application/octet-stream", bytes).into(),
            },
            Body::from,
        ),
    }
}

fn json_or_text(bytes: &[u8], media_type: &str) -> Body {
    let utf8 = as_utf8(bytes, media_type);
    let error = match json::parse_answer(&utf8) {
        Ok(read) => return read.into(),
        Err(error) => error,
    };
    // Many servers stream values as `application/json`.
    if let Some(read) = lines::values(&utf8, false).filter(|(values, _)| values.as_array().is_some_and(|v| v.len() > 1))
    {
        return read.into();
    }
    let note = format!("the body is declared as {} and is not valid JSON: {error}; it is text", essence(media_type));
    Body { value: text(bytes, media_type).into(), large: Vec::new(), note: Some(note) }
}

/// Without a byte order mark, and in UTF-8 if another character set is named.
fn as_utf8<'b>(bytes: &'b [u8], media_type: &str) -> Cow<'b, [u8]> {
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return Cow::Borrowed(rest);
    }
    let marked = encoding_rs::Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    match marked.or_else(|| named_encoding(media_type)) {
        Some(encoding) if encoding != encoding_rs::UTF_8 => match encoding.decode(bytes).0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        },
        _ => Cow::Borrowed(bytes),
    }
}

fn is_text(essence: &str) -> bool {
    const TEXTS: [&str; 15] = [
        "application/xml",
        "application/xml-dtd",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/javascript",
        "application/ecmascript",
        "application/x-javascript",
        "application/x-www-form-urlencoded",
        "application/graphql",
        "application/sql",
        "application/x-sql",
        "application/csv",
        "application/x-sh",
        "application/x-pem-file",
    ];
    essence.starts_with("text/") || essence.ends_with("+xml") || essence.ends_with("+yaml") || TEXTS.contains(&essence)
}

/// In the character set that `Content-Type` names; otherwise UTF-8, or Latin-1 where it is not.
fn text(body: &[u8], media_type: &str) -> String {
    let unnamed = || match std::str::from_utf8(body).is_err_and(|error| error.error_len().is_some()) {
        true => encoding_rs::WINDOWS_1252,
        false => encoding_rs::UTF_8,
    };
    named_encoding(media_type).unwrap_or_else(unnamed).decode(body).0.into_owned()
}

fn named_encoding(media_type: &str) -> Option<&'static encoding_rs::Encoding> {
    let label = media_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    })?;
    encoding_rs::Encoding::for_label(label.as_bytes())
}

fn encoded(media_type: &str, body: &[u8]) -> Value {
    json!({"media_type": media_type, "size_bytes": body.len(), "content_base64": STANDARD.encode(body)})
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderValue, StatusCode};
    use url::Url;

    use super::output as output_of;
    use super::*;
    use sekisho_outbound::SentCredentials;

    fn answer(media_type: Option<&str>, body: &[u8]) -> OutboundResponse {
        let mut headers = HeaderMap::new();
        if let Some(media_type) = media_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap());
        }
        OutboundResponse {
            status: StatusCode::OK,
            headers,
            url: Url::parse("https://api.example/").unwrap(),
            body: Bytes::copy_from_slice(body),
            cut: false,
            remote_addr: None,
            sent: SentCredentials::default(),
        }
    }

    fn output(response: &OutboundResponse) -> Result<ToolOutput, CallError> {
        output_of(response, &Method::GET)
    }

    #[test]
    fn each_media_type_has_its_form() {
        for (media_type, body, expected) in [
            (Some("application/json"), &b"{\"a\": 1}"[..], json!({"a": 1})),
            (Some("application/vnd.api+json; charset=utf-8"), b"[1]", json!([1])),
            (Some("text/csv"), b"a,b", json!("a,b")),
            (Some("text/plain; charset=ISO-8859-1"), b"caf\xe9", json!("café")),
            (Some("application/atom+xml"), b"<a/>", json!("<a/>")),
            (None, b"{\"a\": 1}", json!({"a": 1})),
            (None, b"plain", json!("plain")),
            (Some("application/json"), b"{\"a\": 1}\n[2]\n\n", json!([{"a": 1}, [2]])),
            (Some("application/json"), b"", json!(null)),
            (Some("application/json"), b"\xef\xbb\xbf{\"a\": 1}", json!({"a": 1})),
            (Some("application/json; charset=iso-8859-1"), b"\"caf\xe9\"", json!("café")),
            (Some("application/json; charset=utf-16"), b"\xff\xfe[\x001\x00]\x00", json!([1])),
            (Some("application/x-ndjson"), b"{\"a\": 1}\n", json!([{"a": 1}])),
            (Some("application/json-seq"), b"\x1e1\n\x1e2\n", json!([1, 2])),
            (Some("application/jsonl"), b"1\nno", json!("1\nno")),
            (Some("application/sql"), b"select 1", json!("select 1")),
            (Some("text/event-stream"), b"data: 1\n\n", json!("data: 1\n\n")),
            (
                Some("image/png"),
                b"\x89PNG",
                json!({"media_type": "image/png", "size_bytes": 4, "content_base64": "iVBORw=="}),
            ),
        ] {
            assert_eq!(output(&answer(media_type, body)).unwrap().value, expected, "{media_type:?}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_keep_their_digits() {
        let json = Some("application/json");
        for (body, value, large) in [
            (r#"{"n": 99999999999999999999, "m": 1}"#, json!({"n": "99999999999999999999", "m": 1}), json!(["/n"])),
            ("[1]\n[18446744073709551616]", json!([[1], ["18446744073709551616"]]), json!(["/1/0"])),
        ] {
            let output = output(&answer(json, body.as_bytes())).unwrap();
            assert_eq!((&output.value, &output.metadata["large_numbers"]), (&value, &large));
            assert_eq!(output.text.as_deref(), Some(body));
        }
        let plain = output(&answer(json, br#"{"n": 18446744073709551615, "f": 1e20}"#)).unwrap();
        assert_eq!(plain.value, json!({"n": u64::MAX, "f": 1e20}));
        assert!(plain.text.is_none() && !plain.metadata.contains_key("large_numbers"));
    }

    #[test]
    fn an_image_is_one_for_mcp_clients_and_a_line_for_models() {
        let mut output = output(&answer(Some("image/png"), b"\x89PNG")).unwrap();
        show_image(&mut output);
        assert_eq!(output.text.as_deref(), Some("image/png, 4 bytes"));
        let content = output.mcp.unwrap().content;
        assert_eq!(content[1], json!({"type": "image", "data": "iVBORw==", "mimeType": "image/png"}));
    }

    /// The action of the call is done: it must not be repeated.
    #[test]
    fn a_success_whose_body_is_not_the_json_it_declares_is_text_with_a_note() {
        for (body, expected) in [
            (&b"deleted"[..], "deleted"),
            (b"NaN", "NaN"),
            (b"{\"a\": 1, \"a\": 2}", "{\"a\": 1, \"a\": 2}"),
            (b"1e400", "1e400"),
            (b"\"caf\xe9\"", "\"café\""),
            (b"<html>", "<html>"),
        ] {
            let output = output(&answer(Some("application/json"), body)).unwrap();
            assert_eq!(output.value, json!(expected));
            let note = output.metadata["note"].as_str().unwrap();
            assert!(note.starts_with("the body is declared as application/json and is not valid JSON: "), "{note}");
        }
        assert!(!output(&answer(Some("application/json"), b"1")).unwrap().metadata.contains_key("note"));
    }

    #[test]
    fn headers_that_a_next_call_needs_are_in_the_metadata() {
        let mut created = answer(None, b"");
        created.status = StatusCode::CREATED;
        let mut key = HeaderValue::from_static("s3cret-key");
        key.set_sensitive(true);
        created.sent = SentCredentials::new(HeaderMap::from_iter([(header::AUTHORIZATION, key)]));
        for (name, value) in [
            ("location", "/pets/7?key=s3cret-key"),
            ("etag", "\"v1\""),
            ("x-total-count", "3"),
            ("x-ratelimit-remaining", "7"),
            ("deprecation", "@1688169599"),
            ("x-internal", "no"),
            ("content-disposition", "attachment; filename=a.pdf"),
            ("link", "</pets?page=2>; rel=next"),
            ("link", "</pets?page=9>; rel=last"),
            ("set-cookie", "id=1"),
        ] {
            created.headers.append(name, HeaderValue::from_static(value));
        }
        let made = output(&created).unwrap();
        let expected = json!({
            "location": "/pets/7?key=[redacted]",
            "etag": "\"v1\"",
            "link": "</pets?page=2>; rel=next, </pets?page=9>; rel=last",
            "x-total-count": "3",
            "content-disposition": "attachment; filename=a.pdf",
            "x-ratelimit-remaining": "7",
            "deprecation": "@1688169599",
        });
        assert_eq!((&made.value, &made.metadata["headers"]), (&Value::Null, &expected));
        let text = made.text.unwrap();
        assert!(text.starts_with("201 Created\nlocation: /pets/7?key=[redacted]\n") && !text.contains("ratelimit"));
        let asked = output_of(&created, &Method::HEAD).unwrap().value;
        assert_eq!((&asked["etag"], asked.get("set-cookie")), (&json!("\"v1\""), None));
    }

    #[test]
    fn of_a_stream_that_was_cut_off_whole_lines_are_left() {
        let mut stream = answer(Some("application/x-ndjson"), b"{\"a\": 1}\n{\"a\": 2}\n{\"a\"");
        stream.cut = true;
        let output = output(&stream).unwrap();
        assert_eq!((output.value, &output.metadata["truncated"]), (json!([{"a": 1}, {"a": 2}]), &json!(true)));
    }
}
