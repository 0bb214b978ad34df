use std::collections::BTreeMap;

use super::copy;

/// Size of a chunk: the memory that one byte at offset 1 TiB costs.
pub(super) const CHUNK_BYTES: usize = 4096;

/// The content of a written file: whole chunks, and holes between them that read as zeros.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    pub(super) length: u64,
    chunks: BTreeMap<u64, Box<[u8; CHUNK_BYTES]>>,
}

impl Sparse {
    /// A hole.
    pub(super) fn of_length(length: u64) -> Self {
        Self { length, chunks: BTreeMap::new() }
    }

    /// Bytes of memory it uses.
    pub(super) fn stored_bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES) as u64
    }

    /// Copies bytes from an offset into the buffer; returns their number.
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

    /// Writes as much as fits into `room` more bytes; returns that number of bytes. The end must be a valid offset.
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

    /// Truncates it, or extends it by a hole.
    pub(super) fn resize(&mut self, length: u64) {
        self.length = length;
        let (number, within) = chunk_of(length);
        // Old bytes past the end must not reappear when the file grows again.
        let mut freed = self.chunks.split_off(&number);
        if within > 0
            && let Some(mut kept) = freed.remove(&number)
        {
            kept.iter_mut().skip(within).for_each(|byte| *byte = 0);
            self.chunks.insert(number, kept);
        }
    }

    /// The stored chunks from this number on.
    pub(super) fn chunks_from(&self, number: u64) -> impl Iterator<Item = (u64, &[u8; CHUNK_BYTES])> {
        self.chunks.range(number..).map(|(number, chunk)| (*number, &**chunk))
    }

    /// Stores a chunk of a file whose length is set already.
    pub(super) fn put_chunk(&mut self, number: u64, chunk: [u8; CHUNK_BYTES]) {
        self.chunks.insert(number, Box::new(chunk));
    }
}

/// A chunk's number, and the position in it.
#[expect(clippy::cast_possible_truncation, reason = "the remainder of a division by 4096")]
fn chunk_of(offset: u64) -> (u64, usize) {
    (offset / CHUNK_BYTES as u64, (offset % CHUNK_BYTES as u64) as usize)
}
