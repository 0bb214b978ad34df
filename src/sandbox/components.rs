//! The gateway's side of components: files are examined in a process of their own, and calls run in workers that have loaded
//! all components that are offered. When those are others, other workers take over, as with an interpreter.

mod examine;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

pub use self::examine::{ExaminedFile, FileToExamine, Unexamined};

use crate::Running;
use crate::Sandbox;
use crate::code_mode::ToolHost;
use crate::pool::{Pool, Start};
use crate::run::{Ending, TIME_TO_ANSWER, check_no_replay, queue_deadline};
use crate::warming_up;
use crate::worker_handle::StartedWorker;
use crate::worker_setup;
use sekisho_core::call::{CallContext, Deadline};
use sekisho_core::error::CallError;
use sekisho_guest_protocol::{
    ComponentCall, ComponentLoad, ComponentsLoad, HttpFailure, HttpRequest, HttpResponse, JobLimits,
    MAX_HELD_REPLY_BYTES, Outcome, ToWorker, ToolQuestion, ToolReply, ToolRequest, encode, max_copied_bytes,
};

/// In `/readyz`: the workers for components.
const COMPONENT: &str = "component_workers";

/// Sends the requests of one call of a component.
pub trait ComponentHttp: Send + Sync {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpFailure>>;
}

/// Examines and runs components: the sandbox, or a substitute in tests.
pub trait RunComponents: Send + Sync {
    /// The contents of a file, and the place of its compiled form.
    fn examine(&self, file: FileToExamine) -> BoxFuture<'_, Result<ExaminedFile, Unexamined>>;

    /// The ids of those that a worker cannot load, and why.
    /// Errors: why that is not known: no worker can be started.
    fn unloadable(&self, components: Vec<ComponentLoad>) -> BoxFuture<'_, Result<BTreeMap<String, String>, String>>;

    /// Runs one call once capacity is free, and ends before `deadline`. Marks the call as sent when a worker receives it. Fails
    /// with `overloaded`, `warming_up` and `sandbox_trap`; a component that fails is not an error here.
    fn call<'a>(
        &'a self,
        call: &'a CallContext,
        component_call: ComponentCall,
        http: Option<&'a dyn ComponentHttp>,
        deadline: Deadline,
    ) -> Running<'a>;
}

/// The workers for the components that are offered now.
#[derive(Default)]
pub(crate) struct ComponentWorkers(Mutex<Option<Offered>>);

struct Offered {
    components: Vec<ComponentLoad>,
    pool: Pool,
}

impl fmt::Debug for ComponentWorkers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offered = self.0.lock().as_ref().map(|offered| offered.components.len());
        formatter.debug_tuple("ComponentWorkers").field(&offered).finish()
    }
}

impl ComponentWorkers {
    /// The workers that have this component.
    fn pool_with(&self, component: &str) -> Option<Pool> {
        let offered = self.0.lock();
        let offered = offered.as_ref().filter(|offered| offered.components.iter().any(|one| one.id == component));
        offered.map(|offered| offered.pool.clone())
    }

    fn has(&self, components: &[ComponentLoad]) -> bool {
        self.0.lock().as_ref().map_or(components.is_empty(), |offered| offered.components == components)
    }

    /// The workers of before end once their calls have ended.
    fn replace(&self, offered: Option<Offered>) {
        let before = std::mem::replace(&mut *self.0.lock(), offered);
        if let Some(before) = before {
            before.pool.retire();
        }
    }

    pub(crate) async fn close(&self) {
        let pool = self.0.lock().as_ref().map(|offered| offered.pool.clone());
        if let Some(pool) = pool {
            pool.close().await;
        }
    }
}

impl Sandbox {
    /// Has calls run these from now on. The workers of before end with their calls.
    /// Errors: no worker can be started with them.
    pub fn offer_components(&self, components: Vec<ComponentLoad>) -> Result<(), String> {
        if self.components.has(&components) {
            return Ok(());
        }
        if components.is_empty() {
            self.components.replace(None);
            return Ok(());
        }
        let load = load_frame(components.clone(), self.config.max_instances)?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::new(Start {
            program: worker_setup::program(&self.config)?,
            load,
            workers: self.config.workers.map_or_else(cores, |workers| workers as usize),
            component: COMPONENT,
            is_counted: false,
            metrics: self.metrics.clone(),
            readiness: Arc::clone(&self.readiness),
        });
        self.components.replace(Some(Offered { components, pool }));
        Ok(())
    }

    /// As a worker for calls does. Such a worker would start with the tools already offered.
    async fn load_once(&self, components: Vec<ComponentLoad>) -> Result<StartedWorker, String> {
        let (program, load) = (worker_setup::program(&self.config)?, load_frame(components, 1)?);
        StartedWorker::new(&program, &load).await.map_err(|error| error.reason)
    }

    async fn run_component(
        &self,
        call: &CallContext,
        mut component_call: ComponentCall,
        http: Option<&dyn ComponentHttp>,
        deadline: Deadline,
    ) -> Result<Outcome, CallError> {
        check_no_replay(call)?;
        let memory = memory_to_reserve(&component_call.limits, self.admission.load().max_memory_bytes);
        let ticket = self.admission.enter(&call.caller.owner, memory, queue_deadline(call, deadline)).await?;
        let changes = || warming_up("the component of this tool has changed, and is being offered anew");
        let worker = self.components.pool_with(&component_call.component).ok_or_else(changes)?.worker(deadline).await?;
        let limits = &mut component_call.limits;
        // Subtract the time spent waiting.
        limits.total_time = limits.total_time.min(deadline.remaining().saturating_sub(TIME_TO_ANSWER));
        limits.wall_time = limits.wall_time.min(limits.total_time);
        let host = http.map(Requests);
        let host = host.as_ref().map(|host| host as &dyn ToolHost);
        let mut ending = Ending::new(&self.metrics);
        let outcome = worker.run(component_call, ticket, &call.progress.sending.flag(), host).await;
        ending.record(&outcome);
        outcome
    }
}

fn load_frame(components: Vec<ComponentLoad>, instances: u32) -> Result<Vec<u8>, String> {
    let load = ComponentsLoad { components, instances };
    encode(&ToWorker::LoadComponents(Box::new(load))).map_err(|error| error.to_string())
}

/// As of a run of the interpreter: the memory of the component, and the memory beside it in the worker. The latter is
/// for its result, as values and as JSON, and for the headers, the bodies and the waiting replies of its requests.
fn memory_of_call(limits: &JobLimits) -> u64 {
    let requests = if limits.tool_calls > 0 { 3 * MAX_HELD_REPLY_BYTES } else { 0 };
    let copied = max_copied_bytes(limits).saturating_mul(2);
    [limits.result_bytes, copied, requests].into_iter().fold(limits.memory_bytes, u64::saturating_add)
}

/// Where all calls together have less, only one runs: hardly any call uses the maximum beside its memory.
fn memory_to_reserve(limits: &JobLimits, capacity: u64) -> u64 {
    memory_of_call(limits).min(capacity.max(limits.memory_bytes))
}

impl RunComponents for Sandbox {
    fn examine(&self, file: FileToExamine) -> BoxFuture<'_, Result<ExaminedFile, Unexamined>> {
        examine::examine(self, file).boxed()
    }

    fn unloadable(&self, components: Vec<ComponentLoad>) -> BoxFuture<'_, Result<BTreeMap<String, String>, String>> {
        Box::pin(async { Ok(self.load_once(components).await?.greeting.unloadable.into_iter().collect()) })
    }

    fn call<'a>(
        &'a self,
        call: &'a CallContext,
        component_call: ComponentCall,
        http: Option<&'a dyn ComponentHttp>,
        deadline: Deadline,
    ) -> Running<'a> {
        Box::pin(self.run_component(call, component_call, http, deadline))
    }
}

/// Answers the worker's requests for a component: requests over HTTP, and nothing else.
struct Requests<'a>(&'a dyn ComponentHttp);

impl ToolHost for Requests<'_> {
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, Option<ToolReply>> {
        let ToolRequest { number, question, .. } = request;
        Box::pin(async move {
            let ToolQuestion::Fetch(request) = question else { return None };
            let answer = self.0.send(*request).await;
            let (is_ok, json) = postcard::to_stdvec(&answer).map_or((false, Vec::new()), |answer| (true, answer));
            Some(ToolReply { number, is_ok, json })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::capacity::Capacity;
    use sekisho_config::SandboxConfig;

    #[test]
    fn a_machine_that_has_memory_for_one_run_has_it_for_one_call() {
        let config = SandboxConfig { max_memory_mb: Some(512), ..SandboxConfig::default() };
        let limits = crate::limits::job_limits(&config, 512 << 20, Duration::from_secs(1));
        let capacity = Capacity::of(&config).memory_bytes;
        assert!(memory_of_call(&limits) > capacity);
        assert_eq!(memory_to_reserve(&limits, capacity), capacity);
        assert_eq!(memory_to_reserve(&limits, 8 << 30), memory_of_call(&limits));
        assert_eq!(memory_to_reserve(&limits, 256 << 20), 512 << 20, "its own memory must fit");
    }
}
