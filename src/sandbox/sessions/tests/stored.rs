//! Sessions that are stored, of workers that are substitutes: their images are a number and noise.

mod failures;

use tempfile::TempDir;

use super::*;
use crate::SessionImages;
use crate::SessionInfo;
use crate::code_mode::digest_of;
use sekisho_config::{Config, Secret, SecretsConfig};
use sekisho_outbound::blobs::test_support::folder_storage;
use sekisho_store::replica::LOST_AFTER;
use sekisho_store::test_support::{age_sessions, test_store};
use sekisho_store::{ReplicaIdentity, Store};

/// The state that processes share.
struct Shared {
    store: Store,
    folder: TempDir,
}

impl Shared {
    async fn new() -> Self {
        Self { store: test_store().await, folder: TempDir::new().unwrap() }
    }

    /// A process that stores sessions there; as a replica with an id.
    async fn process(&self, sessions: InterpreterSessionsConfig, replica: Option<&str>) -> Arc<Sandbox> {
        let mut config = Config {
            secrets: SecretsConfig { key: Some(Secret::new("1f".repeat(32))), ..SecretsConfig::default() },
            ..Config::default()
        };
        config.sandbox.sessions = sessions.clone();
        let replica: Option<Arc<str>> = replica.map(Into::into);
        if let Some(id) = &replica {
            let (host, version, configuration, policies, degraded) = ("h", "1", "c", "p", "[]");
            let identity = ReplicaIdentity { id, host, version, configuration, policies, address: None, degraded };
            self.store.replicas().beat(identity, LOST_AFTER).await.unwrap();
        }
        let blobs = folder_storage(self.folder.path());
        let sandbox = sandbox(sessions);
        sandbox.store_sessions_in(SessionImages::new(&config, &self.store, &blobs, replica.as_ref()).unwrap());
        Arc::new(sandbox)
    }

    fn objects(&self) -> Vec<std::path::PathBuf> {
        let folder = self.folder.path().join("interpreter_sessions");
        let tenants = std::fs::read_dir(folder).into_iter().flatten().map(|tenant| tenant.unwrap().path());
        tenants.flat_map(|tenant| std::fs::read_dir(tenant).unwrap()).map(|object| object.unwrap().path()).collect()
    }

    /// Objects are removed in the background.
    async fn has_objects(&self, count: usize) {
        for _ in 0..500 {
            if self.objects().len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", self.objects());
    }
}

/// The worker's answer to a call in a session of Ann, and the note about it.
async fn turn(sandbox: &Sandbox, session: &str, code: &str, every_call: bool) -> (String, InterpreterSession) {
    let caller = Arc::new(Caller::new("ann", "tenant", Vec::new()));
    let context = CallContext::new("python_executor", caller, Via::Rest);
    let deadline = Deadline::after(Duration::from_secs(20));
    let session = CallSession { name: session, every_call };
    let outcome = sandbox.run_job_in_session(&context, session, job(code), deadline).await;
    (outcome.unwrap().result.unwrap(), context.progress.interpreter.get().unwrap())
}

async fn places(sandbox: &Sandbox) -> Vec<String> {
    let place = |session: SessionInfo| {
        let shown = serde_json::to_value(session).unwrap();
        format!("{} {}", shown["session"].as_str().unwrap(), shown["place"].as_str().unwrap())
    };
    sandbox.list_sessions(&owner("ann")).await.unwrap().into_iter().map(place).collect()
}

#[tokio::test]
async fn a_stored_session_goes_on_in_this_process_or_another() {
    let shared = Shared::new().await;
    let first = shared.process(InterpreterSessionsConfig::default(), None).await;
    assert_eq!(turn(&first, "a", "sessions", false).await.0, "Begin 1");
    first.store_all_sessions().await;
    assert_eq!((places(&first).await, shared.objects().len()), (vec!["a stored".to_owned()], 1));
    assert_eq!(turn(&first, "other", "sessions", false).await.0, "Begin 1", "the worker has that one alone");
    let (said, noted) = turn(&first, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.is_new, noted.generation), ("Continue 2", true, false, 1));
    assert_eq!(places(&first).await, ["a memory", "other memory"]);
    shared.has_objects(0).await;
    let (said, noted) = turn(&first, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed), ("Continue 2", false));
    // The gateway stops.
    first.close().await;
    let second = shared.process(InterpreterSessionsConfig::default(), None).await;
    assert_eq!(places(&second).await, ["a stored", "other stored"]);
    let details = second.show_session(&owner("ann"), "a").await.unwrap();
    assert!(details.variables.is_none(), "it is not resumed for a look");
    let (said, noted) = turn(&second, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.generation), ("Continue 1", true, 1));
    second.delete_session(&owner("ann"), "other").await.unwrap();
    shared.has_objects(0).await;
    let (said, noted) = turn(&second, "other", "sessions", false).await;
    assert_eq!((said.as_str(), noted.generation, noted.previous_end), ("Begin 2", 2, Some(SessionEnd::Deleted)));
    second.close().await;
}

#[tokio::test]
async fn what_cannot_be_opened_is_lost_and_the_next_call_begins_anew() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    for number in 0..3 {
        turn(&sandbox, "a", "sessions", false).await;
        sandbox.store_all_sessions().await;
        let object = shared.objects().remove(0);
        let mut bytes = std::fs::read(&object).unwrap();
        match number {
            0 => std::fs::remove_file(&object).unwrap(),
            1 => std::fs::write(&object, &bytes[..bytes.len() / 2]).unwrap(),
            _ => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&object, bytes).unwrap();
            }
        }
        let (refused, noted) = call(&sandbox, "ann", "a", "sessions").await;
        assert_eq!((refused.unwrap_err().code(), noted), (ErrorCode::SessionLost, None), "{number}");
        let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
        assert_eq!((said.as_str(), noted.previous_end), ("Begin 1", Some(SessionEnd::Lost)));
        sandbox.delete_session(&owner("ann"), "a").await.unwrap();
        shared.has_objects(0).await;
    }
    sandbox.close().await;
}

#[tokio::test]
async fn an_image_opens_for_its_session_and_generation_alone() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    for session in ["a", "b"] {
        turn(&sandbox, session, "sessions", false).await;
    }
    sandbox.store_all_sessions().await;
    // Somebody with access to the database gives one the image of the other.
    shared
        .store
        .change_rows(
            "UPDATE interpreter_sessions SET object = b.object, object_sha256 = b.object_sha256,
                 object_bytes = b.object_bytes
             FROM interpreter_sessions b WHERE interpreter_sessions.name = 'a' AND b.name = 'b'",
        )
        .await;
    shared.store.change_rows("UPDATE interpreter_sessions SET generation = 7 WHERE name = 'b'").await;
    for session in ["a", "b"] {
        let refused = call(&sandbox, "ann", session, "sessions").await.0;
        assert_eq!(refused.unwrap_err().code(), ErrorCode::SessionLost, "{session}");
    }
    sandbox.close().await;
}

/// The worker's answer to a call of Ann's with another role.
async fn call_as_admin(sandbox: &Sandbox, session: &str) -> Result<Outcome, CallError> {
    let caller = Arc::new(Caller::new("ann", "tenant", vec!["admin".to_owned()]));
    let context = CallContext::new("python_executor", caller, Via::Rest);
    let session = CallSession { name: session, every_call: false };
    sandbox.run_job_in_session(&context, session, job("sessions"), Deadline::after(Duration::from_secs(20))).await
}

/// Otherwise code that a program left behind would call tools with the rights of whoever resumes its session.
#[tokio::test]
async fn a_stored_session_and_its_copies_have_the_rights_with_which_it_began() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    assert!(call_as_admin(&sandbox, "b").await.unwrap().result.unwrap().starts_with("Begin"));
    sandbox.store_all_sessions().await;
    for _ in 0..2 {
        assert_eq!(call_as_admin(&sandbox, "a").await.unwrap_err().code(), ErrorCode::Denied);
        assert_eq!(places(&sandbox).await, ["a stored", "b stored"], "it stays");
    }
    let copy = sandbox.fork_session(&owner("ann"), "a", 1).await.unwrap().remove(0);
    let copy = serde_json::to_value(copy).unwrap()["session"].as_str().unwrap().to_owned();
    for is_stored in [false, true] {
        for session in ["a", copy.as_str()] {
            let refused = call_as_admin(&sandbox, session).await.unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Denied, "{session}, stored: {is_stored}");
        }
        for session in ["a", copy.as_str()].into_iter().filter(|_| !is_stored) {
            assert!(turn(&sandbox, session, "sessions", false).await.0.starts_with("Continue"), "{session}");
        }
        sandbox.store_all_sessions().await;
    }
    // Somebody with access to the database gives a session the rights of another one.
    let rights = "UPDATE interpreter_sessions SET rights = b.rights FROM interpreter_sessions b
                  WHERE interpreter_sessions.name = 'a' AND b.name = 'b'";
    shared.store.change_rows(rights).await;
    assert_eq!(call_as_admin(&sandbox, "a").await.unwrap_err().code(), ErrorCode::SessionLost);
    sandbox.close().await;
}

/// Policies see the digest of all programs of a session.
#[tokio::test]
async fn a_stored_session_and_its_copies_have_the_digest_of_its_programs() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    let digest = |session: &str| {
        let turn = sandbox.sessions.try_enter(&owner("ann"), session).unwrap();
        turn.instance().unwrap().programs.unwrap()
    };
    turn(&sandbox, "a", "sessions", false).await;
    let first = digest("a");
    sandbox.store_all_sessions().await;
    let copy = sandbox.fork_session(&owner("ann"), "a", 1).await.unwrap().remove(0);
    let copy = serde_json::to_value(copy).unwrap()["session"].as_str().unwrap().to_owned();
    assert_eq!((first, digest("a"), digest(&copy)), (digest_of(None, "sessions"), first, first));
    sandbox.store_all_sessions().await;
    for session in ["a", copy.as_str()] {
        turn(&sandbox, session, "sessions", false).await;
        assert_eq!(digest(session), digest_of(Some(first), "sessions"), "{session}");
    }
    sandbox.close().await;
}

#[tokio::test]
async fn an_image_that_is_too_large_is_not_stored_and_the_session_says_so() {
    let shared = Shared::new().await;
    let config = InterpreterSessionsConfig { max_image_bytes: 100_000, ..InterpreterSessionsConfig::default() };
    let sandbox = shared.process(config, None).await;
    turn(&sandbox, "a", "sessions", false).await;
    sandbox.store_all_sessions().await;
    assert_eq!((places(&sandbox).await, shared.objects().len()), (vec!["a memory".to_owned()], 0));
    let shown = sandbox.list_sessions(&owner("ann")).await.unwrap().remove(0);
    assert_eq!(serde_json::to_value(shown).unwrap()["not_stored"], "too_large");
    let (_, noted) = turn(&sandbox, "a", "sessions", true).await;
    assert_eq!((noted.is_checkpointed, noted.not_stored), (Some(false), Some(NotStored::TooLarge)));
    sandbox.close().await;
}

#[tokio::test]
async fn what_others_need_the_place_of_is_stored_instead_of_ended() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig { max_per_caller: 2, ..Default::default() }, None).await;
    for session in ["a", "b", "c"] {
        assert!(turn(&sandbox, session, "sessions", false).await.0.starts_with("Begin"));
    }
    assert_eq!(places(&sandbox).await, ["a stored", "b memory", "c memory"]);
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed), ("Continue 2", true));
    assert_eq!(places(&sandbox).await, ["a memory", "b stored", "c memory"]);
    sandbox.close().await;
}

#[tokio::test]
async fn a_call_that_comes_has_the_session_and_its_image_is_given_up() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    let (said, ()) = join(
        async {
            // The image is being written.
            tokio::task::yield_now().await;
            turn(&sandbox, "a", "sessions", false).await
        },
        sandbox.store_all_sessions(),
    )
    .await;
    assert_eq!((said.0.as_str(), said.1.is_resumed), ("Continue 1", false));
    assert_eq!((places(&sandbox).await, shared.objects().len()), (vec!["a memory".to_owned()], 0));
    sandbox.close().await;
}

#[tokio::test]
async fn with_checkpoints_a_session_outlives_its_worker_and_its_process() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    let (_, noted) = turn(&sandbox, "a", "sessions", true).await;
    assert_eq!((noted.is_checkpointed, shared.objects().len()), (Some(true), 1));
    turn(&sandbox, "plain", "sessions", false).await;
    let (_, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!(noted.is_checkpointed, Some(true), "once it was asked for, each call is stored");
    shared.has_objects(1).await;
    assert!(call(&sandbox, "ann", "other", "die").await.0.is_err(), "the worker dies with all its sessions");
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.generation), ("Continue 1", true, 1));
    let (said, noted) = turn(&sandbox, "plain", "sessions", false).await;
    assert_eq!((said.as_str(), noted.previous_end), ("Begin 2", Some(SessionEnd::WorkerDied)));
    // Another process, while this one has stored nothing at its end.
    let after = shared.process(InterpreterSessionsConfig::default(), None).await;
    let (said, noted) = turn(&after, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.is_checkpointed), ("Continue 1", true, Some(true)));
    let (said, noted) = turn(&after, "plain", "sessions", false).await;
    assert_eq!((said.as_str(), noted.generation, noted.previous_end), ("Begin 2", 3, Some(SessionEnd::WorkerDied)));
    // Of a program that is stopped, the changes are gone.
    let (_, noted) = turn(&after, "a", "timeout", false).await;
    assert_eq!((noted.end, noted.is_checkpointed, noted.not_stored), (None, Some(false), Some(NotStored::Stopped)));
    let (said, noted) = turn(&after, "a", "sessions", false).await;
    assert!(said.starts_with("Continue") && noted.is_resumed && noted.generation == 1, "{said}: {noted:?}");
    let (_, noted) = turn(&after, "plain", "timeout", false).await;
    assert_eq!((noted.end, noted.not_stored), (Some(SessionEnd::Timeout), None), "without a checkpoint it ends");
    // A program that crashes ends it, and it does not come back.
    let (_, noted) = turn(&after, "a", "trap", false).await;
    assert_eq!(noted.end, Some(SessionEnd::Trap));
    let (said, noted) = turn(&after, "a", "sessions", false).await;
    assert!(said.starts_with("Begin"), "{said}");
    assert_eq!((noted.previous_end, noted.is_resumed), (Some(SessionEnd::Trap), false));
    after.close().await;
    sandbox.close().await;
}

#[tokio::test]
async fn copies_are_sessions_of_their_own() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig { max_per_caller: 4, ..Default::default() }, None).await;
    turn(&sandbox, "a", "sessions", false).await;
    sandbox.store_all_sessions().await;
    for (count, expected) in [(0, ErrorCode::InvalidArguments), (4, ErrorCode::InvalidArguments)] {
        assert_eq!(sandbox.fork_session(&owner("ann"), "a", count).await.unwrap_err().code(), expected);
    }
    assert_eq!(sandbox.fork_session(&owner("eve"), "a", 1).await.unwrap_err().code(), ErrorCode::NotFound);
    age_sessions(&shared.store, Duration::from_secs(3_000)).await;
    let copies = sandbox.fork_session(&owner("ann"), "a", 2).await.unwrap();
    let names: Vec<_> = copies.iter().map(|copy| serde_json::to_value(copy).unwrap()["session"].clone()).collect();
    assert_eq!(names.len(), 2);
    for name in &names {
        let name = name.as_str().unwrap();
        assert!(name.starts_with("a:"), "{name}");
        let (said, noted) = turn(&sandbox, name, "sessions", false).await;
        assert_eq!((said.as_str(), noted.generation, noted.is_new), ("Continue 3", 1, false));
    }
    assert_eq!(turn(&sandbox, "a", "sessions", false).await.0, "Continue 3");
    let are_old = async || {
        let sessions = sandbox.list_sessions(&owner("ann")).await.unwrap();
        let mut left =
            sessions.iter().map(|one| serde_json::to_value(one).unwrap()["ends_in_seconds"].as_u64().unwrap());
        left.all(|left| left <= 600)
    };
    assert!(are_old().await, "a copy ends when its session would");
    sandbox.store_all_sessions().await;
    assert_eq!(places(&sandbox).await.iter().filter(|place| place.ends_with("stored")).count(), 3);
    assert!(are_old().await);
    sandbox.close().await;
}

#[tokio::test]
async fn a_replica_that_is_asked_releases_a_session_to_another() {
    let shared = Shared::new().await;
    let one = shared.process(InterpreterSessionsConfig::default(), Some("one")).await;
    let two = shared.process(InterpreterSessionsConfig::default(), Some("two")).await;
    let closing = tokio_util::sync::CancellationToken::new();
    for replica in [&one, &two] {
        let (replica, closing) = (Arc::clone(replica), closing.clone());
        tokio::spawn(async move { replica.look_after_sessions(closing).await });
    }
    assert_eq!(turn(&one, "a", "sessions", false).await.0, "Begin 1");
    assert_eq!(places(&two).await, ["a elsewhere"]);
    for replica in [&two, &one, &two] {
        let (said, noted) = turn(replica, "a", "sessions", false).await;
        assert_eq!((said.as_str(), noted.is_resumed, noted.generation), ("Continue 1", true, 1));
    }
    assert_eq!((places(&one).await, places(&two).await), (vec!["a elsewhere".to_owned()], vec!["a memory".to_owned()]));
    one.delete_session(&owner("ann"), "a").await.unwrap();
    assert_eq!((places(&one).await, places(&two).await), (Vec::<String>::new(), Vec::new()));
    // A replica that counts as lost finds that another one has its session.
    turn(&one, "b", "sessions", true).await;
    shared.store.replicas().remove("one").await.unwrap();
    let (said, noted) = turn(&two, "b", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed), ("Continue 1", true));
    let (said, noted) = turn(&one, "b", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.generation), ("Continue 1", true, 1), "it gets it back");
    closing.cancel();
    two.close().await;
    one.close().await;
}
