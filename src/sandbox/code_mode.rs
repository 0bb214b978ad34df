//! Code mode: programs call the tools that their caller may use.
//!
//! Each call enters the pipeline as a call of the caller, one level deeper and with the deadline of the call that runs the
//! program: what the caller may not do, its programs may not either. The program gets values and errors, and no token or
//! header of the caller.

mod describe;
mod errors;
mod for_models;
mod peer;
mod pipeline;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rust_decimal::Decimal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub use self::for_models::{HITS, MAX_HITS, PYTHON, RUN_PYTHON, SEARCH_TOOLS, model_hit, model_tools};
pub use self::pipeline::ToolPipeline;

use self::errors::{error_json, invalid_json, no_more_calls, value_json};
use self::peer::NestedPeer;
use super::protocol::{MAX_OPEN_REQUESTS, ToolQuestion, ToolReply, ToolRequest};
use crate::core::call::{Arguments, BudgetScopes, CallContext, Deadline, NestedCall, NestedCallList, ParentCall, Via};
use crate::core::error::{CallError, ErrorCode};
use crate::core::json;
use crate::core::peer::ClientPeer;
use crate::infra::telemetry;

/// Answers what a program asks of tools.
pub(super) trait ToolHost: Send + Sync {
    /// Dropping the future cancels the call that was asked for.
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, ToolReply>;
}

/// Answers the questions of a program, several at the same time, until it ends.
pub(super) async fn answer_all(mut asked: mpsc::Receiver<ToolRequest>, tools: &dyn ToolHost, send: impl Fn(ToolReply)) {
    let mut answering = FuturesUnordered::new();
    loop {
        tokio::select! {
            request = asked.recv(), if answering.len() < MAX_OPEN_REQUESTS => match request {
                Some(request) => answering.push(tools.answer(request)),
                None => return,
            },
            Some(reply) = answering.next() => send(reply),
        }
    }
}

/// The tools of one program.
pub(super) struct ProgramTools<'a> {
    pipeline: Arc<dyn ToolPipeline>,
    /// The call that runs the program.
    call: &'a CallContext,
    deadline: Deadline,
    parent: Arc<ParentCall>,
    scopes: BudgetScopes,
    peer: Option<Arc<dyn ClientPeer>>,
    /// Begins the key of each call: the same for a call that is sent again with its key.
    run: Sha256,
}

impl<'a> ProgramTools<'a> {
    /// `max_calls`: of all programs below one call from outside, together.
    pub(super) fn new(
        pipeline: Arc<dyn ToolPipeline>,
        call: &'a CallContext,
        program: &str,
        max_calls: u32,
        deadline: Deadline,
    ) -> Self {
        let calls_left = match &call.parent {
            Some(parent) => Arc::clone(&parent.calls_left),
            None => Arc::new(AtomicU32::new(max_calls)),
        };
        let program = Sha256::digest(program).into();
        Self {
            scopes: scopes(&*pipeline, call),
            pipeline,
            call,
            deadline,
            parent: Arc::new(ParentCall { id: call.id, program, calls_left }),
            peer: call.peer.clone().map(|peer| Arc::new(NestedPeer::new(peer)) as Arc<dyn ClientPeer>),
            run: run(call),
        }
    }

    /// The JSON of the tool's value, or of the error.
    async fn call(&self, ordinal: u32, tool: String, arguments: &str) -> Result<Vec<u8>, Vec<u8>> {
        let arguments = self.admitted(arguments).map_err(|error| error_json(&error))?;
        let context = self.context(ordinal, tool, &arguments);
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
        match &reply.outcome {
            Ok(answer) => value_json(&answer.output).map_err(|error| error_json(&error)),
            Err(error) => Err(error_json(error)),
        }
    }

    /// The arguments of a call that may be made.
    fn admitted(&self, arguments: &str) -> Result<Arguments, CallError> {
        let arguments = match json::parse(arguments.as_bytes()) {
            Ok(Value::Object(arguments)) => arguments,
            Ok(_) => return Err(CallError::new(ErrorCode::InvalidArguments, "the arguments of a tool are an object")),
            Err(error) => return Err(invalid_json(&error)),
        };
        if self.parent.take_call() { Ok(arguments) } else { Err(no_more_calls()) }
    }

    /// The call of a tool, with no more than its caller's own.
    fn context(&self, ordinal: u32, tool: String, arguments: &Arguments) -> CallContext {
        let of_run =
            self.run.clone().chain_update(ordinal.to_be_bytes()).chain_update(tool.as_bytes()).chain_update([0]);
        let key = hex::encode(&of_run.chain_update(json::digest(arguments)).finalize()[..16]);
        let outer = self.call;
        CallContext {
            depth: outer.depth + 1,
            parent: Some(Arc::clone(&self.parent)),
            nested_scope: outer.nested_scope.clone(),
            must_end_by: Some(self.deadline.0),
            request: outer.request.clone(),
            scopes: self.scopes.clone(),
            session: outer.session.clone(),
            claimed_user: outer.claimed_user.clone(),
            prompt_params: outer.prompt_params.clone(),
            tool_parameters: outer.tool_parameters.clone(),
            trace: telemetry::current().or_else(|| outer.trace.clone()),
            // A call with a key has a record in the store: only where the outer one has.
            idempotency_key: outer.idempotency_key.as_ref().map(|_| key.clone()),
            upstream_key: Some(key.into()),
            peer: self.peer.clone(),
            client_session: outer.client_session.clone(),
            ..CallContext::new(tool, Arc::clone(&outer.caller), Via::Sandbox)
        }
    }
}

impl ToolHost for ProgramTools<'_> {
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, ToolReply> {
        Box::pin(async move {
            let ToolRequest { number, question } = request;
            let answered = match question {
                ToolQuestion::Call { ordinal, tool, arguments } => self.call(ordinal, tool, &arguments).await,
                ToolQuestion::Describe(name) => json_of(self.describe(&name)),
                ToolQuestion::DescribeIdentifier(identifier) => json_of(self.describe_identifier(&identifier)),
                ToolQuestion::Search { query, limit } => json_of(Ok(self.search(&query, limit))),
            };
            let (is_ok, json) = answered.map_or_else(|error| (false, error), |value| (true, value));
            ToolReply { number, is_ok, json }
        })
    }
}

fn json_of(described: Result<Value, CallError>) -> Result<Vec<u8>, Vec<u8>> {
    described.and_then(|value| value_json(&value)).map_err(|error| error_json(&error))
}

/// All calls of a program are one request: that of the call that runs it, or without one that call, with its price.
fn scopes(pipeline: &dyn ToolPipeline, call: &CallContext) -> BudgetScopes {
    let mut scopes = call.scopes.clone();
    if scopes.request.is_none() {
        scopes.request = Some(format!("call:{}", call.id));
        scopes.spent_before = pipeline.price(call);
    }
    scopes
}

/// Identifies the run of a program: a call that is sent again with its key is the same run.
fn run(call: &CallContext) -> Sha256 {
    let id = call.id.to_string();
    let (kind, key) = match (&call.idempotency_key, &call.upstream_key) {
        (Some(key), _) => ("key", key.as_str()),
        (None, Some(key)) => ("upstream key", &**key),
        (None, None) => ("call", id.as_str()),
    };
    [&*call.caller.key, &*call.tool, kind, key]
        .into_iter()
        .fold(Sha256::new(), |run, part| run.chain_update((part.len() as u64).to_be_bytes()).chain_update(part))
}

/// A call under way, for the receipt of the outer one: it is cancelled unless it ends.
struct Listed<'a> {
    outer: &'a CallContext,
    call: Option<NestedCall>,
    begun: Instant,
}

impl<'a> Listed<'a> {
    fn new(outer: &'a CallContext, call: &CallContext) -> Self {
        let call = NestedCall {
            call_id: call.id,
            tool: call.tool.clone(),
            code: Some(ErrorCode::Cancelled),
            cost_usd: Decimal::ZERO,
            duration: Duration::ZERO,
            nested: NestedCallList::default(),
        };
        Self { outer, call: Some(call), begun: Instant::now() }
    }

    fn end(&mut self, ended: NestedCall) {
        if let Some(call) = self.call.take() {
            self.outer.nested.add(NestedCall { tool: call.tool, ..ended });
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.outer.nested.add(NestedCall { duration: self.begun.elapsed(), ..call });
        }
    }
}
