//! The background tasks of the gateway.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Gateway;
use crate::core::session::workspace_of;
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
        self.background.spawn(async move { gateway.keep_uses_of_keys().await });
        self.background.spawn(Arc::clone(self).send_notices());
        self.start_replica();
        self.start_blobs();
        self.start_session_images();
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.keep_documents().await });
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.keep_python_tools().await });
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.keep_components().await });
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.sandbox.look_after_sessions(gateway.closing.clone()).await });
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
        self.forget_lost_replicas().await;
        self.forget_ended_keys().await;
        self.revoke_unused_sign_ins().await;
        if let Err(error) = self.pipeline.replies.forget_expired().await {
            tracing::warn!(%error, "cannot remove expired records of calls with an Idempotency-Key from the store");
        }
        if let Err(error) = self.pipeline.results.forget_expired().await {
            tracing::warn!(%error, "cannot remove expired results from the store");
        }
        if let Err(error) = self.pipeline.journals.forget_expired().await {
            tracing::warn!(%error, "cannot remove expired journals of programs from the store");
        }
        if let Err(error) = self.sandbox.sweep_stored_sessions().await {
            tracing::warn!(%error, "cannot remove expired sessions of interpreters from the store");
        }
        if let Err(error) = self.pipeline.approvals.sweep().await {
            tracing::warn!(%error, "cannot write down which approvals have expired");
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
        match self.store.conversations_with_workspaces(oldest).await {
            Ok(kept) => self.delete_idle_workspaces(&kept).await,
            Err(error) => {
                tracing::warn!(%error, "no workspace is deleted: it cannot be seen which have a conversation");
            }
        }
    }

    /// Deletes the workspaces of idle sessions and of sessions of earlier processes. Those of conversations stay as long as
    /// their messages.
    async fn delete_idle_workspaces(&self, conversations: &[(String, String)]) {
        let kept: HashSet<_> = conversations.iter().map(|(caller_key, id)| workspace_of(caller_key, id)).collect();
        for workspace in self.pipeline.sessions.evict_idle().into_iter().filter(|name| !kept.contains(name)) {
            if let Err(error) = self.workspaces.remove_idle(&workspace).await {
                tracing::warn!(%error, workspace, "cannot delete the workspace of an expired session");
            }
        }
        let idle = Duration::from_secs(self.config().session.idle_seconds);
        if let Err(error) = self.workspaces.remove_older_than(idle, kept).await {
            tracing::warn!(%error, "cannot delete old workspaces");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, SessionConfig};
    use crate::core::call::Caller;
    use crate::infra::store::test_support::conversation;
    use crate::infra::store::{Conversation, Store};

    async fn add(store: &Store, id: &str, workspace: bool) {
        let caller = Caller::new("ann", "acme", Vec::new());
        let changed = jiff::Timestamp::now();
        let conversation = Conversation { workspace, changed, ..conversation(id, &caller.key) };
        assert!(store.add_conversation(&conversation, 10).await.unwrap());
    }

    #[tokio::test]
    async fn the_workspace_of_a_conversation_outlives_its_idle_session_and_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let session = SessionConfig { idle_seconds: 0, ..SessionConfig::default() };
        let config = Config { state_directory: Some(folder.path().to_owned()), session, ..Config::default() };
        let gateway = Gateway::start(config).await.unwrap();
        add(&gateway.store, "kept", true).await;
        add(&gateway.store, "without", false).await;
        let caller = Caller::new("ann", "acme", Vec::new());
        let written = |id: &str| gateway.config().workspaces_directory().join(workspace_of(&caller.key, id)).exists();
        // Of an earlier process, and of this one.
        for id in ["kept", "without", "of no conversation"] {
            std::fs::create_dir_all(gateway.config().workspaces_directory().join(workspace_of(&caller.key, id)))
                .unwrap();
        }
        gateway.evict_idle_entries().await;
        assert_eq!(["kept", "without", "of no conversation"].map(written), [true, false, false]);
        for id in ["kept", "without"] {
            let session = gateway.pipeline.sessions.prepare(&caller, id).unwrap();
            gateway.pipeline.sessions.open(&caller, &session).unwrap();
            let files = vec![("a.txt".to_owned(), "text".to_owned())];
            gateway.workspaces.write_files(session.workspace_name(), files).await.unwrap();
        }
        gateway.evict_idle_entries().await;
        assert!(gateway.pipeline.sessions.is_empty());
        assert_eq!(["kept", "without"].map(written), [true, false]);
    }
}
