//! Parses requests of clients of OpenAI's Responses API into the gateway's own form.

mod text;
mod tools;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub(super) use self::tools::name_in;

use self::text::{TextFormat, TextOptions};
use self::tools::{NAMESPACE, RequestTool, RequestedToolChoice, SEPARATOR};
use super::input::{Input, InputReader};
use super::kept::{Conversation, KeptResponses};
use crate::model_api::{ClientRun, check_range, check_results, client_tools, refuse_options};
use crate::openai::terms::{ReasoningEffort, ToolChoiceMode};
use sekisho_agent::message::UserPart;
use sekisho_agent::toolbox::ToolDescription;
use sekisho_agent::{Message, ModelOptions, ToolChoice};
use sekisho_core::caller::Caller;
use sekisho_core::error::CallError;

/// `POST /v1/responses`. What it asks of the answer is kept, or refused by name. Fields that are not listed here (`user`,
/// `service_tier`, `prompt_cache_key`, …) change no answer, and are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponseRequest {
    /// The name of an agent's profile; by default that of the configuration.
    pub model: Option<String>,
    input: Option<Input>,
    stream: Option<bool>,
    /// Answers at once with `status: queued`; `GET /v1/responses/{id}` has the response when it has ended. Its `input` is a text, or
    /// messages of the user with texts; it has no `tools`, and continues only responses in the background. With `stream` its events come
    /// at once, and it goes on without its client all the same.
    background: Option<bool>,
    #[serde(flatten)]
    pub asked: Asked,
    #[serde(flatten)]
    impossible: Impossible,
}

/// What the response repeats of its request.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
pub(crate) struct Asked {
    /// The first system prompt. A response that continues this one has its own.
    pub instructions: Option<String>,
    /// The response that this one continues: `input` is added to its conversation.
    pub previous_response_id: Option<String>,
    /// Whether another response can continue this one, for an hour; by default it can. It is kept for that alone.
    pub store: Option<bool>,
    /// Functions that the client runs itself.
    pub tools: Option<Vec<RequestTool>>,
    tool_choice: Option<RequestedToolChoice>,
    parallel_tool_calls: Option<bool>,
    text: Option<TextOptions>,
    reasoning: Option<ReasoningOptions>,
    /// Of one turn, and at most the agent's own.
    #[schema(minimum = 1)]
    max_output_tokens: Option<u32>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// Repeated in the response.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// What no agent can keep.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct Impossible {
    /// Refused: `previous_response_id` continues a conversation.
    #[schema(value_type = Option<Object>)]
    conversation: Option<Value>,
    /// Refused: prompts are files of the operator.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
    /// Refused.
    max_tool_calls: Option<u32>,
    /// Refused unless 0.
    top_logprobs: Option<u32>,
    /// `reasoning.encrypted_content` changes nothing; others are refused.
    include: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
struct ReasoningOptions {
    effort: Option<ReasoningEffort>,
    /// A summary is part of the response wherever the model shows its reasoning.
    summary: Option<String>,
}

const NO_INPUT: &str = "`input` is missing; send a text, or a list of items";

/// A request that has been read.
#[derive(Debug)]
pub(super) struct ReadRequest {
    pub run: ClientRun,
    /// The conversation that the request continues.
    pub continued: Option<Conversation>,
    /// How many messages at the end of the run's are of the request's own input.
    pub own_messages: usize,
}

impl ResponseRequest {
    pub(super) fn streams(&self) -> bool {
        self.stream.unwrap_or_default()
    }

    pub(super) fn is_background(&self) -> bool {
        self.background.unwrap_or_default()
    }

    /// The user's text, and the options that a run in the background keeps.
    /// Errors: `invalid_request` with the name of an option that it does not keep.
    pub(super) fn read_in_background(self) -> Result<(String, Asked), CallError> {
        self.impossible.refuse()?;
        self.asked.options()?;
        let has_tools = self.asked.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let other = [("store: false", !self.asked.is_kept()), ("tools", has_tools)];
        if let Some((name, _)) = other.iter().find(|(_, is_asked)| *is_asked) {
            let message =
                format!("`{name}` cannot be kept with `background`, whose client is gone; leave one of them out");
            return Err(CallError::invalid(message));
        }
        let input = self.input.ok_or_else(|| CallError::invalid(NO_INPUT))?;
        let messages = InputReader::new(Vec::new(), |_| None).read(input)?;
        let texts: Option<Vec<_>> = messages.iter().map(text_of).collect();
        let text = texts.unwrap_or_default().join("\n\n");
        if text.trim().is_empty() {
            let message = "`input` of a response with `background` must be a text, or messages of the user with texts; earlier \
                           messages are those of `previous_response_id`";
            return Err(CallError::invalid(message));
        }
        Ok((text, self.asked))
    }

    /// Errors: `invalid_request` with the place, `unknown_session` for a response that cannot be continued.
    pub(super) fn read(self, kept: &KeptResponses, caller: &Caller) -> Result<ReadRequest, CallError> {
        self.impossible.refuse()?;
        let (client_tools, options) = (self.asked.client_tools()?, self.asked.options()?);
        let previous = self.asked.previous_response_id.as_deref();
        let continued = previous.map(|id| kept.find(caller, id)).transpose()?;
        let earlier = continued.as_ref().map(Conversation::messages).unwrap_or_default();
        let instructions = self.asked.instructions.filter(|text| !text.is_empty()).map(Message::System);
        let earlier: Vec<_> = instructions.into_iter().chain(earlier).collect();
        let given = earlier.len();
        let input = self.input.ok_or_else(|| CallError::invalid(NO_INPUT))?;
        let messages = InputReader::new(earlier, |id| kept.item(caller, id)).read(input)?;
        check_results(&messages)?;
        if !messages.iter().any(|message| matches!(message, Message::User(_))) {
            return Err(CallError::invalid(
                "`input` has no message with the role `user`; add one that describes the task",
            ));
        }
        let own_messages = messages.len() - given;
        Ok(ReadRequest { run: ClientRun { messages, client_tools, options }, continued, own_messages })
    }
}

/// The text of a message of the user without images and files.
fn text_of(message: &Message) -> Option<String> {
    let Message::User(message) = message else { return None };
    message.parts.iter().all(|part| matches!(part, UserPart::Text(_))).then(|| message.text())
}

impl Asked {
    /// As a response shows it: with the values that hold where the request has none.
    pub(super) fn with_defaults(self) -> Self {
        let text = TextOptions { format: Some(TextFormat::Text), verbosity: None };
        Self {
            store: Some(self.is_kept()),
            tools: Some(self.tools.unwrap_or_default()),
            tool_choice: Some(self.tool_choice.unwrap_or(RequestedToolChoice::Mode(ToolChoiceMode::Auto))),
            parallel_tool_calls: Some(self.parallel_tool_calls.unwrap_or(true)),
            text: Some(self.text.unwrap_or(text)),
            metadata: Some(self.metadata.unwrap_or_default()),
            ..self
        }
    }

    /// Whether another response may continue this one.
    pub(super) fn is_kept(&self) -> bool {
        self.store.unwrap_or(true)
    }

    fn client_tools(&self) -> Result<Vec<ToolDescription>, CallError> {
        let tools = self.tools.iter().flatten().flat_map(RequestTool::described);
        client_tools::read(tools.collect::<Vec<_>>().into_iter())
    }

    /// The namespace and the name of a function, by the name that the model has for it.
    pub(super) fn function_of<'a>(&'a self, name: &'a str) -> (Option<&'a str>, &'a str) {
        let mut namespaces = self.tools.iter().flatten().filter(|tool| tool.r#type == NAMESPACE);
        let found = namespaces.find_map(|tool| {
            let namespace = tool.name.as_deref()?;
            let function = name.strip_prefix(namespace)?.strip_prefix(SEPARATOR)?;
            let is_its = tool.tools.iter().any(|tool| tool.name.as_deref() == Some(function));
            is_its.then_some((Some(namespace), function))
        });
        found.unwrap_or((None, name))
    }

    /// Errors: `invalid_request` with the name of an option that no agent keeps.
    pub(crate) fn options(&self) -> Result<ModelOptions, CallError> {
        check_range("temperature", self.temperature, &(0.0..=2.0))?;
        check_range("top_p", self.top_p, &(0.0..=1.0))?;
        if self.max_output_tokens == Some(0) {
            return Err(CallError::invalid("`max_output_tokens` is 0; an answer needs at least one"));
        }
        let verbosity = self.text.as_ref().and_then(|text| text.verbosity.as_deref());
        refuse_options(&[("text.verbosity", verbosity.is_some_and(|verbosity| verbosity != "medium"))])?;
        let format = self.text.as_ref().and_then(|text| text.format.clone());
        let effort = self.reasoning.as_ref().and_then(|asked| asked.effort);
        Ok(ModelOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.max_output_tokens,
            tool_choice: self.tool_choice.as_ref().map_or(Ok(ToolChoice::Auto), RequestedToolChoice::read)?,
            parallel_tool_calls: self.parallel_tool_calls,
            thinking: effort.and_then(ReasoningEffort::thinking),
            without_thinking: effort.is_some_and(ReasoningEffort::is_none),
            output: format.map(TextFormat::read).transpose()?.flatten(),
            ..ModelOptions::default()
        })
    }
}

impl Impossible {
    fn refuse(&self) -> Result<(), CallError> {
        let is_other = |name: &String| name != "reasoning.encrypted_content";
        let included = self.include.iter().flatten().find(|name| is_other(name));
        let included = included.map(|name| format!("include: {}", name.chars().take(60).collect::<String>()));
        refuse_options(&[
            ("conversation", self.conversation.as_ref().is_some_and(|value| !value.is_null())),
            ("prompt", self.prompt.as_ref().is_some_and(|value| !value.is_null())),
            ("max_tool_calls", self.max_tool_calls.is_some()),
            ("top_logprobs", self.top_logprobs.is_some_and(|count| count > 0)),
            (included.as_deref().unwrap_or_default(), included.is_some()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_agent::OutputFormat;
    use sekisho_config::{Effort, Thinking};
    use sekisho_core::error::ErrorCode;

    fn read(body: Value) -> Result<ReadRequest, CallError> {
        let request = serde_json::from_value::<ResponseRequest>(body).unwrap();
        request.read(&KeptResponses::default(), &Caller::anonymous())
    }

    #[test]
    fn options_of_the_answer_are_read() {
        let ReadRequest { run, own_messages, .. } = read(json!({
            "input": "hi", "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 20,
            "parallel_tool_calls": false, "reasoning": {"effort": "low", "summary": "auto"}, "user": "ann",
            "tool_choice": {"type": "function", "name": "click"}, "include": ["reasoning.encrypted_content"],
            "tools": [{"type": "function", "name": "click", "parameters": {"type": "object"}, "strict": true}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
        }))
        .unwrap();
        let expected = ModelOptions {
            temperature: Some(0.5),
            top_p: Some(0.9),
            max_tokens: Some(20),
            tool_choice: ToolChoice::Tool("click".into()),
            parallel_tool_calls: Some(false),
            thinking: Some(Thinking::Effort(Effort::Low)),
            output: Some(OutputFormat::of_schema("n".into(), json!({"type": "object"}), true).unwrap()),
            ..ModelOptions::default()
        };
        assert_eq!(run.options, expected);
        assert_eq!(run.messages, [Message::System("Be brief.".into()), Message::User("hi".into())]);
        assert_eq!((run.client_tools[0].name.as_str(), own_messages), ("click", 1));
    }

    #[test]
    fn functions_in_a_namespace_are_offered_under_both_names() {
        let function = |name: &str| json!({"type": "function", "name": name});
        let tools = json!([function("click"), {"type": "namespace", "name": "agents", "tools": [function("spawn")]}]);
        let input = json!([
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "a", "namespace": "agents", "name": "spawn", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "begun"},
        ]);
        let ReadRequest { run, .. } = read(json!({"input": input, "tools": tools})).unwrap();
        let names: Vec<_> = run.client_tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["click", "agents__spawn"]);
        let Message::Tool(result) = &run.messages[2] else { panic!("{:?}", run.messages) };
        assert_eq!(result.tool, "agents__spawn");
        let asked: Asked = serde_json::from_value(json!({"tools": tools})).unwrap();
        for (name, expected) in [
            ("agents__spawn", (Some("agents"), "spawn")),
            ("agents__other", (None, "agents__other")),
            ("click", (None, "click")),
        ] {
            assert_eq!(asked.function_of(name), expected);
        }
        let nested = json!([{"type": "namespace", "name": "agents", "tools": [{"type": "web_search"}]}]);
        assert!(read(json!({"input": "hi", "tools": nested})).unwrap_err().message().contains("web_search"));
    }

    #[test]
    fn what_no_agent_can_keep_is_refused_by_name() {
        let schema = json!({"format": {"type": "json_schema", "name": "n", "schema": {"type": "strin"}}});
        for (option, value, named) in [
            ("conversation", json!("conv_1"), "`conversation`"),
            ("prompt", json!({"id": "p"}), "`prompt`"),
            ("max_tool_calls", json!(1), "`max_tool_calls`"),
            ("top_logprobs", json!(2), "`top_logprobs`"),
            ("include", json!(["message.output_text.logprobs"]), "message.output_text.logprobs"),
            ("tools", json!([{"type": "web_search"}]), "\"web_search\""),
            ("tools", json!([{"type": "function"}]), "`name`"),
            ("tool_choice", json!({"type": "file_search"}), "\"file_search\""),
            ("text", json!({"verbosity": "low"}), "`text.verbosity`"),
            ("text", schema, "`text.format.schema`"),
            ("temperature", json!(3), "`temperature`"),
            ("top_p", json!(-1), "`top_p`"),
            ("max_output_tokens", json!(0), "`max_output_tokens`"),
            ("input", Value::Null, "`input`"),
            ("input", json!([{"role": "system", "content": "hi"}]), "`user`"),
        ] {
            let mut body = json!({"input": "hi"});
            body[option] = value;
            let error = read(body).unwrap_err();
            let is_named = error.code() == ErrorCode::InvalidRequest && error.message().contains(named);
            assert!(is_named, "{option}: {error}");
        }
        for (option, value, named) in [
            ("store", json!(false), "`store: false`"),
            ("tools", json!([{"type": "function", "name": "click"}]), "`tools`"),
            ("top_p", json!(-1), "`top_p`"),
            ("prompt", json!({"id": "p"}), "`prompt`"),
            ("input", json!([{"role": "assistant", "content": "hi"}]), "`input`"),
            ("input", json!(" "), "`input`"),
        ] {
            let mut body = json!({"input": "hi", "background": true});
            body[option] = value;
            let request = serde_json::from_value::<ResponseRequest>(body).unwrap();
            let error = request.read_in_background().unwrap_err();
            assert!(error.message().contains(named), "{option}: {error}");
        }
        let texts = json!({"input": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]});
        let request = serde_json::from_value::<ResponseRequest>(texts).unwrap();
        assert_eq!(request.read_in_background().unwrap().0, "a\n\nb");
        let error = read(json!({"input": "hi", "previous_response_id": "resp_1"})).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnknownSession);
    }

    #[test]
    fn a_response_shows_the_values_that_hold() {
        let shown = serde_json::to_value(Asked::default().with_defaults()).unwrap();
        let expected = json!({
            "instructions": null, "previous_response_id": null, "store": true, "tools": [], "tool_choice": "auto",
            "parallel_tool_calls": true, "text": {"format": {"type": "text"}}, "reasoning": null,
            "max_output_tokens": null, "temperature": null, "top_p": null, "metadata": {},
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn hostile_bytes_as_the_body() {
        let seeds: [&[u8]; 2] = [
            br#"{"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "store": true}"#,
            br#"{"input": [{"type": "function_call", "call_id": "a", "name": "b", "arguments": "{}"}], "tools": []}"#,
        ];
        sekisho_core::fuzz::feed(&seeds, |bytes| {
            let request = sekisho_core::json::parse_as::<ResponseRequest>(bytes);
            let _ = request.map(|request| request.read(&KeptResponses::default(), &Caller::anonymous()));
        });
    }
}
