use bytes::{Buf, Bytes};

use crate::files::copy;
use sekisho_guest_protocol::Captured;

/// Standard input: bytes given at the start.
#[derive(Debug, Default)]
pub(super) struct Input(pub(super) Bytes);

impl Input {
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = copy(buffer, &self.0);
        self.0.advance(count);
        count
    }
}

/// Standard output or error: stores the start and accepts the rest as written, so that a program that prints too much
/// continues.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) captured: Captured,
    most: u64,
}

impl Output {
    pub(super) fn new(most: u64) -> Self {
        Self { captured: Captured::default(), most }
    }

    pub(super) fn write(&mut self, data: &[u8]) -> usize {
        let room = self.most.saturating_sub(self.captured.bytes.len() as u64);
        let kept = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.captured.bytes.extend_from_slice(data.get(..kept).unwrap_or_default());
        self.captured.total = self.captured.total.saturating_add(data.len() as u64);
        data.len()
    }
}
