//! `sekisho explain`: shows which stage would stop a call, and why.

use std::sync::Arc;

use clap::Args;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Builder;

use super::call::{Identity, in_commands, parse_arguments};
use super::{Common, Exit, present, with_config};
use sekisho_calls::pipeline::StageVerdict;
use sekisho_config::Config;
use sekisho_core::call::{CallContext, Via};
use sekisho_core::json;
use sekisho_gateway::Gateway;
use sekisho_store::StoreLocation;
use sekisho_store::state_lock::StateLock;
use sekisho_store::temporary_folder::private_folder;

#[derive(Debug, Args)]
pub(super) struct ExplainCommand {
    /// A tool, or a method of MCP: `resources/read`, `prompts/get`, `completion/complete`.
    name: String,
    /// The arguments, or the method's parameters, as a JSON object; `-` reads them from standard input.
    #[arg(default_value = "{}", value_name = "JSON")]
    arguments: String,
    /// An example of what the tool may answer, as JSON: the stage `accept` says what the rules for results would change in it.
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

pub(super) fn run(common: &Common, command: ExplainCommand) -> Exit {
    let result = command.result.as_deref().map(parse_result).transpose();
    let (arguments, result) = match (parse_arguments(&command.arguments), result) {
        (Ok(arguments), Ok(result)) => (arguments, result),
        (Err(problem), _) | (_, Err(problem)) => {
            present::problem(&problem);
            return Exit::WrongCommandLine;
        }
    };
    with_config(common, |config| {
        with_copied_state(config, async |gateway| {
            let caller = match command.identity.caller().caller() {
                Ok(caller) => caller,
                Err(error) => {
                    present::problem(&error.to_string());
                    return Exit::WrongCommandLine;
                }
            };
            let request = gateway.mcp_servers().request(&caller, &command.name, &arguments);
            let (call, arguments) = match request {
                Some(request) => request.into_call(CallContext::new("", caller, Via::Mcp)),
                None => (CallContext::new(command.name, caller, Via::Rest), arguments),
            };
            show(common, &gateway.pipeline.explain(&call, arguments, result).await)
        })
    })
}

fn parse_result(text: &str) -> Result<Value, String> {
    json::parse(text.as_bytes()).map_err(|problem| format!("--result is not acceptable JSON: {problem}"))
}

/// Runs with a gateway on a copy of the state: nothing is written to it, and a running gateway has the lock.
pub(super) fn with_copied_state(mut config: Config, run: impl AsyncFnOnce(Arc<Gateway>) -> Exit) -> Exit {
    match copied_state(&mut config) {
        Ok((_folder, lock)) => super::serve::with_gateway(config, lock, None, run),
        Err(problem) => {
            present::problem(&problem);
            Exit::Misconfigured
        }
    }
}

/// Moves the configuration to a copy of its state, which is removed with the folder.
fn copied_state(config: &mut Config) -> Result<(TempDir, StateLock), String> {
    let folder = private_folder().map_err(|error| error.to_string())?;
    let (store, tools_lock) = (StoreLocation::of(config), config.lock_file());
    if tools_lock.exists() {
        config.tools.lock = Some(tools_lock);
    }
    config.state_directory = Some(folder.path().to_owned());
    config.audit.file = None;
    config.store.url = None;
    let lock = StateLock::acquire(folder.path()).map_err(|error| error.to_string())?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(sekisho_store::copy(&store, &config.store_file())).map_err(|error| error.to_string())?;
    Ok((folder, lock))
}

fn show(common: &Common, verdicts: &[StageVerdict]) -> Exit {
    if common.json {
        present::json(verdicts);
    } else {
        let row = |verdict: &StageVerdict| {
            let passes = match verdict.passes {
                Some(true) => "passes",
                Some(false) => "stops it",
                None => "not reached",
            };
            vec![verdict.stage.as_str().to_owned(), passes.to_owned(), in_commands(&verdict.because)]
        };
        present::table(&["stage", "", "because"], verdicts.iter().map(row).collect());
    }
    if verdicts.iter().any(|verdict| verdict.passes == Some(false)) { Exit::Refused } else { Exit::Done }
}
