use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use sekisho_config::{Secret, SecretsConfig, StoreConfig};
use sekisho_core::call::{CallOrigin, ResultHandles, Via};
use sekisho_core::slack::slack;
use sekisho_outbound::blobs::BlobKey;
use sekisho_outbound::blobs::test_support::{folder_storage, silent_storage, storage_out_of_reach};
use sekisho_store::test_support::{age_results, test_store};

fn config() -> Config {
    let key = Some(Secret::new("1f".repeat(32)));
    Config { secrets: SecretsConfig { key, ..SecretsConfig::default() }, ..Config::default() }
}

/// Everybody may use this tool, and no other.
#[derive(Debug)]
struct Only(&'static str);

impl ToolAccess for Only {
    fn may_use(&self, _caller: &Arc<Caller>, tool: &str) -> bool {
        tool == self.0
    }
}

/// The results of a gateway where everybody may use `tool`.
fn results(store: &Store) -> Results {
    results_for(store, Only("tool"))
}

fn results_for(store: &Store, access: Only) -> Results {
    let results = Results::new(&config(), store.clone(), Arc::new(Metrics::new("test").unwrap()));
    results.set_access(access);
    results
}

fn call(caller: Caller, session: Option<&str>) -> CallContext {
    let handles = ResultHandles { max_inline_bytes: 100, session: session.map(Into::into) };
    CallContext {
        origin: CallOrigin { handles: Some(handles), ..CallOrigin::default() },
        ..CallContext::new("tool", Arc::new(caller), Via::Agent)
    }
}

fn ann(session: Option<&str>) -> CallContext {
    call(Caller::new("ann", "acme", Vec::new()), session)
}

fn later() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Stores a result that its caller may read.
async fn keep(results: &Results, call: &CallContext, large: &LargeResult) -> bool {
    results.keep(call, large, true, later()).await
}

fn text_of(bytes: usize) -> LargeResult {
    LargeResult::new(&json!("x".repeat(bytes)), "")
}

#[tokio::test]
async fn a_result_is_read_by_its_caller_in_its_session_alone() {
    let store = test_store().await;
    let results = results(&store);
    let large = LargeResult::new(&json!({"rows": [1, 2]}), "");
    assert!(keep(&results, &ann(Some("s")), &large).await);
    let read = results.read(&ann(Some("s")), &large.handle).await.unwrap();
    assert_eq!(
        read,
        OpenedResult { tool: "tool".to_owned(), kind: ResultKind::Json, text: r#"{"rows":[1,2]}"#.into() }
    );
    let again = results_for(&store, Only("tool"));
    assert_eq!(
        again.read(&ann(Some("s")), &large.handle).await.unwrap(),
        read,
        "after a restart, or at another replica"
    );
    let listed = async |id: &str, tenant: &str| {
        results.list(&Arc::new(Caller::new(id, tenant, Vec::new())), None, 10).await.unwrap()
    };
    let of_ann = listed("ann", "acme").await;
    let [one] = &of_ann[..] else { panic!("{of_ann:?}") };
    assert_eq!((&one.handle, &*one.tool, one.in_session, one.bytes), (&large.handle, "tool", true, 14));
    for (id, tenant) in [("bob", "acme"), ("ann", "other")] {
        assert_eq!(listed(id, tenant).await, [], "{id} of {tenant}");
    }
    let (handle, upper) = (large.handle.as_str(), large.handle.to_uppercase());
    for (other, handle) in [
        (ann(None), handle),
        (ann(Some("other")), handle),
        (call(Caller::new("bob", "acme", Vec::new()), Some("s")), handle),
        (call(Caller::new("ann", "other", Vec::new()), Some("s")), handle),
        (call(Caller::anonymous(), Some("s")), handle),
        (ann(Some("s")), "0123456789abcdef0123456789abcdef"),
        (ann(Some("s")), "../x"),
        (ann(Some("s")), upper.as_str()),
    ] {
        let error = results.read(&other, handle).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnknownResult, "{other:?}");
        assert_eq!(error.message(), unknown().message(), "nothing says whether it is there");
    }
    age_results(&store, Duration::from_secs(ResultsConfig::default().lifetime_seconds)).await;
    assert_eq!(results.read(&ann(Some("s")), &large.handle).await.unwrap_err().code(), ErrorCode::UnknownResult);
    results.forget_expired().await.unwrap();
}

/// Several keys of one caller may use different tools.
#[tokio::test]
async fn a_result_is_there_for_who_may_use_the_tool_that_made_it() {
    let store = test_store().await;
    let results = results(&store);
    let mut kept = Vec::new();
    for tool in ["tool", "other", "other", "other", "tool"] {
        let (call, large) = (CallContext { tool: tool.to_owned(), ..ann(None) }, text_of(10));
        assert!(keep(&results, &call, &large).await);
        age_results(&store, Duration::from_secs(1)).await;
        kept.push((tool, large.handle));
    }
    for (tool, handle) in &kept {
        let read = results.read(&ann(None), handle).await.map(drop).map_err(|error| error.message().to_owned());
        let expected = if *tool == "tool" { Ok(()) } else { Err(unknown().message().to_owned()) };
        assert_eq!(read, expected, "{tool}");
    }
    let without_access = Results::new(&config(), store.clone(), Arc::new(Metrics::new("test").unwrap()));
    let error = without_access.read(&ann(None), &kept[0].1).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownResult);
    // The others are not listed, and pages are still full.
    let ann = ann(None).caller;
    let (first, last) = (&kept[4].1, &kept[0].1);
    let all = results.list(&ann, None, 2).await.unwrap();
    assert_eq!(all.iter().map(|result| &result.handle).collect::<Vec<_>>(), [first, last]);
    let page = results.list(&ann, None, 1).await.unwrap();
    assert_eq!(page, all[..1]);
    let next = results.list(&ann, Some((page[0].created, page[0].handle.as_str())), 1).await.unwrap();
    assert_eq!(next, all[1..]);
}

#[tokio::test]
async fn what_is_stored_is_sealed() {
    let store = test_store().await;
    let large = LargeResult::new(&json!("hunter2 and more"), "");
    assert!(keep(&results(&store), &ann(None), &large).await);
    let caller = Caller::new("ann", "acme", Vec::new());
    let stored = store.results().get(&large.handle, owner(&caller, "")).await.unwrap().unwrap();
    let ResultContent::Sealed(sealed) = stored.content else { panic!("it is small") };
    assert!(!sealed.contains("hunter2"));
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_says_so() {
    let store = test_store().await;
    let results = results(&store);
    assert!(!results.keep(&ann(None), &text_of(100), false, later()).await, "nobody could read it");
    assert!(!keep(&results, &ann(None), &text_of(MAX_STORED_BYTES + 1)).await);
    assert!(!keep(&results, &ann(None), &text_of(5 << 20)).await, "there is no object storage");
    let database = StoreConfig { url: Some(Secret::new("postgres://localhost/sekisho")) };
    let without_key = Config { store: database, ..Config::default() };
    let metrics = Arc::new(Metrics::new("test").unwrap());
    let without_key = Results::new(&without_key, store, Arc::clone(&metrics));
    assert!(!without_key.can_keep() && !keep(&without_key, &ann(None), &text_of(100)).await);
    assert!(metrics.render().contains(r#"test_large_results_total{outcome="no_key"} 1"#));
}

#[tokio::test]
async fn a_large_one_is_an_object_that_each_replica_reads_and_that_goes_with_it() {
    let (store, folder) = (test_store().await, TempDir::new().unwrap());
    let (one, other) = (results(&store), results(&store));
    for replica in [&one, &other] {
        replica.set_blobs(&folder_storage(folder.path()));
    }
    let large = text_of(5 << 20);
    assert!(keep(&one, &ann(None), &large).await);
    assert_eq!(other.read(&ann(None), &large.handle).await.unwrap().text, large.text);
    let blobs = folder_storage(folder.path());
    let objects = blobs.list(&BlobKey::of(["results"])).await.unwrap();
    assert_eq!(objects.len(), 1);
    other.remove_orphans().await.unwrap();
    assert_eq!(blobs.list(&BlobKey::of(["results"])).await.unwrap(), objects, "a row names it");
    blobs.delete(&objects[0].key).await.unwrap();
    let error = other.read(&ann(None), &large.handle).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded);
    let away = results(&store);
    away.set_blobs(&storage_out_of_reach());
    assert!(!keep(&away, &ann(None), &text_of(5 << 20)).await);
}

/// The deadline of its call has come before the deadline of the storage.
#[tokio::test]
async fn a_call_waits_for_the_storage_no_longer_than_to_its_deadline() {
    let metrics = Arc::new(Metrics::new("test").unwrap());
    let results = Results::new(&config(), test_store().await, Arc::clone(&metrics));
    let (storage, _listener) = silent_storage();
    results.set_blobs(&storage);
    let (large, started) = (text_of(5 << 20), Instant::now());
    let deadline = Deadline::after(Duration::from_millis(100));
    assert!(!results.keep(&ann(None), &large, true, deadline).await);
    assert!(deadline.has_passed() && started.elapsed() < slack(Duration::from_secs(5)), "{:?}", started.elapsed());
    assert!(metrics.render().contains(r#"test_large_results_total{outcome="unavailable"} 1"#));
}
