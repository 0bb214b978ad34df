//! Models of a provider on the network, through the library `genai`.
//!
//! What a provider writes into its errors is neither shown nor logged: it may repeat what it was sent.

mod failure;
mod joined;
mod request;

use std::sync::Arc;

use async_stream::stream;
use futures_util::stream::{BoxStream, StreamExt};
use genai::adapter::AdapterKind;
use genai::chat::ChatOptions;
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};

use self::failure::failure;
use self::joined::Joined;
use self::request::chat_request;
use super::{Model, ModelChunk, ModelError, ModelRequest};
use crate::agent::meter::estimated_prompt;
use crate::config::Secret;

/// Whose protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// <https://docs.anthropic.com/en/api/messages>
    Anthropic,
    /// <https://platform.openai.com/docs/api-reference/chat>
    Openai,
    /// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>
    Bedrock,
}

/// One model of one provider.
#[derive(Debug)]
pub struct Remote {
    client: Client,
    protocol: Protocol,
    model: String,
    base_url: String,
    key: Secret,
}

impl Remote {
    /// `http` connects; `base_url` is what `messages` or `chat/completions` is appended to.
    ///
    /// # Errors
    /// The library's client cannot be set up.
    pub fn new(
        http: reqwest::Client,
        protocol: Protocol,
        model: &str,
        base_url: Option<&str>,
        key: Secret,
    ) -> Result<Self, ModelError> {
        let mut base_url = base_url.unwrap_or_else(|| protocol.own_base_url()).to_owned();
        if !base_url.ends_with('/') {
            base_url.push('/');
        }
        let client = Client::builder().with_reqwest(http).build();
        let client = client.map_err(|_| ModelError::Refused("the client cannot be set up".into()))?;
        Ok(Self { client, protocol, model: model.to_owned(), base_url, key })
    }

    fn target(&self) -> ServiceTarget {
        ServiceTarget {
            model: ModelIden::new(self.protocol.adapter(), self.model.clone()),
            endpoint: Endpoint::from_owned(self.base_url.clone()),
            auth: AuthData::from_single(self.key.expose()),
        }
    }
}

impl Model for Remote {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        stream! {
            let options = ChatOptions { max_tokens: Some(request.max_tokens), temperature: request.temperature, ..ChatOptions::default() }
                .with_capture_usage(true)
                // Without it there would be no thinking blocks to send back.
                .with_capture_reasoning_content(true);
            let asked = self.client.exec_chat_stream(self.target(), chat_request(self.protocol, &request), Some(&options)).await;
            let mut events = match asked {
                Ok(answer) => answer.stream,
                Err(error) => {
                    yield Err(failure(&error));
                    return;
                }
            };
            let mut joined = Joined::new(self.protocol, estimated_prompt(&request));
            while let Some(event) = events.next().await {
                match event.map_err(|error| failure(&error)).and_then(|event| joined.take(event)) {
                    Ok(pieces) => for piece in pieces { yield Ok(piece) },
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        }
        .boxed()
    }
}

impl Protocol {
    fn adapter(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Openai => AdapterKind::OpenAI,
            Self::Bedrock => AdapterKind::BedrockApi,
        }
    }

    pub(super) fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai => "OPENAI_API_KEY",
            Self::Bedrock => "AWS_BEARER_TOKEN_BEDROCK",
        }
    }

    /// What else is to be known of the key.
    pub(super) fn key_note(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Openai => "",
            Self::Bedrock => ". It is an API key of Bedrock: requests are not signed with access keys of AWS (SigV4)",
        }
    }

    fn own_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Openai => "https://api.openai.com/v1/",
            Self::Bedrock => "https://bedrock-runtime.us-east-1.amazonaws.com/",
        }
    }
}

#[cfg(test)]
mod tests;
