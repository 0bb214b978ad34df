mod takers;

use super::*;
use crate::test_support::test_store;

const LOST_AFTER: Duration = Duration::from_secs(12);

fn replica<'a>(id: &'a str, configuration: &'a str) -> ReplicaIdentity<'a> {
    let degraded = "[\"mcp:x\"]";
    ReplicaIdentity { id, host: "host", version: "1", configuration, policies: "p", address: None, degraded }
}

#[tokio::test]
async fn replicas_are_counted_while_their_heartbeat_is_recent() {
    let store = test_store().await;
    let first = store.replicas().beat(replica("a", "one"), LOST_AFTER).await.unwrap();
    assert_eq!(first.replicas.iter().map(|one| &*one.degraded).collect::<Vec<_>>(), ["[\"mcp:x\"]"]);
    assert!(first.now.duration_since(Timestamp::now()).abs() < jiff::SignedDuration::from_mins(5), "{first:?}");
    let second = store.replicas().beat(replica("b", "two"), LOST_AFTER).await.unwrap();
    assert_eq!(second.replicas.iter().map(|one| &*one.configuration).collect::<Vec<_>>(), ["one", "two"]);
    // A heartbeat changes the report, and not the start.
    store.replicas().beat(replica("a", "two"), LOST_AFTER).await.unwrap();
    let listed = store.replicas().list(LOST_AFTER).await.unwrap();
    assert_eq!(listed.iter().map(|one| (&*one.id, one.is_live)).collect::<Vec<_>>(), [("a", true), ("b", true)]);
    assert_eq!((&*listed[0].configuration, listed[0].started), ("two", first.now));
    assert!(listed[0].heartbeat >= second.now);
    assert!(listed.iter().all(|one| one.address.is_none()));
    let address = Some(SocketAddr::from(([10, 0, 0, 3], 8790)));
    let found = store.replicas().beat(ReplicaIdentity { address, ..replica("a", "two") }, LOST_AFTER).await.unwrap();
    assert_eq!(found.replicas[0].address, address);
    assert_eq!(store.replicas().address_of("a", LOST_AFTER).await.unwrap(), address);
    assert_eq!(store.replicas().address_of("b", LOST_AFTER).await.unwrap(), None);
    sqlx::query("UPDATE replicas SET heartbeat = heartbeat - 13000000 WHERE id = 'a'")
        .execute(&store.pool)
        .await
        .unwrap();
    let third = store.replicas().beat(replica("b", "two"), LOST_AFTER).await.unwrap();
    assert_eq!(third.replicas.iter().map(|one| one.is_live).collect::<Vec<_>>(), [false, true]);
    assert!(!store.replicas().list(LOST_AFTER).await.unwrap()[0].is_live, "it is lost, and listed");
    assert_eq!(store.replicas().address_of("a", LOST_AFTER).await.unwrap(), None);
    store.replicas().forget_lost_for(LOST_AFTER, "no replica", LOST_AFTER).await.unwrap();
    store.replicas().remove("b").await.unwrap();
    store.replicas().remove("b").await.unwrap();
    assert!(store.replicas().list(LOST_AFTER).await.unwrap().is_empty());
}
