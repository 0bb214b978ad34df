//! `sekisho chat`: runs an agent in this process; its tools are those of the gateway at `--server` or of the state
//! directory, or without one this process's own.

mod dialogue;
mod screen;

use std::io::{self, IsTerminal, Read};
use std::sync::Arc;

use clap::Args;
use futures_util::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use self::screen::Screen;
use super::call::Identity;
use super::local_gateway::{self, Place};
use super::{Common, Exit, present};
use crate::agent::toolbox::{InProcess, OverHttp, Toolbox};
use crate::agent::{AgentRequest, AgentService, Event, FinishReason, Message, service};
use crate::config::{AgentProfile, Config, McpConfig, OpenApiConfig, PlannerConfig};
use crate::core::call::{BudgetScopes, Caller};
use crate::core::error::CallError;
use crate::core::session::Session;
use crate::infra::state_lock::StateLock;
use crate::infra::temporary_folder::TemporaryFolder;

#[derive(Debug, Args)]
pub(super) struct ChatCommand {
    /// The task. Without it: a conversation on a terminal, or else all of standard input.
    prompt: Option<String>,
    /// The agent's profile, or `replay:FILE` for a scripted conversation.
    #[arg(long, value_name = "PROFILE")]
    model: Option<String>,
    /// Plan before acting, and show the steps as a checklist. Profiles with a `planner` always do.
    #[arg(long)]
    plan: bool,
    /// The session of the tool calls, with its files. By default a new one.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

/// Prefix of a script in place of a profile.
const REPLAY: &str = "replay:";

/// The state that the turns of a conversation share.
struct Chat {
    agents: Arc<AgentService>,
    agent: String,
    profile: Arc<AgentProfile>,
    caller: Arc<Caller>,
    session: Arc<Session>,
    /// The gateway whose tools are used, if it is not this process's.
    remote: Option<OverHttp>,
    screen: Screen,
    history: Vec<Message>,
}

pub(super) fn run(common: &Common, command: &ChatCommand) -> Exit {
    let prompt = match prompt(command.prompt.as_deref()) {
        Ok(prompt) => prompt,
        Err(problem) => {
            present::problem(&problem);
            return Exit::Refused;
        }
    };
    let (mut remote, mut folder) = (None, None);
    let (config, lock) = match local_gateway::place(common, &command.identity) {
        Err(exit) => return exit,
        Ok(Place::Process(config, lock)) => (*config, lock),
        Ok(Place::Gateway(gateway)) => {
            let state = local_gateway::configuration(common).and_then(state_of_its_own);
            let ((config, lock, temporary), toolbox) = match (state, gateway.toolbox()) {
                (Ok(state), Ok(toolbox)) => (state, toolbox),
                (Err(exit), _) => return exit,
                (_, Err(unanswered)) => return unanswered.report(),
            };
            (remote, folder) = (Some(toolbox), Some(temporary));
            (config, lock)
        }
    };
    let exit = converse(common, command, prompt, config, lock, remote);
    drop(folder);
    exit
}

fn converse(
    common: &Common,
    command: &ChatCommand,
    prompt: Option<String>,
    config: Config,
    lock: StateLock,
    remote: Option<OverHttp>,
) -> Exit {
    super::serve::with_gateway(config, lock, async |gateway| {
        let agents = match AgentService::new(&gateway) {
            Ok(agents) => agents,
            Err(problem) => {
                present::problem(&problem.to_string());
                return Exit::Misconfigured;
            }
        };
        let chat = Chat::begin(common.json, agents, command, remote);
        let ended = match (chat, prompt) {
            (Ok(mut chat), Some(prompt)) => chat.ask(prompt).await.map(exit_of),
            (Ok(chat), None) => Ok(dialogue::hold(chat).await),
            (Err(error), _) => Err(error),
        };
        ended.unwrap_or_else(|error| {
            present::problem(&error.to_string());
            Exit::Refused
        })
    })
}

/// With another gateway's tools, that gateway audits and charges the calls, and may use this machine's state directory:
/// the conversation gets a folder of its own, which is removed when it ends.
fn state_of_its_own(mut config: Config) -> Result<(Config, StateLock, TemporaryFolder), Exit> {
    let created = TemporaryFolder::new().map_err(|error| error.to_string()).and_then(|folder| {
        let lock = StateLock::acquire(folder.path()).map_err(|error| error.to_string())?;
        Ok((folder, lock))
    });
    let (folder, lock) = created.map_err(|problem| {
        present::problem(&format!("cannot create a folder for this conversation: {problem}"));
        Exit::Misconfigured
    })?;
    config.state_directory = Some(folder.path().to_owned());
    config.audit.file = None;
    // Tools of this process are not used; finding them would only take time.
    (config.mcp, config.openapi) = (McpConfig::default(), OpenApiConfig::default());
    Ok((config, lock, folder))
}

/// `None` for a conversation.
fn prompt(given: Option<&str>) -> Result<Option<String>, String> {
    let text = match given {
        Some(text) => text.to_owned(),
        None if io::stdin().is_terminal() => return Ok(None),
        None => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| format!("standard input cannot be read: {error}"))?;
            text
        }
    };
    if text.trim().is_empty() { Err("the prompt is empty; describe the task".into()) } else { Ok(Some(text)) }
}

fn exit_of(reason: FinishReason) -> Exit {
    if reason == FinishReason::Stop { Exit::Done } else { Exit::Failed }
}

impl Chat {
    /// # Errors
    /// The profile or the session does not exist.
    fn begin(
        json: bool,
        agents: Arc<AgentService>,
        command: &ChatCommand,
        remote: Option<OverHttp>,
    ) -> Result<Self, CallError> {
        let gateway = agents.gateway();
        let (agent, mut profile) = profile_of(&gateway.config(), command.model.as_deref())?;
        if command.plan && profile.planner.is_none() {
            profile = Arc::new(AgentProfile { planner: Some(PlannerConfig::default()), ..(*profile).clone() });
        }
        let caller = command.identity.caller().caller()?;
        let session = command.session.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        let session = gateway.pipeline.sessions.prepare(&caller, &session)?;
        let (screen, history) = (Screen::new(json), Vec::new());
        Ok(Self { agents, agent, profile, caller, session, remote, screen, history })
    }

    /// Runs the agent on one message, and shows its events. Ctrl-C stops it.
    ///
    /// # Errors
    /// The run cannot start.
    async fn ask(&mut self, prompt: String) -> Result<FinishReason, CallError> {
        let message = Message::User(prompt.into());
        let mut messages = self.history.clone();
        messages.push(message.clone());
        let scopes =
            BudgetScopes { request: Some(Uuid::now_v7().to_string()), is_run: true, ..BudgetScopes::default() };
        let (profile, caller, toolbox) = (Arc::clone(&self.profile), Arc::clone(&self.caller), self.toolbox(&scopes));
        let request = AgentRequest { scopes, ..AgentRequest::new(&self.agent, profile, caller, toolbox, messages) };
        let abort = request.abort.clone();
        // Listens from here on: an interrupt while nobody waits for one is not lost.
        let mut interrupts = signal(SignalKind::interrupt()).map_err(CallError::internal)?;
        let mut events = Box::pin(self.agents.begin(request).await?);
        self.screen.wait("thinking");
        let mut ended = FinishReason::Aborted;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                Some(()) = interrupts.recv(), if !abort.is_cancelled() => {
                    abort.cancel();
                    continue;
                }
            };
            let Some(event) = event else { return Ok(ended) };
            if let Event::Finished { reason, messages } = &event {
                ended = *reason;
                if !messages.is_empty() {
                    self.history.extend([message.clone()].into_iter().chain(messages.iter().cloned()));
                }
            }
            self.screen.show(event);
        }
    }

    /// A toolbox for one run, whose calls are one request.
    fn toolbox(&self, scopes: &BudgetScopes) -> Arc<dyn Toolbox> {
        match &self.remote {
            Some(remote) => Arc::new(remote.for_request(scopes.request.as_deref(), &self.session.id)),
            None => Arc::new(InProcess {
                scopes: scopes.clone(),
                session: Some(Arc::clone(&self.session)),
                ..InProcess::new(Arc::clone(self.agents.gateway()), Arc::clone(&self.caller))
            }),
        }
    }
}

fn profile_of(config: &Config, name: Option<&str>) -> Result<(String, Arc<AgentProfile>), CallError> {
    let name = name.unwrap_or(&config.agent.default_profile);
    Ok(match name.strip_prefix(REPLAY) {
        Some(file) => ("replay".to_owned(), Arc::new(AgentProfile::replay(file))),
        None => (name.to_owned(), service::profile(&config.agent, name)?),
    })
}
