//! `Idempotency-Key` of a request that is a turn with an agent: sent again, it gets the answer of the first one, and no other
//! run begins.
//!
//! The first one is answered in a task of its own, which goes on when its client disconnects. Its answer is kept as it was sent,
//! once it has ended. A turn that failed before any call of a tool is not kept: sent again, it runs.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::conversations::execute::RUN_ID;
use sekisho_agent::Event;
use sekisho_api::RequestMeta;
use sekisho_api::reply::REPLAYED;
use sekisho_calls::pipeline::{EnteredTurn, KeyedTurn, TurnGuard};
use sekisho_core::call::{Caller, Deadline};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_store::RunStatus;

/// How long a request waits for the answer of the first one with its key.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// How long the first client may take for a part of its answer, before the run goes on without it.
const CLIENT_WAIT: Duration = Duration::from_secs(10);

/// How long a turn may go on once the gateway is closing. Runs of conversations end soon by themselves.
const CLOSING_WAIT: Duration = Duration::from_secs(5);

/// Parts of an answer that wait for the client.
const MAX_WAITING_PARTS: usize = 64;

/// Largest answer that is kept.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The headers of an answer that are kept, besides its status and body.
const KEPT_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, RETRY_AFTER, RUN_ID];

/// The data that tell a turn from others, besides its caller and key.
#[derive(Debug)]
pub(super) struct Turn {
    /// The path of the request.
    pub(super) route: String,
    /// The digest of its body.
    pub(super) body: String,
}

/// The progress of a turn, as its route reports it.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Done>);

#[derive(Debug, Default)]
struct Done {
    /// The run of a stored conversation: the store knows its work.
    run: OnceLock<Arc<str>>,
    has_called: AtomicBool,
    has_failed: AtomicBool,
}

impl Progress {
    /// The turn is a run of a stored conversation.
    pub(super) fn is_run(&self, id: &Arc<str>) {
        self.0.run.get_or_init(|| Arc::clone(id));
    }

    /// The same events, of a run that is not stored.
    pub(super) fn watch(
        &self,
        events: impl Stream<Item = Event> + Send + 'static,
    ) -> impl Stream<Item = Event> + Send + 'static {
        let done = Arc::clone(&self.0);
        events.inspect(move |event| match event {
            Event::Error(_) => done.has_failed.store(true, Ordering::Relaxed),
            Event::ToolInput { .. } | Event::ToolResult { .. } | Event::Approval(_) | Event::SubAgentBegin { .. } => {
                done.has_called.store(true, Ordering::Relaxed);
            }
            _ => {}
        })
    }

    /// Whether the turn, which has ended, must not run again.
    async fn is_final(&self, gateway: &Gateway, caller: &Caller, status: StatusCode) -> bool {
        if let Some(run) = self.0.run.get() {
            return is_final(gateway, caller, run).await;
        }
        let has_succeeded = status.is_success() && !self.0.has_failed.load(Ordering::Relaxed);
        has_succeeded || self.0.has_called.load(Ordering::Relaxed)
    }
}

/// Whether a run of a conversation answered, or made calls. An unknown effect may have happened.
async fn is_final(gateway: &Gateway, caller: &Caller, run: &str) -> bool {
    let store = gateway.store();
    let Ok(found) = store.conversation_runs().get(&caller.key, run).await else { return true };
    match found.map(|run| run.status) {
        // It was refused before it began.
        None => return false,
        Some(RunStatus::Running | RunStatus::Succeeded | RunStatus::Paused) => return true,
        Some(RunStatus::Cancelled) if !gateway.background().closing().is_cancelled() => return true,
        Some(RunStatus::Cancelled | RunStatus::Failed | RunStatus::TimedOut | RunStatus::Interrupted) => {}
    }
    store.conversation_runs().tool_executions(run).await.map_or(true, |calls| !calls.is_empty())
}

/// Answers a turn, or, if it has a key and was sent before, with the answer of then.
/// Errors: the errors of the key: [`Replies::enter_turn`](sekisho_calls::pipeline::Replies::enter_turn); without a key
/// the errors of `run`.
pub(super) async fn answer<F, E>(
    gateway: &Arc<Gateway>,
    meta: RequestMeta,
    turn: Turn,
    run: impl FnOnce(RequestMeta, Progress) -> F,
) -> Result<Response, E>
where
    F: Future<Output = Result<Response, E>> + Send + 'static,
    E: From<CallError> + IntoResponse,
{
    let progress = Progress::default();
    let Some(key) = meta.turn_key() else { return run(meta, progress).await };
    // The same words in another thread are another turn.
    let in_thread = |thread: &str| format!("{} {thread}", turn.body);
    let body = meta.thread.as_deref().map_or_else(|| turn.body.clone(), in_thread);
    let keyed = KeyedTurn { route: &turn.route, key, body: &body };
    let replies = &gateway.pipeline.replies;
    let guard = match replies.enter_turn(&meta.caller, keyed, Deadline::after(MAX_WAIT)).await? {
        EnteredTurn::Answered(answer) => {
            gateway.pipeline.settlement.metrics.idempotent_replay();
            return Ok(replayed(&answer)?);
        }
        EnteredTurn::First(guard) => guard,
    };
    let (head, answered) = oneshot::channel();
    let task = Task { gateway: Arc::clone(gateway), caller: Arc::clone(&meta.caller), guard, progress };
    let running = run(meta, task.progress.clone());
    let closing = gateway.background().closing().clone();
    gateway.background().spawn_in_span(async move {
        let mut work = Box::pin(task.carry_out(running, head));
        if closing.run_until_cancelled(&mut work).await.is_none() && timeout(CLOSING_WAIT, work).await.is_err() {
            tracing::warn!("a turn with an Idempotency-Key was aborted; its outcome is unknown");
        }
    });
    answered.await.map_err(|_| CallError::internal("the task of a turn with an Idempotency-Key ended").into())
}

/// A turn that is run.
struct Task {
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    guard: TurnGuard,
    progress: Progress,
}

impl Task {
    /// Sends the answer on while its client is there, and keeps it. The client sees its end once it is kept.
    async fn carry_out<F, E>(mut self, run: F, head: oneshot::Sender<Response>)
    where
        F: Future<Output = Result<Response, E>>,
        E: IntoResponse,
    {
        self.guard.begin();
        let (parts, body) = run.await.unwrap_or_else(IntoResponse::into_response).into_parts();
        let (status, headers) = (parts.status, parts.headers.clone());
        let (sender, mut receiver) = mpsc::channel(MAX_WAITING_PARTS);
        let sent = async_stream::stream! {
            while let Some(part) = receiver.recv().await {
                yield Ok::<Bytes, Infallible>(part);
            }
        };
        let _client_is_gone = head.send(Response::from_parts(parts, Body::from_stream(sent)));
        let (text, sender) = send_on(body, sender).await;
        match self.progress.is_final(&self.gateway, &self.caller, status).await {
            true => self.guard.keep(written(status, &headers, text.as_deref())).await,
            false => self.guard.forget().await,
        }
        drop(sender);
    }
}

/// Reads a body to its end, and sends it on until its client is gone. The text, unless it is too long.
async fn send_on(mut body: Body, sender: mpsc::Sender<Bytes>) -> (Option<Vec<u8>>, Option<mpsc::Sender<Bytes>>) {
    let (mut text, mut sender) = (Some(Vec::new()), Some(sender));
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(part) = frame.into_data() else { continue };
        text = text.filter(|text| text.len() + part.len() <= MAX_ANSWER_BYTES);
        if let Some(text) = &mut text {
            text.extend_from_slice(&part);
        }
        if let Some(client) = &sender
            && !matches!(timeout(CLIENT_WAIT, client.send(part)).await, Ok(Ok(())))
        {
            sender = None;
        }
    }
    (text, sender)
}

/// An answer as it is kept: without its body if that is too large.
fn written(status: StatusCode, headers: &HeaderMap, body: Option<&[u8]>) -> Value {
    let header = |name: &HeaderName| Some((name.as_str().to_owned(), headers.get(name)?.to_str().ok()?.into()));
    let headers: serde_json::Map<_, Value> = KEPT_HEADERS.iter().filter_map(header).collect();
    json!({"status": status.as_u16(), "headers": headers, "body": body.map(String::from_utf8_lossy)})
}

/// Errors: `idempotency_conflict`: the body is not kept.
fn replayed(answer: &Value) -> Result<Response, CallError> {
    let Some(body) = answer["body"].as_str() else {
        let message = "this turn has run, but its answer is too large to be kept; read the conversation for it";
        return Err(CallError::new(ErrorCode::IdempotencyConflict, message));
    };
    let mut response = Response::new(Body::from(body.to_owned()));
    let status = answer["status"].as_u64().and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    *response.status_mut() = status.ok_or_else(|| CallError::internal("a kept answer has no status"))?;
    for name in KEPT_HEADERS {
        if let Some(value) = answer["headers"][name.as_str()].as_str().and_then(|value| value.parse().ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_sent_again_as_it_was() {
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (RUN_ID, HeaderValue::from_static("r")),
            (HeaderName::from_static("x-other"), HeaderValue::from_static("o")),
        ]);
        let answer = written(StatusCode::ACCEPTED, &headers, Some("data: 関所\n\n".as_bytes()));
        let response = replayed(&answer).unwrap();
        assert_eq!((response.status(), response.headers().len()), (StatusCode::ACCEPTED, 3));
        assert_eq!(response.headers()[RUN_ID], "r");
        assert_eq!(response.headers()[REPLAYED], "true");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "data: 関所\n\n".as_bytes());
        let too_large = replayed(&written(StatusCode::OK, &headers, None)).unwrap_err();
        assert_eq!(too_large.code(), ErrorCode::IdempotencyConflict);
    }

    #[tokio::test]
    async fn an_answer_is_read_to_its_end_without_its_client() {
        let (sender, mut receiver) = mpsc::channel(1);
        let parts = ["a", "b", "c"].map(|part| Ok::<_, Infallible>(Bytes::from_static(part.as_bytes())));
        let body = Body::from_stream(futures_util::stream::iter(parts));
        let reading = tokio::spawn(send_on(body, sender));
        assert_eq!(receiver.recv().await.unwrap(), "a");
        drop(receiver);
        let (text, client) = reading.await.unwrap();
        assert!(text.as_deref() == Some(b"abc") && client.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_holds_no_run() {
        let (sender, _stalled) = mpsc::channel(1);
        let part = || Ok::<_, Infallible>(Bytes::from_static(b"x"));
        let body = Body::from_stream(futures_util::stream::iter([part(), part(), part()]));
        let (text, client) = send_on(body, sender).await;
        assert!(text.as_deref() == Some(b"xxx") && client.is_none());
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_sent_and_not_kept() {
        let (sender, mut receiver) = mpsc::channel(8);
        let part = || Ok::<_, Infallible>(Bytes::from(vec![b'x'; MAX_ANSWER_BYTES / 2 + 1]));
        let body = Body::from_stream(futures_util::stream::iter([part(), part()]));
        let (text, client) = send_on(body, sender).await;
        assert!(text.is_none() && client.is_some());
        assert!(receiver.recv().await.is_some() && receiver.recv().await.is_some());
    }

    #[tokio::test]
    async fn a_turn_that_failed_before_its_first_call_may_run_again() {
        let failed = || Event::Error(sekisho_agent::RunError::from(&CallError::new(ErrorCode::UpstreamError, "m")));
        let call = || Event::ToolInput { id: "1".into(), tool_name: "add".into(), arguments: Default::default() };
        let said = || Event::Content { text: "a".into() };
        let folder = tempfile::tempdir().unwrap();
        let config = sekisho_config::Config { state_directory: Some(folder.path().into()), ..Default::default() };
        let gateway = Gateway::start(config).await.unwrap();
        for (events, expected) in
            [(vec![said()], true), (vec![said(), failed()], false), (vec![call(), failed()], true)]
        {
            let progress = Progress::default();
            let _events: Vec<_> = progress.watch(futures_util::stream::iter(events)).collect().await;
            assert_eq!(progress.is_final(&gateway, &Caller::anonymous(), StatusCode::OK).await, expected);
        }
        let progress = Progress::default();
        assert!(!progress.is_final(&gateway, &Caller::anonymous(), StatusCode::BAD_GATEWAY).await);
        progress.is_run(&"none".into());
        assert!(!progress.is_final(&gateway, &Caller::anonymous(), StatusCode::OK).await, "no run began");
    }
}
