//! The state of a plan, as it is in the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::memory::Memory;
use super::step_calls::StepCalls;
use crate::message::UserPart;
use crate::{RunError, RunUsage};
use sekisho_config::{Branch, PlannerConfig};
use sekisho_core::error::CallError;

/// The node that a plan comes to next (B18).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Node {
    /// Makes the plan, also anew.
    #[default]
    #[serde(rename = "Planner_Init")]
    PlannerInit,
    /// Selects the next step or steps.
    #[serde(rename = "Executor_Dispatch")]
    ExecutorDispatch,
    /// The agent runs them with its tools.
    #[serde(rename = "Executor_RunMCP")]
    ExecutorRunMcp,
    /// Makes an observation of what the run gave.
    #[serde(rename = "Executor_ProcessResult")]
    ExecutorProcessResult,
    /// Records action and observation.
    #[serde(rename = "Memory_Update")]
    MemoryUpdate,
    /// Decides whether the step has passed, and what comes next.
    #[serde(rename = "Planner_Evaluate")]
    PlannerEvaluate,
    /// Changes the plan.
    #[serde(rename = "Planner_Replanning")]
    PlannerReplanning,
    /// Writes the final answer.
    End,
}

/// Whether a plan is on, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PlanStatus {
    /// The plan is made; its first step waits for `approve`.
    WaitingForApproval,
    Running,
    /// Goes on with `continue`.
    Paused,
    /// The goal is reached.
    Finished,
    /// The goal cannot be reached, or the attempts are used up.
    Impossible,
    /// A model failed, or wrote no plan. `continue` tries again.
    Failed,
    Cancelled,
}

/// One step of a plan (A17).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    pub id: u32,
    pub instruction: String,
    /// The expected result.
    pub expected: String,
    pub status: StepStatus,
    /// Empty until it was run.
    pub result: String,
    /// Its latest tool calls, at most 100, of all attempts.
    #[serde(default)]
    #[schema(value_type = Vec<super::StepCall>)]
    pub calls: StepCalls,
}

/// The state of a step (A18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Pending,
    Executing,
    Completed,
    Failed,
}

/// The calls of one run of the agent for a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepRun {
    /// Whether the run has begun; with `ended`, whether a process was stopped while it ran.
    pub(super) begun: bool,
    pub(super) ended: bool,
    pub(super) calls: Vec<CallMade>,
    pub(super) text: String,
    /// Why the run has no answer.
    pub(super) failure: Option<String>,
}

/// A tool call of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CallMade {
    pub(super) id: String,
    /// Sent as `Idempotency-Key`, also when the call is repeated.
    #[serde(default)]
    pub(super) key: Option<Arc<str>>,
    pub(super) tool: String,
    pub(super) arguments: String,
    /// `None`: sent, and not answered.
    pub(super) answer: Option<String>,
    pub(super) failed: bool,
    /// Whether an interrupted run made it, and the present one did not make it again yet.
    #[serde(default)]
    pub(super) earlier: bool,
}

/// The result of an evaluation (A25).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) passed: bool,
    pub(super) reason: String,
    pub(super) need_replan: bool,
    pub(super) goal_reached: bool,
    pub(super) impossible: bool,
}

/// Everything that a plan needs to go on (A19, B20).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanState {
    pub node: Node,
    /// Never changes.
    goal: String,
    /// The messages before the goal, for a plan in a conversation.
    pub(super) context: String,
    /// The images and files of the goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attachments: Vec<UserPart>,
    pub planner: PlannerConfig,
    pub(super) branches: Vec<Branch>,
    /// Whether the first step still waits for approval.
    pub(super) awaits_approval: bool,
    pub plan: Vec<Step>,
    pub success_criteria: String,
    pub step_idx: usize,
    /// Steps of the current dispatch, from `step_idx`.
    pub(super) dispatched: usize,
    pub(super) next_step_id: u32,
    /// Completed steps of earlier plans.
    pub(super) done: Vec<Step>,
    pub attempts: u32,
    pub total_attempts: u32,
    pub last_observation: String,
    pub need_replan: bool,
    pub(super) replan_reason: String,
    pub(super) impossible: bool,
    pub(super) run: StepRun,
    pub memory: Memory,
    /// Requests of the planner and of the evaluator so far.
    pub(super) planner_requests: u32,
    pub(super) evaluator_requests: u32,
    /// How the plan ends, once it does.
    pub(super) outcome: Option<PlanStatus>,
    /// Why it ended without success, or is not on.
    pub reason: String,
    pub answer: String,
    pub used: Used,
    /// Id of the last event that clients got.
    pub(super) last_event: u64,
}

/// The usage of the runs of a plan, or of a turn of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Used {
    pub turns: u32,
    pub tool_calls: u32,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Of the prompts': read from the provider's cache, and written to it.
    #[serde(default)]
    pub cached_tokens: u64,
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// In USD.
    #[schema(value_type = String)]
    pub cost_usd: rust_decimal::Decimal,
    pub duration_ms: u64,
}

impl PlanState {
    /// A plan that begins.
    /// Errors: `invalid_request`: the planner's file of branches cannot be read.
    pub(super) fn new(goal: String, context: String, planner: PlannerConfig, approve: bool) -> Result<Self, CallError> {
        let branches = planner.read_branches().map_err(|problem| {
            let message = format!("the planner's branches cannot be used: {problem}");
            CallError::new(sekisho_core::error::ErrorCode::InvalidRequest, message)
        })?;
        Ok(Self {
            node: Node::PlannerInit,
            goal,
            context,
            attachments: Vec::new(),
            planner,
            branches,
            awaits_approval: approve,
            plan: Vec::new(),
            success_criteria: String::new(),
            step_idx: 0,
            dispatched: 0,
            next_step_id: 1,
            done: Vec::new(),
            attempts: 0,
            total_attempts: 0,
            last_observation: String::new(),
            need_replan: false,
            replan_reason: String::new(),
            impossible: false,
            run: StepRun::default(),
            memory: Memory::default(),
            planner_requests: 0,
            evaluator_requests: 0,
            outcome: None,
            reason: String::new(),
            answer: String::new(),
            used: Used::default(),
            last_event: 0,
        })
    }

    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// The steps of the current dispatch.
    pub(super) fn current(&self) -> &[Step] {
        let end = (self.step_idx + self.dispatched.max(1)).min(self.plan.len());
        self.plan.get(self.step_idx..end).unwrap_or_default()
    }

    pub(super) fn current_mut(&mut self) -> &mut [Step] {
        let end = (self.step_idx + self.dispatched.max(1)).min(self.plan.len());
        self.plan.get_mut(self.step_idx..end).unwrap_or_default()
    }

    pub(super) fn steps_left(&self) -> bool {
        self.step_idx + self.dispatched.max(1) < self.plan.len()
    }

    /// Adds a call of the current step, and counts it: a process that is killed leaves both.
    pub(super) fn begin_call(&mut self, call: CallMade) {
        let is_new = self.run.add(call);
        self.used.tool_calls = self.used.tool_calls.saturating_add(u32::from(is_new));
    }

    /// Adds the usage of the current step's run, whose own calls are counted already.
    pub(super) fn count(&mut self, used: &RunUsage) {
        let own = self.run.calls.iter().filter(|call| !call.earlier).count();
        let further = used.tool_calls.saturating_sub(u32::try_from(own).unwrap_or(u32::MAX));
        self.used.add(&RunUsage { tool_calls: further, ..used.clone() });
    }

    /// A step with the next id.
    pub(super) fn step(&mut self, instruction: String, expected: String) -> Step {
        let id = self.next_step_id;
        self.next_step_id += 1;
        Step {
            id,
            instruction,
            expected,
            status: StepStatus::Pending,
            result: String::new(),
            calls: StepCalls::default(),
        }
    }

    /// A plan in place of the one so far, whose completed steps stay as results.
    pub(super) fn plan_anew(&mut self, steps: Vec<(String, String)>) {
        let old = std::mem::take(&mut self.plan);
        self.done.extend(old.into_iter().filter(|step| step.status == StepStatus::Completed));
        self.plan = steps.into_iter().map(|(instruction, expected)| self.step(instruction, expected)).collect();
        (self.step_idx, self.dispatched, self.attempts, self.need_replan) = (0, 0, 0, false);
    }

    /// Other steps in place of those that are not completed, from the current one.
    pub(super) fn change_open_steps(&mut self, steps: Vec<(String, String)>) {
        self.plan.truncate(self.step_idx);
        let steps: Vec<_> = steps.into_iter().map(|(instruction, expected)| self.step(instruction, expected)).collect();
        self.plan.extend(steps);
        (self.dispatched, self.attempts, self.need_replan) = (0, 0, false);
    }
}

impl StepRun {
    /// The run that goes on with an interrupted one, whose calls stay: a further interruption loses nothing.
    pub(super) fn after(interrupted: Self) -> Self {
        let calls = interrupted.calls.into_iter().map(|call| CallMade { earlier: true, ..call }).collect();
        Self { begun: true, calls, ..Self::default() }
    }

    /// Adds a call that is about to be sent; whether it is another one. A call that an interrupted run made already keeps its
    /// answer.
    pub(super) fn add(&mut self, call: CallMade) -> bool {
        let arguments = call.read_arguments();
        let known = self.calls.iter().position(|made| made.earlier && made.is_of(&call.tool, &arguments));
        let call = match known {
            Some(position) => CallMade { id: call.id, earlier: false, ..self.calls.remove(position) },
            None => call,
        };
        self.calls.push(call);
        known.is_none()
    }
}

impl CallMade {
    pub(super) fn is_of(&self, tool: &str, arguments: &Value) -> bool {
        self.tool == tool && self.read_arguments() == *arguments
    }

    /// Whatever the order of their names.
    fn read_arguments(&self) -> Value {
        serde_json::from_str(&self.arguments).unwrap_or_default()
    }
}

impl From<&RunUsage> for Used {
    fn from(used: &RunUsage) -> Self {
        let mut new = Self::default();
        new.set(used);
        new
    }
}

impl Used {
    pub(super) fn add(&mut self, used: &RunUsage) {
        let mut sum = self.usage();
        sum.add(used);
        self.set(&sum);
    }

    /// Sets tokens and cost, which are known before a part ends.
    pub(super) fn set_amounts(&mut self, amounts: &RunUsage) {
        let (turns, tool_calls, duration_ms) = (self.turns, self.tool_calls, self.duration_ms);
        self.set(&RunUsage { turns, tool_calls, duration_ms, ..amounts.clone() });
    }

    fn set(&mut self, used: &RunUsage) {
        let RunUsage {
            turns,
            tool_calls,
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cache_write_tokens,
            cost_usd,
            duration_ms,
        } = *used;
        *self = Self {
            turns,
            tool_calls,
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cache_write_tokens,
            cost_usd,
            duration_ms,
        };
    }

    pub(super) fn usage(&self) -> RunUsage {
        RunUsage {
            turns: self.turns,
            tool_calls: self.tool_calls,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_tokens: self.cached_tokens,
            cache_write_tokens: self.cache_write_tokens,
            cost_usd: self.cost_usd,
            duration_ms: self.duration_ms,
        }
    }
}

impl PlanStatus {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether nothing happens to the plan any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Impossible | Self::Cancelled)
    }
}

/// Whether another attempt cannot help: money is used up, or the provider refuses the request itself.
pub(super) fn is_hopeless(error: &RunError) -> bool {
    use sekisho_core::error::ErrorCode::{BudgetExceeded, ModelRefused, TokenLimitExceeded};
    matches!(error.code, BudgetExceeded | ModelRefused | TokenLimitExceeded)
}
