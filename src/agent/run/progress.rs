//! The state of a run: the conversation, the current turn, and the usage.

mod pause;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::pause::PausedTurn;
use super::answer_watch::AnswerWatch;
use super::compaction::{Compaction, SummaryTask};
use super::cut::cut;
use super::room::Room;
use super::{CheckedCall, Ending};
use crate::call_ids::{self, CallIds, ProviderId};
use crate::context;
use crate::event::{Event, PausedCall, RunUsage};
use crate::message::{AssistantTurn, Message, RequestedCall, ToolMessage, TurnPart};
use crate::meter::Meter;
use crate::models::{ModelChunk, ModelError, ModelRequest, Purpose, StopReason};
use crate::options::{ModelOptions, ToolChoice};
use crate::toolbox::{OnApproval, ToolAnswer, ToolDescription, ToolboxUnreachable, shortlist};
use sekisho_config::AgentProfile;

#[derive(Debug)]
pub(super) struct Progress {
    conversation: Vec<Message>,
    /// Number of messages that the run began with.
    given: usize,
    client_tools: Vec<ToolDescription>,
    tools: Vec<ToolDescription>,
    options: ModelOptions,
    /// Whether the model was asked again for an answer in the requested form.
    asked_again: bool,
    /// The model's API; see [`call_ids::api_of`].
    api: Arc<str>,
    call_ids: CallIds,
    turn: AssistantTurn,
    /// How the current turn ended.
    stop: StopReason,
    answers: Vec<ToolMessage>,
    watch: AnswerWatch,
    /// By a call's id: how its tool's name was written, if it was another.
    renamed: HashMap<String, String>,
    /// Whether the run pauses for calls that need approval.
    pauses: bool,
    /// The calls for which it pauses.
    paused: Vec<PausedCall>,
    /// The turn of an earlier run whose calls are made now.
    resuming: Option<PausedTurn>,
    /// Whether there was such a turn.
    is_resumed: bool,
    meter: Arc<Meter>,
    begun: Instant,
    /// The usage before the current turn, and when that began.
    turn_begun: (RunUsage, Instant),
    pub(super) compaction: Compaction,
    pub(super) room: Room,
}

impl Progress {
    pub(super) fn new(
        messages: Vec<Message>,
        client_tools: Vec<ToolDescription>,
        options: ModelOptions,
        meter: Arc<Meter>,
        profile: &AgentProfile,
        (pauses, call_ids): (bool, CallIds),
    ) -> Self {
        Self {
            given: messages.len(),
            conversation: messages,
            client_tools,
            tools: Vec::new(),
            options,
            asked_again: false,
            api: call_ids::api_of(profile),
            call_ids,
            turn: AssistantTurn::default(),
            stop: StopReason::Stop,
            answers: Vec::new(),
            watch: AnswerWatch::default(),
            renamed: HashMap::new(),
            pauses,
            paused: Vec::new(),
            resuming: None,
            is_resumed: false,
            meter,
            begun: Instant::now(),
            turn_begun: (RunUsage::default(), Instant::now()),
            compaction: Compaction::default(),
            room: Room::of(profile),
        }
    }

    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Sets the tools of the whole run: the client's, and as many others as the model accepts. If the gateway's tools
    /// cannot be listed, the run continues with only the client's (A68).
    pub(super) fn offer(
        &mut self,
        listed: Result<Vec<ToolDescription>, ToolboxUnreachable>,
        profile: &AgentProfile,
    ) -> Option<Event> {
        let (own, event) = match listed {
            Ok(tools) => (tools, None),
            Err(problem) => {
                tracing::warn!(%problem, "the run continues without the gateway's tools");
                (Vec::new(), Some(Event::Status { status: "without_tools".into(), message: problem.to_string() }))
            }
        };
        let own = own.into_iter().filter(|tool| !self.is_clients(&tool.name)).collect();
        self.tools = shortlist(own, profile.max_tools.saturating_sub(self.client_tools.len()), &self.conversation);
        self.tools.extend(self.client_tools.iter().cloned());
        event
    }

    /// Errors: the limit that another turn would exceed.
    pub(super) fn begin_turn(&mut self, profile: &AgentProfile) -> Result<(), Ending> {
        let used = self.meter.used();
        if used.turns >= profile.max_turns {
            let message = format!("The run reached its {} turns without an answer.", profile.max_turns);
            return Err(Ending::Limit { status: "max_turns", message });
        }
        if used.processed_tokens() >= profile.run_tokens {
            let message = format!("The run used up its {} tokens.", profile.run_tokens);
            return Err(Ending::Limit { status: "run_tokens", message });
        }
        self.meter.count(|used| used.turns += 1);
        self.turn_begun = (used, Instant::now());
        Ok(())
    }

    /// The request of the turn: the conversation, as far as it is compacted.
    pub(super) fn request(&mut self, profile: &AgentProfile) -> Arc<ModelRequest> {
        let view = self.view();
        self.room.sent(context::tokens_of(&view, &self.tools));
        Arc::new(ModelRequest {
            purpose: Purpose::Turn,
            messages: call_ids::for_provider(view, &self.api),
            tools: self.tools.clone(),
            options: self.options_of_turn(profile),
            max_tokens: self.max_tokens(profile),
            ..ModelRequest::default()
        })
    }

    pub(super) fn view(&self) -> Vec<Message> {
        self.compaction.view(&self.conversation, self.given)
    }

    /// Estimated tokens of the next request.
    pub(super) fn next_tokens(&self) -> u64 {
        self.room.calibrated(context::tokens_of(&self.view(), &self.tools))
    }

    /// Turns as many old results into lines as save so many tokens. Their number.
    pub(super) fn shorten_results(&mut self, excess: u64) -> usize {
        self.compaction.shorten_results(&self.conversation, self.given, excess)
    }

    /// The conversation so far has a shorter form from now on.
    pub(super) fn unbind_thoughts(&mut self) {
        self.compaction.unbind_thoughts(&self.conversation);
    }

    pub(super) fn next_to_summarize(&self) -> Option<SummaryTask> {
        self.compaction.next_to_summarize(&self.conversation, self.given)
    }

    /// The whole conversation.
    pub(super) fn conversation(&self) -> &[Message] {
        &self.conversation
    }

    /// How long a call waits before it is made.
    pub(super) fn wait_before(&self, call: &RequestedCall) -> Duration {
        self.watch.wait_before(call)
    }

    /// Whether the model has said nothing in this turn.
    pub(super) fn is_silent(&self) -> bool {
        self.turn.parts.is_empty()
    }

    fn options_of_turn(&self, profile: &AgentProfile) -> ModelOptions {
        let is_first = self.meter.used().turns <= 1 && !self.is_resumed;
        let asked = self.options.clone();
        ModelOptions {
            // Anthropic's models refuse both of them.
            temperature: asked.temperature.or(profile.temperature().filter(|_| asked.top_p.is_none())),
            thinking: asked.thinking_in(profile),
            // Otherwise a model that must call a tool would never answer.
            tool_choice: if is_first { asked.tool_choice } else { ToolChoice::Auto },
            ..asked
        }
    }

    /// Maximum tokens of a turn.
    pub(super) fn max_tokens(&self, profile: &AgentProfile) -> u32 {
        let answer = self.options.max_tokens.map_or(profile.max_tokens(), |asked| asked.min(profile.max_tokens()));
        let total = answer.saturating_add(self.options.thinking_tokens(profile));
        // The table's maximum is with the thinking; a profile may know better.
        let maximum = profile.row().and_then(|row| row.max_output_tokens).map(|own| own.max(profile.max_tokens()));
        maximum.map_or(total, |maximum| total.min(maximum))
    }

    /// Adds a chunk to the current turn; returns the event to send now, if any.
    /// Errors: the model's failure.
    pub(super) fn handle(&mut self, piece: Result<ModelChunk, ModelError>) -> Result<Option<Event>, Ending> {
        match piece.map_err(Ending::Failed)? {
            ModelChunk::Text(text) => {
                self.turn.push_text(&text);
                // An answer in a form is sent once it is checked.
                if self.options.output.is_some() {
                    return Ok(None);
                }
                return Ok(Some(Event::Content { text }));
            }
            ModelChunk::Thinking(text) => return Ok(Some(Event::Thinking { text })),
            ModelChunk::Thought(thought) => self.turn.parts.push(TurnPart::Thought(thought)),
            ModelChunk::Fragment { .. } => {}
            ModelChunk::Retry { message } => return Ok(Some(Event::Retry { message })),
            ModelChunk::Call(call) => self.add_call(call),
            ModelChunk::End { stop, usage } => {
                self.stop = stop;
                self.meter.answer_turn(&self.turn_begun);
                self.room.reported(usage.prompt_tokens);
            }
        }
        Ok(None)
    }

    /// Splits the calls of the finished turn into calls to run here and calls for the client. A call that the token
    /// limit may have cut off is answered here, with an error.
    /// Errors: there are no calls, so the run is complete, or more than the run may make.
    pub(super) fn calls(&self, profile: &AgentProfile) -> Result<(Vec<CheckedCall>, Vec<RequestedCall>), Ending> {
        let count = self.turn.calls().count();
        let over = count == 0 && self.stop != StopReason::Pause
            || self.stop == StopReason::Refusal
            || self.turn.has_word(&profile.end_words);
        if over {
            return Err(Ending::Answered(self.stop));
        }
        let (mut own, mut clients) = (Vec::new(), Vec::new());
        let on_approval = if self.pauses { OnApproval::Pause } else { OnApproval::Wait };
        for (index, call) in self.turn.calls().enumerate() {
            let is_last = index + 1 == count;
            if self.stop == StopReason::Length && call.may_be_cut(is_last) {
                let max_tokens = self.max_tokens(profile);
                tracing::warn!(
                    max_tokens,
                    "a tool call was cut off by the token limit and not run; raise `max_tokens`"
                );
                own.push(CheckedCall::cut_off(call.clone(), max_tokens));
            } else if self.is_clients(&call.tool) {
                clients.push(call.clone());
            } else {
                own.push(CheckedCall::new(call.clone(), self.renamed.get(&call.id), on_approval.clone()));
            }
        }
        let max = profile.max_tool_calls as usize;
        if own.len() > max.saturating_sub(self.meter.used().tool_calls as usize) {
            let message = format!("The run may make {max} tool calls, and the model requested more.");
            return Err(Ending::Limit { status: "max_tool_calls", message });
        }
        Ok((own, clients))
    }

    /// Checks the form of the run's answer. The whole answer, where it is in the form that the client asked for, or where
    /// the token limit cut it; `None` if the model is asked once more.
    /// Errors: it is not in that form the second time either.
    pub(super) fn check_answer(&mut self, stop: StopReason) -> Result<Option<String>, Ending> {
        let text = self.turn.text();
        let problem = match &self.options.output {
            Some(format) if stop == StopReason::Stop => match format.read(&text) {
                Ok(json) => return Ok(Some(json)),
                Err(problem) => problem,
            },
            _ => return Ok(Some(text)),
        };
        if std::mem::replace(&mut self.asked_again, true) {
            return Err(Ending::Failed(ModelError::InvalidOutput(problem)));
        }
        tracing::info!(problem, "the model is asked again for an answer in the form of `response_format`");
        self.keep_turn();
        let again = format!("Your answer is not in the requested form: {problem}. Answer again, with the JSON alone.");
        self.conversation.push(Message::User(again.into()));
        Ok(None)
    }

    /// The current turn, as it will be kept.
    pub(super) fn turn(&self) -> AssistantTurn {
        AssistantTurn { api: Some(Arc::clone(&self.api)), ..self.turn.clone() }
    }

    /// Whether the answer is sent as a whole, in [`check_answer`](Self::check_answer).
    pub(super) fn holds_answer_back(&self) -> bool {
        self.options.output.is_some()
    }

    /// Keeps the result for the model, and returns its event.
    fn record(&mut self, call: &RequestedCall, answer: ToolAnswer, profile: &AgentProfile) -> Event {
        self.meter.count(|used| used.tool_calls = used.tool_calls.saturating_add(1));
        self.watch.observe(call, &answer, profile.same_answer());
        let ToolAnswer { success, text, error_info, images } = answer;
        let text = match &error_info {
            Some(info) if !success => format!("{text}\n{info}"),
            _ => text,
        };
        let parameters = self.tools.iter().find(|tool| tool.name == call.tool).map(|tool| &*tool.parameters);
        let text = cut(text, self.room.max_result_bytes(profile), parameters);
        let (id, tool_name) = (call.id.clone(), call.tool.clone());
        self.answers.push(ToolMessage {
            call_id: id.clone(),
            tool: tool_name.clone(),
            text: if success { text.clone() } else { format!("Error: {text}") },
            images,
            is_error: !success,
        });
        if success {
            Event::ToolResult { id, tool_name, result: text }
        } else {
            Event::ToolError { id, tool_name, error: text }
        }
    }

    /// Adds the turn and the results of its calls to the conversation.
    /// Errors: the run ends here: the client must run calls, an approver must decide, or a limit is reached.
    pub(super) fn end_turn(&mut self) -> Result<(), Ending> {
        let waits_for_client = self.turn.calls().count() > self.answers.len() + self.paused.len();
        self.keep_turn();
        if let Some(ending) = self.watch.verdict() {
            return Err(ending);
        }
        if waits_for_client { Err(Ending::ClientTools) } else { self.end_paused() }
    }

    /// The last events of the run.
    pub(super) fn close(mut self, ending: Ending) -> impl Iterator<Item = Event> + Send {
        // Providers refuse a conversation with a call that has no result.
        let answered: HashSet<_> = self.answers.iter().map(|answer| answer.call_id.clone()).collect();
        self.turn.retain_calls(|call| answered.contains(&call.id));
        self.keep_turn();
        let messages = self.conversation.split_off(self.given);
        let took = self.begun.elapsed();
        self.meter.count(|used| used.duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let finished = Event::Finished { reason: ending.reason(), messages };
        ending.event().into_iter().chain([finished, Event::Usage(self.meter.used())])
    }

    fn keep_turn(&mut self) {
        let turn = AssistantTurn { api: Some(Arc::clone(&self.api)), ..std::mem::take(&mut self.turn) };
        // A turn with only thoughts is no message.
        if turn.parts.iter().any(|part| !matches!(part, TurnPart::Thought(_))) {
            self.conversation.push(Message::Assistant(turn));
            self.meter.keep_turn();
        }
        self.conversation.extend(self.answers.drain(..).map(Message::Tool));
    }

    /// Gives every call an id of ours; its provider's is kept for later requests.
    fn add_call(&mut self, mut call: RequestedCall) {
        let id = std::mem::replace(&mut call.id, self.call_ids.next_id());
        if let Some(offered) = self.meant(&call.tool) {
            tracing::info!(
                requested = call.tool,
                tool = offered,
                "the name of a tool that the model requested was corrected"
            );
            let written = std::mem::replace(&mut call.tool, offered);
            self.renamed.insert(call.id.clone(), written);
        }
        call.provider_id = Some(ProviderId { api: Arc::clone(&self.api), id });
        self.turn.parts.push(TurnPart::Call(call));
    }

    /// The offered tool that a model means by a name that is not offered: in another case, after a namespace, as
    /// `functions.search`, or before a token that its server did not take off, as `search<|channel|>commentary`.
    fn meant(&self, name: &str) -> Option<String> {
        if self.tools.iter().any(|tool| tool.name == name) {
            return None;
        }
        let name = name.split("<|").next().unwrap_or(name).trim();
        let bare = name.rsplit(['.', ':', '/']).next().unwrap_or(name);
        let mut close = self.tools.iter().filter(|tool| tool.name.eq_ignore_ascii_case(bare));
        match (close.next(), close.next()) {
            (Some(only), None) => Some(only.name.clone()),
            _ => None,
        }
    }

    fn is_clients(&self, tool: &str) -> bool {
        self.client_tools.iter().any(|offered| offered.name == tool)
    }
}
