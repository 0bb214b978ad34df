//! One call: who makes it, what it is for, and by when.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    BudgetScopes, CallId, ChargeSink, Deadline, InterpreterNote, NestedCalls, OnBehalf, OpenTime, ParentCall,
    QueueTime, ResultHandles, Sending, Target, TraceParent, Undo, Upload, Via,
};
use crate::caller::Caller;
use crate::client_request::ClientRequest;
use crate::coercion::Coercion;
use crate::peer::{ClientPeer, ClientSession};
use crate::session::Session;
use crate::share::Lease;
use crate::tool_scope::NestedScope;

/// One call of one tool on its way through the pipeline, except for its arguments, whose owner and type change from
/// stage to stage.
#[derive(Debug)]
pub struct CallContext {
    pub id: CallId,
    /// The name as the caller wrote it; there may be no such tool. With a `target` the requested method.
    pub tool: String,
    /// What is requested, if it is not a tool.
    pub target: Option<Box<Target>>,
    pub caller: Arc<Caller>,
    pub via: Via,
    /// 0 for a call from outside, parent + 1 for a call made by a running tool.
    pub depth: u32,
    /// Of a call made by a running tool.
    pub parent: Option<Arc<ParentCall>>,
    /// The tools that calls made by its tool may use, of those of the caller; for such a call, those that it may use.
    pub nested_scope: NestedScope,
    /// The calls that its tool has made.
    pub nested: NestedCalls,
    /// The session of an interpreter in which its program ran.
    pub interpreter: InterpreterNote,
    /// Run every stage but execution.
    pub dry_run: bool,
    /// The arrival of the call: queueing and every later wait count from here.
    pub received: Instant,
    /// A deadline set from outside (a parent call, a client), in addition to the tool's own timeout.
    pub must_end_by: Option<Instant>,
    /// The request that it came with, if it came from outside of this process.
    pub request: Option<Arc<ClientRequest>>,
    pub scopes: BudgetScopes,
    pub session: Option<Arc<Session>>,
    /// `session_context.user_id`: never an identity, only passed on and recorded.
    pub claimed_user: Option<String>,
    /// `session_context.prompt_params`, for adapters (E43).
    pub prompt_params: Map<String, Value>,
    /// `session_context.tool_parameters`, for adapters.
    pub tool_parameters: Map<String, Value>,
    pub trace: Option<TraceParent>,
    pub idempotency_key: Option<String>,
    /// The id of the approval by which it is made (`X-Approval-Id`).
    pub approval: Option<Arc<str>>,
    /// The run of a program that it resumes.
    pub resumed_run: Option<Arc<str>>,
    /// Set where its result goes to a model that can read a stored one.
    pub handles: Option<ResultHandles>,
    /// The client wants it to run as a task.
    pub as_task: bool,
    /// The client, if it can be contacted while the call runs.
    pub peer: Option<Arc<dyn ClientPeer>>,
    /// What the client adds for the tool's server, beside the arguments: the `_meta` of an MCP request.
    pub client_meta: Map<String, Value>,
    /// Whether its price is refunded when it ends.
    pub sending: Sending,
    /// The MCP session of the call, where the client's revision has sessions.
    pub client_session: Option<Arc<dyn ClientSession>>,
    /// How long it has waited for sessions of MCP servers to start: not counted as the tool's time.
    pub starting: OpenTime,
    /// How long it has waited for slots, queues and look-ups of the gateway: not counted as the tool's time either.
    pub queueing: Arc<QueueTime>,
    /// What its arguments take of the memory for bodies.
    pub memory: Option<Arc<Lease>>,
    /// The file that its arguments name, where the request's body is one.
    pub upload: Option<Arc<Upload>>,
    /// Changes of its form before it came here, for its receipt.
    pub corrections: Vec<Coercion>,
    /// The id that an agent's run has for it.
    pub agent_call: Option<Box<str>>,
    /// Sent to an HTTP API as its `Idempotency-Key`: the same one when whoever records the call sends it again.
    pub upstream_key: Option<Arc<str>>,
    /// Who stores its charge; otherwise it is written in the background.
    pub charges: Option<Arc<dyn ChargeSink>>,
    /// What is undone if its caller leaves before it has the result.
    pub undo: Option<Arc<Undo>>,
}

impl CallContext {
    /// A call from outside with only the essential fields; the transports add the rest.
    pub fn new(tool: impl Into<String>, caller: Arc<Caller>, via: Via) -> Self {
        Self {
            id: CallId::new(),
            tool: tool.into(),
            target: None,
            caller,
            via,
            depth: 0,
            parent: None,
            nested_scope: NestedScope::default(),
            nested: NestedCalls::default(),
            interpreter: InterpreterNote::default(),
            dry_run: false,
            received: Instant::now(),
            must_end_by: None,
            request: None,
            scopes: BudgetScopes::default(),
            session: None,
            claimed_user: None,
            prompt_params: Map::new(),
            tool_parameters: Map::new(),
            trace: None,
            idempotency_key: None,
            approval: None,
            resumed_run: None,
            handles: None,
            as_task: false,
            peer: None,
            client_meta: Map::new(),
            sending: Sending::default(),
            client_session: None,
            starting: OpenTime::default(),
            queueing: Arc::default(),
            memory: None,
            upload: None,
            corrections: Vec::new(),
            agent_call: None,
            upstream_key: None,
            charges: None,
            undo: None,
        }
    }

    /// A further call of the same caller for the same target, which arrives now.
    #[must_use]
    pub fn repeated(&self) -> Self {
        Self {
            target: self.target.clone(),
            depth: self.depth,
            parent: self.parent.clone(),
            nested_scope: self.nested_scope.clone(),
            dry_run: self.dry_run,
            must_end_by: self.must_end_by,
            request: self.request.clone(),
            scopes: self.scopes.clone(),
            session: self.session.clone(),
            claimed_user: self.claimed_user.clone(),
            prompt_params: self.prompt_params.clone(),
            tool_parameters: self.tool_parameters.clone(),
            trace: self.trace.clone(),
            idempotency_key: self.idempotency_key.clone(),
            approval: self.approval.clone(),
            resumed_run: self.resumed_run.clone(),
            handles: self.handles.clone(),
            as_task: self.as_task,
            peer: self.peer.clone(),
            client_meta: self.client_meta.clone(),
            client_session: self.client_session.clone(),
            upstream_key: self.upstream_key.clone(),
            charges: self.charges.clone(),
            undo: self.undo.clone(),
            ..Self::new(self.tool.clone(), Arc::clone(&self.caller), self.via)
        }
    }

    /// The deadline of the call, given the timeout of its tool, which counts from its arrival, without the time that it has
    /// waited in queues of the gateway.
    pub fn deadline(&self, tool_timeout: Duration) -> Deadline {
        let own = self.received + tool_timeout + self.queueing.total();
        Deadline(self.must_end_by.map_or(own, |outer| own.min(outer)))
    }

    /// From now on its waits in queues of the gateway end while its tool, with this timeout, can still answer.
    pub fn limit_queueing(&self, tool_timeout: Duration) {
        self.queueing.set_ends(self.begin_by(tool_timeout), self.must_end_by);
    }

    /// The end of its waits in queues of the gateway, given the timeout of its tool. An outer deadline leaves the tool half of
    /// the time that it gives, so that nothing is sent that cannot be answered.
    pub fn begin_by(&self, tool_timeout: Duration) -> Instant {
        let own = self.received + tool_timeout;
        self.must_end_by.map_or(own, |outer| {
            let given = outer.saturating_duration_since(self.received).min(tool_timeout);
            own.min(outer - given / 2)
        })
    }

    /// The time until now in which the tool's time was paused: queues of the gateway, sessions that start, questions to the
    /// client.
    pub fn paused(&self) -> Duration {
        self.queueing.total() + self.paused_elsewhere()
    }

    /// For the requests that are sent for this call.
    pub fn on_behalf(&self) -> OnBehalf {
        let (owner, queueing) = (self.caller.owner.clone(), Arc::clone(&self.queueing));
        OnBehalf { owner, sent: self.sending.flag(), queueing }
    }

    /// The session whose stored results it may read.
    pub fn session_of_results(&self) -> Option<&str> {
        match &self.handles {
            Some(handles) => handles.session.as_deref(),
            None => self.session.as_deref().map(|session| &*session.id),
        }
    }

    /// Whether the MCP session of the call has ended.
    pub fn client_has_gone(&self) -> bool {
        self.client_session.as_ref().is_some_and(|session| session.ended().is_cancelled())
    }

    /// Waits for `work` until the deadline; `None` when it is not done by then. The tool's time is paused while the
    /// client considers a question, a session of the tool's server starts, or the call waits in a queue of the gateway: all
    /// have limits of their own, which may be longer than the tool's.
    pub async fn within<T>(&self, deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let (queued_before, mut end) = (self.queueing.total(), deadline.0);
        loop {
            match tokio::time::timeout_at(end, work.as_mut()).await {
                Ok(done) => return Some(done),
                Err(_) => {
                    let queued = self.queueing.total().saturating_sub(queued_before);
                    end = self.later_end(self.queueing.later(deadline, queued), end)?;
                }
            }
        }
    }

    fn later_end(&self, deadline: Deadline, end: Instant) -> Option<Instant> {
        /// Maximum interval between checks of what is still open.
        const LOOK_AGAIN: Duration = Duration::from_millis(100);
        let later = deadline.0 + self.paused_elsewhere();
        (later > end).then(|| later.max(Instant::now() + LOOK_AGAIN))
    }

    /// Paused for what is not the gateway's own.
    fn paused_elsewhere(&self) -> Duration {
        let asking = self.peer.as_ref().map_or(Duration::ZERO, |peer| peer.time_asking());
        asking + self.starting.total()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::caller::Owner;
    use crate::peer::{Answers, LogLevel, LogMessage, Progress, Questions, Unanswered};

    /// A client that starts to consider a question when the call arrives, and takes this long.
    #[derive(Debug)]
    struct Thinking {
        began: Instant,
        thinks: Duration,
    }

    impl ClientPeer for Thinking {
        fn owner(&self) -> &Owner {
            Owner::gateway()
        }
        fn capabilities(&self) -> &Value {
            &Value::Null
        }
        fn wants_progress(&self) -> bool {
            false
        }
        fn log_level(&self) -> Option<LogLevel> {
            None
        }
        fn time_asking(&self) -> Duration {
            self.began.elapsed().min(self.thinks)
        }
        fn progress(&self, _progress: Progress) {}
        fn log(&self, _message: LogMessage) {}
        fn ask(&self, _questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
            async { Err(Unanswered::Unsupported) }.boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tools_time_is_paused_while_its_client_considers_a_question() {
        let seconds = Duration::from_secs;
        let mut call = CallContext::new("t", Arc::new(Caller::anonymous()), Via::Mcp);
        let began = call.received;
        assert_eq!(call.within(call.deadline(seconds(30)), std::future::pending::<()>()).await, None);
        assert_eq!(began.elapsed(), seconds(30));

        call.received = Instant::now();
        call.peer = Some(Arc::new(Thinking { began: call.received, thinks: seconds(110) }));
        let began = call.received;
        assert_eq!(call.within(call.deadline(seconds(30)), std::future::pending::<()>()).await, None);
        assert_eq!(began.elapsed(), seconds(140), "its own thirty seconds, and those of the client");
        let answered = call.within(call.deadline(seconds(30)), std::future::ready(7)).await;
        assert_eq!(answered, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_tools_time_begins_after_the_queues_of_the_gateway() {
        let seconds = Duration::from_secs;
        let call = CallContext::new("t", Arc::new(Caller::anonymous()), Via::Rest);
        call.queueing.set_ends(call.begin_by(seconds(30)), None);
        let waiting = call.queueing.begin();
        tokio::time::sleep(seconds(28)).await;
        drop(waiting);
        assert_eq!(call.deadline(seconds(30)), Deadline(call.received + seconds(58)));
        let work = async {
            let waiting = call.queueing.begin();
            tokio::time::sleep(seconds(1)).await;
            drop(waiting);
            std::future::pending::<()>().await;
        };
        assert_eq!(call.within(call.deadline(seconds(30)), work).await, None);
        assert_eq!((call.received.elapsed(), call.paused()), (seconds(59), seconds(29)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_leaves_the_tool_half_of_what_an_outer_deadline_gives() {
        let seconds = Duration::from_secs;
        let mut call = CallContext::new("t", Arc::new(Caller::anonymous()), Via::Sandbox);
        for (outer, begin_by) in
            [(None, 30), (Some(100), 30), (Some(45), 30), (Some(30), 15), (Some(4), 2), (Some(0), 0)]
        {
            call.must_end_by = outer.map(|outer| call.received + seconds(outer));
            assert_eq!(call.begin_by(seconds(30)), call.received + seconds(begin_by), "{outer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tools_time_is_paused_while_a_session_starts() {
        let seconds = Duration::from_secs;
        let call = CallContext::new("t", Arc::new(Caller::anonymous()), Via::Rest);
        let work = async {
            let starting = call.starting.open();
            tokio::time::sleep(seconds(40)).await;
            drop(starting);
            std::future::pending::<()>().await;
        };
        assert_eq!(call.within(call.deadline(seconds(30)), work).await, None);
        assert_eq!(call.received.elapsed(), seconds(70), "its own thirty seconds, and those of the start");
    }
}
