use super::*;
use crate::policy::Policy;
use crate::policy::tests::{policy, snapshot};
use crate::tool::Metadata;
use sekisho_core::administration::Ownership;
use sekisho_core::call::{CallContext, Via};
use sekisho_core::caller::SubjectToken;
use sekisho_core::slack::slack;
use sekisho_core::source_access::{Beneficiary, OnRequest, SwitchedSources};
use sekisho_core::token_scopes::TokenScopes;

fn tools() -> Arc<Snapshot> {
    let tool = |name: &str| Metadata { name: name.into(), ..Metadata::default() };
    Arc::new(snapshot(vec![
        tool("plain"),
        Metadata { dangerous: true, ..tool("deploy") },
        Metadata { requires_auth: true, ..tool("mailbox") },
        Metadata { roles: vec!["clerk".into(), "boss".into()], ..tool("paid") },
        Metadata { dangerous: true, roles: vec!["boss".into()], ..tool("wipe") },
    ]))
}

fn caller(roles: &[&str]) -> Arc<Caller> {
    Arc::new(Caller::new("alice", "acme", roles.iter().map(ToString::to_string).collect()))
}

fn usable(tools: &CallerTools) -> Vec<&str> {
    tools.usable().map(|tool| tool.name()).collect()
}

fn visible(tools: &CallerTools) -> Vec<&str> {
    tools.visible().map(|(tool, _)| tool.name()).collect()
}

#[test]
fn each_caller_sees_the_tools_that_the_checks_permit() {
    let (policy, all) = (policy("deny[\"no\"] { false }"), tools());
    for (caller, expected, seen) in [
        (Caller::anonymous().into(), &["plain"][..], &["deploy", "mailbox", "plain"][..]),
        (caller(&[]), &["mailbox", "plain"], &["deploy", "mailbox", "plain"]),
        (caller(&["operator"]), &["deploy", "mailbox", "plain"], &["deploy", "mailbox", "plain"]),
        (caller(&["clerk"]), &["mailbox", "paid", "plain"], &["deploy", "mailbox", "paid", "plain"]),
        (caller(&["boss"]), &["mailbox", "paid", "plain"], &["deploy", "mailbox", "paid", "plain", "wipe"]),
        (
            caller(&["boss", "operator"]),
            &["deploy", "mailbox", "paid", "plain", "wipe"],
            &["deploy", "mailbox", "paid", "plain", "wipe"],
        ),
    ] {
        for _ in 0..2 {
            let tools = policy.tools_for(&all, &caller);
            assert_eq!((&usable(&tools)[..], &visible(&tools)[..]), (expected, seen), "{caller:?}");
        }
    }
}

#[test]
fn only_rules_that_read_no_more_than_tool_and_user_remove_tools_from_listings() {
    let all = tools();
    for (rules, expected) in [
        ("deny[\"no\"] { input.tool == \"plain\" }", &["mailbox"][..]),
        ("deny[\"not alice\"] { input.user.id == \"alice\" }", &[]),
        ("deny[\"nothing goes\"] { true }", &[]),
        ("deny[\"no\"] { input.tool == \"plain\"; input.arguments.n > 1 }", &["mailbox", "plain"]),
        // Read somewhere in the set: the rules are evaluated only for a call.
        ("deny[\"no\"] { input.tool == \"plain\" }\ndeny[\"later\"] { input.call.depth > 3 }", &["mailbox", "plain"]),
        ("deny[\"the hour\"] { time.now_ns() > 5 }", &["mailbox", "plain"]),
        // A human may still approve, and a rule that fails has no reason against the tool; a call of it is refused.
        ("deny[\"no\"] { false }\nrequire_approval[\"ask\"] { input.tool == \"plain\" }", &["mailbox", "plain"]),
        ("deny[\"no\"] { to_number(input.tool) > 1 }", &["mailbox", "plain"]),
    ] {
        let policy = policy(rules);
        assert_eq!(usable(&policy.tools_for(&all, &caller(&[]))), expected, "{rules}");
    }
}

#[test]
fn unmet_requirements_are_reported_with_the_sufficient_roles() {
    let (policy, all) = (policy("deny[msg] { input.tool == \"plain\"; msg := \"not today\" }"), tools());
    let anonymous: Arc<Caller> = Caller::anonymous().into();
    let tools = policy.tools_for(&all, &anonymous);
    let missing: Vec<_> = tools.visible().map(|(tool, access)| (tool.name(), tools.missing(tool, access))).collect();
    let expected = serde_json::json!([
        ["deploy", [{"check": "dangerous", "roles": ["operator"],
            "message": "deploy is dangerous: the caller needs the role operator"}]],
        ["mailbox", [{"check": "requires_auth",
            "message": "mailbox needs a signed-in caller: send an API key or a token"}]],
        ["plain", [{"check": "policy", "message": "not today"}]],
    ]);
    assert_eq!(serde_json::json!(missing), expected);
    let codes = ["deploy", "mailbox", "plain", "paid", "nothing"].map(|name| tools.find(name).unwrap_err().code());
    let (denied, unknown) = (ErrorCode::Denied, ErrorCode::UnknownTool);
    assert_eq!(codes, [denied, ErrorCode::Unauthenticated, denied, unknown, unknown]);
    assert_eq!(
        tools.left_out().unwrap(),
        "5 of 5 tools are left out for this caller: 1 needs a policy that lets this caller use it; \
         1 needs a signed-in caller; 1 needs one of the roles clerk, boss; 1 needs the role boss and the role operator; \
         1 needs the role operator"
    );
    assert_eq!(
        Policy::load(&Default::default()).unwrap().tools_for(&all, &caller(&["boss", "operator"])).left_out(),
        None
    );
}

#[test]
fn tools_that_need_further_scopes_are_visible_to_clients_that_can_ask_for_them() {
    let needed = BTreeMap::from([("write".to_owned(), vec!["d*".to_owned(), "p*".to_owned()])]);
    let (policy, all) = (policy("deny[\"no\"] { input.tool == \"paid\" }"), tools());
    let narrow = |roles: &[&str]| {
        let caller = Caller::clone(&caller(roles)).with_scopes(TokenScopes::new(&needed, &[]));
        policy.tools_for(&all, &Arc::new(caller))
    };
    let with_scopes = |tools: &CallerTools| {
        let visible = tools.visible().filter(|(_, access)| access.is_usable_with_scopes());
        visible.map(|(tool, _)| tool.name().to_owned()).collect::<Vec<_>>()
    };
    let tools = narrow(&["clerk"]);
    assert_eq!(
        (usable(&tools), with_scopes(&tools)),
        (vec!["mailbox"], vec!["mailbox".to_owned(), "plain".to_owned()])
    );
    assert_eq!(with_scopes(&narrow(&["operator"])), ["deploy", "mailbox", "plain"]);
    let plain = tools.visible().find(|(tool, _)| tool.name() == "plain").unwrap();
    let expected = "plain needs a token with the scope write: sign in again, and ask for it";
    assert_eq!(
        serde_json::json!(tools.missing(plain.0, plain.1)),
        serde_json::json!([{"check": "scopes", "message": expected}])
    );
    assert!(tools.left_out().unwrap().contains("a token with the scope write"));
}

#[test]
fn a_tool_hidden_by_its_roles_is_refused_like_a_missing_one() {
    let (policy, all) = (policy("deny[\"no\"] { false }"), tools());
    let refusal = |caller: &Arc<Caller>, name: &str| {
        let error = policy.tools_for(&all, caller).find(name).unwrap_err();
        (error.to_string().replace(name, "…"), error.alternatives().to_vec())
    };
    assert_eq!(refusal(&caller(&[]), "paid").0, refusal(&caller(&[]), "nothing").0);
    assert!(refusal(&caller(&[]), "pai").1.iter().all(|name| name != "paid"));
    assert_eq!(refusal(&caller(&["clerk"]), "pai").1.first().map(String::as_str), Some("paid"));
}

#[test]
fn a_tool_of_a_tenant_is_hidden_from_all_others_whatever_their_roles() {
    let (policy, owner) = (policy("deny[\"no\"] { false }"), Ownership::Tenant("acme".into()));
    let all = Arc::new(snapshot(vec![
        Metadata { name: "crm".into(), owner, ..Metadata::default() },
        Metadata { name: "plain".into(), ..Metadata::default() },
    ]));
    let of = |tenant: &str| Arc::new(Caller::new("alice", tenant, vec!["admin".into(), "operator".into()]));
    let own = policy.tools_for(&all, &of("acme"));
    assert_eq!((usable(&own), own.find("crm").is_ok()), (vec!["crm", "plain"], true));
    let tool = all.get("crm").unwrap();
    for tenant in ["globex", "default", "acme2"] {
        let tools = policy.tools_for(&all, &of(tenant));
        assert_eq!((visible(&tools), tools.search("crm", 5).len()), (vec!["plain"], 0), "{tenant}");
        assert_eq!(tools.left_out(), None, "{tenant}: it is not counted either");
        let refused = tools.find("crm").unwrap_err();
        assert_eq!((refused.code(), refused.alternatives()), (ErrorCode::UnknownTool, &[][..]), "{refused}");
        assert!(policy.check_access(tool, &of(tenant)).is_err(), "{tenant}: also where it was found before");
    }
}

#[test]
fn a_tool_of_a_source_on_request_is_there_only_while_the_source_is_on_for_the_caller() {
    let (policy, switched) = (policy("deny[\"no\"] { false }"), Arc::new(SwitchedSources::default()));
    let registered = || {
        let on_request = Some(OnRequest(Arc::clone(&switched)));
        let git = Metadata { name: "git__log".into(), source: "mcp:git".into(), on_request, ..Metadata::default() };
        Arc::new(snapshot(vec![git, Metadata { name: "plain".into(), ..Metadata::default() }]))
    };
    let alice = Arc::new(Caller::new("alice", "acme", vec!["admin".into(), "operator".into()]));
    let all = registered();
    let tool = all.get("git__log").unwrap();
    let switch = |admitted: &[Beneficiary]| {
        switched.replace([("mcp:git".to_owned(), admitted.iter().cloned().collect())].into());
    };
    let assert_off = |tools: &CallerTools| {
        assert_eq!(
            (visible(tools), usable(tools), tools.search("git log", 5).len()),
            (vec!["plain"], vec!["plain"], 0)
        );
        assert_eq!(tools.left_out(), None, "it is not counted either");
        assert_eq!(tools.find("git__log").unwrap_err().code(), ErrorCode::UnknownTool);
        assert!(policy.check_access(tool, &alice).is_err(), "also where it was found before");
    };
    assert_off(&policy.tools_for(&all, &alice));
    switch(&[Beneficiary::User(Caller::new("bob", "acme", Vec::new()).key)]);
    assert_off(&policy.tools_for(&all, &alice));
    switch(&[Beneficiary::User(Arc::clone(&alice.key))]);
    // As after a change: the registry has another snapshot.
    let tools = policy.tools_for(&registered(), &alice);
    assert_eq!((usable(&tools), tools.find("git__log").is_ok()), (vec!["git__log", "plain"], true));
    assert!(policy.check_access(tool, &alice).is_ok());
    switch(&[]);
    // A list of before the withdrawal, too.
    assert_off(&tools);
}

#[test]
fn a_search_finds_only_usable_tools_and_as_many_as_requested() {
    let (policy, all) = (policy("deny[\"no\"] { input.tool == \"mailbox\" }"), tools());
    let found = |roles: &[&str], query: &str, most| {
        let tools = policy.tools_for(&all, &caller(roles));
        tools.search(query, most).iter().map(|(tool, _)| tool.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&[], "deploy mailbox plain", 5), ["plain"]);
    assert_eq!(found(&[], "deploy mailbox plain", 1), ["plain"], "what is left out takes no place");
    assert_eq!(found(&["operator"], "deploy", 5), ["deploy"]);
}

#[test]
fn what_a_tenant_called_after_such_a_search_is_found_in_that_tenant_alone() {
    let (policy, all) = (policy("deny[\"no\"] { false }"), tools());
    let of = |name: &str, tenant: &str| Arc::new(Caller::new(name, tenant, Vec::new()));
    let (alice, bob, stranger) = (of("alice", "acme"), of("bob", "acme"), of("bob", "globex"));
    let found = |caller: &Arc<Caller>| {
        let tools = policy.tools_for(&all, caller);
        tools.search("striped zebras", 5).iter().map(|(tool, _)| tool.name().to_owned()).collect::<Vec<_>>()
    };
    assert!(found(&alice).is_empty());
    for tool in ["plain", "wipe"] {
        policy.used_tools().called(&CallContext::new(tool, Arc::clone(&alice), Via::Rest), None, Timestamp::now());
    }
    assert_eq!(found(&bob), ["plain"], "and not what bob may not use");
    assert!(found(&stranger).is_empty());
}

#[test]
fn cached_access_applies_to_one_policy_set_and_one_snapshot() {
    let (policy, all) = (Policy::load(&Default::default()).unwrap(), tools());
    let anonymous: Arc<Caller> = Caller::anonymous().into();
    let namesake = Arc::new(Caller::new("anonymous", "public", Vec::new()));
    let before = policy.tools_for(&all, &anonymous);
    let access = |tools: &CallerTools| Arc::clone(&tools.access);
    assert!(Arc::ptr_eq(&access(&before), &access(&policy.tools_for(&all, &anonymous))), "kept");
    assert_eq!(usable(&policy.tools_for(&all, &namesake)), ["mailbox", "plain"], "roles and sign-in count, not names");
    let mut changes = policy.changes();
    policy.reload(&sekisho_config::PolicyConfig { dangerous_roles: vec!["sre".into()], ..Default::default() }).unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(usable(&policy.tools_for(&all, &caller(&["sre"]))), ["deploy", "mailbox", "plain"]);
    let one = Arc::new(snapshot(vec![Metadata { name: "other".into(), ..Metadata::default() }]));
    assert_eq!(usable(&policy.tools_for(&one, &anonymous)), ["other"]);
}

#[test]
fn cached_access_keeps_no_token_of_a_caller() {
    let (policy, all) = (Policy::load(&Default::default()).unwrap(), tools());
    let caller = || {
        let token = SubjectToken {
            text: "secret".to_owned(),
            issuer: "https://issuer".to_owned(),
            subject: "alice".to_owned(),
            audiences: Vec::new(),
            expires: 0,
            session: None,
        };
        Arc::new(Caller::new("alice", "acme", Vec::new()).with_token(token))
    };
    let first = policy.tools_for(&all, &caller());
    assert!(Arc::ptr_eq(&first.access, &policy.tools_for(&all, &caller()).access), "kept");
    let kept = policy.listings.present.load_full().unwrap();
    let mut tokens = Vec::new();
    kept.by_caller.retain(|caller, _| {
        tokens.push(caller.token.get().is_some());
        true
    });
    assert_eq!(tokens, [false]);
}

#[test]
fn the_cache_of_access_is_bounded() {
    let (policy, all) = (Policy::load(&Default::default()).unwrap(), tools());
    for number in 0..10_000 {
        policy.tools_for(&all, &Arc::new(Caller::new(&format!("caller-{number}"), "acme", Vec::new())));
    }
    assert!(policy.listings.present.load_full().unwrap().by_caller.len() <= MAX_CALLERS);
}

/// Two thousand tools, each with a rule to evaluate: the first listing for a caller takes time, the next does not.
#[test]
fn access_to_thousands_of_tools_is_computed_once() {
    let tool = |number| Metadata { name: format!("tool-{number:04}"), ..Metadata::default() };
    let all = Arc::new(snapshot((0..2_000).map(tool).collect()));
    let policy = policy("deny[\"no\"] { endswith(input.tool, \"7\"); not is_admin(input.user) }");
    policy.tools_for(&all, &caller(&[]));
    let started = Instant::now();
    for _ in 0..100 {
        policy.tools_for(&all, &caller(&[]));
    }
    assert!(started.elapsed() < slack(Duration::from_millis(50)), "{:?}", started.elapsed());
}
