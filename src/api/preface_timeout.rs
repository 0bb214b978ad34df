//! Closes a connection whose client sends too little in time at the start.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// HTTP/2's preface (RFC 9113 §3.4): after this many bytes the version is known. No request of HTTP/1.1 is shorter,
/// since it names a host.
const PREFACE_BYTES: usize = 24;

/// hyper has no time limit before it knows the version of HTTP; this adds one.
#[derive(Debug)]
pub(super) struct PrefaceTimeout<S> {
    stream: S,
    /// `None` once enough bytes were read.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    missing: usize,
    end: Pin<Box<Sleep>>,
}

impl<S> PrefaceTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, waiting: Some(Waiting { missing: PREFACE_BYTES, end: Box::pin(sleep(timeout)) }) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(waiting) = &mut self.waiting else { return read };
        if read.is_pending() {
            ready!(waiting.end.as_mut().poll(context));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request arrived in time")));
        }
        waiting.missing = waiting.missing.saturating_sub(buffer.filled().len() - before);
        if waiting.missing == 0 {
            self.waiting = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefaceTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
