//! The host's state of an instance, and how the instance waits for its program.

use std::sync::Arc;

use tokio::sync::oneshot;
use wasmtime::{Caller, Extern};

use super::Program;
use super::memory::MemoryLimit;
use crate::host_call::HostCall;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_system::wasi::Wasi;

/// By default without a program, and without a limit on memory.
pub(super) struct State {
    pub(super) wasi: Wasi,
    pub(super) host_call: HostCall,
    pub(super) memory: MemoryLimit,
    /// Until the program arrives.
    pub(super) waiting: Option<AwaitingJob>,
}

/// The other ends of an [`AwaitingJob`].
pub(super) struct AwaitedJob {
    pub(super) ready: oneshot::Receiver<()>,
    pub(super) hand_in: oneshot::Sender<State>,
}

/// The future in which a guest waits for its program.
pub(super) struct AwaitingJob {
    reached: oneshot::Sender<()>,
    program: oneshot::Receiver<State>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            wasi: Wasi::default(),
            host_call: HostCall::default(),
            memory: MemoryLimit::new(u64::MAX, 0),
            waiting: None,
        }
    }
}

impl State {
    /// The state of an instance that reads from this recorder before it has its program, too.
    pub(super) fn awaiting_job(recorder: &Arc<ReadRecorder>) -> (Self, AwaitedJob) {
        let (reached, ready) = oneshot::channel();
        let (hand_in, handed_in) = oneshot::channel();
        let waiting = Some(AwaitingJob { reached, program: handed_in });
        let state = Self { wasi: Wasi::default().reading(recorder), waiting, ..Self::default() };
        (state, AwaitedJob { ready, hand_in })
    }

    pub(super) fn of(program: Program) -> Self {
        let Program { wasi, host_call, memory_bytes, .. } = program;
        Self { wasi, host_call, memory: MemoryLimit::new(memory_bytes, 0), waiting: None }
    }
}

impl AwaitingJob {
    /// Errors: when no program will arrive, or its limit is less than the guest's current memory.
    pub(super) async fn program(self, memory_bytes: u64) -> wasmtime::Result<State> {
        // The owner may have dropped the guest meanwhile, and with it all of this.
        let _ = self.reached.send(());
        let mut state = self.program.await?;
        state.memory = state.memory.beginning_at(memory_bytes)?;
        Ok(state)
    }
}

/// The first `host.call` waits here until a program arrives, and applies its limits.
pub(super) async fn await_program(caller: &mut Caller<'_, State>) -> wasmtime::Result<()> {
    let Some(waiting) = caller.data_mut().waiting.take() else { return Ok(()) };
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(()) };
    let memory_bytes = memory.data_size(&*caller) as u64;
    *caller.data_mut() = waiting.program(memory_bytes).await?;
    Ok(())
}
