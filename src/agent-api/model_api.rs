//! The common parts of the APIs that look like a model's: OpenAI's Chat Completions and Responses, Anthropic's
//! Messages.

pub(super) mod client_tools;
pub(super) mod content;
pub(super) mod encoder;
mod files;
pub(super) mod output;
pub(super) mod should_retry;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::requested_run;
use sekisho_agent::catalog::ResolvedModel;
use sekisho_agent::models::reads_documents;
use sekisho_agent::toolbox::ToolDescription;
use sekisho_agent::{AgentRequest, AgentService, Event, Message, ModelOptions, Pauses};
use sekisho_api::RequestMeta;
use sekisho_config::AgentProfile;
use sekisho_core::call::Caller;
use sekisho_core::error::CallError;
use sekisho_core::session::Session;
use sekisho_gateway::Gateway;

/// A request of any of these APIs, in the gateway's own form.
#[derive(Debug)]
pub(super) struct ClientRun {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Tools that the client runs itself.
    pub client_tools: Vec<ToolDescription>,
    pub options: ModelOptions,
}

/// The agent that a request names.
#[derive(Debug)]
pub(super) struct NamedAgent {
    pub name: String,
    pub profile: Arc<AgentProfile>,
}

impl NamedAgent {
    /// The profile or model of that name; without one the tenant's default.
    /// Errors: `invalid_request`, with the names of the caller's tenant.
    pub(super) async fn find(agents: &AgentService, caller: &Caller, name: Option<&str>) -> Result<Self, CallError> {
        let ResolvedModel { name, profile } = agents.catalog().model(&caller.tenant, name).await?;
        Ok(Self { name: name.to_string(), profile })
    }
}

impl ClientRun {
    /// Starts the run. `session` has its files and settings.
    /// Errors: as [`AgentService::begin`], and the errors of writing the user's files to the workspace.
    pub(super) async fn begin(
        mut self,
        agent: &NamedAgent,
        meta: &RequestMeta,
        agents: &Arc<AgentService>,
        session: Option<Arc<Session>>,
    ) -> Result<BoxStream<'static, Event>, CallError> {
        self.place_files(agent, meta, agents.gateway(), session.as_ref()).await?;
        let request = self.into_agent_request(agent, meta, agents.gateway(), session);
        Ok(agents.begin(request).await?.boxed())
    }

    /// Writes the user's files to the workspace, unless they are there. [`ClientRun::begin`] does so too.
    /// Errors: why one cannot be written.
    pub(super) async fn place_files(
        &mut self,
        agent: &NamedAgent,
        meta: &RequestMeta,
        gateway: &Arc<Gateway>,
        session: Option<&Arc<Session>>,
    ) -> Result<(), CallError> {
        files::place(&mut self.messages, meta, gateway, session, reads_documents(&agent.profile)).await
    }

    /// The same with files that the model is told of, and nobody reads.
    pub(super) fn without_file_contents(mut self) -> Self {
        files::forget_contents(&mut self.messages);
        self
    }

    /// The request to the agent service, without the files of the user in the workspace.
    pub(super) fn into_agent_request(
        self,
        agent: &NamedAgent,
        meta: &RequestMeta,
        gateway: &Arc<Gateway>,
        session: Option<Arc<Session>>,
    ) -> AgentRequest {
        let Self { messages, client_tools, options } = self;
        let session_id = session.as_ref().map(|session| Arc::clone(&session.id));
        let toolbox = Arc::new(requested_run::toolbox(meta, gateway, session));
        AgentRequest {
            client_tools,
            options,
            session: session_id,
            pauses: Pauses::ForClient,
            ..requested_run::agent_request(meta, &agent.name, Arc::clone(&agent.profile), toolbox, messages)
        }
    }
}

/// The session of the client's thread, which has its own files and settings.
pub(super) fn session_of_thread(meta: &RequestMeta, gateway: &Gateway) -> Option<Arc<Session>> {
    let sessions = &gateway.pipeline.sessions;
    meta.thread.as_deref().and_then(|thread| sessions.prepare(&meta.caller, thread).ok())
}

/// Errors: `invalid_request` for a value that is not in the range.
pub(super) fn check_range(
    name: &str,
    value: Option<f64>,
    range: &std::ops::RangeInclusive<f64>,
) -> Result<(), CallError> {
    match value.is_some_and(|value| !range.contains(&value)) {
        true => Err(CallError::invalid(format!("`{name}` is not between {} and {}", range.start(), range.end()))),
        false => Ok(()),
    }
}

/// Errors: `invalid_request` with the first option that is asked for.
pub(super) fn refuse_options(options: &[(&str, bool)]) -> Result<(), CallError> {
    match options.iter().find(|(_, is_asked)| *is_asked) {
        Some((name, _)) => Err(CallError::invalid(format!(
            "`{name}` cannot be kept: an agent's answer has nothing like it; leave it out"
        ))),
        None => Ok(()),
    }
}

/// Errors: `invalid_request` unless each call of the conversation has its result: models refuse others. Calls that wait
/// for an approver get their results from the run.
pub(super) fn check_results(messages: &[Message]) -> Result<(), CallError> {
    for (index, message) in messages.iter().enumerate() {
        let Message::Assistant(turn) = message else { continue };
        let after = messages.iter().skip(index + 1).take_while(|message| matches!(message, Message::Tool(_)));
        let answered: Vec<_> = after
            .filter_map(|message| match message {
                Message::Tool(answer) => Some(answer.call_id.as_str()),
                Message::System(_) | Message::User(_) | Message::Assistant(_) => None,
            })
            .collect();
        let mut of_client = turn.calls().filter(|call| call.approval.is_none());
        if let Some(call) = of_client.find(|call| !answered.contains(&call.id.as_str())) {
            let shown: String = call.id.chars().take(100).collect();
            return Err(CallError::invalid(format!("the call {shown:?} has no result; send it after the call")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_agent::message::{AssistantTurn, RequestedCall, ToolMessage};

    #[test]
    fn every_call_needs_its_result_right_after_it() {
        let call = |id: &str| RequestedCall::new(id.into(), "click".into(), "{}".into());
        let turn = |ids: &[&str]| Message::Assistant(AssistantTurn::new("", ids.iter().map(|id| call(id))));
        let result = |id: &str| {
            let (call_id, tool, text) = (id.into(), "click".into(), "done".into());
            Message::Tool(ToolMessage { call_id, tool, text, ..ToolMessage::default() })
        };
        let user = || Message::User("go on".into());
        for (messages, missing) in [
            (vec![turn(&[]), user()], None),
            (vec![turn(&["a", "b"]), result("b"), result("a"), user()], None),
            (vec![turn(&["a", "b"]), result("a")], Some("\"b\"")),
            (vec![turn(&["a"]), user(), result("a")], Some("\"a\"")),
            (vec![turn(&["a"])], Some("\"a\"")),
        ] {
            let error = check_results(&messages).err().map(|error| error.message().to_owned());
            assert_eq!(error.is_some(), missing.is_some(), "{messages:?}: {error:?}");
            assert!(error.is_none_or(|error| error.contains(missing.unwrap_or_default())), "{messages:?}");
        }
        let paused = RequestedCall::paused("a".into(), "pay".into(), "approval");
        check_results(&[Message::Assistant(AssistantTurn::new("", [paused]))]).unwrap();
    }

    #[test]
    fn a_value_outside_its_range_is_named() {
        assert!(
            check_range("top_p", None, &(0.0..=1.0)).is_ok() && check_range("top_p", Some(1.0), &(0.0..=1.0)).is_ok()
        );
        let error = check_range("top_p", Some(1.5), &(0.0..=1.0)).unwrap_err();
        assert_eq!(error.message(), "`top_p` is not between 0 and 1");
        let error = refuse_options(&[("store", false), ("background", true)]).unwrap_err();
        assert!(error.message().starts_with("`background` cannot be kept"), "{error}");
    }
}
