//! Metrics.
use crate::breaker::BreakerState;
use crate::record::CallRecord;
use std::sync::Arc;

#[derive(Debug)]
pub struct Metrics;

/// The metrics of one tool, looked up once when it is registered.
#[derive(Debug)]
pub struct ToolMetrics;

/// The gauge and counter of one breaker.
#[derive(Debug, Clone)]
pub struct BreakerMetrics;

/// A call in flight, counted until dropped.
#[derive(Debug)]
pub struct InFlight;

impl Metrics {
    pub fn new(_namespace: &str) -> Result<Self, String> {
        Ok(Self)
    }
    pub fn for_tool(&self, _name: &str) -> Arc<ToolMetrics> {
        Arc::new(ToolMetrics)
    }
    pub fn for_breaker(&self, _base_url: &str) -> BreakerMetrics {
        BreakerMetrics
    }
    pub fn forget_breaker(&self, _base_url: &str) {}
    pub fn enter(&self) -> InFlight {
        InFlight
    }
    /// Counts one ended call; `tool` is `None` where the name named no tool (label `unknown`).
    pub fn record(&self, _tool: Option<&ToolMetrics>, _record: &CallRecord<'_>) {}
    pub fn configuration_reloaded(&self, _accepted: bool) {}
    pub fn policy_reloaded(&self, _accepted: bool) {}
    pub fn idempotent_replay(&self) {}
    /// The text exposition format, version 0.0.4.
    pub fn render(&self) -> String {
        String::new()
    }
}

impl BreakerMetrics {
    pub fn set_state(&self, _state: BreakerState) {}
    pub fn failed(&self) {}
}
