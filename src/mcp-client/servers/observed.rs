//! The needs of an observed server's program: of one that runs, and of one that runs once before it is added.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::McpServers;
use crate::server::connect::Connector;
use crate::server::session::Session;
use crate::server::session_owner::SessionOwner;
use crate::text::bounded;
use crate::transport::message::Failure;
use crate::transport::program_sandbox::SandboxProfile;
use sekisho_config::{Config, McpServerSettings};
use sekisho_core::call::Arguments;

/// The time that a call may take in a run.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A call of a tool in a run, by the server's own name of the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedCall {
    pub tool: String,
    pub arguments: Arguments,
}

/// The result of a run.
#[derive(Debug)]
pub struct ObservedRun {
    /// The smallest profile with all that the program used; `None` where it could not be set up.
    pub profile: Option<SandboxProfile>,
    /// Why it did not work in its sandbox.
    pub problem: Option<String>,
}

impl McpServers {
    /// The smallest profile with all that the program of an observed server has used until now; `None` where no such server runs, or
    /// it has no sandbox.
    pub fn needed_profile(&self, server: &str) -> Option<SandboxProfile> {
        let running = self.running.load();
        let found = running.get(server)?;
        found.connector.sandbox.needed(server, found.settings())
    }

    /// Runs the program of an entry once, has it list its tools, makes the calls one after the other, and ends it. It is not offered.
    pub async fn observe(
        &self,
        name: &str,
        settings: McpServerSettings,
        config: &Config,
        calls: Vec<ObservedCall>,
    ) -> ObservedRun {
        let (sandbox_mode, prefix) = (config.mcp.sandbox, Some(config.mcp.prefix));
        let settings = McpServerSettings { observed: true, sandbox_mode, prefix, ..settings };
        let connecting = Arc::new(Semaphore::new(1));
        let connector = match self.connector(name, settings, config, &connecting) {
            Ok((connector, _)) => connector,
            Err(problem) => return ObservedRun { profile: None, problem: Some(problem.to_string()) },
        };
        let used = Box::pin(run(&connector, config.mcp.max_tools_per_server, calls)).await;
        let profile = connector.sandbox.needed(name, &connector.settings);
        ObservedRun { profile, problem: used.err() }
    }
}

async fn run(connector: &Connector, max_tools: usize, calls: Vec<ObservedCall>) -> Result<(), String> {
    let session = connector.connect(&SessionOwner::default()).await?;
    connector.list(&session, max_tools).await?;
    for ObservedCall { tool, arguments } in calls {
        let made = make(&session, &tool, arguments).await;
        let secrets = || connector.secrets_of(&session);
        made.map_err(|reason| secrets().strike(&format!("{tool}: {reason}")).into_owned())?;
    }
    Ok(())
}

async fn make(session: &Session, tool: &str, arguments: Arguments) -> Result<(), String> {
    let params = Map::from_iter([("name".to_owned(), tool.into()), ("arguments".to_owned(), Value::Object(arguments))]);
    let asked = tokio::time::timeout(CALL_TIMEOUT, session.ask("tools/call", params)).await;
    match asked {
        Err(_) => Err(format!("it has no answer after {} s", CALL_TIMEOUT.as_secs())),
        Ok(Err(Failure::Refused(error))) => Err(format!("it was refused: {}", bounded(&error.message))),
        Ok(Err(Failure::Lost)) => Err("the connection was closed".to_owned()),
        Ok(Err(Failure::Invalid)) => Err("its answer is invalid".to_owned()),
        Ok(Err(Failure::Call(error))) => Err(error.message().to_owned()),
        Ok(Ok(answer)) => match error_of(&answer) {
            Some(reason) => Err(reason),
            None => Ok(()),
        },
    }
}

/// The text of an answer that says that the call failed.
fn error_of(answer: &Value) -> Option<String> {
    if answer.get("isError") != Some(&Value::Bool(true)) {
        return None;
    }
    let first = answer.get("content").and_then(|content| content.get(0)).and_then(|first| first.get("text"));
    Some(format!("it failed: {}", bounded(first.and_then(Value::as_str).unwrap_or("without a text"))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_failed_where_its_answer_says_so() {
        let failed = json!({"isError": true, "content": [{"type": "text", "text": "no such file"}]});
        assert_eq!(error_of(&failed).as_deref(), Some("it failed: no such file"));
        assert_eq!(error_of(&json!({"isError": true})).as_deref(), Some("it failed: without a text"));
        for answer in [json!({"content": []}), json!({"isError": false}), json!({})] {
            assert_eq!(error_of(&answer), None, "{answer}");
        }
    }
}
