//! The headers of a response that are passed on.

use http::header::{self, HeaderName};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use sekisho_outbound::OutboundResponse;

/// The needs of a next call: the place of a resource, its version, its name, and how much more there is.
static SHOWN: [HeaderName; 8] = [
    header::LOCATION,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    HeaderName::from_static("x-total-count"),
    header::CONTENT_RANGE,
    header::CONTENT_DISPOSITION,
];

/// Of the API rather than of the answer: its limits, the end of an operation, and the name of the request in its logs.
static OF_API: [HeaderName; 12] = [
    header::RETRY_AFTER,
    HeaderName::from_static("deprecation"),
    HeaderName::from_static("sunset"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Maximum characters of one header.
const MAX_VALUE: usize = 2_000;

/// The headers of [`SHOWN`] that the response has.
pub(super) fn shown(response: &OutboundResponse) -> Map<String, Value> {
    described(response, SHOWN.iter().filter(|name| response.headers.contains_key(*name)))
}

/// The headers of [`OF_API`] that the response has: for programs, not for models.
pub(super) fn of_api(response: &OutboundResponse) -> Map<String, Value> {
    described(response, OF_API.iter().filter(|name| response.headers.contains_key(*name)))
}

/// All but cookies, which are credentials.
pub(super) fn all(response: &OutboundResponse) -> Map<String, Value> {
    described(response, response.headers.keys().filter(|name| *name != header::SET_COOKIE))
}

/// Status and headers, one a line.
pub(super) fn as_text(status: StatusCode, shown: &Map<String, Value>) -> String {
    let mut text = status.to_string();
    for (name, value) in shown {
        text.push_str(&format!("\n{name}: {}", value.as_str().unwrap_or_default()));
    }
    text
}

/// By name, without the credentials that an upstream repeats.
fn described<'h>(response: &OutboundResponse, names: impl Iterator<Item = &'h HeaderName>) -> Map<String, Value> {
    let secrets = response.sent.secrets();
    let value = |name: &HeaderName| {
        let value = secrets.strike(&joined(&response.headers, name)).chars().take(MAX_VALUE).collect::<String>();
        (name.as_str().to_owned(), Value::String(value))
    };
    names.map(value).collect()
}

fn joined(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    values.collect::<Vec<_>>().join(", ")
}
