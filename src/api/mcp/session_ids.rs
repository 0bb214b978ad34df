//! The ids of sessions. Where replicas forward requests to each other, an id names the replica that has the session, and
//! is signed: `REPLICA.RANDOM.TAG`. Elsewhere it is random.

use std::sync::Arc;

use uuid::Uuid;

use crate::infra::replica::{Replica, SigningKey};

/// Makes ids, and reads those of others.
#[derive(Debug)]
pub(super) struct SessionIds {
    replica: Option<Arc<Replica>>,
}

impl SessionIds {
    /// `replica` is this one, if it is one of several.
    pub(super) fn new(replica: Option<&Arc<Replica>>) -> Self {
        Self { replica: replica.cloned() }
    }

    /// A new id: 32 hex digits of chance, and where requests are forwarded 134 characters of visible ASCII.
    pub(super) fn create(&self) -> String {
        match self.signing() {
            Some((replica, key)) => create(replica.id(), key),
            None => Uuid::new_v4().to_string(),
        }
    }

    /// The id of the replica that has the session, if it is another one. What none of them has signed belongs to nobody.
    pub(super) fn replica_of<'a>(&self, id: &'a str) -> Option<&'a str> {
        let (own, key) = self.signing()?;
        let replica = id.split('.').next().filter(|replica| *replica != &**own.id())?;
        is_signed(id, key).then_some(replica)
    }

    fn signing(&self) -> Option<(&Arc<Replica>, &SigningKey)> {
        let replica = self.replica.as_ref()?;
        Some((replica, &replica.keys()?.sessions))
    }
}

fn create(replica: &str, key: &SigningKey) -> String {
    let random = Uuid::new_v4().simple().to_string();
    let tag = key.tag(&[replica.as_bytes(), random.as_bytes()]);
    format!("{replica}.{random}.{}", hex::encode(tag))
}

fn is_signed(id: &str, key: &SigningKey) -> bool {
    let parts: Vec<_> = id.split('.').collect();
    let [replica, random, tag] = parts[..] else { return false };
    hex::decode(tag).is_ok_and(|tag| key.has_signed(&[replica.as_bytes(), random.as_bytes()], &tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use crate::infra::replica::ClusterKeys;

    #[test]
    fn an_id_is_signed_as_a_whole() {
        let keys = ClusterKeys::new(&Secret::new("a secret"));
        let replica = Uuid::new_v4().to_string();
        let id = create(&replica, &keys.sessions);
        assert!(is_signed(&id, &keys.sessions));
        assert!(id.len() <= 134 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        assert_ne!(id, create(&replica, &keys.sessions));
        let parts: Vec<_> = id.split('.').collect();
        let other = Uuid::new_v4().to_string();
        for forged in [
            id.replace(&replica, &other),
            format!("{replica}.{}.{}", Uuid::new_v4().simple(), parts[2]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{replica}.{}.", parts[1]),
            format!("{id}.{}", parts[2]),
            format!("{replica}{}..{}", parts[1], parts[2]),
            replica,
            String::new(),
        ] {
            assert!(!is_signed(&forged, &keys.sessions), "{forged}");
        }
        assert!(!is_signed(&id, &keys.requests), "another key");
    }

    #[test]
    fn without_replicas_an_id_is_random_and_of_nobody_else() {
        let ids = SessionIds::new(None);
        let id = ids.create();
        assert!(id.parse::<Uuid>().is_ok() && ids.create() != id);
        let keys = ClusterKeys::new(&Secret::new("a secret"));
        assert_eq!(ids.replica_of(&create("other", &keys.sessions)), None);
    }
}
