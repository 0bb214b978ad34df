//! Tools, and the path of each call: [`pipeline`] is the path, the other modules are its stages.
//!
//! The modules stand in layers, the highest first. A module uses only modules that stand after it; `tests/tidy.rs`
//! reads this list and refuses an import that points upwards.

pub mod pipeline;

// Where the values of sessions come from, and the destinations that are known.
pub mod flow;

// The stages before a tool is executed.
pub mod limits;

pub mod policy;

pub mod budget;

pub mod breaker;

pub mod approval;

// Results too large for a model: stored, and read by their handles.
pub mod results;

// Journals of programs that call tools: kept, so that a run can be resumed.
pub mod journals;

// Which tool finds the effect of a call, and whether it does.
pub mod effects;

// What callers search for and then call.
pub mod used_tools;

// The registered tools, and the form of a tool.
pub mod registry;

pub mod tool;

// Rules about what calls and answers carry, with detectors and services.
pub mod guards;

// Rules that change arguments and results.
pub mod transform;

// JMESPath within bounds.
pub mod projection;
