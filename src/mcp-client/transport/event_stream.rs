//! The events of one answer, each up to the connection's limit.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};

use super::message::too_large;
use sekisho_core::error::CallError;
use sekisho_outbound::sse::{Event, EventReader, LargeEvent};

pub(crate) struct EventStream {
    pieces: BoxStream<'static, Result<Bytes, CallError>>,
    reader: EventReader,
}

impl EventStream {
    /// `max_event`: bytes of one event.
    pub(crate) fn new(pieces: impl Stream<Item = Result<Bytes, CallError>> + Send + 'static, max_event: usize) -> Self {
        Self { pieces: pieces.boxed(), reader: EventReader::new(max_event) }
    }

    /// The next event; `None` when the stream has ended. Nothing is lost when the future is dropped.
    /// Errors: the stream broke, or an event is too large (`output_too_large`). Nothing comes after an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, CallError> {
        loop {
            if let Some(event) = self.reader.next().map_err(|LargeEvent(max)| too_large(max))? {
                return Ok(Some(event));
            }
            let Some(piece) = self.pieces.next().await else { return Ok(None) };
            self.reader.feed(&piece?);
        }
    }

    /// Reads to the end without interpreting anything.
    pub(crate) async fn discard(mut self) {
        while self.pieces.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use sekisho_core::error::ErrorCode;

    #[tokio::test]
    async fn events_are_given_until_one_is_too_large() {
        let pieces = ["id: 1\nda", "ta: one\n", "\n", "data: 0123456789\n\n"].map(|piece| Ok(Bytes::from(piece)));
        let mut events = EventStream::new(stream::iter(pieces), 9);
        let first = events.next().await.unwrap().unwrap();
        assert_eq!((first.id.as_deref(), &first.data[..]), (Some("1"), &b"one"[..]));
        assert_eq!(events.next().await.unwrap_err().code(), ErrorCode::OutputTooLarge);
    }

    #[tokio::test]
    async fn the_end_of_a_stream_is_no_error_and_a_broken_one_is() {
        let broken = || Err(CallError::new(ErrorCode::UpstreamError, "broken"));
        let mut ended = EventStream::new(stream::iter([Ok(Bytes::from("data: cut off"))]), 100);
        assert_eq!(ended.next().await.unwrap(), None);
        let mut events = EventStream::new(stream::iter([Ok(Bytes::from("data: a\n\n")), broken()]), 100);
        assert_eq!(events.next().await.unwrap().unwrap().data, b"a");
        assert_eq!(events.next().await.unwrap_err().code(), ErrorCode::UpstreamError);
    }
}
