//! One instance of the interpreter: made ready ahead of its program, run once, and dropped.
//!
//! How a run ended is what the host saw: its own clock, its own limiter, the trap. What the guest says
//! of itself counts only where the host saw nothing else.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use wasmtime::{Engine, Instance, InstancePre, Linker, Memory, Module, ResourceLimiter, Store};

use super::door::{self, Door, Spent};
use super::files::{FileFault, Files, NodeId, ROOT};
use super::frame::{End, GuestFile, Outcome, Usage};
use super::wasi::{self, GuestMemory, Stop, Wasi};

/// Epochs until a running guest lets another have its turn.
const SLICE_EPOCHS: u64 = 1;
/// Bits of what `turn` returns that hold the status.
const STATUS_BITS: i32 = 0xff;
/// Where the guest leaves files for the caller.
pub const OUTPUT_FOLDER: &str = "output";

/// How a module is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A reactor: this source is given to its `turn`.
    Turn(String),
    /// A command: its `_start` is called, and the program stands in its arguments.
    Start,
}

/// A module linked with all it may import.
pub struct Template {
    linked: InstancePre<State>,
    entry: Entry,
}

impl fmt::Debug for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Template").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// An instance that waits for its program.
#[derive(Debug)]
pub struct Guest {
    store: Store<State>,
    instance: Instance,
    memory: Memory,
    entry: Entry,
}

/// What a program is run with.
#[derive(Debug)]
pub struct Program {
    pub wasi: Wasi,
    pub door: Door,
    pub wall_time: Duration,
    pub memory_bytes: u64,
    /// All files that the program leaves, together.
    pub output_bytes: u64,
}

#[derive(Debug)]
struct State {
    wasi: Wasi,
    door: Door,
    memory: MemoryLimit,
}

/// What the host saw of a guest's memory.
#[derive(Debug)]
struct MemoryLimit {
    most: u64,
    peak: u64,
    refused: bool,
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, _now: usize, wanted: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = wanted as u64 <= self.most;
        self.refused |= !allowed;
        if allowed {
            self.peak = self.peak.max(wanted as u64);
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    /// Tables are of fixed size in the module, and the pool bounds them.
    fn table_growing(&mut self, _now: usize, _wanted: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

impl Template {
    /// # Errors
    /// When the module imports what is not given here.
    pub fn new(engine: &Engine, module: &Module, entry: Entry) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        wasi::add_to_linker(&mut linker, |state: &mut State| &mut state.wasi)?;
        door::add_to_linker(&mut linker, |state: &mut State| &mut state.door)?;
        Ok(Self { linked: linker.instantiate_pre(module)?, entry })
    }

    /// An instance with nothing in it of any program.
    ///
    /// # Errors
    /// When the pool is used up, or the module lacks its memory.
    pub async fn guest(&self) -> wasmtime::Result<Guest> {
        let memory = MemoryLimit { most: u64::MAX, peak: 0, refused: false };
        let state = State { wasi: Wasi::default(), door: Door::default(), memory };
        let mut store = Store::new(self.linked.module().engine(), state);
        store.limiter(|state| &mut state.memory);
        store.set_epoch_deadline(SLICE_EPOCHS);
        store.epoch_deadline_async_yield_and_update(SLICE_EPOCHS);
        let instance = self.linked.instantiate_async(&mut store).await?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| wasmtime::Error::msg("the module does not export its memory"))?;
        Ok(Guest { store, instance, memory, entry: self.entry.clone() })
    }
}

impl Guest {
    /// Runs the program to its end. Dropping the future stops it at once.
    pub async fn run(mut self, program: Program) -> Outcome {
        let begun = Instant::now();
        let Program { wasi, door, wall_time, memory_bytes, output_bytes } = program;
        let peak = self.memory.data_size(&self.store) as u64;
        let refused = peak > memory_bytes;
        *self.store.data_mut() = State { wasi, door, memory: MemoryLimit { most: memory_bytes, peak, refused } };
        let mut busy = Duration::ZERO;
        let end = if refused {
            End::Memory
        } else {
            match timeout(wall_time, measured(self.enter(), &mut busy)).await {
                Ok(returned) => self.end(returned),
                Err(_) => End::Timeout,
            }
        };
        let State { mut wasi, door, memory } = self.store.into_data();
        let (stdout, stderr) = wasi.take_output();
        let (end, files) = match output_files(wasi.files(), output_bytes) {
            Ok(files) => (end, files),
            Err(_) => (End::Output("file_bytes".to_owned()), Vec::new()),
        };
        let usage = Usage { wall_time: begun.elapsed(), cpu_time: busy, peak_memory_bytes: memory.peak };
        Outcome { end, result: door.left.result, stdout, stderr, files, images: door.left.images, usage }
    }

    /// Calls the module, and gives its exit code.
    async fn enter(&mut self) -> wasmtime::Result<i32> {
        let Entry::Turn(source) = &self.entry else {
            let start = self.instance.get_typed_func::<(), ()>(&mut self.store, "_start")?;
            start.call_async(&mut self.store, ()).await?;
            return Ok(0);
        };
        let allocate = self.instance.get_typed_func::<u32, u32>(&mut self.store, "host_alloc")?;
        let turn = self.instance.get_typed_func::<(u32, u32), i32>(&mut self.store, "turn")?;
        let length = u32::try_from(source.len())?;
        // 0 says that there is no memory, and `turn` then says so in the guest's own way.
        let at = allocate.call_async(&mut self.store, length).await?;
        if at != 0 {
            GuestMemory(self.memory.data_mut(&mut self.store))
                .store(at, source.as_bytes())
                .map_err(|_| wasmtime::Error::msg("host_alloc gave an address outside the memory"))?;
        }
        Ok(turn.call_async(&mut self.store, (at, length)).await? & STATUS_BITS)
    }

    fn end(&mut self, returned: wasmtime::Result<i32>) -> End {
        let state = self.store.data_mut();
        let end = match returned {
            Ok(code) => state.door.left.end.take().unwrap_or(End::Exited { code }),
            Err(error) => match (error.downcast_ref(), error.downcast_ref()) {
                (Some(Stop::Exit(code)), _) => End::Exited { code: *code },
                (Some(Stop::RandomBytes), _) => End::Output("random_bytes".to_owned()),
                (None, Some(Spent(limit))) => End::Output((*limit).to_owned()),
                (None, None) => End::Trap(error.root_cause().to_string()),
            },
        };
        let recovered = matches!(end, End::Exited { code: 0 } | End::Output(_));
        if state.memory.refused && !recovered { End::Memory } else { end }
    }
}

/// Adds up the time that a future is being polled. On the worker's one thread that is the processor's
/// time, or a little more where the machine is crowded.
async fn measured<F: Future>(future: F, busy: &mut Duration) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let begun = Instant::now();
        let polled = future.as_mut().poll(context);
        *busy += begun.elapsed();
        polled
    })
    .await
}

/// The files under [`OUTPUT_FOLDER`], holes and all, so that their sizes are checked before they are copied.
fn output_files(files: &Files, most: u64) -> Result<Vec<GuestFile>, FileFault> {
    let Ok(top) = files.find(ROOT, OUTPUT_FOLDER) else { return Ok(Vec::new()) };
    let (mut left, mut found, mut folders) = (most, Vec::new(), vec![(String::new(), top)]);
    while let Some((prefix, folder)) = folders.pop() {
        for (name, status) in files.list(folder)? {
            let path = format!("{prefix}{name}");
            if status.is_folder {
                folders.push((format!("{path}/"), status.id));
            } else {
                left = left.checked_sub(status.length).ok_or(FileFault::NoSpace)?;
                found.push(GuestFile { path, content: whole(files, status.id, status.length)? });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn whole(files: &Files, id: NodeId, length: u64) -> Result<Vec<u8>, FileFault> {
    let mut content = vec![0; usize::try_from(length).map_err(|_| FileFault::TooLarge)?];
    files.read(id, 0, &mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
