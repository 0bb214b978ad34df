//! Every metric there is: its name, its labels, and as its doc comment the help that is exported.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

macro_rules! families {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $name:literal { $($label:ident),* } $(in $buckets:ident)?,)+) => {
        /// All families of one registry.
        #[derive(Debug)]
        pub(super) struct Families {
            $($(#[doc = $help])+ pub(super) $field: $kind,)+
        }

        impl Families {
            pub(super) fn register(namespace: &str, registry: &Registry) -> prometheus::Result<Self> {
                $(
                    let opts = Opts::new($name, concat!($($help),+).trim()).namespace(namespace);
                    let buckets = [$($buckets.as_slice(),)? &[]][0];
                    let $field = <$kind as Family>::make(opts, buckets, &[$(stringify!($label)),*])?;
                    registry.register(Box::new($field.clone()))?;
                )+
                Ok(Self { $($field),+ })
            }

            fn all(&self) -> Vec<(&'static str, &dyn Collector)> {
                vec![$((<$kind as Family>::TYPE, &self.$field as &dyn Collector)),+]
            }
        }

        /// The names of all families, as documented: without the namespace.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$($name),+];
    };
}

families! {
    /// Tool calls that have ended, by how they ended: success, error, refused or cancelled.
    tool_executions: IntCounterVec = "tool_executions_total" { tool_name, status },
    /// Seconds from arrival to end of the calls that were executed.
    tool_duration: HistogramVec = "tool_execution_duration_seconds" { tool_name } in CALL_SECONDS,
    /// Calls that were refused or failed, by error code.
    tool_errors: IntCounterVec = "tool_errors_total" { tool_name, error_type },
    /// What executed calls cost, in US dollars each.
    tool_cost: HistogramVec = "tool_cost_usd" { tool_name } in DOLLARS,
    /// Calls whose client disconnected.
    tool_cancellations: IntCounterVec = "tool_cancellations_total" { tool_name },
    /// Outputs that did not match the tool's output schema and were passed on.
    tool_output_schema_violations: IntCounterVec = "tool_output_schema_violations_total" { tool_name },
    /// Deprecated name of tool_output_schema_violations_total, exported until version 0.3.
    tool_output_misfits: IntCounterVec = "tool_output_misfits_total" { tool_name },
    /// State of the circuit breaker of an upstream: 0 closed, 1 half-open, 2 open.
    breaker_state: IntGaugeVec = "circuit_breaker_state" { base_url },
    /// Failures counted by a circuit breaker. Calls that it refused while open are not included.
    breaker_failures: IntCounterVec = "circuit_breaker_failures_total" { base_url },
    /// Calls refused by a rate limit.
    rate_limit_exceeded: IntCounterVec = "rate_limit_exceeded_total" { tool_name },
    /// Calls left in the bucket of the latest caller.
    rate_limit_tokens: IntGaugeVec = "rate_limit_tokens_available" { tool_name },
    /// Seconds that calls spent in each stage of the pipeline.
    stage_duration: HistogramVec = "stage_duration_seconds" { stage } in STAGE_SECONDS,
    /// Calls under way now.
    calls_in_flight: IntGauge = "calls_in_flight" {},
    /// Decisions of the policy stage: allow, deny or require_approval.
    policy_decisions: IntCounterVec = "policy_decisions_total" { decision },
    /// Calls about which the policies of policy.shadow decide otherwise, by the decision of the active set and theirs.
    policy_shadow_differences: IntCounterVec = "policy_shadow_differences_total" { decision, shadow },
    /// What rules of tools.transform changed, by part (arguments or results) and rule. Dry runs are not included.
    transform_findings: IntCounterVec = "transform_findings_total" { part, rule },
    /// What rules of tools.guards found, by direction (arguments or answers), rule and action (label, mask, block, or unanswered for a
    /// service without an answer).
    guard_findings: IntCounterVec = "guard_findings_total" { direction, rule, action },
    /// US dollars of today's budget of a caller, or of a tenant (without a caller): spent, held or limit. The 200 with the
    /// most.
    budget_cost: GaugeVec = "budget_cost_usd" { tenant, caller, amount },
    /// Requests without valid credentials where they are required.
    unauthenticated: IntCounter = "unauthenticated_requests_total" {},
    /// Calls refused by a budget, by error code.
    budget_refusals: IntCounterVec = "budget_refusals_total" { error_type },
    /// Reloads of the configuration, by whether it was accepted.
    configuration_reloads: IntCounterVec = "configuration_reloads_total" { result },
    /// Whether the configuration read last is the one in force (1) or was rejected (0).
    configuration_last_reload_successful: IntGauge = "configuration_last_reload_successful" {},
    /// Reloads of the policies, by whether they were accepted.
    policy_reloads: IntCounterVec = "policy_reloads_total" { result },
    /// Whether the policies read last are those in force (1) or were rejected (0).
    policy_last_reload_successful: IntGauge = "policy_last_reload_successful" {},
    /// Stored replies returned for an idempotency key.
    idempotent_replays: IntCounter = "idempotent_replays_total" {},
    /// Sandboxed runs that have ended, by how they ended.
    sandbox_runs: IntCounterVec = "sandbox_runs_total" { end },
    /// Processor time that sandboxed programs have used.
    sandbox_cpu: Counter = "sandbox_cpu_seconds_total" {},
    /// Sandboxed runs that are running now, including cancelled ones that have not stopped yet.
    sandbox_live: IntGauge = "sandbox_runs_live" {},
    /// Sandboxed runs that wait for capacity.
    sandbox_queued: IntGauge = "sandbox_runs_queued" {},
    /// Sessions of interpreters that are kept between calls.
    sandbox_sessions: IntGauge = "sandbox_sessions_open" {},
    /// Memory that open sessions of interpreters hold, in bytes.
    sandbox_session_bytes: IntGauge = "sandbox_session_memory_bytes" {},
    /// Sessions of interpreters that have a stored image, of all replicas, as of the last minute.
    sandbox_sessions_stored: IntGauge = "sandbox_sessions_stored" {},
    /// Bytes of the stored images of sessions, of all replicas, as of the last minute.
    sandbox_session_image_bytes: IntGauge = "sandbox_session_image_bytes" {},
    /// Sessions of interpreters that have ended, by why.
    sandbox_sessions_ended: IntCounterVec = "sandbox_sessions_ended_total" { reason },
    /// Worker processes of the sandbox that are ready.
    sandbox_workers: IntGauge = "sandbox_workers_ready" {},
    /// Worker processes of the sandbox that exited, or had to be ended.
    sandbox_workers_lost: IntCounter = "sandbox_workers_lost_total" {},
    /// Whether an MCP server is connected (1) or not (0).
    mcp_server_up: IntGaugeVec = "mcp_server_up" { server },
    /// Times the connection to an MCP server was made or lost, by which of the two.
    mcp_connections: IntCounterVec = "mcp_connections_total" { server, event },
    /// Connections of MCP servers that are programs in a sandbox, by host and whether they were allowed or refused.
    mcp_program_connections: IntCounterVec = "mcp_program_connections_total" { server, host, outcome },
    /// Whether a replica on the same database is live (1) or lost (0), as this one last read.
    replica_live: IntGaugeVec = "replica_live" { replica, host },
    /// Parts of a replica on the same database that do not work, by kind: circuit (open breakers), mcp, openapi or other.
    replica_degraded: IntGaugeVec = "replica_degraded" { replica, kind },
    /// Components that do not work, as in /readyz: 1 each, and how many of a kind that has several (mcp, openapi, circuit, …).
    component_degraded: IntGaugeVec = "component_degraded" { component },
    /// Runs of agents that have ended, by how they ended.
    agent_runs: IntCounterVec = "agent_runs_total" { agent, reason },
    /// Seconds that runs of agents took.
    agent_duration: HistogramVec = "agent_run_duration_seconds" { agent } in CALL_SECONDS,
    /// Cost of the models of runs, in US dollars each; tools are counted separately.
    agent_cost: HistogramVec = "agent_run_cost_usd" { agent } in DOLLARS,
    /// Tokens of the models of runs, by direction: input or output.
    agent_tokens: IntCounterVec = "agent_tokens_total" { agent, direction },
    /// The share of a run's input tokens that the provider read from its cache, of each run with a model.
    agent_cache_read_ratio: HistogramVec = "agent_cache_read_ratio" { agent } in RATIOS,
    /// Turns of runs.
    agent_turns: IntCounterVec = "agent_turns_total" { agent },
    /// Tool calls that agents made.
    agent_tool_calls: IntCounterVec = "agent_tool_calls_total" { agent },
    /// Tools that runs did not offer their models, since there were more than `max_tools`.
    agent_tools_left_out: IntCounterVec = "agent_tools_left_out_total" { agent },
    /// Requests to models that are over, by how: ok, aborted, or the code of the error.
    model_requests: IntCounterVec = "agent_model_requests_total" { tenant, provider, model, outcome },
    /// Seconds that requests to models took.
    model_duration: HistogramVec = "agent_model_request_duration_seconds" { provider, model } in MODEL_SECONDS,
    /// Seconds from the request to the first piece of the answer.
    model_first_token: HistogramVec = "agent_model_first_token_seconds" { provider, model } in MODEL_SECONDS,
    /// Tokens of models, by kind: input (with cache_read and cache_write) and output (with reasoning).
    model_tokens: IntCounterVec = "agent_model_tokens_total" { tenant, provider, model, kind },
    /// Answers of models that deviated from their provider's protocol and were read all the same, by provider and kind.
    agent_odd_answers: IntCounterVec = "agent_odd_answers_total" { provider, oddity },
    /// Tools from outside that are not offered until they are approved.
    tools_quarantined: IntGauge = "tools_quarantined" {},
    /// Tools that are offered although their text may contain hidden instructions.
    tools_flagged: IntGauge = "tools_flagged" {},
    /// Closed segments of the audit trail that wait to be copied to object storage.
    audit_segments_waiting: IntGauge = "audit_segments_waiting" {},
    /// Results too large for a model, by what became of them: stored, or why not (too_large, no_key, not_readable, unavailable).
    large_results: IntCounterVec = "large_results_total" { outcome },
    /// Approvals by what became of them: asked, approved, denied, expired, used or unknown (the call's outcome).
    approvals: IntCounterVec = "approvals_total" { event },
    /// Approvals that wait for a decision, as of the last minute.
    approvals_pending: IntGauge = "approvals_pending" {},
    /// Callers that wait until their calls are approved.
    approval_waiters: IntGauge = "approval_waiters" {},
    /// Calls of tools with effects that were judged by where their values come from: undisputed, asked or forbidden.
    flow_calls: IntCounterVec = "flow_calls_total" { mode, judgement },
    /// Tasks of the asynchronous runtime that have not ended: connections, calls, sessions and background work.
    runtime_tasks: IntGauge = "runtime_tasks" {},
    /// Always 1; its labels describe the build, with the commit and its date where these are known.
    build_info: IntGaugeVec = "build_info" { version, os, arch, commit, date, target },
}

/// From an instant tool to the longest timeouts.
const CALL_SECONDS: [f64; 18] =
    [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 4.0, 5.0, 7.5, 10.0, 30.0];

/// From a small model nearby to a long answer with reasoning.
const MODEL_SECONDS: [f64; 14] = [0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0];

/// Most stages take microseconds; waiting and executing take longer.
const STAGE_SECONDS: [f64; 12] =
    [0.000_001, 0.000_002_5, 0.000_005, 0.000_01, 0.000_025, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 30.0];

/// Up to the default budget of a request (E60) and twice that.
const DOLLARS: [f64; 9] = [0.0, 0.000_1, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// Tenths, finer above nine of them: a conversation that keeps its beginning is there.
const RATIOS: [f64; 12] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];

/// A family that has no samples.
#[derive(Debug)]
pub(super) struct EmptyFamily {
    pub(super) name: String,
    help: String,
    kind: &'static str,
}

impl EmptyFamily {
    /// `# HELP` and `# TYPE` under a name.
    pub(super) fn written_as(&self, name: &str) -> String {
        format!("# HELP {name} {}\n# TYPE {name} {}\n", self.help, self.kind)
    }
}

impl Families {
    /// Each family that is missing in `gathered`.
    pub(super) fn without_samples(&self, gathered: &[MetricFamily]) -> Vec<EmptyFamily> {
        let is_shown = |description: &Desc| gathered.iter().any(|family| family.name() == description.fq_name);
        let missing = self.all().into_iter().flat_map(|(kind, family)| {
            let descriptions: Vec<_> = family.desc().into_iter().filter(|description| !is_shown(description)).collect();
            descriptions.into_iter().map(move |Desc { fq_name, help, .. }| EmptyFamily {
                name: fq_name.clone(),
                help: help.clone(),
                kind,
            })
        });
        missing.collect()
    }
}

/// The kinds of metric, made alike.
trait Family: Collector + Clone + Sized {
    const TYPE: &'static str;

    fn make(opts: Opts, buckets: &[f64], labels: &[&str]) -> prometheus::Result<Self>;
}

macro_rules! family {
    ($kind:ty, $type:literal, |$opts:ident, $buckets:ident, $labels:ident| $make:expr) => {
        impl Family for $kind {
            const TYPE: &'static str = $type;

            fn make($opts: Opts, $buckets: &[f64], $labels: &[&str]) -> prometheus::Result<Self> {
                $make
            }
        }
    };
}

family!(Counter, "counter", |opts, _buckets, _labels| Self::with_opts(opts));
family!(GaugeVec, "gauge", |opts, _buckets, labels| Self::new(opts, labels));
family!(IntCounter, "counter", |opts, _buckets, _labels| Self::with_opts(opts));
family!(IntCounterVec, "counter", |opts, _buckets, labels| Self::new(opts, labels));
family!(IntGauge, "gauge", |opts, _buckets, _labels| Self::with_opts(opts));
family!(IntGaugeVec, "gauge", |opts, _buckets, labels| Self::new(opts, labels));
family!(HistogramVec, "histogram", |opts, buckets, labels| {
    Self::new(HistogramOpts::from(opts).buckets(buckets.to_vec()), labels)
});
