//! The protocols of providers: which module reads and writes each, its headers, and its own address.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use url::Url;

use super::event_decoder::{Event, Framing};
use super::{TurnAssembler, Vendor};
use crate::models::{ModelError, anthropic, bedrock, gemini, openai, responses};
use sekisho_config::Secret;

/// The content types of streams, and of JSON in place of events, from servers that do not name their streams.
const UNNAMED: [&str; 5] = ["", "text/plain", "text/html", "application/octet-stream", "application/json"];

/// The provider's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// <https://docs.anthropic.com/en/api/messages>
    Anthropic,
    /// <https://platform.openai.com/docs/api-reference/chat>
    Openai,
    /// <https://platform.openai.com/docs/api-reference/responses>
    Responses,
    /// <https://ai.google.dev/api/generate-content>
    Gemini,
    /// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>
    Bedrock,
}

impl Protocol {
    pub(super) fn read(self, event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
        match self {
            Self::Anthropic => anthropic::read(event, turn),
            Self::Openai => openai::read(event, turn),
            Self::Responses => responses::read(event, turn),
            Self::Gemini => gemini::read(event, turn),
            Self::Bedrock => bedrock::read(event, turn),
        }
    }

    pub(super) fn framing(self) -> Framing {
        match self {
            Self::Anthropic | Self::Openai | Self::Responses | Self::Gemini => Framing::Events,
            Self::Bedrock => Framing::AwsEventDecoder,
        }
    }

    /// The framing of an answer with this content type; `None` if the answer is not in this protocol.
    pub(super) fn framing_of(self, content_type: &str) -> Option<Framing> {
        let own = self.framing();
        let is = |media_type: &str| content_type.eq_ignore_ascii_case(media_type);
        match self {
            _ if is(own.media_type()) => Some(own),
            Self::Anthropic | Self::Openai | Self::Responses | Self::Gemini if UNNAMED.into_iter().any(is) => Some(own),
            Self::Anthropic | Self::Openai | Self::Responses | Self::Gemini | Self::Bedrock => None,
        }
    }

    pub(super) fn headers(self, key: &Secret, vendor: Vendor, base_url: &Url) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static(self.framing().media_type()));
        if self == Self::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
        }
        if !key.expose().is_empty() {
            let bare = |name| (HeaderName::from_static(name), key.expose().to_owned());
            let is_vertex = base_url.host_str().is_some_and(|host| host.ends_with("aiplatform.googleapis.com"));
            let (name, value) = match self {
                Self::Anthropic => bare("x-api-key"),
                // A token of Vertex AI is an access token.
                Self::Gemini if !is_vertex => bare("x-goog-api-key"),
                Self::Openai | Self::Responses if vendor == Vendor::Azure => bare("api-key"),
                Self::Openai | Self::Responses | Self::Gemini | Self::Bedrock => {
                    (header::AUTHORIZATION, format!("Bearer {}", key.expose()))
                }
            };
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                ModelError::Refused("the profile's api_key holds characters that a header cannot carry".into())
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(in crate::models) fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai | Self::Responses => "OPENAI_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::Bedrock => "AWS_BEARER_TOKEN_BEDROCK",
        }
    }

    /// A note for the error about a missing key.
    pub(in crate::models) fn key_note(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Openai | Self::Responses | Self::Gemini => "",
            Self::Bedrock => {
                ", or credentials of AWS: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
            }
        }
    }

    pub(super) fn own_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::Openai | Self::Responses => "https://api.openai.com/v1",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::Bedrock => "https://bedrock-runtime.us-east-1.amazonaws.com",
        }
    }
}
