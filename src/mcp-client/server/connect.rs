//! Connects to a server, with any supported revision of the protocol.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::catalogue::wants;
use super::endpoint::Endpoint;
use super::handler::{Handler, ServerEvents};
use super::handshake::{Handshake, Mode};
use super::listing::Listing;
use super::session::Session;
use super::session_owner::SessionOwner;
use crate::auth::SignIn;
use crate::text::bounded;
use crate::transport::authorized_http::{AuthorizedHttp, Tokens};
use crate::transport::child_process;
use crate::transport::connection::Connection;
use crate::transport::handshake::HandshakeError;
use crate::transport::message::Failure;
use crate::transport::program_sandbox::ProgramSandbox;
use sekisho_config::{McpServerSettings, McpTransport, identity_of_headers};
use sekisho_core::peer::LogLevel;
use sekisho_core::redaction::SentSecrets;
use sekisho_user_tokens::{TokenExchange, UserSource, UserToken};

/// Opens connections to one server, and remembers which transport and handshake worked.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) name: Arc<str>,
    pub(crate) settings: McpServerSettings,
    pub(crate) reach: Endpoint,
    /// Of its processes, if it is a program.
    pub(crate) sandbox: ProgramSandbox,
    /// Where its callers' own tokens come from, with `identity: per_user` or `stored`.
    pub(crate) user_source: Option<Arc<UserSource>>,
    /// How a token is made of the caller's, with `identity: exchange` or `forward`.
    pub(crate) exchange: Option<Arc<TokenExchange>>,
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
    /// Errors: the reason, as a text for an operator.
    pub(crate) async fn connect(&self, owner: &SessionOwner) -> Result<Session, String> {
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into());
        if let Some(sign_in) = self.sign_in().filter(|_| owner.key.is_none()) {
            sign_in.connects();
        }
        // Before the time to connect begins: an installation takes longer.
        let prepared = Box::pin(self.sandbox.prepare(&self.name, &self.settings, owner.key.is_none())).await;
        prepared.map_err(|reason| self.settings.env_secrets().strike(&reason).into_owned())?;
        let access = self.access_for(owner);
        match tokio::time::timeout(within, self.try_each(owner, access.as_ref())).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(reason)) => {
                self.era.forget(owner);
                Err(self.secrets(access.as_deref()).strike(&reason).into_owned())
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

    /// The credentials sent to it over a session; they are redacted in its answers.
    pub(crate) fn secrets_of(&self, session: &Session) -> SentSecrets {
        self.secrets(session.access.as_deref())
    }

    /// The credentials sent to it, the credentials of `access` if it is reached over HTTP.
    fn secrets(&self, access: Option<&AuthorizedHttp>) -> SentSecrets {
        let Some(access) = access else { return self.settings.env_secrets() };
        let mut secrets = SentSecrets::default();
        access.add_secrets(&mut secrets);
        secrets
    }

    /// How an owner's requests reach it; `None` for a program.
    fn access_for(&self, owner: &SessionOwner) -> Option<Arc<AuthorizedHttp>> {
        let Endpoint::Http(access) = &self.reach else { return None };
        let token = self.user_source.as_ref().zip(owner.user.as_ref());
        if owner.headers.is_empty() && token.is_none() {
            return Some(Arc::clone(access));
        }
        let mut access = AuthorizedHttp::clone(access);
        if self.exchange.is_some() {
            // The caller's own token is among the headers.
            (access.tokens, access.last_token) = (Tokens::None, Arc::default());
        }
        if let Some((source, user)) = token {
            // Requests for the list of tools are not sent for a caller.
            access.headers.remove(AUTHORIZATION);
            access.tokens = Tokens::Caller(UserToken::new(source, user));
            access.last_token = Arc::default();
        }
        for (name, value) in &owner.headers {
            access.headers.insert(name, value.clone());
        }
        Some(Arc::new(access))
    }

    /// Whether its tools can be listed only as a caller who has signed in.
    pub(crate) fn lists_as_user(&self) -> bool {
        let has_none = |access: &AuthorizedHttp| {
            let has = |name: &str| access.headers.contains_key(name);
            let has_credentials = has(AUTHORIZATION.as_str()) || has(&self.settings.credential_header);
            matches!(access.tokens, Tokens::None) && !has_credentials
        };
        self.settings.identity.is_kept() && matches!(&self.reach, Endpoint::Http(access) if has_none(access))
    }

    /// The text that tells it from other servers. Not shown: a URL and the arguments of a program may contain secrets.
    pub(crate) fn identity(&self) -> String {
        match &self.reach {
            Endpoint::Http(access) => access.url.to_string() + &identity_of_headers(&self.settings.headers),
            Endpoint::Program(program) => {
                let package = self.sandbox.package().map(|package| package.digest);
                let parts = [program].into_iter().chain(&self.settings.args).chain(&package);
                let parts: Vec<_> = parts.map(String::as_str).collect();
                parts.join("\0") + &place_of(&self.settings)
            }
        }
    }

    /// The sign-in of a user, if the server supports one.
    pub(crate) fn sign_in(&self) -> Option<&Arc<SignIn>> {
        match &self.reach {
            Endpoint::Http(access) => match &access.tokens {
                Tokens::User(sign_in) => Some(sign_in),
                Tokens::None | Tokens::Client(_) | Tokens::Caller(_) => None,
            },
            Endpoint::Program(_) => None,
        }
    }

    /// Reads all lists that the server supports.
    /// Errors: as [`Listing::of`], or a timeout.
    pub(crate) async fn list(&self, session: &Session, most_tools: usize) -> Result<Listing, String> {
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into());
        let listing =
            tokio::time::timeout(within, Listing::of(session, most_tools, |name| wants(&self.settings, name))).await;
        let seconds = within.as_secs();
        let listing =
            listing.map_err(|_| format!("it did not list its tools within {seconds} s (connect_timeout_seconds)"));
        let listing = listing.flatten().map_err(|reason| self.secrets_of(session).strike(&reason).into_owned())?;
        Ok(Listing { package: self.sandbox.package(), ..listing })
    }

    async fn try_each(&self, owner: &SessionOwner, access: Option<&Arc<AuthorizedHttp>>) -> Result<Session, String> {
        let places = if owner.key.is_none() { &*self.connecting } else { &self.beginning };
        let _place = places.acquire().await.map_err(|_| "the gateway is shutting down".to_owned())?;
        let mut reason = String::new();
        let modes = self.era.modes(owner);
        let mut left = modes.len();
        for mode in modes {
            left -= 1;
            match self.try_in_time(*mode, owner, access, left > 0).await {
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
    async fn try_in_time(
        &self,
        mode: Mode,
        owner: &SessionOwner,
        access: Option<&Arc<AuthorizedHttp>>,
        more: bool,
    ) -> Result<Session, Attempt> {
        let attempt = self.try_as(mode, owner, access);
        if owner.key.is_none() || !more {
            return attempt.await;
        }
        let within = Duration::from_secs(self.settings.connect_timeout_seconds.into()) / 2;
        let silent = || Attempt::Failed("it does not answer the older handshake".to_owned());
        tokio::time::timeout(within, attempt).await.unwrap_or_else(|_| Err(silent()))
    }

    async fn try_as(
        &self,
        mode: Mode,
        owner: &SessionOwner,
        access: Option<&Arc<AuthorizedHttp>>,
    ) -> Result<Session, Attempt> {
        match (&self.reach, access) {
            (Endpoint::Program(program), _) => {
                let started = child_process::start(&self.name, program, &self.settings, &self.sandbox).await;
                let started = started.map_err(Attempt::Final)?;
                let handler = Handler::new(Arc::clone(&self.events), owner);
                let connection = Connection::stdio(started, self.settings.max_message_bytes, handler);
                self.begin(connection, mode, owner, None).await
            }
            (Endpoint::Http(shared), access) => {
                self.connect_http(Arc::clone(access.unwrap_or(shared)), mode, owner).await
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
        match self.begin(connection, mode, owner, Some(Arc::clone(&access))).await {
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
        let connection = Connection::sse(Arc::clone(&access), Handler::new(Arc::clone(&self.events), owner)).await;
        let connection = connection.map_err(|error| Attempt::Failed(error.message().to_owned()))?;
        self.begin(connection, Mode::Initialize, owner, Some(access)).await
    }

    async fn begin(
        &self,
        connection: Arc<Connection>,
        mode: Mode,
        owner: &SessionOwner,
        access: Option<Arc<AuthorizedHttp>>,
    ) -> Result<Session, Attempt> {
        // Closes the connection also if this future is dropped before the handshake ends.
        let guard = connection.close.clone().drop_guard();
        self.era.begin(&connection, mode, owner).await.map_err(|error| Attempt::of(&error, &connection))?;
        connection.heard().await;
        let info = connection.info().ok_or_else(|| Attempt::Failed("it sent no server information".to_owned()))?;
        Ok(Session {
            info: Arc::clone(info),
            ended: connection.ended.clone(),
            access,
            owner: owner.key.clone(),
            // The level of a client that has set none.
            level: Mutex::new(LogLevel::Info),
            own_tools: Mutex::default(),
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

/// The folder of a program, and the variables that say where it works; empty without any. No argument begins as these do.
fn place_of(settings: &McpServerSettings) -> String {
    let folder = settings.cwd.iter().map(|folder| format!("\0\0\0{}", folder.display()));
    let variables = settings.env_without_credentials();
    let variables = variables.iter().map(|(name, value)| format!("\0\0\0{name}={value}"));
    folder.chain(variables).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::Secret;

    #[test]
    fn a_program_in_another_folder_or_with_another_database_is_another_one_and_not_with_another_token() {
        let place = |cwd: &str, env: &[(&str, &str)]| {
            place_of(&McpServerSettings {
                cwd: Some(cwd.into()),
                env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
                ..McpServerSettings::default()
            })
        };
        let first = place("/srv/a", &[("DB", "postgres://ann:old@db/test"), ("API_TOKEN", "old")]);
        assert_eq!(place("/srv/a", &[("DB", "postgres://ann:new@db/test"), ("API_TOKEN", "new")]), first);
        for other in [
            place("/srv/b", &[("DB", "postgres://ann:old@db/test"), ("API_TOKEN", "old")]),
            place("/srv/a", &[("DB", "postgres://ann:old@db/live"), ("API_TOKEN", "old")]),
            place("/srv/a", &[("DB", "postgres://ann:old@db/test"), ("API_TOKEN", "old"), ("STAGE", "live")]),
        ] {
            assert_ne!(other, first);
        }
        assert_eq!(place_of(&McpServerSettings::default()), "", "as before");
    }
}
