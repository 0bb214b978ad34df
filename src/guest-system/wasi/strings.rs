//! The calls that give a program its arguments and its environment.

use super::errno::Errno;
use super::memory::GuestMemory;
use super::{Answer, Wasi};

impl Wasi {
    pub(super) fn args_get(&mut self, memory: &mut GuestMemory<'_>, pointers: u32, bytes: u32) -> Answer {
        put_strings(memory, &self.arguments, pointers, bytes)
    }

    pub(super) fn args_sizes_get(&mut self, memory: &mut GuestMemory<'_>, count: u32, bytes: u32) -> Answer {
        put_sizes(memory, &self.arguments, count, bytes)
    }

    pub(super) fn environ_get(&mut self, memory: &mut GuestMemory<'_>, pointers: u32, bytes: u32) -> Answer {
        put_strings(memory, &self.environment, pointers, bytes)
    }

    pub(super) fn environ_sizes_get(&mut self, memory: &mut GuestMemory<'_>, count: u32, bytes: u32) -> Answer {
        put_sizes(memory, &self.environment, count, bytes)
    }
}

fn put_sizes(memory: &mut GuestMemory<'_>, strings: &[Vec<u8>], count: u32, bytes: u32) -> Answer {
    let size = |length: usize| u32::try_from(length).map_err(|_| Errno::Overflow);
    memory.store(count, &size(strings.len())?.to_le_bytes())?;
    memory.store(bytes, &size(strings.iter().map(Vec::len).sum())?.to_le_bytes())
}

fn put_strings(memory: &mut GuestMemory<'_>, strings: &[Vec<u8>], pointers: u32, bytes: u32) -> Answer {
    let (mut pointer, mut at) = (pointers, bytes);
    for string in strings {
        memory.store(pointer, &at.to_le_bytes())?;
        memory.store(at, string)?;
        pointer = pointer.checked_add(4).ok_or(Errno::Fault)?;
        let length = u32::try_from(string.len()).map_err(|_| Errno::Overflow)?;
        at = at.checked_add(length).ok_or(Errno::Fault)?;
    }
    Ok(())
}
