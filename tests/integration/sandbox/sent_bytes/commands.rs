//! Requests by commands of the program: `sekisho call`, and `sekisho mcp serve` between a client and the gateway.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::requests::{Request, is_result};
use crate::app::TestApp;
use crate::cli::{sekisho, text};

impl Request {
    /// The reply that the command prints, and whether it succeeded.
    pub(super) async fn call_by_command(&self, app: &TestApp, tool: &str) -> (bool, Value) {
        let mut command = self.command(app);
        command.args(["--json", "call", tool, &self.body.to_string()]);
        command.args(self.options.iter().flat_map(|(name, value)| [name, value]));
        let run = move || {
            let printed = command.output().unwrap();
            let reply = serde_json::from_slice(&printed.stdout).unwrap_or_else(|_| json!(text(&printed)));
            (printed.status.success(), reply)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The answer to the request, and whether it is a result.
    pub(super) async fn ask_at_stdio(&self, app: &TestApp) -> (bool, Value) {
        let (mut command, line) = (self.command(app), format!("{}\n", self.body));
        command.args(["mcp", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let run = move || {
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(line.as_bytes()).unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            // Progress may come before it.
            let reply = messages.find(|message| message.get("method").is_none()).unwrap_or_default();
            // The end of its input ends it.
            drop(input);
            child.wait().unwrap();
            (is_result(&reply), reply)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The program as a client of the gateway, with the environment of the request.
    fn command(&self, app: &TestApp) -> Command {
        let mut command = sekisho(&app.directory);
        command.args(["--server", &app.url]).envs(self.variables.iter().cloned());
        command
    }
}
