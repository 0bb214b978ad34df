use std::collections::BTreeMap;

use super::copy;

/// Kept together: one byte at 1 TiB costs so much.
pub(super) const CHUNK_BYTES: usize = 4096;

/// The bytes of a file that was written: whole chunks, and holes between them that read as zeros.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    pub(super) length: u64,
    chunks: BTreeMap<u64, Box<[u8; CHUNK_BYTES]>>,
}

impl Sparse {
    /// Bytes that it takes.
    pub(super) fn stored_bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES) as u64
    }

    /// Copies bytes from an offset on into the buffer, and says how many there were.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..count).filter(|rest| !rest.is_empty()) {
            let (number, within) = chunk_of(offset + done as u64);
            let here = rest.len().min(CHUNK_BYTES - within);
            match self.chunks.get(&number).and_then(|chunk| chunk.get(within..)) {
                Some(bytes) => _ = copy(rest, bytes),
                None => rest.iter_mut().take(here).for_each(|byte| *byte = 0),
            }
            done += here;
        }
        count
    }

    /// Writes what `room` more bytes suffice for, and says how much that was. The end must be an offset.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], room: u64) -> usize {
        let mut chunks_left = room / CHUNK_BYTES as u64;
        let mut written = 0;
        while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
            let (number, within) = chunk_of(offset + written as u64);
            if !self.chunks.contains_key(&number) {
                let Some(left) = chunks_left.checked_sub(1) else { break };
                chunks_left = left;
            }
            let chunk = self.chunks.entry(number).or_insert_with(|| Box::new([0; CHUNK_BYTES]));
            written += copy(chunk.get_mut(within..).unwrap_or_default(), rest);
        }
        if written > 0 {
            self.length = self.length.max(offset + written as u64);
        }
        written
    }

    /// Cuts it, or lengthens it by a hole.
    pub(super) fn resize(&mut self, length: u64) {
        self.length = length;
        let (number, within) = chunk_of(length);
        // What stood past the end must not come back when the file grows again.
        let mut freed = self.chunks.split_off(&number);
        if within > 0
            && let Some(mut kept) = freed.remove(&number)
        {
            kept.iter_mut().skip(within).for_each(|byte| *byte = 0);
            self.chunks.insert(number, kept);
        }
    }
}

/// A chunk's number, and the place in it.
#[expect(clippy::cast_possible_truncation, reason = "a rest of a division by 4096")]
fn chunk_of(offset: u64) -> (u64, usize) {
    (offset / CHUNK_BYTES as u64, (offset % CHUNK_BYTES as u64) as usize)
}
