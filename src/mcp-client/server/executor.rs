//! Runs one tool of one server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use super::output;
use super::task::{self, TaskSupport};
use crate::transport::request_headers::MarkedArguments;
use sekisho_calls::tool::{Attempt, Destination, Execution, Executor};
use sekisho_core::call::{Arguments, CallContext, ToolOutput, Upstream};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_process_sandbox::packages::Package;

#[derive(Debug)]
pub(crate) struct ServerTool {
    pub(crate) server: Arc<Server>,
    /// As the server calls it.
    pub(crate) name: String,
    /// The arguments that headers repeat.
    pub(crate) marked: MarkedArguments,
    pub(crate) tasks: TaskSupport,
    /// Of the server's program.
    pub(crate) package: Option<Package>,
}

impl Executor for ServerTool {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(self.run(attempt, arguments))
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        Some(self.server.upstream.clone())
    }

    fn reaches(&self) -> Option<String> {
        Some(format!("{} {}", self.server.connector.reach, self.name))
    }

    fn destination<'a>(&'a self, call: &'a CallContext, _arguments: &'a Arguments) -> Option<Destination<'a>> {
        let of_tool = self.server.destination(call, "tools/call", &self.name);
        Some(Destination { as_task: self.tasks.is_used(call), ..of_tool })
    }

    fn package(&self) -> Option<Value> {
        self.package.as_ref().map(package_in_lock)
    }

    fn identity(&self) -> Option<String> {
        Some(self.server.connector.identity())
    }
}

/// As `tools.lock` has it.
pub(super) fn package_in_lock(package: &Package) -> Value {
    let Package { name, version, digest } = package;
    json!({"name": name, "version": version, "digest": digest})
}

impl ServerTool {
    async fn run(&self, attempt: Attempt<'_>, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let session = self.server.session(attempt.call).await?;
        // Others are installed when the server connects again, before its tools are offered anew and compared with `tools.lock`.
        if self.package != self.server.connector.sandbox.package() {
            let state = "has other packages than this tool was offered with; its tools are listed again";
            return Err(self.server.warming_up(state));
        }
        // Dropped at the deadline, like everything a call waits for: whether the server still lives is looked into.
        let liveness = session.watch_liveness();
        let task = self.tasks.is_used(attempt.call).then(|| task::requested(attempt.deadline.remaining()));
        let answer = session.call_tool(attempt.call, (&self.name, &self.marked), task, arguments).await;
        liveness.answered();
        let answer = answer.map_err(|failure| match attempt.call.client_has_gone() {
            // With it its session with the server: that is not the server's fault.
            true => CallError::new(ErrorCode::UnknownSession, "the MCP session of this call has ended"),
            false => output::failed(self.server.name(), failure),
        });
        let output = answer.and_then(|result| output::output(result, self.server.names()));
        let secrets = self.server.connector.secrets_of(&session);
        match output {
            Ok(output) => Ok(output.redacted(secrets)),
            Err(error) => Err(error.redacted(&secrets)),
        }
    }
}
