//! Plans: a goal is divided into steps, the agent runs each of them with its tools, and each is evaluated before the next.
//!
//! One planner with two presets: `steps` (a few steps, planned anew after failures; A17–A27) and `plan_and_act` (longer
//! plans that are evaluated and changed after each step; B). A plan is a small state machine. Its states are [`Node`]s, one
//! function each in `nodes`; after [`Node::PlannerEvaluate`] the branches decide (`branches`). The state is in the store after
//! every node, so that a plan goes on at its last node after a pause, or in another process.

mod branches;
mod charges;
mod inputs;
mod interrupted;
mod memory;
mod model_answers;
mod nodes;
mod observation;
mod page_snapshots;
mod plans;
mod run;
mod running;
mod start;
mod state;
mod step;
mod step_calls;
mod vectors;
mod verdict;
mod work;

#[cfg(test)]
mod tests;

pub(super) use self::charges::charge_interrupted;
pub use self::memory::{Entry, EntryKind};
pub use self::plans::{NewPlan, Plan, Plans, StepChange};
pub use self::state::{Node, PlanStatus, Step, StepStatus, Used};
pub use self::step_calls::StepCall;
