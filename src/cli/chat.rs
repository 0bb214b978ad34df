//! `sekisho chat`: runs an agent in this process; its tools come from the gateway at `--server` or of the state
//! directory, or without one from this process.

mod dialogue;
mod editor;
mod input;
mod kept;
mod markdown;
mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use futures_util::StreamExt;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use self::kept::KeptConversation;
use self::screen::Screen;
use super::call::Identity;
use super::local_gateway::{self, Place};
use super::{Common, Exit, present};
use sekisho_agent::prompts::beginning;
use sekisho_agent::toolbox::{InProcess, OverHttp, Toolbox};
use sekisho_agent::{AgentRequest, AgentService, Event, FinishReason, Message, models, service};
use sekisho_config::{AgentProfile, Config, McpConfig, OpenApiConfig, PlannerConfig};
use sekisho_core::call::{BudgetScopes, Caller};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::session::Session;
use sekisho_store::state_lock::StateLock;
use sekisho_store::temporary_folder::private_folder;

#[derive(Debug, Args)]
pub(super) struct ChatCommand {
    /// The task, followed by what is piped in. Without it: a conversation on a terminal, or else all of standard input.
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
    /// Continue the last conversation on the state directory, with its profile and session.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    pub(super) identity: Identity,
}

/// Prefix of a script in place of a profile.
const REPLAY: &str = "replay:";

/// The state that the turns of a conversation share.
struct Chat {
    agents: Arc<AgentService>,
    agent: String,
    /// The profile as `--model` names it.
    model: String,
    profile: Arc<AgentProfile>,
    /// Whether the agent plans, also where its profile says nothing of it.
    plans: bool,
    caller: Arc<Caller>,
    session: Arc<Session>,
    /// The gateway whose tools are used, if it is not this process's.
    remote: Option<OverHttp>,
    screen: Screen,
    history: Vec<Message>,
    /// Where the conversation is kept for `--resume`.
    state_directory: PathBuf,
}

pub(super) fn run(common: &Common, command: &ChatCommand) -> Exit {
    let prompt = match input::task(command.prompt.as_deref()) {
        Ok(prompt) => prompt,
        Err(problem) => {
            present::problem(&problem);
            return Exit::WrongCommandLine;
        }
    };
    let (mut remote, mut folder) = (None, None);
    let (state_directory, config, lock) = match local_gateway::place(common, &command.identity) {
        Err(exit) => return exit,
        Ok(Place::Process(config, lock)) => (config.state_directory(), *config, lock),
        Ok(Place::Gateway(gateway)) => {
            let config = match local_gateway::configuration(common) {
                Ok(config) => config,
                Err(exit) => return exit,
            };
            let state_directory = config.state_directory();
            let ((config, lock, temporary), toolbox) = match (state_of_its_own(config), gateway.gateway()) {
                (Ok(state), Ok(gateway)) => (state, OverHttp::new(gateway)),
                (Err(exit), _) => return exit,
                (_, Err(unanswered)) => return unanswered.report(),
            };
            (remote, folder) = (Some(toolbox), Some(temporary));
            (state_directory, config, lock)
        }
    };
    let start = Start { prompt, remote, state_directory };
    let exit = converse(common, command, start, config, lock);
    drop(folder);
    exit
}

/// The beginning of a conversation.
struct Start {
    prompt: Option<String>,
    remote: Option<OverHttp>,
    state_directory: PathBuf,
}

fn converse(common: &Common, command: &ChatCommand, start: Start, config: Config, lock: StateLock) -> Exit {
    super::serve::with_gateway(config, lock, None, async |gateway| {
        let agents = match AgentService::new(&gateway) {
            Ok(agents) => agents,
            Err(problem) => {
                present::problem(&problem.to_string());
                return Exit::Misconfigured;
            }
        };
        let Start { prompt, remote, state_directory } = start;
        let mut chat = match Chat::begin(common.json, agents, command, remote, state_directory) {
            Ok(chat) => chat,
            Err(error) => return refused(&error),
        };
        // No provider has failed yet: the configuration lacks something.
        let gateway = chat.agents.gateway();
        if let Err(problem) = models::open(&chat.profile, gateway.outbound(), &gateway.pipeline.settlement.metrics) {
            present::problem(&format!("the profile {:?} cannot be used: {problem}", chat.agent));
            return Exit::Misconfigured;
        }
        let Some(prompt) = prompt else { return dialogue::hold(chat).await };
        chat.ask(prompt).await.map_or_else(|error| refused(&error), exit_of)
    })
}

/// The command line names something that does not exist, or the run was refused.
fn refused(error: &CallError) -> Exit {
    present::problem(&error.to_string());
    if error.code() == ErrorCode::InvalidRequest { Exit::WrongCommandLine } else { Exit::Refused }
}

/// With another gateway's tools, that gateway audits and charges the calls, and may use this machine's state directory:
/// the conversation gets a folder of its own, which is removed when it ends.
pub(super) fn state_of_its_own(mut config: Config) -> Result<(Config, StateLock, TempDir), Exit> {
    let created = private_folder().map_err(|error| error.to_string()).and_then(|folder| {
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

/// The start of a text, on one line.
fn folded(text: &str) -> String {
    const LINE: usize = 100;
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = beginning(&flat, LINE);
    if short.len() < flat.len() { format!("{short}…") } else { flat }
}

fn exit_of(reason: FinishReason) -> Exit {
    if reason == FinishReason::Stop { Exit::Done } else { Exit::Failed }
}

impl Chat {
    /// Errors: the profile, the session or the conversation to resume does not exist.
    fn begin(
        json: bool,
        agents: Arc<AgentService>,
        command: &ChatCommand,
        remote: Option<OverHttp>,
        state_directory: PathBuf,
    ) -> Result<Self, CallError> {
        let gateway = agents.gateway();
        let resumed = command.resume.then(|| KeptConversation::load(&state_directory)).transpose();
        let resumed = resumed.map_err(|problem| CallError::new(ErrorCode::InvalidRequest, problem))?;
        let (model, session, history) = match resumed {
            Some(kept) => (Some(kept.model.clone()), Some(kept.session.clone()), kept.messages()),
            None => (None, None, Vec::new()),
        };
        let config = gateway.configuration().current();
        let model = command.model.clone().or(model).unwrap_or_else(|| config.agent.default_profile.clone());
        let (agent, profile) = profile_of(&config, &model, command.plan)?;
        let caller = command.identity.caller().caller()?;
        let session = command.session.clone().or(session).unwrap_or_else(|| Uuid::new_v4().to_string());
        let session = gateway.pipeline.sessions.prepare(&caller, &session)?;
        let screen = Screen::new(json);
        let plans = command.plan;
        Ok(Self { agents, agent, model, profile, plans, caller, session, remote, screen, history, state_directory })
    }

    /// Runs the agent on one message, and shows its events. Ctrl-C stops it.
    /// Errors: the run cannot start.
    async fn ask(&mut self, prompt: String) -> Result<FinishReason, CallError> {
        let message = Message::User(prompt.into());
        let mut messages = self.history.clone();
        messages.push(message.clone());
        let scopes =
            BudgetScopes { request: Some(Uuid::now_v7().to_string()), is_run: true, ..BudgetScopes::default() };
        let toolbox = self.toolbox(&scopes, &messages);
        let (profile, caller) = (Arc::clone(&self.profile), Arc::clone(&self.caller));
        // The workspace of a gateway elsewhere is not here.
        let session = self.remote.is_none().then(|| Arc::clone(&self.session.id));
        let request =
            AgentRequest { scopes, session, ..AgentRequest::new(&self.agent, profile, caller, toolbox, messages) };
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
                    self.keep();
                }
            }
            self.screen.show(event);
        }
    }

    /// Keeps the conversation for `--resume`.
    fn keep(&self) {
        let kept = KeptConversation::new(&self.model, &self.session.id, &self.history);
        if let Err(problem) = kept.save(&self.state_directory) {
            self.screen.hint(&format!("this conversation cannot be resumed later: {problem}"));
        }
    }

    /// Goes on with another profile.
    /// Errors: there is no such profile.
    fn change_model(&mut self, name: &str) -> Result<(), CallError> {
        (self.agent, self.profile) = profile_of(&self.agents.gateway().configuration().current(), name, self.plans)?;
        name.clone_into(&mut self.model);
        Ok(())
    }

    /// A toolbox for one run, whose calls are one request. The messages are those with which it begins.
    fn toolbox(&self, scopes: &BudgetScopes, messages: &[Message]) -> Arc<dyn Toolbox> {
        match &self.remote {
            Some(remote) => Arc::new(remote.for_request(scopes.request.as_deref(), &self.session.id)),
            None => {
                let toolbox = InProcess {
                    scopes: scopes.clone(),
                    session: Some(Arc::clone(&self.session)),
                    ..InProcess::new(Arc::clone(self.agents.gateway()), Arc::clone(&self.caller))
                };
                toolbox.begin(&self.profile.prompt, messages);
                Arc::new(toolbox)
            }
        }
    }
}

/// The name of an agent and its profile, with a planner if `plans`.
/// Errors: there is no such profile; the error names the existing ones.
fn profile_of(config: &Config, name: &str, plans: bool) -> Result<(String, Arc<AgentProfile>), CallError> {
    let (agent, profile) = named_profile(config, name)?;
    if plans && profile.planner.is_none() {
        let planner = Some(PlannerConfig::default());
        return Ok((agent, Arc::new(AgentProfile { planner, ..AgentProfile::clone(&profile) })));
    }
    Ok((agent, profile))
}

pub(super) fn named_profile(config: &Config, name: &str) -> Result<(String, Arc<AgentProfile>), CallError> {
    if let Some(file) = name.strip_prefix(REPLAY) {
        if !Path::new(file).is_file() {
            let message =
                format!("the script {file:?} does not exist; name a file of turns, as in `{REPLAY}turns.yaml`");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        return Ok(("replay".to_owned(), Arc::new(AgentProfile::replay(file))));
    }
    let profile = service::profile(&config.agent, name).map_err(|error| {
        let message = format!("there is no profile {name:?}; {}", profiles(config));
        CallError::new(error.code(), message)
    })?;
    Ok((name.to_owned(), profile))
}

/// The profiles, for people.
fn profiles(config: &Config) -> String {
    let names: Vec<_> = config.agent.profiles.keys().map(String::as_str).collect();
    format!("the profiles are {}, and `{REPLAY}FILE` plays a script", names.join(", "))
}
