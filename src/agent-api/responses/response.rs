//! A response in the form of OpenAI's Responses API (<https://platform.openai.com/docs/api-reference/responses>).

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::request::Asked;
use crate::model_api::output::{Output, OutputPart};
use crate::openai::OpenAiProblem;
use sekisho_agent::{FinishReason, PausedCall, RunUsage};

/// The type of an item for a call that waits for an approver.
pub(super) const APPROVAL: &str = "approval";

/// A response, whole or as far as it is.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ModelResponse)]
pub(crate) struct ResponseBody {
    pub id: String,
    object: &'static str,
    /// Seconds since 1970.
    created_at: i64,
    status: Status,
    /// Why it failed.
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
    /// The agent's name.
    model: String,
    output: Vec<OutputItem>,
    /// An extension: the calls for which the run is paused until a person decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    approvals: Vec<ApprovalItem>,
    usage: Option<Usage>,
    background: bool,
    truncation: &'static str,
    #[serde(flatten)]
    asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ResponseStatus)]
pub(super) enum Status {
    /// In the background, before it begins.
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct IncompleteDetails {
    /// `max_output_tokens` (also for the limits of the agent's profile), `content_filter`, or of a run that is paused
    /// `approval_required`.
    reason: &'static str,
}

/// A call that waits, as an item: in the input of a later request it continues the run.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct ApprovalItem {
    r#type: &'static str,
    #[serde(flatten)]
    call: PausedCall,
}

/// What the agent answered. Calls of the gateway's own tools are not part of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputItem {
    /// What the model shows of its reasoning.
    Reasoning {
        id: String,
        summary: Vec<SummaryText>,
    },
    Message {
        id: String,
        status: Status,
        role: &'static str,
        content: Vec<OutputText>,
    },
    /// A call of a function that the client runs itself.
    FunctionCall {
        id: String,
        call_id: String,
        /// Of a function in a namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        arguments: String,
        status: Status,
    },
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SummaryText {
    r#type: &'static str,
    text: String,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct OutputText {
    r#type: &'static str,
    text: String,
    #[schema(value_type = Vec<Object>)]
    annotations: [Value; 0],
    #[schema(value_type = Vec<Object>)]
    logprobs: [Value; 0],
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = ResponseUsage)]
struct Usage {
    input_tokens: u64,
    #[schema(value_type = Object)]
    input_tokens_details: InputTokens,
    output_tokens: u64,
    #[schema(value_type = Object)]
    output_tokens_details: OutputTokens,
    total_tokens: u64,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct InputTokens {
    /// Read from the provider's cache.
    cached_tokens: u64,
}

/// Clients require it; the gateway does not count them apart.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct OutputTokens {
    reasoning_tokens: u64,
}

impl ResponseBody {
    /// A response that has just begun.
    pub(super) fn begun(model: &str, asked: Asked) -> Self {
        Self {
            id: format!("resp_{}", Uuid::new_v4().simple()),
            object: "response",
            created_at: jiff::Timestamp::now().as_second(),
            status: Status::InProgress,
            error: None,
            incomplete_details: None,
            model: model.to_owned(),
            output: Vec::new(),
            approvals: Vec::new(),
            usage: None,
            background: false,
            truncation: "disabled",
            asked: asked.with_defaults(),
        }
    }

    /// A response in the background, with its id and its moment.
    pub(super) fn in_background(model: &str, asked: Asked, (id, created_at): (&str, i64), status: Status) -> Self {
        Self { id: id.to_owned(), created_at, status, background: true, ..Self::begun(model, asked) }
    }

    pub(super) fn with_status(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// The same with the output of its run, which has ended.
    pub(super) fn ended(&self, output: &Output) -> Self {
        let reason = match output.finish {
            FinishReason::Length | FinishReason::Limit => Some("max_output_tokens"),
            FinishReason::Refusal => Some("content_filter"),
            FinishReason::ApprovalRequired => Some(FinishReason::ApprovalRequired.as_str()),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Aborted | FinishReason::Error => None,
        };
        let status = match (&output.failure, reason) {
            (Some(_), _) => Status::Failed,
            (None, Some(_)) => Status::Incomplete,
            (None, None) => Status::Completed,
        };
        let items = output.parts.iter().enumerate();
        let approvals = output.approvals.iter().cloned();
        Self {
            status,
            error: output.failure.as_ref().map(|failure| json!(OpenAiProblem::of(failure))),
            incomplete_details: reason.map(|reason| IncompleteDetails { reason }),
            output: items.map(|(index, part)| OutputItem::of(self, index, part, Status::Completed)).collect(),
            approvals: approvals.map(|call| ApprovalItem { r#type: APPROVAL, call }).collect(),
            usage: Some(Usage::of(&output.usage)),
            ..self.clone()
        }
    }

    pub(super) fn status(&self) -> Status {
        self.status
    }
}

impl OutputItem {
    /// The item of a part that is complete, or in progress: without its content.
    pub(super) fn of(response: &ResponseBody, index: usize, part: &OutputPart, status: Status) -> Self {
        let id = item_id(&response.id, index, part);
        let is_complete = status == Status::Completed;
        match part.clone() {
            OutputPart::Thinking(text) => {
                Self::Reasoning { id, summary: is_complete.then(|| SummaryText::new(text)).into_iter().collect() }
            }
            OutputPart::Text(text) => {
                let content = is_complete.then(|| OutputText::new(text)).into_iter().collect();
                Self::Message { id, status, role: "assistant", content }
            }
            OutputPart::Call { id: call_id, name, arguments } => {
                let (namespace, name) = response.asked.function_of(&name);
                let (namespace, name) = (namespace.map(str::to_owned), name.to_owned());
                Self::FunctionCall { id, call_id, namespace, name, arguments, status }
            }
        }
    }
}

impl SummaryText {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { r#type: "summary_text", text: text.into() }
    }
}

impl OutputText {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { r#type: "output_text", text: text.into(), annotations: [], logprobs: [] }
    }
}

impl Usage {
    fn of(run: &RunUsage) -> Self {
        let RunUsage { prompt_tokens, completion_tokens, cached_tokens, .. } = *run;
        Self {
            input_tokens: prompt_tokens,
            input_tokens_details: InputTokens { cached_tokens },
            output_tokens: completion_tokens,
            output_tokens_details: OutputTokens::default(),
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
        }
    }
}

/// The id of a response's item, which names both.
pub(super) fn item_id(response: &str, index: usize, part: &OutputPart) -> String {
    let kind = match part {
        OutputPart::Thinking(_) => "rs",
        OutputPart::Text(_) => "msg",
        OutputPart::Call { .. } => "fc",
    };
    format!("{kind}_{}_{index}", response.trim_start_matches("resp_"))
}

/// The response that an item is of, and its index there.
pub(super) fn response_of_item(id: &str) -> Option<(String, usize)> {
    let (_, place) = id.split_once('_')?;
    let (response, index) = place.rsplit_once('_')?;
    Some((format!("resp_{response}"), index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_agent::models::ModelError;
    use sekisho_agent::{Event, RunError};

    fn ended(events: Vec<Event>) -> Value {
        let mut output = Output::new();
        events.into_iter().for_each(|event| drop(output.add(event)));
        let mut response = ResponseBody::begun("weather", Asked::default());
        response.id = "resp_1".into();
        serde_json::to_value(response.ended(&output)).unwrap()
    }

    fn finished(reason: FinishReason) -> Event {
        Event::Finished { reason, messages: Vec::new() }
    }

    #[test]
    fn a_response_has_the_items_of_its_output() {
        let response = ended(vec![
            Event::Thinking { text: "Hm.".into() },
            Event::Content { text: "Let me click.".into() },
            Event::ClientToolCall { id: "a".into(), tool_name: "click".into(), arguments: "{}".into() },
            finished(FinishReason::ToolCalls),
            Event::Usage(RunUsage { prompt_tokens: 7, completion_tokens: 5, cached_tokens: 3, ..RunUsage::default() }),
        ]);
        let text = json!({"type": "output_text", "text": "Let me click.", "annotations": [], "logprobs": []});
        let expected = json!([
            {"type": "reasoning", "id": "rs_1_0", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "id": "msg_1_1", "status": "completed", "role": "assistant", "content": [text]},
            {"type": "function_call", "id": "fc_1_2", "call_id": "a", "name": "click", "arguments": "{}",
                "status": "completed"},
        ]);
        assert_eq!(response["output"], expected);
        let usage = json!({"input_tokens": 7, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12});
        assert_eq!((&response["usage"], &response["status"]), (&usage, &json!("completed")));
        assert_eq!(response_of_item("fc_1_2"), Some(("resp_1".into(), 2)));
        assert_eq!((response_of_item("fc_1"), response_of_item("fc_1_x")), (None, None));
    }

    #[test]
    fn a_call_of_a_function_in_a_namespace_names_it() {
        let spawn = json!({"type": "function", "name": "spawn"});
        let asked = json!({"tools": [{"type": "namespace", "name": "agents", "tools": [spawn]}]});
        let response = ResponseBody::begun("weather", serde_json::from_value(asked).unwrap());
        let part = OutputPart::Call { id: "a".into(), name: "agents__spawn".into(), arguments: "{}".into() };
        for status in [Status::InProgress, Status::Completed] {
            let item = serde_json::to_value(OutputItem::of(&response, 0, &part, status)).unwrap();
            assert_eq!((&item["namespace"], &item["name"]), (&json!("agents"), &json!("spawn")));
        }
    }

    #[test]
    fn what_ended_a_response_is_its_status() {
        for (reason, status, detail) in [
            (FinishReason::Stop, "completed", Value::Null),
            (FinishReason::Aborted, "completed", Value::Null),
            (FinishReason::Length, "incomplete", json!("max_output_tokens")),
            (FinishReason::Limit, "incomplete", json!("max_output_tokens")),
            (FinishReason::Refusal, "incomplete", json!("content_filter")),
        ] {
            let response = ended(vec![finished(reason)]);
            assert_eq!((&response["status"], &response["incomplete_details"]["reason"]), (&json!(status), &detail));
        }
        let call =
            json!({"id": "p", "call_id": "a", "tool": "pay", "expires_at": "later", "url": "https://gateway.test/p"});
        let paused = Event::Approval(serde_json::from_value(call.clone()).unwrap());
        let response = ended(vec![paused, finished(FinishReason::ApprovalRequired)]);
        let mut item = call;
        item["type"] = "approval".into();
        assert_eq!((&response["status"], &response["approvals"]), (&json!("incomplete"), &json!([item])));
        assert_eq!(response["incomplete_details"]["reason"], "approval_required");
        let failed = Event::Error(RunError::from(&ModelError::Timeout));
        let response = ended(vec![failed, finished(FinishReason::Error)]);
        assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("timeout")));
    }
}
