//! The approval of a program's effects: for one list, by one caller, once.

use serde_json::Map;

use super::*;
use crate::approval::{Proposal, ProposedEffect, ProposedRead};
use crate::tool::BUILTIN;
use sekisho_core::call::{CallKind, Target};

/// How many lists are tried that differ from the approved one.
const MUTATIONS: usize = 1_000;

/// What differs from the approved list, or who sends it.
const KINDS: [&str; 13] = [
    "argument",
    "order",
    "extra call",
    "removed call",
    "tool",
    "changed read",
    "removed read",
    "program",
    "run",
    "policy version",
    "struck out",
    "other caller",
    "other tenant",
];

fn list() -> Proposal {
    let effect = |call: u32| ProposedEffect {
        call,
        tool: format!("pay_{call}"),
        arguments: Map::from_iter([("amount".to_owned(), call.into())]),
        sha256: format!("{call:064}"),
        cost_usd: "0.10".into(),
        labels: vec!["money".into()],
        reasons: vec!["costly".into()],
        masks: Vec::new(),
        approvals_needed: 1,
        refers_to: Vec::new(),
        struck: false,
    };
    let read = |call: u32| ProposedRead {
        call,
        tool: "balance".into(),
        arguments_sha256: "a".into(),
        answer_sha256: format!("{call:064}"),
    };
    Proposal {
        run: "r".into(),
        program: "p".into(),
        policy_version: "v1".into(),
        reads: (1..3).map(read).collect(),
        effects: (3..8).map(effect).collect(),
    }
}

fn mutated(kind: &str, round: usize) -> Proposal {
    let mut list = list();
    let at = round % list.effects.len();
    let text = format!("another {round}");
    match kind {
        "argument" => _ = list.effects[at].arguments.insert("amount".into(), (1_000 + round).into()),
        "order" => list.effects.swap(at, (at + 1 + round / 5 % 4) % 5),
        "extra call" => list.effects.insert(at, list.effects[round / 5 % 5].clone()),
        "removed call" => _ = list.effects.remove(at),
        "tool" => list.effects[at].sha256 = text,
        "changed read" => list.reads[round % 2].answer_sha256 = text,
        "removed read" => _ = list.reads.remove(round % 2),
        "program" => list.program = text,
        "run" => list.run = text,
        "policy version" => list.policy_version = text,
        "struck out" => list.effects[at].struck = true,
        _ => {}
    }
    list
}

fn call_of(caller: Caller, approval: Option<&Arc<str>>) -> CallContext {
    let target = Target { kind: CallKind::Effects, source: Some(BUILTIN.into()), name: "program p".into() };
    let resumption = CallResumption { approval: approval.cloned(), ..CallResumption::default() };
    CallContext {
        target: Some(Box::new(target)),
        resumption,
        ..CallContext::new("scripted", Arc::new(caller), Via::Sandbox)
    }
}

fn ann() -> Caller {
    Caller::new("ann", "acme", Vec::new())
}

/// An operation that asks for the approval of effects.
fn checkpoint() -> Checkpoint {
    let metadata = Metadata { kind: CallKind::Effects, rate_limit: 1_000_000, ..Metadata::default() };
    Checkpoint::with(&Config::default(), metadata, counting())
}

async fn asked_for(checkpoint: &Checkpoint, list: &Proposal) -> Arc<str> {
    let answered = checkpoint.pipeline.call(call_of(ann(), None), list.to_arguments().unwrap()).await;
    assert_eq!(outcome(&answered), Err(ErrorCode::ApprovalRequired));
    Arc::clone(&answered.needed_approval().unwrap().id)
}

#[tokio::test]
async fn a_thousand_lists_that_differ_from_the_approved_one_do_not_pass() {
    let checkpoint = checkpoint();
    let id = asked_for(&checkpoint, &list()).await;
    approve(&checkpoint, &id).await;
    for round in 0..MUTATIONS {
        let kind = KINDS[round % KINDS.len()];
        let caller = match kind {
            "other caller" => Caller::new(&format!("bob {round}"), "acme", Vec::new()),
            "other tenant" => Caller::new("ann", &format!("globex {round}"), Vec::new()),
            _ => ann(),
        };
        let list = mutated(kind, round / KINDS.len());
        let answered = checkpoint.pipeline.call(call_of(caller, Some(&id)), list.to_arguments().unwrap()).await;
        let expected = if kind.starts_with("other") { ErrorCode::NotFound } else { ErrorCode::ApprovalMismatch };
        assert_eq!(outcome(&answered), Err(expected), "{kind} {round}");
    }
    assert_eq!(checkpoint.runs(), 0);
    for replayed in [false, true] {
        let answered = checkpoint.pipeline.call(call_of(ann(), Some(&id)), list().to_arguments().unwrap()).await;
        assert_eq!((outcome(&answered), answered.replayed, checkpoint.runs()), (Ok(json!(1)), replayed, 1));
    }
}

#[tokio::test]
async fn a_list_is_approved_once_by_as_many_as_any_effect_needs_and_shows_what_no_policy_masks() {
    let checkpoint = checkpoint();
    let mut list = list();
    (list.effects[1].approvals_needed, list.effects[1].masks) = (2, vec!["/amount".into()]);
    let id = asked_for(&checkpoint, &list).await;
    let approvals = &checkpoint.pipeline.approvals;
    let refused = approvals.decide(&id, &boss(), &yes(ApprovalScope::Minutes, Some(5))).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidRequest, "{refused}");
    approve(&checkpoint, &id).await;
    let approval = approvals.find(&id).await.unwrap();
    assert_eq!((approval.state, approval.details.needed), (ApprovalState::Pending, 2));
    let shown = approvals.shown_arguments(&approval).unwrap();
    assert_eq!(
        (&shown["effects"][1]["arguments"]["amount"]["masked"], &shown["effects"][0]["arguments"]["amount"]),
        (&json!(true), &json!(3))
    );
}

#[tokio::test]
async fn effects_that_an_approver_struck_out_are_no_longer_in_the_approved_list() {
    let checkpoint = checkpoint();
    let id = asked_for(&checkpoint, &list()).await;
    let approvals = &checkpoint.pipeline.approvals;
    let left = list().without(&[4, 7]).unwrap();
    let judgement = Judgement { arguments: Some(left.to_arguments().unwrap()), ..yes(ApprovalScope::Once, None) };
    approvals.decide(&id, &boss(), &judgement).await.unwrap();
    assert_eq!(approvals.effects_of(&id, &ann()).await.unwrap(), (list(), Some(left.clone())));
    let stranger = approvals.effects_of(&id, &Caller::new("ann", "globex", Vec::new())).await.unwrap_err();
    assert_eq!(stranger.code(), ErrorCode::NotFound);
    for (sent, expected) in [(list(), Err(ErrorCode::ApprovalMismatch)), (left, Ok(json!(1)))] {
        let answered = checkpoint.pipeline.call(call_of(ann(), Some(&id)), sent.to_arguments().unwrap()).await;
        assert_eq!(outcome(&answered), expected);
    }
}

#[tokio::test]
async fn a_call_is_made_without_a_question_only_for_the_reasons_that_were_shown_with_the_list() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let proposed = checkpoint.pipeline.proposed(&call(), arguments(3)).await.unwrap();
    assert_eq!((&proposed.reasons[..], checkpoint.runs()), (&["scripted always needs approval".to_owned()][..], 0));
    for (shown, expected) in
        [(vec!["another".to_owned()], Err(ErrorCode::ApprovalRequired)), (proposed.reasons, Ok(json!(1)))]
    {
        let resumption = CallResumption { shown_reasons: Some(shown.into()), ..CallResumption::default() };
        let answered = checkpoint.pipeline.call(CallContext { resumption, ..call() }, arguments(3)).await;
        assert_eq!(outcome(&answered), expected);
    }
}
