//! Models of a provider on the network, over our own HTTP client.
//!
//! This module holds what all providers share: sending the request, decoding the streamed answer, and limits on both.
//! The differences are in a [`Protocol`], each in a file of its own.

mod aws_events;
mod event_decoder;
mod failure;
pub(super) mod lenient;
mod message_merger;
mod turn_assembler;
mod vendor;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_stream::try_stream;
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::Url;

use self::event_decoder::{EventDecoder, Framing};
use super::aws::Signer;
use super::{Model, ModelChunk, ModelError, ModelRequest, anthropic, bedrock, openai};
use crate::message::UNSIGNED_THINKING;
use crate::meter::estimated_prompt;
use sekisho_config::Secret;
use sekisho_core::call::Deadline;
use sekisho_core::error::CallError;
use sekisho_core::headers;
use sekisho_core::redaction::SentSecrets;
use sekisho_observe::metrics::Metrics;
use sekisho_outbound::{Outbound, OutboundRequest, OutboundStream, Trust};

#[cfg(test)]
pub(super) use self::aws_events::tests::event as aws_event;
pub(super) use self::event_decoder::Event;
pub(super) use self::failure::Reported;
pub(super) use self::message_merger::MessageMerger;
pub(super) use self::turn_assembler::{CallFragment, TurnAssembler};
pub(super) use self::vendor::Vendor;

/// The run's own timeout is shorter, and drops the request.
const MAX_REQUEST: Duration = Duration::from_secs(3_600);

/// The characters of a model's name that are encoded in a path: all but the unreserved ones.
const OF_A_MODEL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How long to wait for usage and end of stream after the stop reason: some servers send neither.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// The provider's protocol.
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
pub struct Remote {
    outbound: Outbound,
    protocol: Protocol,
    model: String,
    /// The base URL of the API.
    base_url: Url,
    /// Includes the key.
    headers: HeaderMap,
    /// The key, which a provider may repeat in an error.
    secrets: SentSecrets,
    /// In place of a key.
    signer: Option<Signer>,
    /// Whether the server refuses `stream_options`, by which others report the usage of a streamed answer.
    refuses_stream_options: AtomicBool,
    /// Whose server it is.
    vendor: Vendor,
    /// Where deviations of answers are counted.
    metrics: Option<Arc<Metrics>>,
}

impl Remote {
    /// `base_url` is the prefix of `messages`, `chat/completions` or `model/…`; the default is the provider's own. An
    /// empty key is not sent.
    ///
    /// # Errors
    /// The key is not a valid header value.
    pub fn new(
        outbound: Outbound,
        protocol: Protocol,
        model: &str,
        base_url: Option<&Url>,
        key: &Secret,
    ) -> Result<Self, ModelError> {
        let own = || {
            Url::parse(protocol.own_base_url())
                .map_err(|_| ModelError::Refused("the provider has no default base_url".into()))
        };
        let mut secrets = SentSecrets::default();
        secrets.add(key.expose());
        Ok(Self {
            outbound,
            protocol,
            model: model.to_owned(),
            base_url: base_url.cloned().map_or_else(own, Ok)?,
            headers: protocol.headers(key)?,
            secrets,
            signer: None,
            refuses_stream_options: AtomicBool::new(false),
            vendor: Vendor::of(protocol, base_url),
            metrics: None,
        })
    }

    /// Counts answers that deviate from their protocol.
    pub(super) fn counted_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// With a signature in each request.
    pub(super) fn signed_by(self, signer: Signer) -> Self {
        Self { signer: Some(signer), ..self }
    }

    /// The same as [`send`](Self::send); once more without `stream_options` for a server that refuses them.
    async fn ask(&self, request: &ModelRequest) -> Result<(OutboundStream, Framing), ModelError> {
        match self.send(request).await {
            Err(ModelError::Refused(sentence)) if sentence.contains(openai::STREAM_OPTIONS) => {
                if self.refuses_stream_options.swap(true, Ordering::Relaxed) {
                    return Err(ModelError::Refused(sentence));
                }
                self.send(request).await
            }
            answer => answer,
        }
    }

    /// The response and its framing, once its status and content type are checked.
    async fn send(&self, request: &ModelRequest) -> Result<(OutboundStream, Framing), ModelError> {
        let mut headers = self.headers.clone();
        if self.protocol == Protocol::Anthropic && request.options.thinking.is_some() {
            headers.insert("anthropic-beta", HeaderValue::from_static(anthropic::THINKING_BETWEEN_CALLS));
        }
        // Without the room that a text has left to grow.
        let body = self.body(request).to_string().into_boxed_str().into_boxed_bytes();
        let (url, body) = (self.address()?, Bytes::from(body));
        let secrets = match &self.signer {
            Some(signer) => signer.sign(&self.outbound, &url, &mut headers, &body).await?,
            None => SentSecrets::default(),
        };
        let outbound_request = OutboundRequest {
            method: Method::POST,
            headers,
            body: Some(body),
            trust: Trust::Operator,
            ..OutboundRequest::get(url, Deadline::after(MAX_REQUEST))
        };
        let answer = self.outbound.open(outbound_request).await.map_err(|error| failure::lost(&error))?;
        if !answer.status.is_success() {
            return Err(failure::refused(answer).await.redacted(&secrets));
        }
        match self.protocol.framing_of(headers::content_type(&answer.headers)) {
            Some(framing) => Ok((answer, framing)),
            None => Err(failure::foreign(answer, self.protocol.framing().media_type()).await),
        }
    }

    /// Reads an event, and counts how it deviates from the protocol.
    fn read(&self, event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
        let read = self.protocol.read(event, turn);
        for oddity in turn.take_oddities() {
            let (provider, oddity) = (self.vendor.as_str(), oddity.as_str());
            tracing::debug!(provider, oddity, "an answer of a model deviates from its protocol");
            if let Some(metrics) = &self.metrics {
                metrics.record_odd_answer(provider, oddity);
            }
        }
        read
    }

    /// The field of thoughts without a signature, where the server has Anthropic's API and is not Anthropic's, which signs
    /// each of them.
    fn unsigned_thinking(&self) -> Option<&'static str> {
        let is_compatible = self.protocol == Protocol::Anthropic && self.vendor != Vendor::Anthropic;
        is_compatible.then_some(UNSIGNED_THINKING)
    }

    fn address(&self) -> Result<Url, ModelError> {
        let mut url = self.base_url.clone();
        if url.cannot_be_a_base() {
            return Err(ModelError::Refused("the profile's base_url has no path".into()));
        }
        let path = match self.protocol {
            Protocol::Anthropic => "messages".to_owned(),
            Protocol::Openai => "chat/completions".to_owned(),
            // Encoded as AWS's own clients do, since the path is a part of the signature.
            Protocol::Bedrock => {
                format!("model/{}/converse-stream", utf8_percent_encode(&self.model, OF_A_MODEL))
            }
        };
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        Ok(url)
    }

    fn body(&self, request: &ModelRequest) -> Value {
        match self.protocol {
            Protocol::Anthropic => anthropic::body(&self.model, request),
            Protocol::Openai => {
                let mut body = openai::body(&self.model, request, self.vendor);
                if self.refuses_stream_options.load(Ordering::Relaxed)
                    && let Some(body) = body.as_object_mut()
                {
                    body.remove(openai::STREAM_OPTIONS);
                }
                body
            }
            Protocol::Bedrock => bedrock::body(&self.model, request),
        }
    }
}

impl Model for Remote {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        let pieces = try_stream! {
            let (answer, framing) = self.ask(&request).await?;
            let mut wire = EventDecoder::new(framing);
            let mut turn = TurnAssembler::new(estimated_prompt(&request), request.max_tokens)
                .with_unsigned(self.unsigned_thinking());
            let mut pieces = std::pin::pin!(answer.pieces());
            while !turn.is_over() {
                let piece = match next(&mut pieces, turn.is_complete()).await {
                    Some(Ok(piece)) => piece,
                    Some(Err(error)) if !turn.is_complete() => Err(failure::lost(&error))?,
                    None | Some(Err(_)) => break,
                };
                wire.feed(&piece)?;
                while let Some(event) = wire.next()? {
                    self.read(&event, &mut turn)?;
                    for piece in turn.take_pieces() {
                        yield piece;
                    }
                    if turn.is_over() {
                        break;
                    }
                }
            }
            if !turn.is_complete()
                && let Some(event) = wire.whole()
            {
                self.read(&event, &mut turn)?;
                for piece in turn.take_pieces() {
                    yield piece;
                }
            }
            // The answer was cut off: there is no end.
            if turn.is_complete() {
                for piece in turn.finish() {
                    yield piece;
                }
            }
        };
        pieces.map(|piece: Result<_, ModelError>| piece.map_err(|error| error.redacted(&self.secrets))).boxed()
    }
}

/// The next chunk of the answer; after the stop reason only chunks that arrive soon.
async fn next(
    pieces: &mut (impl Stream<Item = Result<Bytes, CallError>> + Unpin),
    is_complete: bool,
) -> Option<Result<Bytes, CallError>> {
    if is_complete {
        tokio::time::timeout(LAST_WORDS_TIMEOUT, pieces.next()).await.ok().flatten()
    } else {
        pieces.next().await
    }
}

impl Protocol {
    fn read(self, event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
        match self {
            Self::Anthropic => anthropic::read(event, turn),
            Self::Openai => openai::read(event, turn),
            Self::Bedrock => bedrock::read(event, turn),
        }
    }

    fn framing(self) -> Framing {
        match self {
            Self::Anthropic | Self::Openai => Framing::Events,
            Self::Bedrock => Framing::AwsEventDecoder,
        }
    }

    /// The framing of an answer with this content type; `None` if the answer is not in this protocol.
    fn framing_of(self, content_type: &str) -> Option<Framing> {
        let own = self.framing();
        let is = |media_type: &str| content_type.eq_ignore_ascii_case(media_type);
        match self {
            _ if is(own.media_type()) => Some(own),
            // Some compatible servers do not stream, or name their stream a text.
            Self::Openai | Self::Anthropic if is("application/json") => Some(Framing::Whole),
            Self::Openai if is("text/plain") => Some(own),
            Self::Anthropic | Self::Openai | Self::Bedrock => None,
        }
    }

    fn headers(self, key: &Secret) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static(self.framing().media_type()));
        if self == Self::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
        }
        if !key.expose().is_empty() {
            let (name, value) = match self {
                Self::Anthropic => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
                Self::Openai | Self::Bedrock => (header::AUTHORIZATION, format!("Bearer {}", key.expose())),
            };
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                ModelError::Refused("the profile's api_key holds characters that a header cannot carry".into())
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(super) fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai => "OPENAI_API_KEY",
            Self::Bedrock => "AWS_BEARER_TOKEN_BEDROCK",
        }
    }

    /// A note for the error about a missing key.
    pub(super) fn key_note(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Openai => "",
            Self::Bedrock => {
                ", or credentials of AWS: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
            }
        }
    }

    fn own_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::Openai => "https://api.openai.com/v1",
            Self::Bedrock => "https://bedrock-runtime.us-east-1.amazonaws.com",
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Remote")
            .field("protocol", &self.protocol)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod provider;
#[cfg(test)]
mod tests;
