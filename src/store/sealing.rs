//! Seals secrets at rest: AES-256-GCM with a random nonce, and in each record the id of its key.
//!
//! A record can only be opened for the tenant, owner and kind that it was sealed for: nobody gets the secret of another
//! by moving rows. Two keys are in force, so that the key can be changed: the current one seals, both open.

mod error;
mod file;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

pub use self::error::SealingError;

use sekisho_config::{Config, SecretsConfig};

/// The form of a record.
const FORMAT: &str = "1";

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Seals and opens, with the keys of the configuration, or with one in a file of the state directory.
#[derive(Debug)]
pub struct Sealer {
    keys: Mutex<Option<Arc<Keys>>>,
    /// Where the key is, or is generated when it is first used; `None` where a key must be configured.
    file: Option<PathBuf>,
}

/// The owner of a secret, and its kind. Part of the authenticated data.
#[derive(Debug, Clone, Copy)]
pub struct SealedFor<'a> {
    pub tenant: &'a str,
    /// [`Caller::key`](sekisho_core::call::Caller), or another name of its owner within the tenant.
    pub owner: &'a str,
    /// Such as `approval`.
    pub kind: &'static str,
}

#[derive(Debug)]
struct Keys {
    current: SealingKey,
    previous: Option<SealingKey>,
}

struct SealingKey {
    /// A part of the key's digest: says nothing about the key.
    id: String,
    key: RandomizedNonceKey,
}

impl Sealer {
    /// With an embedded store, a key that is not configured is generated when the first secret is sealed.
    pub fn new(config: &Config) -> Self {
        let keys = Keys::configured(&config.secrets).map(Arc::new);
        let may_generate = keys.is_none() && config.store.url.is_none();
        Self { keys: Mutex::new(keys), file: may_generate.then(|| file::path_of(&config.state_directory())) }
    }

    /// With a key of this process, for texts that no other process opens, also not after a restart.
    pub fn of_process() -> Self {
        let keys = SealingKey::new(&rand::random()).map(|current| Arc::new(Keys { current, previous: None }));
        Self { keys: Mutex::new(keys), file: None }
    }

    /// Whether there is a key, or can be.
    pub fn is_available(&self) -> bool {
        self.file.is_some() || self.keys.lock().is_some()
    }

    /// The beginnings of the texts that the two keys in force have sealed; twice the same where there is one.
    /// Errors: as [`seal`](Self::seal).
    pub fn beginnings(&self) -> Result<[String; 2], SealingError> {
        let keys = self.keys()?;
        let previous = keys.previous.as_ref().unwrap_or(&keys.current);
        Ok([&keys.current, previous].map(|key| format!("{FORMAT}.{}.", key.id)))
    }

    /// A text that only [`open`](Self::open) reads.
    /// Errors: [`SealingError`]: there is no key.
    pub fn seal(&self, whose: SealedFor<'_>, secret: &[u8]) -> Result<String, SealingError> {
        let mut sealed = secret.to_vec();
        let (id, nonce) = self.seal_in_place(whose, &mut sealed)?;
        sealed.splice(..0, nonce);
        Ok(format!("{FORMAT}.{id}.{}", STANDARD_NO_PAD.encode(sealed)))
    }

    /// Bytes that only [`open_bytes`](Self::open_bytes) reads: for secrets of many megabytes.
    /// Errors: as [`seal`](Self::seal).
    pub fn seal_bytes(&self, whose: SealedFor<'_>, mut secret: Vec<u8>) -> Result<Vec<u8>, SealingError> {
        let (id, nonce) = self.seal_in_place(whose, &mut secret)?;
        let head = format!("{FORMAT}.{id}.").into_bytes();
        secret.splice(..0, head.into_iter().chain(nonce));
        Ok(secret)
    }

    /// The secret that was sealed for the same tenant, owner and kind.
    /// Errors: [`SealingError`]: its key is not in force, or the text is not as it was sealed.
    pub fn open(&self, whose: SealedFor<'_>, text: &str) -> Result<Vec<u8>, SealingError> {
        let (id, sealed) = parts_of(text).ok_or(SealingError::Damaged)?;
        let mut sealed = STANDARD_NO_PAD.decode(sealed).map_err(|_| SealingError::Damaged)?;
        self.open_in_place(whose, id, &mut sealed)
    }

    /// The bytes that [`seal_bytes`](Self::seal_bytes) has sealed for the same tenant, owner and kind.
    /// Errors: as [`open`](Self::open).
    pub fn open_bytes(&self, whose: SealedFor<'_>, mut sealed: Vec<u8>) -> Result<Vec<u8>, SealingError> {
        // Two points end the form and the id; the bytes after them are any bytes.
        let mut points = sealed.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
        let end = points.nth(1).ok_or(SealingError::Damaged)? + 1;
        let (head, rest) = sealed.split_at_mut_checked(end).ok_or(SealingError::Damaged)?;
        let head = std::str::from_utf8(head).map_err(|_| SealingError::Damaged)?;
        let (id, _) = parts_of(head).ok_or(SealingError::Damaged)?;
        self.open_in_place(whose, id, rest)
    }

    /// Encrypts, and appends the tag; the key's id and the nonce.
    fn seal_in_place(
        &self,
        whose: SealedFor<'_>,
        secret: &mut Vec<u8>,
    ) -> Result<(String, [u8; NONCE_LEN]), SealingError> {
        let keys = self.keys()?;
        let SealingKey { id, key } = &keys.current;
        let nonce = key.seal_in_place_append_tag(Aad::from(whose.authenticated(id)), secret);
        let nonce = nonce.map_err(|_| SealingError::NotSealed)?;
        Ok((id.clone(), *nonce.as_ref()))
    }

    /// `sealed` begins with the nonce.
    fn open_in_place(&self, whose: SealedFor<'_>, id: &str, sealed: &mut [u8]) -> Result<Vec<u8>, SealingError> {
        let keys = self.keys()?;
        let key = keys.with_id(id).ok_or_else(|| SealingError::UnknownKey { id: id.to_owned() })?;
        let (nonce, rest) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(SealingError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealingError::Damaged)?;
        let opened = key.key.open_in_place(nonce, Aad::from(whose.authenticated(id)), rest);
        opened.map(|secret| secret.to_vec()).map_err(|_| SealingError::Damaged)
    }

    fn keys(&self) -> Result<Arc<Keys>, SealingError> {
        let mut keys = self.keys.lock();
        if let Some(keys) = &*keys {
            return Ok(Arc::clone(keys));
        }
        let file = self.file.as_ref().ok_or(SealingError::NoKey)?;
        let current = SealingKey::new(&file::read_or_generate(file)?).ok_or(SealingError::Damaged)?;
        Ok(Arc::clone(keys.insert(Arc::new(Keys { current, previous: None }))))
    }
}

impl SealedFor<'_> {
    /// The length of each part precedes it, so that no two have the same bytes.
    fn authenticated(self, key_id: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [FORMAT, key_id, self.tenant, self.owner, self.kind] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

impl Keys {
    /// The check of the configuration has refused keys of another form.
    fn configured(config: &SecretsConfig) -> Option<Self> {
        let key = |secret: &sekisho_config::Secret| SealingKey::new(&from_hex(secret.expose())?);
        let current = config.key.as_ref().and_then(key)?;
        Some(Self { current, previous: config.previous_key.as_ref().and_then(key) })
    }

    fn with_id(&self, id: &str) -> Option<&SealingKey> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(|key| key.id == id)
    }
}

impl SealingKey {
    fn new(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let digest = Sha256::new().chain_update(b"sekisho sealing key").chain_update(bytes).finalize();
        let key = RandomizedNonceKey::new(&AES_256_GCM, bytes).ok()?;
        Some(Self { id: hex::encode(&digest[..8]), key })
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealingKey({})", self.id)
    }
}

/// The key's id and the sealed text.
fn parts_of(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(FORMAT)?.strip_prefix('.')?.split_once('.')
}

fn from_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    hex::decode_to_slice(text.trim(), &mut key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use sekisho_config::{Secret, StoreConfig};

    const ANN: SealedFor<'static> = SealedFor { tenant: "acme", owner: "ann", kind: "approval" };

    fn sealer(key: &str, previous_key: Option<&str>) -> Sealer {
        let secrets = SecretsConfig { key: Some(Secret::new(key)), previous_key: previous_key.map(Secret::new) };
        Sealer::new(&Config { secrets, ..Config::default() })
    }

    #[test]
    fn a_secret_opens_for_whom_it_was_sealed_and_is_not_in_the_text() {
        let sealer = sealer(&"1f".repeat(32), None);
        let sealed = sealer.seal(ANN, b"hunter2").unwrap();
        assert!(!sealed.contains("hunter2"));
        assert_ne!(sealer.seal(ANN, b"hunter2").unwrap(), sealed, "each has a nonce of its own");
        assert_eq!(sealer.open(ANN, &sealed).unwrap(), b"hunter2");
        for other in [
            SealedFor { tenant: "other", ..ANN },
            SealedFor { owner: "bob", ..ANN },
            SealedFor { kind: "token", ..ANN },
            SealedFor { tenant: "acmea", owner: "nn", ..ANN },
        ] {
            assert!(matches!(sealer.open(other, &sealed), Err(SealingError::Damaged)), "{other:?}");
        }
    }

    #[test]
    fn what_a_process_seals_no_other_opens() {
        let (one, other) = (Sealer::of_process(), Sealer::of_process());
        let sealed = one.seal(ANN, b"x").unwrap();
        assert_eq!(one.open(ANN, &sealed).unwrap(), b"x");
        assert!(matches!(other.open(ANN, &sealed), Err(SealingError::UnknownKey { .. })));
    }

    #[test]
    fn many_bytes_are_sealed_for_one_too() {
        let sealer = sealer(&"1f".repeat(32), None);
        let sealed = sealer.seal_bytes(ANN, b"hunter2".to_vec()).unwrap();
        assert!(sealed.starts_with(b"1.") && !sealed.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(sealer.open_bytes(ANN, sealed.clone()).unwrap(), b"hunter2");
        assert!(sealer.open_bytes(SealedFor { owner: "bob", ..ANN }, sealed.clone()).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(sealer.open_bytes(ANN, changed).is_err(), "{at}");
            assert!(sealer.open_bytes(ANN, sealed[..at].to_vec()).is_err(), "{at}");
        }
    }

    #[test]
    fn a_changed_record_does_not_open() {
        let sealer = sealer(&"1f".repeat(32), None);
        let sealed = sealer.seal(ANN, b"hunter2").unwrap();
        let start = sealed.rfind('.').unwrap() + 1;
        for at in start..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(sealer.open(ANN, &changed).is_err(), "{changed}");
        }
        for text in ["", "1", "1.", "1.a", "2.a.b", &sealed[..start], "1..AAAA"] {
            assert!(sealer.open(ANN, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_changed_while_records_of_the_previous_one_open() {
        let (old, new) = ("0a".repeat(32), "0b".repeat(32));
        let sealed = sealer(&old, None).seal(ANN, b"x").unwrap();
        let rotated = sealer(&new, Some(&old));
        assert_eq!(rotated.open(ANN, &sealed).unwrap(), b"x");
        let again = rotated.seal(ANN, b"x").unwrap();
        assert_eq!(sealer(&new, None).open(ANN, &again).unwrap(), b"x", "the current key seals");
        let error = sealer(&new, None).open(ANN, &sealed).unwrap_err();
        assert!(matches!(error, SealingError::UnknownKey { .. }), "{error}");
        assert!(error.to_string().contains("secrets.previous_key"), "{error}");
        assert!(!format!("{rotated:?}").contains(&new));
    }

    #[test]
    fn with_an_embedded_store_a_key_is_generated_once_and_only_its_user_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { state_directory: Some(folder.path().join("state")), ..Config::default() };
        std::fs::create_dir(folder.path().join("state")).unwrap();
        let file = file::path_of(&config.state_directory());
        let first = Sealer::new(&config);
        assert!(first.is_available() && !file.exists(), "not before it is used");
        let sealed = first.seal(ANN, b"x").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Sealer::new(&config).open(ANN, &sealed).unwrap(), b"x", "after a restart");
        std::fs::write(&file, "short\n").unwrap();
        let error = Sealer::new(&config).open(ANN, &sealed).unwrap_err();
        assert!(error.to_string().contains("secrets.key"), "{error}");
    }

    #[test]
    fn with_a_database_a_key_is_never_generated() {
        let store = StoreConfig { url: Some(Secret::new("postgres://localhost/sekisho")) };
        let sealer = Sealer::new(&Config { store, ..Config::default() });
        assert!(!sealer.is_available());
        assert!(matches!(sealer.seal(ANN, b"x"), Err(SealingError::NoKey)));
    }
}
