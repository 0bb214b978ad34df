//! Connects to a server, with any supported revision of the protocol.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use rmcp::RoleClient;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle_and_ct};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Owner;
use super::catalogue::wants;
use super::handler::{Handler, ServerEvents};
use super::handshake::Handshake;
use super::listing::Listing;
use super::session::{InFlight, Session};
use crate::config::{McpServerSettings, McpTransport};
use crate::core::error::CallError;
use crate::core::redaction::SentSecrets;
use crate::infra::outbound::upstream_of;
use crate::sources::mcp::auth::SignIn;
use crate::sources::mcp::transport::authorized_http::{AuthorizedHttp, Tokens};
use crate::sources::mcp::transport::child_process;
use crate::sources::mcp::transport::discover_probe::DiscoverProbe;
use crate::sources::mcp::transport::fast_path::FastPath;
use crate::sources::mcp::transport::http::HttpClient;
use crate::sources::mcp::transport::http_sse::EventStream;
use crate::sources::mcp::transport::stdio::{Ending, StdioTransport};

/// Maximum concurrent requests of one connection; the pipeline's limits are lower.
const MAX_REQUESTS: usize = 1_024;

/// Maximum attempts to reopen a broken event stream.
pub(crate) const STREAM_RETRIES: usize = 5;

/// How a server is reached.
#[derive(Debug)]
pub(crate) enum Endpoint {
    Program(String),
    Http(Arc<AuthorizedHttp>),
}

/// For `tools.lock`: without local paths, and without the path of a URL, which may contain a secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => {
                let name = Path::new(program).file_name().unwrap_or(program.as_ref());
                write!(formatter, "program {}", name.display())
            }
            Self::Http(access) => formatter.write_str(&upstream_of(&access.url).0),
        }
    }
}

/// Opens connections to one server, and remembers which transport and handshake worked.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) name: Arc<str>,
    pub(crate) settings: McpServerSettings,
    pub(crate) reach: Endpoint,
    pub(crate) news: Arc<ServerEvents>,
    /// Shared by all servers, so that not too many processes are started at the same time.
    pub(crate) connecting: Arc<Semaphore>,
    /// For the callers' sessions of this server, so that they do not delay other servers.
    pub(crate) beginning: Semaphore,
    pub(crate) era: Handshake,
    pub(crate) speaks_sse: OnceLock<()>,
}

impl Connector {
    /// Connects and completes the handshake, on behalf of the owner.
    ///
    /// # Errors
    /// The reason, as a text for an operator.
    pub(crate) async fn connect(&self, owner: &Owner) -> Result<Session, String> {
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into());
        if let Some(sign_in) = self.sign_in().filter(|_| owner.key.is_none()) {
            sign_in.connects();
        }
        match tokio::time::timeout(within, self.try_each(owner)).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(reason)) => {
                self.era.forget(owner);
                Err(self.secrets(&owner.headers).strike(&reason).into_owned())
            }
            Err(_) => {
                self.era.forget(owner);
                Err(format!(
                    "it did not complete the handshake within {} s (connect_timeout_seconds)",
                    within.as_secs()
                ))
            }
        }
    }

    /// The credentials sent to it, including `more`; they are redacted in its answers.
    pub(crate) fn secrets(&self, more: &HeaderMap) -> SentSecrets {
        let mut secrets = SentSecrets::default();
        match &self.reach {
            Endpoint::Program(_) => self.settings.env.values().for_each(|value| secrets.add(value.expose())),
            Endpoint::Http(access) => access.add_secrets(&mut secrets),
        }
        secrets.add_headers(more);
        secrets
    }

    /// The sign-in of a user, if the server supports one.
    pub(crate) fn sign_in(&self) -> Option<&Arc<SignIn>> {
        match &self.reach {
            Endpoint::Http(access) => match &access.tokens {
                Tokens::User(sign_in) => Some(sign_in),
                Tokens::None | Tokens::Client(_) => None,
            },
            Endpoint::Program(_) => None,
        }
    }

    /// Reads all lists that the server supports.
    ///
    /// # Errors
    /// As [`Listing::of`], or a timeout.
    pub(crate) async fn list(&self, session: &Session, most_tools: usize) -> Result<Listing, String> {
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into());
        let listing =
            tokio::time::timeout(within, Listing::of(session, most_tools, |name| wants(&self.settings, name))).await;
        let seconds = within.as_secs();
        let listing =
            listing.map_err(|_| format!("it did not list its tools within {seconds} s (connect_timeout_seconds)"));
        listing.flatten().map_err(|reason| self.secrets(&session.sent).strike(&reason).into_owned())
    }

    async fn try_each(&self, owner: &Owner) -> Result<Session, String> {
        let places = if owner.key.is_none() { &*self.connecting } else { &self.beginning };
        let _place = places.acquire().await.map_err(|_| "the gateway is shutting down".to_owned())?;
        let mut reason = String::new();
        let modes = self.era.modes(owner);
        let mut left = modes.len();
        for mode in modes {
            left -= 1;
            match self.try_in_time(mode, owner, left > 0).await {
                Ok(session) => {
                    self.era.remember(owner, session.is_modern());
                    return Ok(session);
                }
                Err(Attempt::Final(why)) => return Err(why),
                Err(Attempt::Failed(why)) => reason = why,
            }
            if let Some(required) = self.sign_in().and_then(|sign_in| sign_in.asked_meanwhile()) {
                // Another transport or handshake would require the same sign-in.
                return Err(required);
            }
        }
        Err(reason)
    }

    /// If a server does not answer a caller's older handshake, half of the time is left for the newer one.
    async fn try_in_time(&self, mode: ClientLifecycleMode, owner: &Owner, more: bool) -> Result<Session, Attempt> {
        let attempt = self.try_as(mode, owner);
        if owner.key.is_none() || !more {
            return attempt.await;
        }
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into()) / 2;
        let silent = || Attempt::Failed("it does not answer the older handshake".to_owned());
        tokio::time::timeout(within, attempt).await.unwrap_or_else(|_| Err(silent()))
    }

    async fn try_as(&self, mode: ClientLifecycleMode, owner: &Owner) -> Result<Session, Attempt> {
        match &self.reach {
            Endpoint::Program(program) => {
                let ending = Ending::default();
                let started = child_process::start(&self.name, program, &self.settings).map_err(Attempt::Final)?;
                let probe = DiscoverProbe::new(self.era.patience());
                let pipes = StdioTransport::new(started, self.settings.max_message_bytes, probe, ending.clone());
                self.shake_hands(pipes, mode, owner, ending, None).await
            }
            Endpoint::Http(access) => {
                let access = match owner.headers.is_empty() {
                    true => Arc::clone(access),
                    false => Arc::new(with_headers(access, &owner.headers)),
                };
                self.connect_http(access, mode, owner).await
            }
        }
    }

    async fn connect_http(
        &self,
        access: Arc<AuthorizedHttp>,
        mode: ClientLifecycleMode,
        owner: &Owner,
    ) -> Result<Session, Attempt> {
        let transport = self.settings.transport;
        if transport == McpTransport::Sse || self.speaks_sse.get().is_some() {
            return self.connect_sse(access, owner).await;
        }
        let client = HttpClient::new(Arc::clone(&access));
        let transport_of = streamable(client.clone());
        let streamable = self.shake_hands(transport_of, mode.clone(), owner, Ending::default(), Some(client)).await;
        let is_last = mode == ClientLifecycleMode::Initialize;
        match streamable {
            Err(Attempt::Failed(why)) if transport == McpTransport::Auto && is_last => {
                // Detection as in the specification: a server of 2024-11-05 refuses the POST.
                let session = self.connect_sse(access, owner).await.map_err(|_| Attempt::Failed(why))?;
                let _ = self.speaks_sse.set(());
                Ok(session)
            }
            outcome => outcome,
        }
    }

    async fn connect_sse(&self, access: Arc<AuthorizedHttp>, owner: &Owner) -> Result<Session, Attempt> {
        let ending = Ending::default();
        let stream = EventStream::open(access, ending.clone()).await;
        let stream = stream.map_err(|error| Attempt::Failed(error.message().to_owned()))?;
        self.shake_hands(stream, ClientLifecycleMode::Initialize, owner, ending, None).await
    }

    /// `client` is the HTTP client of the transport, for streamable HTTP.
    async fn shake_hands<T>(
        &self,
        transport: T,
        mode: ClientLifecycleMode,
        owner: &Owner,
        ending: Ending,
        client: Option<HttpClient>,
    ) -> Result<Session, Attempt>
    where
        T: Transport<RoleClient> + 'static,
    {
        let in_flight = Arc::new(InFlight::default());
        let handler = Handler::new(Arc::clone(&in_flight), Arc::clone(&self.news), owner);
        let close = CancellationToken::new();
        // Stops the transport also if this future is dropped before the handshake ends.
        let guard = close.clone().drop_guard();
        let serving = serve_client_with_lifecycle_and_ct(handler.clone(), transport, mode, close.clone());
        let running = Box::pin(serving).await.map_err(|error| Attempt::of(&error, &ending))?;
        let peer = running.peer().clone();
        let info = peer.peer_info().ok_or_else(|| Attempt::Failed("it sent no server information".to_owned()))?;
        let direct = client.map(|client| FastPath::new(client, handler, Arc::clone(&info)));
        let ended = CancellationToken::new();
        tokio::spawn({
            let ended = ended.clone();
            async move {
                let _reason = running.waiting().await;
                ended.cancel();
            }
        });
        let (sent, suspect) = (owner.headers.clone(), Arc::default());
        let owner = owner.key.clone();
        Ok(Session { peer, info, in_flight, direct, ended, ending, sent, owner, suspect, close, _close: guard })
    }
}

/// Why an attempt failed, and whether another one may succeed.
enum Attempt {
    Failed(String),
    Final(String),
}

impl Attempt {
    fn of(error: &ClientInitializeError, ending: &Ending) -> Self {
        if let Some(error) = call_error(error) {
            return Self::Failed(error.message().to_owned());
        }
        if let Some(reason) = ending.reason() {
            return Self::Failed(reason);
        }
        Self::Failed(match error {
            ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
            ClientInitializeError::JsonRpcError(error) => format!("it refused: {}", bounded(&error.message)),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => return Self::of(fallback, ending),
            ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
                "it supports no revision of the protocol that the gateway supports".to_owned()
            }
            ClientInitializeError::TransportError { .. } => "it is unreachable".to_owned(),
            _ => "its answer to the handshake is invalid".to_owned(),
        })
    }
}

/// A text of a server, truncated for display.
pub(crate) fn bounded(text: &str) -> String {
    const MOST: usize = 500;
    text.chars().filter(|c| !c.is_control() || *c == '\n').take(MOST).collect()
}

/// The gateway's own error in the chain of sources of an error.
pub(crate) fn call_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e CallError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<CallError>() {
            return Some(error);
        }
        if let Some(StreamableHttpError::Client(error)) = error.downcast_ref::<StreamableHttpError<CallError>>() {
            return Some(error);
        }
        if let Some(ClientInitializeError::TransportError { error, .. }) = error.downcast_ref() {
            next = Some(&*error.error);
            continue;
        }
        next = error.source();
    }
    None
}

impl fmt::Debug for Attempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Final(why)) = self;
        formatter.write_str(why)
    }
}

fn with_headers(access: &AuthorizedHttp, more: &HeaderMap) -> AuthorizedHttp {
    let mut headers = access.headers.clone();
    for (name, value) in more {
        headers.insert(name, value.clone());
    }
    AuthorizedHttp {
        outbound: access.outbound.clone(),
        allowed: Arc::clone(&access.allowed),
        url: access.url.clone(),
        headers,
        tokens: access.tokens.clone(),
        last_token: Arc::clone(&access.last_token),
        trust: access.trust,
        max_message_bytes: access.max_message_bytes,
    }
}

pub(crate) fn streamable(client: HttpClient) -> StreamableHttpClientTransport<HttpClient> {
    let access = &client.access;
    let mut retries = ExponentialBackoff::default();
    retries.max_times = Some(STREAM_RETRIES);
    retries.max_delay = Some(Duration::from_secs(30));
    let mut config = StreamableHttpClientTransportConfig::with_uri(access.url.as_str())
        .max_concurrent_requests(MAX_REQUESTS)
        .max_sse_event_size(access.max_message_bytes);
    config.retry_config = Arc::new(retries);
    StreamableHttpClientTransport::with_client(client, config)
}
