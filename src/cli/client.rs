//! Asking a running gateway over HTTP.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use tokio::runtime::Runtime;
use url::Url;

use super::{Exit, present};
use crate::agent::toolbox::OverHttp;
use crate::call::Deadline;
use crate::config::OutboundConfig;
use crate::outbound::{Outbound, OutboundRequest, Trust};

/// The longest a call may take; the gateway's own limits are shorter.
const WITHIN: Duration = Duration::from_secs(600);

/// The largest answer read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The gateway at `--server`.
pub(super) struct Remote {
    server: Url,
    headers: HeaderMap,
    outbound: Outbound,
    runtime: Runtime,
}

/// Why the gateway's answer is not there.
pub(super) enum Unanswered {
    Unreachable(String),
    /// The gateway's own refusal.
    Refused(String),
}

impl Unanswered {
    pub(super) fn report(self) -> Exit {
        match self {
            Self::Unreachable(problem) => {
                present::problem(&problem);
                Exit::Unreachable
            }
            Self::Refused(problem) => {
                present::problem(&problem);
                Exit::Refused
            }
        }
    }
}

/// The gateway's tools, for an agent of this process.
///
/// # Errors
/// A key that cannot be sent.
pub(super) fn toolbox(server: &Url) -> Result<OverHttp, Unanswered> {
    Ok(OverHttp::new(server.clone(), headers(server)?, outbound(server)?))
}

fn headers(server: &Url) -> Result<HeaderMap, Unanswered> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(key) = std::env::var("SEKISHO_API_KEY") {
        let mut value = HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| unusable(server, "SEKISHO_API_KEY holds characters that no key has"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn outbound(server: &Url) -> Result<Outbound, Unanswered> {
    Outbound::new(&OutboundConfig::default()).map_err(|problem| unusable(server, &problem.to_string()))
}

fn unusable(server: &Url, problem: &str) -> Unanswered {
    Unanswered::Unreachable(format!("{server} cannot be asked: {problem}"))
}

impl Remote {
    pub(super) fn new(server: &Url) -> Result<Self, Unanswered> {
        Ok(Self {
            server: server.clone(),
            headers: headers(server)?,
            outbound: outbound(server)?,
            runtime: Runtime::new().map_err(|problem| unusable(server, &problem.to_string()))?,
        })
    }

    /// # Errors
    /// The server is out of reach, or answers with anything but 2xx.
    pub(super) fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Unanswered> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let (success, answer) = self.send(Method::GET, url, None)?;
        if success { Ok(answer) } else { Err(Unanswered::Refused(sentence(&answer))) }
    }

    /// A call's reply, whatever its status: a refusal is a reply too.
    ///
    /// # Errors
    /// The server is out of reach.
    pub(super) fn post(&self, path: &[&str], body: &Value) -> Result<Value, Unanswered> {
        Ok(self.send(Method::POST, self.url(path)?, Some(body))?.1)
    }

    fn url(&self, path: &[&str]) -> Result<Url, Unanswered> {
        let mut url = self.server.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(path);
            }
            Err(()) => return Err(self.unreachable("write it as http://HOST:PORT")),
        }
        Ok(url)
    }

    fn send(&self, method: Method, url: Url, body: Option<&Value>) -> Result<(bool, Value), Unanswered> {
        let request = OutboundRequest {
            method,
            headers: self.headers.clone(),
            body: body.map(|body| body.to_string().into()),
            max_response_bytes: MAX_ANSWER_BYTES,
            trust: Trust::Operator,
            max_redirects: 0,
            ..OutboundRequest::get(url, Deadline::after(WITHIN))
        };
        let answer =
            self.runtime.block_on(self.outbound.send(request)).map_err(|error| self.unreachable(error.message()))?;
        let body =
            serde_json::from_slice(&answer.body).map_err(|_| self.unreachable("what answers there is no sekisho"))?;
        Ok((answer.status.is_success(), body))
    }

    fn unreachable(&self, problem: &str) -> Unanswered {
        unusable(&self.server, problem)
    }
}

/// Why a reply is a refusal.
pub(super) fn sentence(reply: &Value) -> String {
    reply["error"].as_str().unwrap_or("the server refuses, without saying why").to_owned()
}
