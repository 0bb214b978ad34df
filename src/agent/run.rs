//! The loop: turns until the model answers, within the profile's limits.
//!
//! The work of a run is one stream that borrows its [`Progress`]: an end from outside (abort, wall time) drops the
//! work and keeps the progress.

mod answer_watch;
mod compaction;
mod cut;
mod making_room;
mod progress;
mod room;

use std::pin::pin;
use std::time::Duration;

use async_stream::{stream, try_stream};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Instrument, Span};

use super::event::{Event, FinishReason, RunError};
use super::message::RequestedCall;
use super::meter::{Meter, MeteredModel};
use super::models::fallback::longest_silence;
use super::models::retry;
use super::models::retry::RetryPolicy;
use super::models::{ModelError, StopReason};
use super::toolbox::{OnApproval, ToolAnswer, Toolbox, ToolboxCall};
use super::{Agent, RunInput, TurnObserver};
use sekisho_config::AgentProfile;
use sekisho_core::call::Arguments;
use sekisho_core::coercion::Coercion;
use sekisho_core::error::NeededApproval;
use sekisho_observe::telemetry;

use self::progress::Progress;

pub(super) use self::compaction::transcript;
pub(super) use self::making_room::transcript_characters;
pub(super) use self::room::longest_prompt;

/// How long one call of a run waits for a tool that says when to come again: as long as most tools may take.
const MAX_READY_WAIT: Duration = Duration::from_secs(30);

/// The first wait at least, doubled for each later one: an upstream that says "at once" is not asked without a pause.
const MIN_READY_WAIT: Duration = Duration::from_millis(500);

/// Why the run ends.
#[derive(Debug)]
enum Ending {
    Answered(StopReason),
    /// The turn's remaining calls are for the client to run.
    ClientTools,
    /// The turn's remaining calls wait for an approver.
    Approval {
        message: String,
    },
    Limit {
        status: &'static str,
        message: String,
    },
    Failed(ModelError),
    Aborted,
}

/// One call of a turn; a call that cannot be run has the reason in place of its arguments.
#[derive(Debug)]
struct CheckedCall {
    call: RequestedCall,
    arguments: Result<Arguments, String>,
    /// The corrections of the call.
    corrections: Vec<Coercion>,
    on_approval: OnApproval,
}

/// A call that has an answer, or ended without one.
#[derive(Debug)]
struct MadeCall {
    call: RequestedCall,
    answer: ToolAnswer,
    /// The approval for which the run pauses.
    pause: Option<NeededApproval>,
}

pub(super) fn run(agent: Agent, input: RunInput) -> impl Stream<Item = Event> + Send + 'static {
    stream! {
        let RunInput { messages, client_tools, options, abort, meter, span, observer, pauses, call_ids } = input;
        let profile = &*agent.profile;
        let mut progress = Progress::new(messages, client_tools, options, meter, profile, (pauses, call_ids));
        // A deadline that the clock cannot represent is no deadline.
        let end = Instant::now().checked_add(profile.max_run());
        let ending = {
            let mut work = pin!(turns(&agent, &mut progress, (&span, observer.as_ref()), end));
            loop {
                let step = tokio::select! {
                    biased;
                    () = abort.cancelled() => Err(Ending::Aborted),
                    () = passing_of(end) => Err(out_of_time(profile)),
                    step = work.next() => step.unwrap_or(Err(Ending::Answered(StopReason::Stop))),
                };
                match step {
                    Ok(event) => yield event,
                    Err(ending) => break ending,
                }
            }
        };
        for event in progress.close(ending) {
            yield event;
        }
    }
}

/// Turns until an [`Ending`], which is returned as the error. `end`: when the run is stopped.
fn turns<'a>(
    agent: &'a Agent,
    progress: &'a mut Progress,
    (run, observer): (&'a Span, Option<&'a TurnObserver>),
    end: Option<Instant>,
) -> impl Stream<Item = Result<Event, Ending>> + Send + 'a {
    let profile = &*agent.profile;
    let meter = progress.meter();
    try_stream! {
        if let Some(event) = progress.offer(agent.toolbox.list().await, profile) {
            yield event;
        }
        let paused = progress.resume();
        if !paused.is_empty() {
            let span = telemetry::turn_span(run);
            {
                let mut events = pin!(answer_calls(agent, progress, paused, &span, end));
                while let Some(event) = events.next().await {
                    yield event;
                }
            }
            progress.end_resumed()?;
        }
        loop {
            progress.begin_turn(profile)?;
            let span = telemetry::turn_span(run);
            {
                let mut events = pin!(answer_of_model(agent, progress, &meter, &span, end));
                while let Some(event) = events.next().await {
                    yield event?;
                }
            }
            let (own, clients) = match progress.calls(profile) {
                Err(Ending::Answered(stop)) if progress.holds_answer_back() => {
                    let Some(text) = progress.check_answer(stop)? else { continue };
                    yield Event::Content { text };
                    Err(Ending::Answered(stop))
                }
                calls => calls,
            }?;
            if let Some(observer) = observer {
                observer.observe(progress.turn());
            }
            {
                let mut events = pin!(answer_calls(agent, progress, own, &span, end));
                while let Some(event) = events.next().await {
                    yield event;
                }
            }
            for RequestedCall { id, tool: tool_name, arguments, .. } in clients {
                yield Event::ClientToolCall { id, tool_name, arguments };
            }
            progress.end_turn()?;
        }
    }
}

/// One answer of the model. A conversation that is too long for it is compacted before the request or, if the provider
/// refuses it as too long, once after that.
fn answer_of_model<'a>(
    agent: &'a Agent,
    progress: &'a mut Progress,
    meter: &'a Meter,
    span: &'a Span,
    end: Option<Instant>,
) -> impl Stream<Item = Result<Event, Ending>> + Send + 'a {
    let profile = &*agent.profile;
    let policy = RetryPolicy { timeout: longest_silence(&*agent.model, profile), retries: profile.retries, end };
    try_stream! {
        let model = MeteredModel { model: &*agent.model, meter, profile, span, end };
        // Boxed, because few requests are too long.
        if let Some(event) = Box::pin(making_room::before_request(agent, progress, meter, span)).await {
            yield event;
        }
        let mut was_refused = false;
        loop {
            let mut refusal = None;
            {
                let request = progress.request(profile);
                let mut pieces = pin!(retry::ask(&model, request, policy));
                while let Some(piece) = pieces.next().await {
                    match piece {
                        Err(error @ ModelError::ContextLength(_)) if !was_refused && progress.is_silent() => {
                            refusal = Some(error);
                        }
                        piece => {
                            if let Some(event) = progress.handle(piece)? {
                                yield event;
                            }
                        }
                    }
                }
            }
            let Some(error) = refusal else { break };
            was_refused = true;
            match Box::pin(making_room::after_refusal(agent, progress, meter, span)).await {
                Some(event) => yield event,
                None => Err(Ending::Failed(error))?,
            }
        }
    }
}

/// Makes calls at the same time, and keeps their answers in order.
fn answer_calls<'a>(
    agent: &'a Agent,
    progress: &'a mut Progress,
    calls: Vec<CheckedCall>,
    span: &'a Span,
    end: Option<Instant>,
) -> impl Stream<Item = Event> + Send + 'a {
    let profile = &*agent.profile;
    let max_result_bytes = progress.room.max_result_bytes(profile);
    stream! {
        for checked in &calls {
            if let Some(event) = checked.announcement() {
                yield event;
            }
        }
        let waits: Vec<_> = calls.iter().map(|checked| progress.wait_before(&checked.call)).collect();
        let answers = stream::iter(calls.into_iter().zip(waits))
            .map(|(checked, wait)| {
                let call = telemetry::execute_tool_span(span, &checked.call.tool, &checked.call.id);
                answer(&*agent.toolbox, (checked, wait), max_result_bytes, end).instrument(call)
            });
        let mut answers = pin!(answers.buffered(profile.parallel_tool_calls.max(1)));
        while let Some(made) = answers.next().await {
            for event in progress.answered(made, profile) {
                yield event;
            }
        }
    }
}

/// Makes a call after its wait.
async fn answer(
    toolbox: &dyn Toolbox,
    (checked, wait): (CheckedCall, Duration),
    max_result_bytes: usize,
    end: Option<Instant>,
) -> MadeCall {
    let CheckedCall { call, arguments, corrections, on_approval } = checked;
    if !wait.is_zero() {
        sleep(wait).await;
    }
    let answer = match arguments {
        Ok(arguments) => {
            let (tool, on_approval) = (call.tool.clone(), on_approval.clone());
            let made = ToolboxCall::new(&call.id, tool, arguments);
            let call = ToolboxCall { corrections, max_result_bytes, on_approval, ..made };
            ask_until_ready(toolbox, &call, end).await
        }
        Err(problem) => ToolAnswer { success: false, text: problem, error_info: None, images: Vec::new() },
    };
    if !answer.success {
        let code = answer.error_info.as_ref().and_then(|info| info["code"].as_str());
        telemetry::fail_tool(&Span::current(), code);
    }
    let pause = on_approval.pause(&answer);
    MadeCall { call, answer, pause }
}

/// Waits where the tool says when to come again: a model that reads "call again in 2 s" has no way to wait.
async fn ask_until_ready(toolbox: &dyn Toolbox, call: &ToolboxCall, end: Option<Instant>) -> ToolAnswer {
    let until = Instant::now() + MAX_READY_WAIT;
    let until = end.map_or(until, |end| end.min(until));
    let mut least = MIN_READY_WAIT;
    loop {
        let answer = toolbox.call(call.clone()).await;
        let then = answer.retry_after().and_then(|wait| Instant::now().checked_add(wait.max(least)));
        least = least.saturating_mul(2);
        match then.filter(|then| *then < until) {
            Some(then) => sleep_until(then).await,
            None => return answer,
        }
    }
}

impl CheckedCall {
    /// `written`: the tool's name as the model wrote it, if that was corrected.
    fn new(call: RequestedCall, written: Option<&String>, on_approval: OnApproval) -> Self {
        let arguments = call.read_arguments().map_err(|problem| {
            format!("The arguments are not an acceptable JSON object ({problem}). The tool was not run; send the complete arguments again.")
        });
        let name = written.map(|written| Coercion::of_name(written, &call.tool));
        let decoded = (arguments.is_ok() && call.is_encoded_twice()).then(Coercion::decoded_twice);
        Self { call, arguments, corrections: name.into_iter().chain(decoded).collect(), on_approval }
    }

    /// A call that may be incomplete is not run, even if its arguments parse.
    fn cut_off(call: RequestedCall, max_tokens: u32) -> Self {
        let problem = format!(
            "The turn reached its token limit ({max_tokens} tokens) before this call was complete. The tool was not \
             run; send the call again, with shorter arguments or alone in its turn."
        );
        Self { call, arguments: Err(problem), corrections: Vec::new(), on_approval: OnApproval::default() }
    }

    fn announcement(&self) -> Option<Event> {
        let arguments = self.arguments.as_ref().ok()?.clone();
        Some(Event::ToolInput { id: self.call.id.clone(), tool_name: self.call.tool.clone(), arguments })
    }
}

impl Ending {
    fn reason(&self) -> FinishReason {
        match self {
            Self::Answered(StopReason::Length) => FinishReason::Length,
            Self::Answered(StopReason::Refusal) => FinishReason::Refusal,
            Self::Answered(StopReason::Stop | StopReason::ToolCalls | StopReason::Pause) => FinishReason::Stop,
            Self::ClientTools => FinishReason::ToolCalls,
            Self::Approval { .. } => FinishReason::ApprovalRequired,
            Self::Limit { .. } => FinishReason::Limit,
            Self::Failed(_) => FinishReason::Error,
            Self::Aborted => FinishReason::Aborted,
        }
    }

    /// The status event of an ending; an answer needs none.
    fn event(self) -> Option<Event> {
        match self {
            Self::Answered(_) | Self::ClientTools => None,
            Self::Approval { message } => {
                Some(Event::Status { status: FinishReason::ApprovalRequired.as_str().to_owned(), message })
            }
            Self::Limit { status, message } => Some(Event::Status { status: status.to_owned(), message }),
            Self::Failed(error) => Some(Event::Error(RunError::from(&error))),
            Self::Aborted => Some(Event::Status { status: "aborted".into(), message: "The run was aborted.".into() }),
        }
    }
}

fn out_of_time(profile: &AgentProfile) -> Ending {
    let message = format!("The run took longer than {} s and was stopped.", profile.max_run_seconds);
    Ending::Limit { status: "max_run_seconds", message }
}

async fn passing_of(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
