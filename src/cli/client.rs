//! Requests to a running gateway over HTTP.

use std::path::PathBuf;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use tokio::runtime::Runtime;
use url::Url;

use super::call::in_commands;
use super::{Exit, present};
use sekisho_api::NamedCaller;
use sekisho_config::OutboundConfig;
use sekisho_outbound::Outbound;
use sekisho_outbound::remote_gateway::{RemoteGateway, RemoteReply, RemoteRequest};

/// A running gateway, and the headers of every request to it.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) address: Url,
    /// Requests go to this Unix socket.
    socket: Option<PathBuf>,
    headers: HeaderMap,
}

/// Requests to a gateway, from code that is not asynchronous.
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

impl Endpoint {
    /// The gateway at `--server`, with the key of `SEKISHO_API_KEY`.
    /// Errors: the key is not a valid header value.
    pub(super) fn at(server: &Url) -> Result<Self, Unanswered> {
        let mut headers = HeaderMap::new();
        if let Some(key) = std::env::var("SEKISHO_API_KEY").ok().filter(|key| !key.is_empty()) {
            let mut value = HeaderValue::try_from(format!("Bearer {key}"))
                .map_err(|_| unusable(server, "SEKISHO_API_KEY contains characters that a header cannot carry"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self { address: server.clone(), socket: None, headers })
    }

    /// The gateway of this machine at its Unix socket, for requests of this caller.
    pub(super) fn at_socket(path: PathBuf, caller: &NamedCaller) -> Self {
        let headers = caller.header().into_iter().collect();
        Self { address: local_address(), socket: Some(path), headers }
    }

    /// The client, with the headers of every request.
    /// Errors: there is no TLS.
    pub(super) fn connection(&self) -> Result<(Outbound, HeaderMap), Unanswered> {
        let outbound = Outbound::new(&OutboundConfig::default());
        let outbound = outbound.map_err(|problem| unusable(&self.address, &problem.to_string()))?;
        let outbound = match &self.socket {
            Some(path) => outbound.to_socket(path.clone()),
            None => outbound,
        };
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok((outbound, headers))
    }

    pub(super) fn gateway(&self) -> Result<RemoteGateway, Unanswered> {
        let (outbound, headers) = self.connection()?;
        Ok(RemoteGateway::new(self.address.clone(), headers, outbound))
    }
}

/// The address of requests to a Unix socket: only its path matters. Not `localhost`, which a minimal system cannot resolve.
#[expect(clippy::expect_used, reason = "it is a constant")]
fn local_address() -> Url {
    Url::parse("http://127.0.0.1/").expect("an address")
}

fn unusable(server: &Url, problem: &str) -> Unanswered {
    Unanswered::Unreachable(format!("{server} cannot be reached: {problem}"))
}

impl Remote {
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, Unanswered> {
        let runtime = Runtime::new().map_err(|problem| unusable(&endpoint.address, &problem.to_string()))?;
        Ok(Self { gateway: endpoint.gateway()?, runtime })
    }

    /// The gateway at `--server`.
    pub(super) fn at(server: &Url) -> Result<Self, Unanswered> {
        Self::new(&Endpoint::at(server)?)
    }

    /// Errors: the server cannot be reached, or its status is not 2xx.
    pub(super) fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Unanswered> {
        let answer = self.ask(RemoteRequest { query, ..RemoteRequest::get(path) })?;
        if answer.success { Ok(answer.body) } else { Err(Unanswered::Refused(sentence(&answer.body))) }
    }

    /// All items of a list.
    /// Errors: as [`get`](Self::get); the gateway is of an earlier version, whose lists have another form.
    pub(super) fn get_all(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Vec<Value>, Unanswered> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let mut query = [query, &[("limit", "500")]].concat();
            query.extend(after.as_deref().map(|after| ("after", after)));
            let (page, next) = read_page(self.get(path, &query)?, after.as_deref())?;
            items.extend(page);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// The body, with any status.
    /// Errors: the server cannot be reached.
    pub(super) fn get_any(&self, path: &[&str]) -> Result<Value, Unanswered> {
        Ok(self.ask(RemoteRequest::get(path))?.body)
    }

    /// A call's reply, with any status: a refusal is a reply too.
    /// Errors: the server cannot be reached.
    pub(super) fn post(&self, path: &[&str], body: &Value) -> Result<Value, Unanswered> {
        Ok(self.ask(RemoteRequest::post(path, body))?.body)
    }

    /// Errors: the server cannot be reached, or its status is not 2xx.
    pub(super) fn send(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Value, Unanswered> {
        let answer = self.ask(RemoteRequest { method, body, ..RemoteRequest::get(path) })?;
        if answer.success { Ok(answer.body) } else { Err(Unanswered::Refused(sentence(&answer.body))) }
    }

    /// Errors: as [`send`](Self::send).
    pub(super) fn delete(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Unanswered> {
        let answer = self.ask(RemoteRequest { method: Method::DELETE, query, ..RemoteRequest::get(path) })?;
        if answer.success { Ok(answer.body) } else { Err(Unanswered::Refused(sentence(&answer.body))) }
    }

    fn ask(&self, question: RemoteRequest<'_>) -> Result<RemoteReply, Unanswered> {
        let answer = self.runtime.block_on(self.gateway.ask(question));
        answer.map_err(|problem| {
            let next = "check the address, and that `sekisho serve` runs there";
            unusable(self.gateway.server(), &format!("{problem}; {next}"))
        })
    }
}

/// The error message of a refusal.
pub(super) fn sentence(reply: &Value) -> String {
    in_commands(reply["error"].as_str().unwrap_or("the server refused the request without an error message"))
}

/// The items of a page, and the `after` of the next one. `after`: of this page.
fn read_page(mut page: Value, after: Option<&str>) -> Result<(Vec<Value>, Option<String>), Unanswered> {
    let next = page["next"].as_str().map(str::to_owned);
    match page["items"].take() {
        Value::Array(items) if next.is_none() || next.as_deref() != after => Ok((items, next)),
        // An earlier version has other names for `items`, or ignores `after`.
        _ => {
            let problem =
                "the gateway is of an earlier version, whose lists have another form; use the sekisho of its version";
            Err(Unanswered::Refused(problem.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_an_earlier_gateway_is_refused_instead_of_shown_as_empty_or_read_without_end() {
        let is_read = |page, after| read_page(page, after).is_ok();
        assert!(is_read(json!({"items": [1], "next": "a"}), None));
        assert!(is_read(json!({"items": [], "next": null}), Some("a")));
        assert!(!is_read(json!({"sessions": [1]}), None));
        assert!(!is_read(json!({"items": [1], "next": "a"}), Some("a")));
        let (items, next) = read_page(json!({"items": [1, 2], "next": "b"}), Some("a")).ok().unwrap();
        assert_eq!((items, next.as_deref()), (vec![json!(1), json!(2)], Some("b")));
    }
}
