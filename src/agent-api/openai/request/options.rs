//! The options of a client for its answer.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::model_api::{check_range, refuse_options};
use crate::openai::terms::{ReasoningEffort, ToolChoiceMode, schema_format};
use sekisho_agent::{ModelOptions, OutputFormat, ToolChoice};
use sekisho_core::error::CallError;

#[derive(Debug, Default, Deserialize, ToSchema)]
pub(super) struct RequestOptions {
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    seed: Option<i64>,
    /// At most the agent's own.
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    /// The newer name of `max_tokens`.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u32>,
    stop: Option<Stop>,
    tool_choice: Option<RequestedToolChoice>,
    parallel_tool_calls: Option<bool>,
    reasoning_effort: Option<ReasoningEffort>,
    response_format: Option<ResponseFormat>,
    /// Refused unless `false`.
    logprobs: Option<bool>,
    /// Refused.
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Value>,
    /// Refused: `tools` is the form of today.
    #[schema(value_type = Option<Vec<Object>>)]
    functions: Option<Value>,
    /// Refused where it asks for anything but `text`.
    modalities: Option<Vec<String>>,
    /// Refused unless `medium`.
    verbosity: Option<String>,
    /// Refused: agents search with the gateway's tools.
    #[schema(value_type = Option<Object>)]
    web_search_options: Option<Value>,
    /// Refused.
    #[schema(value_type = Option<Object>)]
    prediction: Option<Value>,
    /// Refused, as the next two: options of other servers with this API.
    #[schema(value_type = Option<u32>)]
    top_k: Option<Value>,
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Value>,
    #[schema(value_type = Option<bool>)]
    think: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum Stop {
    One(String),
    /// At most four.
    Several(Vec<String>),
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum RequestedToolChoice {
    Mode(ToolChoiceMode),
    Function { function: NamedFunction },
}

#[derive(Debug, Deserialize, ToSchema)]
struct NamedFunction {
    name: String,
}

/// The form of the answer, which the gateway checks: an answer in another form is asked for once more, then refused with
/// `invalid_output`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: RequestSchema },
}

#[derive(Debug, Deserialize, ToSchema)]
struct RequestSchema {
    name: String,
    #[schema(value_type = Object)]
    schema: Value,
    strict: Option<bool>,
}

/// OpenAI's limit.
const MAX_STOPS: usize = 4;

impl RequestOptions {
    /// Errors: `invalid_request` with the option that cannot be kept, or is out of range.
    pub(super) fn read(self) -> Result<ModelOptions, CallError> {
        self.refuse_impossible()?;
        for (name, value, range) in [
            ("temperature", self.temperature, 0.0..=2.0),
            ("top_p", self.top_p, 0.0..=1.0),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0),
        ] {
            check_range(name, value, &range)?;
        }
        let max_tokens = self.max_completion_tokens.or(self.max_tokens);
        if max_tokens == Some(0) {
            return Err(CallError::invalid("`max_tokens` is 0; an answer needs at least one"));
        }
        let stop = match self.stop {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Several(texts)) => texts,
        };
        if stop.len() > MAX_STOPS || stop.iter().any(String::is_empty) {
            return Err(CallError::invalid(format!("`stop` must be one to {MAX_STOPS} texts that are not empty")));
        }
        Ok(ModelOptions {
            part_of_plan: None,
            temperature: self.temperature,
            top_p: self.top_p,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
            max_tokens,
            stop,
            tool_choice: match self.tool_choice {
                None => ToolChoice::Auto,
                Some(RequestedToolChoice::Mode(mode)) => mode.into(),
                Some(RequestedToolChoice::Function { function }) => ToolChoice::Tool(function.name),
            },
            parallel_tool_calls: self.parallel_tool_calls,
            thinking: self.reasoning_effort.and_then(ReasoningEffort::thinking),
            without_thinking: self.reasoning_effort.is_some_and(ReasoningEffort::is_none),
            output: self.response_format.map(ResponseFormat::read).transpose()?.flatten(),
        })
    }

    /// Options that no agent can keep.
    fn refuse_impossible(&self) -> Result<(), CallError> {
        let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty) || value.is_null();
        refuse_options(&[
            ("logprobs", self.logprobs == Some(true)),
            ("logit_bias", !self.logit_bias.as_ref().is_none_or(is_empty)),
            ("functions", self.functions.is_some()),
            ("modalities", self.modalities.iter().flatten().any(|modality| modality != "text")),
            ("verbosity", self.verbosity.as_ref().is_some_and(|verbosity| verbosity != "medium")),
            ("web_search_options", self.web_search_options.is_some()),
            ("prediction", self.prediction.is_some()),
            ("top_k", self.top_k.is_some()),
            ("chat_template_kwargs", !self.chat_template_kwargs.as_ref().is_none_or(is_empty)),
            ("think", self.think.is_some()),
        ])
    }
}

impl ResponseFormat {
    fn read(self) -> Result<Option<OutputFormat>, CallError> {
        match self {
            Self::Text => Ok(None),
            Self::JsonObject => Ok(Some(OutputFormat::object())),
            Self::JsonSchema { json_schema: RequestSchema { name, schema, strict } } => {
                schema_format("response_format.json_schema.schema", name, schema, strict).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_config::{Effort, Thinking};

    fn read(body: Value) -> Result<ModelOptions, CallError> {
        serde_json::from_value::<RequestOptions>(body).unwrap().read()
    }

    #[test]
    fn options_of_the_answer_are_read() {
        let options = read(json!({
            "temperature": 0.5, "top_p": 0.9, "presence_penalty": -1, "frequency_penalty": 1, "seed": 7,
            "max_tokens": 10, "max_completion_tokens": 20, "stop": "END", "parallel_tool_calls": false,
            "tool_choice": {"type": "function", "function": {"name": "add"}}, "reasoning_effort": "low",
            "response_format": {"type": "text"}, "logprobs": false, "logit_bias": {}, "user": "ann", "store": true,
            "verbosity": "medium", "prediction": null,
        }));
        let expected = ModelOptions {
            temperature: Some(0.5),
            top_p: Some(0.9),
            presence_penalty: Some(-1.0),
            frequency_penalty: Some(1.0),
            seed: Some(7),
            max_tokens: Some(20),
            stop: vec!["END".into()],
            tool_choice: ToolChoice::Tool("add".into()),
            parallel_tool_calls: Some(false),
            thinking: Some(Thinking::Effort(Effort::Low)),
            without_thinking: false,
            output: None,
            part_of_plan: None,
        };
        assert_eq!(options.unwrap(), expected);
        for (choice, expected) in
            [("auto", ToolChoice::Auto), ("none", ToolChoice::None), ("required", ToolChoice::Required)]
        {
            assert_eq!(read(json!({"tool_choice": choice})).unwrap().tool_choice, expected);
        }
        let schema = |schema: Value| {
            read(json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}))
        };
        let expected = OutputFormat::of_schema("n".into(), json!({"type": "object"}), false).unwrap();
        assert_eq!(schema(json!({"type": "object"})).unwrap().output, Some(expected));
        assert!(
            schema(json!({"type": "strin"})).unwrap_err().message().contains("`response_format.json_schema.schema`")
        );
        let object = read(json!({"response_format": {"type": "json_object"}}));
        assert_eq!(object.unwrap().output, Some(OutputFormat::object()));
        assert_eq!(read(json!({"stop": ["a", "b"]})).unwrap().stop, ["a", "b"]);
        let none = ModelOptions { without_thinking: true, ..ModelOptions::default() };
        assert_eq!(read(json!({"reasoning_effort": "none"})).unwrap(), none);
        let most = read(json!({"reasoning_effort": "xhigh"})).unwrap();
        assert_eq!(most.thinking, Some(Thinking::Effort(Effort::Xhigh)));
    }

    #[test]
    fn what_no_agent_can_keep_is_refused_by_name() {
        for (body, name) in [
            (json!({"logprobs": true}), "logprobs"),
            (json!({"logit_bias": {"1": 2}}), "logit_bias"),
            (json!({"functions": []}), "functions"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"verbosity": "low"}), "verbosity"),
            (json!({"web_search_options": {}}), "web_search_options"),
            (json!({"prediction": {"type": "content", "content": "x"}}), "prediction"),
            (json!({"top_k": 40}), "top_k"),
            (json!({"chat_template_kwargs": {"enable_thinking": false}}), "chat_template_kwargs"),
            (json!({"think": true}), "think"),
            (json!({"temperature": 3}), "temperature"),
            (json!({"top_p": -0.1}), "top_p"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
            (json!({"stop": ""}), "stop"),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.message().contains(&format!("`{name}`")), "{name}: {error}");
        }
    }
}
