//! The ids of data that a process has in memory for its clients: sessions, tasks, and calls that wait for an answer.
//! Where replicas forward requests to each other, an id names the replica that has the data, and is signed:
//! `REPLICA.RANDOM.TAG`. Elsewhere it is random.

use std::sync::Arc;

use uuid::Uuid;

use sekisho_store::replica::{Replica, SecretKeys, SigningKey};

/// Makes ids, and reads ids of others.
#[derive(Debug, Clone)]
pub(super) struct ReplicaIds {
    replica: Option<Arc<Replica>>,
}

/// Another replica, found by an id that it made.
#[derive(Debug)]
pub(super) struct OtherReplica {
    pub id: String,
    /// The keys of the secret that signed the id. The replica had this secret when it made the id; it may not have the
    /// others yet.
    pub keys: Arc<SecretKeys>,
}

impl ReplicaIds {
    /// `replica`: this gateway, if it is one of several replicas.
    pub(super) fn new(replica: Option<&Arc<Replica>>) -> Self {
        Self { replica: replica.cloned() }
    }

    /// A new id: 32 hex digits of chance, and where requests are forwarded 134 characters of visible ASCII.
    pub(super) fn create(&self) -> String {
        let signing = self.replica.as_ref().and_then(|replica| Some((replica.id(), replica.keys()?)));
        match signing {
            Some((replica, keys)) => create(replica, &keys.signing().ids),
            None => Uuid::new_v4().to_string(),
        }
    }

    /// The replica that made an id, if it is another one. An id that no replica has signed belongs to nobody.
    pub(super) fn other_replica(&self, id: &str) -> Option<OtherReplica> {
        let own = self.replica.as_ref()?;
        let replica = id.split('.').next().filter(|replica| *replica != &**own.id())?;
        let keys = own.keys()?;
        let signed_by = keys.in_force().find(|keys| is_signed(id, &keys.ids))?;
        Some(OtherReplica { id: replica.to_owned(), keys: Arc::clone(signed_by) })
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
    use sekisho_config::Secret;
    use sekisho_store::replica::{ClusterKeys, Files};
    use sekisho_store::test_support::test_store;

    fn keys(secret: &str, accepted: Option<&str>) -> ClusterKeys {
        ClusterKeys::new(&Secret::new(secret), accepted.map(Secret::new).as_ref())
    }

    #[test]
    fn an_id_is_signed_as_a_whole() {
        let keys = Arc::clone(keys("a secret", None).signing());
        let replica = Uuid::new_v4().to_string();
        let id = create(&replica, &keys.ids);
        assert!(is_signed(&id, &keys.ids));
        assert!(id.len() <= 134 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        assert_ne!(id, create(&replica, &keys.ids));
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
            assert!(!is_signed(&forged, &keys.ids), "{forged}");
        }
        assert!(!is_signed(&id, &keys.requests), "another key");
    }

    #[test]
    fn without_replicas_an_id_is_random_and_of_nobody_else() {
        let ids = ReplicaIds::new(None);
        let id = ids.create();
        assert!(id.parse::<Uuid>().is_ok() && ids.create() != id);
        assert!(ids.other_replica(&create("other", &keys("a secret", None).signing().ids)).is_none());
    }

    #[tokio::test]
    async fn while_the_secret_is_changed_ids_of_both_secrets_count_and_are_answered_with_their_own() {
        let (store, files) = (test_store().await, Files { configuration: "c".to_owned(), policies: "p".into() });
        let [one, other] = [keys("old", None), keys("old", None)].map(Some);
        let one = Replica::register(store.clone(), Arc::default(), &files, one).await.unwrap();
        let other = Replica::register(store, Arc::default(), &files, other).await.unwrap();
        let [of_one, of_other] = [&one, &other].map(|replica| ReplicaIds::new(Some(replica)));
        let signs = |secret: &str, found: &OtherReplica| {
            let tag = keys(secret, None).signing().requests.tag(&[b"a"]);
            found.keys.requests.has_signed(&[b"a"], &tag)
        };
        let before = of_one.create();
        assert!(of_one.other_replica(&before).is_none(), "its own");
        // One replica after the other knows the new secret, then signs with it, then forgets the old one.
        other.set_keys(keys("old", Some("new")));
        one.set_keys(keys("new", Some("old")));
        let after = of_one.create();
        for (id, secret) in [(&before, "old"), (&after, "new")] {
            let found = of_other.other_replica(id).expect("its replica");
            assert!(found.id == **one.id() && signs(secret, &found), "{secret}");
        }
        other.set_keys(keys("new", None));
        assert!(of_other.other_replica(&before).is_none() && of_other.other_replica(&after).is_some());
    }
}
