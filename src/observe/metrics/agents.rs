//! The metrics of agents' runs.

use std::time::Duration;

use parking_lot::Mutex;
use rust_decimal::prelude::ToPrimitive;

use super::Metrics;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::record::{FinishReason, RunUsage};

/// Maximum names of agents that become labels, until the process ends. Administrators can add and remove models while it runs.
const MAX_AGENTS: usize = 1_000;

/// The label `agent` of all others.
const OTHER: &str = "other";

/// The names of agents that are labels.
#[derive(Debug)]
pub(super) struct AgentLabels(Mutex<BoundedMap<Box<str>, ()>>);

impl Default for AgentLabels {
    fn default() -> Self {
        Self(Mutex::new(BoundedMap::new(MAX_AGENTS)))
    }
}

impl AgentLabels {
    fn label_of<'a>(&self, agent: &'a str) -> &'a str {
        let mut labels = self.0.lock();
        let is_label = labels.contains(agent) || labels.try_insert(agent.into(), ()).is_ok();
        if is_label { agent } else { OTHER }
    }
}

impl Metrics {
    /// Counts tools that a run's model is not offered.
    pub fn record_tools_left_out(&self, agent: &str, tools: usize) {
        self.families.agent_tools_left_out.with_label_values(&[self.agents.label_of(agent)]).inc_by(tools as u64);
    }

    /// Counts an answer of a model that deviated from its provider's protocol. Both labels are from fixed lists.
    pub fn record_odd_answer(&self, provider: &'static str, oddity: &'static str) {
        self.families.agent_odd_answers.with_label_values(&[provider, oddity]).inc();
    }

    /// Counts a run of an agent that is over.
    pub fn record_run(&self, agent: &str, reason: FinishReason, used: &RunUsage) {
        let (families, agent) = (&self.families, self.agents.label_of(agent));
        families.agent_runs.with_label_values(&[agent, reason.as_str()]).inc();
        families
            .agent_duration
            .with_label_values(&[agent])
            .observe(Duration::from_millis(used.duration_ms).as_secs_f64());
        families.agent_cost.with_label_values(&[agent]).observe(used.cost_usd.to_f64().unwrap_or_default());
        families.agent_tokens.with_label_values(&[agent, "input"]).inc_by(used.prompt_tokens);
        families.agent_tokens.with_label_values(&[agent, "output"]).inc_by(used.completion_tokens);
        if let Some(ratio) = cache_read_ratio(used) {
            families.agent_cache_read_ratio.with_label_values(&[agent]).observe(ratio);
        }
        families.agent_turns.with_label_values(&[agent]).inc_by(used.turns.into());
        families.agent_tool_calls.with_label_values(&[agent]).inc_by(used.tool_calls.into());
    }
}

/// `None` for a run without input.
fn cache_read_ratio(used: &RunUsage) -> Option<f64> {
    // Exact: numbers of tokens are far below 2^52.
    (used.prompt_tokens > 0).then(|| used.cached_tokens.min(used.prompt_tokens) as f64 / used.prompt_tokens as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_runs_with_input() {
        for (prompt_tokens, cached_tokens, expected) in
            [(0, 0, None), (100, 0, Some(0.0)), (100, 90, Some(0.9)), (10, 20, Some(1.0))]
        {
            let used = RunUsage { prompt_tokens, cached_tokens, ..RunUsage::default() };
            assert_eq!(cache_read_ratio(&used), expected, "{prompt_tokens} {cached_tokens}");
        }
    }

    #[test]
    fn agents_that_come_and_go_make_no_labels_without_end() {
        let metrics = Metrics::new("ns").unwrap();
        for number in 0..2 * MAX_AGENTS {
            metrics.record_tools_left_out(&format!("agent{number}"), 1);
        }
        metrics.record_run("one_more", FinishReason::Stop, &RunUsage { turns: 7, ..RunUsage::default() });
        metrics.record_tools_left_out("agent0", 1);
        let text = metrics.render();
        let labels = text.lines().filter(|line| line.starts_with("ns_agent_tools_left_out_total{")).count();
        assert_eq!(labels, MAX_AGENTS + 1);
        assert!(text.contains("ns_agent_tools_left_out_total{agent=\"agent0\"} 2\n"), "a known one is counted on");
        assert!(text.contains(&format!("ns_agent_tools_left_out_total{{agent=\"other\"}} {MAX_AGENTS}\n")));
        assert!(text.contains("ns_agent_turns_total{agent=\"other\"} 7\n") && !text.contains("one_more"));
    }
}
