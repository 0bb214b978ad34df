//! Log output: a buffer that a separate thread writes, so that logging a call costs a copy and no system call. Lines
//! are written within 50 ms, and all of them before the process exits.
//!
//! Figure: a system call a line is 1 µs and more, of 3.6 µs for a whole call. Bench: `cargo bench --bench pipeline`.
//! Remove when a crate (tracing-appender's non-blocking writer is the nearest) drops lines of a reader that does not
//! read, counts them, and writes the rest within a bound when the process ends.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::batch_queue::BatchQueue;
use sekisho_core::text_direction;

/// How long lines are collected before they are written together.
const GATHER: Duration = Duration::from_millis(40);

/// A buffer of this size is written at once.
const PLENTY: usize = 64 << 10;

/// Beyond this, when the output blocks, lines are dropped and counted: a blocked terminal must not stop
/// calls.
const MAX_BUFFERED: usize = 16 << 20;

/// How long the exit waits for a blocked output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A buffer for whole lines. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Sink(Arc<Buffer>);

#[derive(Debug)]
struct Buffer {
    text: BatchQueue<u8>,
    dropped_lines: AtomicU64,
}

/// Owns the writing thread; writes the remaining lines when dropped.
#[derive(Debug)]
pub(super) struct SinkWriter {
    sink: Sink,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Sink {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<SinkWriter> {
        let sink = Self(Arc::new(Buffer { text: BatchQueue::new(PLENTY), dropped_lines: AtomicU64::new(0) }));
        let (ending, ended) = channel();
        let writing = sink.clone();
        thread::Builder::new().name("log".into()).spawn(move || {
            let _ending: Sender<()> = ending;
            writing.write_out(out);
        })?;
        Ok(SinkWriter { sink, ended })
    }

    /// Adds one line, newline included.
    pub(super) fn write_line(&self, line: &[u8]) {
        let mut fits = true;
        let taken = self.0.text.put(|text| {
            fits = text.len() + line.len() <= MAX_BUFFERED;
            if fits {
                text.extend_from_slice(line);
            }
        });
        if !fits {
            self.0.dropped_lines.fetch_add(1, Ordering::Relaxed);
        } else if !taken {
            // After the thread has ended: write inline.
            let _ = io::stderr().write_all(line);
        }
    }

    fn write_out(&self, mut out: impl Write) {
        let mut text = Vec::new();
        while self.0.text.take(GATHER, &mut text) {
            // An error of the log itself cannot be logged.
            let _ = out.write_all(&escaped(&text)).and_then(|()| out.flush());
            text.clear();
            let dropped_lines = self.0.dropped_lines.swap(0, Ordering::Relaxed);
            if dropped_lines > 0 {
                tracing::warn!(dropped_lines, "log lines were dropped: the output was blocked");
            }
        }
        let _ = out.write_all(&escaped(&self.0.text.end())).and_then(|()| out.flush());
    }
}

/// The text with the characters escaped that change its direction.
fn escaped(text: &[u8]) -> Cow<'_, [u8]> {
    // The first bytes of all these characters.
    if memchr::memchr2(0xd8, 0xe2, text).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text_direction::escaped(&String::from_utf8_lossy(text)).into_owned().into_bytes())
}

/// For layers that write through [`Write`]: one call, one line.
impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SinkWriter {
    pub(super) fn sink(&self) -> Sink {
        self.sink.clone()
    }
}

impl Drop for SinkWriter {
    fn drop(&mut self) {
        self.sink.0.text.close();
        // Either it has ended, or it is blocked.
        let _ = self.ended.recv_timeout(EXIT_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::time::Instant;

    use super::*;
    use sekisho_core::slack::slack;

    /// Forwards writes, and blocks while they are not received.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(text.to_vec());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_line_reads_as_another() {
        let (pipe, out) = sync_channel(10);
        let writer = Sink::start(Pipe(pipe)).unwrap();
        writer.sink().write_line("{\"tool\":\"a\u{202e}b\u{2066}関所€é\u{61c}\"}\n".as_bytes());
        drop(writer);
        let written = out.iter().flatten().collect();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"tool\":\"a\\u202eb\\u2066関所€é\\u061c\"}\n");
    }

    #[test]
    fn every_line_is_out_before_the_end_and_in_few_writes() {
        let (pipe, out) = sync_channel(10_000);
        let writer = Sink::start(Pipe(pipe)).unwrap();
        for n in 0..1_000 {
            writer.sink().write_line(format!("line {n}\n").as_bytes());
        }
        let closing = Instant::now();
        drop(writer);
        assert!(closing.elapsed() < slack(EXIT_TIMEOUT), "it waits for nothing more");
        let writes: Vec<_> = out.try_iter().collect();
        assert!(writes.len() <= 10, "{} writes", writes.len());
        let expected: String = (0..1_000).map(|n| format!("line {n}\n")).collect();
        assert_eq!(String::from_utf8(writes.concat()).unwrap(), expected);
    }

    #[test]
    fn a_blocked_output_does_not_block_callers() {
        let (pipe, out) = sync_channel(0);
        let writer = Sink::start(Pipe(pipe)).unwrap();
        let line = [b'x'; 1 << 20];
        for _ in 0..40 {
            writer.sink().write_line(&line);
        }
        let buffer = Arc::clone(&writer.sink.0);
        assert!(buffer.dropped_lines.load(Ordering::Relaxed) >= 7, "they are counted");
        drop(out);
        drop(writer);
    }
}
