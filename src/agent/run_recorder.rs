//! The books of a run: what it used goes to the store, the metrics and the trace, also where it was cut off.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::Span;

use super::{Errand, Event, FinishReason, Meter};
use crate::gateway::Gateway;
use crate::infra::store::AgentRun;
use crate::infra::telemetry;

/// Open while the run goes on; written when dropped.
pub(super) struct Books {
    gateway: Arc<Gateway>,
    meter: Arc<Meter>,
    span: Span,
    begun: Timestamp,
    clock: Instant,
    agent: Arc<str>,
    model: String,
    caller_key: Arc<str>,
    /// Nothing yet said otherwise: whoever asked has left.
    reason: FinishReason,
}

impl Books {
    pub(super) fn open(gateway: &Arc<Gateway>, errand: &Errand, meter: Arc<Meter>) -> Self {
        let conversation = errand.thread.as_deref().or(errand.session.as_deref());
        Self {
            gateway: Arc::clone(gateway),
            meter,
            span: telemetry::run_span(&errand.agent, &errand.profile, conversation, errand.trace.as_ref()),
            begun: Timestamp::now(),
            clock: Instant::now(),
            agent: Arc::clone(&errand.agent),
            model: errand.profile.model().to_owned(),
            caller_key: Arc::clone(&errand.caller.key),
            reason: FinishReason::Aborted,
        }
    }

    /// What the run is traced under.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn note(&mut self, event: &Event) {
        if let Event::Finished { reason, .. } = event {
            self.reason = *reason;
        }
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        let took = u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.meter.count(|used| used.duration_ms = took);
        let used = self.meter.used();
        self.gateway.pipeline.settlement.metrics.record_run(&self.agent, self.reason, &used);
        telemetry::complete_run(&self.span, self.reason, &used);
        self.gateway.keep_run(AgentRun {
            begun: self.begun,
            caller_key: Arc::clone(&self.caller_key),
            agent: self.agent.to_string(),
            model: std::mem::take(&mut self.model),
            reason: self.reason.as_str().to_owned(),
            used,
        });
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Books")
            .field("agent", &self.agent)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}
