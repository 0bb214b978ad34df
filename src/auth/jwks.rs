//! The keys of an issuer (JSON Web Key Set, RFC 7517), and when they are fetched again.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use super::discovery::Discovery;
use super::issuer_client::{IssuerClient, IssuerError, IssuerFailure, IssuerRequest};
use sekisho_outbound::Trust;

/// Where an issuer's keys are.
pub(super) enum KeySource {
    File(PathBuf),
    Url(Url, Arc<dyn IssuerClient>),
    /// At the address in the issuer's metadata.
    Discovered(Arc<Discovery>),
}

impl KeySource {
    async fn fetch(&self) -> Result<Vec<u8>, IssuerError> {
        match self {
            Self::File(file) => tokio::fs::read(file).await.map_err(|error| IssuerError {
                kind: IssuerFailure::NoConnection,
                cause: format!("{}: {error}", file.display()),
            }),
            Self::Url(url, client) => client.ask(IssuerRequest::get(url.clone(), Trust::Operator)).await,
            Self::Discovered(discovery) => discovery.keys().await,
        }
    }
}

/// Why a token was not checked, for its sender.
pub(super) fn message(failure: IssuerFailure) -> &'static str {
    match failure {
        IssuerFailure::NoConnection => {
            "the keys of the token's issuer could not be fetched: connection failed; \
             the token was not checked; try again in a moment"
        }
        IssuerFailure::NoAnswer => {
            "the keys of the token's issuer could not be fetched: no response in time; \
             the token was not checked; try again in a moment"
        }
        IssuerFailure::WrongAnswer => {
            "the keys of the token's issuer could not be fetched: the response is not a key set; \
             the token was not checked; try again in a moment"
        }
    }
}

/// The current keys, shared by all calls.
pub(super) struct IssuerKeys {
    source: KeySource,
    current: ArcSwap<KeySet>,
    /// Held during a fetch, so that one fetch serves all.
    fetches: Mutex<Fetches>,
}

/// The result of fetching.
#[derive(Default)]
struct Fetches {
    /// No fetch before this time; `None` if there was none yet.
    next: Option<Instant>,
    /// Consecutive failures.
    failures: u32,
    /// The error of the last fetch, if it failed.
    failure: Option<IssuerFailure>,
}

impl Fetches {
    fn may_begin(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    fn record_success(&mut self) {
        *self = Self { next: Some(Instant::now() + BETWEEN_FETCHES), failures: 0, failure: None };
    }

    fn failed(&mut self, failure: IssuerFailure) {
        let doubled = FIRST_RETRY.saturating_mul(1 << self.failures.min(10));
        self.next = Some(Instant::now() + doubled.min(MAX_RETRY_PAUSE));
        self.failures = self.failures.saturating_add(1);
        self.failure = Some(failure);
    }
}

/// One state of the issuer's keys.
#[derive(Default)]
pub(super) struct KeySet {
    keys: Vec<IssuerKey>,
    /// Different for every set with other keys, so that cached tokens end with their set.
    pub(super) generation: u64,
    text: Vec<u8>,
    fetched: Option<Instant>,
}

struct IssuerKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Minimum interval of fetches for tokens with an unknown key: callers can neither flood the issuer nor delay a new
/// key for longer.
const BETWEEN_FETCHES: Duration = Duration::from_secs(10);

/// Pause after a failed fetch; doubled with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Maximum of this pause.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Keys of this age are fetched again without a request, so that a withdrawn key expires.
const OLD: Duration = Duration::from_secs(15 * 60);

/// Maximum time that a token with an unknown key waits for the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

const MAX_SET_BYTES: usize = 1 << 20;

impl IssuerKeys {
    pub(super) fn new(source: KeySource) -> Self {
        Self { source, current: ArcSwap::from_pointee(KeySet::default()), fetches: Mutex::default() }
    }

    /// The current keys; old ones are refreshed in the background.
    pub(super) fn current(self: &Arc<Self>) -> Arc<KeySet> {
        let set = self.current.load_full();
        if set.fetched.is_some_and(|fetched| fetched.elapsed() >= OLD) && self.may_fetch() {
            let keys = self.clone();
            tokio::spawn(async move { keys.fetch().await });
        }
        set
    }

    /// The keys after a fetch, unless there was one recently, and the last error.
    pub(super) async fn renewed(self: &Arc<Self>) -> (Arc<KeySet>, Option<IssuerFailure>) {
        // A task of its own: a caller who disconnects must not cancel the fetch that others wait for.
        let keys = self.clone();
        let _ = tokio::spawn(async move { keys.fetch().await }).await;
        let failure = self.fetches.lock().await.failure;
        (self.current.load_full(), failure)
    }

    /// Fetches and replaces the keys. On an error the current keys stay.
    /// Errors: the error, which is logged.
    pub(super) async fn fetch(&self) -> Result<(), String> {
        let mut fetches = self.fetches.lock().await;
        if !fetches.may_begin() {
            return Ok(());
        }
        let fetched = timeout(FETCH_TIMEOUT, self.source.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err(IssuerError::late(FETCH_TIMEOUT)));
        match fetched.and_then(|text| KeySet::parse(text, &self.current.load())) {
            Ok(set) => {
                tracing::info!(keys = set.keys.len(), "the token issuer's keys were fetched");
                self.current.store(Arc::new(set));
                fetches.record_success();
                Ok(())
            }
            Err(IssuerError { kind, cause }) => {
                tracing::warn!(cause, "the token issuer's keys could not be fetched; the current ones stay");
                fetches.failed(kind);
                Err(cause)
            }
        }
    }

    fn may_fetch(&self) -> bool {
        self.fetches.try_lock().is_ok_and(|fetches| fetches.may_begin())
    }
}

impl KeySet {
    /// The one key that may have signed a token with this header. Without an id there must be only one.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let mut fitting = self
            .keys
            .iter()
            .filter(|key| key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(&first.key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn parse(text: Vec<u8>, before: &Self) -> Result<Self, IssuerError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        if text.len() > MAX_SET_BYTES {
            let problem = format!("the key set has {} bytes, {MAX_SET_BYTES} are allowed", text.len());
            return Err(IssuerError::wrong(problem));
        }
        let document: Document = serde_json::from_slice(&text)
            .map_err(|error| IssuerError::wrong(format!("not a JSON Web Key Set: {error}")))?;
        let generation = if text == before.text { before.generation } else { before.generation + 1 };
        // A key of an unsupported kind must not exclude the others.
        let keys = document.keys.into_iter().filter_map(IssuerKey::of).collect();
        Ok(Self { keys, generation, text, fetched: Some(Instant::now()) })
    }
}

impl IssuerKey {
    /// `None` for a key that is not for signatures, or of an unsupported kind.
    fn of(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let for_signing = common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let only = match common.key_algorithm {
            Some(algorithm) => Some(Algorithm::from_str(&algorithm.to_string()).ok()?),
            None => None,
        };
        let mut algorithms = possible_algorithms(&jwk.algorithm);
        algorithms.retain(|algorithm| only.is_none_or(|only| only == *algorithm));
        if !for_signing || algorithms.is_empty() {
            return None;
        }
        Some(Self { id: common.key_id.clone(), algorithms, key: DecodingKey::from_jwk(&jwk).ok()? })
    }
}

/// The algorithms of a key: asymmetric only, and for a curve the matching one.
fn possible_algorithms(key: &AlgorithmParameters) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match key {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => vec![ES256],
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P384 => vec![ES384],
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => vec![EdDSA],
        _ => Vec::new(),
    }
}
