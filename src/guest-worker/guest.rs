//! One instance of the interpreter: prepared before its program arrives, run once, and dropped; in a [session](SessionGuest)
//! entered again by further programs.
//!
//! A ready instance has run up to its first `host.call` and waits there for the program, so that a call spends little
//! time on anything but its own code. The host determines how a run ended: by its own clock, its own memory limiter,
//! the trap. The guest's own report counts only where the host observed nothing else.

pub(super) mod end;
mod image;
mod memory;
mod module_image;
mod output;
mod pooled_memory;
mod session;
mod state;
pub(super) mod time;
mod written_pages;

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use wasmtime::{Caller, Engine, Instance, InstancePre, Linker, Memory, Module, Store};

use self::end::{Stopped, end_of};
pub(super) use self::image::{ImagePart, RestoreError, RestoringGuest, StateImage};
pub(super) use self::module_image::ModuleImage;
use self::output::output_files;
use self::pooled_memory::{PooledMemory, Pristine};
pub use self::session::SessionGuest;
use self::state::{AwaitedJob, State, await_program};
use self::time::{expire, measured_run};
pub(super) use self::written_pages::PAGEMAP_SCAN;
use super::host_call;
use super::host_call::{HostCall, Spent};
use sekisho_core::call::OpenTime;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_protocol::{End, Outcome, SessionId, Usage};
use sekisho_guest_system::wasi;
use sekisho_guest_system::wasi::{GuestMemory, Wasi};

/// Epochs until a running guest yields to another.
const SLICE_EPOCHS: u64 = 1;
/// The bits of `turn`'s result that contain the status.
const STATUS_BITS: i32 = 0xff;

/// How a module is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A reactor: `turn` gets this source. Its first `host.call` requests the program.
    Turn(String),
    /// A command: its `_start` is called, and the program is in [files](host_call::file_channel).
    Start,
}

/// A module linked with all its imports.
pub struct Template {
    linked: InstancePre<State>,
    entry: Entry,
    pristine: Arc<Pristine>,
    /// The exports that are all of an instance's state beside its memory; `None` where there may be more.
    globals: Option<Vec<String>>,
}

sekisho_core::debug_fields!(Template { entry });

/// An instance that waits for its program.
pub struct Guest {
    program: oneshot::Sender<Program>,
    run: RunFuture,
    /// The values that it has read so far, and will read.
    pub recorder: Arc<ReadRecorder>,
}

pub(super) type RunFuture = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A finished run.
pub struct Ended {
    pub outcome: Outcome,
    pub left: Remains,
}

/// The remains of an instance when a program of it has ended.
#[derive(Debug)]
pub enum Remains {
    Used(Teardown),
    /// It can be entered again.
    Session(Box<SessionGuest>),
}

/// A finished instance, which is never entered again. Dropping it resets its memory, which takes as long as a short program:
/// send the outcome first.
pub struct Teardown {
    _used: Box<dyn Any + Send>,
}

impl Teardown {
    pub(super) fn of(used: impl Send + 'static) -> Self {
        Self { _used: Box::new(used) }
    }
}

sekisho_core::debug_fields!(Ended { outcome });

sekisho_core::debug_fields!(Teardown {});

sekisho_core::debug_fields!(Guest {});

/// The inputs and limits of a program.
#[derive(Debug)]
pub struct Program {
    pub wasi: Wasi,
    pub host_call: HostCall,
    /// Without the time in which it waits for tools.
    pub wall_time: Duration,
    /// With that time.
    pub total_time: Duration,
    /// That time.
    pub waited: Arc<OpenTime>,
    pub memory_bytes: u64,
    /// All output files of the program, together.
    pub output_bytes: u64,
    /// The session that keeps its instance.
    pub session: Option<SessionId>,
}

impl Template {
    /// Errors: when the module has imports that are not provided here, or the pool has no space.
    pub async fn new(engine: &Engine, module: &Module, entry: Entry) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        wasi::add_to_linker(&mut linker, |state: &mut State| &mut state.wasi)?;
        linker.func_wrap_async("host", "call", |mut caller: Caller<'_, State>, arguments: (u32, u32, u32, u32)| {
            Box::new(async move {
                await_program(&mut caller).await?;
                host_call::call(&mut caller, |state| &mut state.host_call, arguments).await
            })
        })?;
        let linked = linker.instantiate_pre(module)?;
        let pristine = Arc::new(Pristine::of(&linked).await?);
        Ok(Self { linked, entry, pristine, globals: image::globals_of(module) })
    }

    /// A new instance that waits for its program.
    /// Errors: when the pool is used up, the module exports no memory, or it ends without requesting a program.
    pub async fn guest(&self) -> wasmtime::Result<Guest> {
        self.guest_reading(ReadRecorder::default()).await
    }

    /// The same with the recorder of a run that is resumed: the instance reads from it before it has its program, too.
    /// Errors: as [`guest`](Self::guest).
    pub async fn guest_reading(&self, recorder: ReadRecorder) -> wasmtime::Result<Guest> {
        let recorder = Arc::new(recorder);
        let (state, awaited) = State::awaiting_job(&recorder);
        self.instance(state).await?.up_to_its_program(recorder, awaited).await
    }

    /// A new instance that has not been entered.
    async fn instance(&self, state: State) -> wasmtime::Result<Entered> {
        let mut store = Store::new(self.linked.module().engine(), state);
        store.limiter(|state| &mut state.memory);
        store.set_epoch_deadline(SLICE_EPOCHS);
        store.epoch_deadline_async_yield_and_update(SLICE_EPOCHS);
        let instance = self.linked.instantiate_async(&mut store).await?;
        let memory = memory_of(&instance, &mut store)?;
        let used = PooledMemory { store, memory, pristine: Arc::clone(&self.pristine) };
        Ok(Entered { used, instance, entry: self.entry.clone() })
    }
}

impl Guest {
    /// Runs the program to its end. Dropping the future stops it at once.
    pub async fn run(self, program: Program) -> Ended {
        // The receiver is in `run`, which still exists.
        let _ = self.program.send(program);
        measured_run(self.run).await
    }
}

struct Entered {
    used: PooledMemory,
    instance: Instance,
    entry: Entry,
}

impl Entered {
    /// Enters the instance, which waits for its program then.
    async fn up_to_its_program(self, recorder: Arc<ReadRecorder>, awaited: AwaitedJob) -> wasmtime::Result<Guest> {
        let AwaitedJob { ready, hand_in } = awaited;
        let (program, coming) = oneshot::channel();
        let mut run: RunFuture = Box::pin(self.live(coming, hand_in));
        tokio::select! {
            biased;
            Ok(()) = ready => Ok(Guest { program, run, recorder }),
            Ended { outcome, .. } = &mut run => {
                let reported = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
                Err(wasmtime::Error::msg(format!("it did not request a program: {:?} {reported}", outcome.end)))
            }
        }
    }

    /// From before its program arrives to after its end.
    async fn live(mut self, coming: oneshot::Receiver<Program>, hand_in: oneshot::Sender<State>) -> Ended {
        let (mut output_bytes, mut session) = (0, None);
        let stopped = {
            let mut running = pin!(self.enter());
            let deadline = async {
                // Without a program the wait has no end: the owner drops all of this.
                let Ok(program) = coming.await else { return std::future::pending().await };
                (output_bytes, session) = (program.output_bytes, program.session);
                let limits = (program.wall_time, program.total_time, Arc::clone(&program.waited));
                let _ = hand_in.send(State::of(program));
                expire(limits).await;
            };
            let mut deadline = pin!(deadline);
            // The deadline first: polling it delivers the program.
            tokio::select! {
                biased;
                () = &mut deadline => Stopped::Late,
                returned = &mut running => Stopped::Returned(returned),
            }
        };
        self.ended(stopped, output_bytes, session)
    }

    /// The remains of a program that has ended or was stopped. Only an instance whose turn has returned can be entered
    /// again, and one whose harness did not report an end may not run the next program. With a program that exceeded a
    /// limit, the instance of a session ends; the session may have its state from before.
    fn ended(mut self, stopped: Stopped, output_bytes: u64, session: Option<SessionId>) -> Ended {
        let has_returned = matches!(stopped, Stopped::Returned(Ok(_)));
        let State { mut wasi, mut host_call, memory, .. } = std::mem::take(self.used.store.data_mut());
        let heard = if self.entry == Entry::Start {
            host_call::file_channel::handle(wasi.files(), &mut host_call)
        } else {
            Ok(())
        };
        let reported = host_call.left.end.take();
        let has_reported = reported.is_some();
        let mut end = end_of(stopped, reported, memory.refused);
        let (stdout, stderr) = wasi.take_output();
        // The reason for a stop takes precedence over the guest's report.
        let mut over = |limit: &str| {
            if matches!(end, End::Exited { .. } | End::Exception { .. }) {
                end = End::Output(limit.to_owned());
            }
        };
        if let Err(Spent(limit)) = heard {
            over(limit);
        }
        let files = output_files(wasi.files(), output_bytes).unwrap_or_else(|_| {
            over("file_bytes");
            Vec::new()
        });
        let read_time_or_random = wasi.has_read_time_or_random();
        let usage = Usage { peak_memory_bytes: memory.peak, read_time_or_random, ..Usage::default() };
        let goes_on = has_returned && has_reported && matches!(end, End::Exited { .. } | End::Exception { .. });
        let host_call::Left { result, images, .. } = host_call.left;
        let outcome = Outcome { end, result, stdout, stderr, files, images, usage, session_bytes: None, read: None };
        let left = match session.filter(|_| goes_on) {
            Some(id) => Remains::Session(Box::new(SessionGuest::new(id, self, wasi))),
            None => Remains::Used(Teardown::of(self.used)),
        };
        Ended { outcome, left }
    }

    /// Calls the module, and returns its exit code.
    async fn enter(&mut self) -> wasmtime::Result<i32> {
        let Entry::Turn(source) = &self.entry else {
            return self.start().await;
        };
        let allocate = self.instance.get_typed_func::<u32, u32>(&mut self.used.store, "host_alloc")?;
        let turn = self.instance.get_typed_func::<(u32, u32), i32>(&mut self.used.store, "turn")?;
        let length = u32::try_from(source.len())?;
        // 0 means out of memory; `turn` then raises the guest's own error.
        let at = allocate.call_async(&mut self.used.store, length).await?;
        if at != 0 {
            GuestMemory(self.used.memory.data_mut(&mut self.used.store))
                .store(at, source.as_bytes())
                .map_err(|_| wasmtime::Error::msg("host_alloc returned an address outside the memory"))?;
        }
        Ok(turn.call_async(&mut self.used.store, (at, length)).await? & STATUS_BITS)
    }

    /// A command reads its program at its start, so it waits before.
    async fn start(&mut self) -> wasmtime::Result<i32> {
        let start = self.instance.get_typed_func::<(), ()>(&mut self.used.store, "_start")?;
        let memory_bytes = self.used.memory.data_size(&self.used.store) as u64;
        if let Some(waiting) = self.used.store.data_mut().waiting.take() {
            *self.used.store.data_mut() = waiting.program(memory_bytes).await?;
        }
        start.call_async(&mut self.used.store, ()).await?;
        Ok(0)
    }
}

fn memory_of(instance: &Instance, store: &mut Store<State>) -> wasmtime::Result<Memory> {
    let memory = instance.get_memory(store, "memory");
    memory.ok_or_else(|| wasmtime::Error::msg("the module does not export its memory"))
}

#[cfg(test)]
mod tests;
