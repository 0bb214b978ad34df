//! The API keys of the configuration, stored only as their SHA-256.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{AuthConfigError, SecretDigest, identity};
use sekisho_config::ApiKeyConfig;
use sekisho_core::call::Caller;

/// The configured keys, each with its caller.
#[derive(Default)]
pub(super) struct ApiKeys {
    callers: HashMap<SecretDigest, (SecretDigest, Arc<Caller>)>,
}

impl ApiKeys {
    /// Also returns all errors of the configured keys; the keys are valid only without errors.
    pub(super) fn new(configured: &[ApiKeyConfig]) -> (Self, Vec<AuthConfigError>) {
        let (mut keys, mut errors) = (Self::default(), Vec::new());
        for (index, key) in configured.iter().enumerate() {
            if let Err(problem) = keys.add(key) {
                errors.push(AuthConfigError { place: format!("auth.api_keys[{index}]"), problem: problem.to_owned() });
            }
        }
        (keys, errors)
    }

    /// Timing of the lookup reveals nothing about the key: choosing a digest's prefix would require breaking SHA-256.
    /// The digest itself is then compared in constant time.
    pub(super) fn find(&self, digest: &SecretDigest) -> Option<Arc<Caller>> {
        let (known, caller) = self.callers.get(digest)?;
        bool::from(known.ct_eq(digest)).then(|| caller.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// The caller with this key of its data, of this person, with the most of these roles and no others.
    pub(super) fn with_caller_key(&self, key: &str, person: Option<&str>, roles: &[String]) -> Option<Arc<Caller>> {
        let callers = self.callers.values().map(|(_, caller)| caller);
        let own = callers.filter(|caller| *caller.key == *key && caller.person.as_deref() == person);
        let found = own.filter(|caller| caller.roles.iter().all(|role| roles.contains(role)));
        found.max_by_key(|caller| caller.roles.len()).cloned()
    }

    fn add(&mut self, configured: &ApiKeyConfig) -> Result<(), &'static str> {
        let digest = digest_of(configured)?;
        let caller = Caller::new(&configured.id, &configured.tenant, configured.roles.clone());
        let caller = identity::checked(caller.used_by(configured.person.as_deref()))?;
        match self.callers.insert(digest, (digest, caller)) {
            None => Ok(()),
            Some(_) => Err("another entry has the same key; each caller needs its own key"),
        }
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ApiKeys({})", self.callers.len())
    }
}

fn digest_of(configured: &ApiKeyConfig) -> Result<SecretDigest, &'static str> {
    match (&configured.key, &configured.key_sha256) {
        (Some(key), None) => {
            let key = key.expose();
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err("`key` is empty or contains characters that a header cannot carry; is its variable set?");
            }
            Ok(Sha256::digest(key).into())
        }
        (None, Some(digest)) => {
            from_hex(digest).ok_or("`key_sha256` must be the 64 hex digits of `printf %s \"$KEY\" | sha256sum`")
        }
        (Some(_), Some(_)) => Err("set `key` or `key_sha256`, not both"),
        (None, None) => Err("set `key` or `key_sha256`"),
    }
}

pub(super) fn from_hex(text: &str) -> Option<SecretDigest> {
    let mut digest = SecretDigest::default();
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}
