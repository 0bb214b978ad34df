//! Snapshots: start a module, run its preludes, and write it back as a module that continues from there.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use wasmtime::{Caller, Instance, Linker, Module, Store, Val};
use wasmtime_wizer::{InstanceState, ModuleContext, SnapshotVal, ValType, Wizer};

use crate::heap;
use sekisho_guest_protocol::Prepared;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_system::engine::quick_engine;
use sekisho_guest_system::files::Quota;
use sekisho_guest_system::mounts::Mounts;
use sekisho_guest_system::wasi::{self, Limits, Start, Wasi};
use sekisho_interpreters::interpreter::Heap;

/// The bits of `turn`'s result that contain the status; the rest are flags.
const STATUS: i32 = 0xff;
/// matplotlib's caches are the largest files that preludes write.
const QUOTA: Quota = Quota { bytes: 64 << 20, nodes: 1024 };
const LIMITS: Limits = Limits { stream_bytes: 64 << 10, max_open_files: 256, random_bytes: 1 << 20 };

/// A module instrumented for snapshots, compiled once for all its profiles.
pub(super) struct Snapshots<'a> {
    wizer: Wizer,
    context: ModuleContext<'a>,
    module: Module,
    linker: Linker<Wasi>,
    mounts: Mounts,
    prepared: &'a Prepared,
    runtime: Runtime,
}

impl<'a> Snapshots<'a> {
    /// Takes a minute and 2.3 GB for CPython with its packages. `prepared` describes the guest's start files.
    /// Errors: the problem of the module or the files.
    pub(super) fn new(wasm: &'a [u8], prepared: &'a Prepared, layout: Option<&Heap>) -> Result<Self, String> {
        let wizer = Wizer::new();
        let (context, instrumented) = wizer.instrument(wasm).map_err(whole)?;
        let engine = quick_engine().map_err(whole)?;
        let module = Module::new(&engine, instrumented).map_err(whole)?;
        let mut linker = Linker::new(&engine);
        wasi::add_to_linker(&mut linker, |wasi: &mut Wasi| wasi).map_err(whole)?;
        let layout = layout.cloned();
        linker
            .func_wrap_async("host", "call", move |mut caller: Caller<'_, Wasi>, arguments: (u32, u32, u32, u32)| {
                let layout = layout.clone();
                Box::new(async move { heap::call(&mut caller, layout.as_ref(), arguments).await })
            })
            .map_err(whole)?;
        let mounts = Mounts::open(&prepared.mounts).map_err(whole)?;
        let runtime = Builder::new_current_thread().enable_time().build().map_err(whole)?;
        Ok(Self { wizer, context, module, linker, mounts, prepared, runtime })
    }

    /// The module after these turns.
    /// Errors: the turn that failed, with its output on stderr.
    pub(super) fn take<'p>(&self, turns: impl Iterator<Item = Cow<'p, str>>) -> Result<Vec<u8>, String> {
        self.runtime.block_on(async {
            let mut store = Store::new(self.module.engine(), self.system()?);
            // The turns are our own code: no time slices and no deadline.
            store.set_epoch_deadline(u64::MAX / 2);
            let instance = self.linker.instantiate_async(&mut store, &self.module).await.map_err(whole)?;
            for source in turns {
                let status = turn(&mut store, instance, &source).await;
                if !matches!(status, Ok(0)) {
                    let (_, stderr) = store.data_mut().take_output();
                    let ended = status.map_or_else(whole, |status| format!("status {status}"));
                    let first = source.lines().next().unwrap_or_default();
                    let stderr = String::from_utf8_lossy(&stderr.bytes);
                    return Err(format!("the turn that begins with `{first}` ended with {ended}: {stderr}"));
                }
            }
            let mut state = State { store: &mut store, instance };
            self.wizer.snapshot(&self.context, &mut state).await.map_err(whole)
        })
    }

    fn system(&self) -> Result<Wasi, String> {
        let (files, folders) = self.mounts.place(QUOTA).map_err(whole)?;
        let environment = self.prepared.environment.iter();
        let start = Start {
            arguments: self.prepared.arguments.clone(),
            environment: environment.map(|(name, value)| (name.clone(), value.clone())).collect(),
            folders,
            ..Start::default()
        };
        let wasi = Wasi::new(files, start, LIMITS).map_err(whole)?;
        Ok(wasi.reading(&Arc::new(ReadRecorder::simulated())))
    }
}

/// A snapshot whose mutable globals are exported too, so that the state of its instances is known from outside.
/// Errors: it has state that is neither in its memory nor in such a global: it writes to a table, drops a segment, or a
/// global refers to an object of the host.
pub(super) fn with_exported_state(snapshot: &[u8]) -> Result<Vec<u8>, String> {
    Wizer::new().instrument(snapshot).map(|(_, exported)| exported).map_err(whole)
}

/// The parts of an instance that a snapshot reads. wasmtime-wizer has the same in its feature `wasmtime`, which turns
/// on wasmtime's cache, components and shared memories: a tenth of a build's time, and nothing here uses them.
struct State<'a> {
    store: &'a mut Store<Wasi>,
    instance: Instance,
}

impl InstanceState for State<'_> {
    #[expect(
        clippy::panic,
        reason = "the trait says so; a module with other globals is refused by `Wizer::instrument`"
    )]
    async fn global_get(&mut self, name: &str, _: ValType) -> SnapshotVal {
        let global = self.instance.get_global(&mut *self.store, name);
        match global.map(|global| global.get(&mut *self.store)) {
            Some(Val::I32(value)) => SnapshotVal::I32(value),
            Some(Val::I64(value)) => SnapshotVal::I64(value),
            Some(Val::F32(bits)) => SnapshotVal::F32(bits),
            Some(Val::F64(bits)) => SnapshotVal::F64(bits),
            Some(Val::V128(value)) => SnapshotVal::V128(value.as_u128()),
            other => panic!("the global `{name}` is {other:?}, which a snapshot cannot hold"),
        }
    }

    #[expect(clippy::panic, reason = "the trait says so; the names come from `Wizer::instrument`")]
    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        let Some(memory) = self.instance.get_memory(&mut *self.store, name) else {
            panic!("the instrumented module exports no memory `{name}`")
        };
        contents(memory.data(&*self.store));
    }
}

/// Runs one piece of source and returns its status.
async fn turn(store: &mut Store<Wasi>, instance: Instance, source: &str) -> wasmtime::Result<i32> {
    let length = u32::try_from(source.len())?;
    let allocate = instance.get_typed_func::<u32, u32>(&mut *store, "host_alloc")?;
    let at = allocate.call_async(&mut *store, length).await?;
    let memory = instance.get_memory(&mut *store, "memory");
    let memory = memory.ok_or_else(|| wasmtime::Error::msg("it exports no `memory`"))?;
    // Address 0 means out of memory: the guest raises MemoryError.
    if at != 0 {
        memory.write(&mut *store, at as usize, source.as_bytes())?;
    }
    let turn = instance.get_typed_func::<(u32, u32), i32>(&mut *store, "turn")?;
    Ok(turn.call_async(&mut *store, (at, length)).await? & STATUS)
}

/// An error with all its causes.
fn whole(error: impl Display) -> String {
    format!("{error:#}")
}
