//! The values that a program read and that differ between runs. Its journal has them; the worker that runs the program
//! records them.

use serde::{Deserialize, Serialize};

/// Maximum bytes of a journal, with the program and its input.
pub const MAX_JOURNAL_BYTES: usize = 4 << 20;

/// Something that a program read and that is not the same in each run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// The time, in nanoseconds since 1970.
    Real(u64),
    /// A clock that only goes forward, in nanoseconds.
    Elapsed(u64),
    Random(Vec<u8>),
    /// The request whose answer ended a wait for several; none in time.
    Waited(Option<u32>),
}

impl Reading {
    /// About its bytes in the journal. For random bytes, also the memory of a short value, so that many of them are
    /// bounded.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Random(bytes) => bytes.len() + 32,
            Self::Real(_) | Self::Elapsed(_) | Self::Waited(_) => 11,
        }
    }

    /// Whether it counts as a reading of a clock. A wait does: it is as long.
    pub fn is_of_clock(&self) -> bool {
        !matches!(self, Self::Random(_))
    }
}
