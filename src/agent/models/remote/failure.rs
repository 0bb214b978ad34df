//! Maps failures of a provider to [`ModelError`], with the provider's own sentence about them. The caller removes the key
//! from it.

use std::time::Duration;

use futures_util::StreamExt;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::models::ModelError;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers;
use sekisho_outbound::{OutboundStream, retry_after};

/// Maximum bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// How long to wait for an error's body: the status is known already.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum characters of a provider's sentence.
const MAX_SENTENCE: usize = 500;

/// Names of errors, by their meaning. They are from <https://platform.openai.com/docs/guides/error-codes>,
/// <https://docs.anthropic.com/en/api/errors>, <https://ai.google.dev/gemini-api/docs/troubleshooting> and
/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>.
const QUOTA: &[&str] = &["insufficient_quota", "billing_error", "exceeded_current_quota_error"];
const RATE: &[&str] = &["RESOURCE_EXHAUSTED", "rate_limit_error", "rate_limit_exceeded", "ThrottlingException"];
/// The model wrote a call that the provider could not read (<https://console.groq.com/docs/tool-use>): asked again, it may
/// write a valid one.
const MALFORMED: &[&str] = &["tool_use_failed"];
const OVERLOADED: &[&str] = &["overloaded_error"];
const REFUSED: &[&str] = &[
    "AccessDeniedException",
    "ValidationException",
    "authentication_error",
    "content_filter",
    "content_policy_violation",
    "invalid_api_key",
    "invalid_request_error",
    "invalid_value",
    "model_not_found",
    "not_found_error",
    "permission_error",
    "request_too_large",
    "unsupported_parameter",
    "unsupported_value",
];
const CONTEXT: &[&str] = &["context_length_exceeded", "exceed_context_size_error"];

/// How providers that have no name for it say that a conversation is too long, in lower case.
const CONTEXT_PHRASES: &[&str] = &[
    "context length",
    "context limit",
    "context window",
    "context size",
    "exceeded model token limit",
    "exceeds the maximum number of tokens",
    "input is too long",
    "input token count",
    "maximum prompt length",
    "prompt exceeds max length",
    "prompt is too long",
    "range of input length",
    "too many input tokens",
];

/// How Anthropic, which has no name for it in its API, says that the account is used up, in lower case.
const QUOTA_PHRASES: &[&str] = &["credit balance is too low"];

/// Maximum items of a list whose sentences are repeated.
const MAX_ITEMS: usize = 5;

/// A provider's report of a failure.
#[derive(Debug, Default)]
pub(in crate::models) struct Reported {
    /// The provider's names for it, the more specific ones first.
    names: Vec<String>,
    sentence: String,
    /// The wait that the body asks for.
    retry_after: Option<Duration>,
    /// Whether a limit for each day is used up: a retry within minutes would be refused, too.
    is_daily: bool,
}

/// The error of a response that is not a success.
pub(super) async fn refused(answer: OutboundStream) -> ModelError {
    let (status, wait) = (answer.status.as_u16(), wait(&answer.headers));
    // Redirects are not followed: only configured addresses are contacted, and no other server gets the key.
    if (300..400).contains(&status) {
        return ModelError::Refused(format!("HTTP {status}, a redirect; check the profile's base_url"));
    }
    // Proxies, and some servers, write a sentence in place of JSON. A page of HTML is none.
    let is_text = headers::content_type(&answer.headers).eq_ignore_ascii_case("text/plain");
    let body = body(answer).await;
    let sentence = || if is_text { json!({"message": String::from_utf8_lossy(&body)}) } else { Value::Null };
    let reported = serde_json::from_slice(&body).unwrap_or_else(|_| sentence());
    Reported::read(&reported).with_status(status, wait)
}

/// The error of a response with a success status that is not in the provider's protocol.
pub(super) async fn foreign(answer: OutboundStream, expected: &'static str) -> ModelError {
    let body: Value = serde_json::from_slice(&body(answer).await).unwrap_or_default();
    match body.get("error") {
        Some(_) => Reported::read(&body).in_answer(),
        None => ModelError::Garbled(format!("it is not of the type {expected}")),
    }
}

/// Why the response, or the rest of it, did not arrive.
pub(super) fn lost(error: &CallError) -> ModelError {
    match error.code() {
        ErrorCode::Timeout => ModelError::Timeout,
        ErrorCode::UpstreamError | ErrorCode::Overloaded => ModelError::Unavailable(error.message().to_owned()),
        _ => ModelError::Refused(error.message().to_owned()),
    }
}

impl Reported {
    /// With a name that stood beside the body.
    pub(in crate::models) fn also_named(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }

    /// From a body or event, in the form of any provider.
    pub(in crate::models) fn read(body: &Value) -> Self {
        // Gemini sends a list of one.
        let body = body.get(0).unwrap_or(body);
        let text = |place: &&str| body.pointer(place)?.as_str().map(str::to_owned);
        let names = ["/error/code", "/error/type", "/error/status", "/code", "/type", "/__type"];
        let sentences = ["/error/message", "/message", "/error", "/detail", "/errors"];
        let sentence = |place: &&str| Some(sentence_of(body.pointer(place)?)).filter(|sentence| !sentence.is_empty());
        let (retry_after, is_daily) = google_details(body);
        Self {
            names: names.iter().filter_map(text).collect(),
            sentence: shown(&sentences.iter().find_map(sentence).unwrap_or_default()),
            retry_after,
            is_daily,
        }
    }

    /// The error that arrived within an answer.
    pub(in crate::models) fn in_answer(self) -> ModelError {
        match self.by_name(None) {
            Some(error) => error,
            None if self.is(REFUSED) => ModelError::Refused(self.said("an error in its answer")),
            None => ModelError::Unavailable(self.said("an error in its answer")),
        }
    }

    /// The error of a provider's HTTP status; 529 is Anthropic's "overloaded" (A65).
    pub(in crate::models) fn with_status(self, status: u16, wait: Option<Duration>) -> ModelError {
        let wait = wait.or(self.retry_after);
        if status < 500
            && let Some(error) = self.by_name(wait)
        {
            return error;
        }
        let said = |hint: &str| self.said(&format!("HTTP {status}{hint}"));
        match status {
            402 => ModelError::OutOfQuota(said("")),
            529 => ModelError::Overloaded { retry_after: wait },
            // The body is too large, whatever its tokens: a shorter conversation may fit.
            413 => ModelError::ContextLength(said("")),
            429 | 503 => ModelError::Limited { status, retry_after: wait, sentence: said("") },
            408 | 500.. => ModelError::Unavailable(said("")),
            401 | 403 => ModelError::Refused(said(", check the profile's api_key")),
            404 => ModelError::Refused(said(", check the profile's model and base_url")),
            _ => ModelError::Refused(said("")),
        }
    }

    /// The error, where the names, or the words of the sentence, are clear.
    fn by_name(&self, retry_after: Option<Duration>) -> Option<ModelError> {
        let sentence = self.sentence.to_lowercase();
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| sentence.contains(phrase));
        if self.is(QUOTA) || self.is_daily || says(QUOTA_PHRASES) {
            Some(ModelError::OutOfQuota(self.said("")))
        } else if self.is(CONTEXT) || says(CONTEXT_PHRASES) {
            Some(ModelError::ContextLength(self.said("")))
        } else if self.is(OVERLOADED) {
            Some(ModelError::Overloaded { retry_after })
        } else if self.is(RATE) {
            let retry_after = retry_after.or(self.retry_after);
            Some(ModelError::Limited { status: 429, retry_after, sentence: self.said("HTTP 429") })
        } else if self.is(MALFORMED) {
            Some(ModelError::Unavailable(self.said("")))
        } else {
            None
        }
    }

    /// AWS writes the name in lower camel case in its streams.
    fn is(&self, known: &[&str]) -> bool {
        self.names.iter().any(|name| known.iter().any(|known| known.eq_ignore_ascii_case(name)))
    }

    /// `HTTP 400: its sentence (its name)`
    fn said(&self, what: &str) -> String {
        let name = self.names.iter().find(|name| *name != "error" && !self.sentence.contains(name.as_str()));
        let name = name.map(|name| format!("({})", shown(name)));
        let sentence = Some(self.sentence.clone()).filter(|sentence| !sentence.is_empty());
        let rest: Vec<_> = sentence.into_iter().chain(name).collect();
        match (what, rest.is_empty()) {
            ("", _) => rest.join(" "),
            (what, true) => what.to_owned(),
            (what, false) => format!("{what}: {}", rest.join(" ")),
        }
    }
}

/// The sentence in a member of an error: a text, or the sentences of a list or of an object, as servers write them that check
/// requests by a schema: `{"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "…"}]}`.
fn sentence_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let sentences = items.iter().take(MAX_ITEMS).map(sentence_of).filter(|sentence| !sentence.is_empty());
            sentences.collect::<Vec<_>>().join("; ")
        }
        Value::Object(fields) => {
            let place = fields.get("loc").and_then(Value::as_array).map(|place| {
                let steps = place.iter().map(|step| step.as_str().map_or_else(|| step.to_string(), str::to_owned));
                steps.collect::<Vec<_>>().join(".")
            });
            let kind = fields.get("loc").and(fields.get("type")).and_then(Value::as_str).map(str::to_owned);
            let inner =
                ["message", "msg", "detail", "error"].iter().find_map(|name| fields.get(*name)).map(sentence_of);
            let parts = [kind, place, inner].into_iter().flatten().filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join(": ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// The wait that Google's API asks for, and whether a quota of a day is used up
/// (<https://cloud.google.com/apis/design/errors#error_details>).
fn google_details(body: &Value) -> (Option<Duration>, bool) {
    let details = body.pointer("/error/details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s')?.parse().ok());
    let delay = delay.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    let violations = details.iter().filter_map(|detail| detail.get("violations")?.as_array()).flatten();
    let mut quotas = violations.filter_map(|violation| violation.get("quotaId")?.as_str());
    (delay, quotas.any(|quota| quota.contains("PerDay")))
}

/// On one line, and not longer than a reader needs.
fn shown(text: &str) -> String {
    let readable = |character: char| if character.is_control() { ' ' } else { character };
    text.trim().chars().map(readable).take(MAX_SENTENCE).collect()
}

/// The first bytes of a body, as far as they arrive in time.
async fn body(answer: OutboundStream) -> Vec<u8> {
    let mut body = Vec::new();
    let mut pieces = std::pin::pin!(answer.pieces());
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let remaining = MAX_ERROR_BYTES - body.len();
            body.extend_from_slice(&piece[..piece.len().min(remaining)]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    // The part that has arrived may be enough.
    _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, reading).await;
    body
}

/// `retry-after-ms`, as OpenAI and Azure send it beside `Retry-After`, is more exact.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers.get("retry-after-ms").and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    let millis = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1_000.0).ok());
    millis.or_else(|| retry_after(headers, Timestamp::now()))
}
