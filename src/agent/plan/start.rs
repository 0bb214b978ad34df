//! Begins plans, and runs them in the background with their events in a log.

use std::sync::Arc;

use futures_util::stream::{Stream, StreamExt};
use tokio::time::Instant;
use uuid::Uuid;

use super::plans::NewPlan;
use super::run;
use super::running::RunningPlan;
use super::state::{PlanState, PlanStatus};
use crate::event_log::EventLog;
use crate::message::UserPart;
use crate::{AgentRequest, AgentService, Event, Message};
use sekisho_core::error::CallError;
use sekisho_store::{PlanLease, StoredPlan};

/// Maximum characters of a goal.
const MAX_GOAL: usize = 32_000;

/// Maximum plans of a caller that are kept; beyond it, the oldest that do not run go.
const MAX_PLANS: u32 = 1_000;

/// More events than one node sends.
const UNCOUNTED_EVENTS: u64 = 100_000;

/// Maximum characters of the messages before a goal.
const MAX_CONTEXT: usize = 8_000;

/// A run of a plan that is about to begin, and has the plan in the store.
pub(super) struct PlanRun {
    pub(super) id: Arc<str>,
    pub(super) lease: PlanLease,
    /// When the lease was asked for.
    pub(super) asked: Instant,
    pub(super) request: AgentRequest,
    pub(super) state: PlanState,
    pub(super) running: RunningPlan,
}

impl AgentService {
    pub(super) async fn add_plan(&self, new: NewPlan) -> Result<(StoredPlan, PlanRun), CallError> {
        let NewPlan { request, planner, approve } = new;
        if !request.client_tools.is_empty() {
            return Err(CallError::invalid("an agent that plans runs no tools of its client; leave `tools` out"));
        }
        request.options.check(&request.profile)?;
        let (goal, context, attachments) = goal_of(&request.messages)?;
        let mut state = PlanState::new(goal, context, planner, approve)?;
        state.attachments = attachments;
        let now = self.gateway().store().now();
        let stored = StoredPlan {
            id: Uuid::now_v7().to_string().into(),
            caller_key: Arc::clone(&request.caller.key),
            agent: request.agent.to_string(),
            session: request.session.as_deref().map(str::to_owned),
            status: PlanStatus::Running.as_str().to_owned(),
            is_interrupted: false,
            created: now,
            changed: now,
            state: serde_json::to_string(&state).map_err(CallError::internal)?,
        };
        let (store, asked) = (self.gateway().store(), Instant::now());
        let running = self.plans().running.begin(&stored.id, &request.abort);
        let lease = store.plans().add(&stored, self.replica()).await.map_err(CallError::from)?;
        store.plans().forget_surplus(&stored.caller_key, MAX_PLANS).await.map_err(CallError::from)?;
        let run = PlanRun { id: Arc::clone(&stored.id), lease, asked, request, state, running };
        Ok((stored, run))
    }

    /// Runs a plan that the run has in the store.
    pub(super) fn run_plan(self: &Arc<Self>, plan: PlanRun) -> impl Stream<Item = Event> + Send + 'static + use<> {
        run::run(Arc::clone(self), plan)
    }

    /// Runs a plan in the background, with its events in a log.
    pub(super) async fn run_alone(self: &Arc<Self>, plan: PlanRun) -> Result<(), CallError> {
        let (caller, id, last_event) = (Arc::clone(&plan.request.caller), &plan.id, plan.state.last_event);
        let logs = &self.plans().logs;
        // After a restart, events may have been sent that the last state does not count.
        let stored = if last_event == 0 { 0 } else { last_event + UNCOUNTED_EVENTS };
        let last = logs.find(&caller.key, id).map_or(stored, |log| log.last_id());
        let log = match logs.open_after(&caller.owner, &caller.key, id, last) {
            Ok(log) => log,
            Err(error) => {
                let paused = PlanStatus::Paused.as_str();
                let store = self.gateway().store();
                store.plans().end(&plan.lease, paused, store.now()).await.map_err(CallError::from)?;
                return Err(error);
            }
        };
        let events = self.run_plan(plan);
        self.gateway().background().spawn_until_closing(async move {
            let mut events = Box::pin(events);
            let _closes = CloseOnDrop(log.clone());
            while let Some(event) = events.next().await {
                if let Ok(data) = serde_json::to_value(&event) {
                    log.append(event.name(), data);
                }
            }
        });
        Ok(())
    }
}

/// Ends the followers of a plan, also where its process stops.
struct CloseOnDrop(EventLog);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The last message of the user, and the messages before it.
fn goal_of(messages: &[Message]) -> Result<(String, String, Vec<UserPart>), CallError> {
    let position = messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let (before, goal, attachments) = match position.and_then(|position| messages.split_at_checked(position)) {
        Some((before, [Message::User(goal), ..])) => (before, goal.text(), goal.attachments()),
        _ => return Err(CallError::invalid("there is no message of the user; describe the goal")),
    };
    if goal.trim().is_empty() || goal.chars().count() > MAX_GOAL {
        return Err(CallError::invalid(format!("the goal is empty or longer than {MAX_GOAL} characters")));
    }
    let mut said = Vec::new();
    let mut left = MAX_CONTEXT;
    for message in before.iter().rev() {
        let line = match message {
            Message::System(text) => format!("{text}\n"),
            Message::User(user) => format!("User: {}\n", user.text()),
            Message::Assistant(turn) => format!("Assistant: {}\n", turn.text()),
            Message::Tool(_) => continue,
        };
        left = match left.checked_sub(line.chars().count()) {
            Some(left) => left,
            None => break,
        };
        said.push(line);
    }
    said.reverse();
    let context = if said.is_empty() { String::new() } else { format!("What was said before:\n{}\n", said.concat()) };
    Ok((goal, context, attachments))
}
