//! Keys: the request and the caller of each.

use std::collections::BTreeMap;

use futures_util::future::join;

use super::*;
use crate::pipeline::idempotency::key::MAX_KEY_LENGTH;
use crate::tool::Metadata;
use sekisho_config::PolicyConfig;
use sekisho_core::call::CallOrigin;
use sekisho_core::token_scopes::TokenScopes;

#[tokio::test]
async fn another_body_is_a_conflict_while_the_first_call_runs_and_after() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::around(script);
    let pipeline = &checkpoint.pipeline;
    let others = || {
        let dry = CallContext { dry_run: true, ..keyed("k") };
        let parameters =
            CallContext { origin: CallOrigin { tool_parameters: arguments(1), ..CallOrigin::default() }, ..keyed("k") };
        [(keyed("k"), arguments(2)), (dry, Arguments::new()), (parameters, Arguments::new())]
    };
    let all_conflict = async || {
        for (call, arguments) in others() {
            let other = pipeline.call(call, arguments).await;
            assert_eq!(outcome_of(&other), (Err(ErrorCode::IdempotencyConflict), false));
        }
    };
    let meanwhile = async {
        until_runs(&checkpoint, 1).await;
        all_conflict().await;
        gate.add_permits(1);
    };
    let (first, ()) = Box::pin(join(send(&checkpoint, "k"), meanwhile)).await;
    assert_eq!(first, (Ok(json!(1)), false));
    all_conflict().await;
    assert_eq!(checkpoint.runs(), 1);
}

#[tokio::test]
async fn a_key_belongs_to_one_tenant_caller_and_tool() {
    let checkpoint = Checkpoint::around(counting());
    for (run, (tenant, caller)) in (1..).zip([("acme", "ann"), ("acme", "bob"), ("rival", "ann")]) {
        let answered = checkpoint.pipeline.call(keyed_by(tenant, caller, "k"), Arguments::new()).await;
        assert_eq!(outcome_of(&answered), (Ok(json!(run)), false));
    }
    let ids = [("ab", "c"), ("a", "bc")].map(|(tool, key)| RecordId::new(&call().caller, tool, key).unwrap());
    assert_ne!(ids[0], ids[1]);
}

/// Several keys and tokens of one person are one caller.
#[tokio::test]
async fn a_caller_with_fewer_rights_gets_no_reply_of_a_call_that_was_made_with_more() {
    let folder = TempDir::new().unwrap();
    let rule = "package tools\ndeny[\"no interns\"] { input.user.roles[_] == \"intern\" }\n";
    std::fs::write(folder.path().join("tools.rego"), rule).unwrap();
    let policy = PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() };
    let metadata = Metadata { dangerous: true, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&Config { policy, ..Config::default() }, metadata, counting());
    let send = async |caller: &Caller| {
        let call = CallContext { caller: Arc::new(caller.clone()), ..keyed("k") };
        outcome_of(&checkpoint.pipeline.call(call, Arguments::new()).await)
    };
    let with_roles = |roles: &[&str]| Caller::new("ann", "acme", roles.iter().map(ToString::to_string).collect());
    let wide = with_roles(&["operator"]);
    assert_eq!(send(&wide).await, (Ok(json!(1)), false));
    let of_key = Caller { tools: wide.tools.narrowed(vec!["other".to_owned()]), ..wide.clone() };
    let needed = BTreeMap::from([("write".to_owned(), vec!["scripted".to_owned()])]);
    let of_token = wide.clone().with_scopes(TokenScopes::new(&needed, &[]));
    for (caller, code) in [
        (of_key, ErrorCode::UnknownTool),
        (of_token, ErrorCode::Denied),
        (with_roles(&[]), ErrorCode::Denied),
        (with_roles(&["operator", "intern"]), ErrorCode::Denied),
    ] {
        assert_eq!(send(&caller).await, (Err(code), false), "{caller:?}");
    }
    assert_eq!(send(&wide).await, (Ok(json!(1)), true));
    assert_eq!(checkpoint.runs(), 1);
    let lines = checkpoint.lines().await;
    assert_eq!((&lines[3]["status"], &lines[3]["stage"]), (&json!("refused"), &json!("policy")), "{lines:?}");
}

#[test]
fn keys_are_visible_ascii() {
    let ann = Caller::new("ann", "acme", Vec::new());
    let (longest, too_long) = ("k".repeat(MAX_KEY_LENGTH), "k".repeat(MAX_KEY_LENGTH + 1));
    for key in ["k", "\"8e03978e-40d5\"", &longest] {
        assert!(RecordId::new(&ann, "calculator", key).is_ok(), "{key}");
    }
    for key in ["", "a b", "tab\t", "é", "nul\0", &too_long] {
        let error = RecordId::new(&ann, "calculator", key).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest, "{key}");
    }
}
