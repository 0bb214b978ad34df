//! The journal of a run: each tool call is stored before it is sent, and its answer when it comes, whatever becomes of the
//! run meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::history::OpenCall;
use super::outcome::rows_of;
use super::stored;
use crate::message::{AssistantTurn, ToolMessage};
use crate::toolbox::{RecordedCall, ToolAnswer, ToolboxCall, ToolboxUnreachable};
use crate::usage::UsageByAgent;
use crate::{Message, ToolDescription, Toolbox, TurnObserver, plan};
use sekisho_calls::budget::{DeferredCharges, TakenCharges};
use sekisho_core::failpoint;
use sekisho_store::{
    ConversationLock, ModelUsageRow, Store, StoreError, ToolExecution, ToolOutcome, TurnMessage, Used,
};

/// How often the usage of a run between its calls is stored.
const USAGE_INTERVAL: Duration = Duration::from_millis(50);

/// A toolbox whose calls are journaled.
pub(super) struct Journaled {
    pub(super) toolbox: Arc<dyn Toolbox>,
    pub(super) journal: Arc<Journal>,
}

/// The journal of one run.
#[derive(Debug)]
pub(super) struct Journal {
    store: Store,
    /// Writes of a run that lost it are refused.
    lock: ConversationLock,
    run: String,
    /// The run's agent.
    agent: String,
    /// The usage of the run so far is stored with its calls and its charges, whatever becomes of the process.
    usage: UsageByAgent,
    /// Charges of calls are apart, and have their owner.
    charges: Arc<DeferredCharges>,
    turn: Mutex<CurrentTurn>,
    /// Held while the current turn or the usage of the run is stored: an earlier usage never replaces a later one.
    storing: tokio::sync::Mutex<()>,
    position: AtomicI64,
    /// Bytes of a result that the model sees.
    max_result_bytes: usize,
    /// Answers that are being stored.
    writes: TaskTracker,
    /// By the id of a call for which an earlier run paused: the journal of that run.
    earlier: Mutex<HashMap<String, Arc<Self>>>,
}

#[derive(Debug, Default)]
struct CurrentTurn {
    number: i64,
    /// Until it is stored.
    message: Option<String>,
}

impl Journal {
    pub(super) fn new(
        store: Store,
        lock: ConversationLock,
        (run, agent): (&str, &str),
        (usage, charges): (UsageByAgent, Arc<DeferredCharges>),
        max_result_bytes: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            lock,
            run: run.to_owned(),
            agent: agent.to_owned(),
            usage,
            charges,
            turn: Mutex::default(),
            storing: tokio::sync::Mutex::default(),
            position: AtomicI64::new(0),
            max_result_bytes,
            writes: TaskTracker::new(),
            earlier: Mutex::default(),
        })
    }

    /// The run makes a call for which an earlier run paused: it is journaled as the same call.
    pub(super) fn resume(&self, open: &OpenCall) {
        self.earlier.lock().insert(open.call.id.clone(), self.of_earlier_run(&open.run));
    }

    /// The journal that has a call.
    fn of_call(self: &Arc<Self>, id: &str) -> Arc<Self> {
        self.earlier.lock().get(id).cloned().unwrap_or_else(|| Arc::clone(self))
    }

    /// The journal of an earlier run of the conversation, whose calls this one sends again.
    pub(super) fn of_earlier_run(&self, run: &str) -> Arc<Self> {
        // Its usage is stored. The new charges of its calls are reserved for the run that sends them.
        let (of_run, usage) = ((run, self.agent.as_str()), (UsageByAgent::default(), Arc::clone(&self.charges)));
        Self::new(self.store.clone(), self.lock.clone(), of_run, usage, self.max_result_bytes)
    }

    /// Gets the turns of the run, each of which is stored with its first call.
    pub(super) fn observer(self: &Arc<Self>) -> TurnObserver {
        let journal = Arc::clone(self);
        TurnObserver::new(move |turn: AssistantTurn| {
            let used = journal.usage.of_turn().map(|used| plan::Used::from(&used));
            let message = Some(stored::write_turn(&Message::Assistant(turn), used.as_ref()));
            let mut current = journal.turn.lock();
            *current = CurrentTurn { number: current.number + 1, message };
        })
    }

    /// Waits until all answers are stored.
    pub(super) async fn settle(&self) {
        let earlier: Vec<_> = self.earlier.lock().values().cloned().collect();
        for writes in earlier.iter().map(|journal| &journal.writes).chain([&self.writes]) {
            writes.close();
            writes.wait().await;
        }
    }

    /// False when another run has the conversation's lock: nothing is journaled. In a task of its own, since the
    /// charges of the run would be stored and written in the background too if the call were dropped meanwhile.
    async fn begin(self: &Arc<Self>, call: &ToolboxCall) -> Result<bool, StoreError> {
        failpoint::reach("call.intent");
        let (journal, call) = (Arc::clone(self), call.clone());
        let begun = self.writes.spawn(async move { journal.store_intent(&call).await }).await;
        // The task is not aborted.
        begun.unwrap_or_else(|panic| panic.try_into_panic().map_or(Ok(false), |panic| resume_unwind(panic)))
    }

    async fn store_intent(&self, call: &ToolboxCall) -> Result<bool, StoreError> {
        let _storing = self.storing.lock().await;
        let Some(turn) = self.store_turn().await? else { return Ok(false) };
        let execution = ToolExecution {
            tool_use_id: call.id.clone(),
            position: self.position.fetch_add(1, Ordering::Relaxed),
            turn,
            tool_name: call.tool.clone(),
            tool_input: Value::Object(call.arguments.clone()).to_string(),
            output: None,
            begun: self.store.now(),
            ended: None,
        };
        let (rows, charges) = self.take_charges();
        let used = Used { rows: &rows, charges: charges.charges() };
        let begun =
            self.store.conversation_runs().begin_tool_execution(&self.lock, &self.run, &execution, used).await?;
        let Some(totals) = begun else { return Ok(false) };
        charges.stored(&totals);
        failpoint::reach("call.begun");
        Ok(true)
    }

    /// Stores the usage of the run between its calls, until it is dropped.
    pub(super) fn keep_storing_usage(self: &Arc<Self>) -> KeptUsage {
        let stop = CancellationToken::new();
        let (journal, stopped) = (Arc::clone(self), stop.clone());
        let task = tokio::spawn(async move {
            while stopped.run_until_cancelled(sleep(USAGE_INTERVAL)).await.is_some() {
                if journal.usage.has_new_charges() {
                    journal.store_usage().await;
                }
            }
        });
        KeptUsage { _stop: stop.drop_guard(), task }
    }

    /// Stores the usage of the run so far, for the case that its process ends before its end is stored.
    pub(super) async fn store_usage(&self) {
        let _storing = self.storing.lock().await;
        let (rows, charges) = self.take_charges();
        match self
            .store
            .conversation_runs()
            .keep_usage(&self.run, Used { rows: &rows, charges: charges.charges() })
            .await
        {
            Ok(totals) => charges.stored(&totals),
            Err(error) => tracing::warn!(%error, run = self.run, "the usage of a run is not in the journal"),
        }
    }

    fn take_charges(&self) -> (Vec<ModelUsageRow>, TakenCharges) {
        let (rows, charges) = self.usage.take_charges();
        (self.with_counts(rows_of(rows)), charges.unwrap_or_else(|| self.charges.apart().take()))
    }

    fn with_counts(&self, mut rows: Vec<ModelUsageRow>) -> Vec<ModelUsageRow> {
        // The loop adds these numbers at the run's end.
        if let Some(own) = rows.iter_mut().find(|row| row.agent == self.agent && row.used.turns == 0) {
            own.used.turns = u32::try_from(self.turn.lock().number).unwrap_or(u32::MAX);
            own.used.tool_calls = u32::try_from(self.position.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        }
        rows
    }

    /// The number of the current turn; `None` when another run has the conversation's lock. Only one task at a time
    /// stores it.
    async fn store_turn(&self) -> Result<Option<i64>, StoreError> {
        let (number, message) = {
            let current = self.turn.lock();
            (current.number, current.message.clone())
        };
        if let Some(message) = message {
            if !self
                .store
                .conversation_runs()
                .add_turn(&self.lock, &self.run, &TurnMessage { turn: number, message })
                .await?
            {
                return Ok(None);
            }
            self.turn.lock().message = None;
        }
        Ok(Some(number))
    }

    /// Stores an answer, also when the run ends meanwhile: [`settle`](Self::settle) waits for it. A call for which the run
    /// `pauses` has not ended.
    async fn end(self: &Arc<Self>, id: &str, answer: &ToolAnswer, charges: TakenCharges, pauses: bool) {
        let outcome = outcome(answer, self.max_result_bytes);
        let ended = (!pauses).then(|| self.store.now());
        let (store, run, id) = (self.store.clone(), self.run.clone(), id.to_owned());
        let written = self.writes.spawn(async move {
            failpoint::reach("call.answered");
            match store.conversation_runs().end_tool_execution((&run, &id), &outcome, charges.charges(), ended).await {
                Ok(totals) => charges.stored(&totals),
                Err(error) => {
                    tracing::error!(%error, run, call = id, "the answer of a tool call is not in the journal");
                }
            }
            failpoint::reach("call.recorded");
        });
        // It does not panic, and is not aborted.
        let _written = written.await;
    }
}

impl Toolbox for Journaled {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        self.toolbox.list()
    }

    fn call(&self, mut call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            let journal = self.journal.of_call(&call.id);
            let refused = match journal.begin(&call).await {
                Ok(true) => None,
                Ok(false) => Some("The call was not sent: another run has the conversation's lock now."),
                Err(error) => {
                    tracing::error!(%error, run = journal.run, "a tool call was not sent: it cannot be journaled");
                    Some("The call was not sent: the gateway's store does not take it now.")
                }
            };
            if let Some(text) = refused {
                return ToolAnswer { success: false, text: text.to_owned(), error_info: None, images: Vec::new() };
            }
            let (id, charges) = (call.id.clone(), journal.charges.apart());
            let key = RecordedCall::key_of(&journal.run, &id);
            call.record = RecordedCall { charges: Some(charges.of_call(Arc::clone(&key))), key: Some(key) };
            let on_approval = call.on_approval.clone();
            let answer = self.toolbox.call(call).await;
            let pauses = on_approval.pause(&answer).is_some();
            journal.end(&id, &answer, charges.take(), pauses).await;
            answer
        })
    }
}

/// Stores the usage of a run.
#[derive(Debug)]
pub(super) struct KeptUsage {
    _stop: DropGuard,
    task: JoinHandle<()>,
}

impl KeptUsage {
    /// Ends it, and waits for a write that is under way.
    pub(super) async fn stop(self) {
        let Self { _stop: stop, task } = self;
        drop(stop);
        // It does not panic, and is not aborted.
        let _ended = task.await;
    }
}

impl fmt::Debug for Journaled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Journaled").field("journal", &self.journal).finish_non_exhaustive()
    }
}

fn outcome(answer: &ToolAnswer, max_bytes: usize) -> ToolOutcome {
    let mut text = match &answer.error_info {
        Some(info) if !answer.success => format!("{}\n{info}", answer.text),
        _ => answer.text.clone(),
    };
    text.truncate(text.floor_char_boundary(max_bytes));
    let images = (!answer.images.is_empty()).then(|| serde_json::to_string(&answer.images).unwrap_or_default());
    ToolOutcome { text, images, is_error: !answer.success }
}

/// The message for the model with a journaled answer.
pub(super) fn message_of(execution: &ToolExecution, outcome: &ToolOutcome) -> ToolMessage {
    let images = outcome.images.as_deref().and_then(|images| serde_json::from_str(images).ok()).unwrap_or_default();
    let text = if outcome.is_error { format!("Error: {}", outcome.text) } else { outcome.text.clone() };
    let (call_id, tool) = (execution.tool_use_id.clone(), execution.tool_name.clone());
    ToolMessage { call_id, tool, text, images, is_error: outcome.is_error }
}

#[cfg(test)]
mod tests;
