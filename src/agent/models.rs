//! Models: each takes a conversation and streams the next turn. One file for each provider.

mod anthropic;
mod aws;
mod bedrock;
mod claude;
pub mod embeddings;
pub mod fallback;
mod gemini;
mod openai;
mod remote;
pub mod replay;
mod responses;
pub mod retry;
pub mod sampling;
mod sign_in;
mod tool_search;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::message::{Message, RequestedCall, Thought};
use super::options::ModelOptions;
use super::output_format::OutputFormat;
use super::toolbox::ToolDescription;
use sekisho_calls::budget::model_prices::ModelUsage;
use sekisho_config::{AgentProfile, Effort, FailureClass, Provider, Secret, Thinking, Wire};
use sekisho_core::error::ErrorCode;
use sekisho_core::redaction::SentSecrets;
use sekisho_observe::metrics::Metrics;
use sekisho_outbound::{InvalidProxy, Outbound};

use self::aws::Signer;
pub use self::fallback::Fallback;
pub(crate) use self::remote::AnswerNames;
use self::remote::Vendor;
pub use self::remote::{Protocol, Remote};
pub use self::replay::{Replay, ReplayError};

/// The model of a profile.
/// Errors: a value of the profile is missing or invalid; the error names it.
pub fn open(
    profile: &AgentProfile,
    outbound: &Outbound,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Model>, ModelConfigError> {
    let protocol = match profile.provider() {
        Provider::Replay => return Ok(Arc::new(Replay::open(Path::new(profile.model()))?)),
        Provider::Anthropic => Protocol::Anthropic,
        Provider::Openai if profile.wire() == Wire::Responses => Protocol::Responses,
        Provider::Openai => Protocol::Openai,
        Provider::Gemini => Protocol::Gemini,
        Provider::Bedrock => Protocol::Bedrock,
    };
    let outbound = &outbound.through(&profile.proxy)?;
    if protocol == Protocol::Bedrock
        && profile.api_key.is_none()
        && let Some(signer) = Signer::of(profile)?
    {
        let url = profile.base_url.clone().map_or_else(|| aws::bedrock_url(profile), Ok)?;
        let remote = Remote::new(outbound.clone(), protocol, profile.model(), Some(&url), &Secret::new(""))?;
        return Ok(Arc::new(remote.with_settings(profile)?.signed_by(signer).counted_in(Arc::clone(metrics))));
    }
    // Self-hosted servers often need no key; the providers do.
    let is_keyless = profile.base_url.is_some() || profile.sign_in.is_some();
    let keyless = is_keyless.then(|| Secret::new(""));
    let key = profile
        .api_key
        .clone()
        .or(keyless)
        .ok_or(ModelConfigError::NoKey { variable: protocol.key_variable(), note: protocol.key_note() })?;
    let base_url = match (protocol, &profile.base_url) {
        (Protocol::Bedrock, None) => Some(aws::bedrock_url(profile)?),
        (_, base_url) => base_url.clone(),
    };
    let remote = Remote::new(outbound.clone(), protocol, profile.model(), base_url.as_ref(), &key)?;
    Ok(Arc::new(remote.with_settings(profile)?.counted_in(Arc::clone(metrics))))
}

/// Whether a profile's model reads PDFs itself. Servers with OpenAI's API mostly do not.
pub fn reads_documents(profile: &AgentProfile) -> bool {
    match profile.provider() {
        Provider::Anthropic | Provider::Gemini => true,
        Provider::Openai => {
            let vendor = Vendor::of(Protocol::Openai, profile.base_url.as_ref());
            matches!(vendor, Vendor::Openai | Vendor::Gemini | Vendor::Openrouter)
        }
        Provider::Bedrock => ["anthropic.claude", "amazon.nova"].iter().any(|name| profile.model().contains(name)),
        Provider::Replay => false,
    }
}

/// Why a profile has no usable model.
#[derive(Debug, Error)]
pub enum ModelConfigError {
    #[error(transparent)]
    Script(#[from] ReplayError),
    #[error("the profile has no `api_key`; set it, or {variable}, or use a profile of the provider `replay`{note}")]
    NoKey { variable: &'static str, note: &'static str },
    #[error("{0}")]
    Aws(String),
    #[error("`proxy` of the profile: {0}")]
    Proxy(#[from] InvalidProxy),
    #[error(transparent)]
    Client(#[from] ModelError),
}

/// A model that generates turns.
pub trait Model: Send + Sync {
    /// The turn's chunks, in order. A stream that ends without [`ModelChunk::End`] was cut off.
    /// Dropping it closes the connection.
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>>;

    /// Other models for its failures, in the order in which they are asked.
    fn fallbacks(&self) -> &[Fallback] {
        &[]
    }
}

/// Whether a provider has accepted a request, which may be billed then, and how it names its answer. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Accepted(Arc<(AtomicBool, Mutex<AnswerNames>)>);

impl Accepted {
    pub(super) fn set(&self) {
        self.0.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.0.0.store(false, Ordering::Relaxed);
        *self.0.1.lock() = AnswerNames::default();
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Keeps the names of the answer, where they are found.
    fn name(&self, found: Option<AnswerNames>) {
        if let Some(found) = found {
            *self.0.1.lock() = found;
        }
    }

    pub(super) fn names(&self) -> AnswerNames {
        self.0.1.lock().clone()
    }
}

/// It is no part of the request.
impl PartialEq for Accepted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    pub purpose: Purpose,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolDescription>,
    /// The options of the answer. Its `max_tokens` are in the field beside it.
    pub options: ModelOptions,
    /// Maximum tokens of the turn, thinking included.
    pub max_tokens: u32,
    /// Set by the model.
    pub accepted: Accepted,
}

impl ModelRequest {
    /// For providers that have no mode for the form of an answer: it is the last prompt.
    fn system_prompts(&self) -> Vec<String> {
        let prompts = self.messages.iter().filter_map(Message::as_system).map(str::to_owned);
        prompts.chain(self.options.output.as_ref().map(OutputFormat::instruction)).collect()
    }

    /// Whether a later request is likely to begin with the same: the provider keeps it in its cache.
    fn is_continued(&self) -> bool {
        self.purpose == Purpose::Turn
    }

    /// For work of the gateway's own: without chance, if the model accepts a temperature (A46), and with as little thinking as
    /// the model can do, for which it has room.
    pub(super) fn own(purpose: Purpose, messages: Vec<Message>, max_tokens: u32, profile: &AgentProfile) -> Self {
        let row = profile.row().filter(|row| row.reasons && profile.provider() != Provider::Replay);
        let least = row.filter(|row| !row.efforts.is_empty()).map(|row| match row.efforts.contains(&Effort::None) {
            true => Effort::None,
            false => row.nearest_effort(Effort::Minimal),
        });
        let room = row.map_or(0, |_| Thinking::Effort(least.unwrap_or(Effort::Medium)).tokens());
        let thinking = least.map(Thinking::Effort);
        let options =
            ModelOptions { temperature: profile.temperature().map(|_| 0.0), thinking, ..ModelOptions::default() };
        Self { purpose, messages, options, max_tokens: max_tokens.saturating_add(room), ..Self::default() }
    }
}

/// The purpose of a request: scripts select their answer by it, and traces report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The next turn of a conversation.
    #[default]
    Turn,
    /// The summary of a reply's tool calls (A73).
    CallSummary,
    /// The summary of a thread (A42).
    ConversationSummary,
    /// The summary of the older part of a conversation that is too long for the model.
    ContextSummary,
    /// The calls that fit a task (`POST /tools/select`).
    Selection,
    /// The title of a conversation (C32).
    Title,
}

/// A chunk of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelChunk {
    Text(String),
    Thinking(String),
    /// Signed or redacted reasoning, to be sent back unchanged.
    Thought(Thought),
    /// So many bytes of a call's arguments have arrived. The call itself follows when complete; until then the bytes
    /// show that the model is working, and are charged.
    Fragment {
        bytes: usize,
    },
    /// A complete call, joined from its fragments.
    Call(RequestedCall),
    /// The request failed before its first chunk, and is sent again.
    Retry {
        message: String,
    },
    /// The turn has ended, by the provider's protocol.
    End {
        stop: StopReason,
        usage: ModelUsage,
    },
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// Completed (A14).
    Stop,
    ToolCalls,
    /// `max_tokens` was reached.
    Length,
    /// The provider withheld the answer.
    #[strum(serialize = "content_filter")]
    Refusal,
    /// The provider paused a long turn: the same conversation continues it.
    Pause,
}

impl StopReason {
    /// The name in traces.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a turn failed. The provider's text is passed on without the key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// HTTP 529 (A65).
    #[error("the model's provider is overloaded; try again later")]
    Overloaded { retry_after: Option<Duration> },
    #[error("the model did not answer in time")]
    Timeout,
    /// HTTP 429 or 503, with the provider's `Retry-After` if it sent one.
    #[error("the model's provider is rate limiting or unavailable: {sentence}")]
    Limited { status: u16, retry_after: Option<Duration>, sentence: String },
    /// The provider's account has used up its quota.
    #[error("the quota with the model's provider is used up: {0}")]
    OutOfQuota(String),
    /// Other 5xx, or a connection that failed or closed early.
    #[error("the model's provider failed: {0}")]
    Unavailable(String),
    /// A retry would be refused too: a wrong key, an unknown model, a malformed request.
    #[error("the model's provider refused the request: {0}")]
    Refused(String),
    /// More than the model's context window.
    #[error("the conversation is longer than the model can read: {0}")]
    ContextLength(String),
    #[error("the model's answer is invalid: {0}")]
    Garbled(String),
    /// Not in the form that the client asked for, also after a second attempt.
    #[error("the model's answer is not in the form of `response_format`: {0}")]
    InvalidOutput(String),
    /// The budget is too small for the turn, or the store does not take its reservation.
    #[error("{message}")]
    NotSent { code: ErrorCode, message: String },
}

impl ModelError {
    /// An answer that parses but violates the provider's protocol.
    fn foreign() -> Self {
        Self::Garbled("it violates the provider's protocol".into())
    }

    /// Without the secrets in the provider's text.
    fn redacted(mut self, secrets: &SentSecrets) -> Self {
        if let Self::OutOfQuota(text)
        | Self::Unavailable(text)
        | Self::Refused(text)
        | Self::ContextLength(text)
        | Self::Garbled(text)
        | Self::Limited { sentence: text, .. } = &mut self
        {
            *text = secrets.strike(text).into_owned();
        }
        self
    }

    /// The code in replies and events.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Overloaded { .. } => ErrorCode::Overloaded,
            Self::Timeout => ErrorCode::Timeout,
            Self::OutOfQuota(_) => ErrorCode::RateLimited,
            Self::Limited { .. } | Self::Unavailable(_) | Self::Garbled(_) => ErrorCode::UpstreamError,
            Self::Refused(_) => ErrorCode::ModelRefused,
            Self::InvalidOutput(_) => ErrorCode::InvalidOutput,
            Self::ContextLength(_) => ErrorCode::ContextLengthExceeded,
            Self::NotSent { code, .. } => *code,
        }
    }

    /// Its class, if another model may not fail in the same way.
    pub(super) fn class(&self) -> Option<FailureClass> {
        match self {
            Self::Overloaded { .. } => Some(FailureClass::Overloaded),
            Self::Timeout => Some(FailureClass::Timeout),
            Self::Limited { .. } => Some(FailureClass::Rate),
            Self::OutOfQuota(_) => Some(FailureClass::Quota),
            Self::Unavailable(_) | Self::Garbled(_) => Some(FailureClass::Unavailable),
            Self::Refused(_) => Some(FailureClass::Refused),
            Self::ContextLength(_) => Some(FailureClass::TooLong),
            Self::InvalidOutput(_) | Self::NotSent { .. } => None,
        }
    }

    /// Whether the same request would fail again, although its code is mostly one that passes by itself.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::OutOfQuota(_))
    }

    /// The wait that the provider asked for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after } | Self::Limited { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::OutboundConfig;
    use url::Url;

    #[test]
    fn a_profile_without_its_key_or_script_names_what_is_missing() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let metrics = Arc::new(Metrics::new("ns").unwrap());
        let base = || Url::parse("http://127.0.0.1:1/v1").ok();
        for (provider, base_url, key, problem) in [
            (Provider::Anthropic, None, None, Some("ANTHROPIC_API_KEY")),
            (Provider::Openai, None, None, Some("OPENAI_API_KEY")),
            (Provider::Bedrock, None, None, Some("AWS_BEARER_TOKEN_BEDROCK")),
            (Provider::Bedrock, None, None, Some("AWS_ACCESS_KEY_ID")),
            (Provider::Gemini, None, None, Some("GEMINI_API_KEY")),
            (Provider::Openai, base(), None, None),
            (Provider::Anthropic, None, Some(Secret::new("k")), None),
            (Provider::Replay, None, None, Some("nowhere.yaml: cannot be read")),
        ] {
            let model = Some("nowhere.yaml".to_owned());
            let profile =
                AgentProfile { provider: Some(provider), model, base_url, api_key: key, ..AgentProfile::default() };
            let message = open(&profile, &outbound, &metrics).err().map(|error| error.to_string());
            match problem {
                None => assert_eq!(message, None),
                Some(problem) => {
                    assert!(message.as_ref().is_some_and(|message| message.contains(problem)), "{message:?}");
                }
            }
        }
    }
}
