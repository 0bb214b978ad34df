//! The headers of a request to `/mcp`: the types that the client accepts and sends, and the revision that it speaks.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rmcp::model::{ErrorData, ProtocolVersion};
use serde_json::{Map, Value};
use std::sync::Arc;

use super::http_refusal::HttpRefusal;
use super::message::Request;
use sekisho_core::mcp_headers::{METHOD, NAME, PARAMETER, argument_text, decode, name_parameter, parameters};

/// Header with the session id.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Header with the id of the last event that a reconnecting client received.
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Header with the revision of the protocol.
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The two lifecycles of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// Revisions before 2026-07-28: `initialize` starts a session.
    Sessions,
    /// Since 2026-07-28: each request carries its revision and the client's capabilities (SEP-2567).
    Stateless,
}

/// Whether the client accepts an event stream, and JSON too if `and_json`.
pub(super) fn accepts_events(headers: &HeaderMap, and_json: bool) -> bool {
    let accepted: Vec<_> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let is_excluded = parameters.split(';').filter_map(|parameter| parameter.trim().strip_prefix("q="));
            let is_excluded = is_excluded.map(|weight| weight.trim().parse::<f32>()).any(|weight| weight == Ok(0.0));
            (!is_excluded).then(|| kind.trim())
        })
        .collect();
    let accepts = |kind: &str| accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(kind));
    accepts(EVENTS) && (!and_json || accepts(JSON))
}

pub(super) fn sends_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON)
}

/// Whether the header, if it is there, names a revision with sessions. It is absent before 2025-06-18.
/// Errors: the header names no known revision.
pub(super) fn has_sessions(headers: &HeaderMap) -> Result<bool, HttpRefusal> {
    let Some(revision) = headers.get(&REVISION) else { return Ok(true) };
    let known = revision
        .to_str()
        .ok()
        .and_then(|revision| ProtocolVersion::KNOWN_VERSIONS.iter().find(|known| known.as_str() == revision));
    match known {
        Some(known) => Ok(known.has_initialize()),
        None => {
            let revision = String::from_utf8_lossy(revision.as_bytes()).into_owned();
            let message = format!("unsupported {REVISION}: {revision}; supported are {}", supported());
            Err(HttpRefusal::status(StatusCode::BAD_REQUEST, &message))
        }
    }
}

/// The era of a request, after its headers were compared with its body.
/// Errors: a JSON-RPC error: the headers contradict the body, or metadata is missing.
pub(super) fn era_of(headers: &HeaderMap, request: &Request) -> Result<Era, ErrorData> {
    let header = headers.get(&REVISION).map(|value| value.to_str().unwrap_or_default());
    // `initialize` with any revision starts a session. Without one, it is a method that 2026-07-28 lacks.
    let named = request.params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    if request.method == "initialize" && !named.is_empty() {
        if let Some(header) = header.filter(|header| *header != named) {
            let message =
                format!("the header {REVISION} ({header}) differs from protocolVersion in the body ({named})");
            return Err(ErrorData::invalid_request(message, None));
        }
        return Ok(Era::Sessions);
    }
    match request.meta.protocol_version() {
        Some(named) if header == Some(named.as_str()) => {}
        Some(named) => {
            let message = match header {
                Some(header) => format!("the header {REVISION} ({header}) differs from the body's _meta ({named})"),
                None => format!("the header {REVISION} is missing; the body's _meta names {named}"),
            };
            return Err(ErrorData::header_mismatch(message, None));
        }
        None if request.method == "server/discover" || is_stateless(header) => return Err(missing_metadata(request)),
        None => {}
    }
    Ok(if is_stateless(header) || has_metadata(request) { Era::Stateless } else { Era::Sessions })
}

/// Whether the request has the metadata that every request of 2026-07-28 has.
pub(super) fn has_metadata(request: &Request) -> bool {
    request.meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
}

/// The error of a request of 2026-07-28 without its metadata.
pub(super) fn missing_metadata(request: &Request) -> ErrorData {
    let missing = request.meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).join(", ");
    ErrorData::invalid_params(format!("required fields of _meta are missing or malformed: {missing}"), None)
}

/// Compares the headers that repeat the body (SEP-2243), which revision 2026-07-28 requires. `schema` gives the input
/// schema of a tool.
/// Errors: `-32020`, header mismatch: a header is missing, repeated, or differs from the body.
pub(super) fn check_repeated(
    headers: &HeaderMap,
    method: &str,
    params: &Map<String, Value>,
    schema: impl FnOnce(&str) -> Option<Arc<Map<String, Value>>>,
) -> Result<(), ErrorData> {
    if !is_stateless(headers.get(&REVISION).and_then(|value| value.to_str().ok())) {
        return Ok(());
    }
    match only(headers, &METHOD)? {
        // The revision is not negotiated yet, so the header may be absent.
        None if method == "initialize" => return Ok(()),
        None => return Err(mismatch(format!("the header {METHOD} is missing"))),
        Some(header) if header != method => {
            return Err(mismatch(format!("the header {METHOD} ({header}) differs from the body's method ({method})")));
        }
        Some(_) => {}
    }
    if let Some(named) = name_parameter(method).and_then(|key| params.get(key)?.as_str()) {
        let header = only(headers, &NAME)?.ok_or_else(|| mismatch(format!("the header {NAME} is missing")))?;
        if decode(header).as_deref() != Some(named) {
            return Err(mismatch(format!("the header {NAME} ({header}) differs from the body ({named})")));
        }
    }
    let schema = params.get("name").and_then(Value::as_str).filter(|_| method == "tools/call").and_then(schema);
    match schema {
        Some(schema) => check_arguments(headers, params.get("arguments"), &schema),
        None => Ok(()),
    }
}

fn check_arguments(
    headers: &HeaderMap,
    arguments: Option<&Value>,
    schema: &Map<String, Value>,
) -> Result<(), ErrorData> {
    for (path, header) in parameters(schema) {
        let name = format!("{PARAMETER}{}", header.to_ascii_lowercase());
        let sent = match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => only(headers, &name)?,
            Err(_) => None,
        };
        let expected = argument_text(arguments, &path);
        let path = path.join(".");
        match (sent, expected) {
            (None, None) => {}
            (Some(_), None) => return Err(mismatch(format!("the header {name} is set, but not the argument {path}"))),
            (None, Some(_)) => return Err(mismatch(format!("the header {name} is missing for the argument {path}"))),
            (Some(sent), expected) if decode(sent) == expected => {}
            (Some(_), Some(_)) => return Err(mismatch(format!("the header {name} differs from the argument {path}"))),
        }
    }
    Ok(())
}

/// The header's value; `None` if it is absent.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ErrorData> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(mismatch(format!("duplicate header {name}")));
    }
    HeaderValue::to_str(value).map(Some).map_err(|_| mismatch(format!("the header {name} is not text")))
}

fn is_stateless(revision: Option<&str>) -> bool {
    revision.is_some_and(|revision| revision >= ProtocolVersion::V_2026_07_28.as_str())
}

fn mismatch(message: String) -> ErrorData {
    ErrorData::header_mismatch(message, None)
}

fn supported() -> String {
    let supported: Vec<_> = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
    supported.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::message::{self, Message};
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        headers
    }

    fn call(revision: Option<&str>) -> Request {
        let mut params = json!({"name": "weather", "arguments": {"region": "eu"}});
        if let Some(revision) = revision {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": revision,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        match message::from_json(message, None).expect("a message") {
            Message::Request(request) => request,
            other => panic!("a request: {other:?}"),
        }
    }

    fn era(revision: &[(&str, &str)], request: &Request) -> Result<Era, i32> {
        era_of(&headers(revision), request).map_err(|error| error.code.0)
    }

    #[test]
    fn clients_accept_events_unless_they_exclude_them() {
        for (accepted, expected) in [
            ("application/json, text/event-stream", true),
            ("Text/Event-Stream; q=0.5 , APPLICATION/JSON;profile=x", true),
            ("application/json", false),
            ("text/event-stream", false),
            ("*/*", false),
            ("application/json, text/event-stream;q=0", false),
            ("application/json, text/event-stream; q=0.000", false),
        ] {
            assert_eq!(accepts_events(&headers(&[("accept", accepted)]), true), expected, "{accepted}");
        }
        assert!(accepts_events(&headers(&[("accept", "text/event-stream")]), false));
        assert!(accepts_events(&headers(&[("accept", "application/json"), ("accept", "text/event-stream")]), true));
    }

    #[test]
    fn header_and_metadata_decide_the_era_together() {
        let new = "2026-07-28";
        let header = |revision| [("mcp-protocol-version", revision)];
        assert_eq!(era(&[], &call(None)), Ok(Era::Sessions));
        assert_eq!(era(&header("2025-06-18"), &call(None)), Ok(Era::Sessions));
        assert_eq!(era(&header(new), &call(Some(new))), Ok(Era::Stateless));
        assert_eq!(era(&header(new), &call(None)), Err(-32602), "metadata is missing");
        assert_eq!(era(&[], &call(Some(new))), Err(-32020), "the header is missing");
        assert_eq!(era(&header("2025-06-18"), &call(Some(new))), Err(-32020), "they differ");
        let initialize = |params: Value| {
            let Request { id, meta, .. } = call(Some(new));
            let params = params.as_object().cloned().expect("an object");
            Request { id, method: "initialize".to_owned(), params, meta, memory: None }
        };
        let named = initialize(json!({"protocolVersion": new}));
        assert_eq!(era(&header(new), &named), Ok(Era::Sessions));
        assert_eq!(era(&header("2025-06-18"), &named), Err(-32600), "they differ");
        assert_eq!(era(&header(new), &initialize(json!({}))), Ok(Era::Stateless), "a method that it lacks");
        assert_eq!(has_sessions(&headers(&header(new))).ok(), Some(false));
        assert!(has_sessions(&headers(&header("2031-01-01"))).is_err());
    }

    #[test]
    fn headers_that_repeat_the_body_must_agree_with_it() {
        let schema = json!({"properties": {"region": {"x-mcp-header": "Region"}}});
        let schema = Arc::new(schema.as_object().cloned().expect("an object"));
        let all = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "weather"),
            ("mcp-param-region", "eu"),
        ];
        let check = |lines: &[(&str, &str)]| {
            let Request { method, params, .. } = call(Some("2026-07-28"));
            check_repeated(&headers(lines), &method, &params, |_| Some(Arc::clone(&schema)))
                .map_err(|error| error.code.0)
        };
        assert_eq!(check(&all), Ok(()));
        for changed in 1..all.len() {
            let mut lines = all;
            lines[changed].1 = "other";
            assert_eq!(check(&lines), Err(-32020), "{lines:?}");
            let without: Vec<_> = all.iter().copied().filter(|line| line.0 != all[changed].0).collect();
            assert_eq!(check(&without), Err(-32020), "{without:?}");
            let twice = [&all[..], &all[changed..=changed]].concat();
            assert_eq!(check(&twice), Err(-32020), "{twice:?}");
        }
        let mut older = all;
        older[0].1 = "2025-06-18";
        older[1].1 = "ignored";
        assert_eq!(check(&older), Ok(()), "older revisions have no such headers");
    }
}
