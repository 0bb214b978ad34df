use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;

use super::*;
use sekisho_core::call::{CallContext, Caller, ModelTurns, RateState, SessionEnd, UsedModel, Via};
use sekisho_core::error::CallError;
use sekisho_core::guard_finding::GuardAction;
use sekisho_core::record::{FinishReason, RunUsage, Status};
use sekisho_core::transform_finding::TransformedPart;

const ALL_STAGES: [(Stage, Duration); 8] = {
    let mut stages = [(Stage::Find, Duration::from_micros(3)); 8];
    let mut at = 0;
    while at < 8 {
        stages[at].0 = Stage::ALL[at];
        at += 1;
    }
    stages
};

fn call() -> CallContext {
    CallContext::new("calculator", Arc::new(Caller::anonymous()), Via::Rest)
}

/// A call that passed these stages.
fn ended(call: &CallContext, error: Option<&CallError>, stages: &[(Stage, Duration)]) -> CallSummary {
    CallSummary {
        duration: Duration::from_millis(2),
        stages: stages.iter().copied().collect(),
        cost_usd: Decimal::new(1, 3),
        tokens: 7,
        attempts: 1,
        rate: Some(RateState { limit: 60, remaining: 59, reset_seconds: 1 }),
        ..CallSummary::new(call, None, error, String::new())
    }
}

fn success() -> CallSummary {
    ended(&call(), None, &ALL_STAGES)
}

/// The value of a sample as it is exported.
fn value(metrics: &Metrics, sample: &str) -> Option<f64> {
    metrics.render().lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn every_family_is_exported_with_help_and_type_from_the_start() {
    let text = Metrics::new("shannon").unwrap().render();
    let named = |keyword: &str| -> BTreeSet<String> {
        let ours = text.lines().filter_map(|line| line.strip_prefix(keyword)?.strip_prefix("shannon_"));
        ours.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let documented: BTreeSet<_> = families::NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(named("# HELP "), documented);
    assert_eq!(named("# TYPE "), documented);
    assert!(text.lines().any(|line| line.starts_with("process_resident_memory_bytes ")), "{text}");
}

#[test]
fn every_family_has_the_same_samples_under_the_own_namespace() {
    for namespace in ["shannon", "gate_1", "sekisho"] {
        let metrics = Metrics::new(namespace).unwrap();
        let guard = metrics.enter();
        metrics.record(Some(&metrics.for_tool("calculator")), &success(), &[]);
        let text = metrics.render();
        drop(guard);
        let under = |namespace: &str| -> BTreeSet<String> {
            let ours = text.lines().filter(|line| line.contains(&format!("{namespace}_")));
            ours.map(|line| line.replacen(&format!("{namespace}_"), "", 1)).collect()
        };
        assert_eq!(under(namespace), under("sekisho"));
        assert!(under("sekisho").contains("calls_in_flight 1"), "{text}");
        let lines: BTreeSet<_> = text.lines().collect();
        assert_eq!(lines.len(), text.lines().count(), "a line twice: {text}");
    }
}

/// An event, and the sample it moves to 1.
type Move = (fn(&Metrics, &ToolMetrics), &'static str);

const MOVES: &[Move] = &[
    (|m, t| m.record(Some(t), &success(), &[]), "tool_executions_total{status=\"success\",tool_name=\"calculator\"}"),
    (|m, t| m.record(Some(t), &success(), &[]), "tool_execution_duration_seconds_count{tool_name=\"calculator\"}"),
    (|m, t| m.record(Some(t), &success(), &[]), "tool_cost_usd_bucket{tool_name=\"calculator\",le=\"0.001\"}"),
    (|m, t| m.record(Some(t), &success(), &[]), "stage_duration_seconds_count{stage=\"breaker\"}"),
    (|m, t| m.record(Some(t), &success(), &[]), "policy_decisions_total{decision=\"allow\"}"),
    (|m, t| refuse(m, t, ErrorCode::Denied, Stage::Policy), "policy_decisions_total{decision=\"deny\"}"),
    (
        |m, t| refuse(m, t, ErrorCode::ApprovalRequired, Stage::Policy),
        "policy_decisions_total{decision=\"require_approval\"}",
    ),
    (
        |m, t| refuse(m, t, ErrorCode::Denied, Stage::Policy),
        "tool_errors_total{error_type=\"denied\",tool_name=\"calculator\"}",
    ),
    (|m, t| refuse(m, t, ErrorCode::RateLimited, Stage::Limits), "rate_limit_exceeded_total{tool_name=\"calculator\"}"),
    (
        |m, t| refuse(m, t, ErrorCode::TokenLimitExceeded, Stage::Budget),
        "budget_refusals_total{error_type=\"token_limit_exceeded\"}",
    ),
    (
        |m, t| m.record(Some(t), &CallSummary { status: Status::Cancelled, ..success() }, &[]),
        "tool_cancellations_total{tool_name=\"calculator\"}",
    ),
    (
        |m, t| m.record(Some(t), &CallSummary { output_schema_violation: true, ..success() }, &[]),
        "tool_output_schema_violations_total{tool_name=\"calculator\"}",
    ),
    (
        |m, t| m.record(Some(t), &CallSummary { output_schema_violation: true, ..success() }, &[]),
        "tool_output_misfits_total{tool_name=\"calculator\"}",
    ),
    (|m, _| m.count_guards(&[guarded()]), "guard_findings_total{action=\"block\",direction=\"answers\",rule=\"mail\"}"),
    (|m, t| m.record(Some(t), &success(), &[found()]), "transform_findings_total{part=\"results\",rule=\"mail\"}"),
    (
        |m, t| {
            let rate = Some(RateState { limit: 60, remaining: 1, reset_seconds: 60 });
            m.record(Some(t), &CallSummary { rate, ..success() }, &[]);
        },
        "rate_limit_tokens_available{tool_name=\"calculator\"}",
    ),
    (
        |m, _| m.for_breaker("https://a").set_state(BreakerState::HalfOpen),
        "circuit_breaker_state{base_url=\"https://a\"}",
    ),
    (|m, _| m.for_breaker("https://a").failed(), "circuit_breaker_failures_total{base_url=\"https://a\"}"),
    (|m, _| std::mem::forget(m.enter()), "calls_in_flight"),
    (|m, _| m.approval(ApprovalEvent::Used), "approvals_total{event=\"used\"}"),
    (|m, _| m.set_approvals_pending(1), "approvals_pending"),
    (|m, _| m.waits_for_approval(1), "approval_waiters"),
    (|m, _| m.flow(true, FlowEvent::Asked), "flow_calls_total{judgement=\"asked\",mode=\"enforce\"}"),
    (|m, _| m.large_result(LargeResultOutcome::Stored), "large_results_total{outcome=\"stored\"}"),
    (
        |m, _| {
            let one = Decimal::ONE;
            let (tenant, caller) = ("acme".to_owned(), None);
            m.set_budgets(&[DayBudget {
                tenant,
                caller,
                spent: one,
                held: one,
                limit: Some(one),
                tokens: 0,
                token_limit: None,
            }]);
        },
        "budget_cost_usd{amount=\"limit\",caller=\"\",tenant=\"acme\"}",
    ),
    (
        |m, _| m.mcp_program_connection("time", "example.com", false),
        "mcp_program_connections_total{host=\"example.com\",outcome=\"refused\",server=\"time\"}",
    ),
    (|m, _| m.set_replicas(&[replica()]), "replica_live{host=\"h\",replica=\"r\"}"),
    (|m, _| m.set_replicas(&[replica()]), "replica_degraded{kind=\"mcp\",replica=\"r\"}"),
    (|m, _| m.set_degraded(["audit", "mcp:a", "mcp:b"].into_iter()), "component_degraded{component=\"audit\"}"),
    (|m, _| m.unauthenticated(), "unauthenticated_requests_total"),
    (|m, _| m.configuration_reloaded(false), "configuration_reloads_total{result=\"rejected\"}"),
    (|m, _| m.configuration_reloaded(true), "configuration_last_reload_successful"),
    (
        |m, _| m.policy_shadow_differs("allow", "deny"),
        "policy_shadow_differences_total{decision=\"allow\",shadow=\"deny\"}",
    ),
    (|m, _| m.policy_reloaded(false), "policy_reloads_total{result=\"rejected\"}"),
    (|m, _| m.policy_reloaded(true), "policy_last_reload_successful"),
    (|m, _| m.idempotent_replay(), "idempotent_replays_total"),
    (|m, _| m.for_sandbox().run_ended(RunEnd::Timeout, Duration::from_secs(1)), "sandbox_runs_total{end=\"timeout\"}"),
    (|m, _| m.for_sandbox().run_ended(RunEnd::Exited, Duration::from_secs(1)), "sandbox_cpu_seconds_total"),
    (|m, _| std::mem::forget(m.for_sandbox().running()), "sandbox_runs_live"),
    (|m, _| std::mem::forget(m.for_sandbox().queued()), "sandbox_runs_queued"),
    (|m, _| m.for_sandbox().sessions_open(1, 0), "sandbox_sessions_open"),
    (|m, _| m.for_sandbox().sessions_open(0, 1), "sandbox_session_memory_bytes"),
    (|m, _| m.for_sandbox().sessions_stored(1, 0), "sandbox_sessions_stored"),
    (|m, _| m.for_sandbox().sessions_stored(0, 1), "sandbox_session_image_bytes"),
    (|m, _| m.for_sandbox().session_ended(SessionEnd::Idle), "sandbox_sessions_ended_total{reason=\"idle\"}"),
    (|m, _| m.for_sandbox().workers_ready(1), "sandbox_workers_ready"),
    (|m, _| m.for_sandbox().worker_lost(), "sandbox_workers_lost_total"),
    (|m, _| m.mcp_server("time", true), "mcp_server_up{server=\"time\"}"),
    (|m, _| m.mcp_server("time", false), "mcp_connections_total{event=\"lost\",server=\"time\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_runs_total{agent=\"a\",reason=\"stop\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_run_duration_seconds_count{agent=\"a\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_run_cost_usd_count{agent=\"a\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_tokens_total{agent=\"a\",direction=\"input\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_cache_read_ratio_count{agent=\"a\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_turns_total{agent=\"a\"}"),
    (|m, _| m.record_run("a", FinishReason::Stop, &run()), "agent_tool_calls_total{agent=\"a\"}"),
    (|m, _| m.record_tools_left_out("a", 1), "agent_tools_left_out_total{agent=\"a\"}"),
    (
        |m, _| m.record_model_request("t", &used_model(), "ok", Duration::from_secs(1)),
        "agent_model_requests_total{model=\"m\",outcome=\"ok\",provider=\"p\",tenant=\"t\"}",
    ),
    (
        |m, _| m.record_model_request("t", &used_model(), "ok", Duration::from_secs(1)),
        "agent_model_request_duration_seconds_count{model=\"m\",provider=\"p\"}",
    ),
    (
        |m, _| m.record_first_token(&used_model(), Duration::from_secs(1)),
        "agent_model_first_token_seconds_count{model=\"m\",provider=\"p\"}",
    ),
    (
        |m, _| m.record_model_tokens("t", &used_model(), &ModelTurns { prompt_tokens: 1, ..ModelTurns::default() }),
        "agent_model_tokens_total{kind=\"input\",model=\"m\",provider=\"p\",tenant=\"t\"}",
    ),
    (|m, _| m.record_odd_answer("xai", "usage"), "agent_odd_answers_total{oddity=\"usage\",provider=\"xai\"}"),
    (|_, _| {}, "build_info"),
    (|m, _| m.tools_to_look_at(1, 0), "tools_quarantined"),
    (|m, _| m.tools_to_look_at(0, 1), "tools_flagged"),
    (|m, _| m.set_segments_waiting(1), "audit_segments_waiting"),
    (|m, _| m.set_runtime_tasks(1), "runtime_tasks"),
];

fn found() -> TransformFinding {
    TransformFinding { part: TransformedPart::Results, rule: "mail".into(), path: "$".into(), count: 1 }
}

fn guarded() -> GuardFinding {
    GuardFinding { direction: "answers", rule: "mail".into(), found: "emails".into(), action: GuardAction::Block }
}

fn replica() -> ReplicaState {
    let degraded = vec!["mcp:time".to_owned(), "audit".to_owned()];
    ReplicaState { id: "r".to_owned(), host: "h".to_owned(), is_live: true, degraded }
}

/// An agent's run that used one of everything.
fn used_model() -> UsedModel {
    UsedModel { agent: "a".into(), provider: "p".into(), model: "m".into() }
}

fn run() -> RunUsage {
    RunUsage { turns: 1, tool_calls: 1, prompt_tokens: 1, completion_tokens: 1, ..RunUsage::default() }
}

fn refuse(metrics: &Metrics, tool: &ToolMetrics, code: ErrorCode, stage: Stage) {
    let error = CallError::new(code, "no").at_stage(stage);
    let refused = ended(&call(), Some(&error), &ALL_STAGES[..=stage as usize]);
    metrics.record(Some(tool), &CallSummary { status: Status::Refused, ..refused }, &[]);
}

#[test]
fn every_family_is_moved_by_what_it_counts() {
    for (happen, sample) in MOVES.iter().filter(|(_, sample)| *sample != "build_info") {
        let metrics = Metrics::new("ns").unwrap();
        let tool = metrics.for_tool("calculator");
        happen(&metrics, &tool);
        assert_eq!(value(&metrics, &format!("ns_{sample}")), Some(1.0), "{sample}\n{}", metrics.render());
    }
    assert!(Metrics::new("ns").unwrap().render().contains("\nns_build_info{arch="));
    for name in families::NAMES {
        assert!(MOVES.iter().any(|(_, sample)| sample.starts_with(name)), "nothing moves {name}");
    }
}

#[test]
fn one_build_is_described() {
    let metrics = Metrics::new("ns").unwrap();
    metrics.describe_build("0123456789ab", "2026-11-30", "x86_64-unknown-linux-gnu");
    let text = metrics.render();
    let builds: Vec<_> = text.lines().filter(|line| line.starts_with("ns_build_info{")).collect();
    assert_eq!(builds.len(), 1, "{builds:?}");
    for part in ["commit=\"0123456789ab\"", "date=\"2026-11-30\"", "target=\"x86_64-unknown-linux-gnu\""] {
        assert!(builds[0].contains(part), "{builds:?}");
    }
}

#[test]
fn a_rejected_reload_is_seen_until_one_is_accepted() {
    let metrics = Metrics::new("ns").unwrap();
    let gauge = || value(&metrics, "ns_policy_last_reload_successful");
    assert_eq!(gauge(), Some(1.0));
    metrics.policy_reloaded(false);
    assert_eq!(gauge(), Some(0.0));
    metrics.policy_reloaded(true);
    assert_eq!(gauge(), Some(1.0));
}

#[test]
fn a_name_that_names_no_tool_never_becomes_a_label() {
    let metrics = Metrics::new("ns").unwrap();
    let call = CallContext::new("no_such_tool", Arc::new(Caller::anonymous()), Via::Rest);
    let error = CallError::new(ErrorCode::UnknownTool, "no").at_stage(Stage::Find);
    metrics.record(None, &ended(&call, Some(&error), &ALL_STAGES[..1]), &[]);
    assert!(!metrics.render().contains("no_such_tool"));
    assert_eq!(value(&metrics, "ns_tool_executions_total{status=\"refused\",tool_name=\"unknown\"}"), Some(1.0));
    let executed = value(&metrics, "ns_tool_execution_duration_seconds_count{tool_name=\"unknown\"}");
    assert_eq!(executed, Some(0.0), "a refusal is no execution");
}

#[test]
fn only_calls_that_ran_count_for_durations_and_costs() {
    let until = |stage: Stage| &ALL_STAGES[..=stage as usize];
    let dry_run = CallContext { dry_run: true, ..call() };
    let ended_in = |status, stage| CallSummary { status, ..ended(&call(), None, until(stage)) };
    let cases = [
        ("ran", success(), 1.0),
        ("failed", ended_in(Status::Error, Stage::Execute), 1.0),
        ("cancelled or panicked while it ran", ended_in(Status::Cancelled, Stage::Breaker), 1.0),
        ("cancelled before", ended_in(Status::Cancelled, Stage::Limits), 0.0),
        ("refused", ended_in(Status::Refused, Stage::Breaker), 0.0),
        ("not meant to run", ended(&dry_run, None, until(Stage::Breaker)), 0.0),
    ];
    for (what, call, expected) in cases {
        let metrics = Metrics::new("ns").unwrap();
        metrics.record(Some(&metrics.for_tool("calculator")), &call, &[]);
        for family in ["tool_execution_duration_seconds", "tool_cost_usd"] {
            let counted = value(&metrics, &format!("ns_{family}_count{{tool_name=\"calculator\"}}"));
            assert_eq!(counted, Some(expected), "{what}: {family}");
        }
    }
}

#[test]
fn a_tool_registered_again_counts_on() {
    let metrics = Metrics::new("ns").unwrap();
    for _ in 0..2 {
        metrics.record(Some(&metrics.for_tool("calculator")), &success(), &[]);
    }
    assert_eq!(value(&metrics, "ns_tool_executions_total{status=\"success\",tool_name=\"calculator\"}"), Some(2.0));
}

#[test]
fn a_forgotten_breaker_leaves_no_labels_behind() {
    let metrics = Metrics::new("ns").unwrap();
    let breaker = metrics.for_breaker("https://api.example.com");
    breaker.set_state(BreakerState::Open);
    assert_eq!(value(&metrics, "ns_circuit_breaker_state{base_url=\"https://api.example.com\"}"), Some(2.0));
    metrics.forget_breaker("https://api.example.com");
    assert!(!metrics.render().contains("api.example.com"));
}

#[test]
fn a_tool_that_is_not_offered_any_more_leaves_no_labels_behind() {
    let metrics = Metrics::new("ns").unwrap();
    let call_all = |tool: &ToolMetrics| {
        metrics.record(Some(tool), &success(), &[]);
        ErrorCode::ALL.iter().copied().for_each(|code| refuse(&metrics, tool, code, Stage::Limits));
    };
    for name in ["calculator", "renamed"] {
        call_all(&metrics.for_tool(name));
    }
    metrics.record(None, &success(), &[]);
    let (late, later) = (metrics.for_tool("renamed"), metrics.for_tool("renamed"));
    metrics.record(Some(&late), &success(), &[]);
    metrics.forget_tools(|name| name == "calculator");
    let is_shown = |name: &str| metrics.render().contains(&format!("tool_name=\"{name}\""));
    assert_eq!(["calculator", "renamed", UNKNOWN].map(is_shown), [true, false, true]);
    // Of calls that were under way, the one with a metric that it did not have yet, the other with all of them.
    refuse(&metrics, &late, ErrorCode::RateLimited, Stage::Limits);
    call_all(&later);
    assert!(is_shown("renamed"));
    metrics.forget_tools(|name| name == "calculator");
    assert!(!is_shown("renamed"));
}

#[test]
fn a_transform_rule_that_is_not_configured_any_more_leaves_no_labels_behind() {
    let metrics = Metrics::new("ns").unwrap();
    let tool = metrics.for_tool("calculator");
    let of = |part, rule: &str| TransformFinding { part, rule: rule.into(), ..found() };
    let transforms = [
        of(TransformedPart::Results, "mail"),
        of(TransformedPart::Arguments, "mail"),
        of(TransformedPart::Results, "removed"),
    ];
    metrics.record(Some(&tool), &success(), &transforms);
    metrics.forget_transform_rules(|part, rule| (part, rule) == ("results", "mail"));
    let text = metrics.render();
    let left: Vec<_> = text.lines().filter(|line| line.starts_with("ns_transform_findings_total{")).collect();
    assert_eq!(left, ["ns_transform_findings_total{part=\"results\",rule=\"mail\"} 1"]);
}

#[test]
fn a_call_is_in_flight_until_its_guard_is_dropped() {
    let metrics = Metrics::new("ns").unwrap();
    let guards = [metrics.enter(), metrics.enter()];
    assert_eq!(value(&metrics, "ns_calls_in_flight"), Some(2.0));
    drop(guards);
    assert_eq!(value(&metrics, "ns_calls_in_flight"), Some(0.0));
}

#[test]
fn a_namespace_that_can_start_no_name_is_refused() {
    for namespace in ["with space", "a-b", "1st", "{"] {
        let error = Metrics::new(namespace).expect_err(namespace).to_string();
        assert!(error.starts_with(&format!("metrics_namespace: {namespace:?}")), "{error}");
    }
}

#[test]
fn a_tool_that_is_never_called_is_in_no_scrape() {
    let metrics = Metrics::new("shannon").unwrap();
    let tool = metrics.for_tool("calculator");
    assert!(!metrics.render().contains("calculator"));
    metrics.record(Some(&tool), &success(), &[]);
    assert_eq!(value(&metrics, r#"shannon_tool_executions_total{status="success",tool_name="calculator"}"#), Some(1.0));
    let no_error = r#"shannon_tool_errors_total{error_type="tool_error",tool_name="calculator"}"#;
    assert_eq!(value(&metrics, no_error), Some(0.0), "a rate of errors has something to start from");
}

#[test]
fn components_that_do_not_work_are_counted_by_their_kind_until_they_work_again() {
    let metrics = Metrics::new("shannon").unwrap();
    let shown = |components: &[&str]| {
        metrics.set_degraded(components.iter().copied());
        let text = metrics.render();
        let lines = text.lines().filter(|line| line.starts_with("shannon_component_degraded"));
        lines.map(|line| line.trim_start_matches("shannon_component_degraded").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&["mcp:crm", "mcp:time", "tools.lock"]),
        ["{component=\"mcp\"} 2", "{component=\"tools.lock\"} 1"]
    );
    assert_eq!(shown(&["audit"]), ["{component=\"audit\"} 1"]);
    assert_eq!(shown(&[]), Vec::<String>::new());
}
