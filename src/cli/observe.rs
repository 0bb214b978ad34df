//! `sekisho mcp add --observe`: a run of a server before it is added, and the profile that it needed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::failure::Failure;
use super::{Common, Exit, call, local_gateway, present, serve};
use sekisho_api::NamedCaller;
use sekisho_config::{Config, Environment, McpPrefix, McpServerSettings, mcp_file};
use sekisho_core::call::{Arguments, CallContext, Via};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

/// A call in the run.
#[derive(Debug, Clone)]
pub(super) struct ObservedCall {
    tool: String,
    arguments: Arguments,
}

/// Reads `TOOL JSON`; without the second, there are no arguments.
pub(super) fn observed_call(text: &str) -> Result<ObservedCall, String> {
    let (tool, arguments) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "{}"));
    if tool.is_empty() {
        return Err("a call begins with the name of a tool".to_owned());
    }
    Ok(ObservedCall { tool: tool.to_owned(), arguments: call::parse_arguments(arguments.trim())? })
}

/// Runs the server with the calls, and prints the smallest profile that it needed.
/// Errors: a gateway runs, which would use the same folders; the entry is invalid; the server or a call failed.
pub(super) fn run(common: &Common, name: &str, entry: &Value, calls: Vec<ObservedCall>) -> Result<(), Failure> {
    let config = with_server(common, local_gateway::configuration(common)?, name, entry)?;
    let prefix = if config.mcp.prefix == McpPrefix::Never { String::new() } else { format!("{name}__") };
    let lock = local_gateway::take_over(&config, true)?;
    let exit = serve::with_gateway(config, lock, None, async |gateway| {
        let problem = match gateway.mcp_servers().out_of_reach().remove(name) {
            Some(reason) => Some(reason),
            None => make(&gateway, &prefix, calls).await.err(),
        };
        if let Some(profile) = gateway.mcp_servers().needed_profile(name) {
            present::line(&profile.to_string());
        }
        match problem {
            None => Exit::Done,
            Some(problem) => {
                present::problem(&format!("{name} did not work in its sandbox: {problem}"));
                Exit::Failed
            }
        }
    });
    match exit {
        Exit::Done => Ok(()),
        other => Err(Failure::Shown(other)),
    }
}

/// The configuration with this server and no others.
fn with_server(common: &Common, mut config: Config, name: &str, entry: &Value) -> Result<Config, String> {
    let environment = Environment::of_process(common.config.as_deref()).map_err(|error| error.to_string())?;
    let text = json!({"mcpServers": {name: entry}}).to_string();
    let settings = mcp_file::parse(text.as_bytes(), &environment)?.remove(name).ok_or("its name is not valid")?;
    let settings = McpServerSettings { observed: true, ..settings };
    config.mcp.servers = BTreeMap::from([(name.to_owned(), settings)]);
    match config.check().first() {
        Some(error) => Err(error.to_string()),
        None => Ok(config),
    }
}

/// Makes the calls, one after the other.
/// Errors: the first that failed.
async fn make(gateway: &Gateway, prefix: &str, calls: Vec<ObservedCall>) -> Result<(), String> {
    for ObservedCall { tool, arguments } in calls {
        let tool = format!("{prefix}{tool}");
        let reply = reply(gateway, &tool, arguments).await.map_err(|error| error.to_string())?;
        if reply["success"] != true {
            return Err(format!("{tool}: {}", call::explain(&reply)));
        }
    }
    Ok(())
}

async fn reply(gateway: &Gateway, tool: &str, arguments: Arguments) -> Result<Value, CallError> {
    let caller = NamedCaller::administrator().caller()?;
    let call = CallContext::new(tool, caller, Via::Rest);
    let answered = gateway.pipeline.call(call, arguments).await;
    serde_json::to_value(&*answered.reply).map_err(CallError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_tool_with_its_arguments() {
        for (text, expected) in [
            ("read", Some(("read", json!({})))),
            (" read  {\"path\": \"a b\"} ", Some(("read", json!({"path": "a b"})))),
            ("", None),
            ("read [1]", None),
            ("read {", None),
        ] {
            let call = observed_call(text).ok().map(|call| (call.tool, json!(call.arguments)));
            assert_eq!(call, expected.map(|(tool, arguments)| (tool.to_owned(), arguments)), "{text}");
        }
    }
}
