//! Converts an API's response into a tool's output: JSON, text, images and other bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::body::{essence, is_json};
use crate::core::call::{McpResult, ToolOutput};
use crate::core::error::{Blame, CallError, ErrorCode};
use crate::core::json;
use crate::core::json::LARGE_NUMBERS;
use crate::infra::outbound::{OutboundResponse, check_status};

/// The response's value: JSON unchanged, text as a string, any other body as
/// `{media_type, content_base64, size_bytes}`, an empty body as null. Status and media type are in the metadata.
///
/// # Errors
/// Those of [`check_status`]: only 2xx is success; `upstream_error` for invalid JSON.
pub(crate) fn output(response: &OutboundResponse) -> Result<ToolOutput, CallError> {
    check_status(response)?;
    let media_type = media_type(&response.headers);
    let (value, large) = value(response, media_type.as_deref())?;
    let mut metadata = Map::new();
    metadata.insert("status".into(), response.status.as_u16().into());
    if let Some(media_type) = media_type {
        metadata.insert("media_type".into(), essence(&media_type).into());
    }
    let mut output = ToolOutput { value, metadata, ..ToolOutput::default() };
    if !large.is_empty() {
        output.metadata.insert(LARGE_NUMBERS.into(), large.into());
        // A model gets the numbers as the API wrote them.
        output.text = Some(String::from_utf8_lossy(&response.body).into_owned());
    }
    Ok(output)
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

/// The value, and the paths of integers in it that became strings.
fn value(response: &OutboundResponse, media_type: Option<&str>) -> Result<(Value, Vec<String>), CallError> {
    let body = &response.body;
    if body.is_empty() {
        return Ok((Value::Null, Vec::new()));
    }
    let plain = |value: Value| (value, Vec::new());
    match media_type {
        Some(name) if is_json(name) => {
            json::parse_answer(body).or_else(|error| lines(body).ok_or(error)).map_err(|error| {
                let host = response.url.host_str().unwrap_or_default();
                CallError::new(ErrorCode::UpstreamError, format!("{host} declared JSON and sent an invalid body"))
                    .blaming(Blame::Upstream)
                    .caused_by(error)
            })
        }
        Some(name) if is_text(&essence(name)) => Ok(plain(text(body, name).into())),
        // Without a media type it is detected from the bytes (RFC 9110 §8.3).
        None => Ok(json::parse_answer(body).unwrap_or_else(|_| {
            plain(match std::str::from_utf8(body) {
                Ok(text) => text.into(),
                Err(_) => bytes("application/octet-stream", body),
            })
        })),
        Some(name) => Ok(plain(bytes(&essence(name), body))),
    }
}

/// JSON, one value a line: many servers stream that as `application/json`.
fn lines(body: &[u8]) -> Option<(Value, Vec<String>)> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (mut values, mut large) = (Vec::new(), Vec::new());
    for (index, line) in lines.enumerate() {
        let (value, paths) = json::parse_answer(line).ok()?;
        values.push(value);
        large.extend(paths.into_iter().map(|path| format!("/{index}{path}")));
    }
    (values.len() > 1).then_some((Value::Array(values), large))
}

fn is_text(essence: &str) -> bool {
    const TEXTS: [&str; 5] = [
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "application/javascript",
        "application/x-www-form-urlencoded",
    ];
    essence.starts_with("text/") || essence.ends_with("+xml") || essence.ends_with("+yaml") || TEXTS.contains(&essence)
}

/// In the character set that `Content-Type` names, UTF-8 otherwise.
fn text(body: &[u8], media_type: &str) -> String {
    let named = media_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    let encoding = named.and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()));
    encoding.unwrap_or(encoding_rs::UTF_8).decode(body).0.into_owned()
}

fn bytes(media_type: &str, body: &[u8]) -> Value {
    json!({"media_type": media_type, "size_bytes": body.len(), "content_base64": STANDARD.encode(body)})
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderValue, StatusCode};
    use url::Url;

    use super::*;
    use crate::infra::outbound::SentCredentials;

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

    #[test]
    fn json_that_is_none_is_the_upstreams_failure() {
        let error = output(&answer(Some("application/json"), b"<html>")).unwrap_err();
        assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Upstream));
    }
}
