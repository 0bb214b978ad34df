//! Requests of a component over HTTP: to hosts that it is granted, over the client that all tools have. Its guard checks each
//! address, its limits count, and the headers that the configuration has for a host are added here: the component has no part in
//! them.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use url::Url;

use crate::config::{ComponentGrantsConfig, Secret};
use crate::core::call::{CallContext, Deadline};
use crate::core::error::ErrorCode;
use crate::infra::outbound::{DomainList, Outbound, OutboundRequest, OutboundResponse};
use crate::infra::telemetry;
use crate::sandbox::ComponentHttp;
use crate::sandbox::protocol::{HttpFailure, HttpRequest, HttpResponse, MAX_HTTP_BODY_BYTES};
use crate::sources::credentials::sensitive;

/// Requests of one call.
pub(super) const MAX_REQUESTS: u32 = 100;

/// Headers of a request that are about its connection and its length, which are the client's.
const NOT_SENT: [HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::ACCEPT_ENCODING];

/// Headers of a response that are not those of its body any more, which is whole and decoded.
const NOT_PASSED_ON: [HeaderName; 4] =
    [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONTENT_ENCODING];

/// What one component may reach.
pub(super) struct HttpAccess {
    outbound: Outbound,
    hosts: DomainList,
    /// Headers by host.
    credentials: BTreeMap<String, HeaderMap>,
}

impl fmt::Debug for HttpAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpAccess").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl HttpAccess {
    /// None for a component without hosts.
    ///
    /// # Errors
    /// A host, a network or a header that is none.
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
        let hosts = DomainList::parse(&granted.http).map_err(|error| format!("{}: {error}", key("http")))?;
        let outbound = outbound.for_source(&granted.allow_networks, &key("allow_networks"));
        let outbound = outbound.map_err(|error| error.to_string())?;
        let mut of_hosts = BTreeMap::new();
        for (host, headers) in credentials {
            let mut of_host = HeaderMap::new();
            for (header, value) in headers {
                let (header, value) = sensitive(header, value.expose())
                    .ok_or_else(|| format!("components.credentials.{name}.{host}.{header}: it is no valid header"))?;
                of_host.insert(header, value);
            }
            of_hosts.insert(host.to_lowercase(), of_host);
        }
        Ok(Some(Self { outbound, hosts, credentials: of_hosts }))
    }

    /// For one call.
    pub(super) fn for_call<'a>(&'a self, call: &'a CallContext, deadline: Deadline) -> OutgoingRequests<'a> {
        OutgoingRequests { access: self, call, deadline }
    }

    fn headers(&self, url: &Url, sent: &[(String, Vec<u8>)]) -> Result<HeaderMap, HttpFailure> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            let pair = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::from_bytes(value).ok());
            let (name, value) = pair.ok_or_else(|| HttpFailure::Failed(format!("{name:?} is no valid header")))?;
            if !NOT_SENT.contains(&name) {
                headers.append(name, value);
            }
        }
        let own = url.host_str().and_then(|host| self.credentials.get(host));
        for (name, value) in own.into_iter().flatten() {
            // In place of what the component has sent.
            headers.insert(name.clone(), value.clone());
        }
        Ok(headers)
    }
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
        if !self.access.hosts.allows(&url) {
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
