//! The kinds of handshake that a server supports.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;

use super::Owner;

/// How long a process may leave the newer handshake unanswered before the older one is tried. Doubled after each
/// failure, up to eight times this value, because the process may start slowly.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The handshake that a server supports. Probed once, because a legacy server may not answer the probe until its
/// timeout.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    known: AtomicU8,
    failures: AtomicU8,
    /// Only the newer handshake.
    refuses_older: AtomicBool,
}

impl Handshake {
    const LEGACY: u8 = 1;
    const MODERN: u8 = 2;

    /// The handshakes to try, in this order. For a client of an older revision, the older handshake is used if the server
    /// supports both, because only then can the server send requests to the client.
    pub(crate) fn modes(&self, owner: &Owner) -> Vec<ClientLifecycleMode> {
        let discover = || vec![ProtocolVersion::LATEST];
        match self.known.load(Ordering::Relaxed) {
            Self::LEGACY => vec![ClientLifecycleMode::Initialize],
            Self::MODERN if owner.has_handshake() && self.may_know_older() => {
                vec![ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions: discover() }]
            }
            Self::MODERN => vec![ClientLifecycleMode::Discover { preferred_versions: discover() }],
            _ => vec![
                ClientLifecycleMode::Auto {
                    preferred_versions: discover(),
                    legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
                },
                // Some servers disconnect when they receive an unknown request.
                ClientLifecycleMode::Initialize,
            ],
        }
    }

    /// Records the result of a handshake. That of the gateway's own session determines which one the server prefers.
    pub(crate) fn remember(&self, owner: &Owner, modern: bool) {
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
        !self.refuses_older.load(Ordering::Relaxed)
    }

    /// Resets the state: the server may have been replaced by one of another revision. Not done when only a caller's
    /// session fails.
    pub(crate) fn forget(&self, owner: &Owner) {
        if owner.key.is_some() {
            return;
        }
        self.known.store(0, Ordering::Relaxed);
        let failures = self.failures.load(Ordering::Relaxed);
        self.failures.store(failures.saturating_add(1), Ordering::Relaxed);
    }

    /// Timeout for an answer to the newer handshake; `None` if the server is known to answer.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let doubled = 1 << self.failures.load(Ordering::Relaxed).min(3);
        (self.known.load(Ordering::Relaxed) != Self::MODERN).then(|| DISCOVER_TIMEOUT * doubled)
    }
}
