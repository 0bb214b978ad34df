//! Keys that administrators manage: a copy in memory of the keys in the store. Requests are authenticated only by the
//! copy.
//!
//! Where replicas change keys too, the copy counts for [`MAX_AGE`] after the database said that it is current: a key that was
//! revoked elsewhere is not accepted for longer while the database is away.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::keys::from_hex;
use super::{Refusal, SecretDigest, UNKNOWN_KEY, identity};
use sekisho_config::Secret;
use sekisho_core::boot_clock;
use sekisho_core::call::Caller;
use sekisho_core::database_clock::{DatabaseClock, DatabaseTime};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::tool_scope::ToolScope;
use sekisho_core::visible_text::is_visible;
use sekisho_store::StoredKey;

/// How long the copy counts without an answer of the database.
pub const MAX_AGE: Duration = Duration::from_secs(60);

const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The managed keys of a gateway, by their ids.
pub struct ManagedKeys {
    known: ArcSwap<Known>,
    /// Held while the copy is changed.
    changing: Mutex<()>,
    /// When the database last said that the copy is current, in milliseconds of the [`boot_clock`]. `None`: nobody else changes
    /// keys.
    confirmed: Option<AtomicU64>,
    /// The clock by which they expire.
    clock: Arc<DatabaseClock>,
}

type Known = HashMap<Arc<str>, Arc<ManagedKey>>;

/// A key, with its caller.
pub struct ManagedKey {
    pub caller: Arc<Caller>,
    pub expires: Option<Timestamp>,
    digest: SecretDigest,
    /// The digest of the token before the last rotation, and until when it is accepted.
    previous: Option<(SecretDigest, Timestamp)>,
    is_revoked: bool,
    use_of: Arc<LastUse>,
}

/// When a key was used last, in microseconds since 1970; zero for never.
#[derive(Default)]
struct LastUse {
    used: AtomicI64,
    /// As the store has it.
    stored: AtomicI64,
}

/// A token in the form of a managed key.
#[derive(Clone, Copy)]
pub(super) struct ManagedToken<'a> {
    pub(super) id: &'a str,
}

impl<'a> ManagedToken<'a> {
    const BEGINNING: &'static str = "sk_";
    const SECRET_BYTES: usize = 32;
    const ID_BYTES: usize = 8;

    /// `None` for a text of another form.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(Self::BEGINNING)?.split_once('_')?;
        let has_form = |text: &str, bytes| text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (has_form(id, Self::ID_BYTES) && has_form(secret, Self::SECRET_BYTES)).then_some(Self { id })
    }
}

/// A new id of a key.
pub fn new_key_id() -> String {
    hex::encode(rand::random::<[u8; ManagedToken::ID_BYTES]>())
}

/// A new token of a key, with 256 random bits, and its SHA-256 in hex.
pub fn new_token(id: &str) -> (Secret, Secret) {
    let secret = hex::encode(rand::random::<[u8; ManagedToken::SECRET_BYTES]>());
    let token = format!("{}{id}_{secret}", ManagedToken::BEGINNING);
    let digest = hex::encode(Sha256::digest(&token));
    (Secret::new(token), Secret::new(digest))
}

/// Errors: values that no caller may have, and characters that a person does not see: with them one name reads as
/// another.
pub fn check_identity(person: &str, tenant: &str, roles: &[String]) -> Result<(), &'static str> {
    identity::checked(Caller::new(person, tenant, roles.to_vec()))?;
    match [person, tenant].into_iter().chain(roles.iter().map(String::as_str)).all(is_visible) {
        true => Ok(()),
        false => {
            Err("person, tenant and roles may not have characters that are invisible or change the direction of text")
        }
    }
}

impl ManagedKeys {
    /// `is_shared`: other replicas change them too, and it must be [confirmed](Self::confirm) that the copy is current.
    pub fn new(stored: &[StoredKey], is_shared: bool, clock: &Arc<DatabaseClock>) -> Self {
        let keys = Self {
            known: ArcSwap::default(),
            changing: Mutex::new(()),
            confirmed: is_shared.then(|| AtomicU64::new(0)),
            clock: Arc::clone(clock),
        };
        keys.replace(stored, boot_clock::now());
        keys
    }

    pub fn is_empty(&self) -> bool {
        self.known.load().is_empty()
    }

    pub fn get(&self, id: &str) -> Option<Arc<ManagedKey>> {
        self.known.load().get(id).cloned()
    }

    /// Whether the key with this id is known not to be revoked, and has not expired.
    pub fn is_active(&self, id: &str) -> bool {
        let now = self.clock.now();
        let is_active = |key: Arc<ManagedKey>| !key.is_revoked && key.expires.is_none_or(|expires| expires > *now);
        self.check_age().is_ok() && self.get(id).is_some_and(is_active)
    }

    /// Takes over all keys as they were in the store at `asked`, a moment of the [`boot_clock`] before they were read.
    pub fn replace(&self, stored: &[StoredKey], asked: Duration) {
        let _changing = self.changing.lock();
        let before = self.known.load();
        self.known.store(Arc::new(stored.iter().filter_map(|key| known_of(key, &before)).collect()));
        self.confirm(asked);
    }

    /// Takes over one key that this gateway changed.
    pub fn put(&self, stored: &StoredKey) {
        let _changing = self.changing.lock();
        let mut known = Known::clone(&self.known.load());
        let entry = known_of(stored, &known);
        known.remove(&*stored.id);
        known.extend(entry);
        self.known.store(Arc::new(known));
    }

    /// The database said that the copy was current at `asked`, a moment of the [`boot_clock`].
    pub fn confirm(&self, asked: Duration) {
        if let Some(confirmed) = &self.confirmed {
            confirmed.fetch_max(millis(asked), Ordering::AcqRel);
        }
    }

    /// The caller of a token, which counts as a use of its key.
    /// Errors: `unauthenticated` with the reason; `overloaded` when it is not known whether the key was revoked.
    pub(super) fn recognize(&self, id: &str, digest: &SecretDigest) -> Result<Arc<Caller>, CallError> {
        let now = self.clock.now();
        let key = self.accepted(id, digest, now)?;
        key.use_of.used.fetch_max(now.as_microsecond(), Ordering::Relaxed);
        Ok(Arc::clone(&key.caller))
    }

    /// The caller of a token that was accepted before; `None` once it is no longer.
    pub(super) fn still_accepted(&self, id: &str, digest: &SecretDigest) -> Option<Arc<Caller>> {
        self.accepted(id, digest, self.clock.now()).ok().map(|key| Arc::clone(&key.caller))
    }

    /// The keys that were used since the store had their uses.
    pub fn new_uses(&self) -> Vec<(String, DatabaseTime)> {
        let known = self.known.load();
        let uses = known.iter().filter_map(|(id, key)| {
            let (used, stored) = (key.use_of.used.load(Ordering::Relaxed), key.use_of.stored.load(Ordering::Relaxed));
            (used > stored).then(|| Some((id.to_string(), moment(used)?)))?
        });
        uses.collect()
    }

    /// The store has these uses.
    pub fn uses_stored(&self, uses: &[(String, DatabaseTime)]) {
        let known = self.known.load();
        for (id, used) in uses {
            if let Some(key) = known.get(id.as_str()) {
                key.use_of.stored.fetch_max(used.as_microsecond(), Ordering::Relaxed);
            }
        }
    }

    fn accepted(&self, id: &str, digest: &SecretDigest, now: DatabaseTime) -> Result<Arc<ManagedKey>, CallError> {
        self.check_age()?;
        let key = self.get(id).ok_or(UNKNOWN_KEY)?;
        key.check(digest, now)?;
        Ok(key)
    }

    fn check_age(&self) -> Result<(), CallError> {
        let Some(confirmed) = &self.confirmed else { return Ok(()) };
        let age = millis(boot_clock::now()).saturating_sub(confirmed.load(Ordering::Acquire));
        if age <= millis(MAX_AGE) {
            return Ok(());
        }
        let message =
            "the gateway cannot see whether this key was revoked: its database is not available; try again later";
        Err(CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER))
    }
}

impl ManagedKey {
    /// Only who knows a token learns its state.
    fn check(&self, digest: &SecretDigest, now: DatabaseTime) -> Result<(), Refusal> {
        let is = |known: &SecretDigest| bool::from(known.ct_eq(digest));
        let until = match &self.previous {
            _ if is(&self.digest) => None,
            Some((previous, until)) if is(previous) => Some(*until),
            _ => return Err(UNKNOWN_KEY),
        };
        if self.is_revoked {
            Err(Refusal("this API key was revoked; ask the operators of this service for another"))
        } else if self.expires.is_some_and(|expires| expires <= *now) {
            Err(Refusal("this API key has expired; ask the operators of this service for another"))
        } else if until.is_some_and(|until| until <= *now) {
            Err(Refusal("this API key was rotated, and this token of it is no longer accepted; use the new one"))
        } else {
            Ok(())
        }
    }

    /// When it was used last at this gateway.
    pub fn last_used(&self) -> Option<Timestamp> {
        let used = Some(self.use_of.used.load(Ordering::Relaxed)).filter(|used| *used > 0)?;
        moment(used).map(|used| *used)
    }
}

impl fmt::Debug for ManagedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ManagedKey").field(&self.caller).finish()
    }
}

impl fmt::Debug for ManagedKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ManagedKeys({})", self.known.load().len())
    }
}

/// The key, with the known part of its use; `None`, and a line in the log, if no caller can be like this.
fn known_of(stored: &StoredKey, before: &Known) -> Option<(Arc<str>, Arc<ManagedKey>)> {
    match read(stored, before) {
        Ok(key) => Some((Arc::clone(key.caller.key_id.as_ref()?), Arc::new(key))),
        Err(problem) => {
            tracing::error!(key = stored.id, problem, "a managed key of the store cannot be used");
            None
        }
    }
}

fn read(stored: &StoredKey, before: &Known) -> Result<ManagedKey, &'static str> {
    let digest = |text: &Secret| from_hex(text.expose()).ok_or("its SHA-256 is not 64 hex digits");
    let tools = stored.tools.clone().map(|tools| ToolScope::default().narrowed(tools)).unwrap_or_default();
    let caller = Caller::new(&stored.person, &stored.tenant, stored.roles.clone());
    let caller = caller.with_managed_key(stored.id.as_str().into(), tools).created_by(stored.creators.clone());
    let caller = identity::checked(caller)?;
    let before = before.get(&*stored.id);
    let caller = before.map(|key| &key.caller).filter(|known| **known == caller).unwrap_or(&caller);
    Ok(ManagedKey {
        caller: Arc::clone(caller),
        expires: stored.expires,
        digest: digest(&stored.sha256)?,
        previous: match &stored.previous {
            Some((previous, until)) => Some((digest(previous)?, *until)),
            None => None,
        },
        is_revoked: stored.revoked.is_some(),
        use_of: before.map(|key| Arc::clone(&key.use_of)).unwrap_or_default(),
    })
}

/// A moment that was one of the database's clock.
fn moment(microsecond: i64) -> Option<DatabaseTime> {
    Timestamp::from_microsecond(microsecond).ok().map(DatabaseTime::of_database)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
