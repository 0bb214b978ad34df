//! The tools of this process's own gateway, called as one caller.

use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::images::find_images;
use super::{OnApproval, ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_calls::approval::MAX_WAIT;
use sekisho_calls::pipeline::{ErrorInfo, Reply};
use sekisho_core::call::{
    Arguments, BudgetScopes, CallBody, CallCharging, CallContext, CallNesting, CallOrigin, CallResumption, Caller,
    ChargeSink, ClientRequest, ResultHandles, TraceParent, Via,
};
use sekisho_core::error::{CallError, ErrorCode, NeededApproval};
use sekisho_core::session::Session;
use sekisho_gateway::{Gateway, WaitedAnswer};
use sekisho_observe::telemetry;

/// Every call goes through the pipeline, as the caller's own.
pub struct InProcess {
    pub gateway: Arc<Gateway>,
    pub caller: Arc<Caller>,
    /// The request that the run came with.
    pub request: Option<Arc<ClientRequest>>,
    pub scopes: BudgetScopes,
    pub session: Option<Arc<Session>>,
    /// The id of the stored conversation that it runs.
    pub conversation: Option<Arc<str>>,
    /// The id of that conversation's run; set as it begins.
    pub run: OnceLock<Arc<str>>,
    pub claimed_user: Option<String>,
    pub trace: Option<TraceParent>,
    /// As `session_context.tool_parameters` of a call: the caller's tokens for headers.
    pub tool_parameters: Map<String, Value>,
    /// Tools that are switched off for the caller's session (A53): neither listed nor run.
    pub off: BTreeSet<String>,
    /// The request of its run; set as it begins.
    pub asked: OnceLock<Arc<str>>,
}

impl InProcess {
    pub fn new(gateway: Arc<Gateway>, caller: Arc<Caller>) -> Self {
        Self {
            gateway,
            caller,
            request: None,
            // A toolbox serves one run, whose calls are one request (E60, E61).
            scopes: BudgetScopes { request: Some(Uuid::now_v7().to_string()), is_run: true, ..BudgetScopes::default() },
            session: None,
            conversation: None,
            run: OnceLock::new(),
            claimed_user: None,
            trace: None,
            tool_parameters: Map::new(),
            off: BTreeSet::new(),
            asked: OnceLock::new(),
        }
    }

    fn call_of(&self, call: ToolboxCall) -> (CallContext, Arguments) {
        let ToolboxCall { id, tool, arguments, corrections, max_result_bytes, record, nested_scope, .. } = call;
        let context = CallContext {
            origin: CallOrigin {
                request: self.request.clone(),
                trace: telemetry::current().or_else(|| self.trace.clone()),
                session: self.session.clone(),
                values_of: Some(self.values_of()),
                run: self.run.get().cloned(),
                asked: self.asked.get().cloned(),
                claimed_user: self.claimed_user.clone(),
                tool_parameters: self.tool_parameters.clone(),
                handles: Some(ResultHandles {
                    max_inline_bytes: self.gateway.pipeline.results.max_inline_bytes().min(max_result_bytes),
                    session: self.session.as_ref().map(|session| Arc::clone(&session.id)),
                }),
                ..CallOrigin::default()
            },
            nesting: CallNesting {
                scope: nested_scope.narrowed(&[], self.off.iter().cloned()),
                ..CallNesting::default()
            },
            resumption: CallResumption { upstream_key: record.key, ..CallResumption::default() },
            charging: CallCharging {
                scopes: self.scopes.clone(),
                sink: record.charges.map(|charges| charges as Arc<dyn ChargeSink>),
            },
            body: CallBody { corrections, agent_call: Some(id.into()), ..CallBody::default() },
            ..CallContext::new(tool, Arc::clone(&self.caller), Via::Agent)
        };
        (context, arguments)
    }
}

impl Toolbox for InProcess {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        let usable = self.gateway.pipeline.tools_for(&self.caller);
        let on = usable.usable().filter(|tool| tool.metadata.is_for_models() && !self.off.contains(tool.name()));
        let on: Vec<_> = on.collect();
        // Without another tool there are no results to read.
        let has_results = on.iter().any(|tool| !tool.metadata.reads_results());
        let tools = on.into_iter().filter(|_| has_results).map(|tool| ToolDescription::from(&**tool));
        let tools: Vec<_> = tools.collect();
        Box::pin(async { Ok(tools) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            if self.off.contains(&call.tool) {
                let text = format!("the tool `{}` is switched off for this session; use another", call.tool);
                return ToolAnswer { success: false, text, error_info: None, images: Vec::new() };
            }
            let on_approval = call.on_approval.clone();
            let (context, arguments) = self.call_of(call);
            let max_wait = match on_approval {
                OnApproval::Resume(approval) => {
                    // Boxed, because few runs have paused.
                    return match Box::pin(self.gateway.approvals().call_of_paused_run(context, arguments, &approval))
                        .await
                    {
                        Ok(answer) => answer.into(),
                        Err(needed) => undecided(needed),
                    };
                }
                OnApproval::Wait => MAX_WAIT,
                OnApproval::Pause => Duration::ZERO,
            };
            let max_wait = move |_| ready(max_wait).boxed();
            self.gateway.approvals().call_when_approved(Box::new(context), arguments, max_wait).await.into()
        })
    }
}

/// The answer of a call while nobody has decided about its approval.
fn undecided(needed: NeededApproval) -> ToolAnswer {
    let message = format!("the call waits for a person to decide at {}", needed.url);
    ToolAnswer::from(&CallError::new(ErrorCode::ApprovalRequired, message).needing(needed))
}

impl From<WaitedAnswer> for ToolAnswer {
    fn from(WaitedAnswer { answered, changed }: WaitedAnswer) -> Self {
        let answer = Self::from(&*answered.reply);
        match changed {
            Some(changed) => answer.after_change(&changed),
            None => answer,
        }
    }
}

impl ToolAnswer {
    /// The same for a model, which does not know the arguments that an approver wrote.
    fn after_change(self, changed: &Arguments) -> Self {
        let changed = Value::Object(changed.clone());
        Self { text: format!("[The approver changed the arguments to {changed}.]\n{}", self.text), ..self }
    }
}

impl From<&Reply> for ToolAnswer {
    fn from(reply: &Reply) -> Self {
        match &reply.outcome {
            Ok(answer) => {
                let blocks = answer.mcp.iter().flat_map(|result| &result.content);
                let (images, text) = find_images(blocks.chain([&answer.output]), answer.text.clone());
                Self { success: true, text, error_info: None, images }
            }
            Err(error) => Self::from(error),
        }
    }
}

impl From<&CallError> for ToolAnswer {
    fn from(error: &CallError) -> Self {
        Self {
            success: false,
            text: error.message().to_owned(),
            error_info: serde_json::to_value(ErrorInfo::from(error)).ok(),
            images: Vec::new(),
        }
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("InProcess")
            .field("caller", &self.caller)
            .field("off", &self.off)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
