use super::*;
use crate::test_support::{age_user_tokens, test_store};

const ANN: TokenOwner<'static> =
    TokenOwner { tenant: "acme", caller_key: "acme\u{1f}ann", caller_id: "ann", source: "mcp:crm" };

fn sealed(text: &str) -> NewUserToken<'_> {
    NewUserToken { kind: None, sealed: text, scopes: "read", lifetime: Some(Duration::from_secs(60)) }
}

#[tokio::test]
async fn each_caller_has_one_token_for_a_source_and_a_sign_in_replaces_it() {
    let store = test_store().await;
    let bob = TokenOwner { caller_key: "acme\u{1f}bob", caller_id: "bob", ..ANN };
    store.user_tokens().keep(ANN, sealed("first")).await.unwrap();
    let first = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    store.user_tokens().keep(ANN, sealed("second")).await.unwrap();
    store.user_tokens().keep(bob, NewUserToken { lifetime: None, ..sealed("of bob") }).await.unwrap();
    let of_ann = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    assert_eq!((&*of_ann.sealed, of_ann.revision, &*of_ann.scopes), ("second", first.revision + 1, "read"));
    assert!(of_ann.expires.unwrap() > of_ann.now);
    let of_bob = store.user_tokens().get(bob.caller_key, bob.source).await.unwrap().unwrap();
    assert_eq!((&*of_bob.sealed, of_bob.expires), ("of bob", None));
    assert_eq!(store.user_tokens().get(ANN.caller_key, "mcp:other").await.unwrap(), None);
    let all = UserTokenFilter { source: Some(ANN.source), max: 10, ..UserTokenFilter::default() };
    assert_eq!(store.user_tokens().list(all).await.unwrap().len(), 2);
    let of_other = UserTokenFilter { tenant: Some("other"), ..all };
    assert_eq!(store.user_tokens().list(of_other).await.unwrap(), []);
}

#[tokio::test]
async fn a_token_is_unused_once_it_was_neither_changed_nor_sent_for_so_long() {
    let (store, day) = (test_store().await, Duration::from_secs(86_400));
    store.user_tokens().keep(ANN, sealed("first")).await.unwrap();
    assert_eq!(store.user_tokens().unused(day, 10).await.unwrap(), []);
    age_user_tokens(&store.user_tokens(), day).await;
    let unused = store.user_tokens().unused(day, 10).await.unwrap();
    assert_eq!((unused.len(), unused[0].used), (1, None));
    store.user_tokens().record_use(&unused[0]).await.unwrap();
    assert_eq!(store.user_tokens().unused(day, 10).await.unwrap(), []);
    age_user_tokens(&store.user_tokens(), day).await;
    let unused = store.user_tokens().unused(day, 10).await.unwrap();
    assert!(unused[0].used.is_some() && store.user_tokens().forget(&unused[0]).await.unwrap());
}

#[tokio::test]
async fn one_at_a_time_renews_and_a_token_that_was_replaced_is_not_written_over() {
    let store = test_store().await;
    store.user_tokens().keep(ANN, sealed("first")).await.unwrap();
    let read = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    let lease = Duration::from_secs(60);
    let first = store.user_tokens().start_renewal(&read, lease).await.unwrap().unwrap();
    assert!(store.user_tokens().start_renewal(&read, lease).await.unwrap().is_none(), "somebody renews it");
    store.user_tokens().give_up_renewal(first).await.unwrap();
    let second = store.user_tokens().start_renewal(&read, lease).await.unwrap().unwrap();
    assert!(store.user_tokens().end_renewal(second, sealed("renewed")).await.unwrap());
    assert!(store.user_tokens().start_renewal(&read, lease).await.unwrap().is_none(), "it has changed");
    let renewed = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    let late = store.user_tokens().start_renewal(&renewed, lease).await.unwrap().unwrap();
    store.user_tokens().keep(ANN, sealed("signed in again")).await.unwrap();
    assert!(!store.user_tokens().end_renewal(late, sealed("late")).await.unwrap());
    assert!(!store.user_tokens().refuse_renewal(late).await.unwrap());
    assert!(!store.user_tokens().forget(&renewed).await.unwrap(), "another one is there");
    let last = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    assert_eq!(last.sealed, "signed in again");
    assert!(store.user_tokens().forget(&last).await.unwrap());
    assert_eq!(store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap(), None);
}

#[tokio::test]
async fn who_has_lost_its_lease_changes_nothing_while_somebody_else_renews() {
    let store = test_store().await;
    store.user_tokens().keep(ANN, sealed("first")).await.unwrap();
    let read = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    let lost = store.user_tokens().start_renewal(&read, Duration::ZERO).await.unwrap().unwrap();
    let held = store.user_tokens().start_renewal(&read, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(!store.user_tokens().end_renewal(lost, sealed("late")).await.unwrap());
    assert!(!store.user_tokens().refuse_renewal(lost).await.unwrap());
    store.user_tokens().give_up_renewal(lost).await.unwrap();
    assert!(
        store.user_tokens().start_renewal(&read, Duration::ZERO).await.unwrap().is_none(),
        "the other one still renews it"
    );
    store.user_tokens().give_up_renewal(held).await.unwrap();
    // Nobody renews it: a late token is better than none.
    assert!(store.user_tokens().end_renewal(lost, sealed("late")).await.unwrap());
    let last = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    assert_eq!(last.sealed, "late");
    let refused = store.user_tokens().start_renewal(&last, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(store.user_tokens().refuse_renewal(refused).await.unwrap());
    assert_eq!(store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_renewed_after_its_revocation_does_not_take_the_place_of_a_new_sign_in() {
    let store = test_store().await;
    store.user_tokens().keep(ANN, sealed("first")).await.unwrap();
    let read = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    let lease = store.user_tokens().start_renewal(&read, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(store.user_tokens().forget(&read).await.unwrap(), "it is revoked");
    store.user_tokens().keep(ANN, sealed("signed in again")).await.unwrap();
    assert!(!store.user_tokens().end_renewal(lease, sealed("renewed")).await.unwrap());
    assert!(!store.user_tokens().forget(&read).await.unwrap());
    let last = store.user_tokens().get(ANN.caller_key, ANN.source).await.unwrap().unwrap();
    assert_eq!(last.sealed, "signed in again");
}
