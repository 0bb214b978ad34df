//! The binary frames of AWS's event streams
//! (<https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html#streaming-event-stream>): lengths,
//! headers and a payload, with a checksum of the lengths and one of the whole.

use bytes::{Buf, BytesMut};

use super::event_decoder::{Event, MAX_EVENT, Unreadable};

/// Total length, headers length, and the checksum of both, in bytes.
const PRELUDE: usize = 12;

/// Bytes of the checksum at a frame's end.
const CHECKSUM: usize = 4;

/// The header with the frame's type: `event`, `exception` or `error`.
const MESSAGE_TYPE: &[u8] = b":message-type";

/// The headers with the name of an event, exception or error.
const NAMES: [&[u8]; 3] = [b":event-type", b":exception-type", b":error-code"];

/// The state of the decoder.
#[derive(Debug, Default)]
pub(super) struct AwsEventDecoder {
    buffer: BytesMut,
}

impl AwsEventDecoder {
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next frame; `None` until more bytes arrive. A frame that reports a failure has [`Event::failed`] set.
    /// Errors: a frame is larger than [`MAX_EVENT`], or its lengths or checksums do not match.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Unreadable> {
        let (Some(length), Some(headers)) = (number(&self.buffer, 0), number(&self.buffer, 4)) else {
            return Ok(None);
        };
        if length > MAX_EVENT {
            return Err(Unreadable::LargeEvent);
        }
        let payload = length.checked_sub(PRELUDE + CHECKSUM).and_then(|rest| rest.checked_sub(headers));
        let payload = payload.ok_or(Unreadable::Malformed)?;
        if self.buffer.len() < length {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(length);
        let sums = [(8, 8), (length - CHECKSUM, length - CHECKSUM)];
        if sums.iter().any(|(end, at)| number(&frame, *at) != frame.get(..*end).map(checksum)) {
            return Err(Unreadable::Malformed);
        }
        frame.advance(PRELUDE);
        let mut event = described(&frame.split_to(headers)).ok_or(Unreadable::Malformed)?;
        frame.truncate(payload);
        event.data = frame.to_vec();
        Ok(Some(event))
    }
}

/// The event of a frame's headers; `None` if they are incomplete.
fn described(mut headers: &[u8]) -> Option<Event> {
    let mut event = Event::default();
    while let Some((length, rest)) = headers.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let (kind, rest) = rest.split_first()?;
        // True, false, byte, short, integer, long, bytes, text, time, UUID.
        let (size, rest) = match kind {
            0 | 1 => (0, rest),
            2 => (1, rest),
            3 => (2, rest),
            4 => (4, rest),
            5 | 8 => (8, rest),
            9 => (16, rest),
            6 | 7 => {
                let (size, rest) = rest.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(*size)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(size)?;
        if name == MESSAGE_TYPE {
            event.failed = value != b"event";
        } else if NAMES.contains(&name) {
            event.name = String::from_utf8_lossy(value).into_owned();
        }
        headers = rest;
    }
    Some(event)
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_be_bytes(*bytes)).ok()
}

fn checksum(bytes: &[u8]) -> usize {
    crc32fast::hash(bytes) as usize
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with headers of the type "text".
    pub(in crate::models) fn frame(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
        let mut header_bytes = Vec::new();
        for (name, value) in headers {
            header_bytes.push(u8::try_from(name.len()).unwrap());
            header_bytes.extend_from_slice(name.as_bytes());
            header_bytes.push(7);
            header_bytes.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            header_bytes.extend_from_slice(value.as_bytes());
        }
        let length = u32::try_from(PRELUDE + header_bytes.len() + payload.len() + CHECKSUM).unwrap();
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend_from_slice(&u32::try_from(header_bytes.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        frame.extend_from_slice(&header_bytes);
        frame.extend_from_slice(payload.as_bytes());
        frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        frame
    }

    pub(in crate::models) fn event(name: &str, payload: &str) -> Vec<u8> {
        frame(&[(":event-type", name), (":content-type", "application/json"), (":message-type", "event")], payload)
    }

    fn read(stream: &[u8], size: usize) -> Result<Vec<Event>, Unreadable> {
        let (mut frames, mut found) = (AwsEventDecoder::default(), Vec::new());
        for piece in stream.chunks(size) {
            frames.feed(piece);
            while let Some(event) = frames.next()? {
                found.push(event);
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_are_decoded_from_chunks_of_any_size() {
        let failure = frame(&[(":message-type", "exception"), (":exception-type", "throttlingException")], "{}");
        let stream = [event("messageStart", "{\"role\": \"assistant\"}"), event("empty", ""), failure].concat();
        for size in [1, 2, 13, stream.len()] {
            let found = read(&stream, size).unwrap();
            let actual: Vec<_> =
                found.iter().map(|event| (event.name.as_str(), event.data.len(), event.failed)).collect();
            let expected = [("messageStart", 21, false), ("empty", 0, false), ("throttlingException", 2, true)];
            assert_eq!(actual, expected, "by {size}");
        }
    }

    #[test]
    fn frames_with_wrong_lengths_or_checksums_are_refused() {
        let good = event("messageStart", "{}");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // A larger length leaves a frame that is incomplete.
            assert!(read(&bad, 7).is_err() || read(&bad, 7).unwrap().is_empty(), "byte {at}");
        }
        let endless = [&u32::MAX.to_be_bytes()[..], &[0; 20]].concat();
        assert_eq!(read(&endless, 5), Err(Unreadable::LargeEvent));
        assert_eq!(read(&[0; 12], 5), Err(Unreadable::Malformed));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), headers in proptest::collection::vec(any::<u8>(), 0..60)) {
            _ = read(&bytes, 9);
            _ = described(&headers);
        }
    }
}
