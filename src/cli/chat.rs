//! `sekisho chat`: an agent of this process, asked from the terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;

use clap::Args;
use futures_util::StreamExt;

use super::call::Identity;
use super::{Common, Exit, present, with_config};
use crate::agent::toolbox::InProcess;
use crate::agent::{Errand, Event, FinishReason, Message, desk};
use crate::config::AgentProfile;
use crate::error::CallError;
use crate::gateway::Gateway;

#[derive(Debug, Args)]
pub(super) struct ChatCommand {
    /// What is to be done; read from standard input where it is left out.
    prompt: Option<String>,
    /// The agent's profile, or `replay:FILE` for a scripted conversation.
    #[arg(long, value_name = "PROFILE")]
    model: Option<String>,
    #[command(flatten)]
    identity: Identity,
}

/// What names a script instead of a profile.
const REPLAY: &str = "replay:";

pub(super) fn run(common: &Common, command: &ChatCommand) -> Exit {
    if common.server.is_some() {
        present::problem("`chat` works in this process; ask a server at its /v1/chat/completions");
        return Exit::Refused;
    }
    let prompt = match prompt(command.prompt.as_deref()) {
        Ok(prompt) => prompt,
        Err(problem) => {
            present::problem(&problem);
            return Exit::Refused;
        }
    };
    with_config(common, |config| {
        super::serve::with_gateway(config, async |gateway| match ask(common, &gateway, command, prompt).await {
            Ok(exit) => exit,
            Err(error) => {
                present::problem(&error.to_string());
                Exit::Refused
            }
        })
    })
}

fn prompt(given: Option<&str>) -> Result<String, String> {
    let text = match given {
        Some(text) => text.to_owned(),
        None if io::stdin().is_terminal() => return Err("say what is to be done: sekisho chat 'PROMPT'".into()),
        None => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| format!("standard input cannot be read: {error}"))?;
            text
        }
    };
    if text.trim().is_empty() { Err("the prompt is empty; say what is to be done".into()) } else { Ok(text) }
}

async fn ask(
    common: &Common,
    gateway: &Arc<Gateway>,
    command: &ChatCommand,
    prompt: String,
) -> Result<Exit, CallError> {
    let config = gateway.config();
    let name = command.model.as_deref().unwrap_or(&config.agent.default_profile);
    let profile = match name.strip_prefix(REPLAY) {
        Some(file) => Arc::new(AgentProfile::replay(file)),
        None => desk::profile(&config.agent, name)?,
    };
    let caller = command.identity.caller();
    let toolbox = Arc::new(InProcess::new(Arc::clone(gateway), Arc::clone(&caller)));
    let errand = Errand::new(profile, caller, toolbox, vec![Message::User(prompt)]);
    let abort = errand.abort.clone();
    let mut events = Box::pin(gateway.desk.begin(gateway, errand).await?);
    let mut exit = Exit::Done;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Heard again, it ends the program as ever: the run is being ended already.
            Ok(()) = tokio::signal::ctrl_c(), if !abort.is_cancelled() => {
                abort.cancel();
                continue;
            }
        };
        let Some(event) = event else { return Ok(exit) };
        if matches!(&event, Event::Finished { reason, .. } if *reason != FinishReason::Stop) {
            exit = Exit::Failed;
        }
        if common.json {
            present::json_line(&event);
        } else {
            show(event);
        }
    }
}

/// The answer on standard output, what was done for it on standard error.
fn show(event: Event) {
    match event {
        Event::Content { text } => {
            let mut out = io::stdout();
            let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
        Event::ToolInput { tool_name, arguments, .. } => {
            present::note(&format!("→ {tool_name} {}", serde_json::Value::Object(arguments)));
        }
        Event::ToolResult { tool_name, result, .. } => {
            present::note(&format!("← {tool_name}: {}", present::folded(&result)));
        }
        Event::ToolError { tool_name, error, .. } => {
            present::note(&format!("✗ {tool_name}: {}", present::folded(&error)));
        }
        Event::Error { message, .. } | Event::Status { message, .. } => present::note(&message),
        Event::Finished { .. } => present::line(""),
        Event::Usage(usage) => present::note(&format!(
            "{} turns, {} tool calls, {} tokens, ${}",
            usage.turns,
            usage.tool_calls,
            usage.prompt_tokens.saturating_add(usage.completion_tokens),
            usage.cost_usd
        )),
        Event::Thinking { .. } | Event::ClientToolCall { .. } => {}
    }
}
