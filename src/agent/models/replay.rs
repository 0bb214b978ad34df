//! Plays a conversation from a file in place of a model: demos, tests and the quick start need no key.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use super::remote::Reported;
use super::{Model, ModelChunk, ModelError, ModelRequest, Purpose, StopReason};
use crate::message::{Message, RequestedCall};
use crate::options::PartOfPlan;
use sekisho_calls::budget::ModelUsage;

/// A model's turns in order, independent of the request.
#[derive(Debug)]
pub struct Replay {
    script: Script,
    /// The script's file, for error messages.
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    turns: Vec<Turn>,
    /// The answer to a request for a summary of a reply's tool calls, or of a thread.
    call_summary: Option<String>,
    conversation_summary: Option<String>,
    /// The answer to a request for a summary of the older part of a conversation.
    context_summary: Option<String>,
    /// The answer to a request for a title.
    title: Option<String>,
    /// The answer to a request for the calls that fit a task.
    selection: Option<Vec<Call>>,
    /// For agents that plan.
    plan: Option<PlanScript>,
    /// The run that it was saved from; [`evaluation`](crate::evaluation) reads it.
    #[serde(rename = "case")]
    _case: Option<IgnoredAny>,
}

/// The turns of each request of a plan. A request has a further turn after tool calls, and where its answer is refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PlanScript {
    /// The planner's requests: the plan, and each change of it.
    planner: Vec<Vec<Turn>>,
    evaluator: Vec<Vec<Turn>>,
    /// The attempts at steps.
    attempts: Vec<Vec<Turn>>,
    answer: Vec<Turn>,
}

impl PlanScript {
    fn turns(&self, part: PartOfPlan) -> Option<&[Turn]> {
        let (requests, number) = match part {
            PartOfPlan::Planner(number) => (&self.planner, number),
            PartOfPlan::Evaluator(number) => (&self.evaluator, number),
            PartOfPlan::Attempt(number) => (&self.attempts, number),
            PartOfPlan::Answer => return Some(&self.answer),
        };
        requests.get((number as usize).checked_sub(1)?).map(Vec::as_slice)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Turn {
    thinking: Option<String>,
    /// The chunks of the stream.
    text: Vec<String>,
    calls: Vec<Call>,
    usage: Usage,
    /// Seconds before the first chunk.
    delay_seconds: f64,
    /// The connection closes before the turn's end.
    cut_off: bool,
    /// The provider refuses with this HTTP status instead of answering.
    status: Option<u16>,
    /// The stop reason, if it is not the one that follows from the calls.
    stop: Option<StopReason>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: String,
    tool: String,
    /// The arguments: JSON, or the invalid text of a confused model.
    arguments: String,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// Why a script cannot be played.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error("{file}: cannot be read: {problem}")]
    Unreadable { file: String, problem: std::io::Error },
    #[error("{name}: is not a script: {problem}")]
    Malformed { name: String, problem: String },
}

impl Replay {
    /// Errors: the file cannot be read, or is not a script.
    pub fn open(file: &Path) -> Result<Self, ReplayError> {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&name, &text),
            Err(problem) => Err(ReplayError::Unreadable { file: name, problem }),
        }
    }

    /// Errors: the text is not a script.
    pub fn parse(name: &str, yaml: &str) -> Result<Self, ReplayError> {
        let script = serde_saphyr::from_str(yaml)
            .map_err(|problem| ReplayError::Malformed { name: name.to_owned(), problem: problem.to_string() })?;
        Ok(Self { script, name: name.to_owned() })
    }

    fn turn(&self, request: &ModelRequest) -> Result<Turn, ModelError> {
        let (summary, name) = match request.purpose {
            Purpose::Turn => return self.next(request),
            Purpose::Selection => {
                let calls = self.script.selection.clone();
                let missing = || ModelError::Refused(format!("{} has no selection", self.name));
                return calls.map(|calls| Turn { calls, ..Turn::default() }).ok_or_else(missing);
            }
            Purpose::CallSummary => (&self.script.call_summary, "call_summary"),
            Purpose::ConversationSummary => (&self.script.conversation_summary, "conversation_summary"),
            Purpose::ContextSummary => (&self.script.context_summary, "context_summary"),
            Purpose::Title => (&self.script.title, "title"),
        };
        let summary = summary.clone().ok_or_else(|| ModelError::Refused(format!("{} has no {name}", self.name)))?;
        Ok(Turn { text: vec![summary], ..Turn::default() })
    }

    /// The turn after the turns in the conversation.
    fn next(&self, request: &ModelRequest) -> Result<Turn, ModelError> {
        let played = request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
        if let Some(part) = request.options.part_of_plan {
            let turns = self.script.plan.as_ref().and_then(|plan| plan.turns(part));
            let missing = || ModelError::Refused(format!("{} has no turn {} for {part:?}", self.name, played + 1));
            return turns.and_then(|turns| turns.get(played)).cloned().ok_or_else(missing);
        }
        self.script.turns.get(played).cloned().ok_or_else(|| {
            let turns = self.script.turns.len();
            ModelError::Refused(format!(
                "{} has {turns} turns, and all are used up; start a new conversation",
                self.name
            ))
        })
    }
}

impl Model for Replay {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        let refused = |turn: Turn| match turn.status {
            Some(status) => Err(Reported::default().with_status(status, None)),
            None => Ok(turn),
        };
        match self.turn(&request).and_then(refused) {
            Ok(turn) => {
                let delay = Duration::try_from_secs_f64(turn.delay_seconds).unwrap_or_default();
                let pieces = stream::iter(pieces(turn).into_iter().map(Ok));
                if delay.is_zero() {
                    pieces.boxed()
                } else {
                    stream::once(tokio::time::sleep(delay)).flat_map(move |()| pieces.clone()).boxed()
                }
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}

fn pieces(turn: Turn) -> Vec<ModelChunk> {
    let by_calls = if turn.calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
    let stop = turn.stop.unwrap_or(by_calls);
    let Usage { prompt_tokens, completion_tokens } = turn.usage;
    let mut pieces: Vec<_> = turn.thinking.into_iter().map(ModelChunk::Thinking).collect();
    pieces.extend(turn.text.into_iter().map(ModelChunk::Text));
    pieces.extend(
        turn.calls
            .into_iter()
            .map(|Call { id, tool, arguments }| ModelChunk::Call(RequestedCall::new(id, tool, arguments))),
    );
    if turn.cut_off {
        return pieces;
    }
    let usage = ModelUsage { prompt_tokens, completion_tokens, ..ModelUsage::default() };
    pieces.push(ModelChunk::End { stop, usage });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AssistantTurn;
    use crate::options::ModelOptions;

    const WEATHER: &str = include_str!("../../../config/examples/weather.yaml");

    fn request(messages: Vec<Message>) -> Arc<ModelRequest> {
        Arc::new(ModelRequest { messages, max_tokens: 100, ..ModelRequest::default() })
    }

    async fn play(model: &Replay, messages: Vec<Message>) -> Vec<Result<ModelChunk, ModelError>> {
        model.stream(request(messages)).collect().await
    }

    fn later() -> Vec<Message> {
        vec![Message::User("go on".into()), Message::Assistant(AssistantTurn::default())]
    }

    #[tokio::test]
    async fn turns_are_played_in_order_and_from_the_start_for_a_new_conversation() {
        let model = Replay::parse("weather.yaml", WEATHER).unwrap();
        for _ in 0..2 {
            let first = play(&model, vec![Message::User("Is 21.5 °C warm?".into())]).await;
            assert!(first.iter().any(|piece| matches!(piece, Ok(ModelChunk::Call(_)))), "{first:?}");
            assert!(matches!(first.last(), Some(Ok(ModelChunk::End { stop: StopReason::ToolCalls, .. }))), "{first:?}");
            let second = play(&model, later()).await;
            assert!(matches!(second.last(), Some(Ok(ModelChunk::End { stop: StopReason::Stop, .. }))), "{second:?}");
        }
    }

    #[tokio::test]
    async fn a_script_that_is_used_up_reports_it() {
        let model = Replay::parse("short.yaml", "turns: [{text: [hello]}]").unwrap();
        play(&model, vec![Message::User("hi".into())]).await;
        let beyond = play(&model, later()).await;
        assert!(
            matches!(&beyond[..], [Err(ModelError::Refused(why))] if why.contains("short.yaml has 1 turns")),
            "{beyond:?}"
        );
    }

    #[tokio::test]
    async fn summaries_are_played_as_written_or_refused() {
        let model = Replay::parse("s.yaml", "{turns: [], call_summary: '- added'}").unwrap();
        let ask = async |purpose| {
            let request = ModelRequest { purpose, ..ModelRequest::default() };
            model.stream(Arc::new(request)).collect::<Vec<_>>().await
        };
        assert_eq!(ask(Purpose::CallSummary).await[0], Ok(ModelChunk::Text("- added".into())));
        let refused = ask(Purpose::ConversationSummary).await;
        assert!(matches!(&refused[..], [Err(ModelError::Refused(why))] if why.contains("conversation_summary")));
    }

    #[tokio::test]
    async fn each_request_of_a_plan_has_turns_of_its_own() {
        let script = "{turns: [], plan: {planner: [[{text: [a]}], [{text: [b]}, {text: [c]}]], answer: [{text: [d]}]}}";
        let model = Replay::parse("plan.yaml", script).unwrap();
        let ask = async |part, messages| {
            let options = ModelOptions { part_of_plan: Some(part), ..ModelOptions::default() };
            let request = ModelRequest { messages, options, ..ModelRequest::default() };
            model.stream(Arc::new(request)).next().await.unwrap()
        };
        let text = |text: &str| Ok(ModelChunk::Text(text.into()));
        assert_eq!(ask(PartOfPlan::Planner(1), Vec::new()).await, text("a"));
        assert_eq!(ask(PartOfPlan::Planner(2), Vec::new()).await, text("b"));
        assert_eq!(ask(PartOfPlan::Planner(2), later()).await, text("c"));
        assert_eq!(ask(PartOfPlan::Answer, Vec::new()).await, text("d"));
        let missing = ask(PartOfPlan::Attempt(1), Vec::new()).await;
        assert!(matches!(&missing, Err(ModelError::Refused(why)) if why.contains("Attempt(1)")), "{missing:?}");
    }

    #[test]
    fn a_file_that_is_not_a_script_is_refused_with_its_name() {
        for yaml in ["", "turns: 3", "turns: [{says: hello}]", "turns: [{calls: [{id: a}]}]", "conversation: []"] {
            let error = Replay::parse("broken.yaml", yaml).unwrap_err().to_string();
            assert!(error.starts_with("broken.yaml: is not a script"), "{error}");
        }
        let error = Replay::open(Path::new("/nowhere/script.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/script.yaml: cannot be read"), "{error}");
    }
}
