//! Timeouts of a model's answer, and retries (A12, A13, A65, A66).

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::stream::{Stream, StreamExt};

use tokio::time::Instant;

use super::{Model, ModelChunk, ModelError, ModelRequest};

/// Retries if the provider is overloaded (A65) or does not answer in time (A66).
const RETRIES_WHEN_SLOW: u32 = 3;

/// The wait before the first retry; doubled before each later one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Upper limit of our own waits.
const MAX_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// For the first chunk, and between two chunks.
    pub timeout: Duration,
    /// Retries after other failures of the provider.
    pub retries: u32,
    /// When the work of which the request is a part ends. A provider that asks for a longer wait is not asked again.
    pub end: Option<Instant>,
}

/// The turn's chunks up to its end. The request is retried only before the first chunk: a chunk that was sent cannot
/// be withdrawn. The last item is always [`ModelChunk::End`] or an error.
pub fn ask(
    model: &dyn Model,
    request: Arc<ModelRequest>,
    policy: RetryPolicy,
) -> impl Stream<Item = Result<ModelChunk, ModelError>> + Send + '_ {
    stream! {
        let mut failures = 0;
        loop {
            request.accepted.reset();
            let mut pieces = model.stream(Arc::clone(&request));
            let mut silent = true;
            let error = loop {
                match next(pieces.next(), policy.timeout).await {
                    Ok(end @ ModelChunk::End { .. }) => {
                        yield Ok(end);
                        return;
                    }
                    Ok(piece) => {
                        // A call is run only at the end of the turn, so its fragments can be discarded.
                        silent &= matches!(piece, ModelChunk::Fragment { .. });
                        yield Ok(piece);
                    }
                    Err(error) => break error,
                }
            };
            // Closes the connection before the wait.
            drop(pieces);
            failures += 1;
            // A provider that is silent after it accepted the request may be at work on it, and bill it.
            let is_at_work = error == ModelError::Timeout && request.accepted.is_set();
            match policy.wait(&error, failures) {
                Some(wait) if silent && !is_at_work => {
                    tracing::warn!(%error, failures, wait_ms = wait.as_millis(), "the request to the model is retried");
                    let message = format!("{error}; the request is sent again in {:.1} s", wait.as_secs_f64());
                    yield Ok(ModelChunk::Retry { message });
                    tokio::time::sleep(wait).await;
                }
                _ => {
                    tracing::warn!(%error, failures, "the request to the model failed");
                    yield Err(error);
                    return;
                }
            }
        }
    }
}

/// Runs work with a client waiting for it: all of it within the timeout of a model's first chunk.
/// Errors: errors of the work, or [`ModelError::Timeout`].
pub async fn within<T>(timeout: Duration, work: impl Future<Output = Result<T, ModelError>>) -> Result<T, ModelError> {
    tokio::time::timeout(timeout, work).await.unwrap_or(Err(ModelError::Timeout))
}

async fn next(
    piece: impl Future<Output = Option<Result<ModelChunk, ModelError>>>,
    timeout: Duration,
) -> Result<ModelChunk, ModelError> {
    match tokio::time::timeout(timeout, piece).await {
        Err(_) => Err(ModelError::Timeout),
        Ok(None) => Err(ModelError::Unavailable("the answer was cut off".into())),
        Ok(Some(piece)) => piece,
    }
}

impl RetryPolicy {
    /// The wait after the nth failure; `None` to give up.
    fn wait(self, error: &ModelError, failures: u32) -> Option<Duration> {
        let retries = match error {
            ModelError::Overloaded { .. } | ModelError::Timeout => RETRIES_WHEN_SLOW,
            ModelError::Limited { .. } | ModelError::Unavailable(_) => self.retries,
            ModelError::OutOfQuota(_)
            | ModelError::Refused(_)
            | ModelError::ContextLength(_)
            | ModelError::Garbled(_)
            | ModelError::InvalidOutput(_)
            | ModelError::NotSent { .. } => 0,
        };
        let backoff = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(MAX_WAIT);
        let wait = error.retry_after().unwrap_or(backoff);
        let then = Instant::now().checked_add(wait);
        let is_in_time = then.is_some_and(|then| self.end.is_none_or(|end| then < end));
        (failures <= retries && is_in_time).then_some(wait)
    }
}

#[cfg(test)]
mod tests {

    use futures_util::stream::{self, BoxStream};
    use parking_lot::Mutex;

    use super::*;
    use crate::models::StopReason;
    use sekisho_calls::budget::ModelUsage;

    type Piece = Result<ModelChunk, ModelError>;

    /// Gives the answers one after another; an empty one never arrives.
    struct ScriptedAnswers(Mutex<Vec<Vec<Piece>>>);

    impl Model for ScriptedAnswers {
        fn stream(&self, _request: Arc<ModelRequest>) -> BoxStream<'_, Piece> {
            match self.0.lock().pop() {
                Some(answer) if answer.is_empty() => stream::pending().boxed(),
                answer => stream::iter(answer.unwrap_or_default()).boxed(),
            }
        }
    }

    fn end() -> Piece {
        Ok(ModelChunk::End { stop: StopReason::Stop, usage: ModelUsage::default() })
    }

    fn overloaded() -> Piece {
        Err(ModelError::Overloaded { retry_after: None })
    }

    fn unavailable() -> Piece {
        Err(ModelError::Unavailable("HTTP 500".into()))
    }

    /// The chunks, how many answers were left, and the elapsed seconds.
    async fn play(mut answers: Vec<Vec<Piece>>) -> (Vec<Piece>, usize, u64) {
        answers.reverse();
        let model = ScriptedAnswers(Mutex::new(answers));
        let request = ModelRequest { max_tokens: 1, ..ModelRequest::default() };
        let end = Some(Instant::now() + Duration::from_secs(300));
        let policy = RetryPolicy { timeout: Duration::from_secs(30), retries: 2, end };
        let begun = Instant::now();
        let mut pieces: Vec<_> = ask(&model, Arc::new(request), policy).collect().await;
        pieces.retain(|piece| !matches!(piece, Ok(ModelChunk::Retry { .. })));
        let left = model.0.lock().len();
        (pieces, left, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_provider_is_retried_three_times_with_doubled_waits() {
        let (pieces, left, seconds) =
            play(vec![vec![overloaded()], vec![overloaded()], vec![overloaded()], vec![end()]]).await;
        assert_eq!((pieces, left, seconds), (vec![end()], 0, 1 + 2 + 4));
        let (pieces, left, _) = play(vec![vec![overloaded()]; 5]).await;
        assert_eq!((pieces, left), (vec![overloaded()], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn each_retry_is_reported_before_its_wait() {
        let model = ScriptedAnswers(Mutex::new(vec![vec![end()], vec![overloaded()], vec![overloaded()]]));
        let policy = RetryPolicy { timeout: Duration::from_secs(30), retries: 2, end: None };
        let begun = Instant::now();
        let pieces = ask(&model, Arc::default(), policy).map(|piece| (piece, begun.elapsed().as_secs()));
        let reported = pieces.filter_map(async |(piece, at)| match piece {
            Ok(ModelChunk::Retry { message }) => Some((message, at)),
            _ => None,
        });
        let why = "the model's provider is overloaded; try again later; the request is sent again in";
        let expected = [(format!("{why} 1.0 s"), 0), (format!("{why} 2.0 s"), 1)];
        assert_eq!(reported.collect::<Vec<_>>().await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_model_is_retried_three_times_and_then_times_out() {
        let (pieces, left, seconds) = play(vec![Vec::new(); 5]).await;
        assert_eq!((pieces, left, seconds), (vec![Err(ModelError::Timeout)], 1, 4 * 30 + 1 + 2 + 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_the_provider_has_accepted_is_not_sent_again_after_its_silence() {
        struct AcceptedModel;
        impl Model for AcceptedModel {
            fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Piece> {
                request.accepted.set();
                stream::pending().boxed()
            }
        }
        let policy = RetryPolicy { timeout: Duration::from_secs(30), retries: 2, end: None };
        let begun = Instant::now();
        let pieces: Vec<_> = ask(&AcceptedModel, Arc::default(), policy).collect().await;
        assert_eq!((pieces, begun.elapsed().as_secs()), (vec![Err(ModelError::Timeout)], 30));
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_use_the_profiles_retries_and_refusals_none() {
        let (pieces, left, _) = play(vec![vec![unavailable()]; 4]).await;
        assert_eq!((pieces, left), (vec![unavailable()], 1));
        for last in [
            ModelError::Refused("HTTP 401".into()),
            ModelError::Garbled("no JSON".into()),
            ModelError::OutOfQuota("pay".into()),
            ModelError::ContextLength("HTTP 400".into()),
        ] {
            let (pieces, left, seconds) = play(vec![vec![Err(last.clone())], vec![end()]]).await;
            assert_eq!((pieces, left, seconds), (vec![Err(last)], 1, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_of_the_provider_sets_the_wait() {
        let (status, retry_after, sentence) = (429, Some(Duration::from_secs(7)), "HTTP 429".to_owned());
        let limited = || Err(ModelError::Limited { status, retry_after, sentence: sentence.clone() });
        let (pieces, left, seconds) = play(vec![vec![limited()], vec![limited()], vec![end()]]).await;
        assert_eq!((pieces, left, seconds), (vec![end()], 0, 14));
        let (pieces, left, _) = play(vec![vec![limited()]; 4]).await;
        assert_eq!((pieces, left), (vec![limited()], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_not_retried_after_its_first_chunk() {
        let hello = || Ok(ModelChunk::Text("hello".into()));
        let (pieces, left, _) = play(vec![vec![hello()], vec![hello(), end()]]).await;
        assert_eq!(left, 1, "a cut-off answer is not retried");
        assert!(matches!(&pieces[..], [Ok(ModelChunk::Text(_)), Err(ModelError::Unavailable(_))]), "{pieces:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_asks_for_more_than_the_time_left_is_not_asked_again() {
        for wait in [Duration::from_secs(301), Duration::from_secs(31_536_000), Duration::MAX] {
            let asked = || Err(ModelError::Overloaded { retry_after: Some(wait) });
            assert_eq!(play(vec![vec![asked()], vec![end()]]).await, (vec![asked()], 1, 0), "{wait:?}");
        }
    }
}
