//! Keys that administrators create, rotate and revoke. The copy in memory by which requests are authenticated follows
//! the store: changes of this gateway count at once, changes of other replicas within [`KEYS_POLL`].

mod rights;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::rights::{KeyRights, check_form};
use super::StartError;
use super::parts::{authenticator, component_error};
use sekisho_auth::{Authenticator, ManagedKeys, new_token};
use sekisho_broker::BrokerKeys;
use sekisho_config::{Config, Secret};
use sekisho_core::boot_clock;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::Outbound;
use sekisho_store::{MAX_KEYS, NewManagedKey, Store, StoreError, StoredKey};

pub use self::rights::KeyAdministrator;

/// The interval of looks for keys that another replica changed, and for open streams whose keys have ended.
const KEYS_POLL: Duration = Duration::from_secs(1);

/// How often the store gets the last uses of keys.
const USES_INTERVAL: Duration = Duration::from_secs(10);

/// How long the store has keys that expired or were revoked, so that their holders learn why they are refused.
const ENDED_KEYS_RETENTION: Duration = Duration::from_secs(90 * 24 * 3_600);

/// Maximum of a key's description, and of each pattern of tools, in bytes.
const MAX_TEXT: usize = 256;

/// Maximum roles, patterns of tools, and creators of a key.
const MAX_ENTRIES: usize = 100;

/// The content of a new key.
#[derive(Debug, Default)]
pub struct WantedKey {
    /// `None`: the key's id.
    pub person: Option<String>,
    pub description: String,
    pub roles: Vec<String>,
    /// `None`: the tenant of its administrator.
    pub tenant: Option<String>,
    /// `None`: all tools.
    pub tools: Option<Vec<String>>,
    pub expires: Option<Timestamp>,
}

/// A key that was checked, and its token.
#[derive(Debug)]
pub struct CheckedKey {
    key: NewManagedKey,
    token: Secret,
}

/// The keys by which callers are authenticated, and the keys that administrators manage.
#[derive(Debug)]
pub struct Keys {
    store: Store,
    authenticator: ArcSwap<Authenticator>,
    /// The managed keys of all authenticators.
    managed: Arc<ManagedKeys>,
    /// The keys of the gateway as an issuer.
    own: Arc<BrokerKeys>,
    /// Held while managed keys are changed or read from the store.
    changing: Mutex<()>,
}

impl Keys {
    /// The keys of a configuration, and of the store.
    /// Errors: the store cannot be read, or `auth` cannot be used.
    pub(super) async fn read(config: &Config, outbound: &Outbound, store: &Store) -> Result<Self, StartError> {
        let stored = store.keys().all().await.map_err(component_error("store"))?;
        let managed = Arc::new(ManagedKeys::new(&stored, config.cluster.enabled, store.clock()));
        let own = BrokerKeys::new(config, store.broker());
        let authenticator = authenticator(config, outbound, &managed, &own).await?;
        Ok(Self {
            store: store.clone(),
            authenticator: ArcSwap::from_pointee(authenticator),
            managed,
            own,
            changing: Mutex::default(),
        })
    }

    /// The keys of the gateway as an issuer.
    pub(super) fn own(&self) -> &Arc<BrokerKeys> {
        &self.own
    }

    /// The authenticator of current requests.
    pub fn authenticator(&self) -> Guard<Arc<Authenticator>> {
        self.authenticator.load()
    }

    /// The authenticator of another configuration, with the present one's knowledge of issuers.
    /// Errors: `auth` cannot be used.
    pub(super) async fn next_authenticator(
        &self,
        config: &Config,
        outbound: &Outbound,
    ) -> Result<Authenticator, StartError> {
        let mut next = authenticator(config, outbound, &self.managed, &self.own).await?;
        next.keep_keys_of(&self.authenticator());
        Ok(next)
    }

    /// Requests are authenticated by this authenticator from now on.
    pub(super) fn replace_authenticator(&self, next: Authenticator) {
        self.authenticator.store(Arc::new(next));
    }

    /// The tenant of the managed key of this id, if requests are authenticated by it.
    pub(super) fn tenant_of_key(&self, id: &str) -> Option<Arc<str>> {
        self.managed.get(id).map(|key| Arc::clone(&key.caller.tenant))
    }

    /// Checks a new key with this id.
    /// Errors: `invalid_request`; `denied` for rights that the administrator does not have.
    pub fn check(&self, by: KeyAdministrator<'_>, id: &str, key: WantedKey) -> Result<CheckedKey, CallError> {
        let (token, sha256) = new_token(id);
        let person = key.person.unwrap_or_else(|| id.to_owned());
        let key = NewManagedKey {
            id: id.to_owned(),
            tenant: key.tenant.unwrap_or_else(|| by.caller.tenant.to_string()),
            creators: by.creators_with(&person, &[])?,
            person,
            description: key.description,
            roles: key.roles,
            tools: key.tools,
            sha256,
            created_by: format!("{}/{}", by.caller.tenant, by.caller.id),
            expires: key.expires,
        };
        check_form(&key, self.store.now())?;
        let rights =
            KeyRights { tenant: &key.tenant, roles: &key.roles, tools: key.tools.as_deref(), expires: key.expires };
        self.check_rights(by, rights)?;
        Ok(CheckedKey { key, token })
    }

    /// Stores a key, which is accepted from now on. The token is known to nobody else.
    /// Errors: `overloaded` when there are too many, or the store cannot be written.
    pub async fn create(&self, CheckedKey { key, token }: CheckedKey) -> Result<(StoredKey, Secret), CallError> {
        let _changing = self.changing.lock().await;
        let Some(stored) = self.store.keys().add(&key).await? else {
            let message =
                format!("there are {MAX_KEYS} keys, which is the maximum; those that ended are removed 90 days later");
            return Err(CallError::new(ErrorCode::Overloaded, message));
        };
        self.managed.put(&stored);
        Ok((stored, token))
    }

    /// A key that this administrator may see.
    /// Errors: `not_found`; `overloaded` when the store cannot be read.
    pub async fn find(&self, by: KeyAdministrator<'_>, id: &str) -> Result<StoredKey, CallError> {
        let found = self.store.keys().get(id).await?;
        let tenant = Self::tenant_of(by);
        let found = found.filter(|key| tenant.is_none_or(|tenant| tenant == key.tenant));
        found.map(|key| self.with_last_use(key)).ok_or_else(|| unknown(id))
    }

    /// At most so many keys that this administrator may see, after the one with this id, in the order of their ids.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn list(&self, by: KeyAdministrator<'_>, after: &str, max: usize) -> Result<Vec<StoredKey>, CallError> {
        let keys = self.store.keys().after(after, Self::tenant_of(by), max).await?;
        Ok(keys.into_iter().map(|key| self.with_last_use(key)).collect())
    }

    /// Checks that the administrator may have a token of this key.
    /// Errors: `denied`; `invalid_request` for a key that has ended.
    pub fn check_rotation(&self, by: KeyAdministrator<'_>, key: &StoredKey) -> Result<(), CallError> {
        if key.has_ended(self.store.now()) {
            return Err(CallError::invalid(
                "this key was revoked or has expired, and gets no other token; create a new one",
            ));
        }
        let rights =
            KeyRights { tenant: &key.tenant, roles: &key.roles, tools: key.tools.as_deref(), expires: key.expires };
        self.check_rights(by, rights)
    }

    /// Gives a key, as it was read, another token, which its administrator gets; the token before is accepted for
    /// `overlap` more.
    /// Errors: `invalid_request` for a key that was rotated or revoked in between, or that too many persons rotated;
    /// `overloaded` when the store cannot be written.
    pub async fn rotate(
        &self,
        by: KeyAdministrator<'_>,
        key: &StoredKey,
        overlap: Duration,
    ) -> Result<(StoredKey, Secret), CallError> {
        let (token, sha256) = new_token(&key.id);
        let creators = by.creators_with(&key.person, &key.creators)?;
        let _changing = self.changing.lock().await;
        let rotated = self.store.keys().rotate(key, &sha256, &creators, overlap).await?;
        let stored = rotated
            .ok_or_else(|| CallError::invalid("another request has rotated or revoked this key; look at it again"))?;
        self.managed.put(&stored);
        Ok((self.with_last_use(stored), token))
    }

    /// Revokes a key: it is refused from now on here, and within two seconds at other replicas.
    /// Errors: `not_found`; `overloaded` when the store cannot be written.
    pub async fn revoke(&self, id: &str) -> Result<StoredKey, CallError> {
        let _changing = self.changing.lock().await;
        let stored = self.store.keys().revoke(id).await?.ok_or_else(|| unknown(id))?;
        self.managed.put(&stored);
        Ok(self.with_last_use(stored))
    }

    /// Returns when the key of a caller was revoked or has expired; never for a caller with other credentials. For
    /// streams that wait for events long after their request was accepted.
    pub fn ended(&self, caller: &Caller) -> impl Future<Output = ()> + Send + use<> {
        let (keys, id) = (Arc::clone(&self.managed), caller.key_id.clone());
        async move {
            let Some(id) = id else { return std::future::pending().await };
            while keys.is_active(&id) {
                tokio::time::sleep(KEYS_POLL).await;
            }
        }
    }

    /// Looks every second whether another replica changed keys, and takes them over.
    pub(super) async fn follow(self: Arc<Self>, closing: CancellationToken) {
        let mut ticks = tokio::time::interval(KEYS_POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Every change since the start read the store is taken over once more.
        let mut known = None;
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            // Changes of this gateway must not be overwritten by the state that was read before.
            let _changing = self.changing.lock().await;
            // The component `cluster` says when the store cannot be read.
            if let Err(error) = self.adopt(&mut known).await {
                tracing::debug!(%error, "managed keys cannot be read");
            }
        }
    }

    async fn adopt(&self, known: &mut Option<i64>) -> Result<(), StoreError> {
        let asked = boot_clock::now();
        let version = self.store.keys().version().await?;
        if *known == Some(version) {
            self.managed.confirm(asked);
            return Ok(());
        }
        self.managed.replace(&self.store.keys().all().await?, asked);
        *known = Some(version);
        Ok(())
    }

    /// Writes the last uses of keys at intervals.
    pub(super) async fn keep_uses(self: Arc<Self>, closing: CancellationToken) {
        let mut ticks = tokio::time::interval(USES_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            self.store_uses().await;
        }
    }

    /// Writes the last uses of keys. Uses that cannot be written are tried again.
    pub(super) async fn store_uses(&self) {
        let mut uses = self.managed.new_uses();
        if uses.is_empty() {
            return;
        }
        // In one order at all replicas: they wait for each other's rows.
        uses.sort();
        match self.store.keys().record_uses(&uses).await {
            Ok(()) => self.managed.uses_stored(&uses),
            Err(error) => tracing::warn!(%error, "the last uses of keys cannot be stored"),
        }
    }

    /// Removes keys that ended long ago.
    pub(super) async fn forget_ended(&self) {
        if self.managed.is_empty() {
            return;
        }
        if let Err(error) = self.store.keys().forget_ended_for(ENDED_KEYS_RETENTION).await {
            tracing::warn!(%error, "cannot remove keys that ended long ago from the store");
        }
    }

    /// The store has the uses of the last seconds later.
    fn with_last_use(&self, mut key: StoredKey) -> StoredKey {
        let used = self.managed.get(&key.id).and_then(|key| key.last_used());
        key.last_used = key.last_used.max(used);
        key
    }
}

fn unknown(id: &str) -> CallError {
    let shown: String = id.chars().take(MAX_TEXT).collect();
    CallError::new(ErrorCode::NotFound, format!("there is no key {shown:?}: `sekisho keys list` lists them"))
}
