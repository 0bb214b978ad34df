//! Which kinds of handshake a server understands.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;

use super::Owner;

/// How long a program may pass over the newer handshake before the older one is tried. One that has failed gets
/// twice the time, up to eight times: it may only start slowly.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Which handshake a server understands. Asking costs time where a legacy server is silent, so it is asked once.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    known: AtomicU8,
    failures: AtomicU8,
    /// It knows the newer handshake only.
    refuses_older: AtomicBool,
}

impl Handshake {
    const LEGACY: u8 = 1;
    const MODERN: u8 = 2;

    /// Which handshakes are tried, in this order. A client of an older revision has one of its own kind where the
    /// server knows both: only then the server can ask it something.
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
                // Some servers hang up on a question they do not know.
                ClientLifecycleMode::Initialize,
            ],
        }
    }

    /// Takes note of what a handshake has shown. That of the gateway's own session says which one the server prefers.
    pub(crate) fn remember(&self, owner: &Owner, modern: bool) {
        if owner.key.is_some() {
            self.refuses_older.fetch_or(modern && owner.has_handshake(), Ordering::Relaxed);
            return;
        }
        self.known.store(if modern { Self::MODERN } else { Self::LEGACY }, Ordering::Relaxed);
        self.refuses_older.store(false, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Whether the server may know the older handshake.
    pub(crate) fn may_know_older(&self) -> bool {
        !self.refuses_older.load(Ordering::Relaxed)
    }

    /// The server may have been replaced by one of another revision. The failure of a caller's session says nothing of
    /// that.
    pub(crate) fn forget(&self, owner: &Owner) {
        if owner.key.is_some() {
            return;
        }
        self.known.store(0, Ordering::Relaxed);
        let failures = self.failures.load(Ordering::Relaxed);
        self.failures.store(failures.saturating_add(1), Ordering::Relaxed);
    }

    /// How long an answer to the newer handshake is waited for; `None` where it is known to come.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let doubled = 1 << self.failures.load(Ordering::Relaxed).min(3);
        (self.known.load(Ordering::Relaxed) != Self::MODERN).then(|| DISCOVER_TIMEOUT * doubled)
    }
}
