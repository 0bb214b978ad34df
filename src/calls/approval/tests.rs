//! Who may decide, the effect of decisions on an approval, and callers that wait.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::tool::Metadata;
use crate::tool::tests::tool_with;
use sekisho_config::AuditConfig;
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::call::{Caller, Via};
use sekisho_core::error::ErrorCode;
use sekisho_core::until::until;
use sekisho_store::replica::LOST_AFTER;
use sekisho_store::test_support::{age_approval, age_replica, beat, silence_replicas, test_store};

struct Fixture {
    approvals: Arc<Approvals>,
    _state: TempDir,
}

impl Fixture {
    async fn new(own: bool) -> Self {
        let state = TempDir::new().unwrap();
        let config = Config {
            state_directory: Some(state.path().to_owned()),
            approvals: ApprovalsConfig { own, ..ApprovalsConfig::default() },
            ..Config::default()
        };
        let file = state.path().join("audit.jsonl");
        let audit = Audit::open(file, &AuditConfig::default(), Arc::default()).unwrap();
        let metrics = Arc::new(Metrics::new("test").unwrap());
        let approvals = Arc::new(Approvals::new(&config, test_store().await, audit, metrics));
        Self { approvals, _state: state }
    }

    /// Asks for the approval of a call by this caller; its id.
    async fn ask(&self, caller: Caller, needed: u8) -> Arc<str> {
        self.ask_via(Via::Rest, caller, needed).await
    }

    async fn ask_via(&self, via: Via, caller: Caller, needed: u8) -> Arc<str> {
        let metadata = Metadata { name: "pay".into(), approvals_needed: needed, ..Metadata::default() };
        let tool = tool_with(metadata, json!({"type": "object"}), None);
        let call = CallContext::new("pay", Arc::new(caller), via);
        let arguments = json!({"to": "eve", "amount": 7}).as_object().cloned().unwrap();
        let arguments = tool.input.validate(arguments).unwrap();
        let (reasons, masks, version) = (["costly".to_owned()], ["/amount".to_owned()], Arc::from("v1"));
        let asked = AskedCall {
            call: &call,
            tool: &tool,
            arguments: &arguments,
            reasons: &reasons,
            first_use: false,
            masks: &masks,
            policy_version: &version,
        };
        let error = self.approvals.grant(asked, None).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ApprovalRequired);
        Arc::clone(&error.approval().unwrap().id)
    }

    async fn decide(&self, id: &str, by: &Caller, judgement: Judgement) -> Result<ApprovalState, ErrorCode> {
        let decided = self.approvals.decide(id, by, &judgement).await;
        decided.map(|approval| approval.state).map_err(|error| error.code())
    }
}

fn caller(id: &str) -> Caller {
    Caller::new(id, "acme", Vec::new())
}

fn yes() -> Judgement {
    let (scope, minutes, arguments, arguments_sha256) = (ApprovalScope::Once, None, None, None);
    Judgement {
        approved: true,
        reason: "fine".into(),
        scope,
        minutes,
        arguments,
        strike: Vec::new(),
        sent: None,
        arguments_sha256,
    }
}

fn no() -> Judgement {
    Judgement { approved: false, ..yes() }
}

#[tokio::test]
async fn nobody_approves_an_own_call_unless_that_is_configured() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann").used_by(Some("Ann")), 1).await;
    for own in [caller("ann"), caller("second key").used_by(Some("Ann"))] {
        assert_eq!(fixture.decide(&id, &own, yes()).await, Err(ErrorCode::Denied), "{own:?}");
    }
    assert_eq!(fixture.decide(&id, &caller("bob"), yes()).await, Ok(ApprovalState::Approved));
    let withdrawn = fixture.ask(caller("bob"), 1).await;
    assert_eq!(fixture.decide(&withdrawn, &caller("bob"), no()).await, Ok(ApprovalState::Denied));
    let alone = Fixture::new(true).await;
    let id = alone.ask(caller("ann"), 1).await;
    assert_eq!(alone.decide(&id, &caller("ann"), yes()).await, Ok(ApprovalState::Approved));
}

#[tokio::test]
async fn two_distinct_persons_approve_where_two_are_needed() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann"), 2).await;
    let bob = caller("bob").used_by(Some("https://issuer.example#bob"));
    let token = Caller::of_issuer("https://issuer.example", "bob", "acme", Vec::new());
    assert_eq!(fixture.decide(&id, &bob, yes()).await, Ok(ApprovalState::Pending));
    for same in [&bob, &token] {
        assert_eq!(fixture.decide(&id, same, yes()).await, Err(ErrorCode::Denied), "{same:?}");
    }
    assert_eq!(fixture.decide(&id, &caller("eve"), yes()).await, Ok(ApprovalState::Approved));
    let approval = fixture.approvals.find(&id).await.unwrap();
    assert_eq!(approval.decisions.iter().map(|one| one.approver.as_str()).collect::<Vec<_>>(), ["bob", "eve"]);
    // One approver of two is enough to deny.
    let id = fixture.ask(caller("eve"), 2).await;
    assert_eq!(fixture.decide(&id, &bob, yes()).await, Ok(ApprovalState::Pending));
    assert_eq!(fixture.decide(&id, &caller("ann"), no()).await, Ok(ApprovalState::Denied));
}

/// Mallory creates keys for further persons, and one of these makes a key too. A person who has had a token of a key
/// may be its holder.
#[tokio::test]
async fn a_key_counts_as_those_who_have_had_a_token_of_it() {
    let made_by =
        |id: &str, creators: &[&str]| caller(id).created_by(creators.iter().map(|one| (*one).into()).collect());
    let mallory = caller("mallory");
    let (ghost, other) = (made_by("ghost0", &["mallory"]), made_by("ghost1", &["mallory"]));
    let of_ghost = made_by("ghost2", &["ghost0", "mallory"]);
    let all = [&mallory, &ghost, &other, &of_ghost];
    let fixture = Fixture::new(false).await;
    for asks in all {
        let id = fixture.ask(asks.clone(), 1).await;
        for approver in all {
            let refused = fixture.decide(&id, approver, yes()).await;
            assert_eq!(refused, Err(ErrorCode::Denied), "{} approves a call of {}", approver.id, asks.id);
        }
        assert_eq!(fixture.decide(&id, &made_by("bob", &["boss"]), yes()).await, Ok(ApprovalState::Approved));
    }
    // As one person of the two that are needed, where own calls may be approved and where they may not.
    for own in [true, false] {
        let fixture = Fixture::new(own).await;
        for first in all {
            let asks = if own { mallory.clone() } else { caller("ann") };
            let id = fixture.ask(asks, 2).await;
            assert_eq!(fixture.decide(&id, first, yes()).await, Ok(ApprovalState::Pending), "{}", first.id);
            for second in all {
                assert_eq!(fixture.decide(&id, second, yes()).await, Err(ErrorCode::Denied), "{}", second.id);
            }
            assert_eq!(fixture.decide(&id, &caller("eve"), yes()).await, Ok(ApprovalState::Approved));
            // So that the next one asks anew.
            assert_eq!(fixture.decide(&id, &caller("eve"), no()).await, Ok(ApprovalState::Denied));
        }
    }
    // Keys that only one person has had count for themselves; so do the keys of two administrators.
    let id = fixture.ask(caller("ann"), 2).await;
    assert_eq!(fixture.decide(&id, &made_by("bob", &["boss"]), yes()).await, Ok(ApprovalState::Pending));
    assert_eq!(fixture.decide(&id, &ghost, yes()).await, Ok(ApprovalState::Approved));
}

#[tokio::test]
async fn of_two_approvals_at_once_both_count_once() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann"), 2).await;
    let (bob, eve) = (caller("bob"), caller("eve"));
    let (one, other) = tokio::join!(fixture.decide(&id, &bob, yes()), fixture.decide(&id, &eve, yes()));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    let approval = fixture.approvals.find(&id).await.unwrap();
    assert_eq!((approval.state, approval.decisions.len()), (ApprovalState::Approved, 2));
}

#[tokio::test]
async fn two_persons_allow_what_both_allow() {
    let fixture = Fixture::new(false).await;
    let minutes = |minutes| Judgement { scope: ApprovalScope::Minutes, minutes: Some(minutes), ..yes() };
    for (first, second, scope, seconds) in
        [(minutes(10), minutes(5), ApprovalScope::Minutes, 300), (minutes(10), yes(), ApprovalScope::Once, 3_600)]
    {
        let id = fixture.ask(caller("ann"), 2).await;
        fixture.decide(&id, &caller("bob"), first).await.unwrap();
        fixture.decide(&id, &caller("eve"), second).await.unwrap();
        let approval = fixture.approvals.find(&id).await.unwrap();
        assert_eq!(approval.scope, Some(scope));
        let left = approval.expires.duration_since(approval.changed).as_secs();
        assert_eq!(left, seconds);
        fixture.decide(&id, &caller("eve"), no()).await.unwrap();
    }
}

#[tokio::test]
async fn of_several_none_is_decided_where_one_cannot_be() {
    let fixture = Fixture::new(false).await;
    let approvals = &fixture.approvals;
    let (one, other) = (fixture.ask(caller("ann"), 1).await, fixture.ask(caller("bob"), 1).await);
    let decide = async |by: &str, judgement: Judgement| {
        let seen = [approvals.find(&one).await.unwrap(), approvals.find(&other).await.unwrap()];
        let decided = approvals.decide_seen(&seen.map(|seen| (seen, judgement.clone())), &caller(by)).await;
        decided.map(|decided| decided.len()).map_err(|error| error.code())
    };
    let state = async |id: &str| approvals.find(id).await.unwrap().state;
    // The second one is the approver's own call.
    assert_eq!(decide("bob", yes()).await, Err(ErrorCode::Denied));
    assert_eq!(
        decide("eve", Judgement { scope: ApprovalScope::Session, ..yes() }).await,
        Err(ErrorCode::InvalidRequest)
    );
    assert_eq!((state(&one).await, state(&other).await), (ApprovalState::Pending, ApprovalState::Pending));
    age_approval(&approvals.store, &other, Duration::from_secs(3_600)).await;
    for judgement in [yes(), no()] {
        assert_eq!(decide("eve", judgement).await, Err(ErrorCode::InvalidRequest));
        assert_eq!((state(&one).await, state(&other).await), (ApprovalState::Pending, ApprovalState::Expired));
    }
    let next = fixture.ask(caller("bob"), 1).await;
    let seen = [(approvals.find(&one).await.unwrap(), yes()), (approvals.find(&next).await.unwrap(), no())];
    assert_eq!(approvals.decide_seen(&seen, &caller("eve")).await.unwrap().len(), 2);
    assert_eq!((state(&one).await, state(&next).await), (ApprovalState::Approved, ApprovalState::Denied));
}

#[tokio::test]
async fn wrong_decisions_are_refused() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann"), 1).await;
    let minutes = |minutes| Judgement { scope: ApprovalScope::Minutes, minutes, ..yes() };
    for wrong in [
        minutes(None),
        minutes(Some(0)),
        minutes(Some(1_441)),
        Judgement { minutes: Some(5), ..yes() },
        // The call is in no session.
        Judgement { scope: ApprovalScope::Session, ..yes() },
        Judgement { reason: "x".repeat(1_001), ..yes() },
    ] {
        let refused = fixture.decide(&id, &caller("bob"), wrong.clone()).await;
        assert_eq!(refused, Err(ErrorCode::InvalidRequest), "{wrong:?}");
    }
    assert_eq!(fixture.decide("none", &caller("bob"), yes()).await, Err(ErrorCode::NotFound));
    assert_eq!(fixture.decide(&id, &caller("bob"), no()).await, Ok(ApprovalState::Denied));
    assert_eq!(fixture.decide(&id, &caller("bob"), yes()).await, Err(ErrorCode::InvalidRequest));
}

#[tokio::test]
async fn the_first_approver_of_a_call_of_an_agent_may_change_its_arguments() {
    let fixture = Fixture::new(false).await;
    let changed = json!({"to": "bob", "amount": 7}).as_object().cloned().unwrap();
    let other = || Judgement { arguments: Some(changed.clone()), ..yes() };
    // Any other caller would get the answer of a call that it did not send.
    let rest = fixture.ask(caller("ann"), 1).await;
    let refused = fixture.approvals.decide(&rest, &caller("dan"), &other()).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidRequest);
    assert!(refused.message().contains("the run of an agent"), "{refused}");
    let id = fixture.ask_via(Via::Agent, caller("eve"), 2).await;
    let wide = Judgement { scope: ApprovalScope::Minutes, minutes: Some(5), ..other() };
    assert_eq!(fixture.decide(&id, &caller("dan"), wide).await, Err(ErrorCode::InvalidRequest));
    let approvals = &fixture.approvals;
    let seen = approvals.find(&id).await.unwrap();
    assert_eq!(fixture.decide(&id, &caller("dan"), other()).await, Ok(ApprovalState::Pending));
    let late = approvals.decide_seen(&[(seen.clone(), yes())], &caller("ann")).await.unwrap_err();
    assert!(late.message().contains("has changed the arguments meanwhile"), "{late}");
    let approval = approvals.find(&id).await.unwrap();
    assert!(approval.decisions[0].changed_arguments);
    assert_eq!(approvals.arguments(&approval).unwrap()["to"], "eve");
    assert_eq!(approvals.changed_arguments(&approval).unwrap(), Some(changed.clone()));
    let shown = approvals.shown_changed_arguments(&approval).unwrap().unwrap();
    assert_eq!((&shown["to"], &shown["amount"]["masked"]), (&json!("bob"), &json!(true)));
    // Approvers do not change parts that they do not see.
    let written = json!({"to": "bob", "amount": {"masked": true}}).as_object().cloned().unwrap();
    let asked = approvals.arguments(&approval).unwrap();
    assert_eq!(approval.with_masked(&asked, written).unwrap(), changed);
    let without = json!({"to": "bob"}).as_object().cloned().unwrap();
    let refused = approval.with_masked(&asked, without).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidArguments);
    assert!(refused.message().contains("leave out /amount, which approvers do not see"), "{refused}");
    // The second approver approves the same arguments as the first one.
    assert_eq!(fixture.decide(&id, &caller("ann"), other()).await, Err(ErrorCode::InvalidRequest));
    let [before, after] = [&seen, &approval].map(|approval| approvals.arguments_sha256(approval).unwrap());
    let looked_at = |digest: &str| Judgement { arguments_sha256: Some(digest.to_owned()), ..yes() };
    for (judgement, says) in
        [(yes(), "with the `arguments_sha256` that it is shown with"), (looked_at(&before), "open the approval again")]
    {
        let refused = approvals.decide(&id, &caller("ann"), &judgement).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidRequest);
        assert!(refused.message().contains(says), "{refused}");
    }
    assert_eq!(fixture.decide(&id, &caller("ann"), looked_at(&after)).await, Ok(ApprovalState::Approved));
    let approval = approvals.find(&id).await.unwrap();
    assert_eq!(approvals.changed_arguments(&approval).unwrap(), Some(changed));
    // The same holds for arguments that nobody changed.
    assert_eq!(fixture.decide(&rest, &caller("dan"), looked_at(&after)).await, Err(ErrorCode::InvalidRequest));
    assert_eq!(fixture.decide(&rest, &caller("dan"), looked_at(&before)).await, Ok(ApprovalState::Approved));
}

#[tokio::test]
async fn arguments_are_sealed_in_the_store_and_masked_for_approvers() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann"), 1).await;
    let approval = fixture.approvals.find(&id).await.unwrap();
    assert!(!approval.sealed.contains("eve") && !approval.stored.details.contains("eve"));
    assert_eq!(fixture.approvals.arguments(&approval).unwrap()["amount"], 7);
    let shown = fixture.approvals.shown_arguments(&approval).unwrap();
    assert_eq!(
        (&shown["to"], &shown["amount"]["masked"], &shown["amount"]["length"]),
        (&json!("eve"), &json!(true), &json!(1))
    );
}

#[tokio::test]
async fn callers_wait_until_somebody_decides_or_their_time_ends() {
    let fixture = Fixture::new(false).await;
    let (id, other) = (fixture.ask(caller("ann"), 1).await, fixture.ask(caller("bob"), 1).await);
    let ann = caller("ann");
    let soon = Instant::now() + Duration::from_millis(10);
    assert_eq!(fixture.approvals.wait(&ann, &other, soon).await.unwrap(), Waited::Undecided);
    let later = Instant::now() + Duration::from_secs(60);
    let waiting: Vec<_> = (0..200)
        .map(|_| {
            let (approvals, ann, id) = (Arc::clone(&fixture.approvals), ann.clone(), Arc::clone(&id));
            tokio::spawn(async move { approvals.wait(&ann, &id, later).await.unwrap() })
        })
        .collect();
    until("calls wait", async || fixture.approvals.waiting.len() > 0).await;
    fixture.decide(&id, &caller("eve"), yes()).await.unwrap();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), Waited::Decided);
    }
    assert_eq!(fixture.approvals.waiting.len(), 0);
    assert_eq!(fixture.approvals.wait(&ann, &id, later).await.unwrap(), Waited::Decided, "at once");
}

/// One caller's waiting calls leave places for the calls of another.
#[tokio::test]
async fn places_to_wait_are_shared_fairly() {
    let fixture = Fixture::new(false).await;
    let (ann, bob) = (caller("ann"), caller("bob"));
    let share = &fixture.approvals.waiting.share;
    let _of_bob = share.try_acquire(&bob.owner, 1).unwrap();
    let of_ann: Vec<_> = std::iter::from_fn(|| share.try_acquire(&ann.owner, 1)).collect();
    assert!(of_ann.len() <= 750, "{}", of_ann.len());
    let id = fixture.ask(ann.clone(), 1).await;
    let later = Instant::now() + Duration::from_secs(60);
    assert_eq!(fixture.approvals.wait(&ann, &id, later).await.unwrap(), Waited::Undecided, "answered at once");
    assert!(share.try_acquire(&bob.owner, 1).is_some());
}

/// As by a reload while the call waits for a slot: its approval was compared with the tool of before.
#[tokio::test]
async fn an_approved_call_is_not_made_with_a_tool_that_has_changed_since() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann"), 1).await;
    assert_eq!(fixture.decide(&id, &caller("bob"), yes()).await, Ok(ApprovalState::Approved));
    let described = |description: &str| {
        let metadata = Metadata { name: "pay".into(), description: description.into(), ..Metadata::default() };
        tool_with(metadata, json!({"type": "object"}), None)
    };
    let (tool, changed) = (described(""), described("Pays twice."));
    let call = CallContext::new("pay", Arc::new(caller("ann")), Via::Rest);
    let arguments = tool.input.validate(json!({"to": "eve", "amount": 7}).as_object().cloned().unwrap()).unwrap();
    let standing = fixture.approvals.standing(&id, &call, &tool, &arguments).await;
    let Ok(Standing::Once(approved)) = standing else { panic!("{standing:?}") };
    let (reasons, masks, version) = (["costly".to_owned()], ["/amount".to_owned()], Arc::from("v1"));
    let grant = async |tool: &Tool| {
        let asked = AskedCall {
            call: &call,
            tool,
            arguments: &arguments,
            reasons: &reasons,
            first_use: false,
            masks: &masks,
            policy_version: &version,
        };
        fixture.approvals.grant(asked, Some(&approved)).await.map(drop).map_err(|error| error.code())
    };
    assert_eq!(grant(&changed).await, Err(ErrorCode::ApprovalMismatch));
    assert_eq!(grant(&tool).await, Ok(()));
}

/// The heartbeats of both are old then, and only one is back.
#[tokio::test]
async fn after_the_database_was_away_the_call_of_another_replica_still_runs() {
    let fixture = Fixture::new(false).await;
    let id = fixture.ask(caller("ann"), 1).await;
    assert_eq!(fixture.decide(&id, &caller("bob"), yes()).await, Ok(ApprovalState::Approved));
    let store = &fixture.approvals.store;
    for replica in ["holder", "taker"] {
        beat(store, replica).await;
        age_replica(store, replica, LOST_AFTER).await;
    }
    assert_eq!(store.approvals().start_call(&id, "holder").await.unwrap(), Some(1));
    fixture.approvals.set_replica(&"taker".into());
    let tool = tool_with(Metadata { name: "pay".into(), ..Metadata::default() }, json!({"type": "object"}), None);
    let arguments = tool.input.validate(json!({"to": "eve", "amount": 7}).as_object().cloned().unwrap()).unwrap();
    let call = CallContext::new("pay", Arc::new(caller("ann")), Via::Rest);
    let standing = async || fixture.approvals.standing(&id, &call, &tool, &arguments).await;
    silence_replicas(store, Duration::from_secs(60)).await;
    beat(store, "taker").await;
    assert!(matches!(standing().await, Ok(Standing::RunsElsewhere)));
    age_replica(store, "taker", LOST_AFTER).await;
    assert_eq!(standing().await.unwrap_err().code(), ErrorCode::UnknownOutcome);
    assert_eq!(fixture.approvals.find(&id).await.unwrap().state, ApprovalState::Unknown);
}
