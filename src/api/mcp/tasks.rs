//! Calls that run as tasks: in the background, for a client that asks for their result later.
//!
//! A task wraps one call of the pipeline. It belongs to the caller, and for callers without credentials to the session too:
//! for others it does not exist. Its number, its time and the bytes of its result are bounded. Its id names the replica
//! that has it.

mod state;
mod work;

use std::sync::{Arc, Weak};
use std::time::Duration;

use rmcp::model::{CustomResult, ErrorData, ServerResult};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub(super) use self::state::TaskState;
use super::client_context::McpClientContext;
use super::headers::Era;
use super::replica_ids::ReplicaIds;
use super::running_request::RunningRequest;
use super::session::McpSession;
use sekisho_core::caller::Owner;
use sekisho_core::per_owner::PerOwner;
use sekisho_core::share::Share;
use sekisho_core::tool_scope::ToolScope;

/// Maximum number of tasks: of all callers, and of one caller.
const MAX_TASKS: usize = 1_024;
const MAX_TASKS_OF_A_CALLER: usize = 128;

/// Bytes that all kept results may take.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// How long a task exists, from its creation: by default, and at most.
const DEFAULT_TTL: Duration = Duration::from_secs(3_600);
const MAX_TTL: Duration = Duration::from_secs(4 * 3_600);

/// How often a client should poll.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// All tasks of the process.
#[derive(Debug)]
pub(super) struct Tasks {
    ids: ReplicaIds,
    by_id: Arc<PerOwner<String, Task>>,
    results: Arc<Share>,
}

#[derive(Debug)]
struct Task {
    state: Arc<TaskState>,
    /// The call, and the timer that removes the task when its time has passed. Both end when the task is dropped.
    work: Option<AbortOnDropHandle<()>>,
    _expiry: AbortOnDropHandle<()>,
}

/// For whom a task runs.
#[derive(Debug, Clone)]
pub(super) struct TaskOwner {
    owner: Owner,
    /// The tools that its caller's key and its endpoint leave.
    tools: ToolScope,
    /// The session, for callers without credentials.
    session_id: Option<String>,
    /// The session of a client that can be asked and notified at any time.
    session: Option<Weak<McpSession>>,
}

impl TaskOwner {
    pub(super) fn of(client: &McpClientContext, era: Era) -> Self {
        Self {
            owner: client.caller.owner.clone(),
            tools: client.caller.tools.clone(),
            session_id: client.session_id.clone().filter(|_| client.caller.anonymous),
            session: client.session.as_ref().filter(|_| era == Era::Sessions).map(Arc::downgrade),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.owner == other.owner && self.tools == other.tools && self.session_id == other.session_id
    }
}

impl Tasks {
    pub(super) fn new(ids: ReplicaIds) -> Self {
        let by_id = Arc::new(PerOwner::new(MAX_TASKS, MAX_TASKS_OF_A_CALLER));
        Self { ids, by_id, results: Share::new(MAX_KEPT_BYTES) }
    }

    /// Runs a request on in the background. `ttl` is the client's wish.
    /// Errors: the request, when there are too many tasks whose results were not fetched.
    pub(super) fn start(
        &self,
        owner: &TaskOwner,
        ttl: Option<Duration>,
        running: RunningRequest,
    ) -> Result<Arc<TaskState>, RunningRequest> {
        let id = self.ids.create();
        let ttl = ttl.unwrap_or(DEFAULT_TTL).min(MAX_TTL);
        let state = Arc::new(TaskState::new(id.clone(), owner.clone(), ttl));
        let expiry = expire(Arc::downgrade(&self.by_id), id.clone(), Instant::now() + ttl);
        let expiry = AbortOnDropHandle::new(tokio::spawn(expiry));
        let task = Task { state: Arc::clone(&state), work: None, _expiry: expiry };
        // Evicted tasks are dropped without the lock.
        let evicted = self.by_id.insert(&owner.owner, id.clone(), task, |_, task| task.state.is_fetched());
        if evicted.is_err() {
            return Err(running);
        }
        let kept = work::Kept { results: Arc::clone(&self.results), tasks: Arc::downgrade(&self.by_id) };
        let work = work::run(Arc::clone(&state), running.in_background(), kept);
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        self.by_id.with(&id, |task| task.work = Some(work));
        Ok(state)
    }

    /// Errors: invalid params: the client has no such task.
    pub(super) fn get(&self, client: &TaskOwner, id: &str) -> Result<Arc<TaskState>, ErrorData> {
        let found = self.by_id.with(&id.to_owned(), |task| Arc::clone(&task.state));
        found.filter(|state| state.owner.is(client)).ok_or_else(unknown)
    }

    /// The client's tasks, the oldest first.
    pub(super) fn list(&self, client: &TaskOwner) -> Vec<Arc<TaskState>> {
        let mut tasks = Vec::new();
        self.by_id.for_each(|task| tasks.extend(task.state.owner.is(client).then(|| Arc::clone(&task.state))));
        tasks.sort_by_key(|state| state.created);
        tasks
    }

    /// Cancels a task; returns whether it was still running.
    pub(super) fn cancel(&self, state: &TaskState) -> bool {
        let is_cancelled = state.cancel("The task was cancelled.");
        if is_cancelled {
            // Its call ends when this is dropped.
            let work = self.by_id.with(&state.id, |task| task.work.take());
            drop(work);
        }
        is_cancelled
    }
}

/// `CreateTaskResult` of the extension.
pub(super) fn created(state: &TaskState) -> ServerResult {
    let mut created = state.shown(Era::Stateless);
    created["resultType"] = "task".into();
    ServerResult::CustomResult(CustomResult(created))
}

/// The time that a client wants a task to be kept: `ttl` in milliseconds.
pub(super) fn wanted_ttl(task: &Value) -> Option<Duration> {
    let milliseconds = task.get("ttl").and_then(Value::as_f64)?;
    Duration::try_from_secs_f64(milliseconds / 1_000.0).ok()
}

/// Removes a task at a time.
async fn expire(tasks: Weak<PerOwner<String, Task>>, id: String, at: Instant) {
    tokio::time::sleep_until(at).await;
    if let Some(task) = tasks.upgrade().and_then(|tasks| tasks.remove(&id)) {
        task.state.cancel("The time of the task has passed.");
    }
}

fn unknown() -> ErrorData {
    let message = "no task of this caller has this id; a task exists until its time has passed";
    ErrorData::invalid_params(message, None)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use serde_json::json;

    use super::super::client::ClientEvents;
    use super::*;
    use sekisho_core::call::Caller;
    use sekisho_core::until::until;

    fn running(work: impl Future<Output = Value> + Send + 'static) -> RunningRequest {
        let work = work.map(|value| Ok(ServerResult::CustomResult(CustomResult(value)))).boxed();
        RunningRequest { work, client_events: ClientEvents::none() }
    }

    fn owner(id: &str) -> TaskOwner {
        TaskOwner::of(&McpClientContext::new(Arc::new(Caller::new(id, "t", Vec::new()))), Era::Stateless)
    }

    fn tasks() -> Tasks {
        Tasks::new(ReplicaIds::new(None))
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_exists_for_its_owner_until_its_time_has_passed() {
        let tasks = tasks();
        let ann = owner("ann");
        let ttl = Some(Duration::from_secs(5));
        let state = tasks.start(&ann, ttl, running(ready(json!({"content": []})))).expect("a task");
        assert!(tasks.get(&owner("bob"), &state.id).is_err() && tasks.list(&owner("bob")).is_empty());
        let outcome = tasks.get(&ann, &state.id).expect("the task").outcome().await.expect("a result");
        assert_eq!(outcome, json!({"content": []}));
        assert!(tasks.results.used() > 0);
        assert_eq!((state.shown(Era::Sessions)["status"].as_str(), tasks.list(&ann).len()), (Some("completed"), 1));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(tasks.get(&ann, &state.id).is_err());
        drop(state);
        assert_eq!(tasks.results.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_whose_time_passes_first_or_that_is_cancelled_ends_its_call() {
        let tasks = tasks();
        let ann = owner("ann");
        for expires in [true, false] {
            let (guard, ended) = tokio::sync::oneshot::channel::<()>();
            let work = async move {
                let _guard = guard;
                pending().await
            };
            let ttl = Some(Duration::from_secs(5));
            let state = tasks.start(&ann, ttl, running(work)).expect("a task");
            if expires {
                tokio::time::sleep(Duration::from_secs(6)).await;
            } else {
                assert!(tasks.cancel(&state) && !tasks.cancel(&state));
            }
            assert!(ended.await.is_err(), "its work was dropped");
            assert!(state.outcome().await.is_err());
            assert_eq!(state.shown(Era::Stateless)["status"], "cancelled");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_caller_are_bounded_and_results_that_were_fetched_go_first() {
        let tasks = tasks();
        let ann = owner("ann");
        let start = |tasks: &Tasks| tasks.start(&ann, None, running(ready(json!({}))));
        let mut started = Vec::new();
        for _ in 0..MAX_TASKS_OF_A_CALLER {
            started.push(start(&tasks).expect("a task"));
        }
        assert!(start(&tasks).is_err(), "no result was fetched");
        tasks.start(&owner("bob"), None, running(ready(json!({})))).expect("a task of another caller");
        started[7].outcome().await.expect("a result");
        start(&tasks).expect("a place");
        assert!(tasks.get(&ann, &started[7].id).is_err() && tasks.get(&ann, &started[0].id).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_results_are_bounded() {
        let tasks = Tasks { results: Share::new(100), ..tasks() };
        let ann = owner("ann");
        let start = || {
            let result = json!({"content": [{"type": "text", "text": "a".repeat(30)}]});
            tasks.start(&ann, None, running(ready(result))).expect("a task")
        };
        start().outcome().await.expect("a result");
        start().outcome().await.expect("a result in place of the fetched one");
        // Nobody has fetched the third when the fourth ends.
        let third = start();
        until("the third has ended", async || third.shown(Era::Sessions)["status"] != "working").await;
        let error = start().outcome().await.expect_err("no place");
        assert!(error.message.contains("cannot be kept"), "{error:?}");
        assert!(third.outcome().await.is_ok());
    }

    #[test]
    fn the_time_that_a_client_wants_is_bounded() {
        for (ttl, expected) in [
            (json!({"ttl": 1500}), Some(Duration::from_millis(1500))),
            (json!({"ttl": -1}), None),
            (json!({"ttl": 1e300}), None),
            (json!({"ttl": null}), None),
            (json!(7), None),
        ] {
            assert_eq!(wanted_ttl(&ttl), expected, "{ttl}");
        }
    }
}
