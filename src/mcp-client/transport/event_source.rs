//! Event streams of streamable HTTP: the messages that belong to a request, up to its answer, and the standing streams
//! of sessions. A stream that breaks is continued after its last event.

use std::time::Duration;

use futures_util::FutureExt;

use super::event_stream::EventStream;
use super::http::HttpChannel;
use super::inbound::Source;
use super::message::{Failure, Message};
use sekisho_core::error::ErrorCode;
use sekisho_outbound::OutboundStream;
use sekisho_outbound::sse::Event;

/// Delay before a broken stream is reopened, doubled after each failure, unless the server sends a delay.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Maximum delay that a server can set.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Maximum consecutive attempts to reopen a broken stream.
const MAX_TRIES: u32 = 5;

/// How long a stream is read to its end after the answer, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) struct EventSource<'a> {
    http: &'a HttpChannel,
    events: Option<EventStream>,
    last_event: Option<String>,
    /// The delay that the server has set.
    wait: Option<Duration>,
    /// Consecutive attempts to reopen the stream after which nothing came.
    tries: u32,
    /// A standing stream is reopened also if it had no event to continue after, and for as long as that succeeds.
    is_standing: bool,
}

impl<'a> EventSource<'a> {
    /// The stream that answers a request.
    pub(crate) fn answering(http: &'a HttpChannel, answer: OutboundStream) -> Self {
        Self::new(http, http.events(answer), false)
    }

    fn new(http: &'a HttpChannel, events: EventStream, is_standing: bool) -> Self {
        Self { http, events: Some(events), last_event: None, wait: None, tries: 0, is_standing }
    }

    /// The data of the next event that may be a message.
    /// Errors: the stream has ended and cannot be continued, or an event is too large.
    pub(crate) async fn data(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            let Some(events) = &mut self.events else {
                self.reopen().await?;
                continue;
            };
            match events.next().await {
                Ok(Some(mut event)) => {
                    self.tries = 0;
                    self.wait = event.retry.or(self.wait);
                    self.last_event = event.id.take().or(self.last_event.take());
                    if is_message(&event) {
                        return Ok(event.data);
                    }
                }
                Ok(None) => self.events = None,
                Err(error) if error.code() == ErrorCode::OutputTooLarge || !self.can_continue() => {
                    return Err(Failure::Call(error));
                }
                Err(_) => self.events = None,
            }
        }
    }

    fn can_continue(&self) -> bool {
        self.tries < MAX_TRIES && (self.is_standing || self.last_event.is_some())
    }

    async fn reopen(&mut self) -> Result<(), Failure> {
        if !self.can_continue() {
            return Err(Failure::Lost);
        }
        let wait = self.wait.unwrap_or(FIRST_WAIT * (1 << self.tries));
        self.tries += 1;
        tokio::time::sleep(wait.min(MAX_WAIT)).await;
        match self.http.open_stream(self.last_event.as_deref()).await {
            Ok(Some(events)) => {
                self.events = Some(events);
                if self.is_standing {
                    self.tries = 0;
                }
            }
            Ok(None) if self.is_standing => return Err(Failure::Lost),
            Ok(None) | Err(_) => {}
        }
        Ok(())
    }

    /// Reads the rest of the stream after the answer.
    pub(crate) fn drain(mut self) {
        let Some(rest) = self.events.take() else { return };
        let mut rest = Box::pin(rest.discard());
        if rest.as_mut().now_or_never().is_none() {
            tokio::spawn(tokio::time::timeout(DRAIN_TIMEOUT, rest));
        }
    }
}

impl Source for EventSource<'_> {
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = message(&self.data().await?) {
                return Ok(message);
            }
        }
    }
}

/// The standing streams of a connection's sessions, one after the other. Without a session there is none, and not every
/// server has one.
pub(crate) struct StandingSource<'a> {
    http: &'a HttpChannel,
    events: Option<EventSource<'a>>,
}

impl<'a> StandingSource<'a> {
    pub(crate) fn new(http: &'a HttpChannel) -> Self {
        Self { http, events: None }
    }

    /// The data of the next event that may be a message. Nothing is lost when the future is dropped.
    pub(crate) async fn data(&mut self) -> Vec<u8> {
        loop {
            let reading = async {
                match &mut self.events {
                    Some(events) => events.data().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = reading => match read {
                    Ok(data) => return data,
                    Err(_) => self.events = None,
                },
                () = self.http.begun.notified() => self.events = Self::open(self.http).await,
            }
        }
    }

    async fn open(http: &'a HttpChannel) -> Option<EventSource<'a>> {
        let opened = http.open_stream(None).await;
        http.is_heard.cancel();
        match opened {
            Ok(events) => Some(EventSource::new(http, events?, true)),
            Err(error) => {
                tracing::debug!(%error, "the standing stream of an MCP server could not be opened");
                None
            }
        }
    }
}

impl Source for StandingSource<'_> {
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = message(&self.data().await) {
                return Ok(message);
            }
        }
    }
}

fn message(data: &[u8]) -> Option<Message> {
    let message = Message::of(data);
    if message.is_none() {
        tracing::debug!("an MCP server sent an event that is not a message");
    }
    message
}

fn is_message(event: &Event) -> bool {
    matches!(event.name.as_str(), "" | "message") && !event.data.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_answers_notifications_or_requests() {
        let read = |name: &str, text: &str| {
            let event = Event { name: name.to_owned(), data: text.into(), ..Event::default() };
            if is_message(&event) { message(&event.data) } else { None }
        };
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(read("", answer), Some(Message::Answer(_))));
        assert!(matches!(read("message", answer), Some(Message::Answer(_))));
        assert!(read("ping", answer).is_none());
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert!(matches!(read("", notification), Some(Message::Notification(_))));
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(matches!(read("", request), Some(Message::Request(_))));
        assert!(read("", "{").is_none() && read("", "").is_none());
    }
}
