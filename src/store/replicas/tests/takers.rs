//! Each kind of work that a replica takes from a lost one, and the moment from which it may.

use std::time::Duration;

use crate::replica::LOST_AFTER;
use crate::test_support::{age_replica, age_sessions, beat, conversation, silence_replicas, test_store};
use crate::{
    AskedPermits, DecidedApproval, InterpreterSessionFence, InterpreterSessionKey, NewApproval, NewInterpreterSession,
    NewProgramRun, NewSessionImage, ProgramRunOwner, SessionImage, SessionTimes, Store, StoredPlan,
};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_outbound::blobs::{BlobKey, StoredBlob};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const SESSION: InterpreterSessionKey<'static> =
    InterpreterSessionKey { tenant: "acme", caller_key: "acme\u{1f}ann", name: "a" };
const RUN_OWNER: ProgramRunOwner<'static> =
    ProgramRunOwner { tenant: "acme", caller_key: "acme\u{1f}ann", endpoint: "all" };

/// The work of the replica `holder`, for the replica `taker`.
#[derive(Debug, Clone, Copy)]
enum Work {
    ApprovedCall,
    /// A call with an idempotency key.
    KeyedCall,
    ProgramRun,
    Session,
    EndOfSession,
    Slot,
    Registration,
    Workspace,
    Conversation,
    Plan,
}

const ALL: [Work; 10] = [
    Work::ApprovedCall,
    Work::KeyedCall,
    Work::ProgramRun,
    Work::Session,
    Work::EndOfSession,
    Work::Slot,
    Work::Registration,
    Work::Workspace,
    Work::Conversation,
    Work::Plan,
];

impl Work {
    async fn begin(self, store: &Store) {
        match self {
            Self::ApprovedCall => begin_approved_call(store).await,
            Self::ProgramRun => {
                let (id, owner, arguments, part) = ("r", RUN_OWNER, "a", "first");
                let new = NewProgramRun { id, owner, arguments, replica: Some("holder"), part };
                store.program_runs().begin(new).await.unwrap();
            }
            Self::Session => begin_session(store).await,
            Self::EndOfSession => {
                begin_session(store).await;
                age_sessions(store, HOUR).await;
            }
            Self::Slot => {
                let asked = AskedPermits { tool: "slow", limit: 1, wanted: 1, replica: "holder", holder: "h" };
                assert_eq!(store.permits().take(asked, LOST_AFTER).await.unwrap().len(), 1);
                store.permits().set_taken_long_ago().await;
            }
            Self::Workspace => assert!(store.workspaces().lock("w", "holder").await.unwrap().is_some()),
            Self::Conversation => {
                store.conversations().add(&conversation("c", "ann"), 1).await.unwrap();
                assert!(store.conversations().lock("c", Some("holder")).await.unwrap().is_some());
            }
            Self::Plan => {
                store.plans().add(&plan(store), Some("holder")).await.unwrap();
            }
            Self::KeyedCall | Self::Registration => {}
        }
    }

    /// Whether the taker gets it.
    async fn is_taken(self, store: &Store) -> bool {
        match self {
            Self::ApprovedCall => {
                !store.approvals().lose_calls_of_others("taker", LOST_AFTER).await.unwrap().is_empty()
            }
            Self::KeyedCall => store.replicas().is_lost("holder", "taker", LOST_AFTER).await.unwrap(),
            Self::ProgramRun => store.program_runs().take("r", RUN_OWNER, Some("taker")).await.unwrap().is_some(),
            Self::Session => {
                let times = SessionTimes { lifetime: HOUR, lost_after: LOST_AFTER };
                store.interpreter_sessions().take(SESSION, "taker", times).await.unwrap().is_some()
            }
            Self::EndOfSession => {
                !store.interpreter_sessions().forget_expired("taker", LOST_AFTER).await.unwrap().is_empty()
            }
            Self::Slot => {
                let asked = AskedPermits { tool: "slow", limit: 1, wanted: 1, replica: "taker", holder: "t" };
                !store.permits().take(asked, LOST_AFTER).await.unwrap().is_empty()
            }
            Self::Registration => {
                store.replicas().forget_lost_for(MINUTE, "taker", LOST_AFTER).await.unwrap();
                !store.replicas().list(LOST_AFTER).await.unwrap().iter().any(|replica| replica.id == "holder")
            }
            Self::Workspace => store.workspaces().lock("w", "taker").await.unwrap().is_some(),
            Self::Conversation => store.conversations().lock("c", Some("taker")).await.unwrap().is_some(),
            Self::Plan => {
                let found = store.plans().get("ann", "p").await.unwrap().unwrap();
                store.plans().resume(&found, "{}", Some("taker"), store.now()).await.unwrap().is_some()
            }
        }
    }
}

fn plan(store: &Store) -> StoredPlan {
    StoredPlan {
        id: "p".into(),
        caller_key: "ann".into(),
        agent: "default".into(),
        session: None,
        status: "running".into(),
        is_interrupted: false,
        created: store.now(),
        changed: store.now(),
        state: "{}".into(),
    }
}

async fn begin_approved_call(store: &Store) {
    let new = NewApproval {
        id: "1",
        tenant: "acme",
        caller_key: "ann",
        caller_id: "ann",
        tool: "pay",
        pending_digest: "p",
        call_digest: "c",
        tool_digest: "t",
        session_digest: None,
        group_digest: None,
        details: "{}",
        arguments: "sealed",
    };
    store.approvals().ask(new).await.unwrap();
    let read = store.approvals().get("1").await.unwrap().unwrap();
    let (state, scope, ttl) = (ApprovalState::Approved, Some(ApprovalScope::Once), Some(DAY));
    let decided = DecidedApproval { state, decisions: "[]", scope, ttl, arguments: None };
    assert!(store.approvals().decide(&[(&read, decided)]).await.unwrap());
    assert_eq!(store.approvals().start_call("1", "holder").await.unwrap(), Some(1));
}

/// A session with an image.
async fn begin_session(store: &Store) {
    let times = SessionTimes { lifetime: HOUR, lost_after: LOST_AFTER };
    let taken = store.interpreter_sessions().take(SESSION, "holder", times).await.unwrap().unwrap();
    let fence = InterpreterSessionFence { key: SESSION, fence: taken.fence };
    let new = NewInterpreterSession { every_call: true, age: Duration::ZERO, lifetime: HOUR };
    store.interpreter_sessions().begin(fence, new).await.unwrap().unwrap();
    let image = SessionImage {
        profile: "data".to_owned(),
        interpreter: "i".to_owned(),
        snapshot: "s".to_owned(),
        rights: "r".to_owned(),
        programs: "p".to_owned(),
        object: StoredBlob { key: BlobKey::of(["sessions", "image"]), sha256: "00".to_owned(), bytes: 10 },
    };
    let new = NewSessionImage { image: &image, every_call: true, calls: 1, releases: false };
    assert!(store.interpreter_sessions().keep_image(fence, new, 100).await.unwrap().is_some());
}

/// Work of a replica, after an hour with heartbeats of both.
async fn begun(work: Work) -> Store {
    let store = test_store().await;
    for id in ["holder", "taker"] {
        beat(&store, id).await;
        age_replica(&store, id, HOUR).await;
    }
    work.begin(&store).await;
    store
}

#[tokio::test]
async fn after_the_database_was_away_no_replica_takes_the_work_of_others_before_they_can_be_back() {
    for work in ALL {
        let store = begun(work).await;
        assert!(!work.is_taken(&store).await, "{work:?}: both live");
        silence_replicas(&store, MINUTE).await;
        assert!(!work.is_taken(&store).await, "{work:?}: the taker had no heartbeat itself");
        beat(&store, "taker").await;
        assert!(!work.is_taken(&store).await, "{work:?}: the taker is back for a moment");
        beat(&store, "holder").await;
        age_replica(&store, "taker", LOST_AFTER).await;
        assert!(!work.is_taken(&store).await, "{work:?}: the holder is back");
    }
}

#[tokio::test]
async fn the_work_of_a_lost_replica_is_taken_by_one_whose_heartbeats_have_no_gap() {
    for work in ALL {
        let store = begun(work).await;
        silence_replicas(&store, 2 * MINUTE).await;
        beat(&store, "taker").await;
        age_replica(&store, "taker", LOST_AFTER).await;
        assert!(work.is_taken(&store).await, "{work:?}");
    }
}

/// A replica that is back just before `LOST_AFTER` has passed: the last heartbeat of another one may be older.
#[tokio::test]
async fn a_gap_of_half_the_time_counts() {
    for (gap, may_take) in [(LOST_AFTER / 2 + Duration::from_secs(1), false), (LOST_AFTER / 4, true)] {
        let store = begun(Work::KeyedCall).await;
        silence_replicas(&store, gap).await;
        beat(&store, "taker").await;
        // The last heartbeat of the holder was earlier.
        store.change_rows("UPDATE replicas SET heartbeat = heartbeat - 12000000 WHERE id = 'holder'").await;
        assert_eq!(Work::KeyedCall.is_taken(&store).await, may_take, "{gap:?}");
    }
}

#[tokio::test]
async fn the_work_of_a_replica_that_has_left_is_taken_at_once() {
    for work in ALL {
        let store = begun(work).await;
        silence_replicas(&store, MINUTE).await;
        store.replicas().remove("holder").await.unwrap();
        beat(&store, "taker").await;
        assert!(work.is_taken(&store).await, "{work:?}");
    }
}
