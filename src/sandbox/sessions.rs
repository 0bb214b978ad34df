//! Sessions: interpreters that live on between the calls that name them.
//!
//! A session belongs to one caller, with the rights with which it began ([`rights`]), and to one worker process. One
//! call at a time has it; others wait in their order. Between two calls it holds the memory that it uses. Sessions have
//! a memory of their own beside the memory of runs. It ends when it was idle or has lived for too long, when others
//! need its place, when its caller deletes it, with its worker, and with a program that crashes or loses its client. The
//! next call that names it begins anew, and is told why. After a program that exceeds a limit it goes on from the state
//! before, unless it is too large for the worker to keep that meanwhile.
//!
//! Where [images] are kept, an idle session, or a session whose place is needed, is stored instead, and leaves the
//! memory. The next call that names it goes on with it, also in another process.
//!
//! ```text
//! call                         sessions                               worker process
//!   | enter --------------------->| begins or finds it, waits for it     |
//!   | waits for capacity          |                                      |
//!   | Run(job in session) ---------------------------------------------->| one turn of its instance
//!   |<------------------------------------------- Done(outcome, its size)| the instance rests
//!   | rests --------------------->| holds the size, or evicts others     |
//!   |                             | EndSession ------------------------->| resets the memory
//!
//!                                 | Read(part of its image) ------------>| the pages that differ, a millisecond long
//!                                 | packs and seals them, names the object in its row
//! enter ------------------------->| takes the row, opens the object      |
//!                                 | Restore(part) … Restored ----------->| a fresh instance that has them
//! ```

mod describe;
mod eviction;
mod fork;
mod hibernate;
mod images;
mod resume;
mod rights;
mod run;
mod session;
mod table;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;

pub use self::describe::{SessionDetails, SessionInfo, SessionPlace, Variable};
pub use self::images::SessionImages;
pub(crate) use self::images::{Packer, Unpacker};
pub(crate) use self::table::{SessionLimits, Sessions};

use self::describe::Variables;
use self::table::SessionInstance;
use crate::code_mode::digest_of;
use crate::worker_handle::WorkerHandle;
use sekisho_guest_protocol::{JobSession, SessionEntry, SessionId};

/// The session that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSession<'a> {
    pub name: &'a str,
    /// Whether it is stored after this call and each later one, before the call is answered.
    pub every_call: bool,
}

/// The interpreter of a session; dropping it ends it in its worker.
#[derive(Debug)]
pub(crate) struct KeptInterpreter {
    worker: Arc<WorkerHandle>,
    id: SessionId,
    profile: String,
    /// The variables that the programs have defined, once they were listed after the last one.
    listed: Option<Variables>,
    /// Digest of all programs that it has run.
    programs: Option<[u8; 32]>,
}

impl KeptInterpreter {
    pub(crate) fn new(worker: Arc<WorkerHandle>, id: SessionId, profile: String) -> Self {
        worker.begin_session();
        Self { worker, id, profile, listed: None, programs: None }
    }

    /// Takes in a program that it will run, and gives the digest of the programs before it.
    fn add_program(&mut self, code: &str) -> Option<[u8; 32]> {
        let digest = digest_of(self.programs, code);
        self.programs.replace(digest)
    }

    pub(crate) fn entered_by(&self, entry: SessionEntry) -> JobSession {
        JobSession { id: self.id, entry }
    }
}

impl SessionInstance for KeptInterpreter {
    fn is_alive(&self) -> bool {
        self.worker.in_flight().is_some()
    }
}

impl Drop for KeptInterpreter {
    fn drop(&mut self) {
        self.worker.end_session(self.id);
    }
}
