//! Removes expired and unused data at intervals.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;

use super::{Cluster, Configuration, Keys, SignIns};
use sekisho_calls::pipeline::{EvictedSession, Pipeline};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::session::workspace_of;
use sekisho_observe::readiness::Readiness;
use sekisho_sandbox::Sandbox;
use sekisho_store::{Store, clock_difference};
use sekisho_tools::builtin::Workspaces;

/// How long the store keeps the usage of agent runs.
const KEPT_RUNS: jiff::SignedDuration = jiff::SignedDuration::from_hours(90 * 24);

/// Interval between searches for idle sessions and expired records.
pub(super) const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// Least interval between deletions of the workspaces of evicted sessions, however many are evicted.
const EVICTED_PAUSE: Duration = Duration::from_secs(10);

/// Evicted sessions of which it is looked up at once whether they have a conversation.
const LOOKED_UP: usize = 500;

/// The name of the key of sealed data in readiness.
const SEALING_KEY: &str = "secrets.key";

/// The work that is due.
enum Due {
    All,
    /// Many sessions were evicted since.
    Evicted,
}

/// Removes expired data, and data that have been idle for too long.
#[derive(Debug)]
pub(super) struct Housekeeping {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) store: Store,
    pub(super) workspaces: Workspaces,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) keys: Arc<Keys>,
    pub(super) sign_ins: Arc<SignIns>,
    pub(super) cluster: Arc<Cluster>,
}

impl Housekeeping {
    /// Until the gateway closes.
    pub(super) async fn run(self: Arc<Self>, closing: CancellationToken) {
        let mut tick = tokio::time::interval(HOUSEKEEPING);
        let mut pause = Instant::now();
        while let Some(due) = closing.run_until_cancelled(self.next_due(&mut tick, pause)).await {
            match due {
                Due::All => self.evict_idle_entries().await,
                Due::Evicted => self.delete_evicted_workspaces().await,
            }
            pause = Instant::now() + EVICTED_PAUSE;
        }
    }

    /// Waits until something is to be done; for evicted sessions not before `pause` is over.
    async fn next_due(&self, tick: &mut Interval, pause: Instant) -> Due {
        let many_evicted = async {
            tokio::time::sleep_until(pause).await;
            self.pipeline.sessions.many_evicted().await;
        };
        tokio::select! {
            _ = tick.tick() => Due::All,
            () = many_evicted => Due::Evicted,
        }
    }

    async fn evict_idle_entries(&self) {
        self.pipeline.limits.evict_idle();
        self.pipeline.budget.evict_idle();
        self.pipeline.breakers.evict_idle();
        self.pipeline.sessions.evict_idle();
        self.keys.authenticator().forget_expired_tokens();
        self.follow_database_clock().await;
        self.cluster.forget_lost().await;
        self.keys.forget_ended().await;
        self.sign_ins.revoke_unused().await;
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
        if let Err(error) = self.pipeline.flow.sweep().await {
            tracing::warn!(%error, "cannot remove destinations that are known no longer from the store");
        }
        self.report_lost_approvals().await;
        if let Err(error) = self.store.conversation_logs().forget_before(self.oldest_conversation()).await {
            tracing::warn!(%error, "cannot remove old logs of conversations from the store");
        }
        if let Err(error) = self.store.plans().forget_before(self.store.now().earlier(KEPT_RUNS)).await {
            tracing::warn!(%error, "cannot remove old plans from the store");
        }
        if let Err(error) = self.store.background_runs().forget_ended().await {
            tracing::warn!(%error, "cannot remove runs in the background that ended long ago from the store");
        }
        if let Err(error) = self.store.work().sweep().await {
            tracing::warn!(%error, "cannot remove expired records of who works on what from the store");
        }
        self.delete_unused_workspaces().await;
    }

    /// A state that was restored without its key would be noticed only when somebody approves.
    async fn report_lost_approvals(&self) {
        match self.pipeline.approvals.count_lost().await {
            Ok(0) => self.readiness.restore(SEALING_KEY),
            Ok(lost) => self.readiness.degrade(
                SEALING_KEY,
                format!(
                    "calls that wait for approval and cannot be approved, since the key that sealed them is not in force: {lost}; \
                     restore `secrets.key` of the gateway that asked, from its state directory or its configuration"
                ),
            ),
            Err(error) => tracing::warn!(%error, "cannot read which calls that wait for approval can be approved"),
        }
    }

    /// A gateway without heartbeats asks for the database's time.
    async fn follow_database_clock(&self) {
        if self.cluster.replica().is_some() {
            return;
        }
        if let Err(error) = self.store.set_clock().await {
            tracing::warn!(%error, "the database's time cannot be read");
        }
        clock_difference::report(&self.store, &self.readiness);
    }

    /// Conversations whose last message is older are not kept.
    fn oldest_conversation(&self) -> DatabaseTime {
        let kept = jiff::SignedDuration::from_hours(
            24 * i64::from(self.configuration.current().agent.conversations.retention_days),
        );
        self.store.now().earlier(kept)
    }

    /// Deletes the workspaces of evicted sessions. Workspaces of conversations stay as long as their messages.
    async fn delete_evicted_workspaces(&self) {
        let mut evicted = self.pipeline.sessions.take_evicted();
        while !evicted.is_empty() {
            let some = evicted.split_off(evicted.len().saturating_sub(LOOKED_UP));
            let ids: Vec<_> = some.iter().map(EvictedSession::id).collect();
            let oldest = self.oldest_conversation();
            match self.store.conversations().with_workspaces_among(&ids, oldest).await {
                Ok(conversations) => self.delete_workspaces(some, &names_of(&conversations)).await,
                Err(error) => {
                    tracing::warn!(%error, "workspaces of expired sessions stay: it cannot be seen which have a conversation");
                    return self.pipeline.sessions.give_back(evicted.into_iter().chain(some));
                }
            }
        }
    }

    async fn delete_workspaces(&self, evicted: Vec<EvictedSession>, kept: &HashSet<String>) {
        for session in evicted {
            let (name, pipeline) = (session.workspace(), Arc::clone(&self.pipeline));
            if kept.contains(&name) {
                continue;
            }
            // Another call may open it at any time.
            let is_used = move || pipeline.sessions.is_used(&session);
            if let Err(error) = self.workspaces.remove_idle(&name, is_used).await {
                tracing::warn!(%error, workspace = name, "cannot delete the workspace of an expired session");
            }
        }
    }

    /// Deletes the workspaces of evicted sessions, of sessions of earlier processes, and of conversations that are no more.
    async fn delete_unused_workspaces(&self) {
        self.delete_evicted_workspaces().await;
        let mut kept = match self.store.conversations().with_workspaces(self.oldest_conversation()).await {
            Ok(conversations) => names_of(&conversations),
            Err(error) => {
                tracing::warn!(%error, "no old workspace is deleted: it cannot be seen which have a conversation");
                return;
            }
        };
        // Calls may use a session without writing to its workspace.
        kept.extend(self.pipeline.sessions.workspaces());
        let idle = Duration::from_secs(self.configuration.current().session.idle_seconds);
        if let Err(error) = self.workspaces.remove_older_than(idle, kept).await {
            tracing::warn!(%error, "cannot delete old workspaces");
        }
    }
}

/// The names of the workspaces of conversations: the key of the caller and the id of each.
fn names_of(conversations: &[(String, String)]) -> HashSet<String> {
    conversations.iter().map(|(caller_key, id)| workspace_of(caller_key, id)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;

    use super::*;
    use crate::Gateway;
    use sekisho_config::{Config, SessionConfig};
    use sekisho_core::call::Caller;
    use sekisho_core::until::until;
    use sekisho_store::Conversation;
    use sekisho_store::test_support::conversation;

    async fn add(store: &Store, id: &str, workspace: bool) {
        let caller = Caller::new("ann", "acme", Vec::new());
        let changed = store.now();
        let conversation = Conversation { workspace, changed, ..conversation(id, &caller.key) };
        assert!(store.conversations().add(&conversation, 10).await.unwrap());
    }

    async fn gateway(folder: &Path, idle_seconds: u64) -> Arc<Gateway> {
        let session = SessionConfig { idle_seconds, ..SessionConfig::default() };
        let config = Config { state_directory: Some(folder.to_owned()), session, ..Config::default() };
        Gateway::start(config).await.unwrap()
    }

    /// Writes a file into the workspace of a session, which is opened if it is to be.
    async fn write(gateway: &Gateway, id: &str, opens: bool) -> PathBuf {
        let caller = Caller::new("ann", "acme", Vec::new());
        let session = gateway.pipeline.sessions.prepare(&caller, id).unwrap();
        if opens {
            gateway.pipeline.sessions.open(&caller, &session).unwrap();
        }
        let files = vec![("a.txt".to_owned(), "text".to_owned())];
        gateway.workspaces.write_files(session.workspace_name(), files).await.unwrap();
        gateway.configuration.current().workspaces_directory().join(session.workspace_name())
    }

    #[tokio::test]
    async fn a_workspace_that_was_used_goes_after_its_conversation() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), 0).await;
        add(&gateway.store, "kept", true).await;
        // A run of a conversation writes to the workspace of a session that no call has opened.
        let written = write(&gateway, "kept", false).await;
        gateway.housekeeping.evict_idle_entries().await;
        assert!(written.exists());
        gateway.store.change_rows("DELETE FROM conversations").await;
        // The gateway's own housekeeping may be about to delete it.
        let is_deleted = async || {
            gateway.housekeeping.evict_idle_entries().await;
            !written.exists()
        };
        until("it is deleted", is_deleted).await;
    }

    #[tokio::test]
    async fn the_workspace_of_an_open_session_stays_however_long_ago_it_was_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), 3_600).await;
        let written = [write(&gateway, "open", true).await, write(&gateway, "prepared", false).await];
        for folder in &written {
            let then = SystemTime::now() - Duration::from_secs(7_200);
            std::fs::File::open(folder).unwrap().set_modified(then).unwrap();
        }
        let is_deleted = async || {
            gateway.housekeeping.evict_idle_entries().await;
            !written[1].exists()
        };
        until("the other one is deleted", is_deleted).await;
        assert!(written[0].exists());
    }

    #[tokio::test]
    async fn idle_sessions_end_while_the_store_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), 0).await;
        gateway.store.close().await;
        write(&gateway, "s", true).await;
        gateway.housekeeping.evict_idle_entries().await;
        assert!(gateway.pipeline.sessions.is_empty());
    }

    #[tokio::test]
    async fn the_workspace_of_a_conversation_outlives_its_idle_session_and_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), 0).await;
        add(&gateway.store, "kept", true).await;
        add(&gateway.store, "without", false).await;
        let caller = Caller::new("ann", "acme", Vec::new());
        let written = |id: &str| {
            gateway.configuration.current().workspaces_directory().join(workspace_of(&caller.key, id)).exists()
        };
        // Sessions of an earlier process, and of this one.
        for id in ["kept", "without", "of no conversation"] {
            std::fs::create_dir_all(
                gateway.configuration.current().workspaces_directory().join(workspace_of(&caller.key, id)),
            )
            .unwrap();
        }
        gateway.housekeeping.evict_idle_entries().await;
        assert_eq!(["kept", "without", "of no conversation"].map(written), [true, false, false]);
        for id in ["kept", "without"] {
            write(&gateway, id, true).await;
        }
        gateway.housekeeping.evict_idle_entries().await;
        assert!(gateway.pipeline.sessions.is_empty());
        assert_eq!(["kept", "without"].map(written), [true, false]);
    }
}
