//! Requests of a component over HTTP: to hosts that it is granted, over the client that all tools have. Its guard checks each
//! address, its limits count, and the headers that the configuration has for a host are added here: the component has no part in
//! them.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use url::Url;

use sekisho_config::{ComponentGrantsConfig, Secret};
use sekisho_core::call::{CallContext, Deadline};
use sekisho_core::error::ErrorCode;
use sekisho_guest_protocol::{HttpFailure, HttpRequest, HttpResponse, MAX_HTTP_BODY_BYTES};
use sekisho_observe::telemetry;
use sekisho_outbound::{DomainList, Outbound, OutboundRequest, OutboundResponse};
use sekisho_sandbox::ComponentHttp;
use sekisho_user_tokens::credentials::sensitive;

/// Requests of one call.
pub(super) const MAX_REQUESTS: u32 = 100;

/// The data after a CONNECT is no HTTP any more, and the response to a TRACE repeats credentials.
const NOT_ADMITTED: [Method; 2] = [Method::CONNECT, Method::TRACE];

/// Headers of a request.
const MAX_HEADERS: usize = 1_000;

/// Headers of a request that are about its connection and its length, which are the client's.
const NOT_SENT: [HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::ACCEPT_ENCODING];

/// Headers of a response that are wrong for its body now, which is whole and decoded.
const NOT_PASSED_ON: [HeaderName; 4] =
    [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONTENT_ENCODING];

/// The addresses that one component may reach.
pub(super) struct HttpAccess {
    outbound: Outbound,
    hosts: DomainList,
    /// Each host with its port; none: the usual port of the scheme.
    ports: Vec<(DomainList, Option<u16>)>,
    /// Headers by origin: a secret goes to no other port, and over no connection that others can read.
    credentials: BTreeMap<String, HeaderMap>,
}

sekisho_core::debug_fields!(HttpAccess { hosts });

impl HttpAccess {
    /// None for a component without hosts.
    /// Errors: a host, a network or a header that is none.
    pub(super) fn new(
        name: &str,
        outbound: &Outbound,
        granted: &ComponentGrantsConfig,
        credentials: &BTreeMap<String, BTreeMap<String, Secret>>,
    ) -> Result<Option<Self>, String> {
        if granted.http.is_empty() {
            return Ok(None);
        }
        let key = |of: &str| format!("components.grants.{name}.{of}");
        let listed = |hosts: &[String]| DomainList::parse(hosts).map_err(|error| format!("{}: {error}", key("http")));
        let places: Vec<_> = granted.http.iter().map(|entry| host_and_port(entry)).collect();
        let hosts: Vec<_> = places.iter().map(|(host, _)| host.clone()).collect();
        let hosts = listed(&hosts)?;
        let ports = places.into_iter().map(|(host, port)| Ok((listed(&[host])?, port)));
        let ports: Vec<_> = ports.collect::<Result<_, String>>()?;
        let outbound = outbound.for_source(&granted.allow_networks, &key("allow_networks"));
        let outbound = outbound.map_err(|error| error.to_string())?;
        let mut of_origins = BTreeMap::new();
        for (place, headers) in credentials {
            let key = format!("components.credentials.{name}.{place}");
            let url = origin_of(place).ok_or_else(|| {
                format!("{key}: it is no host and no origin; write api.example.com, or http://localhost:8080")
            })?;
            if !allows(&ports, &url) {
                return Err(format!(
                    "{key}: it may send no requests there; list the host in components.grants.{name}.http, with its port \
                     unless it is the usual one"
                ));
            }
            let mut of_origin = HeaderMap::new();
            for (header, value) in headers {
                let (header, value) = sensitive(header, value.expose())
                    .ok_or_else(|| format!("{key}.{header}: it is no valid header"))?;
                of_origin.insert(header, value);
            }
            let origin = url.origin().ascii_serialization();
            if of_origins.contains_key(&origin) {
                return Err(format!("{key}: another entry names the same origin, {origin}; write one of them"));
            }
            of_origins.insert(origin, of_origin);
        }
        Ok(Some(Self { outbound, hosts, ports, credentials: of_origins }))
    }

    /// For one call.
    pub(super) fn for_call<'a>(&'a self, call: &'a CallContext, deadline: Deadline) -> OutgoingRequests<'a> {
        OutgoingRequests { access: self, call, deadline }
    }

    fn headers(&self, url: &Url, sent: &[(String, Vec<u8>)]) -> Result<HeaderMap, HttpFailure> {
        // A map that is full panics, and the client adds headers of its own.
        if sent.len() > MAX_HEADERS {
            return Err(HttpFailure::Failed(format!("the request has more than {MAX_HEADERS} headers")));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            let pair = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::from_bytes(value).ok());
            let (name, value) = pair.ok_or_else(|| HttpFailure::Failed(format!("{name:?} is no valid header")))?;
            if !NOT_SENT.contains(&name) {
                headers.append(name, value);
            }
        }
        let own = self.credentials.get(&url.origin().ascii_serialization());
        for (name, value) in own.into_iter().flatten() {
            // In place of the header that the component has sent.
            headers.insert(name.clone(), value.clone());
        }
        Ok(headers)
    }
}

/// The host of an entry, and its port: `api.example.com`, `localhost:8080`, `[::1]:8080`.
fn host_and_port(entry: &str) -> (String, Option<u16>) {
    let parts = entry.trim().rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let port = parts.and_then(|(host, port)| Some((host.to_owned(), Some(port.parse().ok()?))));
    port.unwrap_or_else(|| (entry.to_owned(), None))
}

/// Whether a URL is at one of these hosts and ports.
fn allows(ports: &[(DomainList, Option<u16>)], url: &Url) -> bool {
    // The usual port of its scheme is none in a URL.
    let is_at =
        |port: Option<u16>| if port.is_some() { port == url.port_or_known_default() } else { url.port().is_none() };
    ports.iter().any(|(host, port)| host.allows(url) && is_at(*port))
}

/// The address that a key of the credentials names: a host, which is asked over HTTPS, or an origin.
fn origin_of(key: &str) -> Option<Url> {
    let url = if key.contains("://") { Url::parse(key) } else { Url::parse(&format!("https://{key}")) }.ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    // Nothing but scheme, host and port.
    (is_web && url.as_str() == format!("{}/", url.origin().ascii_serialization())).then_some(url)
}

/// The requests of one call.
pub(super) struct OutgoingRequests<'a> {
    access: &'a HttpAccess,
    call: &'a CallContext,
    deadline: Deadline,
}

impl OutgoingRequests<'_> {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpFailure> {
        let HttpRequest { method, url, headers, body } = request;
        let invalid = |what: &str| HttpFailure::Failed(format!("{what} of the request is not valid"));
        let url = Url::parse(&url).map_err(|_| invalid("the address"))?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| invalid("the method"))?;
        if NOT_ADMITTED.contains(&method) {
            return Err(HttpFailure::Denied);
        }
        if !allows(&self.access.ports, &url) {
            return Err(HttpFailure::Denied);
        }
        let headers = self.access.headers(&url, &headers)?;
        let request = OutboundRequest {
            method,
            headers,
            body: (!body.is_empty()).then(|| Bytes::from(body)),
            max_response_bytes: MAX_HTTP_BODY_BYTES,
            allowed: &self.access.hosts,
            trace: telemetry::outgoing(self.call),
            on_behalf: Some(self.call.on_behalf()),
            ..OutboundRequest::get(url, self.deadline)
        };
        let answered = self.access.outbound.send(request).await;
        answered.map(response_of).map_err(|error| match error.code() {
            ErrorCode::Timeout => HttpFailure::Timeout,
            ErrorCode::OutputTooLarge => HttpFailure::TooLarge,
            // An address that it may not reach.
            ErrorCode::ToolError | ErrorCode::Denied => HttpFailure::Denied,
            _ => HttpFailure::Failed(error.message().to_owned()),
        })
    }
}

impl ComponentHttp for OutgoingRequests<'_> {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpFailure>> {
        Box::pin(self.exchange(request))
    }
}

fn response_of(response: OutboundResponse) -> HttpResponse {
    let OutboundResponse { status, headers, body, .. } = response;
    let kept = headers.iter().filter(|(name, _)| !NOT_PASSED_ON.contains(name));
    let headers = kept.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    HttpResponse { status: status.as_u16(), headers, body: body.to_vec() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use sekisho_config::OutboundConfig;
    use sekisho_core::call::{Caller, Via};

    const GRANTED: [&str; 3] = ["example.com", "example.com:8080", "[::1]:9"];

    #[test]
    fn a_host_is_granted_with_the_usual_ports_or_with_its_own() {
        let access = access("example.com").unwrap();
        for (url, is_granted) in [
            ("https://example.com/", true),
            ("http://api.example.com/", true),
            ("http://example.com:8080/", true),
            ("http://[::1]:9/", true),
            ("http://[::1]/", false),
            ("https://example.com:8443/", false),
            ("https://example.com:22/", false),
            ("https://other.test/", false),
        ] {
            assert_eq!(allows(&access.ports, &Url::parse(url).unwrap()), is_granted, "{url}");
        }
    }

    fn access(place: &str) -> Result<HttpAccess, String> {
        access_to(&[place])
    }

    fn access_to(places: &[&str]) -> Result<HttpAccess, String> {
        let granted =
            ComponentGrantsConfig { http: GRANTED.map(str::to_owned).to_vec(), ..ComponentGrantsConfig::default() };
        let headers = || BTreeMap::from([("X-Api-Key".to_owned(), Secret::new("the key"))]);
        let credentials = places.iter().map(|place| ((*place).to_owned(), headers())).collect();
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        HttpAccess::new("own", &outbound, &granted, &credentials).map(Option::unwrap)
    }

    fn key_sent(access: &HttpAccess, url: &str) -> String {
        let sent = [("x-api-key".to_owned(), b"of the component".to_vec()), ("host".to_owned(), b"other".to_vec())];
        let headers = access.headers(&Url::parse(url).unwrap(), &sent).unwrap();
        assert!(!headers.contains_key(header::HOST));
        headers["x-api-key"].to_str().unwrap().to_owned()
    }

    #[test]
    fn credentials_go_to_their_origin_alone() {
        let of_host = access("API.example.com").unwrap();
        assert_eq!(key_sent(&of_host, "https://api.example.com/a"), "the key", "in place of what the component sends");
        for url in ["http://api.example.com/", "https://api.example.com:8443/", "https://example.com/"] {
            assert_eq!(key_sent(&of_host, url), "of the component", "{url}");
        }
        let of_origin = access("http://example.com:8080").unwrap();
        assert_eq!(key_sent(&of_origin, "http://example.com:8080/"), "the key");
        assert_eq!(key_sent(&of_origin, "https://example.com/"), "of the component");
    }

    #[test]
    fn credentials_for_what_is_no_origin_are_refused() {
        for (place, says) in [
            ("api.example.com/path", "no host and no origin"),
            ("ftp://api.example.com", "no host and no origin"),
            ("https://user@api.example.com", "no host and no origin"),
            ("", "no host and no origin"),
            ("https://example.com:22", "with its port"),
            ("other.test", "list the host in components.grants.own.http"),
        ] {
            let problem = access(place).unwrap_err();
            assert!(problem.contains(says), "{place}: {problem}");
        }
        let problem = access_to(&["api.example.com", "https://API.example.com"]).unwrap_err();
        assert!(problem.contains("names the same origin, https://api.example.com"), "{problem}");
    }

    #[test]
    fn more_headers_than_there_may_be_are_an_error() {
        let access = access("example.com").unwrap();
        let sent: Vec<_> = (0..40_000).map(|number| (format!("x-{number}"), Vec::new())).collect();
        let refused = access.headers(&Url::parse("https://example.com/").unwrap(), &sent).unwrap_err();
        assert!(matches!(refused, HttpFailure::Failed(reason) if reason.contains("more than 1000 headers")));
    }

    #[tokio::test]
    async fn methods_that_leave_http_or_repeat_credentials_are_refused() {
        let access = access("example.com").unwrap();
        let call = CallContext::new("own__get", Arc::new(Caller::anonymous()), Via::Rest);
        let requests = access.for_call(&call, Deadline::after(Duration::from_secs(10)));
        for method in ["CONNECT", "TRACE"] {
            let (method, url) = (method.to_owned(), "https://example.com/".to_owned());
            let request = HttpRequest { method, url, headers: Vec::new(), body: Vec::new() };
            assert_eq!(requests.exchange(request).await, Err(HttpFailure::Denied));
        }
    }
}
