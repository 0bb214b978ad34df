//! Probes which revision of the protocol a process supports. No answer counts as an answer, too.
//!
//! Servers of revisions before 2026-07-28 may ignore `server/discover`. rmcp would wait ten seconds for an answer. This
//! probe returns a refusal earlier, and drops an answer that arrives later, which rmcp would treat as an error.

use std::future;
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use tokio::time::Instant;

/// The question, on its way through one connection.
#[derive(Debug)]
pub(crate) struct DiscoverProbe {
    /// How long a program may take to answer; `None` where it is known to do so.
    patience: Option<Duration>,
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    /// `None` once it was given up.
    until: Option<Instant>,
}

impl DiscoverProbe {
    pub(crate) fn new(patience: Option<Duration>) -> Self {
        Self { patience, asked: None }
    }

    /// Notes the question when it is sent.
    pub(crate) fn sends(&mut self, message: &ClientJsonRpcMessage) {
        if let (Some(patience), ClientJsonRpcMessage::Request(request)) = (self.patience, message)
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.asked = Some(Asked { id: request.id.clone(), until: Some(Instant::now() + patience) });
        }
    }

    /// Whether a message is to be passed on: not an answer that comes too late.
    pub(crate) fn passes(&mut self, message: &ServerJsonRpcMessage) -> bool {
        let answered = match message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => return true,
        };
        match self.asked.take_if(|asked| answered == Some(&asked.id)) {
            Some(asked) => asked.until.is_some(),
            None => true,
        }
    }

    /// Returns when the process has not answered in time, if ever.
    pub(crate) fn silence(&self) -> impl Future<Output = ()> + use<> {
        let until = self.asked.as_ref().and_then(|asked| asked.until);
        async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => future::pending().await,
            }
        }
    }

    /// What a program could have said that was silent.
    pub(crate) fn give_up(&mut self) -> Option<ServerJsonRpcMessage> {
        let asked = self.asked.as_mut()?;
        asked.until.take()?;
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer to server/discover", None);
        Some(ServerJsonRpcMessage::error(error, Some(asked.id.clone())))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{DiscoverRequest, DiscoverRequestParams};
    use serde_json::{Value, json};

    use super::*;

    fn server(message: Value) -> ServerJsonRpcMessage {
        serde_json::from_value(message).unwrap()
    }

    fn discover(id: i64) -> ClientJsonRpcMessage {
        let request = DiscoverRequest::new(DiscoverRequestParams {});
        ClientJsonRpcMessage::request(ClientRequest::DiscoverRequest(request), RequestId::Number(id))
    }

    const PATIENCE: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_refusal_and_a_late_answer_is_passed_over_once() {
        let mut probe = DiscoverProbe::new(Some(PATIENCE));
        let began = Instant::now();
        probe.sends(&discover(0));
        probe.silence().await;
        assert_eq!(began.elapsed(), PATIENCE);
        let refusal = serde_json::to_value(probe.give_up().unwrap()).unwrap();
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(0), &json!(-32601)));
        assert!(probe.give_up().is_none());
        let late = server(json!({"jsonrpc": "2.0", "id": 0, "error": {"code": -32601, "message": "what?"}}));
        let next = server(json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        assert!(probe.passes(&next));
        assert!(!probe.passes(&late));
        assert!(probe.passes(&late), "another with its number is not ours to judge");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_ends_the_wait() {
        let mut probe = DiscoverProbe::new(Some(PATIENCE));
        probe.sends(&discover(0));
        assert!(probe.passes(&server(json!({"jsonrpc": "2.0", "id": 0, "result": {}}))));
        assert!(tokio::time::timeout(PATIENCE * 9, probe.silence()).await.is_err());
        // A program that is known to answer is waited for.
        let mut probe = DiscoverProbe::new(None);
        probe.sends(&discover(0));
        assert!(tokio::time::timeout(PATIENCE * 9, probe.silence()).await.is_err());
    }
}
