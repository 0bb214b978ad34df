//! The background tasks of the gateway.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Gateway;
use crate::pipeline::REFUSALS_WINDOW;

/// How long the store keeps the usage of agent runs.
const KEPT_RUNS: jiff::SignedDuration = jiff::SignedDuration::from_hours(90 * 24);

/// Interval between searches for idle sessions and expired records.
pub(super) const HOUSEKEEPING: Duration = Duration::from_secs(60);

impl Gateway {
    pub(super) fn start_background(self: &Arc<Self>) {
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.usage.run(gateway.closing.clone()).await });
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.keep_documents().await });
        let gateway = Arc::clone(self);
        self.background.spawn(async move {
            let closing = gateway.closing.clone();
            closing.run_until_cancelled(gateway.follow_mcp_servers()).await;
        });
        let gateway = Arc::clone(self);
        self.background.spawn(async move {
            let mut tick = tokio::time::interval(REFUSALS_WINDOW);
            while gateway.closing.run_until_cancelled(tick.tick()).await.is_some() {
                gateway.pipeline.settlement.write_refusals();
            }
        });
        let gateway = Arc::clone(self);
        self.background.spawn(async move {
            let mut tick = tokio::time::interval(HOUSEKEEPING);
            while gateway.closing.run_until_cancelled(tick.tick()).await.is_some() {
                gateway.evict_idle_entries().await;
            }
        });
    }

    async fn evict_idle_entries(&self) {
        self.pipeline.limits.evict_idle();
        self.pipeline.budget.evict_idle();
        self.pipeline.breakers.evict_idle();
        self.pipeline.settlement.figures.evict_idle(SystemTime::now());
        if let Err(error) = self.pipeline.replies.forget_expired().await {
            tracing::warn!(%error, "cannot remove expired records of calls with an Idempotency-Key from the store");
        }
        for workspace in self.pipeline.sessions.evict_idle() {
            if let Err(error) = self.workspaces.remove(&workspace).await {
                tracing::warn!(%error, workspace, "cannot delete the workspace of an expired session");
            }
        }
        if let Err(error) = self.store.forget_runs_before(jiff::Timestamp::now() - KEPT_RUNS).await {
            tracing::warn!(%error, "cannot remove old agent runs from the store");
        }
        let kept = jiff::SignedDuration::from_hours(24 * i64::from(self.config().agent.conversations.retention_days));
        let oldest = jiff::Timestamp::now().checked_sub(kept).unwrap_or(jiff::Timestamp::MIN);
        if let Err(error) = self.store.forget_conversation_logs_before(oldest).await {
            tracing::warn!(%error, "cannot remove old logs of conversations from the store");
        }
        if let Err(error) = self.store.forget_plans_before(jiff::Timestamp::now() - KEPT_RUNS).await {
            tracing::warn!(%error, "cannot remove old plans from the store");
        }
        // Workspaces of sessions of an earlier process.
        let idle = Duration::from_secs(self.config().session.idle_seconds);
        if let Err(error) = self.workspaces.remove_older_than(idle).await {
            tracing::warn!(%error, "cannot delete old workspaces");
        }
    }
}
