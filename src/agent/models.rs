//! Models: one turn of a conversation in, its pieces out as they come. One file a provider.

mod anthropic;
mod bedrock;
mod openai;
mod remote;
pub mod replay;
pub mod retry;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use serde::Deserialize;
use thiserror::Error;

use super::message::{Message, RequestedCall, Thought};
use super::toolbox::ToolDescription;
use crate::budget::model_prices::ModelUsage;
use crate::config::{AgentProfile, Provider, Secret};
use crate::core::error::ErrorCode;
use crate::infra::outbound::Outbound;

pub use self::remote::{Protocol, Remote};
pub use self::replay::{Replay, ReplayError};

/// The model that a profile names.
///
/// # Errors
/// What is missing or wrong in the profile, and where.
pub fn open(profile: &AgentProfile, outbound: &Outbound) -> Result<Arc<dyn Model>, ModelConfigError> {
    let protocol = match profile.provider() {
        Provider::Replay => return Ok(Arc::new(Replay::open(Path::new(profile.model()))?)),
        Provider::Anthropic => Protocol::Anthropic,
        Provider::Openai => Protocol::Openai,
        Provider::Bedrock => Protocol::Bedrock,
    };
    // A server of one's own often asks for no key; the providers do.
    let keyless = profile.base_url.as_ref().map(|_| Secret::new(""));
    let key = profile
        .api_key
        .clone()
        .or(keyless)
        .ok_or(ModelConfigError::NoKey { variable: protocol.key_variable(), note: protocol.key_note() })?;
    Ok(Arc::new(Remote::new(outbound.clone(), protocol, profile.model(), profile.base_url.as_ref(), &key)?))
}

/// Why a profile has no model.
#[derive(Debug, Error)]
pub enum ModelConfigError {
    #[error(transparent)]
    Script(#[from] ReplayError),
    #[error("the profile has no `api_key`; set it, or {variable}, or use a profile of the provider `replay`{note}")]
    NoKey { variable: &'static str, note: &'static str },
    #[error(transparent)]
    Client(#[from] ModelError),
}

/// A model that can be asked for a turn.
pub trait Model: Send + Sync {
    /// The turn's pieces, in order. A stream that ends without [`ModelChunk::End`] was cut off.
    /// Dropping it closes the connection.
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>>;
}

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    pub purpose: Purpose,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolDescription>,
    pub temperature: Option<f64>,
    /// Tokens the turn may have at most.
    pub max_tokens: u32,
}

/// What a model is asked for: scripts answer by it, and traces tell it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The next turn of a conversation.
    #[default]
    Turn,
    /// The summary of a reply's tool calls (A73).
    CallSummary,
    /// The summary of a thread (A42).
    ConversationSummary,
    /// The calls that fit a task (`POST /tools/select`).
    Selection,
}

/// A piece of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelChunk {
    Text(String),
    Thinking(String),
    /// Signed or redacted thinking, to be sent back as it is.
    Thought(Thought),
    /// So many bytes of a call's arguments have come. The call is told when it is whole; until then this is a sign of
    /// life, and has to be paid for.
    Fragment {
        bytes: usize,
    },
    /// A call, joined from its fragments.
    Call(RequestedCall),
    /// The turn is over, as the protocol says.
    End {
        stop: StopReason,
        usage: ModelUsage,
    },
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Answered (A14).
    Stop,
    ToolCalls,
    /// `max_tokens` was reached.
    Length,
    /// The provider held back the answer.
    Refusal,
}

impl StopReason {
    /// As traces tell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Refusal => "content_filter",
        }
    }
}

/// Why there is no turn, or no more of it. Never holds a key, or what the provider wrote beside its message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// HTTP 529 (A65).
    #[error("the model's provider is overloaded; try again later")]
    Overloaded { retry_after: Option<Duration> },
    #[error("the model did not answer in time")]
    Timeout,
    /// 429 and 503: it says itself when to come back, or does not.
    #[error("the model's provider asks to wait: HTTP {status}")]
    Limited { status: u16, retry_after: Option<Duration> },
    /// Other 5xx, a connection that failed or broke off.
    #[error("the model's provider failed: {0}")]
    Unavailable(String),
    /// The same request would be refused again: a wrong key, an unknown model, a malformed request.
    #[error("the model's provider refused the request: {0}")]
    Refused(String),
    #[error("the model's answer cannot be read: {0}")]
    Garbled(String),
    /// Not asked at all: a budget does not reach for the turn.
    #[error("{message}")]
    OverBudget { code: ErrorCode, message: String },
}

impl ModelError {
    /// An answer that can be read, and means nothing in the provider's protocol.
    fn foreign() -> Self {
        Self::Garbled("it does not keep to the provider's protocol".into())
    }

    /// What an HTTP status of the provider means; 529 is Anthropic's "overloaded" (A65).
    pub(crate) fn of_status(status: u16, retry_after: Option<Duration>) -> Self {
        match status {
            529 => Self::Overloaded { retry_after },
            429 | 503 => Self::Limited { status, retry_after },
            500.. => Self::Unavailable(format!("HTTP {status}")),
            401 | 403 => Self::Refused(format!("HTTP {status}; check the profile's api_key")),
            404 => Self::Refused("HTTP 404; check the profile's model and base_url".into()),
            _ => Self::Refused(format!("HTTP {status}")),
        }
    }

    /// As replies and events carry it, from the closed list of error codes.
    pub fn code(&self) -> &'static str {
        let code = match self {
            Self::Overloaded { .. } => ErrorCode::Overloaded,
            Self::Timeout => ErrorCode::Timeout,
            Self::Limited { .. } | Self::Unavailable(_) | Self::Refused(_) | Self::Garbled(_) => {
                ErrorCode::UpstreamError
            }
            Self::OverBudget { code, .. } => *code,
        };
        code.as_str()
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::config::OutboundConfig;

    #[test]
    fn a_profile_without_its_key_or_script_says_what_is_missing() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let base = || Url::parse("http://127.0.0.1:1/v1").ok();
        for (provider, base_url, key, problem) in [
            (Provider::Anthropic, None, None, Some("ANTHROPIC_API_KEY")),
            (Provider::Openai, None, None, Some("OPENAI_API_KEY")),
            (Provider::Bedrock, None, None, Some("AWS_BEARER_TOKEN_BEDROCK")),
            (Provider::Bedrock, None, None, Some("access keys")),
            (Provider::Openai, base(), None, None),
            (Provider::Anthropic, None, Some(Secret::new("k")), None),
            (Provider::Replay, None, None, Some("nowhere.yaml: cannot be read")),
        ] {
            let model = Some("nowhere.yaml".to_owned());
            let profile =
                AgentProfile { provider: Some(provider), model, base_url, api_key: key, ..AgentProfile::default() };
            let told = open(&profile, &outbound).err().map(|error| error.to_string());
            match problem {
                None => assert_eq!(told, None),
                Some(problem) => assert!(told.as_ref().is_some_and(|told| told.contains(problem)), "{told:?}"),
            }
        }
    }
}
