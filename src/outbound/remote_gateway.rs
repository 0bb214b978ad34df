//! A client of another sekisho over HTTP: for commands with `--server`, and for agents that use its tools.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;
use url::Url;

use crate::{Outbound, OutboundRequest, Trust};
use sekisho_core::call::Deadline;
use sekisho_observe::telemetry;

/// Timeout of a call; the gateway's own limits are shorter.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Most bytes of a response.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// One gateway, and the headers of every request to it.
#[derive(Clone)]
pub struct RemoteGateway {
    server: Url,
    /// Including the key.
    headers: HeaderMap,
    outbound: Outbound,
}

/// A request to it.
#[derive(Debug)]
pub struct RemoteRequest<'a> {
    pub method: Method,
    pub path: &'a [&'a str],
    pub query: &'a [(&'a str, &'a str)],
    pub body: Option<&'a Value>,
    pub within: Duration,
}

impl<'a> RemoteRequest<'a> {
    pub fn get(path: &'a [&'a str]) -> Self {
        Self { method: Method::GET, path, query: &[], body: None, within: CALL_TIMEOUT }
    }

    pub fn post(path: &'a [&'a str], body: &'a Value) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(path) }
    }
}

/// Its response, which may be a refusal.
#[derive(Debug)]
pub struct RemoteReply {
    /// Whether the status is 2xx.
    pub success: bool,
    pub body: Value,
}

impl RemoteGateway {
    pub fn new(server: Url, headers: HeaderMap, outbound: Outbound) -> Self {
        Self { server, headers, outbound }
    }

    /// The same gateway with an additional header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub fn server(&self) -> &Url {
        &self.server
    }

    /// Errors: why there is no response, as the end of a sentence.
    pub async fn ask(&self, question: RemoteRequest<'_>) -> Result<RemoteReply, String> {
        let request = OutboundRequest {
            method: question.method,
            headers: self.headers.clone(),
            body: question.body.map(|body| body.to_string().into()),
            max_response_bytes: MAX_ANSWER_BYTES,
            trust: Trust::Operator,
            trace: telemetry::current(),
            ..OutboundRequest::get(self.url(question.path, question.query)?, Deadline::after(question.within))
        };
        let answer = self.outbound.send(request).await.map_err(|error| error.message().to_owned())?;
        let body = match &answer.body[..] {
            // The answer to a deletion has no body.
            [] if answer.status.is_success() => Value::Null,
            body => serde_json::from_slice(body).map_err(|_| "the server is not sekisho".to_owned())?,
        };
        Ok(RemoteReply { success: answer.status.is_success(), body })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, String> {
        let mut url = self.server.clone();
        url.path_segments_mut().map_err(|()| "write it as http://HOST:PORT".to_owned())?.pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

impl fmt::Debug for RemoteGateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RemoteGateway").field("server", &self.server.as_str()).finish_non_exhaustive()
    }
}
