use super::errno::Errno;

/// Maximum buffers of one vectored call, as on Linux (`IOV_MAX`).
const MAX_BUFFERS: u32 = 1024;
/// An `iovec`: address and length.
const BUFFER_RECORD_BYTES: u32 = 8;

/// The guest's linear memory. Every address and length comes from the guest and is checked here.
#[derive(Debug)]
pub struct GuestMemory<'m>(pub &'m mut [u8]);

impl GuestMemory<'_> {
    /// Errors: [`Errno::Fault`] when the range is not completely inside the memory.
    pub fn bytes(&self, at: u32, length: u32) -> Result<&[u8], Errno> {
        let start = at as usize;
        self.0.get(start..start.saturating_add(length as usize)).ok_or(Errno::Fault)
    }

    /// Errors: as [`GuestMemory::bytes`].
    pub fn bytes_mut(&mut self, at: u32, length: u32) -> Result<&mut [u8], Errno> {
        let start = at as usize;
        self.0.get_mut(start..start.saturating_add(length as usize)).ok_or(Errno::Fault)
    }

    /// Errors: as [`GuestMemory::bytes`].
    pub fn store(&mut self, at: u32, data: &[u8]) -> Result<(), Errno> {
        let start = at as usize;
        let room = self.0.get_mut(start..start.saturating_add(data.len())).ok_or(Errno::Fault)?;
        room.copy_from_slice(data);
        Ok(())
    }

    /// Errors: as [`GuestMemory::bytes`].
    pub fn array<const N: usize>(&self, at: u32) -> Result<[u8; N], Errno> {
        let start = at as usize;
        let bytes = self.0.get(start..start.saturating_add(N)).ok_or(Errno::Fault)?;
        bytes.try_into().map_err(|_| Errno::Fault)
    }

    /// Errors: as [`GuestMemory::bytes`].
    pub fn u32_at(&self, at: u32) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    /// A path. The file system's names are UTF-8, so other bytes cannot name a file.
    /// Errors: [`Errno::Fault`], or [`Errno::IllegalBytes`] for invalid UTF-8, or [`Errno::NotCapable`] for an absolute
    /// path.
    pub(super) fn path(&self, at: u32, length: u32) -> Result<&str, Errno> {
        let path = std::str::from_utf8(self.bytes(at, length)?).map_err(|_| Errno::IllegalBytes)?;
        if path.starts_with('/') { Err(Errno::NotCapable) } else { Ok(path) }
    }

    /// Processes the buffers of a vectored call in order, until one is not used fully or `limit` bytes are done;
    /// returns the number of bytes. An error after the first bytes is left for the next call to report, as in POSIX.
    pub(super) fn transfer(
        &mut self,
        (buffers, count): (u32, u32),
        limit: u32,
        mut one: impl FnMut(&mut [u8], u32) -> Result<usize, Errno>,
    ) -> Result<u32, Errno> {
        if count > MAX_BUFFERS {
            return Err(Errno::Invalid);
        }
        let mut done: u32 = 0;
        for number in 0..count {
            let record = buffers.checked_add(number * BUFFER_RECORD_BYTES).ok_or(Errno::Fault)?;
            let at = self.u32_at(record)?;
            let length = self.u32_at(record.checked_add(4).ok_or(Errno::Fault)?)?;
            self.bytes(at, length)?;
            let length = length.min(limit - done);
            let moved = match one(self.bytes_mut(at, length)?, done) {
                Ok(moved) => u32::try_from(moved).unwrap_or(length).min(length),
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            };
            done += moved;
            if moved < length || done == limit {
                break;
            }
        }
        Ok(done)
    }
}
