//! Records the usage of a run in the metrics and the trace, also where the run was cut off.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::Span;

use super::{AgentRequest, Event, FinishReason, Meter};
use sekisho_gateway::Gateway;
use sekisho_observe::telemetry;

/// Created when the run starts; writes the record when dropped.
pub(super) struct RunRecorder {
    gateway: Arc<Gateway>,
    meter: Arc<Meter>,
    span: Span,
    clock: Instant,
    agent: Arc<str>,
    provider: &'static str,
    model: String,
    /// Holds until the run reports another reason: the client has disconnected.
    reason: FinishReason,
    is_complete: bool,
}

impl RunRecorder {
    pub(super) fn open(gateway: &Arc<Gateway>, request: &AgentRequest, meter: Arc<Meter>) -> Self {
        let conversation =
            [&request.conversation, &request.thread, &request.session].into_iter().find_map(Option::as_deref);
        Self {
            gateway: Arc::clone(gateway),
            meter,
            span: telemetry::run_span(&request.agent, &request.profile, conversation, request.trace.as_ref()),
            clock: Instant::now(),
            agent: Arc::clone(&request.agent),
            provider: request.profile.provider().as_str(),
            model: request.profile.model().to_owned(),
            reason: FinishReason::Aborted,
            is_complete: false,
        }
    }

    /// The span of the run's trace.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Updates the record with an event of the run.
    pub(super) fn record(&mut self, event: &Event) {
        match event {
            Event::Finished { reason, .. } => self.reason = *reason,
            Event::Usage(_) => self.complete(),
            _ => {}
        }
    }

    fn complete(&mut self) {
        if !std::mem::replace(&mut self.is_complete, true) {
            let took = u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.meter.count(|used| used.duration_ms = took);
            self.meter.complete((self.provider, &self.model));
        }
    }
}

impl Drop for RunRecorder {
    fn drop(&mut self) {
        self.complete();
        let used = self.meter.used();
        self.gateway.pipeline.settlement.metrics.record_run(&self.agent, self.reason, &used);
        telemetry::complete_run(&self.span, self.reason, &used);
    }
}

impl fmt::Debug for RunRecorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RunRecorder")
            .field("agent", &self.agent)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}
