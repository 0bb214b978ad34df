use sekisho_core::call::Via;

use super::*;

fn caller(name: &str, tenant: &str) -> Arc<Caller> {
    Arc::new(Caller::new(name, tenant, Vec::new()))
}

fn call(tool: &str, caller: &Arc<Caller>) -> CallContext {
    CallContext::new(tool, Arc::clone(caller), Via::Rest)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn usage(used: &UsedTools, caller: &Caller) -> Usage {
    used.of(caller, |usage| usage.cloned().unwrap_or_default())
}

#[test]
fn calls_after_a_search_count_for_the_tenant_of_their_caller_alone() {
    let (used, alice, bob) = (UsedTools::default(), caller("alice", "acme"), caller("bob", "globex"));
    used.searched(&alice, "monthly figures", at(0));
    used.called(&call("draw", &alice), None, at(1));
    used.called(&call("mail", &alice), None, at(2));
    let mut expected = Usage::default();
    let counted = |tool, before| UsedTool { tool, query: Some("monthly figures"), before, has_failed: false };
    expected.add(counted("draw", &[]), seconds(at(1)));
    expected.add(counted("mail", &["draw"]), seconds(at(2)));
    assert_eq!(usage(&used, &alice), expected);
    assert_eq!(usage(&used, &bob), Usage::default());
    used.called(&call("read", &bob), None, at(3));
    let mut of_bob = Usage::default();
    of_bob.add(UsedTool { tool: "read", query: None, before: &[], has_failed: false }, seconds(at(3)));
    assert_eq!(usage(&used, &bob), of_bob, "the search of another caller is not its own");
}

#[test]
fn a_search_ends_after_ten_minutes() {
    let (used, alice) = (UsedTools::default(), caller("alice", "acme"));
    used.searched(&alice, "monthly figures", at(0));
    used.called(&call("draw", &alice), None, at(601));
    let mut expected = Usage::default();
    expected.add(UsedTool { tool: "draw", query: None, before: &[], has_failed: false }, seconds(at(601)));
    assert_eq!(usage(&used, &alice), expected);
}

#[test]
fn a_refusal_says_nothing_about_a_tool_and_a_failure_does() {
    let (used, alice) = (UsedTools::default(), caller("alice", "acme"));
    used.searched(&caller("bob", "globex"), "figures", at(0));
    for code in [ErrorCode::Denied, ErrorCode::RateLimited, ErrorCode::UnknownTool, ErrorCode::InvalidArguments] {
        used.called(&call("draw", &alice), Some(&CallError::new(code, "no")), at(0));
    }
    used.called(&CallContext { dry_run: true, ..call("draw", &alice) }, None, at(0));
    assert_eq!(usage(&used, &alice), Usage::default());
    used.called(&call("draw", &alice), Some(&CallError::new(ErrorCode::Timeout, "late")), at(0));
    let mut expected = Usage::default();
    expected.add(UsedTool { tool: "draw", query: None, before: &[], has_failed: true }, seconds(at(0)));
    assert_eq!(usage(&used, &alice), expected);
}

#[test]
fn calls_count_from_the_first_search_on() {
    let (used, alice) = (UsedTools::default(), caller("alice", "acme"));
    used.called(&call("draw", &alice), None, at(0));
    assert_eq!(usage(&used, &alice), Usage::default());
    assert_eq!(used.tenants.read().len(), 0);
}

#[test]
fn tenants_and_searches_are_bounded() {
    let used = UsedTools::default();
    for (number, second) in (0..MAX_CALLERS + 10).zip(0..) {
        let caller = caller("alice", &format!("tenant-{number}"));
        used.searched(&caller, "figures", at(second));
        used.called(&call("draw", &caller), None, at(second));
    }
    assert_eq!((used.tenants.read().len(), used.searches.lock().len()), (MAX_TENANTS, MAX_CALLERS));
    let last = caller("alice", &format!("tenant-{}", MAX_CALLERS + 9));
    assert_ne!(usage(&used, &last), Usage::default());
}
