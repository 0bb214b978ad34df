use std::time::Duration;

use super::*;
use sekisho_core::call::{CallContext, Caller, Stage, StageTimes, Via};

const NOW: u64 = 1_800_000_000;

/// An executed call.
fn call(tenant: &str, second: u64, tool: &str) -> CallSummary {
    let call = CallContext::new(tool, Arc::new(Caller::new("ann", tenant, Vec::new())), Via::Rest);
    CallSummary {
        time: at(second),
        stages: [Stage::Find, Stage::Breaker].map(|stage| (stage, Duration::ZERO)).into_iter().collect(),
        duration: Duration::from_millis(10),
        cost_usd: Decimal::ONE,
        tokens: 5,
        ..CallSummary::new(&call, None, None, String::new())
    }
}

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

#[test]
fn the_last_hour_has_what_the_calls_of_a_tenant_came_to() {
    let figures = Figures::default();
    figures.record(&call("acme", NOW - 3_700, "old"));
    figures.record(&call("acme", NOW - 120, "read"));
    figures.record(&call("acme", NOW - 1, "read"));
    let refused = |tenant| CallSummary {
        status: Status::Refused,
        code: Some(ErrorCode::Denied),
        cost_usd: Decimal::ZERO,
        ..call(tenant, NOW - 1, "write")
    };
    figures.record(&refused("acme"));
    figures.record(&refused("other"));
    let (stages, code) = (StageTimes::new(), Some(ErrorCode::UnknownTool));
    figures.record(&CallSummary { stages, code, ..refused("acme") });

    let hour = figures.of_tenant("acme", at(NOW)).unwrap();
    assert_eq!((hour.seconds.len(), hour.seconds[SECONDS - 1]), (SECONDS, 3));
    assert_eq!(hour.minutes.len(), MINUTES);
    let totals = hour.totals();
    assert_eq!((totals.outcomes.calls(), totals.outcomes.of(Status::Refused)), (4, 2));
    assert_eq!(totals.codes(), [(ErrorCode::Denied, 1), (ErrorCode::UnknownTool, 1)]);
    assert_eq!((totals.cost_usd, totals.tokens), (Decimal::TWO, 20));
    let median = totals.times.quantile(0.5).unwrap().as_secs_f64();
    assert!((median / 0.01 - 1.0).abs() < 0.125, "{median}");
    assert_eq!(hour.tools.keys().map(|name| &**name).collect::<Vec<_>>(), ["read", "write"]);
    assert_eq!(hour.tools["write"].outcomes.of(Status::Refused), 1);

    let all = figures.of_all(at(NOW));
    assert_eq!((all.totals().outcomes.calls(), all.tools["write"].outcomes.calls()), (5, 2));
    assert!(figures.of_tenant("nobody", at(NOW)).is_none());
}

#[test]
fn a_tool_fails_while_no_more_calls_succeed_than_its_upstream_fails() {
    let figures = Figures::default();
    let failed = |tenant, second, tool| {
        let (status, code, stage) = (Status::Error, Some(ErrorCode::UpstreamError), Some(Stage::Execute));
        CallSummary { status, code, stage, ..call(tenant, second, tool) }
    };
    let refused = |status| CallSummary { http_status: Some(status), ..failed("acme", NOW, "refusing") };
    figures.record(&failed("acme", NOW - 1_200, "repaired"));
    figures.record(&call("acme", NOW - 600, "repaired"));
    figures.record(&call("acme", NOW - 600, "broken"));
    figures.record(&failed("acme", NOW, "broken"));
    figures.record(&call("acme", NOW, "mostly"));
    figures.record(&call("acme", NOW, "mostly"));
    figures.record(&failed("acme", NOW, "mostly"));
    figures.record(&refused(404));
    figures.record(&failed("other", NOW, "theirs"));
    let failing = |tenant| figures.failing_tools(tenant, at(NOW)).into_iter().map(String::from).collect::<Vec<_>>();
    assert_eq!(failing(Some("acme")), ["broken"], "the fault of a 404 is the call's");
    assert_eq!(failing(None), ["broken", "theirs"]);
    figures.record(&refused(401));
    assert_eq!(failing(Some("acme")), ["broken", "refusing"]);
    assert_eq!(figures.failing_tools(None, at(NOW + 4_000)).len(), 0);
}

#[test]
fn what_is_kept_is_bounded_and_idle_tools_make_room() {
    let figures = Figures::default();
    for tenant in 0..MAX_TENANTS + 10 {
        figures.record(&call(&tenant.to_string(), NOW, "tool"));
    }
    for tool in 0..MAX_TOOLS + 10 {
        figures.record(&call("0", NOW, &format!("tool_{tool}")));
    }
    let kept = || {
        let tenants = figures.tenants.read();
        let all = tenants.iter().map(|(_, tenant)| tenant).chain([&figures.others]);
        all.map(|tenant| tenant.tools.read().len()).sum::<usize>()
    };
    assert_eq!((figures.tenants.read().len(), kept()), (MAX_TENANTS, MAX_TOOLS));
    let calls = figures.of_all(at(NOW)).totals().outcomes.calls();
    assert_eq!(calls, (MAX_TENANTS + MAX_TOOLS + 20) as u64, "calls without figures of their own count too");

    let later = NOW + 4_000;
    figures.record(&call("1", later, "tool"));
    figures.evict_idle(at(later));
    assert_eq!((figures.tenants.read().len(), kept()), (1, 1));
    figures.record(&call("1", later, "new"));
    assert_eq!(kept(), 2);
}

#[test]
fn two_thousand_tools_take_less_than_sixteen_megabytes() {
    // A slot has the number of its period too.
    let tool = PARTS * (size_of::<ToolTotals>() + 8) + 256;
    let tenant = MINUTES * (size_of::<Totals>() + 8) + SECONDS * 16 + 256;
    let bytes = MAX_TOOLS * tool + (MAX_TENANTS + 1) * tenant;
    assert!(bytes <= 16_000_000, "{bytes}");
}
