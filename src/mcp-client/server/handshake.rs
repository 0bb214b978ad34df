//! The kinds of handshake that a server supports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rmcp::model::ProtocolVersion;

use super::session_owner::SessionOwner;
use crate::transport::connection::Connection;
use crate::transport::handshake::{HandshakeError, Introduction};
use sekisho_config::McpRevision;

/// How long a process may leave the newer handshake unanswered before the older one is tried: servers of older revisions
/// may ignore it. Doubled after each failure, because the process may start slowly, up to [`MAX_DISCOVER_TIMEOUT`].
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The same for a server over HTTP.
const MAX_DISCOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// A way to begin a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The older handshake.
    Initialize,
    /// The newer handshake.
    Discover,
    /// The newer handshake, and over the same connection the older one if the server does not know the newer.
    Auto,
}

/// The handshake that a server supports. Probed once, because a legacy server may not answer the probe until its
/// timeout.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    /// The configured revision.
    pinned: Option<ProtocolVersion>,
    known: AtomicU8,
    failures: AtomicU8,
    /// Only the newer handshake.
    refuses_older: AtomicBool,
}

impl Handshake {
    const LEGACY: u8 = 1;
    const MODERN: u8 = 2;

    pub(crate) fn new(pinned: Option<McpRevision>) -> Self {
        let pinned = pinned.map(|revision| match revision {
            McpRevision::V2024_11_05 => ProtocolVersion::V_2024_11_05,
            McpRevision::V2025_03_26 => ProtocolVersion::V_2025_03_26,
            McpRevision::V2025_06_18 => ProtocolVersion::V_2025_06_18,
            McpRevision::V2025_11_25 => ProtocolVersion::V_2025_11_25,
            McpRevision::V2026_07_28 => ProtocolVersion::V_2026_07_28,
        });
        Self { pinned, ..Self::default() }
    }

    /// The handshakes to try, in this order. For a client of an older revision, the older handshake is used if the server
    /// supports both, because only then can the server send requests to the client.
    pub(crate) fn modes(&self, owner: &SessionOwner) -> &'static [Mode] {
        if let Some(pinned) = &self.pinned {
            return if pinned.has_initialize() { &[Mode::Initialize] } else { &[Mode::Discover] };
        }
        match self.known.load(Ordering::Relaxed) {
            Self::LEGACY => &[Mode::Initialize],
            Self::MODERN if owner.has_handshake() && self.may_know_older() => &[Mode::Initialize, Mode::Discover],
            Self::MODERN => &[Mode::Discover],
            // Some servers disconnect when they receive an unknown request.
            _ => &[Mode::Auto, Mode::Initialize],
        }
    }

    pub(crate) async fn begin(
        &self,
        connection: &Arc<Connection>,
        mode: Mode,
        owner: &SessionOwner,
    ) -> Result<(), HandshakeError> {
        self.begin_as(connection, mode, owner).await?;
        let spoken = connection.info().map(|info| &info.protocol_version);
        match (&self.pinned, spoken) {
            (Some(pinned), Some(spoken)) if pinned != spoken => {
                Err(HandshakeError::OtherRevision { spoken: spoken.clone(), pinned: pinned.clone() })
            }
            _ => Ok(()),
        }
    }

    async fn begin_as(
        &self,
        connection: &Arc<Connection>,
        mode: Mode,
        owner: &SessionOwner,
    ) -> Result<(), HandshakeError> {
        let client = owner.client.as_ref().filter(|client| client.is_initialized());
        let introduction = Introduction {
            revision: self.pinned.clone().unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE),
            client_capabilities: client.map(|client| client.capabilities().clone()),
        };
        match mode {
            Mode::Initialize => connection.initialize(introduction).await,
            Mode::Discover => connection.discover().await,
            Mode::Auto => {
                let within = match connection.is_streamable_http() {
                    true => MAX_DISCOVER_TIMEOUT,
                    false => self.discover_timeout(),
                };
                match tokio::time::timeout(within, connection.discover()).await {
                    Ok(Err(error)) if error.is_of_older_server() => connection.initialize(introduction).await,
                    Ok(discovered) => discovered,
                    Err(_) => connection.initialize(introduction).await,
                }
            }
        }
    }

    /// Records the result of a handshake. The handshake of the gateway's own session determines which one the server
    /// prefers.
    pub(crate) fn remember(&self, owner: &SessionOwner, modern: bool) {
        if owner.key.is_some() {
            self.refuses_older.fetch_or(modern && owner.has_handshake(), Ordering::Relaxed);
            return;
        }
        self.known.store(if modern { Self::MODERN } else { Self::LEGACY }, Ordering::Relaxed);
        self.refuses_older.store(false, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Whether the server may support the older handshake.
    pub(crate) fn may_know_older(&self) -> bool {
        self.pinned.is_none() && !self.refuses_older.load(Ordering::Relaxed)
    }

    /// Resets the state: the server may have been replaced by one of another revision. Not done when only a caller's
    /// session fails.
    pub(crate) fn forget(&self, owner: &SessionOwner) {
        if owner.key.is_some() {
            return;
        }
        self.known.store(0, Ordering::Relaxed);
        let failures = self.failures.load(Ordering::Relaxed);
        self.failures.store(failures.saturating_add(1), Ordering::Relaxed);
    }

    fn discover_timeout(&self) -> Duration {
        let doubled = 1 << self.failures.load(Ordering::Relaxed).min(3);
        (DISCOVER_TIMEOUT * doubled).min(MAX_DISCOVER_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_revision_has_one_handshake_for_all_owners() {
        for (revision, expected) in
            [(McpRevision::V2025_06_18, Mode::Initialize), (McpRevision::V2026_07_28, Mode::Discover)]
        {
            let handshake = Handshake::new(Some(revision));
            assert_eq!(handshake.modes(&SessionOwner::default()), [expected]);
            handshake.remember(&SessionOwner::default(), expected == Mode::Discover);
            assert_eq!(handshake.modes(&SessionOwner::default()), [expected]);
            assert!(!handshake.may_know_older());
        }
    }

    #[test]
    fn a_slow_process_gets_more_time_after_each_failure() {
        let handshake = Handshake::default();
        let seconds = || handshake.discover_timeout().as_secs();
        let mut given = vec![seconds()];
        for _ in 0..4 {
            handshake.forget(&SessionOwner::default());
            given.push(seconds());
        }
        assert_eq!(given, [2, 4, 8, 10, 10]);
        handshake.remember(&SessionOwner::default(), true);
        assert_eq!((seconds(), handshake.modes(&SessionOwner::default())), (2, &[Mode::Discover][..]));
    }
}
