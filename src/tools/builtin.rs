//! The built-in tools: one file for each, one line in the list.

mod calculator;
mod current_time;
mod file_list;
mod file_read;
mod file_write;
mod json_query;
mod program_effects;
mod python_executor;
mod read_result;
mod side_thread;
mod web_fetch;
mod web_search;
mod workspace;

use std::sync::Arc;

use serde::Deserialize;

pub use self::workspace::Workspaces;

use sekisho_calls::results::Results;
use sekisho_calls::tool::{BUILTIN, Source, SourceTools, ToolDefinition, Unavailable};
use sekisho_config::{ToolsConfig, WebFetchConfig, WebSearchConfig};
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::Outbound;
use sekisho_sandbox::{RunPython, Sandbox};

/// The tools in the binary.
#[derive(Debug, Clone)]
pub struct Builtin {
    web_fetch: WebFetchConfig,
    web_search: WebSearchConfig,
    outbound: Outbound,
    workspaces: Workspaces,
    sandbox: Arc<Sandbox>,
    results: Arc<Results>,
}

impl Builtin {
    /// The file tools use `workspaces`, and so does the job that deletes the workspaces of expired sessions.
    pub fn new(
        config: &ToolsConfig,
        outbound: Outbound,
        workspaces: Workspaces,
        sandbox: Arc<Sandbox>,
        results: Arc<Results>,
    ) -> Self {
        let (web_fetch, web_search) = (config.web_fetch.clone(), config.web_search.clone());
        Self { web_fetch, web_search, outbound, workspaces, sandbox, results }
    }
}

impl Builtin {
    fn python_executor(&self) -> Result<ToolDefinition, Unavailable> {
        if !cfg!(feature = "sandbox") {
            let reason = "this program was built without the feature `sandbox`";
            return Err(Unavailable::new(BUILTIN, "python_executor", reason));
        }
        let run = Arc::clone(&self.sandbox) as Arc<dyn RunPython>;
        Ok(python_executor::definition(self.sandbox.config(), &self.sandbox.profiles(), run, &self.workspaces))
    }
}

impl Source for Builtin {
    fn name(&self) -> &str {
        "builtin"
    }

    fn tools(&self) -> SourceTools {
        let mut offer = SourceTools::default();
        for tool in [
            Ok(calculator::definition()),
            Ok(current_time::definition()),
            Ok(file_list::definition(&self.workspaces)),
            Ok(file_read::definition(&self.workspaces)),
            Ok(file_write::definition(&self.workspaces)),
            Ok(json_query::definition()),
            self.python_executor(),
            Ok(read_result::definition(&self.results)),
            web_fetch::definition(&self.web_fetch, &self.outbound),
            web_search::definition(&self.web_search, &self.outbound),
        ] {
            match tool {
                Ok(definition) => offer.tools.push(definition),
                Err(unavailable) => offer.unavailable.push(unavailable),
            }
        }
        if cfg!(feature = "sandbox") && self.sandbox.config().code_mode.enabled {
            offer.tools.push(program_effects::definition());
        }
        offer
    }
}

/// The arguments in a tool's own type. They match its schema already; this checks rules that a schema cannot express.
fn read_arguments<'a, T: Deserialize<'a>>(arguments: &'a Arguments) -> Result<T, CallError> {
    T::deserialize(arguments).map_err(|error| {
        CallError::new(ErrorCode::InvalidArguments, format!("the arguments do not match the schema: {error}"))
    })
}

#[cfg(test)]
mod tests;
