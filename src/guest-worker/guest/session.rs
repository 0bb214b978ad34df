//! An instance between the calls of a session. Each call enters it by one turn, which returns; meanwhile it rests.

use std::pin::pin;

use super::end::Stopped;
use super::memory::MemoryLimit;
use super::output::OUTPUT_FOLDER;
use super::time::{expire, measured_run};
use super::{Ended, Entered, Program, Remains, State, Teardown};
use sekisho_guest_protocol::SessionId;
use sekisho_guest_system::files::{Files, ROOT};
use sekisho_guest_system::wasi::Wasi;

/// An instance that can be entered again.
pub struct SessionGuest {
    pub id: SessionId,
    pub(super) entered: Entered,
    pub(super) wasi: Wasi,
    /// Whether it is a copy of another one, whose next program has the random numbers seeded anew.
    pub is_copy: bool,
}

sekisho_core::debug_fields!(SessionGuest { id });

impl SessionGuest {
    /// After a turn that has returned.
    pub(super) fn new(id: SessionId, entered: Entered, mut wasi: Wasi) -> Self {
        if let Ok(output) = wasi.files().find(ROOT, OUTPUT_FOLDER) {
            wasi.files_mut().mark_known(output);
        }
        Self { id, entered, wasi, is_copy: false }
    }

    pub fn files(&self) -> &Files {
        self.wasi.files()
    }

    pub fn files_mut(&mut self) -> &mut Files {
        self.wasi.files_mut()
    }

    /// The size of its linear memory.
    pub fn memory_size(&self) -> u64 {
        self.entered.used.memory.data_size(&self.entered.used.store) as u64
    }

    /// The part of it that it does not share with others of its profile.
    pub fn own_memory_bytes(&self) -> u64 {
        self.entered.used.own_bytes()
    }

    /// Its system, for the next program.
    pub fn take_system(&mut self) -> Wasi {
        std::mem::take(&mut self.wasi)
    }

    /// Runs the next program to its end. Dropping the future stops it at once, and the session with it.
    pub async fn run(self, program: Program) -> Ended {
        let stays_copy = self.is_copy && !program.host_call.reseeds();
        let mut ended = measured_run(Box::pin(self.entered.take_turn(program))).await;
        if let Remains::Session(guest) = &mut ended.left {
            guest.is_copy = stays_copy;
        }
        ended
    }

    /// Ends the session.
    pub fn end(self) -> Teardown {
        Teardown::of(self.entered.used)
    }
}

impl Entered {
    /// One more turn, with the program's own limits.
    async fn take_turn(mut self, program: Program) -> Ended {
        let Program { wasi, host_call, wall_time, total_time, waited, memory_bytes, output_bytes, session } = program;
        let size = self.used.memory.data_size(&self.used.store) as u64;
        let (memory, too_small) = match MemoryLimit::new(memory_bytes, 0).beginning_at(size) {
            Ok(memory) => (memory, None),
            Err(too_small) => (MemoryLimit::new(memory_bytes, size), Some(too_small)),
        };
        *self.used.store.data_mut() = State { wasi, host_call, memory, waiting: None };
        let stopped = if let Some(too_small) = too_small {
            Stopped::Returned(Err(too_small.into()))
        } else {
            let mut running = pin!(self.enter());
            let mut deadline = pin!(expire((wall_time, total_time, waited)));
            tokio::select! {
                biased;
                () = &mut deadline => Stopped::Late,
                returned = &mut running => Stopped::Returned(returned),
            }
        };
        self.ended(stopped, output_bytes, session)
    }
}
