//! `sekisho explain`: shows which stage would stop a call, and why.

use clap::Args;

use super::call::{Identity, parse_arguments};
use super::{Common, Exit, present, with_config};
use crate::core::call::{CallContext, Via};
use crate::pipeline::Verdict;

#[derive(Debug, Args)]
pub(super) struct ExplainCommand {
    /// A tool, or a method of MCP: `resources/read`, `prompts/get`, `completion/complete`.
    name: String,
    /// The arguments, or the method's parameters, as a JSON object; `-` reads them from standard input.
    #[arg(default_value = "{}", value_name = "JSON")]
    arguments: String,
    #[command(flatten)]
    pub(super) identity: Identity,
}

pub(super) fn run(common: &Common, command: ExplainCommand) -> Exit {
    let arguments = match parse_arguments(&command.arguments) {
        Ok(arguments) => arguments,
        Err(problem) => {
            present::problem(&problem);
            return Exit::WrongCommandLine;
        }
    };
    with_config(common, |config| {
        super::serve::with_gateway(config, async |gateway| {
            let caller = command.identity.caller();
            let request = gateway.mcp_servers().request(&caller, &command.name, &arguments);
            let (call, arguments) = match request {
                Some(request) => request.into_call(CallContext::new("", caller, Via::Mcp)),
                None => (CallContext::new(command.name, caller, Via::Rest), arguments),
            };
            show(common, &gateway.pipeline.explain(&call, arguments))
        })
    })
}

fn show(common: &Common, verdicts: &[Verdict]) -> Exit {
    if common.json {
        present::json(verdicts);
    } else {
        let row = |verdict: &Verdict| {
            let passes = match verdict.passes {
                Some(true) => "passes",
                Some(false) => "stops it",
                None => "not reached",
            };
            vec![verdict.stage.as_str().to_owned(), passes.to_owned(), verdict.because.clone()]
        };
        present::table(&["stage", "", "because"], verdicts.iter().map(row).collect());
    }
    if verdicts.iter().any(|verdict| verdict.passes == Some(false)) { Exit::Refused } else { Exit::Done }
}
