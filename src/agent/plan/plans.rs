//! The plans of callers: begun, looked at, paused, changed and continued. Another caller's plan is not found.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{BoxStream, Stream, StreamExt};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::charges::charge_interrupted;
use super::model_answers::MAX_INSTRUCTION;
use super::running::RunningPlans;
use super::start::PlanRun;
use super::state::{PlanState, PlanStatus, StepStatus};
use crate::event_log::{EventLogs, LoggedEvent};
use crate::{AgentRequest, AgentService, Event};
use sekisho_config::PlannerConfig;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{PlanWish, StoredPlan};

/// The plans that this process runs.
#[derive(Default)]
pub struct Plans {
    pub(crate) logs: EventLogs,
    pub(super) running: Arc<RunningPlans>,
}

/// A plan as its caller sees it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub id: Arc<str>,
    /// The profile's name.
    pub agent: String,
    pub session: Option<String>,
    pub status: PlanStatus,
    pub created: Timestamp,
    pub changed: Timestamp,
    pub state: PlanState,
}

/// A plan to begin.
pub struct NewPlan {
    /// The agent, its caller, and the goal as its last message of a user.
    pub request: AgentRequest,
    pub planner: PlannerConfig,
    /// Whether the first step waits for approval.
    pub approve: bool,
}

/// An open step as a caller wants it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepChange {
    #[schema(min_length = 1, max_length = 4000, pattern = r"\S")]
    pub instruction: String,
    /// The expected result.
    #[serde(default)]
    #[schema(max_length = 4000)]
    pub expected: String,
}

impl AgentService {
    /// Begins a plan whose events the client follows. Dropping the stream cancels it.
    /// Errors: `invalid_request` without a goal, or with tools of the client; `internal` if the store cannot keep it.
    pub async fn follow_plan(self: &Arc<Self>, new: NewPlan) -> Result<BoxStream<'static, Event>, CallError> {
        let (_, run) = self.add_plan(new).await?;
        Ok(self.run_plan(run).boxed())
    }

    /// Begins a plan that goes on by itself.
    /// Errors: as [`follow_plan`](Self::follow_plan); `overloaded` if too many are on.
    pub async fn start_plan(self: &Arc<Self>, new: NewPlan) -> Result<Plan, CallError> {
        let (stored, run) = self.add_plan(new).await?;
        let plan = Plan::of(&stored)?;
        self.run_alone(run).await?;
        Ok(plan)
    }

    /// A plan of a caller.
    /// Errors: `not_found`.
    pub async fn plan(&self, caller: &Caller, id: &str) -> Result<Plan, CallError> {
        Plan::of(&self.stored_plan(caller, id).await?)
    }

    /// The plans of a caller that were created before a moment, the latest first.
    /// Errors: `internal`: the store cannot be read.
    pub async fn plans_of(&self, caller: &Caller, before: Timestamp, max: u32) -> Result<Vec<Plan>, CallError> {
        let plans = self.gateway().store().plans().of_caller(&caller.key, before, max).await;
        plans.map_err(CallError::from)?.iter().map(Plan::of).collect()
    }

    /// Pauses a plan after the node that it is at.
    /// Errors: `not_found`; `invalid_request` if it does not run.
    pub async fn pause_plan(&self, caller: &Caller, id: &str) -> Result<Plan, CallError> {
        let plan = self.plan(caller, id).await?;
        let runs = plan.status == PlanStatus::Running && self.wish(id, PlanWish::Pause).await?;
        if runs { self.plan(caller, id).await } else { Err(plan.is_not("running")) }
    }

    /// Ends a plan at once.
    /// Errors: `not_found`; `invalid_request` if it has ended.
    pub async fn cancel_plan(&self, caller: &Caller, id: &str) -> Result<Plan, CallError> {
        let stored = self.stored_plan(caller, id).await?;
        let plan = Plan::of(&stored)?;
        if plan.status.is_final() {
            return Err(plan.is_not("open"));
        }
        if plan.status == PlanStatus::Running {
            self.wish(id, PlanWish::Cancel).await?;
            self.plans().running.abort(id);
        } else {
            self.replace(&stored, PlanStatus::Cancelled, &plan.state).await?;
        }
        self.plan(caller, id).await
    }

    /// Replaces the open steps of a plan that does not run.
    /// Errors: `not_found`; `invalid_request` if it runs or has ended, or for steps that it cannot have.
    pub async fn change_plan(&self, caller: &Caller, id: &str, steps: Vec<StepChange>) -> Result<Plan, CallError> {
        let stored = self.stored_plan(caller, id).await?;
        let mut plan = Plan::of(&stored)?;
        if !plan.waits() {
            return Err(plan.is_not("paused"));
        }
        plan.state.replace_open_steps(steps)?;
        self.replace(&stored, plan.status, &plan.state).await?;
        self.plan(caller, id).await
    }

    /// Goes on with a plan that is paused, interrupted, failed or waits for approval, at its last node. `request`: the agent
    /// of the plan and its present caller.
    /// Errors: `not_found`; `invalid_request` if it runs, has ended or waits for approval, unless this is it.
    pub async fn continue_plan(
        self: &Arc<Self>,
        id: &str,
        request: AgentRequest,
        is_approval: bool,
    ) -> Result<Plan, CallError> {
        let caller = Arc::clone(&request.caller);
        let stored = self.stored_plan(&caller, id).await?;
        let mut plan = Plan::of(&stored)?;
        match (plan.status, is_approval) {
            (PlanStatus::WaitingForApproval, true) => plan.state.awaits_approval = false,
            (PlanStatus::WaitingForApproval, false) => return Err(plan.is_not("approved")),
            (_, true) => return Err(plan.is_not("waiting for approval")),
            _ if !plan.waits() => return Err(plan.is_not("paused")),
            _ => {}
        }
        plan.state.reason.clear();
        let running = self.plans().running.begin(&stored.id, &request.abort);
        let (store, asked) = (self.gateway().store(), Instant::now());
        let text = serde_json::to_string(&plan.state).map_err(CallError::internal)?;
        let resumed = store.plans().resume(&stored, &text, self.replica(), store.now()).await;
        let lease = resumed.map_err(CallError::from)?.ok_or_else(changed_meanwhile)?;
        self.run_alone(PlanRun { id: stored.id, lease, asked, request, state: plan.state, running }).await?;
        self.plan(&caller, id).await
    }

    /// The events of a plan after the one with that id; `None` if none are kept, as for ten minutes after its end.
    /// Errors: `not_found`.
    pub async fn plan_events(
        &self,
        caller: &Caller,
        id: &str,
        after: Option<u64>,
    ) -> Result<Option<impl Stream<Item = Arc<LoggedEvent>> + Send + 'static + use<>>, CallError> {
        self.stored_plan(caller, id).await?;
        Ok(self.plans().logs.find(&caller.key, id).map(|log| log.follow(after)))
    }

    async fn stored_plan(&self, caller: &Caller, id: &str) -> Result<StoredPlan, CallError> {
        let found = self.plan_in_store(caller, id).await?;
        let (store, budgets) = (self.gateway().store(), &self.gateway().pipeline.budget);
        if found.is_interrupted && charge_interrupted(store, budgets, &found).await? {
            return self.plan_in_store(caller, id).await;
        }
        Ok(found)
    }

    async fn plan_in_store(&self, caller: &Caller, id: &str) -> Result<StoredPlan, CallError> {
        let plan = self.gateway().store().plans().get(&caller.key, id).await;
        plan.map_err(CallError::from)?.ok_or_else(unknown)
    }

    /// The id of this gateway in leases, if it is a replica.
    pub(super) fn replica(&self) -> Option<&str> {
        self.gateway().cluster().replica_id()
    }

    async fn wish(&self, id: &str, wish: PlanWish) -> Result<bool, CallError> {
        self.gateway().store().plans().set_wish(id, wish).await.map_err(CallError::from)
    }

    async fn replace(&self, found: &StoredPlan, status: PlanStatus, state: &PlanState) -> Result<(), CallError> {
        let text = serde_json::to_string(state).map_err(CallError::internal)?;
        let store = self.gateway().store();
        let replaced = store.plans().replace(found, (status.as_str(), &text), store.now()).await;
        if replaced.map_err(CallError::from)? { Ok(()) } else { Err(changed_meanwhile()) }
    }
}

impl Plan {
    fn of(stored: &StoredPlan) -> Result<Self, CallError> {
        let damaged = |error: serde_json::Error| CallError::internal(format!("the plan {}: {error}", stored.id));
        let status = serde_json::from_value(stored.status.as_str().into()).map_err(damaged)?;
        let state: PlanState = serde_json::from_str(&stored.state).map_err(damaged)?;
        Ok(Self {
            id: Arc::clone(&stored.id),
            agent: stored.agent.clone(),
            session: stored.session.clone(),
            status: if stored.is_interrupted { PlanStatus::Paused } else { status },
            created: *stored.created,
            changed: *stored.changed,
            state,
        })
    }

    /// Whether it can be changed, and go on.
    fn waits(&self) -> bool {
        matches!(self.status, PlanStatus::Paused | PlanStatus::WaitingForApproval | PlanStatus::Failed)
    }

    fn is_not(&self, what: &str) -> CallError {
        let advice = match self.status {
            PlanStatus::Running => "pause it first",
            PlanStatus::WaitingForApproval => "approve it, or cancel it",
            PlanStatus::Paused | PlanStatus::Failed => "continue it, or cancel it",
            PlanStatus::Finished | PlanStatus::Impossible | PlanStatus::Cancelled => "begin another plan",
        };
        CallError::invalid(format!("the plan is {}, not {what}; {advice}", self.status.as_str()))
    }
}

impl PlanState {
    fn replace_open_steps(&mut self, steps: Vec<StepChange>) -> Result<(), CallError> {
        let completed = self.plan.iter().take_while(|step| step.status == StepStatus::Completed).count();
        let max = self.planner.max_steps();
        if steps.is_empty() && completed == 0 || completed + steps.len() > max {
            return Err(CallError::invalid(format!(
                "a plan has 1 to {max} steps, and this one has completed {completed}"
            )));
        }
        let too_long = |text: &str| text.chars().count() > MAX_INSTRUCTION;
        for step in &steps {
            if step.instruction.trim().is_empty() || too_long(&step.instruction) || too_long(&step.expected) {
                let message =
                    format!("an instruction has 1 to {MAX_INSTRUCTION} characters, an expected result at most as many");
                return Err(CallError::invalid(message));
            }
        }
        // The node is one before the first step, or the node of the step that is replaced.
        if self.plan.is_empty() {
            return Err(CallError::invalid("there is no plan yet; continue it, and pause it when it has steps"));
        }
        self.step_idx = completed;
        self.change_open_steps(steps.into_iter().map(|step| (step.instruction, step.expected)).collect());
        (self.node, self.outcome) = (super::Node::ExecutorDispatch, None);
        self.run = super::state::StepRun::default();
        Ok(())
    }
}

fn changed_meanwhile() -> CallError {
    CallError::invalid("the plan was changed at the same time; read it again")
}

fn unknown() -> CallError {
    CallError::new(ErrorCode::NotFound, "there is no such plan; `GET /api/plans` lists yours")
}

impl fmt::Debug for Plans {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Plans").finish_non_exhaustive()
    }
}

impl fmt::Debug for NewPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NewPlan").field("request", &self.request).finish_non_exhaustive()
    }
}
