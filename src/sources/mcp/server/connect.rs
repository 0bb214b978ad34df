//! Connects to a server, with any supported revision of the protocol.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::catalogue::wants;
use super::endpoint::Endpoint;
use super::handler::{Handler, ServerEvents};
use super::handshake::{Handshake, Mode};
use super::listing::Listing;
use super::session::Session;
use super::session_owner::SessionOwner;
use crate::config::{McpServerSettings, McpTransport};
use crate::core::peer::LogLevel;
use crate::core::redaction::SentSecrets;
use crate::sources::mcp::auth::SignIn;
use crate::sources::mcp::text::bounded;
use crate::sources::mcp::transport::authorized_http::{AuthorizedHttp, Tokens};
use crate::sources::mcp::transport::child_process;
use crate::sources::mcp::transport::connection::Connection;
use crate::sources::mcp::transport::handshake::HandshakeError;
use crate::sources::mcp::transport::message::Failure;

/// Opens connections to one server, and remembers which transport and handshake worked.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) name: Arc<str>,
    pub(crate) settings: McpServerSettings,
    pub(crate) reach: Endpoint,
    pub(crate) events: Arc<ServerEvents>,
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
    pub(crate) async fn connect(&self, owner: &SessionOwner) -> Result<Session, String> {
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

    async fn try_each(&self, owner: &SessionOwner) -> Result<Session, String> {
        let places = if owner.key.is_none() { &*self.connecting } else { &self.beginning };
        let _place = places.acquire().await.map_err(|_| "the gateway is shutting down".to_owned())?;
        let mut reason = String::new();
        let modes = self.era.modes(owner);
        let mut left = modes.len();
        for mode in modes {
            left -= 1;
            match self.try_in_time(*mode, owner, left > 0).await {
                Ok(session) => {
                    self.era.remember(owner, session.is_modern());
                    return Ok(session);
                }
                Err(Attempt::Final(why)) => return Err(why),
                Err(Attempt::Failed(why)) => reason = why,
            }
            if let Some(required) = self.sign_in().and_then(|sign_in| sign_in.requirement_since_connecting()) {
                // Another transport or handshake would require the same sign-in.
                return Err(required);
            }
        }
        Err(reason)
    }

    /// If a server does not answer a caller's older handshake, half of the time is left for the newer one.
    async fn try_in_time(&self, mode: Mode, owner: &SessionOwner, more: bool) -> Result<Session, Attempt> {
        let attempt = self.try_as(mode, owner);
        if owner.key.is_none() || !more {
            return attempt.await;
        }
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into()) / 2;
        let silent = || Attempt::Failed("it does not answer the older handshake".to_owned());
        tokio::time::timeout(within, attempt).await.unwrap_or_else(|_| Err(silent()))
    }

    async fn try_as(&self, mode: Mode, owner: &SessionOwner) -> Result<Session, Attempt> {
        match &self.reach {
            Endpoint::Program(program) => {
                let started = child_process::start(&self.name, program, &self.settings).map_err(Attempt::Final)?;
                let handler = Handler::new(Arc::clone(&self.events), owner);
                let connection = Connection::stdio(started, self.settings.max_message_bytes, handler);
                self.begin(connection, mode, owner).await
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
        mode: Mode,
        owner: &SessionOwner,
    ) -> Result<Session, Attempt> {
        let transport = self.settings.transport;
        if transport == McpTransport::Sse || self.speaks_sse.get().is_some() {
            return self.connect_sse(access, owner).await;
        }
        let connection = Connection::http(Arc::clone(&access), Handler::new(Arc::clone(&self.events), owner));
        match self.begin(connection, mode, owner).await {
            Err(Attempt::Failed(why)) if transport == McpTransport::Auto && mode == Mode::Initialize => {
                // Detection as in the specification: a server of 2024-11-05 refuses the POST.
                let session = self.connect_sse(access, owner).await.map_err(|_| Attempt::Failed(why))?;
                let _ = self.speaks_sse.set(());
                Ok(session)
            }
            outcome => outcome,
        }
    }

    async fn connect_sse(&self, access: Arc<AuthorizedHttp>, owner: &SessionOwner) -> Result<Session, Attempt> {
        let connection = Connection::sse(access, Handler::new(Arc::clone(&self.events), owner)).await;
        let connection = connection.map_err(|error| Attempt::Failed(error.message().to_owned()))?;
        self.begin(connection, Mode::Initialize, owner).await
    }

    async fn begin(&self, connection: Arc<Connection>, mode: Mode, owner: &SessionOwner) -> Result<Session, Attempt> {
        // Closes the connection also if this future is dropped before the handshake ends.
        let guard = connection.close.clone().drop_guard();
        self.era.begin(&connection, mode, owner).await.map_err(|error| Attempt::of(&error, &connection))?;
        connection.heard().await;
        let info = connection.info().ok_or_else(|| Attempt::Failed("it sent no server information".to_owned()))?;
        Ok(Session {
            info: Arc::clone(info),
            ended: connection.ended.clone(),
            sent: owner.headers.clone(),
            owner: owner.key.clone(),
            // What a client wants that has set none.
            level: Mutex::new(LogLevel::Info),
            suspect: Arc::default(),
            close: connection.close.clone(),
            _close: guard,
            connection,
        })
    }
}

/// Why an attempt failed, and whether another one may succeed.
enum Attempt {
    Failed(String),
    Final(String),
}

impl Attempt {
    fn of(error: &HandshakeError, connection: &Connection) -> Self {
        let failure = match error {
            HandshakeError::Failed(failure) => failure,
            HandshakeError::NoCommonRevision => {
                let why = "it supports no revision of the protocol that the gateway supports";
                return Self::Failed(why.to_owned());
            }
            HandshakeError::OtherRevision { spoken, pinned } => {
                return Self::Final(format!("it speaks revision {spoken}, not {pinned} as configured (`revision`)"));
            }
        };
        if let Failure::Call(error) = failure {
            return Self::Failed(error.message().to_owned());
        }
        Self::Failed(connection.ending.reason().unwrap_or_else(|| match failure {
            Failure::Refused(error) => format!("it refused: {}", bounded(&error.message)),
            Failure::Lost => "it closed the connection".to_owned(),
            Failure::Invalid | Failure::Call(_) => "its answer to the handshake is invalid".to_owned(),
        }))
    }
}

fn with_headers(access: &AuthorizedHttp, more: &HeaderMap) -> AuthorizedHttp {
    let mut access = access.clone();
    for (name, value) in more {
        access.headers.insert(name, value.clone());
    }
    access
}
