//! Conversations that the store keeps. Each request is a run of one: under the conversation's lock, with a journal of its
//! tool calls, and stored at its end in one transaction.

mod additions;
mod context;
mod cover;
mod finish;
mod history;
mod journal;
mod live;
mod lock;
mod outcome;
mod recovery;
mod request;
mod resume;
pub mod run_event;
mod session;
pub mod stored;
pub mod timeline;
mod title;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use self::context::Context;
use self::finish::Ended;
use self::lock::HeldLock;
use self::outcome::Outcome;
use self::run_event::{RunEvent, SystemSubtype};
use super::event_log::{EventLog, EventLogs};
use super::{AgentService, Event};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_gateway::Gateway;
use sekisho_store::{Conversation, ConversationRun, ConversationStatus, RunStatus, Store};

pub use self::cover::RunCover;
pub use self::history::MAY_HAVE_HAPPENED;
pub(crate) use self::history::SUMMARY;
pub use self::live::{Decision, LiveRun, StopCause, UnknownCall};
pub use self::request::{OnBusy, OnUnknown, RunReply, RunRequest, StartedRun};
pub use self::title::first_line;

/// How long a run waits for its conversation (C5).
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Longer, since a run in another process learns within a renewal of its lock that it is interrupted.
const INTERRUPT_WAIT: Duration = Duration::from_secs(10);

/// Interval of attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Runs conversations, and knows the runs of this process that are on.
pub struct ConversationRuns {
    agents: Arc<AgentService>,
    logs: EventLogs,
    #[expect(clippy::disallowed_types, reason = "only runs that are on, whose logs are bounded")]
    live: dashmap::DashMap<Arc<str>, Arc<LiveRun>>,
    /// Its id in locks, if this gateway is a replica.
    replica: Option<Arc<str>>,
}

impl ConversationRuns {
    /// Writes, now and from time to time, the ends of runs whose processes ended.
    pub fn new(agents: &Arc<AgentService>) -> Arc<Self> {
        let runs = Arc::new(Self {
            agents: Arc::clone(agents),
            logs: EventLogs::default(),
            live: Default::default(),
            replica: agents.gateway().cluster().replica().map(|replica| Arc::clone(replica.id())),
        });
        let gateway = agents.gateway();
        let (store, budgets) = (gateway.store().clone(), Arc::clone(&gateway.pipeline.budget));
        gateway.background().spawn_until_closing(recovery::keep_recovering(store, budgets));
        gateway.background().each_minute(&runs, |runs| runs.logs.remove_expired());
        runs
    }

    /// The service that runs their agents.
    pub fn agents(&self) -> &Arc<AgentService> {
        &self.agents
    }

    fn gateway(&self) -> &Arc<Gateway> {
        self.agents.gateway()
    }

    fn store(&self) -> &Store {
        self.gateway().store()
    }

    /// Begins a run, which goes on in the background.
    /// Errors: `denied` for a conversation that is inactive; `overloaded` if too many runs are on.
    pub fn start(self: &Arc<Self>, mut request: RunRequest) -> Result<StartedRun, CallError> {
        check(&request.conversation)?;
        failpoint::reach("run.checked");
        let id = request.id.take().unwrap_or_else(new_run_id);
        let cover = request.cover.take();
        let caller = &request.caller;
        let log = self.logs.open(&caller.owner, &caller.key, &id)?;
        let run = LiveRun::new(&id, &caller.key, &request.conversation.id, self.gateway().background().closing());
        self.live.insert(Arc::clone(&id), Arc::clone(&run));
        let (runs, live, events) = (Arc::clone(self), Arc::clone(&run), log.clone());
        let (done, ended) = tokio::sync::oneshot::channel();
        self.gateway().background().spawn_in_span(async move {
            let guard = EndGuard { runs: Arc::clone(&runs), id, log: events.clone() };
            let outcome = Box::pin(runs.run(request, live, &events)).await;
            if let Err(error) = &outcome {
                if error.code() == ErrorCode::Internal {
                    tracing::error!(cause = error.cause(), "a run of a conversation failed");
                }
                add(&events, &RunEvent::error(error));
            }
            drop(guard);
            if let Some(cover) = cover {
                cover.end().await;
            }
            let (reply, untitled) = match outcome {
                Ok(Ended { reply, failure, untitled }) => (failure.map_or(Ok(reply), Err), untitled),
                Err(error) => (Err(error), None),
            };
            let _nobody_waits = done.send(reply);
            if let Some(untitled) = untitled {
                Box::pin(runs.add_title(untitled)).await;
            }
        });
        let ended = tokio::spawn(async move {
            ended.await.unwrap_or_else(|_| Err(CallError::internal("the task of a run ended without a result")))
        });
        Ok(StartedRun { run, log, ended })
    }

    /// The ten steps of a run (C1). The API does the first one. [`start`](Self::start) does the second one, the checks
    /// of the names in the request, before there is a run.
    async fn run(&self, request: RunRequest, live: Arc<LiveRun>, log: &EventLog) -> Result<Ended, CallError> {
        // 3: the lock of the conversation.
        let lock = self.lock(&request, &live, log).await?;
        failpoint::reach("run.locked");
        // 4: the context, with the earlier messages.
        let mut context = self.context(request, live, log, &lock).await?;
        let outcome = match self.answer_open_calls(&mut context).await {
            // 5: the options: prompt, tools, limits. 6: the agent.
            Ok(()) => {
                let options = context.options();
                failpoint::reach("run.options");
                match self.agents.begin(options).await {
                    // 7 and 8: its messages become events, and its tool calls are journaled.
                    Ok(events) => process(Box::pin(events), &context).await,
                    Err(error) => Outcome::refused(error),
                }
            }
            Err(error) => Outcome::refused(error),
        };
        // 9 and 10: its results are stored in one transaction, which gives the lock back.
        let ended = self.finish(context, outcome, &lock).await;
        lock.release().await;
        failpoint::reach("run.released");
        ended
    }

    /// Errors: `conversation_locked` if another run has it for too long.
    async fn lock(&self, request: &RunRequest, live: &Arc<LiveRun>, log: &EventLog) -> Result<HeldLock, CallError> {
        let id = &request.conversation.id;
        let wait = if request.on_busy == OnBusy::Interrupt { INTERRUPT_WAIT } else { LOCK_WAIT };
        let (until, mut is_queued) = (Instant::now() + wait, false);
        if request.on_busy == OnBusy::Interrupt {
            // Also where the lock is free: an earlier request that waits for it would take it later.
            self.stop_earlier(id, &live.id);
        }
        loop {
            if live.stop.is_cancelled() {
                return Err(CallError::new(ErrorCode::Cancelled, live.cause().message()));
            }
            let asked = Instant::now();
            let conversations = self.store().conversations();
            let taken = conversations.lock(id, self.replica.as_deref()).await;
            if let Some(lock) = taken.map_err(CallError::from)? {
                return Ok(HeldLock::new(lock, asked, conversations, Arc::clone(live)));
            }
            if !is_queued {
                is_queued = true;
                add(log, &RunEvent::Queued { wait_seconds: wait.as_secs() });
                if request.on_busy == OnBusy::Interrupt {
                    // In another process.
                    conversations.stop_run(id).await.map_err(CallError::from)?;
                }
            }
            if Instant::now() >= until {
                let message = "another run of the conversation is on; wait for its end, or interrupt it with \
                               `on_busy: interrupt`";
                return Err(CallError::new(ErrorCode::ConversationLocked, message).retry_after(LOCK_WAIT));
            }
            let _stopped = live.stop.run_until_cancelled(sleep(LOCK_PAUSE)).await;
        }
    }

    /// Stops the earlier runs of a conversation in this process, also those that wait for its lock.
    fn stop_earlier(&self, conversation: &str, own: &str) {
        for other in &self.live {
            // Ids are in the order of the requests: the last one of several that interrupt goes on.
            if other.conversation == conversation && *other.id < *own {
                other.stop(StopCause::LaterRun);
            }
        }
    }

    /// The events of a run that is on, or ended in the last ten minutes.
    pub fn events(&self, caller_key: &str, run: &str) -> Option<EventLog> {
        self.logs.find(caller_key, run)
    }

    /// Ends a run soon, in whatever process it is; its results so far are stored.
    /// Errors: `unknown_result` if the caller has no such run.
    pub async fn cancel(&self, caller_key: &str, id: &str) -> Result<(), CallError> {
        if let Some(run) = self.live_run(caller_key, id) {
            run.stop(StopCause::Request);
            return Ok(());
        }
        let found = self.store().conversation_runs().get(caller_key, id).await.map_err(CallError::from)?;
        let run = found.ok_or_else(|| unknown_run(id))?;
        if run.status == RunStatus::Running {
            self.store().conversations().stop_run(&run.conversation).await.map_err(CallError::from)?;
        }
        Ok(())
    }

    /// Gives the decision that a run waits for.
    /// Errors: `unknown_result` if the caller has no such run here, or it does not wait for this call.
    pub fn resolve(&self, caller_key: &str, id: &str, call: &str, decision: Decision) -> Result<(), CallError> {
        let run = self.live_run(caller_key, id).ok_or_else(|| unknown_run(id))?;
        if run.decide(call, decision) {
            return Ok(());
        }
        Err(CallError::new(ErrorCode::UnknownResult, "the run does not wait for a decision about this call"))
    }

    /// The call about which a run of this process waits for a decision.
    pub fn asks_about(&self, caller_key: &str, id: &str) -> Option<UnknownCall> {
        self.live_run(caller_key, id)?.asks_about()
    }

    fn live_run(&self, caller_key: &str, id: &str) -> Option<Arc<LiveRun>> {
        self.live.get(id).filter(|run| *run.caller_key == *caller_key).map(|run| Arc::clone(run.value()))
    }
}

/// Ids are in the order of the requests.
pub fn new_run_id() -> Arc<str> {
    Uuid::now_v7().to_string().into()
}

/// Turns the loop's events into events of the conversation (C16), until the run has ended.
async fn process(mut events: impl futures_util::Stream<Item = Event> + Unpin, context: &Context) -> Outcome {
    let mut outcome = Outcome::default();
    // A plan has no time limit of its own: each of its parts has this one.
    failpoint::reach("run.agent");
    let mut end = pin!(sleep(additions::max_run(&context.request.profile)));
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = &mut end, if !context.live.stop.is_cancelled() => {
                context.live.stop(StopCause::TimeOut);
                continue;
            }
        };
        let Some(event) = event else { return outcome };
        context.show(&event, end.as_mut()).await;
        context.close_session(&event).await;
        failpoint::reach("run.event");
        outcome.record(event, |event| add(&context.log, &event));
    }
}

/// Errors: `denied`: no run begins (C3).
fn check(conversation: &Conversation) -> Result<(), CallError> {
    match conversation.status {
        ConversationStatus::Active => Ok(()),
        ConversationStatus::Inactive => {
            let message = "the conversation is inactive; set its `status` to `active` to run it";
            Err(CallError::new(ErrorCode::Denied, message))
        }
    }
}

fn system(subtype: SystemSubtype, run: &ConversationRun) -> RunEvent {
    RunEvent::System {
        subtype,
        run_id: run.id.clone(),
        conversation_id: run.conversation.clone(),
        session_id: run.session_id.clone(),
        turn: run.number,
    }
}

fn add(log: &EventLog, event: &RunEvent) {
    // Never fails: an event has no map with keys that are not strings.
    log.append(event.name(), serde_json::to_value(event).unwrap_or_default());
}

/// The caller has no conversation with that id.
pub fn unknown_conversation(id: &str) -> CallError {
    let shown: String = id.chars().take(100).collect();
    let message = format!("there is no conversation {shown:?}; `GET /api/conversations` lists yours");
    CallError::new(ErrorCode::UnknownSession, message)
}

/// A conversation has no such session, or its messages are no longer stored.
pub fn unknown_session(session: &str) -> CallError {
    let shown: String = session.chars().take(100).collect();
    let message = format!(
        "the conversation has no messages of the session {shown:?}; set its `session_id` to null to begin a new one"
    );
    CallError::new(ErrorCode::UnknownSession, message)
}

pub fn unknown_run(id: &str) -> CallError {
    let shown: String = id.chars().take(100).collect();
    CallError::new(ErrorCode::UnknownResult, format!("there is no run {shown:?}"))
}

/// Removes a run from those that are on and closes its log, also when it panics.
struct EndGuard {
    runs: Arc<ConversationRuns>,
    id: Arc<str>,
    log: EventLog,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.runs.live.remove(&self.id);
        self.log.close();
    }
}

impl fmt::Debug for ConversationRuns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConversationRuns").field("replica", &self.replica).finish_non_exhaustive()
    }
}
