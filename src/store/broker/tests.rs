use super::*;
use crate::test_support::test_store;

const DAY: Duration = Duration::from_secs(86_400);

fn session<'a>(id: &'a str, family: &'a str) -> NewBrokerSession<'a> {
    NewBrokerSession {
        id,
        tenant: "acme",
        subject: "ann",
        login: "ann@acme.example",
        client: "c",
        client_name: "an editor",
        family,
        token: "first",
        sealed: "s",
        lifetime: DAY,
    }
}

async fn started(store: &BrokerStore, id: &str, family: &str) -> bool {
    assert!(store.add_code(family, id, "sealed").await.unwrap());
    assert!(store.present_code(family).await.unwrap().unwrap().is_valid);
    store.start_session(session(id, family)).await.unwrap()
}

#[tokio::test]
async fn a_code_is_presented_once_and_a_session_begins_with_one_of_these_alone() {
    let store = test_store().await.broker();
    assert!(!store.start_session(session("s1", "f1")).await.unwrap(), "without a code");
    assert!(started(&store, "s1", "f1").await);
    let replayed = store.present_code("f1").await.unwrap().unwrap();
    assert_eq!((replayed.is_valid, replayed.is_replay, &*replayed.session), (false, true, "s1"));
    assert_eq!(store.present_code("unknown").await.unwrap(), None);
    assert!(!store.add_code("f1", "s9", "sealed").await.unwrap(), "an assertion that was presented before");
    assert_eq!(store.present_code("f1").await.unwrap().unwrap().session, "s1");
    // A replay that comes before the session begins keeps it from beginning.
    assert!(store.add_code("f2", "s2", "sealed").await.unwrap());
    for _ in 0..2 {
        store.present_code("f2").await.unwrap();
    }
    assert!(!store.start_session(session("s2", "f2")).await.unwrap());
}

#[tokio::test]
async fn of_two_refreshes_with_one_token_one_replaces_it() {
    let store = test_store().await.broker();
    assert!(started(&store, "s1", "f1").await);
    assert_eq!(store.session_of_family("f1").await.unwrap().unwrap().token, "first");
    assert!(store.replace_token("s1", "first", "second").await.unwrap());
    assert!(!store.replace_token("s1", "first", "third").await.unwrap());
    assert!(!store.renew_session("s1", "first", ("acme", "t"), DAY).await.unwrap());
    assert!(store.renew_session("s1", "second", ("acme", "t"), DAY).await.unwrap());
    assert_eq!(store.session("s1").await.unwrap().unwrap().sealed, "t");
    assert_eq!(store.end_session("s1", Some("other")).await.unwrap(), None);
    assert_eq!(store.end_session("s1", None).await.unwrap().unwrap().login, "ann@acme.example");
    assert!(!store.replace_token("s1", "second", "third").await.unwrap(), "it has ended");
}

#[tokio::test]
async fn the_next_session_of_a_user_to_expire_ends_for_a_further_one() {
    let store = test_store().await.broker();
    assert!(store.add_code("kept", "kept", "sealed").await.unwrap());
    store.present_code("kept").await.unwrap();
    let lasting = NewBrokerSession { lifetime: 30 * DAY, ..session("kept", "kept") };
    assert!(store.start_session(lasting).await.unwrap());
    let names: Vec<_> = (0..60).map(|n| (format!("s{n:02}"), format!("f{n:02}"))).collect();
    for (id, family) in &names {
        assert!(started(&store, id, family).await);
    }
    let sessions = store.sessions(Some("acme"), "", 100).await.unwrap();
    assert_eq!((sessions.len(), &*sessions[0].id), (50, "kept"));
    let page = store.sessions(None, &sessions[9].id, 5).await.unwrap();
    assert_eq!((page.len(), &page[0].id), (5, &sessions[10].id));
}

#[tokio::test]
async fn keys_are_the_newest_few() {
    let store = test_store().await.broker();
    for n in 0..12 {
        let key = StoredBrokerKey { id: format!("k{n:02}"), public_key: "x".into(), sealed: "s".into() };
        store.add_key(&key).await.unwrap();
    }
    assert_eq!(store.keys().await.unwrap().len(), 8);
}

#[tokio::test]
async fn a_client_is_found_and_its_network_registers_so_many_in_an_hour() {
    let store = test_store().await.broker();
    for n in 0..100 {
        assert!(store.put_client(&n.to_string(), "text", "one").await.unwrap());
    }
    assert!(!store.put_client("more", "text", "one").await.unwrap());
    assert!(store.put_client("0", "text", "one").await.unwrap(), "a document of a known client");
    assert!(store.put_client("more", "text", "two").await.unwrap());
    assert!(store.put_client("more", "other", "two").await.unwrap(), "a document that was fetched again");
    store.use_client("more").await.unwrap();
    let (text, age) = store.client("more").await.unwrap().unwrap();
    assert!(text == "other" && age < DAY);
    assert_eq!(store.client("unknown").await.unwrap(), None);
}
