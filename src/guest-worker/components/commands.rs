//! Commands: core modules of WASI preview 1. The arguments are JSON on standard input, and the result on standard output.
//!
//! They run on the system that the interpreter has, in memory and with quotas ([`wasi`]).

use std::pin::pin;
use std::sync::Arc;

use wasmtime::{Engine, InstancePre, Linker, Module, Store};

use super::growth::Growth;
use super::state::Granted;
use super::{SLICE_EPOCHS, ended};
use crate::guest::end::Stopped;
use crate::guest::time::expire;
use crate::guest::{Ended, Teardown};
use crate::host_call::ToolLink;
use sekisho_guest_protocol::ComponentCall;
use sekisho_guest_system::files::FileError;
use sekisho_guest_system::wasi::{self, Limits, Start, Wasi};

/// The name of the program, as it sees it.
const NAME: &str = "command";

/// A module linked with all its imports.
pub(super) struct Command {
    linked: InstancePre<State>,
    granted: Granted,
}

sekisho_core::debug_fields!(Command { granted });

struct State {
    wasi: Wasi,
    growth: Growth,
}

impl Command {
    /// Errors: an import that nobody has.
    pub(super) fn new(engine: &Engine, module: &Module, granted: Granted) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        wasi::add_to_linker(&mut linker, |state: &mut State| &mut state.wasi)?;
        Ok(Self { linked: linker.instantiate_pre(module)?, granted })
    }

    fn system(&self, call: &ComponentCall, link: &ToolLink) -> Result<Wasi, FileError> {
        let (files, folders) = self.granted.folders.for_command();
        let stdin = call.arguments.clone().into();
        let start = Start { arguments: vec![NAME.to_owned()], environment: self.granted.environment(), stdin, folders };
        let limits = Limits {
            // The result is there.
            stream_bytes: call.limits.result_bytes.max(call.limits.stream_bytes),
            max_open_files: call.limits.max_open_files,
            random_bytes: call.limits.random_bytes,
        };
        let mut wasi = Wasi::new(files, start, limits)?;
        wasi.sleeper = Some(link.sleeper.clone());
        Ok(wasi)
    }

    pub(super) async fn run(self: Arc<Self>, call: ComponentCall, link: ToolLink) -> Ended {
        // Its folders are among its files, so this does not fail.
        let wasi = self.system(&call, &link).unwrap_or_default();
        let mut store =
            Store::new(self.linked.module().engine(), State { wasi, growth: Growth::new(call.limits.memory_bytes) });
        store.limiter(|state| &mut state.growth);
        store.set_epoch_deadline(SLICE_EPOCHS);
        store.epoch_deadline_async_yield_and_update(SLICE_EPOCHS);
        let stopped = {
            let mut running = pin!(self.enter(&mut store));
            let mut deadline = pin!(expire((call.limits.wall_time, call.limits.total_time, Arc::default())));
            tokio::select! {
                biased;
                () = &mut deadline => Stopped::Late,
                returned = &mut running => Stopped::Returned(returned),
            }
        };
        let state = store.data_mut();
        let output = state.wasi.take_output();
        let outcome = ended(stopped, None, output, &state.growth);
        Ended { outcome, left: super::used(Teardown::of(store)) }
    }

    async fn enter(&self, store: &mut Store<State>) -> wasmtime::Result<i32> {
        let instance = self.linked.instantiate_async(&mut *store).await?;
        let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
        start.call_async(&mut *store, ()).await?;
        Ok(0)
    }
}
