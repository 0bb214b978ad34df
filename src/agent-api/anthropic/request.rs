//! Parses requests of clients of Anthropic's Messages API into the gateway's own form.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::content::{Content, RequestMessage};
use super::defined_tools;
use crate::model_api::client_tools::{self, DescribedTool};
use crate::model_api::{ClientRun, check_range, check_results, refuse_options};
use sekisho_agent::message::AssistantTurn;
use sekisho_agent::toolbox::ToolDescription;
use sekisho_agent::{Message, ModelOptions, OutputFormat, ToolChoice};
use sekisho_config::{Effort, Thinking};
use sekisho_core::error::CallError;

/// `POST /v1/messages` and `POST /v1/messages/count_tokens`. What it asks of the answer is kept, or refused by name. Fields
/// that are not listed here (`metadata`, `service_tier`, `cache_control`, …) change no answer, and are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    /// The name of an agent's profile; by default that of the configuration.
    pub model: Option<String>,
    messages: Vec<RequestMessage>,
    system: Option<Content>,
    stream: Option<bool>,
    /// Of one turn with its thinking; at most the agent's own, which is the default.
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    /// Tools that the client runs itself.
    tools: Option<Vec<RequestTool>>,
    tool_choice: Option<RequestedToolChoice>,
    stop_sequences: Option<Vec<String>>,
    #[schema(minimum = 0, maximum = 1)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    thinking: Option<RequestedThinking>,
    output_config: Option<OutputConfig>,
    /// Refused.
    top_k: Option<u32>,
    /// Refused: the gateway offers its own tools.
    #[schema(value_type = Option<Vec<Object>>)]
    mcp_servers: Option<Vec<Value>>,
    /// Refused.
    #[schema(value_type = Option<Object>)]
    container: Option<Value>,
    /// A conversation that the gateway keeps for an hour: only the new messages are sent after its first request.
    thread: Option<RequestedThread>,
    /// Refused, but for edits of thoughts: the gateway compacts conversations itself.
    #[schema(value_type = Option<Object>)]
    context_management: Option<Value>,
    /// Refused: the agent's profile has its own.
    #[schema(value_type = Option<Vec<Object>>)]
    fallbacks: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = MessagesThread)]
pub(super) enum RequestedThread {
    /// Begins a conversation.
    Create,
    /// Goes on after the message of this id.
    Continue { previous_message_id: String },
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ClientTool)]
struct RequestTool {
    /// `custom`, or a tool that Anthropic defines and the client runs: `bash_…`, `text_editor_…` or `memory_…`.
    r#type: Option<String>,
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: Option<String>,
    description: Option<String>,
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MessagesToolChoice)]
struct RequestedToolChoice {
    r#type: ToolChoiceKind,
    /// Of the type `tool`.
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ToolChoiceKind {
    Auto,
    Any,
    Tool,
    None,
}

/// Whether the model thinks, and whether the answer shows it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum RequestedThinking {
    Enabled {
        /// Less than `max_tokens`.
        #[schema(minimum = 1024)]
        budget_tokens: u32,
    },
    /// As much as `output_config.effort` or else the profile says.
    Adaptive,
    /// Not at all, also where the profile says otherwise.
    Disabled,
}

#[derive(Debug, Deserialize, ToSchema)]
struct OutputConfig {
    /// How much the model thinks, where `thinking` is `adaptive`.
    effort: Option<RequestedEffort>,
    format: Option<RequestedFormat>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum RequestedEffort {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// The form of the answer, which the gateway checks: an answer in another form is asked for once more, then refused with
/// `invalid_output`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum RequestedFormat {
    JsonSchema {
        #[schema(value_type = Object)]
        schema: Value,
    },
}

/// The least that Anthropic's models take.
const MIN_THINKING: u32 = 1_024;

impl MessagesRequest {
    pub(super) fn streams(&self) -> bool {
        self.stream.unwrap_or_default()
    }

    /// Whether the client asks to see the model's thoughts: others do not expect such blocks.
    pub(super) fn shows_thinking(&self) -> bool {
        !matches!(self.thinking, None | Some(RequestedThinking::Disabled))
    }

    pub(super) fn thread(&self) -> Option<&RequestedThread> {
        self.thread.as_ref()
    }

    /// Errors: `invalid_request`, with the place.
    pub(super) fn into_run(self) -> Result<ClientRun, CallError> {
        self.into_run_after(Vec::new()).map(|(run, _)| run)
    }

    /// The run after the messages of a conversation, and how many of its messages are of the request.
    /// Errors: `invalid_request`, with the place.
    pub(super) fn into_run_after(self, earlier: Vec<Message>) -> Result<(ClientRun, usize), CallError> {
        let options = self.options()?;
        let client_tools = client_tools(self.tools.unwrap_or_default())?;
        let mut messages = Vec::with_capacity(self.messages.len() + earlier.len() + 1);
        if let Some(system) = self.system {
            let text = system.into_text().map_err(|problem| CallError::invalid(format!("`system`: {problem}")))?;
            messages.extend((!text.is_empty()).then_some(Message::System(text)));
        }
        messages.extend(earlier);
        let given = messages.len();
        for (index, message) in self.messages.into_iter().enumerate() {
            message
                .add_to(&mut messages)
                .map_err(|problem| CallError::invalid(format!("`messages[{index}]`: {problem}")))?;
        }
        check_results(&messages)?;
        // An answer with calls that wait for an approver is continued.
        let is_paused = |turn: &AssistantTurn| turn.paused_calls().next().is_some();
        // News of the system may come last.
        let may_follow = match messages.iter().rfind(|message| !matches!(message, Message::System(_))) {
            Some(Message::User(_) | Message::Tool(_)) => true,
            Some(Message::Assistant(turn)) => is_paused(turn),
            Some(Message::System(_)) | None => false,
        };
        if !may_follow {
            return Err(CallError::invalid(
                "the last of `messages` must be one of the user: an agent continues no answer",
            ));
        }
        let own = messages.len() - given;
        Ok((ClientRun { messages, client_tools, options }, own))
    }

    fn options(&self) -> Result<ModelOptions, CallError> {
        refuse_options(&[
            ("top_k", self.top_k.is_some()),
            ("mcp_servers", self.mcp_servers.as_ref().is_some_and(|servers| !servers.is_empty())),
            ("container", self.container.as_ref().is_some_and(|container| !container.is_null())),
            ("context_management", self.context_management.as_ref().is_some_and(edits_more_than_thoughts)),
            ("fallbacks", self.fallbacks.as_ref().is_some_and(|fallbacks| !fallbacks.is_empty())),
        ])?;
        check_range("temperature", self.temperature, &(0.0..=1.0))?;
        check_range("top_p", self.top_p, &(0.0..=1.0))?;
        let stop = self.stop_sequences.clone().unwrap_or_default();
        if stop.iter().any(String::is_empty) {
            return Err(CallError::invalid("`stop_sequences` has an empty text"));
        }
        let choice = self.tool_choice.as_ref();
        let is_single = choice.and_then(|choice| choice.disable_parallel_tool_use) == Some(true);
        let config = self.output_config.as_ref();
        let format = config.and_then(|config| config.format.as_ref()).map(RequestedFormat::read).transpose()?;
        Ok(ModelOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.answer_tokens()?,
            stop,
            tool_choice: choice.map_or(Ok(ToolChoice::Auto), RequestedToolChoice::read)?,
            parallel_tool_calls: is_single.then_some(false),
            thinking: match &self.thinking {
                Some(RequestedThinking::Enabled { budget_tokens }) => Some(Thinking::BudgetTokens(*budget_tokens)),
                Some(RequestedThinking::Adaptive) => config.and_then(|config| config.effort).map(Thinking::from),
                Some(RequestedThinking::Disabled) | None => None,
            },
            without_thinking: matches!(self.thinking, Some(RequestedThinking::Disabled)),
            output: format,
            ..ModelOptions::default()
        })
    }

    /// The tokens of an answer without its thinking.
    fn answer_tokens(&self) -> Result<Option<u32>, CallError> {
        let budget = match self.thinking {
            Some(RequestedThinking::Enabled { budget_tokens }) => budget_tokens,
            Some(RequestedThinking::Adaptive | RequestedThinking::Disabled) | None => 0,
        };
        if (1..MIN_THINKING).contains(&budget) {
            return Err(CallError::invalid(format!("`thinking.budget_tokens` must be at least {MIN_THINKING}")));
        }
        match self.max_tokens {
            Some(0) => Err(CallError::invalid("`max_tokens` is 0; an answer needs at least one")),
            Some(max) if max <= budget => {
                Err(CallError::invalid("`max_tokens` must be more than `thinking.budget_tokens`"))
            }
            max => Ok(max.map(|max| max - budget)),
        }
    }
}

/// Claude Code asks for the thoughts to be kept, which the gateway does by itself.
fn edits_more_than_thoughts(management: &Value) -> bool {
    let edits = management.get("edits").and_then(Value::as_array).into_iter().flatten();
    let kind = |edit: &Value| edit.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    edits.map(kind).any(|kind| !kind.starts_with("clear_thinking"))
}

fn client_tools(tools: Vec<RequestTool>) -> Result<Vec<ToolDescription>, CallError> {
    client_tools::read(tools.into_iter().map(RequestTool::described))
}

impl RequestTool {
    fn described(self) -> DescribedTool {
        match self.r#type.as_deref() {
            None | Some("custom") => {
                let name = self.name.ok_or("it has no `name`")?;
                Ok((name, self.description, self.input_schema))
            }
            Some(other) => {
                let (description, schema) =
                    defined_tools::find(other).ok_or_else(|| client_tools::not_of_the_client(other, "`custom`"))?;
                let name = self.name.ok_or("it has no `name`")?;
                Ok((name, Some(description.to_owned()), Some(schema)))
            }
        }
    }
}

impl RequestedToolChoice {
    fn read(&self) -> Result<ToolChoice, CallError> {
        match (self.r#type, &self.name) {
            (ToolChoiceKind::Auto, _) => Ok(ToolChoice::Auto),
            (ToolChoiceKind::Any, _) => Ok(ToolChoice::Required),
            (ToolChoiceKind::None, _) => Ok(ToolChoice::None),
            (ToolChoiceKind::Tool, Some(name)) => Ok(ToolChoice::Tool(name.clone())),
            (ToolChoiceKind::Tool, None) => Err(CallError::invalid("`tool_choice` of the type `tool` needs a `name`")),
        }
    }
}

impl RequestedFormat {
    fn read(&self) -> Result<OutputFormat, CallError> {
        let Self::JsonSchema { schema } = self;
        OutputFormat::of_schema("answer".to_owned(), schema.clone(), true)
            .map_err(|error| CallError::invalid(format!("`output_config.format.schema`: {error}")))
    }
}

impl From<RequestedEffort> for Thinking {
    fn from(effort: RequestedEffort) -> Self {
        Self::Effort(match effort {
            RequestedEffort::Low => Effort::Low,
            RequestedEffort::Medium => Effort::Medium,
            RequestedEffort::High => Effort::High,
            RequestedEffort::Xhigh => Effort::Xhigh,
            RequestedEffort::Max => Effort::Max,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_core::error::ErrorCode;

    fn read(body: Value) -> Result<ClientRun, CallError> {
        serde_json::from_value::<MessagesRequest>(body).unwrap().into_run()
    }

    #[test]
    fn options_of_the_answer_are_read() {
        let run = read(json!({
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3_000, "temperature": 0.5, "top_p": 0.9,
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "stop_sequences": ["END"], "thinking": {"type": "enabled", "budget_tokens": 2_000},
            "tool_choice": {"type": "tool", "name": "click", "disable_parallel_tool_use": true},
            "tools": [{"name": "click", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "metadata": {"user_id": "ann"},
        }))
        .unwrap();
        let expected = ModelOptions {
            temperature: Some(0.5),
            top_p: Some(0.9),
            max_tokens: Some(1_000),
            stop: vec!["END".into()],
            tool_choice: ToolChoice::Tool("click".into()),
            parallel_tool_calls: Some(false),
            thinking: Some(Thinking::BudgetTokens(2_000)),
            output: Some(OutputFormat::of_schema("answer".into(), json!({"type": "object"}), true).unwrap()),
            ..ModelOptions::default()
        };
        assert_eq!(run.options, expected);
        assert_eq!(run.messages, [Message::System("Be brief.\n\nBe kind.".into()), Message::User("hi".into())]);
        assert_eq!(run.client_tools[0].name, "click");
        for (choice, expected) in
            [("auto", ToolChoice::Auto), ("any", ToolChoice::Required), ("none", ToolChoice::None)]
        {
            let messages = json!([{"role": "user", "content": "hi"}]);
            let run = read(json!({"messages": messages, "tool_choice": {"type": choice}})).unwrap();
            assert_eq!(run.options.tool_choice, expected);
        }
    }

    #[test]
    fn thinking_is_as_much_as_asked_for() {
        let asked = |thinking: Value, effort: Value| {
            let body = json!({"messages": [{"role": "user", "content": "hi"}], "thinking": thinking,
                "output_config": {"effort": effort}});
            let request = serde_json::from_value::<MessagesRequest>(body).unwrap();
            (request.shows_thinking(), request.options().unwrap().thinking)
        };
        let most = Some(Thinking::Effort(Effort::Max));
        assert_eq!(asked(json!({"type": "adaptive"}), json!("max")), (true, most));
        assert_eq!(asked(json!({"type": "adaptive", "display": "omitted"}), Value::Null), (true, None));
        assert_eq!(asked(json!({"type": "disabled"}), json!("low")), (false, None));
        assert_eq!(asked(Value::Null, json!("low")), (false, None));
    }

    #[test]
    fn what_no_agent_can_keep_is_refused_by_name() {
        let last = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "It is"}]);
        let thinking = |budget: u32| json!({"type": "enabled", "budget_tokens": budget});
        for (option, value, named) in [
            ("top_k", json!(5), "`top_k`"),
            ("mcp_servers", json!([{"url": "https://example.com"}]), "`mcp_servers`"),
            ("container", json!("c"), "`container`"),
            ("context_management", json!({"edits": [{"type": "clear_tool_uses_20250919"}]}), "`context_management`"),
            ("fallbacks", json!([{"model": "claude-haiku-4-5"}]), "`fallbacks`"),
            ("temperature", json!(2), "`temperature`"),
            ("top_p", json!(-1), "`top_p`"),
            ("max_tokens", json!(0), "`max_tokens`"),
            ("thinking", thinking(100), "1024"),
            ("thinking", thinking(4_000), "`thinking.budget_tokens`"),
            ("stop_sequences", json!([""]), "`stop_sequences`"),
            ("tools", json!([{"type": "web_search_20250305", "name": "web_search"}]), "\"web_search_20250305\""),
            ("tools", json!([{"description": "x"}]), "`name`"),
            ("tool_choice", json!({"type": "tool"}), "`name`"),
            (
                "output_config",
                json!({"format": {"type": "json_schema", "schema": {"type": "strin"}}}),
                "`output_config",
            ),
            ("messages", last, "an agent continues no answer"),
            ("messages", json!([]), "`messages`"),
            ("system", json!([{"type": "image"}]), "`system`"),
        ] {
            let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2_000});
            body[option] = value;
            if named == "`max_tokens`" {
                body["max_tokens"] = 0.into();
            }
            let error = read(body).unwrap_err();
            let is_named = error.code() == ErrorCode::InvalidRequest && error.message().contains(named);
            assert!(is_named, "{option}: {error}");
        }
    }

    #[test]
    fn a_thread_goes_on_after_its_messages_and_news_of_the_system_may_come_last() {
        let body = json!({"messages": [{"role": "user", "content": "and?"}, {"role": "system", "content": "It is Tuesday."}],
            "system": "be brief", "thread": {"type": "continue", "previous_message_id": "msg_1"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}});
        let request = serde_json::from_value::<MessagesRequest>(body).unwrap();
        let thread = request.thread().cloned();
        assert!(
            matches!(thread, Some(RequestedThread::Continue { previous_message_id }) if previous_message_id == "msg_1")
        );
        let earlier = vec![Message::User("hi".into()), Message::Assistant(AssistantTurn::new("Hello.", []))];
        let (run, own) = request.into_run_after(earlier.clone()).unwrap();
        let news = [Message::User("and?".into()), Message::System("It is Tuesday.".into())];
        let expected = [vec![Message::System("be brief".into())], earlier, news.to_vec()].concat();
        assert_eq!((run.messages, own), (expected, 2));
        let only = json!({"messages": [{"role": "system", "content": "It is Tuesday."}]});
        assert!(read(only).unwrap_err().message().contains("`messages`"));
    }

    #[test]
    fn hostile_bytes_as_the_body() {
        let seeds: [&[u8]; 2] = [
            br#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 9}"#,
            br#"{"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]}"#,
        ];
        sekisho_core::fuzz::feed(&seeds, |bytes| {
            let request = sekisho_core::json::parse_as::<MessagesRequest>(bytes);
            let _ = request.map(MessagesRequest::into_run);
        });
    }
}
