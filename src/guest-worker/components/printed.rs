//! The output of a component: the start is kept, and the rest is counted and dropped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use sekisho_guest_protocol::Captured;

/// Maximum length of one write: it is copied out of the component before it is dropped.
const MAX_WRITE_BYTES: usize = 64 << 10;

/// One of the two streams. Clones are the same stream.
#[derive(Debug, Clone)]
pub(super) struct Printed {
    captured: Arc<Mutex<Captured>>,
    most: usize,
}

impl Printed {
    pub(super) fn new(most: u64) -> Self {
        Self { captured: Arc::default(), most: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    pub(super) fn take(&self) -> Captured {
        std::mem::take(&mut *self.captured.lock())
    }
}

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    /// For a version of WASI that is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

impl OutputStream for Printed {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut captured = self.captured.lock();
        let room = self.most.saturating_sub(captured.bytes.len()).min(bytes.len());
        captured.bytes.extend_from_slice(&bytes[..room]);
        captured.total = captured.total.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_WRITE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_kept_and_the_rest_is_counted() {
        let printed = Printed::new(4);
        let mut stream = printed.p2_stream();
        for text in ["abc", "def"] {
            stream.write(text.into()).unwrap();
        }
        assert_eq!(printed.take(), Captured { bytes: b"abcd".to_vec(), total: 6 });
    }
}
