//! Runs a plan from node to node, with its state in the store after each.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_stream::stream;
use futures_util::stream::Stream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::nodes;
use super::running::RunningPlan;
use super::start::PlanRun;
use super::state::{Node, PlanState, PlanStatus};
use super::work::{Work, taken_over};
use crate::message::{AssistantTurn, TurnPart};
use crate::{AgentService, Event, FinishReason, Message, RunError};
use sekisho_core::failpoint;
use sekisho_observe::telemetry;
use sekisho_store::{LockState, PlanLease, PlanWish, Store};

/// Events that wait for a slow client.
const WAITING_EVENTS: usize = 64;

/// Why a plan is not on any more.
enum Ended {
    Status(PlanStatus),
    Failed(RunError),
    /// Another run may have it.
    Lost,
}

/// Runs a plan that the run has in the store. The last two events are [`Event::Finished`] and [`Event::Usage`]. Dropping the
/// stream cancels the plan.
pub(super) fn run(agents: Arc<AgentService>, plan: PlanRun) -> impl Stream<Item = Event> + Send + 'static {
    let PlanRun { id, lease, asked, request, mut state, running } = plan;
    let (sender, mut events) = mpsc::channel(WAITING_EVENTS);
    let work = Work::new(agents, (id, lease), request, &state, sender);
    stream! {
        let mut guard = CancelOnDrop {
            plan: Some((work.store().clone(), work.lease.clone())),
            agents: Arc::clone(&work.agents),
            running: Some(running),
        };
        let mut driven = Box::pin(drive(&work, &mut state, asked));
        let ended = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => yield event,
                ended = &mut driven => break ended,
            }
        };
        drop(driven);
        while let Ok(event) = events.try_recv() {
            yield event;
        }
        let last = close(&work, &mut state, ended).await;
        guard.plan = None;
        for event in last {
            if let Event::Finished { reason, .. } = &event {
                telemetry::complete_plan(&work.span, *reason);
            }
            yield event;
        }
    }
}

/// Visits nodes until the plan ends, waits or fails.
async fn drive(work: &Work, state: &mut PlanState, asked: Instant) -> Ended {
    tokio::select! {
        ended = visit_all(work, state) => ended,
        () = until_lost(work, asked) => Ended::Lost,
    }
}

async fn visit_all(work: &Work, state: &mut PlanState) -> Ended {
    let before = state.last_event;
    loop {
        state.last_event = before + work.sent.load(Ordering::Relaxed);
        match work.save(state, PlanStatus::Running).await {
            Ok(Some(PlanWish::GoOn)) => {}
            Ok(Some(PlanWish::Pause)) => return Ended::Status(PlanStatus::Paused),
            Ok(Some(PlanWish::Cancel)) => return Ended::Status(PlanStatus::Cancelled),
            Ok(None) => return Ended::Lost,
            Err(error) => return Ended::Failed(RunError::from(&error)),
        }
        if state.node == Node::ExecutorDispatch && state.awaits_approval {
            return Ended::Status(PlanStatus::WaitingForApproval);
        }
        work.send(Event::Node { node: state.node }).await;
        let is_last = state.node == Node::End;
        let node = state.node;
        failpoint::reach(format_args!("plan.{node:?}"));
        let visited = Box::pin(nodes::visit(work, state)).await;
        failpoint::reach(format_args!("plan.{node:?}.visited"));
        if work.abort.is_cancelled() {
            return Ended::Status(PlanStatus::Cancelled);
        }
        match visited {
            Err(error) => return Ended::Failed(error),
            Ok(()) if is_last => return Ended::Status(state.outcome.unwrap_or(PlanStatus::Finished)),
            Ok(()) => {}
        }
    }
}

/// Renews the lease of the plan, which was asked for at that moment, until it is lost. A wish to cancel ends the node at once.
async fn until_lost(work: &Work, asked: Instant) {
    let (plans, lease, abort) = (work.store().plans(), work.lease.clone(), work.abort.clone());
    // In a task of its own: this future is not polled while the client of the plan reads nothing.
    let renewal = AbortOnDropHandle::new(tokio::spawn(async move {
        let state = plans.keep_renewing(&lease, asked).await;
        if state == LockState::AskedToStop {
            abort.cancel();
        }
        state
    }));
    if matches!(renewal.await, Ok(LockState::AskedToStop)) {
        // The node ends, and its run stores the end within the rest of the lease.
        std::future::pending::<()>().await;
    }
}

/// Saves how the plan ended; the last events.
async fn close(work: &Work, state: &mut PlanState, ended: Ended) -> Vec<Event> {
    let (status, error) = match ended {
        Ended::Status(status) => (status, None),
        Ended::Failed(error) => (PlanStatus::Failed, Some(error)),
        Ended::Lost => {
            return last_events(state, FinishReason::Error, vec![Event::Error(RunError::from(&taken_over()))]);
        }
    };
    if let Some(error) = &error {
        error.message.clone_into(&mut state.reason);
    }
    if let Err(error) = work.save(state, status).await {
        tracing::warn!(%error, plan = %work.id, "the end of a plan could not be stored: the plan is paused");
        if let Err(error) = work.give_up().await {
            tracing::warn!(%error, plan = %work.id, "a plan could not be given back: it is paused once its lease ends");
        }
    }
    let message = match (status, state.reason.as_str()) {
        (PlanStatus::WaitingForApproval, _) => "The plan waits for approval.".to_owned(),
        (PlanStatus::Paused, _) => "The plan is paused.".to_owned(),
        (PlanStatus::Cancelled, _) => "The plan was cancelled.".to_owned(),
        (PlanStatus::Impossible, reason) => format!("The goal was not reached: {reason}"),
        _ => String::new(),
    };
    let reason = match status {
        PlanStatus::Finished => FinishReason::Stop,
        PlanStatus::Impossible => FinishReason::Limit,
        PlanStatus::Failed => FinishReason::Error,
        _ => FinishReason::Aborted,
    };
    let status = Some(Event::Status { status: status.as_str().to_owned(), message });
    let status = status.filter(|_| !matches!(reason, FinishReason::Stop | FinishReason::Error));
    last_events(state, reason, error.map(Event::Error).into_iter().chain(status).collect())
}

fn last_events(state: &PlanState, reason: FinishReason, first: Vec<Event>) -> Vec<Event> {
    let parts = vec![TurnPart::Text(state.answer.clone())];
    let answer = Message::Assistant(AssistantTurn { parts, ..AssistantTurn::default() });
    let messages = if state.answer.is_empty() { Vec::new() } else { vec![answer] };
    let last = [Event::Finished { reason, messages }, Event::Usage(state.used.usage())];
    first.into_iter().chain(last).collect()
}

/// Marks a plan as cancelled whose client is gone.
struct CancelOnDrop {
    /// `None` once its run has ended.
    plan: Option<(Store, PlanLease)>,
    agents: Arc<AgentService>,
    running: Option<RunningPlan>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((store, lease)) = self.plan.take() else { return };
        let running = self.running.take();
        self.agents.gateway().background().spawn_until_closing(async move {
            if let Err(error) = store.plans().end(&lease, PlanStatus::Cancelled.as_str(), store.now()).await {
                tracing::warn!(%error, plan = lease.plan(), "a cancelled plan could not be stored as such, and is paused");
            }
            drop(running);
        });
    }
}
