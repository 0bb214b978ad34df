//! Runs that go on without a client: begun by a request that waits for no answer, or with `agent.recover: auto` taken over from a
//! process that ended. Each is a row of the store, on which one process at a time works. Whatever process takes it finds in
//! the store how far it is: the run of the conversation begins once, and goes on by its journal.

mod request;
mod step;
mod webhook;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

pub(crate) use self::request::StoredRequest;
pub(crate) use self::webhook::RunWebhook;

use crate::conversations::of_api;
use crate::conversations::stored_input::StoredInput;
use crate::responses::Asked;
use sekisho_agent::conversation::{ConversationRuns, RunCover, RunRequest, new_run_id};
use sekisho_agent::event_log::EventLog;
use sekisho_api::RequestMeta;
use sekisho_config::Recover;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::{Lease, Share};
use sekisho_gateway::Gateway;
use sekisho_store::sealing::Sealer;
use sekisho_store::{BackgroundKind, BackgroundRun, BackgroundRunStore, Conversation, NewBackgroundRun, RunStatus};

/// Interval of looks for runs that are due, beside those that this process knows of: while there are any, and while there are none.
/// The longer one is shorter than a lease, so that runs of a process that has died meanwhile are not taken later.
const POLL: Duration = Duration::from_secs(2);
const IDLE_POLL: Duration = Duration::from_secs(10);

/// Runs of all tenants on which this process works at once, and webhooks that it sends.
const MAX_AT_ONCE: usize = 64;

/// Streams of events of responses in the background.
const MAX_STREAMS: u64 = 256;

/// How long a client waits that sends the next run while too many wait.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How long a cancellation waits for the end of its run, and the interval of looks for it.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
const CANCEL_PAUSE: Duration = Duration::from_millis(50);

/// Runs that go on without a client.
#[derive(Debug)]
pub(crate) struct BackgroundRuns {
    runs: Arc<ConversationRuns>,
    sealer: Sealer,
    /// Notified when one may be due.
    due: Arc<Notify>,
    slots: Arc<Semaphore>,
    streams: Arc<Share>,
}

/// A run that is to go on without its client.
pub(crate) struct NewRun {
    pub(crate) kind: BackgroundKind,
    pub(crate) id: String,
    /// `None`: a new one.
    pub(crate) conversation: Option<Conversation>,
    pub(crate) input: StoredInput,
    pub(crate) asked: Option<Asked>,
    pub(crate) webhook: Option<RunWebhook>,
}

impl BackgroundRuns {
    /// Works on runs that are due, until the gateway is closed.
    pub(crate) fn new(runs: &Arc<ConversationRuns>) -> Arc<Self> {
        let gateway = runs.agents().gateway();
        let background = Arc::new(Self {
            runs: Arc::clone(runs),
            sealer: Sealer::new(&gateway.configuration().current()),
            due: Arc::default(),
            slots: Arc::new(Semaphore::new(MAX_AT_ONCE)),
            streams: Share::keeping_one(MAX_STREAMS),
        });
        let work = keep_working(Arc::downgrade(&background), Arc::clone(&background.due));
        gateway.background().spawn_until_closing(work);
        background
    }

    fn gateway(&self) -> &Arc<Gateway> {
        self.runs.agents().gateway()
    }

    fn store(&self) -> BackgroundRunStore {
        self.gateway().store().background_runs()
    }

    fn replica(&self) -> Option<&str> {
        self.gateway().cluster().replica_id()
    }

    /// Stores a run that begins soon.
    /// Errors: `invalid_request`: names of the request that the caller's tenant does not have; `overloaded`: too many
    /// runs of the tenant wait.
    pub(crate) async fn submit(&self, meta: &RequestMeta, new: NewRun) -> Result<BackgroundRun, CallError> {
        let agents = self.runs.agents();
        let (text, model) = (new.input.user_input.as_deref().unwrap_or_default(), new.input.model.as_deref());
        let is_new = new.conversation.is_none();
        let label = if new.kind == BackgroundKind::Response { "responses" } else { "runs" };
        let conversation = match new.conversation {
            Some(conversation) => conversation,
            None => of_api::new((&meta.caller, label), agents, model, text).await?,
        };
        let request = StoredRequest::of(meta, new.input, new.asked, new.webhook);
        // Its names must exist now, too.
        request.clone().into_run(meta, agents, conversation.clone()).await?;
        let sealed = request.sealed(&self.sealer, (&meta.caller.tenant, &meta.caller.key), &new.id)?;
        if is_new {
            of_api::keep(self.gateway().store(), &conversation).await?;
        }
        let row = new_row(meta, &new.id, &conversation.id, new.kind, &sealed);
        let max = self.gateway().configuration().current().agent.background.max_waiting_per_tenant;
        if !self.store().add(row, max).await? {
            if is_new {
                self.gateway().store().conversations().delete(&conversation.id).await?;
            }
            let message = format!(
                "{max} runs of your tenant wait, which is the maximum (`agent.background.max_waiting_per_tenant`): send the \
                 request again when some have ended"
            );
            return Err(CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER));
        }
        let stored = self.find(&meta.caller.key, &new.id).await?;
        self.due.notify_one();
        stored.ok_or_else(|| CallError::internal("a stored run is gone"))
    }

    /// With `agent.recover: auto`, has another process go on with the run of a client if this one ends before it. Not a run that
    /// plans: a plan begins with its goal again.
    /// Errors: `overloaded`: the store is away.
    pub(crate) async fn covered(
        &self,
        meta: &RequestMeta,
        run: RunRequest,
        input: StoredInput,
    ) -> Result<RunRequest, CallError> {
        let recover = self.gateway().configuration().current().agent.recover;
        if recover == Recover::Client || run.profile.planner.is_some() {
            return Ok(run);
        }
        let (id, run_id, asked) = (Uuid::now_v7().to_string(), new_run_id(), Instant::now());
        let request = StoredRequest::of(meta, input, None, None);
        let sealed = request.sealed(&self.sealer, (&meta.caller.tenant, &meta.caller.key), &id)?;
        let row = new_row(meta, &id, &run.conversation.id, BackgroundKind::Covered, &sealed);
        let lease = self.store().cover(row, &run_id, self.replica()).await?;
        Ok(RunRequest { id: Some(run_id), cover: Some(RunCover::new(lease, asked, self.store())), ..run })
    }

    /// A run of a caller.
    pub(crate) async fn find(&self, caller_key: &str, id: &str) -> Result<Option<BackgroundRun>, CallError> {
        Ok(self.store().get(caller_key, id).await?)
    }

    /// The request of a run.
    /// Errors: `denied`: the key by which it is sealed is not in force; `internal`: it was changed.
    pub(crate) fn opened(&self, run: &BackgroundRun) -> Result<StoredRequest, CallError> {
        StoredRequest::open(&self.sealer, run)
    }

    /// One of the streams of events. Callers share them fairly.
    /// Errors: `overloaded`: too many are open.
    pub(crate) fn stream(&self, caller: &Caller) -> Result<Lease, CallError> {
        self.streams.try_acquire(&caller.owner, 1).ok_or_else(|| {
            let message = "too many streams of responses in the background are open: close some, or ask for the response without `stream`";
            CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
        })
    }

    /// The events of a run of a conversation that this process has.
    pub(crate) fn log(&self, caller_key: &str, run: &str) -> Option<EventLog> {
        self.runs.events(caller_key, run)
    }

    /// The id of the last run of the conversation, for the id of a run in the background; otherwise the same id.
    pub(crate) async fn run_id(&self, caller_key: &str, id: String) -> Result<String, CallError> {
        let found = self.find(caller_key, &id).await?;
        Ok(found.and_then(|run| run.runs.last().cloned()).unwrap_or(id))
    }

    /// Ends a run, and waits a moment for its end. `None`: the caller has none with that id.
    pub(crate) async fn cancel(&self, caller_key: &str, id: &str) -> Result<Option<BackgroundRun>, CallError> {
        let Some(run) = self.find(caller_key, id).await? else { return Ok(None) };
        self.store().stop(caller_key, id).await?;
        if let Some(last) = run.runs.last() {
            // It may be elsewhere, or not have begun: the row says that it is cancelled.
            let _ended = self.runs.cancel(caller_key, last).await;
        }
        self.due.notify_one();
        let until = Instant::now() + CANCEL_WAIT;
        loop {
            let found = self.find(caller_key, id).await?;
            if Instant::now() >= until || found.as_ref().is_none_or(|run| run.status.is_some()) {
                return Ok(found);
            }
            sleep(CANCEL_PAUSE).await;
        }
    }

    /// Takes runs that are due, as far as there are slots; how long to wait until the next look.
    async fn work(self: &Arc<Self>) -> Result<Duration, CallError> {
        let gateway = self.gateway();
        while let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            let max = gateway.configuration().current().agent.background.max_running_per_tenant;
            let Some((run, lease)) = self.store().take(max, self.replica()).await? else {
                return Ok(if self.store().is_idle().await? { IDLE_POLL } else { POLL });
            };
            let background = Arc::clone(self);
            gateway.background().spawn(async move {
                Box::pin(background.work_on(&run, &lease)).await;
                drop(slot);
                background.due.notify_one();
            });
        }
        Ok(POLL)
    }
}

async fn keep_working(background: Weak<BackgroundRuns>, due: Arc<Notify>) {
    let mut pause = POLL;
    loop {
        // Servers of tools connect meanwhile, after a start.
        let _notified = timeout(pause, due.notified()).await;
        let Some(background) = background.upgrade() else { return };
        pause = background.work().await.unwrap_or_else(|error| {
            tracing::warn!(cause = error.cause(), "runs that go on without a client could not be read");
            POLL
        });
    }
}

fn new_row<'a>(
    meta: &'a RequestMeta,
    id: &'a str,
    conversation: &'a str,
    kind: BackgroundKind,
    request: &'a str,
) -> NewBackgroundRun<'a> {
    let (tenant, caller_key) = (&*meta.caller.tenant, &*meta.caller.key);
    NewBackgroundRun { id, tenant, caller_key, conversation, kind, request }
}

/// `queued`, `running`, `paused`, or how it ended.
pub(crate) fn status_of(run: &BackgroundRun) -> &'static str {
    run.status.map_or(run.state.as_str(), RunStatus::as_str)
}
