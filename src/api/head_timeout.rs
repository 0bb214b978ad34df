//! Closes a connection whose client sends too little in time: at its start, and in HTTP/2 of the head of a request.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// With this a connection of HTTP/2 begins (RFC 9113 §3.4): after so many bytes the version is known. No request of
/// HTTP/1.1 is shorter, since it names a host.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// hyper has no time limit before it knows the version of HTTP, and none for a head in HTTP/2; this adds both.
#[derive(Debug)]
pub(super) struct HeadTimeout<S> {
    stream: S,
    timeout: Duration,
    received: Received,
    /// When the missing part must have come; `None` while nothing is missing.
    end: Option<Pin<Box<Sleep>>>,
}

/// The part that came so far.
#[derive(Debug)]
enum Received {
    /// So many bytes, all of them of the preface or not.
    Start {
        bytes: usize,
        is_preface: bool,
    },
    /// hyper limits the time of its heads.
    Http1,
    Http2(Frames),
}

/// The frames of HTTP/2, of which only type, length and one flag are read (RFC 9113 §4.1).
#[derive(Debug, Default)]
struct Frames {
    header: [u8; 9],
    /// Bytes of the header of the next frame.
    header_bytes: usize,
    /// Bytes of the payload that are missing.
    missing: usize,
    /// A block of headers has begun. No other frame comes before its end (§6.10).
    in_head: bool,
    /// The present frame is the last of its block.
    ends_head: bool,
}

const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;

impl<S> HeadTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        let received = Received::Start { bytes: 0, is_preface: true };
        Self { stream, timeout, received, end: Some(Box::pin(sleep(timeout))) }
    }

    fn receive(&mut self, bytes: &[u8]) {
        // Nearly every head comes whole: a timer is only made for one that does not.
        match self.received.add(bytes) {
            Progress::Complete => self.end = None,
            Progress::Missing { is_new: false } if self.end.is_some() => {}
            Progress::Missing { .. } => self.end = Some(Box::pin(sleep(self.timeout))),
        }
    }
}

/// Whether something is missing that must come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Complete,
    /// `is_new`: another thing than before.
    Missing {
        is_new: bool,
    },
}

impl Received {
    fn add(&mut self, mut bytes: &[u8]) -> Progress {
        if let Self::Start { bytes: before, is_preface } = self {
            let (of_start, rest) = bytes.split_at(bytes.len().min(PREFACE.len() - *before));
            *is_preface &= PREFACE[*before..].starts_with(of_start);
            *before += of_start.len();
            if *before < PREFACE.len() {
                return Progress::Missing { is_new: false };
            }
            *self = if *is_preface { Self::Http2(Frames::default()) } else { Self::Http1 };
            bytes = rest;
        }
        match self {
            Self::Http2(frames) => frames.add(bytes),
            Self::Http1 | Self::Start { .. } => Progress::Complete,
        }
    }
}

impl Frames {
    fn add(&mut self, mut bytes: &[u8]) -> Progress {
        let mut is_new = !self.in_head;
        while let Some((&first, rest)) = bytes.split_first() {
            if self.missing > 0 {
                let of_payload = self.missing.min(bytes.len());
                self.missing -= of_payload;
                bytes = &bytes[of_payload..];
            } else {
                self.header[self.header_bytes] = first;
                self.header_bytes += 1;
                bytes = rest;
                self.read_header();
            }
            if self.missing == 0 && self.header_bytes == 0 && std::mem::take(&mut self.ends_head) {
                (self.in_head, is_new) = (false, true);
            }
        }
        if self.in_head { Progress::Missing { is_new } } else { Progress::Complete }
    }

    fn read_header(&mut self) {
        let [length @ .., kind, flags, _, _, _, _] = self.header;
        if self.header_bytes > 3 && kind == HEADERS {
            self.in_head = true;
        }
        if self.header_bytes == self.header.len() {
            self.header_bytes = 0;
            self.missing = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            self.ends_head = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.receive(&buffer.filled()[before..]);
        }
        // Also while bytes come: one at a time is not in time either.
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request arrived in time")));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadTimeout<S> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// The progress after each piece.
    fn progress(pieces: &[&[u8]]) -> Vec<Progress> {
        let mut received = Received::Start { bytes: 0, is_preface: true };
        pieces.iter().map(|piece| received.add(piece)).collect()
    }

    const COMPLETE: Progress = Progress::Complete;
    const MISSING: Progress = Progress::Missing { is_new: false };
    const BEGUN: Progress = Progress::Missing { is_new: true };

    #[test]
    fn a_head_is_missing_from_its_first_byte_to_the_end_of_its_last_frame() {
        let (settings, data) = (frame(4, 0, &[]), frame(0, 1, b"body"));
        let head = frame(HEADERS, 0, b"ab");
        let (more, last) = (frame(CONTINUATION, 0, b""), frame(CONTINUATION, END_HEADERS, b"c"));
        let whole = frame(HEADERS, END_HEADERS, b"abc");
        let both = [&*last, &*head].concat();
        let cases: &[(&[&[u8]], &[Progress])] = &[
            (&[&PREFACE[..10], &PREFACE[10..], &settings], &[MISSING, COMPLETE, COMPLETE]),
            (&[b"GET / HTTP/1.1\r\n", b"Host: example\r\n", &head], &[MISSING, COMPLETE, COMPLETE]),
            (&[&PREFACE, &whole, &data, &whole], &[COMPLETE; 4]),
            (&[&PREFACE, &head, &more, &last, &data], &[COMPLETE, BEGUN, MISSING, COMPLETE, COMPLETE]),
            (&[&PREFACE, &head, &both, &last], &[COMPLETE, BEGUN, BEGUN, COMPLETE]),
            (
                &[&PREFACE, &whole[..3], &whole[3..4], &whole[4..11], &whole[11..]],
                &[COMPLETE, COMPLETE, BEGUN, MISSING, COMPLETE],
            ),
            (&[&PREFACE, &data[..6], &data[6..]], &[COMPLETE; 3]),
        ];
        for (pieces, expected) in cases {
            assert_eq!(progress(pieces), *expected);
        }
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_frames_are_cut_into_pieces(
            frames in prop::collection::vec((0_u8..11, any::<u8>(), 0_usize..40), 0..12),
            size in 1_usize..30,
        ) {
            let mut bytes = PREFACE.to_vec();
            for (kind, flags, length) in &frames {
                bytes.extend(frame(*kind, *flags, &vec![HEADERS; *length]));
            }
            let last = |pieces: Vec<&[u8]>| *progress(&pieces).last().unwrap() == COMPLETE;
            prop_assert_eq!(last(vec![&bytes[..]]), last(bytes.chunks(size).collect()));
        }
    }
}
