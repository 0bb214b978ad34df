//! Errors between us and an upstream, and their messages: callers see only the host name (internal addresses and
//! query strings with keys are for the log), with the blame for the circuit breaker and the retries.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use url::Url;

use super::own::OwnAddressError;
use super::resolver::{RefusedAddress, Unresolved};
use sekisho_core::error::{Blame, CallError, ErrorCode};

#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error("only http and https addresses can be fetched, not {scheme}:")]
    Scheme { scheme: String },
    #[error("URLs with a user name or password are not fetched; remove them")]
    UserInfo,
    #[error("{host} is not on the list of hosts this tool may reach")]
    NotAllowed { host: String },
    #[error("{address} is not a public address; tools may not reach it unless {key} names it")]
    RefusedLiteral { address: IpAddr, key: Arc<str> },
    #[error("{host} is not at a public address; tools may not reach it unless {key} names it")]
    RefusedName { host: String, address: IpAddr, key: Arc<str> },
    #[error("port {port} is not 80 or 443; web_fetch may not reach it unless tools.web_fetch.allow_ports lists it")]
    RefusedPort { port: u16 },
    #[error(
        "{host} would be reached through `outbound.proxy`, which web_fetch may use only for hosts that `tools.web_fetch.allowed_domains` lists"
    )]
    ProxyWithoutList { host: String },
    #[error("{host} is this gateway itself, which its tools may not reach")]
    OwnAddress { host: String },
    #[error("more than {limit} redirects; fetch the final address itself")]
    TooManyRedirects { limit: usize },
    #[error("{host} redirects to an invalid URL")]
    BadRedirect { host: String },
    #[error("{host} redirects from https to http, which would expose the request's contents")]
    Downgrade { host: String },
    #[error("the response is longer than the {limit} bytes allowed; request less at a time")]
    TooLarge { limit: usize },
    #[error("{host} did not respond in time")]
    Deadline { host: String },
    #[error("no connection to {host}: {problem}")]
    NoConnection { host: String, problem: &'static str, cause: String },
    #[error("the connection to {host} closed before the response was complete")]
    BrokenOff { host: String, cause: String },
    #[error("the response of {host} cannot be decoded")]
    Garbled { host: String, cause: String },
    #[error("{host} answered {status} in the content coding {coding}, which was not asked for")]
    UnknownCoding { host: String, status: u16, coding: String },
    #[error("too many requests of this gateway wait for {what}; call again in 1 s")]
    Overloaded { what: &'static str },
    #[error("the request to {host} cannot be written as HTTP")]
    Unwritable { host: String, cause: String },
}

/// Seconds after which a caller that got no slot should retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Failure {
    /// Classifies the HTTP library's error for a request without a response.
    pub(super) fn of_connection(error: reqwest::Error, url: &Url, is_proxied: bool) -> Self {
        // Its text would have the query, which may hold a key.
        let error = error.without_url();
        if let Some(refused) = find::<RefusedAddress>(&error) {
            let RefusedAddress { host, address, key } = refused;
            return Self::RefusedName { host: host.clone(), address: *address, key: Arc::clone(key) };
        }
        if find::<OwnAddressError>(&error).is_some() {
            return Self::OwnAddress { host: host_of(url) };
        }
        let (host, cause) = (host_of(url), chain(&error));
        if error.is_builder() {
            Self::Unwritable { host, cause }
        } else if !error.is_connect() {
            Self::BrokenOff { host, cause }
        } else if is_proxied && let Some(problem) = proxy_problem(&cause, url) {
            Self::NoConnection { host, problem, cause }
        } else if find::<Unresolved>(&error).is_some() {
            Self::unresolved(&error, &host)
        } else if error.is_timeout() {
            Self::NoConnection { host, problem: "it did not accept one in time", cause }
        } else {
            let refused =
                find::<io::Error>(&error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            let problem = match (refused, url.scheme()) {
                (true, _) => "it was refused; nothing listens at that port",
                (false, "https") => "the TLS handshake failed",
                (false, _) => "it could not be made",
            };
            Self::NoConnection { host, problem, cause }
        }
    }

    pub(super) fn unresolved(error: &(dyn Error + 'static), host: &str) -> Self {
        Self::NoConnection { host: host.to_owned(), problem: "its name cannot be resolved", cause: chain(error) }
    }

    /// The same for a response whose body has begun.
    pub(super) fn of_body(error: &(dyn Error + 'static), url: &Url) -> Self {
        let (host, cause) = (host_of(url), chain(error));
        match find::<hyper::Error>(error) {
            Some(_) => Self::BrokenOff { host, cause },
            None => Self::Garbled { host, cause },
        }
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } => ErrorCode::OutputTooLarge,
            Self::Deadline { .. } => ErrorCode::Timeout,
            Self::Overloaded { .. } => ErrorCode::Overloaded,
            Self::NoConnection { .. }
            | Self::BrokenOff { .. }
            | Self::Garbled { .. }
            | Self::UnknownCoding { .. }
            | Self::BadRedirect { .. } => ErrorCode::UpstreamError,
            // Stopped by the gateway's own guard.
            Self::Scheme { .. }
            | Self::UserInfo
            | Self::NotAllowed { .. }
            | Self::RefusedLiteral { .. }
            | Self::RefusedName { .. }
            | Self::RefusedPort { .. }
            | Self::ProxyWithoutList { .. }
            | Self::OwnAddress { .. }
            | Self::Downgrade { .. } => ErrorCode::Denied,
            Self::TooManyRedirects { .. } | Self::Unwritable { .. } => ErrorCode::ToolError,
        }
    }

    fn blame(&self) -> Blame {
        match self {
            Self::Deadline { .. } | Self::NoConnection { .. } | Self::BrokenOff { .. } => Blame::Network,
            Self::Garbled { .. } | Self::UnknownCoding { .. } | Self::BadRedirect { .. } => Blame::Upstream,
            _ => Blame::Call,
        }
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.code(), failure.to_string()).blaming(failure.blame());
        match failure {
            Failure::Overloaded { .. } => error.retry_after(RETRY_AFTER),
            Failure::NoConnection { cause, .. }
            | Failure::BrokenOff { cause, .. }
            | Failure::Garbled { cause, .. }
            | Failure::Unwritable { cause, .. } => error.caused_by(cause),
            Failure::RefusedName { host, address, .. } => error.caused_by(format_args!("{host} is at {address}")),
            _ => error,
        }
    }
}

/// The action of the proxy, by the text of the error: the error's type is private to `hyper-util`.
fn proxy_problem(cause: &str, url: &Url) -> Option<&'static str> {
    if cause.contains("tunnel error: proxy authorization required") {
        Some(
            "the proxy requires other credentials; correct its `url` at `outbound.proxy`, or at the profile of the model",
        )
    } else if cause.contains("tunnel error: unsuccessful") || cause.contains("tunnel error: unexpected end of file") {
        Some("the proxy of `outbound.proxy`, or of the profile, does not connect to it")
    } else if cause.contains("tunnel error") || url.scheme() == "http" {
        Some("the proxy of `outbound.proxy`, or of the profile, cannot be reached")
    } else {
        None
    }
}

pub(super) fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// An error with its chain of causes, for the log.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
