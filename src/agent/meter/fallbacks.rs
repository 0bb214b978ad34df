//! A request to a model, and to the models of other profiles after its failures.

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::stream::{BoxStream, StreamExt};
use tokio::time::{Instant, timeout};
use tracing::Span;

use super::content::TracedContent;
use super::{MeteredModel, turn_of};
use crate::message::{Extras, RequestedCall};
use crate::models::{Accepted, AnswerNames, Fallback, ModelChunk, ModelError, ModelRequest};
use sekisho_config::{AgentProfile, FailureClass};
use sekisho_core::failpoint;
use sekisho_observe::telemetry;

impl MeteredModel<'_> {
    pub(super) fn metered(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        stream! {
            let mut fallbacks = self.model.fallbacks();
            let (mut model, mut profile, mut sent) = (self.model, self.profile, Arc::clone(&request));
            let mut is_own = true;
            loop {
                let opened = self.meter.open(&sent, profile).await;
                let mut bill = match opened {
                    Ok(bill) => bill,
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                };
                if let Err(error) = bill.store_reservation().await {
                    yield Err(error);
                    return;
                }
                if let Some(max_tokens) = bill.lowered(&sent) {
                    Arc::make_mut(&mut sent).max_tokens = max_tokens;
                }
                let span = telemetry::model_span(self.span, profile, sent.max_tokens, sent.options.temperature);
                let is_traced = self.meter.traces_content && !span.is_disabled();
                let mut content = is_traced.then(|| TracedContent::of(&sent));
                sent.accepted.reset();
                let mut pieces = model.stream(Arc::clone(&sent));
                let is_for_silence =
                    |fallback: &Fallback| fallback.config.is_for(FailureClass::Timeout) && fallback.keeps(&request.options);
                let is_replaceable = fallbacks.iter().any(is_for_silence);
                let mut is_silent = true;
                let failure = loop {
                    let next = match self.silence(profile, is_silent && is_replaceable) {
                        Some(wait) => timeout(wait, pieces.next()).await.unwrap_or(Some(Err(ModelError::Timeout))),
                        None => pieces.next().await,
                    };
                    let Some(piece) = next else {
                        if fallbacks.is_empty() || !is_silent {
                            return;
                        }
                        break ModelError::Unavailable("the answer was cut off".into());
                    };
                    failpoint::reach("turn.piece");
                    trace(&span, &piece, &sent.accepted);
                    content.iter_mut().for_each(|content| content.add(&span, &piece));
                    // A provider that is silent after it accepted the request may bill it.
                    match piece == Err(ModelError::Timeout) && sent.accepted.is_set() {
                        true => bill.measure(&piece),
                        false => bill.record(&piece),
                    }
                    match piece {
                        Err(error) if is_silent => break error,
                        Ok(piece) => {
                            is_silent &= matches!(piece, ModelChunk::Fragment { .. } | ModelChunk::Retry { .. });
                            let kept = if is_own { Some(piece) } else { without_foreign(piece) };
                            if let Some(piece) = kept {
                                yield Ok(piece);
                            }
                        }
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    }
                };
                drop(pieces);
                let class = failure.class();
                let is_for = |fallback: &Fallback| {
                    class.is_some_and(|class| fallback.config.is_for(class)) && fallback.keeps(&request.options)
                };
                let Some(index) = fallbacks.iter().position(is_for) else {
                    yield Err(failure);
                    return;
                };
                let fallback = &fallbacks[index];
                let name = &fallback.config.profile;
                tracing::warn!(error = %failure, profile = name, "the model of another profile is asked");
                yield Ok(ModelChunk::Retry { message: format!("{failure}; the profile {name:?} is asked in its place") });
                (model, profile, sent) = (&*fallback.model, &*fallback.profile, fallback.request(&request));
                (fallbacks, is_own) = (&fallbacks[index + 1..], false);
            }
        }
        .boxed()
    }

    /// How long a model with fallbacks may be silent; without any, whoever asks it knows that. One for which another can be asked has
    /// at most half of the time that is left, so that the other one can answer before the end.
    fn silence(&self, profile: &AgentProfile, is_replaceable: bool) -> Option<Duration> {
        if self.model.fallbacks().is_empty() {
            return None;
        }
        let left = self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        Some(if is_replaceable { profile.fallback_wait().min(left / 2) } else { profile.timeout() })
    }
}

/// A chunk of another model than the run's: without the parts, and the id of a call, that only its own API takes back.
fn without_foreign(piece: ModelChunk) -> Option<ModelChunk> {
    match piece {
        ModelChunk::Thought(_) => None,
        ModelChunk::Call(call) => {
            Some(ModelChunk::Call(RequestedCall { id: String::new(), extras: Extras::new(), ..call }))
        }
        piece => Some(piece),
    }
}

fn trace(span: &Span, piece: &Result<ModelChunk, ModelError>, accepted: &Accepted) {
    match piece {
        Ok(ModelChunk::End { stop, usage }) => {
            let AnswerNames { id, model } = accepted.names();
            telemetry::name_answer(span, id, model);
            telemetry::complete_model(span, stop.as_str(), &turn_of(*usage));
        }
        Err(error) => telemetry::fail_model(span, error.code().as_str()),
        Ok(_) => {}
    }
}
