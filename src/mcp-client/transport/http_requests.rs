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
use super::message::{Failure, Message, too_large};
use super::request::Outgoing;
use super::request_headers;
use sekisho_core::error::ErrorCode;
use sekisho_outbound::OutboundStream;

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
        let answer = http.post(heading_of(&heading, request), body.clone(), request.on_behalf.clone()).await;
        let mut answer = answer.map_err(Failure::Call)?;
        if heading.has_session && matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) {
            if answer.status == StatusCode::BAD_REQUEST {
                let refusal = Box::pin(http.refusal(answer)).await;
                if !refusal.is_about_session() {
                    return Err(refusal.into());
                }
            }
            // The server no longer knows the session, and has not processed the request. Boxed, because it is rare.
            let heading = Box::pin(self.replace_session(http, &heading)).await?;
            let again = Box::pin(http.post(heading_of(&heading, request), body, request.on_behalf.clone()));
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
            return Err(Box::pin(http.refusal(answer)).await.into());
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
        let body = answer.whole().await.map_err(|error| match error.code() {
            ErrorCode::OutputTooLarge => Failure::Call(too_large(http.access.max_message_bytes)),
            _ => Failure::Call(error),
        })?;
        match is_json.then(|| Message::of(&body)).flatten() {
            Some(Message::Answer(answer)) if answer.is_to(request.id) => answer.outcome,
            _ => Err(Failure::Invalid),
        }
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
        self.finish_cancellations().await;
        http.end_session().await;
        self.ended.cancel();
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::JsonRpc(error) => Self::Refused(error),
            Refusal::Status(error) => Self::Call(error),
        }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arc_swap::ArcSwapOption;
    use axum::Router;
    use axum::response::IntoResponse;
    use axum::routing::post;
    use futures_util::future::BoxFuture;
    use http::header;
    use parking_lot::Mutex;
    use rmcp::model::{ProtocolVersion, ServerCapabilities, ServerNotification, ServerPeerInfo, ServerRequest};
    use serde_json::{Map, json};
    use tokio_util::sync::CancellationToken;
    use url::Url;

    use super::*;
    use crate::transport::authorized_http::{AuthorizedHttp, Tokens};
    use crate::transport::http::SESSION;
    use crate::transport::in_flight::InFlight;
    use crate::transport::inbound::{Inbound, MAX_PENDING_ANSWERS};
    use sekisho_config::OutboundConfig;
    use sekisho_core::peer::ClientPeer;
    use sekisho_core::until::until;
    use sekisho_outbound::{DomainList, Outbound, Trust, test_server};

    /// Handles nothing.
    #[derive(Debug)]
    struct NoInbound;

    impl Inbound for NoInbound {
        fn notification(&self, _notification: ServerNotification, _peer: Option<&dyn ClientPeer>) {}

        fn answer<'a>(
            &'a self,
            _request: &'a ServerRequest,
            _peer: Option<Arc<dyn ClientPeer>>,
        ) -> BoxFuture<'a, Result<Value, ErrorData>> {
            Box::pin(async { Err(ErrorData::internal_error("no answer", None)) })
        }

        fn client(&self, _in_flight: &InFlight) -> Option<Arc<dyn ClientPeer>> {
            None
        }
    }

    /// Answers no request before it may.
    #[derive(Debug, Default)]
    struct SlowInbound {
        open: AtomicUsize,
        most: AtomicUsize,
        may_answer: CancellationToken,
    }

    impl Inbound for SlowInbound {
        fn notification(&self, _notification: ServerNotification, _peer: Option<&dyn ClientPeer>) {}

        fn answer<'a>(
            &'a self,
            _request: &'a ServerRequest,
            _peer: Option<Arc<dyn ClientPeer>>,
        ) -> BoxFuture<'a, Result<Value, ErrorData>> {
            Box::pin(async {
                self.most.fetch_max(1 + self.open.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                self.may_answer.cancelled().await;
                self.open.fetch_sub(1, Ordering::Relaxed);
                Ok(json!({"roots": []}))
            })
        }

        fn client(&self, _in_flight: &InFlight) -> Option<Arc<dyn ClientPeer>> {
            None
        }
    }

    async fn connection_to(router: Router) -> Arc<Connection> {
        connection_with(router, Arc::new(NoInbound)).await
    }

    /// A connection whose handshake has ended.
    async fn connection_with(router: Router, inbound: Arc<dyn Inbound>) -> Arc<Connection> {
        let address = test_server::serve(router).await;
        let access = AuthorizedHttp {
            outbound: Outbound::new(&OutboundConfig::default()).unwrap(),
            allowed: Arc::new(DomainList::any().clone()),
            url: Url::parse(&format!("http://{address}/mcp")).unwrap(),
            headers: HeaderMap::new(),
            tokens: Tokens::None,
            last_token: Arc::<ArcSwapOption<_>>::default(),
            trust: Trust::Operator,
            max_message_bytes: 1_000,
        };
        let connection = Connection::http(Arc::new(access), inbound);
        let revision = ProtocolVersion::LATEST_WITH_INITIALIZE;
        let Channel::Http(http) = &connection.channel else { panic!("it is over HTTP") };
        http.agree(Heading::of(Some("session".parse().unwrap()), &revision));
        connection.agree(ServerPeerInfo::new(revision, ServerCapabilities::default()), Map::new());
        connection
    }

    #[tokio::test]
    async fn a_session_is_used_once_the_server_has_answered_for_the_standing_stream() {
        let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
        let (gets, posts) = (Arc::clone(&seen), Arc::clone(&seen));
        let listen = async move || {
            tokio::time::sleep(Duration::from_millis(50)).await;
            gets.lock().push("listening");
            StatusCode::METHOD_NOT_ALLOWED
        };
        let handle = async move || {
            posts.lock().push("called");
            StatusCode::BAD_REQUEST
        };
        let connection = connection_to(Router::new().route("/mcp", post(handle).get(listen))).await;
        connection.heard().await;
        assert!(connection.request(Outgoing::of("tools/call", &Map::new())).await.is_err());
        assert_eq!(*seen.lock(), ["listening", "called"]);
        connection.close.cancel();
    }

    #[tokio::test]
    async fn a_server_that_asks_without_end_is_read_no_faster_than_it_is_answered() {
        const ASKED: usize = 1_000;
        let answered = Arc::new(AtomicUsize::new(0));
        let answers = Arc::clone(&answered);
        let handle = async move |body: String| {
            let message: Value = serde_json::from_str(&body).unwrap();
            if message["method"] != "tools/call" {
                answers.fetch_add(1, Ordering::Relaxed);
                return StatusCode::ACCEPTED.into_response();
            }
            let asked = (0..ASKED).map(|n| json!({"jsonrpc": "2.0", "id": n, "method": "roots/list"}));
            let result = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"found": true}});
            let events: String = asked.chain([result]).map(|message| format!("data: {message}\n\n")).collect();
            ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
        };
        let inbound = Arc::new(SlowInbound::default());
        let connection = connection_with(Router::new().route("/mcp", post(handle)), inbound.clone()).await;
        let arguments = Map::new();
        let released = async {
            let open = async || inbound.open.load(Ordering::Relaxed) >= MAX_PENDING_ANSWERS;
            until("as many wait as may", open).await;
            // Whatever else of the stream can be read comes meanwhile.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            inbound.may_answer.cancel();
        };
        let (result, ()) = tokio::join!(connection.request(Outgoing::of("tools/call", &arguments)), released);
        assert_eq!(result.unwrap()["found"], true);
        assert_eq!(inbound.most.load(Ordering::Relaxed), MAX_PENDING_ANSWERS);
        assert!(answered.load(Ordering::Relaxed) >= ASKED - MAX_PENDING_ANSWERS, "the others were answered before");
        connection.close.cancel();
    }

    /// A server that knows one session, and refuses others with this answer.
    fn knowing_one_session(status: StatusCode, refusal: String) -> Router {
        let handle = async move |headers: HeaderMap, body: String| {
            let message: Value = serde_json::from_str(&body).unwrap();
            let result = match (message["method"].as_str(), headers.get(SESSION)) {
                (Some("initialize"), _) => json!({
                    "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "far", "version": "1"},
                }),
                (Some("tools/call"), Some(session)) if session == "new" => json!({"found": true}),
                (Some("tools/call"), _) => return (status, refusal).into_response(),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let answer = axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
            ([(SESSION, "new")], answer).into_response()
        };
        Router::new().route("/mcp", post(handle))
    }

    #[tokio::test]
    async fn a_session_that_the_server_does_not_know_is_replaced() {
        let error = |message: &str| {
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": message}}).to_string()
        };
        for (status, refusal, is_replaced) in [
            (StatusCode::NOT_FOUND, String::new(), true),
            (StatusCode::BAD_REQUEST, error("Bad Request: No valid session ID provided"), true),
            (StatusCode::BAD_REQUEST, "Invalid or missing session ID".to_owned(), true),
            (StatusCode::BAD_REQUEST, error("Bad Request: no such table"), false),
            (StatusCode::BAD_REQUEST, String::new(), false),
        ] {
            let connection = connection_to(knowing_one_session(status, refusal.clone())).await;
            let answered = connection.request(Outgoing::of("tools/call", &Map::new())).await;
            assert_eq!(answered.is_ok(), is_replaced, "{status} {refusal}: {answered:?}");
            connection.close.cancel();
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_names_the_setting() {
        let large = async || axum::Json(json!({"jsonrpc": "2.0", "id": 0, "result": "x".repeat(2_000)}));
        let connection = connection_to(Router::new().route("/mcp", post(large))).await;
        let Err(Failure::Call(error)) = connection.request(Outgoing::of("tools/call", &Map::new())).await else {
            panic!("it is too large");
        };
        assert_eq!(error.code(), ErrorCode::OutputTooLarge);
        assert!(error.message().contains("more than 1000 bytes (max_message_bytes)"), "{error}");
        connection.close.cancel();
    }

    #[tokio::test]
    async fn a_redirect_is_followed_on_the_same_server_only() {
        let to = |status: StatusCode, location: &'static str| async move { (status, [(header::LOCATION, location)]) };
        let answer = async |body: String| {
            let id = serde_json::from_str::<Value>(&body).unwrap()["id"].clone();
            axum::Json(serde_json::json!({"jsonrpc": "2.0", "id": id, "result": {"found": true}}))
        };
        for (status, location, expected) in [
            (StatusCode::TEMPORARY_REDIRECT, "/mcp/", Ok(())),
            (StatusCode::PERMANENT_REDIRECT, "/mcp/", Ok(())),
            (StatusCode::FOUND, "/mcp/", Err("does not keep the method")),
            (StatusCode::TEMPORARY_REDIRECT, "/mcp", Err("more than 3 times")),
            (
                StatusCode::TEMPORARY_REDIRECT,
                "http://other.example/mcp?token=secret",
                Err("redirects to http://other.example/mcp (307), which is not followed"),
            ),
        ] {
            let router = Router::new().route("/mcp", post(move || to(status, location))).route("/mcp/", post(answer));
            let connection = connection_to(router).await;
            let answered = connection.request(Outgoing::of("tools/call", &Map::new())).await;
            match (answered, expected) {
                (Ok(result), Ok(())) => assert_eq!(result["found"], true),
                (Err(Failure::Call(error)), Err(expected)) => {
                    assert!(error.message().contains(expected) && !error.message().contains("secret"), "{error}");
                }
                (answered, expected) => panic!("{status} {location}: {answered:?}, not {expected:?}"),
            }
            connection.close.cancel();
        }
    }

    #[tokio::test]
    async fn a_server_is_notified_of_a_cancellation_before_its_session_ends() {
        let received: Arc<Mutex<Vec<&str>>> = Arc::default();
        let (posts, deletes) = (Arc::clone(&received), Arc::clone(&received));
        let handle = async move |body: String| {
            if body.contains("tools/call") {
                std::future::pending::<()>().await;
            }
            // Longer than the other request needs, if it does not wait.
            tokio::time::sleep(Duration::from_millis(100)).await;
            posts.lock().push("cancelled");
            StatusCode::ACCEPTED
        };
        let end = async move || deletes.lock().push("ended");
        let router = Router::new().route("/mcp", post(handle).delete(end));
        let connection = connection_to(router).await;
        let params = Map::new();
        let call = connection.request(Outgoing::of("tools/call", &params));
        assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err(), "the server does not answer");
        connection.close.cancel();
        connection.ended.cancelled().await;
        assert_eq!(*received.lock(), ["cancelled", "ended"]);
    }
}
