//! One call: its caller, its tool, and its deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{
    CallBody, CallCharging, CallClient, CallId, CallNesting, CallOrigin, CallProgress, CallResumption, Deadline,
    OnBehalf, Target, Via,
};
use crate::caller::Caller;

/// One call of one tool on its way through the pipeline, except for its arguments, whose owner and type change from
/// stage to stage.
#[derive(Debug)]
pub struct CallContext {
    pub id: CallId,
    /// The name as the caller wrote it; there may be no such tool. With a `target` the requested method.
    pub tool: String,
    /// The target of the request, if it is not a tool.
    pub target: Option<Box<Target>>,
    pub caller: Arc<Caller>,
    pub via: Via,
    /// Run every stage but execution.
    pub dry_run: bool,
    /// The arrival of the call: queueing and every later wait count from here.
    pub received: Instant,
    /// A deadline set from outside (a parent call, a client), in addition to the tool's own timeout.
    pub must_end_by: Option<Instant>,
    pub origin: CallOrigin,
    pub nesting: CallNesting,
    pub resumption: CallResumption,
    pub client: CallClient,
    pub charging: CallCharging,
    /// Only of this call.
    pub body: CallBody,
    /// Only of this call.
    pub progress: CallProgress,
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
            dry_run: false,
            received: Instant::now(),
            must_end_by: None,
            origin: CallOrigin::default(),
            nesting: CallNesting::default(),
            resumption: CallResumption::default(),
            client: CallClient::default(),
            charging: CallCharging::default(),
            body: CallBody::default(),
            progress: CallProgress::default(),
        }
    }

    /// A further call of the same caller for the same target, which arrives now.
    #[must_use]
    pub fn repeated(&self) -> Self {
        Self {
            id: CallId::new(),
            tool: self.tool.clone(),
            target: self.target.clone(),
            caller: Arc::clone(&self.caller),
            via: self.via,
            dry_run: self.dry_run,
            received: Instant::now(),
            must_end_by: self.must_end_by,
            origin: self.origin.clone(),
            nesting: self.nesting.clone(),
            resumption: self.resumption.clone(),
            client: self.client.clone(),
            charging: self.charging.clone(),
            body: CallBody::default(),
            progress: CallProgress::default(),
        }
    }

    /// The deadline of the call, given the timeout of its tool, which counts from its arrival, without the time that it has
    /// waited in queues of the gateway.
    pub fn deadline(&self, tool_timeout: Duration) -> Deadline {
        let own = self.received + tool_timeout + self.progress.queueing.total();
        Deadline(self.must_end_by.map_or(own, |outer| own.min(outer)))
    }

    /// From now on its waits in queues of the gateway end while its tool, with this timeout, can still answer.
    pub fn limit_queueing(&self, tool_timeout: Duration) {
        self.progress.queueing.set_ends(self.begin_by(tool_timeout), self.must_end_by);
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
        self.progress.queueing.total() + self.paused_elsewhere()
    }

    /// The data for requests that are sent for this call.
    pub fn on_behalf(&self) -> OnBehalf {
        let (owner, queueing) = (self.caller.owner.clone(), Arc::clone(&self.progress.queueing));
        OnBehalf { owner, sent: self.progress.sending.flag(), queueing }
    }

    /// The session whose stored results it may read.
    pub fn session_of_results(&self) -> Option<&str> {
        match &self.origin.handles {
            Some(handles) => handles.session.as_deref(),
            None => self.origin.session.as_deref().map(|session| &*session.id),
        }
    }

    /// Whether the MCP session of the call has ended.
    pub fn client_has_gone(&self) -> bool {
        self.client.session.as_ref().is_some_and(|session| session.ended().is_cancelled())
    }

    /// Waits for `work` until the deadline; `None` when it is not done by then. The tool's time is paused while the
    /// client considers a question, a session of the tool's server starts, or the call waits in a queue of the gateway: all
    /// have limits of their own, which may be longer than the tool's.
    pub async fn within<T>(&self, deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let (queued_before, mut end) = (self.progress.queueing.total(), deadline.0);
        loop {
            match tokio::time::timeout_at(end, work.as_mut()).await {
                Ok(done) => return Some(done),
                Err(_) => {
                    let queued = self.progress.queueing.total().saturating_sub(queued_before);
                    end = self.later_end(self.progress.queueing.later(deadline, queued), end)?;
                }
            }
        }
    }

    fn later_end(&self, deadline: Deadline, end: Instant) -> Option<Instant> {
        /// Maximum interval between checks of work that is still open.
        const LOOK_AGAIN: Duration = Duration::from_millis(100);
        let later = deadline.0 + self.paused_elsewhere();
        (later > end).then(|| later.max(Instant::now() + LOOK_AGAIN))
    }

    /// The pause for work that is not the gateway's own.
    fn paused_elsewhere(&self) -> Duration {
        let asking = self.client.peer.as_ref().map_or(Duration::ZERO, |peer| peer.time_asking());
        asking + self.progress.starting.total()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use serde_json::Value;

    use super::*;
    use crate::caller::Owner;
    use crate::peer::{Answers, ClientPeer, LogLevel, LogMessage, Progress, Questions, Unanswered};

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
        call.client.peer = Some(Arc::new(Thinking { began: call.received, thinks: seconds(110) }));
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
        call.progress.queueing.set_ends(call.begin_by(seconds(30)), None);
        let waiting = call.progress.queueing.begin();
        tokio::time::sleep(seconds(28)).await;
        drop(waiting);
        assert_eq!(call.deadline(seconds(30)), Deadline(call.received + seconds(58)));
        let work = async {
            let waiting = call.progress.queueing.begin();
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
            let starting = call.progress.starting.open();
            tokio::time::sleep(seconds(40)).await;
            drop(starting);
            std::future::pending::<()>().await;
        };
        assert_eq!(call.within(call.deadline(seconds(30)), work).await, None);
        assert_eq!(call.received.elapsed(), seconds(70), "its own thirty seconds, and those of the start");
    }
}
