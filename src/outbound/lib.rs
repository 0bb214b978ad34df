//! The HTTP client for all outgoing requests: every tool uses [`Outbound::send`].
//!
//! It connects only to addresses that the guard permits (checked when the connection is made, and again on every
//! redirect), limits the requests under way, reads no more of a body than requested, and ends at the call's deadline.
//! It does not retry: the pipeline does.
//!
//! `route` has the checks of an address and the choice of a client, `stream` the answers whose body is read piece by
//! piece, `direct` the checks of connections that others make.

pub mod blobs;
mod body;
mod client;
mod client_certificate;
mod coding;
mod direct;
mod domains;
mod failure;
mod guard;
pub mod local_socket;
mod own;
pub mod pem;
mod proxy;
mod redirect;
pub mod remote_gateway;
mod resolver;
mod route;
mod slots;
pub mod sse;
mod status;
mod stream;
#[cfg(any(test, feature = "test-support"))]
pub mod test_server;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use thiserror::Error;
use url::{Position, Url};

use self::client::Client;
use self::failure::{Failure, host_of};
use self::own::OwnListeners;
pub use self::proxy::InvalidProxy;
use self::proxy::Proxy;
use self::resolver::{GuardedResolver, Lookup, Names, system_lookup};
use self::slots::{Slot, Slots};
use crate::pem::PemFileError;
use sekisho_config::{OutboundConfig, ProxyConfig, WebFetchConfig};
use sekisho_core::bounded::Ring;
use sekisho_core::call::{Deadline, OnBehalf, TraceParent, Upstream};
use sekisho_core::error::CallError;
use sekisho_core::redaction::SentSecrets;

pub use self::direct::RefusedConnection;
pub use self::domains::{DomainList, InvalidDomain};
pub use self::guard::{AddressGuard, InvalidNetwork};
pub use self::status::{check_status, retry_after};
pub use self::stream::OutboundStream;

/// The client. Clones share its connections, slots and cached addresses; [one for a source](Self::for_source) has
/// connections of its own, since each was opened to an address that this source may reach.
#[derive(Debug, Clone)]
pub struct Outbound {
    guard: Arc<AddressGuard>,
    /// One pool of connections for each trust level: an unchecked one must never serve a tool's request.
    for_callers: Client,
    for_operator: Client,
    dialing: Arc<Dialing>,
    /// Whether hosts may be reached through the proxy, whose look-ups are not checked here.
    may_use_proxy: bool,
    slots: Arc<Slots>,
    /// For responses that stay open: they must not delay short requests.
    streams: Arc<Slots>,
    /// For those to addresses of the configuration.
    streams_of_operator: Arc<Slots>,
}

/// The shared parts for connections of all sources.
#[derive(Debug)]
struct Dialing {
    names: Arc<Names>,
    connect_timeout: Duration,
    tls: ClientConfig,
    own: OwnListeners,
    proxy: Option<Proxy>,
    /// Those with a proxy of their own, which keep their connections.
    others: Mutex<Ring<(ProxyConfig, Arc<Dialing>)>>,
}

/// Proxies of profiles whose connections are kept.
const MAX_PROXIES: usize = 16;

impl Dialing {
    fn client(&self, guard: Option<Arc<AddressGuard>>, own: Option<&OwnListeners>) -> Client {
        let resolver = GuardedResolver { names: Arc::clone(&self.names), guard };
        Client::new(self.connect_timeout, resolver, own, self.tls.clone(), None)
    }

    fn with_tls(&self, tls: ClientConfig) -> Self {
        let (names, connect_timeout) = (Arc::clone(&self.names), self.connect_timeout);
        let proxy = self
            .proxy
            .as_ref()
            .map(|proxy| proxy.reconnected(|proxy| Client::of_proxy(connect_timeout, &names, tls.clone(), proxy)));
        Self { own: self.own.clone(), names, connect_timeout, tls, proxy, others: Mutex::new(Ring::new(MAX_PROXIES)) }
    }

    fn with_proxy(&self, config: &ProxyConfig) -> Result<Self, InvalidProxy> {
        let (names, connect_timeout, tls) = (Arc::clone(&self.names), self.connect_timeout, self.tls.clone());
        let proxy = Proxy::new(config, |proxy| Client::of_proxy(connect_timeout, &names, tls.clone(), proxy))?;
        let others = Mutex::new(Ring::new(MAX_PROXIES));
        Ok(Self { own: self.own.clone(), names, connect_timeout, tls, proxy, others })
    }
}

/// Why there is no client.
#[derive(Debug, Error)]
pub enum OutboundError {
    #[error(transparent)]
    InvalidNetwork(#[from] InvalidNetwork),
    #[error("outbound.connect_timeout_seconds: {0} is not a number of seconds; write one above 0, such as 3")]
    InvalidConnectTimeout(f64),
    #[error("outbound.ca_files: {0}")]
    CaFile(#[from] PemFileError),
    #[error("outbound.proxy: {0}")]
    InvalidProxy(#[from] InvalidProxy),
    #[error("{0}")]
    ClientCertificate(PemFileError),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The origin of a request's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// A caller, a tool's document, another server: public addresses, and those permitted for the source.
    Caller,
    /// The operator, in the configuration: any address. A redirect to another origin is the caller's again.
    Operator,
}

/// The request, and its limits.
#[derive(Debug, Clone)]
pub struct OutboundRequest<'a> {
    pub method: Method,
    /// `http` or `https`, any port, no user name or password.
    pub url: Url,
    /// Dropped when a redirect leaves the origin, except headers that only describe content. Credentials are marked as
    /// sensitive.
    pub headers: HeaderMap,
    /// Credentials outside of the headers.
    pub secrets: Option<Arc<[String]>>,
    pub body: Option<Bytes>,
    /// For everything together: redirects, the last byte of the body. The waits of a call for slots and look-ups are
    /// not part of it; without a call they are.
    pub deadline: Deadline,
    /// Maximum bytes of the body, decompressed.
    pub max_response_bytes: usize,
    /// The treatment of a body with more bytes.
    pub too_long: TooLong,
    /// Whether the part that came of a stream without an end is the response: until the limit of bytes, or until
    /// shortly before the deadline.
    pub partial_streams: bool,
    /// Maximum redirects; with 0 a redirect is a response like any other.
    pub max_redirects: usize,
    /// Permitted hosts, also for redirects.
    pub allowed: &'a DomainList,
    pub trust: Trust,
    /// Passed on as `traceparent` and `tracestate`.
    pub trace: Option<TraceParent>,
    /// The call that it is sent for: its caller owns the slots, and its flag is set when a connection begins to write
    /// the request.
    pub on_behalf: Option<OnBehalf>,
}

impl OutboundRequest<'static> {
    /// A GET without headers of any public host: 1 MiB at most, no redirects, no trace.
    pub fn get(url: Url, deadline: Deadline) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            secrets: None,
            body: None,
            deadline,
            max_response_bytes: 1 << 20,
            too_long: TooLong::Refuse,
            partial_streams: false,
            max_redirects: 0,
            allowed: DomainList::any(),
            trust: Trust::Caller,
            trace: None,
            on_behalf: None,
        }
    }
}

/// The treatment of a body longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// `output_too_large`.
    Refuse,
    /// Keep the part that fits.
    Cut,
}

/// A complete response with any status: [`check_status`] separates success from failure.
#[derive(Debug, Clone)]
pub struct OutboundResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The URL of the response, after redirects.
    pub url: Url,
    pub body: Bytes,
    /// The body was longer; see [`TooLong::Cut`] and [`OutboundRequest::partial_streams`].
    pub cut: bool,
    /// The address of the connection.
    pub remote_addr: Option<SocketAddr>,
    pub sent: SentCredentials,
}

/// The credentials of one request, which its response may repeat.
#[derive(Debug, Clone, Default)]
pub struct SentCredentials {
    pub headers: HeaderMap,
    /// Headers of requests that were redirected to another origin.
    left_behind: Vec<HeaderValue>,
    secrets: Option<Arc<[String]>>,
}

impl SentCredentials {
    pub fn new(headers: HeaderMap) -> Self {
        Self { headers, ..Self::default() }
    }

    /// The texts to redact from an error.
    pub fn secrets(&self) -> SentSecrets {
        let mut secrets = SentSecrets::default();
        secrets.add_headers(&self.headers);
        self.left_behind.iter().for_each(|value| secrets.add_header(value));
        self.secrets.iter().flat_map(|more| more.iter()).for_each(|secret| secrets.add(secret));
        secrets
    }
}

impl Outbound {
    /// Errors: an `allow_networks` entry that is not a network, an invalid timeout, or a TLS configuration that cannot
    /// be loaded.
    pub fn new(config: &OutboundConfig) -> Result<Self, OutboundError> {
        Self::with(config, system_lookup(), &client::tls(&config.ca_files)?)
    }

    fn with(config: &OutboundConfig, lookup: Lookup, tls: &ClientConfig) -> Result<Self, OutboundError> {
        let seconds = config.connect_timeout_seconds;
        let connect_timeout = Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|timeout| !timeout.is_zero())
            .ok_or(OutboundError::InvalidConnectTimeout(seconds))?;
        let guard = Arc::new(AddressGuard::shared(&config.allow_networks)?);
        let names = Names::new(lookup, Duration::from_secs(config.dns_cache_seconds));
        let proxy = Proxy::new(&config.proxy, |proxy| Client::of_proxy(connect_timeout, &names, tls.clone(), proxy))?;
        let own = OwnListeners::default();
        let others = Mutex::new(Ring::new(MAX_PROXIES));
        let dialing = Arc::new(Dialing { names, connect_timeout, tls: tls.clone(), own, proxy, others });
        Ok(Self {
            for_callers: dialing.client(Some(Arc::clone(&guard)), Some(&dialing.own)),
            for_operator: dialing.client(None, None),
            dialing,
            guard,
            may_use_proxy: true,
            slots: Slots::new(config.max_connections, config.max_connections_per_origin),
            streams: Slots::new(stream::MAX_STREAMS, stream::MAX_STREAMS_PER_ORIGIN),
            streams_of_operator: Slots::new(stream::MAX_STREAMS_OF_OPERATOR, stream::MAX_STREAMS_OF_OPERATOR),
        })
    }

    /// The client of one source of the configuration, which may reach `networks` besides the `outbound.allow_networks`, and the gateway
    /// itself. `key` is the configuration key of the list.
    /// Errors: an entry that is not a network.
    pub fn for_source(&self, networks: &[String], key: &str) -> Result<Self, InvalidNetwork> {
        let guard = Arc::new(self.guard.with_networks(networks, key)?);
        Ok(Self { for_callers: self.dialing.client(Some(Arc::clone(&guard)), None), guard, ..self.clone() })
    }

    /// The client of `web_fetch`: public addresses and ports 80 and 443, and those permitted for it, but never the
    /// gateway itself. Through a proxy only with a list of hosts, since a caller could choose a name that leads to a
    /// private network there.
    /// Errors: an entry that is not a network.
    pub fn for_web_fetch(&self, config: &WebFetchConfig) -> Result<Self, InvalidNetwork> {
        let guard = Arc::new(AddressGuard::web_fetch(&config.allow_networks, &config.allow_ports)?);
        let Dialing { names, connect_timeout, own, .. } = &*self.dialing;
        let resolver = GuardedResolver { names: Arc::clone(names), guard: Some(Arc::clone(&guard)) };
        let mut tls = self.dialing.tls.clone();
        // Encryption begins before the address of the connection is known, and a session ticket would be bytes of
        // another server's choice in its first message.
        tls.resumption = Resumption::disabled();
        let for_callers = Client::new(*connect_timeout, resolver, Some(own), tls, None);
        Ok(Self { may_use_proxy: !config.allowed_domains.is_empty(), for_callers, guard, ..self.clone() })
    }

    /// The same client with a certificate of its own, for servers that ask for one. Each connection shows it, so its
    /// requests must go to one server. Changed files count for new connections.
    /// Errors: files that cannot be read, or a key that does not belong to the certificate.
    pub fn with_client_certificate(&self, certificate: &Path, key: &Path) -> Result<Self, OutboundError> {
        let dialing =
            Arc::new(self.dialing.with_tls(client::tls_with_certificate(&self.dialing.tls, certificate, key)?));
        let for_callers = dialing.client(Some(Arc::clone(&self.guard)), None);
        Ok(Self { for_callers, for_operator: dialing.client(None, None), dialing, ..self.clone() })
    }

    /// The same client with another proxy in place of `outbound.proxy`; without a URL, the same.
    /// Errors: a URL that is none of a proxy, or an entry of `no_proxy` that is neither a host nor a network.
    pub fn through(&self, config: &ProxyConfig) -> Result<Self, InvalidProxy> {
        if config.url.is_none() {
            return Ok(self.clone());
        }
        let mut others = self.dialing.others.lock();
        let known = others.iter().find(|(known, _)| known == config).map(|(_, dialing)| Arc::clone(dialing));
        if let Some(dialing) = known {
            return Ok(Self { dialing, ..self.clone() });
        }
        let dialing = Arc::new(self.dialing.with_proxy(config)?);
        others.push((config.clone(), Arc::clone(&dialing)));
        Ok(Self { dialing, ..self.clone() })
    }

    /// The client of a gateway's Unix socket: every request goes there, whatever its address.
    #[must_use]
    pub fn to_socket(&self, path: PathBuf) -> Self {
        let client = Client::of_socket(path, self.dialing.tls.clone());
        Self { for_callers: client.clone(), for_operator: client, ..self.clone() }
    }

    /// Whether both may reach the same addresses.
    pub fn reaches_as(&self, other: &Self) -> bool {
        self.guard == other.guard
    }

    /// Where the gateway listens from now on.
    pub fn set_own_listeners(&self, listeners: Vec<SocketAddr>) {
        self.dialing.own.set(listeners);
    }

    /// Sends the request, follows redirects, and reads the response. Dropping the future closes the connection.
    /// Errors: `tool_error` for an address that may not be reached, `upstream_error` for a connection that fails,
    /// `timeout` at the deadline, `output_too_large` for a body that exceeds the limit.
    pub async fn send(&self, request: OutboundRequest<'_>) -> Result<OutboundResponse, CallError> {
        let (host, deadline) = (host_of(&request.url), request.deadline);
        let queueing = request.on_behalf.as_ref().map(|call| Arc::clone(&call.queueing));
        let exchange = Box::pin(self.follow(request));
        let outcome = match queueing {
            Some(queueing) => queueing.within(deadline, exchange).await,
            None => tokio::time::timeout_at(deadline.0, exchange).await.ok(),
        };
        outcome.unwrap_or_else(|| Err(Failure::Deadline { host }.into()))
    }

    async fn follow(&self, mut request: OutboundRequest<'_>) -> Result<OutboundResponse, CallError> {
        let mut sent = SentCredentials { secrets: request.secrets.take(), ..SentCredentials::default() };
        let outcome = self.follow_redirects(&mut request, &mut sent.left_behind).await;
        sent.headers = request.headers;
        match outcome {
            Ok(response) => Ok(OutboundResponse { sent, ..response }),
            // The target of a redirect may repeat them too.
            Err(error) => Err(error.redacted(&sent.secrets())),
        }
    }

    async fn follow_redirects(
        &self,
        request: &mut OutboundRequest<'_>,
        left_behind: &mut Vec<HeaderValue>,
    ) -> Result<OutboundResponse, CallError> {
        let mut redirects = 0;
        loop {
            self.check(request)?;
            match self.exchange(request).await? {
                ControlFlow::Break(response) => return Ok(response),
                ControlFlow::Continue((status, location)) => {
                    redirects += 1;
                    if redirects > request.max_redirects {
                        return Err(Failure::TooManyRedirects { limit: request.max_redirects }.into());
                    }
                    left_behind.extend(request.headers.values().filter(|value| value.is_sensitive()).cloned());
                    redirect::follow(request, status, location)?;
                }
            }
        }
    }

    /// One request and its response; the slot is held until the body has ended.
    async fn exchange(&self, request: &mut OutboundRequest<'_>) -> Result<Answer, Failure> {
        let _slot = self.slot(request).await?;
        self.look_up(request).await?;
        let response = self.client(request).send(request, request.headers.clone()).await?;
        if request.max_redirects > 0
            && let Some(location) = redirect::location(&response, &request.url)?
        {
            return Ok(ControlFlow::Continue((response.status, location)));
        }
        body::read(response, request).await.map(ControlFlow::Break)
    }
}

impl Outbound {
    /// Waits for a slot of calls.
    async fn slot(&self, request: &mut OutboundRequest<'_>) -> Result<Slot, Failure> {
        let (call, origin) = (request.on_behalf.as_ref(), origin_of(&request.url));
        let acquire = |until| self.slots.acquire(OnBehalf::owner_of(call), origin, until);
        let slot = OnBehalf::queued(call, &mut request.deadline, acquire).await;
        slot.map_err(|_| Failure::Overloaded { what: "a slot" })
    }
}

/// The key of the circuit breaker for requests to this URL: `scheme://host:port`.
pub fn upstream_of(url: &Url) -> Upstream {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    Upstream::new(format!("{}://{host}:{port}", url.scheme()))
}

/// As [`upstream_of`], but as in the URL: without a default port.
fn origin_of(url: &Url) -> &str {
    &url[..Position::BeforePath]
}

/// The complete response, or the next URL.
type Answer = ControlFlow<OutboundResponse, (StatusCode, Url)>;
