//! Requests to a running gateway over HTTP.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::runtime::Runtime;
use url::Url;

use super::{Exit, present};
use crate::agent::toolbox::OverHttp;
use crate::config::OutboundConfig;
use crate::infra::outbound::Outbound;
use crate::infra::remote_gateway::{RemoteGateway, RemoteReply, RemoteRequest};

/// The gateway at `--server`.
pub(super) struct Remote {
    gateway: RemoteGateway,
    runtime: Runtime,
}

/// Why there is no successful reply.
pub(super) enum Unanswered {
    Unreachable(String),
    /// The gateway refused the request.
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
/// The key is not a valid header value.
pub(super) fn toolbox(server: &Url) -> Result<OverHttp, Unanswered> {
    Ok(OverHttp::new(gateway(server)?))
}

fn gateway(server: &Url) -> Result<RemoteGateway, Unanswered> {
    let (outbound, headers) = connection(server)?;
    Ok(RemoteGateway::new(server.clone(), headers, outbound))
}

/// The client of the gateway, with the headers of every request.
///
/// # Errors
/// The key is not a valid header value.
pub(super) fn connection(server: &Url) -> Result<(Outbound, HeaderMap), Unanswered> {
    let outbound =
        Outbound::new(&OutboundConfig::default()).map_err(|problem| unusable(server, &problem.to_string()))?;
    Ok((outbound, headers(server)?))
}

fn headers(server: &Url) -> Result<HeaderMap, Unanswered> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = std::env::var("SEKISHO_API_KEY").ok().filter(|key| !key.is_empty()) {
        let mut value = HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| unusable(server, "SEKISHO_API_KEY contains characters that a header cannot carry"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn unusable(server: &Url, problem: &str) -> Unanswered {
    Unanswered::Unreachable(format!("{server} cannot be reached: {problem}"))
}

impl Remote {
    pub(super) fn new(server: &Url) -> Result<Self, Unanswered> {
        let runtime = Runtime::new().map_err(|problem| unusable(server, &problem.to_string()))?;
        Ok(Self { gateway: gateway(server)?, runtime })
    }

    /// # Errors
    /// The server cannot be reached, or its status is not 2xx.
    pub(super) fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Unanswered> {
        let answer = self.ask(RemoteRequest { query, ..RemoteRequest::get(path) })?;
        if answer.success { Ok(answer.body) } else { Err(Unanswered::Refused(sentence(&answer.body))) }
    }

    /// The body, with any status.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(super) fn get_any(&self, path: &[&str]) -> Result<Value, Unanswered> {
        Ok(self.ask(RemoteRequest::get(path))?.body)
    }

    /// A call's reply, with any status: a refusal is a reply too.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(super) fn post(&self, path: &[&str], body: &Value) -> Result<Value, Unanswered> {
        Ok(self.ask(RemoteRequest::post(path, body))?.body)
    }

    fn ask(&self, question: RemoteRequest<'_>) -> Result<RemoteReply, Unanswered> {
        let answer = self.runtime.block_on(self.gateway.ask(question));
        answer.map_err(|problem| unusable(self.gateway.server(), &problem))
    }
}

/// The error message of a refusal.
pub(super) fn sentence(reply: &Value) -> String {
    reply["error"].as_str().unwrap_or("the server refused the request without an error message").to_owned()
}
