//! Code mode: programs call the tools that their caller may use.
//!
//! Each call enters the pipeline as a call of the caller, one level deeper and with the deadline of the call that runs
//! the program: a program may do nothing that its caller may not do. The program gets values and errors, and no token
//! or header of the caller.
//!
//! The requests of a program and their answers are in the journal of its run ([`program_run`]). A call that needs
//! approval ends the run, which can be resumed: the program is executed again, with the earlier answers.
//!
//! A program may propose its effects instead of having them made ([`proposing`]): one approval is for all of them ([`commit`]).

mod commit;
mod describe;
mod errors;
mod for_models;
mod journaled;
mod listed;
mod peer;
mod pipeline;
mod program_run;
mod proposing;
mod recorded;
mod stubs;
#[cfg(test)]
mod tests;
mod tokens;
mod wanted;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rust_decimal::Decimal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

pub use self::for_models::{HITS, MAX_HITS, PYTHON, RUN_PYTHON, SEARCH_TOOLS, model_hit, model_tools};
pub use self::pipeline::ToolPipeline;
pub(crate) use self::program_run::{ProgramInput, ProgramRun, digest_of, digest_of_job, keys_of};

use self::errors::{error_json, no_more_calls, value_json};
use self::listed::Listed;
use self::peer::NestedPeer;
use self::program_run::{NeededByCall, RunKeys, Stop, UnknownCall, end_run, outcome_unknown};
use self::proposing::{Proposing, list_read};
use self::recorded::{end_replay, record};
use self::tokens::Tokens;
use self::wanted::{Wanted, WantedCall};
use sekisho_calls::journals::{Found, RunJournal};
use sekisho_core::call::{
    Arguments, BudgetScopes, CallCharging, CallClient, CallContext, CallNesting, CallOrigin, CallResumption, Deadline,
    NestedCall, ParentCall, Via,
};
use sekisho_core::error::CallError;
use sekisho_core::json;
use sekisho_core::peer::ClientPeer;
use sekisho_core::tool_scope::NestedScope;
use sekisho_guest_protocol::{MAX_OPEN_REQUESTS, Outcome, ToolQuestion, ToolReply, ToolRequest};
use sekisho_observe::telemetry;

/// Answers the requests of a program to tools.
pub(crate) trait ToolHost: Send + Sync {
    /// `None`: the run of the program is to end. Dropping the future cancels the call that was asked for.
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, Option<ToolReply>>;
}

/// The run of a program is to end before the program does.
#[derive(Debug)]
pub(crate) struct RunIsToEnd;

/// Answers the questions of a program, several at the same time, until it ends. When its run is to end first, open
/// requests come to their end, and nothing new is begun.
pub(crate) async fn answer_all(
    mut asked: mpsc::Receiver<ToolRequest>,
    tools: &dyn ToolHost,
    send: impl Fn(ToolReply),
) -> Result<(), RunIsToEnd> {
    let (mut answering, mut is_to_end) = (FuturesUnordered::new(), false);
    loop {
        tokio::select! {
            request = asked.recv(), if !is_to_end && answering.len() < MAX_OPEN_REQUESTS => match request {
                Some(request) => answering.push(tools.answer(request)),
                None => return Ok(()),
            },
            Some(reply) = answering.next() => match reply {
                Some(reply) if !is_to_end => send(reply),
                Some(_) => {}
                None => is_to_end = true,
            },
            else => return Err(RunIsToEnd),
        }
    }
}

/// The tools of one program.
pub(crate) struct ProgramTools<'a> {
    pipeline: Arc<dyn ToolPipeline>,
    /// The call that runs the program.
    call: &'a CallContext,
    deadline: Deadline,
    max_calls: u32,
    parent: Arc<ParentCall>,
    scopes: BudgetScopes,
    peer: Option<Arc<dyn ClientPeer>>,
    keys: RunKeys,
    nested_scope: NestedScope,
    journal: Option<RunJournal>,
    /// For a program that proposes its effects, which has a journal.
    proposing: Option<Proposing>,
    /// Why the run is to end; the first reason counts.
    stop: Mutex<Option<Stop>>,
}

impl<'a> ProgramTools<'a> {
    /// `None` for a program without tools. `max_calls`: for all programs below one call from outside, together.
    pub(crate) fn new(
        run: ProgramRun,
        call: &'a CallContext,
        program: &str,
        max_calls: u32,
        deadline: Deadline,
    ) -> Option<Self> {
        let ProgramRun { pipeline, journal, keys, earlier, scope: nested_scope, proposes } = run;
        let pipeline = pipeline?;
        let calls_left = match &call.nesting.parent {
            Some(parent) => Arc::clone(&parent.calls_left),
            None => Arc::new(AtomicU32::new(max_calls)),
        };
        let program = digest_of(earlier, program);
        Some(Self {
            scopes: scopes(&*pipeline, call, journal.as_ref()),
            pipeline,
            call,
            deadline,
            max_calls,
            parent: Arc::new(ParentCall { id: call.id, program, calls_left }),
            peer: call.client.peer.clone().map(|peer| Arc::new(NestedPeer::new(peer)) as Arc<dyn ClientPeer>),
            keys,
            nested_scope,
            journal,
            proposing: proposes.then(|| Proposing::new(Tokens::new(&keys.base))),
            stop: Mutex::default(),
        })
    }

    /// Whether the run is to end before its program.
    pub(crate) fn is_to_end(&self) -> bool {
        self.stop.lock().is_some()
    }

    /// The result for the caller when the program has ended, or its run was to end. Effects that it proposes are approved and made.
    /// Errors of the outcome, and why the run has ended.
    pub(crate) async fn end(self, mut outcome: Result<Outcome, CallError>) -> Result<Outcome, CallError> {
        if let Ok(outcome) = &mut outcome {
            // Boxed, because few programs propose something. Where the run is to end, `stop` says why.
            Box::pin(self.commit(outcome)).await;
        }
        let Some(journal) = self.journal else { return outcome };
        let stop = self.stop.into_inner();
        if journal.replay().is_some() {
            return end_replay(&journal, stop, outcome);
        }
        if let (None, Ok(outcome)) = (&stop, &outcome)
            && journal.is_recorded()
            && journal.is_caught_up()
        {
            // Boxed, because few runs are recorded.
            Box::pin(record(&journal, self.call, &self.pipeline.policy_version(), outcome)).await;
        }
        end_run(journal, stop, outcome).await
    }

    /// The JSON of the answer to a request, or of an error. `None`: the run is to end.
    async fn answer_new(
        &self,
        number: u32,
        wanted: Wanted,
        may_repeat: bool,
        reason: StartReason,
    ) -> Option<Result<String, String>> {
        // Before each effect: who has lost the run to another process makes none.
        if !may_repeat || reason.shown_reasons.is_some() {
            self.record_start(number, reason.approval.as_ref()).await?;
        }
        let answer = match wanted {
            Wanted::Call(call) => self.make_call(number, call, reason).await?,
            // No program can ask this.
            Wanted::Inquiry(ToolQuestion::Fetch(_)) => return None,
            Wanted::Inquiry(ToolQuestion::Search { query, limit }) => json_of(Ok(self.search(&query, limit))),
            Wanted::Inquiry(ToolQuestion::DescribeIdentifier(name)) => json_of(self.describe_identifier(&name)),
            Wanted::Inquiry(ToolQuestion::Describe(name) | ToolQuestion::Call { tool: name, .. }) => {
                json_of(self.describe(&name))
            }
        };
        self.record_answer(number, &answer, may_repeat).await?;
        Some(answer)
    }

    /// The JSON of the tool's value, or of the error. `None`: an approval is needed first, and the run is to end.
    async fn make_call(&self, number: u32, call: WantedCall, reason: StartReason) -> Option<Result<String, String>> {
        let WantedCall { ordinal, tool, arguments, .. } = call;
        // An effect was counted when the program proposed it.
        let was_counted = reason.shown_reasons.is_some();
        let admitted = |arguments| if was_counted { Ok(arguments) } else { self.admitted(arguments) };
        let arguments = match arguments.and_then(admitted) {
            Ok(arguments) => arguments,
            Err(error) => return Some(Err(error_json(&error))),
        };
        let context = self.context(ordinal, tool.clone(), &arguments, reason);
        let mut listed = Listed::new(self.call, &context);
        let answered = Arc::clone(&self.pipeline).call(context, arguments).await;
        let reply = &answered.reply;
        let ended = NestedCall {
            call_id: reply.receipt.call_id,
            tool: String::new(),
            code: reply.outcome.as_ref().err().map(CallError::code),
            cost_usd: reply.cost_usd,
            duration: reply.duration,
            nested: reply.receipt.nested.clone(),
        };
        listed.end(ended);
        self.record_charge(&answered);
        if let Some(journal) = &self.journal
            && let (Some(approval), Err(error)) = (answered.needed_approval(), &reply.outcome)
        {
            journal.pause(number, &approval.id);
            // At once, while other calls end: it was not made.
            self.recorded(journal.write().await)?;
            let (message, details) = (error.message().to_owned(), error.details().to_vec());
            let approval = approval.clone();
            return self.stop_run(Stop::Approval(NeededByCall { tool: Some(tool), message, details, approval }));
        }
        Some(match &reply.outcome {
            Ok(answer) => value_json(&answer.output).map_err(|error| error_json(&error)),
            Err(error) => Err(error_json(error)),
        })
    }

    /// The arguments of a call that may be made.
    fn admitted(&self, arguments: Arguments) -> Result<Arguments, CallError> {
        if self.parent.take_call() { Ok(arguments) } else { Err(no_more_calls(self.max_calls)) }
    }

    /// The call of a tool, with no more than its caller's own.
    fn context(&self, ordinal: u32, tool: String, arguments: &Arguments, reason: StartReason) -> CallContext {
        let StartReason { approval, was_not_made, shown_reasons } = reason;
        let of_run = Sha256::new().chain_update(self.keys.base).chain_update(ordinal.to_be_bytes());
        let of_run = of_run.chain_update(tool.as_bytes()).chain_update([0]);
        let key = hex::encode(&of_run.chain_update(json::digest(arguments)).finalize()[..16]);
        let outer = self.call;
        CallContext {
            must_end_by: Some(self.deadline.0),
            origin: CallOrigin {
                request: outer.origin.request.clone(),
                batch: outer.origin.batch.clone(),
                trace: telemetry::current().or_else(|| outer.origin.trace.clone()),
                session: outer.origin.session.clone(),
                values_of: outer.origin.values_of.clone(),
                run: outer.origin.run.clone(),
                user_text: outer.origin.user_text.clone(),
                asked: outer.origin.asked.clone(),
                claimed_user: outer.origin.claimed_user.clone(),
                prompt_params: outer.origin.prompt_params.clone(),
                tool_parameters: outer.origin.tool_parameters.clone(),
                handles: None,
            },
            nesting: CallNesting {
                depth: outer.nesting.depth + 1,
                parent: Some(Arc::clone(&self.parent)),
                scope: self.nested_scope.clone(),
            },
            resumption: CallResumption {
                // The record of an attempt that was not made says that its outcome is unknown.
                idempotency_key: (self.keys.are_recorded && !was_not_made).then(|| key.clone()),
                approval,
                run: None,
                shown_reasons,
                replay: None,
                upstream_key: Some(key.into()),
            },
            client: CallClient {
                peer: self.peer.clone(),
                session: outer.client.session.clone(),
                ..CallClient::default()
            },
            charging: CallCharging { scopes: self.scopes.clone(), sink: None },
            ..CallContext::new(tool, Arc::clone(&outer.caller), Via::Sandbox)
        }
    }
}

impl ToolHost for ProgramTools<'_> {
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, Option<ToolReply>> {
        let ToolRequest { number, question, read } = request;
        let wanted = Wanted::of(question);
        let is_captured = self.captures(&wanted);
        let may_repeat = is_captured || self.may_repeat(&wanted);
        // At once: the journal has requests in their order.
        let found = self.find(number, &wanted, may_repeat, read);
        Box::pin(async move {
            let answer = match &self.proposing {
                None => self.answer_found(number, wanted, (may_repeat, found?), None).await?,
                Some(proposing) => {
                    proposing.count(number);
                    let found = (may_repeat, found?);
                    Box::pin(self.answer_and_list(proposing, number, (wanted, is_captured), found)).await?
                }
            };
            let (is_ok, json) = answer.map_or_else(|error| (false, error), |value| (true, value));
            Some(ToolReply { number, is_ok, json: json.into_bytes() })
        })
    }
}

impl ProgramTools<'_> {
    /// The answer to a request of which the journal says this. `None`: the run is to end. `shown_reasons`: of an effect that is approved.
    /// They hold for one attempt: for a second one, and where the effect needed an approval of its own, the list's one does not count.
    async fn answer_found(
        &self,
        number: u32,
        wanted: Wanted,
        (may_repeat, found): (bool, Found),
        shown_reasons: Option<Arc<[String]>>,
    ) -> Option<Result<String, String>> {
        let none_shown = || shown_reasons.as_ref().map(|_| Arc::<[String]>::default());
        let reason = match found {
            Found::Answered(answer) => {
                self.check_replayed(&wanted, &answer)?;
                self.count_replayed(&wanted);
                return Some(if answer.is_ok { Ok(answer.json) } else { Err(answer.json) });
            }
            Found::OutcomeUnknown => return self.stop_run(Stop::OutcomeUnknown(UnknownCall::of(&wanted))),
            Found::LeftUnknown => {
                self.count_replayed(&wanted);
                let answer = Err(error_json(&outcome_unknown(wanted.tool())));
                self.record_answer(number, &answer, false).await?;
                return Some(answer);
            }
            Found::New { approval: None } => StartReason { shown_reasons, ..StartReason::default() },
            Found::New { approval } => StartReason { approval, shown_reasons: none_shown(), was_not_made: false },
            Found::NotMade => StartReason { approval: None, shown_reasons: none_shown(), was_not_made: true },
            Found::Diverged => return None,
        };
        self.answer_new(number, wanted, may_repeat, reason).await
    }

    /// The same for a program that proposes its effects: each of its calls is listed for the approver.
    async fn answer_and_list(
        &self,
        proposing: &Proposing,
        number: u32,
        (wanted, is_captured): (Wanted, bool),
        (may_repeat, found): (bool, Found),
    ) -> Option<Result<String, String>> {
        let (was_answered, call) = (matches!(found, Found::Answered(_)), wanted.as_call());
        if let (Found::New { .. } | Found::NotMade, Some(call), true) = (&found, &call, is_captured) {
            let answer = self.capture(proposing, call).await;
            self.record_answer(number, &answer, true).await?;
            return Some(answer);
        }
        let answer = self.answer_found(number, wanted, (may_repeat, found), None).await?;
        match call {
            Some(call) if was_answered => self.list_again(proposing, &call, &answer).await?,
            Some(call) => list_read(proposing, &call, &answer),
            None => {}
        }
        Some(answer)
    }
}

/// Why a call is made now.
#[derive(Default)]
struct StartReason {
    approval: Option<Arc<str>>,
    /// Whether it was started before, and somebody said that it was not made.
    was_not_made: bool,
    /// For an effect: why it would need an approval by itself. The approver of all effects was shown them.
    shown_reasons: Option<Arc<[String]>>,
}

fn json_of(described: Result<Value, CallError>) -> Result<String, String> {
    described.and_then(|value| value_json(&value)).map_err(|error| error_json(&error))
}

/// All calls of a program are one request: the request of the call that runs it, or without one that call, with its
/// price. A run that is resumed is the request of the call that began it.
fn scopes(pipeline: &dyn ToolPipeline, call: &CallContext, journal: Option<&RunJournal>) -> BudgetScopes {
    let mut scopes = call.charging.scopes.clone();
    if scopes.request.is_none() {
        let id = journal.map_or_else(|| call.id.to_string(), |journal| journal.id().to_string());
        scopes.request = Some(format!("call:{id}"));
        let before = journal.map_or(Decimal::ZERO, RunJournal::spent_before);
        scopes.spent_before = pipeline.price(call).saturating_add(before);
    }
    scopes
}
