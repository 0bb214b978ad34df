//! Sekisho (関所, a checkpoint): a service through which AI agents run tools.
//!
//! Read [`sekisho_calls::pipeline`] first: the life of a tool call. This package is the command line over the crates
//! `sekisho-…`; `docs/architecture.md` shows how they stand on each other.
//!
//! A program that embeds the gateway uses the items below (`examples/embed.rs`): it makes a [`Config`], starts a
//! [`Gateway`] with its own [`Source`] of tools, and makes calls, or serves the APIs with [`serve`], without agents with
//! [`serve_gateway`]. An agent runs a model in a loop with the tools of the gateway, and yields its events:
//!
//! ```
//! # use std::sync::Arc;
//! use futures_util::StreamExt;
//! use sekisho::{AgentProfile, AgentRequest, AgentService, Caller, Config, Event, Gateway, InProcess, Message};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # let state = tempfile::tempdir()?;
//! # let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
//! let gateway = Gateway::start(config).await?;
//! let agents = AgentService::new(&gateway)?;
//! let caller = Arc::new(Caller::new("ann", "default", Vec::new()));
//! let tools = Arc::new(InProcess::new(Arc::clone(&gateway), Arc::clone(&caller)));
//! // A script in place of a model.
//! let profile = Arc::new(AgentProfile::replay("config/examples/weather.yaml"));
//! let question = vec![Message::User("Is 21.5 °C warm?".into())];
//!
//! // With `policy.flow`, values of the question count as the user's.
//! tools.begin(&profile.prompt, &question);
//!
//! // `request.abort` ends the run.
//! let request = AgentRequest::new("weather", profile, caller, tools, question);
//! let mut events = agents.begin(request).await?;
//! let mut answer = String::new();
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::Content { text } => answer.push_str(&text),
//!         Event::ToolInput { tool_name, .. } => assert_eq!(tool_name, "calculator"),
//!         _ => {}
//!     }
//! }
//! assert!(answer.ends_with("70.7 °F."));
//! gateway.close().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
//! ```

// The command line.
mod cli;

pub use crate::cli::main;
#[cfg(feature = "agent")]
pub use sekisho_agent::toolbox::{InProcess, ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
#[cfg(feature = "agent")]
pub use sekisho_agent::{AgentRequest, AgentService, Event, FinishReason, Message, ModelOptions, RunError, RunUsage};
pub use sekisho_api::BoundListeners;
pub use sekisho_calls::pipeline::{Answer, Reply};
pub use sekisho_calls::tool::{
    Attempt, Destination, Execution, Executor, Metadata, Source, SourceTools, ToolDefinition,
};
pub use sekisho_config::{AgentProfile, Config, Environment, PolicyConfig};
pub use sekisho_core::call::{Arguments, CallContext, Caller, Deadline, ToolOutput, Upstream, Via};
pub use sekisho_core::error::{Blame, CallError, ErrorCode};
pub use sekisho_core::peer::{Progress, Question, QuestionMethod, Questions};
pub use sekisho_gateway::Gateway;
/// Programs of MCP servers get a sandbox where the program that embeds the gateway calls this first in its `main`: each sandbox is set
/// up by a copy of that program.
pub use sekisho_process_sandbox::run_if_helper as run_if_sandbox_helper;

use std::sync::Arc;

use sekisho_api::Routes;
#[cfg(not(feature = "console"))]
use sekisho_api::serve as serve_routes;
#[cfg(feature = "console")]
use sekisho_console::serve as serve_routes;

/// Serves a gateway and its agents until `shutdown` resolves, then lets running calls finish within the grace period.
#[cfg(feature = "agent")]
pub async fn serve(listening: BoundListeners, agents: &Arc<AgentService>, shutdown: impl Future<Output = ()>) {
    serve_with(listening, agents.gateway(), sekisho_agent_api::routes(agents), shutdown).await;
}

/// Serves a gateway without agents until `shutdown` resolves, then lets running calls finish within the grace period.
pub async fn serve_gateway(listening: BoundListeners, gateway: &Arc<Gateway>, shutdown: impl Future<Output = ()>) {
    serve_with(listening, gateway, Routes::default(), shutdown).await;
}

async fn serve_with(
    listening: BoundListeners,
    gateway: &Arc<Gateway>,
    further: Routes,
    shutdown: impl Future<Output = ()>,
) {
    serve_routes(listening, gateway, sekisho_api::router(gateway, further), shutdown).await;
}

/// Further items for the tests and benchmarks of this repository. No promise is made about them.
#[doc(hidden)]
pub mod testing {
    pub use sekisho_audit::{ReceiptVerifier, public_keys, verify as verify_audit};
    pub use sekisho_calls::policy::cases::run as run_policy_cases;
    pub use sekisho_calls::registry::Snapshot;
    pub use sekisho_config::json_schema;
    pub use sekisho_core::caller::Owner;
    pub use sekisho_core::share::Share;
    pub use sekisho_gateway::offered_tools;
    pub use sekisho_guest_protocol::{InterpreterKind, Prepared, PreparedProfile};
    #[cfg(feature = "sandbox")]
    pub use sekisho_guest_system::engine::{InstancePool, can_scan_pages, engine, fingerprint};
    pub use sekisho_interpreters::compiled::CompiledFolder;
    pub use sekisho_interpreters::interpreter::Manifest;
    pub use sekisho_interpreters::prepare::default_folder;
    pub use sekisho_mcp_client::OperationRequest;
    pub use sekisho_outbound::{Outbound, OutboundRequest, Trust};
    pub use sekisho_store::Store;

    pub mod protocol {
        pub use sekisho_guest_protocol::{
            End, Frames, FromWorker, GuestFile, Job, JobId, JobLimits, JobSession, Load, Outcome, SessionEntry,
            ToWorker, encode,
        };
    }
}
