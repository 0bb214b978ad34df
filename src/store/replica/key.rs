//! Signatures of replicas for each other, with keys derived from the secret that they share. The secret itself is sent
//! nowhere.
//!
//! Two secrets are in force, so that the secret can be changed while clients use signed values: one signs, both count.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use sekisho_config::Secret;

/// The keys of a cluster.
#[derive(Debug)]
pub struct ClusterKeys {
    signing: Arc<SecretKeys>,
    accepted: Option<Arc<SecretKeys>>,
}

/// The keys of one secret, one for each purpose: a signature for one purpose never counts for another.
#[derive(Debug)]
pub struct SecretKeys {
    /// Signs ids of sessions, tasks and calls that wait for their client.
    pub ids: SigningKey,
    /// Signs requests that are forwarded to another replica.
    pub requests: SigningKey,
}

/// A key of HMAC-SHA256.
pub struct SigningKey(Hmac<Sha256>);

impl ClusterKeys {
    /// Signatures of `secret` and of `accepted` count; `secret` signs.
    pub fn new(secret: &Secret, accepted: Option<&Secret>) -> Self {
        let keys = |secret| Arc::new(SecretKeys::new(secret));
        Self { signing: keys(secret), accepted: accepted.map(keys) }
    }

    /// The keys that sign.
    pub fn signing(&self) -> &Arc<SecretKeys> {
        &self.signing
    }

    /// The keys whose signatures count.
    pub fn in_force(&self) -> impl Iterator<Item = &Arc<SecretKeys>> {
        std::iter::once(&self.signing).chain(&self.accepted)
    }
}

impl SecretKeys {
    fn new(secret: &Secret) -> Self {
        let secret = SigningKey::of(secret.expose().as_bytes());
        let derived = |purpose: &str| SigningKey::of(&secret.tag(&[purpose.as_bytes()]));
        Self { ids: derived("sekisho: ids"), requests: derived("sekisho: forwarded requests") }
    }
}

impl SigningKey {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    fn of(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key"))
    }

    /// The tag of these fields, whose boundaries it covers too.
    pub fn tag(&self, fields: &[&[u8]]) -> [u8; 32] {
        self.over(fields).finalize().into_bytes().into()
    }

    /// Whether the tag belongs to these fields, in a time that does not depend on where it differs.
    pub fn has_signed(&self, fields: &[&[u8]], tag: &[u8]) -> bool {
        self.over(fields).verify_slice(tag).is_ok()
    }

    fn over(&self, fields: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for field in fields {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field);
        }
        mac
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secret: &str) -> SecretKeys {
        SecretKeys::new(&Secret::new(secret))
    }

    #[test]
    fn a_tag_counts_for_its_fields_purpose_and_secret_alone() {
        let own = keys("one secret");
        let tag = own.ids.tag(&[b"ab", b"c"]);
        assert!(own.ids.has_signed(&[b"ab", b"c"], &tag));
        assert!(keys("one secret").ids.has_signed(&[b"ab", b"c"], &tag));
        for fields in [&[&b"a"[..], b"bc"][..], &[b"abc"], &[b"ab", b"c", b""], &[b"ab", b"d"], &[]] {
            assert!(!own.ids.has_signed(fields, &tag), "{fields:?}");
        }
        assert!(!own.requests.has_signed(&[b"ab", b"c"], &tag));
        assert!(!keys("another secret").ids.has_signed(&[b"ab", b"c"], &tag));
        for part in [&tag[..31], &[]] {
            assert!(!own.ids.has_signed(&[b"ab", b"c"], part), "a part of a tag is none");
        }
        assert_eq!(format!("{own:?}"), "SecretKeys { ids: ***, requests: *** }");
    }

    #[test]
    fn one_secret_signs_and_two_count() {
        let [old, new] = ["the old secret", "the new secret"].map(Secret::new);
        let counts = |keys: &ClusterKeys, tag: &[u8]| keys.in_force().any(|keys| keys.ids.has_signed(&[b"a"], tag));
        let (before, after) = (ClusterKeys::new(&old, Some(&new)), ClusterKeys::new(&new, Some(&old)));
        let [by_old, by_new] = [&before, &after].map(|keys| keys.signing().ids.tag(&[b"a"]));
        assert_ne!(by_old, by_new);
        for keys in [&before, &after] {
            assert!(counts(keys, &by_old) && counts(keys, &by_new));
        }
        let done = ClusterKeys::new(&new, None);
        assert!(counts(&done, &by_new) && !counts(&done, &by_old));
    }

    /// RFC 4231, test case 2, and the same with the lengths that are in front of the fields.
    #[test]
    fn a_tag_is_hmac_sha256() {
        let key = SigningKey::of(b"Jefe");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let plain = key.0.clone().chain_update(b"what do ya want for nothing?").finalize().into_bytes();
        assert_eq!(hex::encode(plain), expected);
        let framed = key.0.clone().chain_update(b"\0\0\0\0\0\0\0\x02ab").finalize().into_bytes();
        assert_eq!(key.tag(&[b"ab"])[..], framed[..]);
    }
}
