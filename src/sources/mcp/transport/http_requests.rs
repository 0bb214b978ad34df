//! Requests over streamable HTTP, in the task of their caller; and the task of a connection, which reads the standing
//! stream of its session and ends the session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use rmcp::model::ErrorData;
use serde_json::Value;

use super::connection::{Answering, Channel, Connection};
use super::event_source::{EventSource, StandingSource};
use super::handshake::DISCOVER;
use super::http::{EVENT_STREAM, Heading, HttpChannel, JSON, Refusal, is, is_forbidden};
use super::message::{Answer, Failure};
use super::request::Outgoing;
use super::request_headers;
use crate::infra::outbound::OutboundStream;

/// Timeout to begin a session in place of one that the server no longer knows.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);

impl Connection {
    pub(super) async fn exchange_over_http(
        &self,
        http: &HttpChannel,
        id: i64,
        body: Bytes,
        request: &Outgoing<'_>,
    ) -> Result<Value, Failure> {
        let heading = http.heading();
        let answer = http.post(heading_of(&heading, request), body.clone(), Some(request.sent.clone())).await;
        let mut answer = answer.map_err(Failure::Call)?;
        if answer.status == StatusCode::NOT_FOUND && heading.has_session {
            // The server no longer knows the session, and has not processed the request. Boxed, because it is rare.
            let heading = Box::pin(self.replace_session(http, &heading)).await?;
            let again = Box::pin(http.post(heading_of(&heading, request), body, Some(request.sent.clone())));
            answer = again.await.map_err(Failure::Call)?;
            if answer.status == StatusCode::NOT_FOUND && heading.has_session {
                return Err(Failure::Lost);
            }
        }
        if request.method == DISCOVER && answer.status.is_client_error() {
            return Err(Box::pin(refused_discovery(http, answer)).await);
        }
        self.read(http, answer, Answering { id, peer: request.peer }).await
    }

    /// The answer to a request, from the answer to its POST.
    pub(super) async fn read(
        &self,
        http: &HttpChannel,
        answer: OutboundStream,
        request: Answering<'_>,
    ) -> Result<Value, Failure> {
        // Boxed, because most answers are successful and are JSON.
        if !answer.status.is_success() {
            return Err(match Box::pin(http.refusal(answer)).await {
                Refusal::JsonRpc(error) => Failure::Refused(error),
                Refusal::Status(error) => Failure::Call(error),
            });
        }
        if is(&answer.headers, EVENT_STREAM) {
            let mut events = EventSource::answering(http, answer);
            let answer = Box::pin(self.serve(&mut events, Some(request))).await;
            if !matches!(answer, Err(Failure::Lost | Failure::Call(_))) {
                events.drain();
            }
            return answer;
        }
        let is_json = is(&answer.headers, JSON);
        let body = answer.whole().await.map_err(Failure::Call)?;
        let answer = is_json.then(|| Answer::of(&body)).flatten().filter(|answer| answer.is_to(request.id));
        answer.ok_or(Failure::Invalid)?.outcome.map_err(Failure::Refused)
    }

    /// Begins a new session, unless another request has done so meanwhile.
    async fn replace_session(&self, http: &HttpChannel, lost: &Arc<Heading>) -> Result<Arc<Heading>, Failure> {
        let _one_at_a_time = http.replacing.lock().await;
        if Arc::ptr_eq(&http.heading(), lost) {
            let begun = tokio::time::timeout(REPLACE_TIMEOUT, self.begin_session(http)).await;
            begun.map_err(|_| Failure::Lost)??;
        }
        Ok(http.heading())
    }

    /// Reads the standing streams until the connection is closed. Then it ends the session.
    pub(super) async fn keep_session(self: Arc<Self>) {
        let Channel::Http(http) = &self.channel else { return };
        let mut standing = StandingSource::new(http);
        tokio::select! {
            _ended = self.serve(&mut standing, None) => {}
            () = self.close.cancelled() => {}
        }
        http.end_session().await;
        self.ended.cancel();
    }
}

fn heading_of(heading: &Heading, request: &Outgoing<'_>) -> HeaderMap {
    let mut headers = heading.headers.clone();
    if heading.is_repetitive {
        request_headers::add(&mut headers, request.method, request.params, request.marked);
    }
    headers
}

/// Servers of older revisions refuse discovery in any way: that is their answer.
async fn refused_discovery(http: &HttpChannel, answer: OutboundStream) -> Failure {
    let status = answer.status;
    match http.refusal(answer).await {
        Refusal::JsonRpc(error) => Failure::Refused(error),
        Refusal::Status(error) if is_forbidden(status) => Failure::Call(error),
        Refusal::Status(_) => {
            Failure::Refused(ErrorData::invalid_request(format!("the server answered {status}"), None))
        }
    }
}
