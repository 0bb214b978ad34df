//! A change in force, at a start, a reload and another replica.

use super::*;
use serde_json::json;

#[tokio::test]
async fn a_change_is_in_force_at_other_replicas_and_over_a_changed_file_until_it_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sekisho.yaml");
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let loaded = Config::load(Some(&file), &sekisho_config::Environment::default()).unwrap();
        Config { state_directory: Some(folder.path().to_owned()), ..loaded }
    };
    let gateway = Gateway::start(load("limits: {max_queued: 8, parallelism: 3}\n")).await.unwrap();
    let limits = || {
        let config = gateway.configuration.current();
        (config.limits.max_queued, config.limits.parallelism)
    };
    let (by, proof) = (Caller::new("ada", "default", vec!["admin".to_owned()]), SharedAdministrator::of_tests());
    let patch = json!({"limits": {"max_queued": 6}});
    let proposed = gateway.propose_change(&by, proof, patch.clone(), String::new()).await.unwrap();
    let id = proposed.change.id;
    let (check, _) = proposed.effect.unwrap();
    assert_eq!((check.opens.len(), check.changes.len(), limits()), (0, 1, (8, 3)));
    gateway.apply_change(&by, proof, &id, &[]).await.unwrap();
    assert_eq!(limits(), (6, 3));
    assert!(gateway.propose_change(&by, proof, patch, String::new()).await.is_err(), "it is in force");
    gateway.reload_found(load("limits: {max_queued: 8, parallelism: 2}\n")).await;
    assert_eq!(limits(), (6, 2));
    let refused = gateway.undo_change(&by, proof, &id, &[]).await.unwrap_err();
    assert!(refused.message().contains("limits.max_queued: 6 → 8"), "{}", refused.message());
    gateway.undo_change(&by, proof, &id, &["limits.max_queued".to_owned()]).await.unwrap();
    assert_eq!(limits(), (8, 2));
    // As another replica does it.
    let other = NewChange {
        id: Uuid::new_v4().to_string(),
        patch: json!({"limits": {"parallelism": 1}}).to_string(),
        comment: String::new(),
        proposed_by: "bob".to_owned(),
        persons: "[]".to_owned(),
    };
    let store = gateway.store.configuration_changes();
    store.propose(&other).await.unwrap();
    let states = (ChangeState::Proposed, ChangeState::Applied);
    assert!(store.settle(&other.id, states, "cleo", store.version().await.unwrap()).await.unwrap());
    assert_eq!(limits(), (8, 2));
    gateway.adopt_changes().await.unwrap();
    assert_eq!(limits(), (8, 1));
    let read_only = load("config: {changes: read_only}\nlimits: {max_queued: 8, parallelism: 2}\n");
    gateway.reload(read_only).await;
    assert_eq!(limits(), (8, 2));
    let denied = gateway.undo_change(&by, proof, &other.id, &[]).await.unwrap_err();
    assert_eq!(denied.code(), ErrorCode::Denied);
    gateway.close().await;
    let again = Gateway::start(load("limits: {max_queued: 8, parallelism: 2}\n")).await.unwrap();
    assert_eq!(again.configuration.current().limits.parallelism, 1);
}
