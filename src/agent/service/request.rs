//! The input of a run.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::own_requests::meter_of;
use crate::meter::Meter;
use crate::session_prefix::SessionPrefix;
use crate::toolbox::{Filtered, ToolboxLayer};
use crate::usage::UsageByAgent;
use crate::{Message, ModelOptions, ToolDescription, Toolbox, TurnObserver};
use sekisho_config::{AgentProfile, ProfilePrompt, ToolFilter};
use sekisho_core::call::{BudgetScopes, Caller, TraceParent};
use sekisho_gateway::Gateway;

/// How the prompts of Open WebUI's own tasks begin: titles, tags and follow-ups. A message of the user with documents begins so, too.
const CLIENT_TASK: &str = "### Task:";

/// Before the messages of the thread, which only its own tasks have.
const CHAT_HISTORY: &str = "<chat_history>";

/// Whether a run pauses for calls that a person must approve, and who stores its messages until it goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pauses {
    /// Its calls wait for the decision, for a time.
    #[default]
    Never,
    /// The service, for a client that sends its messages again.
    ForClient,
    /// The conversation of which it is a run.
    InConversation,
}

/// The input of a run, its caller, and the session, budgets and trace of its calls.
pub struct AgentRequest {
    /// The profile's name, for records of the run.
    pub agent: Arc<str>,
    pub profile: Arc<AgentProfile>,
    pub caller: Arc<Caller>,
    pub toolbox: Arc<dyn Toolbox>,
    /// The conversation so far.
    pub messages: Vec<Message>,
    pub client_tools: Vec<ToolDescription>,
    pub options: ModelOptions,
    /// The conversation that the run belongs to, for its trace.
    pub conversation: Option<Arc<str>>,
    /// The id of the run, where it has one.
    pub run: Option<Arc<str>>,
    /// The session with the workspace of the run.
    pub session: Option<Arc<str>>,
    /// The thread whose summary is sent to the model and updated after the run (A42).
    pub thread: Option<Arc<str>>,
    /// The budget scopes that pay for the model.
    pub scopes: BudgetScopes,
    pub trace: Option<TraceParent>,
    pub abort: CancellationToken,
    /// Sees every tool call of the run and of its sub-agents.
    pub layer: Option<ToolboxLayer>,
    /// Where the usage of the run and of its sub-agents is added.
    pub usage: UsageByAgent,
    /// 0; or for a sub-agent, one more than the depth of the agent that starts it.
    pub depth: u32,
    /// Gets each turn with tool calls before these are sent.
    pub observer: Option<TurnObserver>,
    pub pauses: Pauses,
    /// The beginning of its requests, where it is a run of a stored session.
    pub prefix: Option<Arc<SessionPrefix>>,
}

impl AgentRequest {
    pub fn new(
        agent: &str,
        profile: Arc<AgentProfile>,
        caller: Arc<Caller>,
        toolbox: Arc<dyn Toolbox>,
        messages: Vec<Message>,
    ) -> Self {
        Self {
            agent: agent.into(),
            profile,
            caller,
            toolbox,
            messages,
            client_tools: Vec::new(),
            options: ModelOptions::default(),
            conversation: None,
            run: None,
            session: None,
            thread: None,
            scopes: BudgetScopes::default(),
            trace: None,
            abort: CancellationToken::new(),
            layer: None,
            usage: UsageByAgent::default(),
            depth: 0,
            observer: None,
            pauses: Pauses::default(),
            prefix: None,
        }
    }

    /// Of a task that Open WebUI gives by itself, a plain completion: its messages without prompt, summary, tools and plan.
    pub(super) fn without_agent_for_task(self) -> Self {
        if !is_client_task(self.thread.as_deref(), &self.messages) {
            return self;
        }
        let profile = AgentProfile {
            prompt: ProfilePrompt { replace: Some(String::new()), append: None },
            tools: ToolFilter { include: Vec::new(), exclude: vec!["*".into()] },
            code_mode: false,
            subagents: Vec::new(),
            planner: None,
            ..AgentProfile::clone(&self.profile)
        };
        Self { profile: Arc::new(profile), thread: None, ..self }
    }

    /// Leaves out the tools that the profile excludes.
    pub(super) fn limit_tools(&mut self) {
        if self.profile.tools != ToolFilter::default() {
            let (filter, toolbox) = (self.profile.tools.clone(), Arc::clone(&self.toolbox));
            self.toolbox = Arc::new(Filtered { filter, toolbox });
        }
    }

    pub(super) fn meter(&self, gateway: &Gateway) -> Meter {
        meter_of(gateway, (&self.caller, &self.scopes)).of_agent(&self.agent, &self.usage)
    }
}

impl fmt::Debug for AgentRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AgentRequest")
            .field("caller", &self.caller)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// A message of the user begins a thread, or follows an answer in it; a task is sent with the thread's id and without its messages.
fn is_client_task(thread: Option<&str>, messages: &[Message]) -> bool {
    let Some((Message::User(last), before)) = messages.split_last() else { return false };
    let text = last.text();
    thread.is_some()
        && before.iter().all(|message| message.as_system().is_some())
        && text.starts_with(CLIENT_TASK)
        && text.contains(CHAT_HISTORY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AssistantTurn;

    #[test]
    fn a_task_of_open_webui_is_told_from_a_message_of_its_user() {
        let system = || Message::System("be brief".into());
        let user = |text: &str| Message::User(text.into());
        let task =
            || user("### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: Hi.\n</chat_history>");
        let with_documents =
            "### Task:\nRespond to the user query using the provided context.\n<context>a</context>\nHi.";
        let answered = || Message::Assistant(AssistantTurn::new("Hi.", []));
        for (thread, messages, expected) in [
            (Some("t"), vec![task()], true),
            (Some("t"), vec![system(), task()], true),
            (None, vec![task()], false),
            (Some("t"), vec![user("A ### Task: what is it?")], false),
            (Some("t"), vec![user(with_documents)], false),
            (Some("t"), vec![user("Hello."), answered(), task()], false),
            (Some("t"), Vec::new(), false),
        ] {
            assert_eq!(is_client_task(thread, &messages), expected, "{thread:?} {messages:?}");
        }
    }
}
