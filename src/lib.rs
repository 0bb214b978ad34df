//! Sekisho (関所, a checkpoint): a service through which AI agents run tools.
//!
//! Read [`sekisho_calls::pipeline`] first: the life of a tool call. The modules below stand in layers, the highest first, above
//! the crates `sekisho-…`. A module uses only modules that stand after it; `tests/tidy.rs` reads this list and refuses an import
//! that points upwards.
//!
//! What follows the list is what a program uses that embeds the gateway (`examples/embed.rs`): it makes a [`Config`],
//! starts a [`Gateway`] with its own [`Source`] of tools, and makes calls, or serves the APIs with [`serve`]. Everything
//! else is private, so that the compiler finds code that nothing uses.

// The command line.
mod cli;

// The pages for operators, in front of the same functions as the HTTP routes.
mod console;

// The HTTP server and the MCP server: how calls come in.
mod api;

// A client of the gateway: a model in a loop with its tools.
mod agent;

// Everything wired together, and reloaded.
mod gateway;

// Where tools come from, and the sandbox that runs Python.
mod sources;

mod sandbox;

pub use sekisho_agent::AgentService;
pub use sekisho_agent::toolbox::{InProcess, Toolbox};
pub use sekisho_api::BoundListeners;
pub use crate::cli::main;
pub use sekisho_console::serve;
pub use sekisho_gateway::Gateway;
pub use sekisho_calls::pipeline::{Answer, Reply};
pub use sekisho_calls::tool::{
    Attempt, Destination, Execution, Executor, Metadata, Source, SourceTools, ToolDefinition,
};
pub use sekisho_config::{Config, Environment, PolicyConfig};
pub use sekisho_core::call::{Arguments, CallContext, Caller, Deadline, ToolOutput, Upstream, Via};
pub use sekisho_core::error::{Blame, CallError, ErrorCode};
pub use sekisho_core::peer::{Progress, Question, QuestionMethod, Questions};

/// What the tests and benchmarks of this repository use besides. No promise is made about it.
#[doc(hidden)]
pub mod testing {
    pub use sekisho_gateway::offered_tools;
    pub use sekisho_interpreters::compiled::CompiledFolder;
    pub use sekisho_guest_system::engine::{InstancePool, can_scan_pages, engine, fingerprint};
    pub use sekisho_interpreters::interpreter::{Kind, Manifest};
    pub use sekisho_interpreters::prepare::{Prepared, PreparedProfile, default_folder};
    pub use sekisho_mcp_client::OperationRequest;
    pub use sekisho_audit::verify as verify_audit;
    pub use sekisho_calls::policy::cases::run as run_policy_cases;
    pub use sekisho_calls::registry::Snapshot;
    pub use sekisho_config::json_schema;
    pub use sekisho_core::caller::Owner;
    pub use sekisho_core::share::Share;
    pub use sekisho_outbound::{Outbound, OutboundRequest, Trust};
    pub use sekisho_store::{AgentRun, Store};

    pub mod protocol {
        pub use sekisho_guest_protocol::{
            End, Frames, FromWorker, GuestFile, Job, JobId, JobLimits, JobSession, Load, Outcome, SessionEntry,
            ToWorker, encode,
        };
    }
}
