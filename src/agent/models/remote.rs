//! Models of a provider on the network, over our own HTTP client.
//!
//! This module holds what all providers share: sending the request, decoding the streamed answer, and limits on both.
//! The differences are in a [`Protocol`], each in a file of its own.

mod answer_names;
mod aws_events;
mod event_decoder;
mod failure;
mod fitting;
pub(super) mod lenient;
mod message_merger;
mod protocol;
mod think_tags;
mod turn_assembler;
mod vendor;

use std::collections::BTreeMap;
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

use self::answer_names::NameFinder;
use self::event_decoder::{EventDecoder, Framing};
use super::aws::Signer;
use super::sign_in::SignIn;
use super::{Model, ModelChunk, ModelError, ModelRequest, anthropic, bedrock, gemini, openai, responses};
use crate::message::UNSIGNED_THINKING;
use crate::meter::estimated_prompt;
use sekisho_config::{AgentProfile, ModelRow, Secret};
use sekisho_core::call::Deadline;
use sekisho_core::error::CallError;
use sekisho_core::headers;
use sekisho_core::redaction::SentSecrets;
use sekisho_observe::metrics::Metrics;
use sekisho_outbound::{Outbound, OutboundRequest, OutboundStream, Trust};

pub(crate) use self::answer_names::AnswerNames;
#[cfg(test)]
pub(super) use self::aws_events::tests::event as aws_event;
pub(super) use self::event_decoder::Event;
pub(super) use self::failure::Reported;
pub(super) use self::message_merger::MessageMerger;
pub use self::protocol::Protocol;
pub(super) use self::turn_assembler::{CallFragment, TurnAssembler};
pub(super) use self::vendor::Vendor;

/// The run's own timeout is shorter, and drops the request.
const MAX_REQUEST: Duration = Duration::from_secs(3_600);

/// The characters of a model's name that are encoded in a path: all but the unreserved ones.
const OF_A_MODEL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How long to wait for usage and end of stream after the stop reason: some servers send neither.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// In place of a key, too.
    sign_in: Option<SignIn>,
    /// Whether the server refuses `stream_options`, by which others report the usage of a streamed answer.
    refuses_stream_options: AtomicBool,
    /// Whether the account is refused summaries of the reasoning.
    refuses_summaries: AtomicBool,
    /// The facts about the model.
    row: Option<ModelRow>,
    /// Members of each request's body.
    extra_body: BTreeMap<String, Value>,
    /// Whose server it is.
    vendor: Vendor,
    /// Where deviations of answers are counted.
    metrics: Option<Arc<Metrics>>,
}

/// The answer of a provider that accepted a request.
struct Answering {
    answer: OutboundStream,
    framing: Framing,
    /// Secrets of the request beside the key, which the answer may repeat.
    secrets: SentSecrets,
}

impl Remote {
    /// `base_url` is the prefix of `messages`, `chat/completions` or `model/…`; the default is the provider's own. An
    /// empty key is not sent.
    /// Errors: the key is not a valid header value.
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
        let vendor = Vendor::of(protocol, base_url);
        let base_url = base_url.cloned().map_or_else(own, Ok)?;
        Ok(Self {
            outbound,
            protocol,
            model: model.to_owned(),
            headers: protocol.headers(key, vendor, &base_url)?,
            base_url,
            secrets,
            signer: None,
            sign_in: None,
            refuses_stream_options: AtomicBool::new(false),
            refuses_summaries: AtomicBool::new(false),
            row: None,
            extra_body: BTreeMap::new(),
            vendor,
            metrics: None,
        })
    }

    /// With the settings of a profile beside its model, address and key.
    /// Errors: a header of it cannot be sent.
    pub(super) fn with_settings(mut self, profile: &AgentProfile) -> Result<Self, ModelError> {
        for (name, value) in &profile.headers {
            let refused = || ModelError::Refused(format!("the profile's header {name:?} cannot be sent"));
            let mut sent = HeaderValue::try_from(value.expose()).map_err(|_| refused())?;
            sent.set_sensitive(true);
            self.headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| refused())?, sent);
            self.secrets.add_setting(value.expose());
        }
        self.extra_body.clone_from(&profile.extra_body);
        self.row = profile.row().cloned();
        self.sign_in = SignIn::of(profile);
        Ok(self)
    }

    #[cfg(test)]
    fn with_row(self, row: ModelRow) -> Self {
        Self { row: Some(row), ..self }
    }

    /// Counts answers that deviate from their protocol.
    pub(super) fn counted_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// With a signature in each request.
    pub(super) fn signed_by(self, signer: Signer) -> Self {
        Self { signer: Some(signer), ..self }
    }

    /// The same as [`send`](Self::send); once more without the member that a server or an account is refused.
    async fn ask(&self, request: &ModelRequest) -> Result<Answering, ModelError> {
        match self.send(request).await {
            Err(ModelError::Refused(sentence)) => {
                let is_new = self.refused_member(&sentence).is_some_and(|flag| !flag.swap(true, Ordering::Relaxed));
                if is_new { self.send(request).await } else { Err(ModelError::Refused(sentence)) }
            }
            answer => answer,
        }
    }

    /// The flag of the member that a refusal is about, if requests may go without it.
    fn refused_member(&self, sentence: &str) -> Option<&AtomicBool> {
        match self.protocol {
            Protocol::Openai if sentence.contains(openai::STREAM_OPTIONS) => Some(&self.refuses_stream_options),
            Protocol::Responses if sentence.contains("summar") => Some(&self.refuses_summaries),
            _ => None,
        }
    }

    /// The response, once its status and content type are checked.
    async fn send(&self, request: &ModelRequest) -> Result<Answering, ModelError> {
        let mut headers = self.headers.clone();
        if self.protocol == Protocol::Anthropic && request.options.thinking.is_some() {
            // Beside the headers of the profile.
            headers.append("anthropic-beta", HeaderValue::from_static(anthropic::THINKING_BETWEEN_CALLS));
        }
        // Without the room that a text has left to grow.
        let body = self.body(request).to_string().into_boxed_str().into_boxed_bytes();
        let (url, body) = (self.address()?, Bytes::from(body));
        let secrets = match (&self.signer, &self.sign_in) {
            (Some(signer), _) => signer.sign(&self.outbound, &url, &mut headers, &body).await?,
            (None, Some(sign_in)) => authorize(&mut headers, &sign_in.token(&self.outbound).await?)?,
            (None, None) => SentSecrets::default(),
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
            Some(framing) => Ok(Answering { answer, framing, secrets }),
            None => Err(failure::foreign(answer, self.protocol.framing().media_type()).await.redacted(&secrets)),
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
            Protocol::Responses => "responses".to_owned(),
            Protocol::Gemini => {
                url.query_pairs_mut().append_pair("alt", "sse");
                format!("models/{}:streamGenerateContent", utf8_percent_encode(&self.model, OF_A_MODEL))
            }
            // Encoded as AWS's own clients do, since the path is a part of the signature.
            Protocol::Bedrock => {
                format!("model/{}/converse-stream", utf8_percent_encode(&self.model, OF_A_MODEL))
            }
        };
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        Ok(url)
    }

    fn body(&self, request: &ModelRequest) -> Value {
        let mut body = self.own_body(request);
        for (name, value) in &self.extra_body {
            body[name] = value.clone();
        }
        body
    }

    fn own_body(&self, request: &ModelRequest) -> Value {
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
            Protocol::Responses => {
                let reasons = self.row.as_ref().is_some_and(|row| row.reasons);
                let mut body = responses::body(&self.model, request, reasons);
                if self.refuses_summaries.load(Ordering::Relaxed)
                    && let Some(reasoning) = body.get_mut("reasoning").and_then(Value::as_object_mut)
                {
                    reasoning.remove(responses::SUMMARY);
                }
                body
            }
            Protocol::Gemini => gemini::body(&self.model, request),
            Protocol::Bedrock => bedrock::body(&self.model, request),
        }
    }
}

impl Model for Remote {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        let request = fitting::fitted(request, self.protocol, self.row.as_ref());
        let pieces = try_stream! {
            let Answering { answer, framing, secrets } = self.ask(&request).await?;
            request.accepted.set();
            let mut wire = EventDecoder::new(framing);
            let mut names = NameFinder::default();
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
                    request.accepted.name(names.read(&event));
                    self.read(&event, &mut turn).map_err(|error| error.redacted(&secrets))?;
                    for piece in turn.take_pieces() {
                        yield piece;
                    }
                    if turn.is_over() {
                        break;
                    }
                }
            }
            let rest = if turn.is_complete() { Vec::new() } else { wire.rest() };
            for event in rest {
                request.accepted.name(names.read(&event));
                self.read(&event, &mut turn).map_err(|error| error.redacted(&secrets))?;
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

/// Adds an access token. Returns it as the secret that is sent.
/// Errors: a header cannot carry it.
fn authorize(headers: &mut HeaderMap, token: &str) -> Result<SentSecrets, ModelError> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| ModelError::Garbled("the access token is no value of a header".into()))?;
    value.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, value);
    let mut secrets = SentSecrets::default();
    secrets.add(token);
    Ok(secrets)
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
