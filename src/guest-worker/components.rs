//! Components and commands in a worker: compiled before, linked at the start, and each call in an instance of its own.
//!
//! `schema` and `values` are the two sides of types: JSON Schema for callers, and values. `state` is the host's state
//! of a call; `folders`, `printed` and `requests` are parts of it without a file or a socket. `examine` reads the
//! contents of a file, in a process of its own.

mod bounded_json;
mod commands;
mod config_drafts;
mod docs;
mod examine;
mod folders;
mod growth;
mod host_folders;
mod printed;
mod requests;
mod schema;
mod state;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;
use std::fs::File;
use std::pin::pin;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use wasmtime::component::{Component, InstancePre, Linker, Val};
use wasmtime::{Engine, Instance, Module, Store};
use wasmtime_wasi::I32Exit;

use self::bounded_json::json_within;
use self::commands::Command;
pub(super) use self::examine::answer;
use self::growth::Growth;
use self::printed::Printed;
use self::state::{Granted, State};
use self::values::Unwritten;
use super::fibers::Run;
use super::guest::end::{Stopped, end_of};
use super::guest::time::{expire, measured_run};
use super::guest::{Ended, Remains, Teardown};
use super::host_call::{Spent, ToolLink};
use super::ticker::Ticker;
use super::{Worker, WorkerError};
use sekisho_core::owner_only_files;
use sekisho_guest_protocol::{
    Captured, ComponentCall, ComponentLoad, ComponentsLoad, End, Export, FromWorker, JobLimits, ModuleKind, Outcome,
    Usage, max_copied_bytes,
};
use sekisho_guest_system::engine::component_engine;

/// Epochs until a call yields to another.
const SLICE_EPOCHS: u64 = 1;

/// `(module (memory 1) (func (export "run")))`: the first instance of a process makes system calls that are forbidden after
/// hardening, and a component may not run before.
const FIRST: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x05\x03\x01\0\x01\
    \x07\x07\x01\x03run\0\0\x0a\x04\x01\x02\0\x0b";

/// The components of a worker, by their ids: linked, or why one cannot be.
#[derive(Debug, Default)]
pub(super) struct Components(HashMap<String, Result<Loaded, String>>);

#[derive(Debug, Clone)]
enum Loaded {
    Component(Arc<Linked>),
    Command(Arc<Command>),
}

/// A component linked with all its imports.
struct Linked {
    component: InstancePre<State>,
    granted: Arc<Granted>,
    /// Held as long as its code: the removal of unused files skips a locked one.
    _file: File,
}

sekisho_core::debug_fields!(Linked { granted });

impl Worker {
    pub(super) async fn load_components(load: ComponentsLoad) -> Result<Self, String> {
        // One instance more, which is being reset.
        let engine = component_engine(load.instances.saturating_add(1)).map_err(|error| format!("{error:#}"))?;
        let ticker = Ticker::start(engine.clone()).map_err(|error| error.to_string())?;
        let components = Components::load(&engine, load).await?;
        Ok(Self::with(HashMap::new(), components, ticker))
    }

    pub(super) fn begin_call(&mut self, call: ComponentCall) -> Result<(), WorkerError> {
        let id = call.id;
        let link = self.link(id);
        match self.components.begin(call, link.clone()) {
            Ok(run) => {
                self.fibers.add(id, run, link);
                Ok(())
            }
            Err(reason) => self.send(&FromWorker::Done(id, Box::new(Outcome::without_output(End::Trap(reason))))),
        }
    }
}

impl Components {
    /// A component that cannot be loaded fails its own calls.
    /// Errors: the engine cannot run anything.
    async fn load(engine: &Engine, load: ComponentsLoad) -> Result<Self, String> {
        run_first(engine).await.map_err(|error| format!("{error:#}"))?;
        let linker = state::linker(engine).map_err(|error| format!("{error:#}"))?;
        let loaded = load.components.into_iter().map(|one| {
            let outcome = load_one(engine, &linker, &one);
            (one.id, outcome)
        });
        Ok(Self(loaded.collect()))
    }

    /// The ids of those that cannot be loaded, and why.
    pub(super) fn unloadable(&self) -> Vec<(String, String)> {
        let unloadable = self.0.iter().filter_map(|(id, loaded)| Some((id.clone(), loaded.as_ref().err()?.clone())));
        unloadable.collect()
    }

    /// A call that runs as soon as it is polled.
    /// Errors: there is no such component, or it cannot be loaded.
    fn begin(&self, call: ComponentCall, link: ToolLink) -> Result<Run, String> {
        let loaded = self.0.get(&call.component).ok_or("the component has changed; call the tool again")?;
        // The gateway logs why: the reason names files of this machine.
        let cannot = |_| "it cannot be loaded; the gateway's log says why, and a reload tries again";
        let loaded = loaded.clone().map_err(cannot)?;
        Ok(match loaded {
            Loaded::Component(linked) => Box::pin(measured_run(Box::pin(linked.run(call, link)))),
            Loaded::Command(command) => Box::pin(measured_run(Box::pin(command.run(call, link)))),
        })
    }
}

async fn run_first(engine: &Engine) -> wasmtime::Result<()> {
    let mut store = Store::new(engine, ());
    store.set_epoch_deadline(SLICE_EPOCHS);
    store.epoch_deadline_async_yield_and_update(SLICE_EPOCHS);
    let instance = Instance::new_async(&mut store, &Module::new(engine, FIRST)?, &[]).await?;
    instance.get_typed_func::<(), ()>(&mut store, "run")?.call_async(&mut store, ()).await
}

/// Machine code runs as it is in the file: only our user may write it.
fn load_one(engine: &Engine, linker: &Linker<State>, load: &ComponentLoad) -> Result<Loaded, String> {
    let text = |error: wasmtime::Error| format!("{error:#}");
    let granted = Granted::new(&load.grants)?;
    let file = owner_only_files::open(&load.compiled).map_err(|error| error.to_string())?;
    let _ = file.try_lock_shared();
    match load.kind {
        ModuleKind::Component => {
            #[expect(unsafe_code, reason = "the only way to load compiled code")]
            // SAFETY: only our user can write the file and its folder, which was checked in the line above, and we write nothing
            // there but the output of an engine; code of other settings, or of another version, is refused.
            let component = unsafe { Component::deserialize_file(engine, &load.compiled) }.map_err(text)?;
            let component = linker.instantiate_pre(&component).map_err(text)?;
            Ok(Loaded::Component(Arc::new(Linked { component, granted: Arc::new(granted), _file: file })))
        }
        ModuleKind::Command => {
            #[expect(unsafe_code, reason = "the only way to load compiled code")]
            // SAFETY: as above; it is the opened file that was checked.
            let module = unsafe { Module::deserialize_open_file(engine, file) }.map_err(text)?;
            Command::new(engine, &module, granted).map(|command| Loaded::Command(Arc::new(command))).map_err(text)
        }
    }
}

impl Linked {
    async fn run(self: Arc<Self>, call: ComponentCall, link: ToolLink) -> Ended {
        let printed = [(); 2].map(|()| Printed::new(call.limits.stream_bytes));
        let [stdout, stderr] = printed.clone();
        let state = State::new(&self.granted, link, &call.limits, (stdout, stderr));
        let mut store = Store::new(self.component.engine(), state);
        store.limiter(|state| &mut state.growth);
        store.set_epoch_deadline(SLICE_EPOCHS);
        store.epoch_deadline_async_yield_and_update(SLICE_EPOCHS);
        store.set_hostcall_fuel(fuel(&call.limits));
        let mut result = None;
        let stopped = {
            let mut running = pin!(self.enter(&mut store, &call, &mut result));
            let mut deadline = pin!(expire((call.limits.wall_time, call.limits.total_time, Arc::default())));
            tokio::select! {
                biased;
                () = &mut deadline => Stopped::Late,
                returned = &mut running => Stopped::Returned(returned),
            }
        };
        let [stdout, stderr] = printed.map(|printed| printed.take());
        let outcome = ended(stopped, result, (stdout, stderr), &store.data().growth);
        Ended { outcome, left: used(Teardown::of(store)) }
    }

    /// Calls the function; its result is JSON. Returns an exit code.
    async fn enter(
        &self,
        store: &mut Store<State>,
        call: &ComponentCall,
        result: &mut Option<String>,
    ) -> wasmtime::Result<i32> {
        match self.call(store, call).await {
            Ok(returned) => {
                let returned = json_within(&returned, call.limits.result_bytes);
                *result = Some(returned.ok_or(Spent("result_bytes"))?);
                Ok(0)
            }
            Err(error) => match error.downcast_ref() {
                Some(I32Exit(code)) => Ok(*code),
                None if is_of_copying(&error) => Err(Spent("copied_bytes").into()),
                None => Err(error),
            },
        }
    }

    async fn call(&self, store: &mut Store<State>, call: &ComponentCall) -> wasmtime::Result<Value> {
        let arguments: Map<String, Value> = serde_json::from_str(&call.arguments)?;
        let instance = self.component.instantiate_async(&mut *store).await?;
        let Export { interface, function } = &call.export;
        let component = self.component.component();
        let interface = interface.as_deref().map(|interface| component.get_export_index(None, interface));
        let index = match &interface {
            // There is no such interface.
            Some(None) => None,
            Some(Some(interface)) => component.get_export_index(Some(interface), function.as_str()),
            None => component.get_export_index(None, function.as_str()),
        };
        let function = index.and_then(|index| instance.get_func(&mut *store, index));
        let function = function.ok_or_else(|| wasmtime::Error::msg("the component has no such function"))?;
        let type_ = function.ty(&*store);
        let parameters = match values::parameters(&type_, &arguments) {
            Ok(parameters) => parameters,
            Err(mismatch) => return Ok(json!({"invalid": {"path": mismatch.path, "message": mismatch.message}})),
        };
        store.set_hostcall_fuel(fuel(&call.limits) / values::expansion(&type_));
        let mut results = vec![Val::Bool(false); type_.results().len()];
        function.call_async(&mut *store, &parameters, &mut results).await?;
        Ok(match values::returned(&type_, &results, call.limits.result_bytes) {
            Ok(Ok(value)) => json!({"value": value}),
            Ok(Err(error)) => json!({"error": error}),
            Err(Unwritten::TooLong) => return Err(Spent("result_bytes").into()),
            Err(Unwritten::Mismatch(mismatch)) => {
                json!({"error": format!("the result has no form in JSON at {:?}: {}", mismatch.path, mismatch.message)})
            }
        })
    }
}

fn fuel(limits: &JobLimits) -> usize {
    usize::try_from(max_copied_bytes(limits)).unwrap_or(usize::MAX)
}

/// Whether more was copied out of the component than [`max_copied_bytes`]. The library's error has no type of its own.
fn is_of_copying(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().contains("fuel allocated for hostcalls")
}

/// The outcome of a call.
fn ended(stopped: Stopped, result: Option<String>, (stdout, stderr): (Captured, Captured), growth: &Growth) -> Outcome {
    let usage = Usage { peak_memory_bytes: growth.used, ..Usage::default() };
    let end = end_of(stopped, None, growth.refused);
    Outcome {
        end,
        result,
        stdout,
        stderr,
        files: Vec::new(),
        images: Vec::new(),
        usage,
        session_bytes: None,
        read: None,
    }
}

fn used(teardown: Teardown) -> Remains {
    Remains::Used(teardown)
}
