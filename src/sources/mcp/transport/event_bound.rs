//! Limits the size of one event of a stream, so that an endless event is not read without end.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use crate::core::error::{CallError, ErrorCode};

/// The same pieces, until an event has more bytes than allowed.
pub(crate) fn bounded(
    pieces: impl Stream<Item = Result<Bytes, CallError>> + Send + 'static,
    most: usize,
) -> impl Stream<Item = Result<Bytes, CallError>> + Send + Unpin + 'static {
    let too_large = move || {
        CallError::new(
            ErrorCode::OutputTooLarge,
            format!("the MCP server sent a message of more than {most} bytes (max_message_bytes)"),
        )
    };
    Box::pin(async_stream::stream! {
        let mut pieces = std::pin::pin!(pieces);
        let mut event = Event::default();
        while let Some(piece) = pieces.next().await {
            if piece.as_ref().is_ok_and(|piece| event.grow(piece) > most) {
                yield Err(too_large());
                break;
            }
            yield piece;
        }
    })
}

/// The event being received. It ends with an empty line.
#[derive(Default)]
struct Event {
    bytes: usize,
    line_is_empty: bool,
}

impl Event {
    /// The most bytes that an event had while the piece came in.
    fn grow(&mut self, piece: &[u8]) -> usize {
        let mut most = 0;
        for byte in piece {
            match byte {
                b'\n' if self.line_is_empty => {
                    most = most.max(self.bytes);
                    self.bytes = 0;
                }
                b'\n' => self.line_is_empty = true,
                b'\r' => {}
                _ => self.line_is_empty = false,
            }
            self.bytes += 1;
        }
        most.max(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn passed(pieces: &[&'static str], most: usize) -> Vec<bool> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        bounded(stream::iter(pieces), most).map(|piece| piece.is_ok()).collect().await
    }

    #[tokio::test]
    async fn an_event_that_does_not_end_is_cut_off() {
        assert_eq!(passed(&["data: 12\n\n", "data: 34\r\n\r\n", "data: 56\n\n"], 14).await, [true, true, true]);
        assert_eq!(passed(&["data: 1\n", "data: 2\n", "data: 3\n\n"], 14).await, [true, false]);
        assert_eq!(passed(&["data: 0123456789\n\n"], 14).await, [false]);
    }
}
