//! Sessions in the store: their values, sealed, and a mark for each session that has read text of strangers. Both are
//! written in the background. Another replica, and the gateway after a restart, goes on with the values; of a session whose values
//! are not stored it knows by the mark that they are lost.

use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::sessions::{FlowSessions, SharedSession};
use sekisho_config::Config;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::Caller;
use sekisho_flow::SessionValues;
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{FlowSession as StoredKey, FlowSessionStore, Store, StoreError};

/// Sessions that wait to be marked. A further one is marked with its next change.
const MAX_MARKS: usize = 10_000;

/// How long a session is known, after its last change.
const SESSION_TTL: Duration = Duration::from_secs(7 * 86_400);

/// How often values are written at once that another replica writes at the same time.
const ATTEMPTS: u32 = 3;

/// The kind of the sealed values.
const SEALED_KIND: &str = "flow_values";

#[derive(Debug)]
pub(super) struct StoredSessions {
    store: FlowSessionStore,
    sealer: Sealer,
    marks: Mutex<BoundedMap<StoredKey, ()>>,
}

/// The stored values of a session.
#[derive(Debug)]
pub(super) enum Stored {
    /// There are none that are not known yet.
    Nothing,
    Values(SessionValues),
    /// They cannot be opened.
    Damaged,
}

impl StoredSessions {
    pub(super) fn new(config: &Config, store: &Store) -> Self {
        let marks = Mutex::new(BoundedMap::new(MAX_MARKS));
        Self { store: store.flow_sessions(), sealer: Sealer::new(config), marks }
    }

    /// Whether values can be stored.
    pub(super) fn can_seal(&self) -> bool {
        self.sealer.is_available()
    }

    /// Marks a session that has read text of strangers. False: too many wait.
    pub(super) fn mark(&self, caller: &Caller, id: &str) -> bool {
        self.marks.lock().try_insert(key_of(&caller.key, id), ()).is_ok()
    }

    /// Adds its stored values to a session. Where the store does not answer, the session counts as one that has read text of
    /// strangers.
    pub(super) async fn look_up(&self, caller: &Caller, id: &str, session: &SharedSession) {
        let key = key_of(&caller.key, id);
        // First: it leaves the marks once the store has it.
        let waits = self.marks.lock().contains(&key);
        let is_marked = self.read(&key, session).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what a session has read cannot be looked up: it counts as one that has read text of strangers");
            true
        });
        session.lock().set_checked(is_marked || waits);
    }

    /// Adds the stored values to the session; whether it is marked.
    async fn read(&self, key: &StoredKey, session: &SharedSession) -> Result<bool, StoreError> {
        let known = session.lock().revision();
        let found = self.store.read(key, known).await?;
        let stored = found.sealed.map_or(Stored::Nothing, |sealed| self.open(key, &sealed));
        session.lock().add_stored(found.revision, stored);
        Ok(found.is_marked)
    }

    fn open(&self, key: &StoredKey, sealed: &str) -> Stored {
        let opened = self.sealer.open(sealed_for(key, &owner_of(key)), sealed).map_err(|error| error.to_string());
        // The message of serde would have a part of the values.
        let read = |text: Vec<u8>| {
            serde_json::from_slice::<SessionValues>(&text).map_err(|_| "they have another form".to_owned())
        };
        match opened.and_then(read) {
            Ok(values) => Stored::Values(values),
            Err(error) => {
                tracing::warn!(
                    error,
                    "the values of a session cannot be opened: it counts as one that has read text of strangers"
                );
                Stored::Damaged
            }
        }
    }

    /// Writes the marks and the values that wait. Where the store does not take them, they wait on, as far as there is room.
    /// False: there are marks or values that are to be tried again.
    pub(super) async fn write(&self, sessions: &FlowSessions) -> bool {
        let mut is_all = self.write_marks().await;
        for (key, session) in sessions.unsaved() {
            let (caller_key, id) = &key;
            let saved = self.save(&key_of(caller_key, id), &session).await;
            if !matches!(saved, Ok(true)) {
                is_all = false;
                _ = session.lock().set_unsaved();
            }
            sessions.remove_saved(&key);
            if let Err(error) = saved {
                tracing::warn!(%error, "the values of sessions cannot be written yet");
                // Others of a store that does not answer have to wait, too.
                if !matches!(error, StoreError::Conflict { .. }) {
                    break;
                }
            }
        }
        is_all
    }

    /// False: they are to be tried again.
    async fn write_marks(&self) -> bool {
        let keys: Vec<_> = self.marks.lock().iter().map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return true;
        }
        if let Err(error) = self.store.mark(&keys, SESSION_TTL).await {
            tracing::warn!(%error, "sessions that have read text of strangers cannot be marked yet");
            return false;
        }
        // Each is here until the store has it.
        let mut marks = self.marks.lock();
        for key in &keys {
            marks.remove(key);
        }
        true
    }

    /// False: other replicas write its values at the same time.
    async fn save(&self, key: &StoredKey, session: &SharedSession) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let (known, text) = session.lock().begin_save();
            let sealed = match self.sealer.seal(sealed_for(key, &owner_of(key)), &text) {
                Ok(sealed) => sealed,
                Err(error) => {
                    tracing::error!(%error, "the values of a session cannot be sealed: after a restart they are lost");
                    return Ok(true);
                }
            };
            if let Some(revision) = self.store.save(key, known, &sealed, SESSION_TTL).await? {
                session.lock().set_saved(revision);
                return Ok(true);
            }
            // Another replica has written some, which belong to it too.
            self.read(key, session).await?;
        }
        Ok(false)
    }

    /// Removes the sessions that are known no longer.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        self.store.sweep().await
    }
}

fn key_of(caller_key: &str, id: &str) -> StoredKey {
    StoredKey { caller_key: caller_key.to_owned(), digest: hex::encode(Sha256::digest(id)) }
}

/// The session is part of the authenticated data: the values of another one do not open in its place.
fn owner_of(key: &StoredKey) -> String {
    format!("{}\u{1f}{}", key.caller_key, key.digest)
}

fn sealed_for<'a>(key: &'a StoredKey, owner: &'a str) -> SealedFor<'a> {
    SealedFor { tenant: Caller::parts_of_key(&key.caller_key).0, owner, kind: SEALED_KIND }
}
