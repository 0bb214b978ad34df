//! The events of a run, as they are sent to its client.

use futures_util::{Stream, StreamExt, stream};

use sekisho_agent::Event;
use sekisho_agent::event_log::LoggedEvent;
use sekisho_api::event_stream::{KEEP_ALIVE, LoggedFrame};
use sekisho_core::error::CallError;

/// Waits for the first event: a run that fails before it is answered with an error status; a later error is an event.
/// Errors: the run's own error.
pub(super) async fn first(
    events: impl Stream<Item = Event> + Send + 'static,
) -> Result<impl Stream<Item = Event> + Send + 'static, CallError> {
    let mut events = Box::pin(events);
    match tokio::time::timeout(KEEP_ALIVE, events.next()).await {
        Ok(Some(Event::Error(error))) => Err(error.into()),
        first => Ok(stream::iter(first.ok().flatten()).chain(events)),
    }
}

/// An event of a run that is numbered.
pub(super) fn frame(event: &LoggedEvent) -> LoggedFrame {
    LoggedFrame { id: Some(event.id), name: event.name, data: event.data.clone() }
}
