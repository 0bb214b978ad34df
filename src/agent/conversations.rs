//! The conversations of sessions (A41), kept in memory so that the next message continues them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Message;

/// Maximum number of conversations of all callers; above it the least recently used are evicted.
const MAX_CONVERSATIONS: usize = 1_000;

/// Maximum bytes of one conversation; above it its oldest exchanges are dropped.
const MAX_CONVERSATION: usize = 512 << 10;

/// Maximum bytes of all conversations.
const MAX_BYTES: usize = 64 << 20;

/// The conversations of all callers, most recently used first.
#[derive(Debug, Default)]
pub struct Conversations(Mutex<VecDeque<Conversation>>);

/// Keyed by caller and session, so that a guessed session id opens nothing.
#[derive(Debug)]
struct Conversation {
    caller_key: Arc<str>,
    session: Arc<str>,
    messages: Vec<Message>,
    bytes: usize,
}

impl Conversations {
    /// The messages so far; empty for a session that has none, or was evicted.
    pub fn of(&self, caller_key: &str, session: &str) -> Vec<Message> {
        let kept = self.0.lock();
        let found = kept.iter().find(|conversation| conversation.is(caller_key, session));
        found.map(|conversation| conversation.messages.clone()).unwrap_or_default()
    }

    /// Adds a user message and the run's messages after it. Concurrent exchanges are added one after the other.
    pub fn add(&self, caller_key: &Arc<str>, session: &Arc<str>, exchange: impl IntoIterator<Item = Message>) {
        let mut kept = self.0.lock();
        let known = kept.iter().position(|conversation| conversation.is(caller_key, session));
        let mut conversation = known.and_then(|index| kept.remove(index)).unwrap_or_else(|| Conversation {
            caller_key: Arc::clone(caller_key),
            session: Arc::clone(session),
            messages: Vec::new(),
            bytes: 0,
        });
        conversation.extend(exchange);
        kept.push_front(conversation);
        let mut bytes = 0_usize;
        kept.retain(|conversation| {
            bytes = bytes.saturating_add(conversation.bytes);
            bytes <= MAX_BYTES
        });
        kept.truncate(MAX_CONVERSATIONS);
    }
}

impl Conversation {
    fn is(&self, caller_key: &str, session: &str) -> bool {
        *self.caller_key == *caller_key && *self.session == *session
    }

    fn extend(&mut self, exchange: impl IntoIterator<Item = Message>) {
        self.messages.extend(exchange);
        self.bytes = self.messages.iter().map(Message::bytes).sum();
        while self.bytes > MAX_CONVERSATION
            && let Some(second) = self.second_exchange()
        {
            self.bytes -= self.messages.drain(..second).map(|message| message.bytes()).sum::<usize>();
        }
    }

    /// The index at which the second exchange begins: a conversation is cut only between exchanges.
    fn second_exchange(&self) -> Option<usize> {
        self.messages.iter().skip(1).position(|message| matches!(message, Message::User(_))).map(|index| index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::message::AssistantTurn;

    fn key(key: &str) -> Arc<str> {
        key.into()
    }

    fn exchange(question: &str, answer: &str) -> [Message; 2] {
        let turn = AssistantTurn::new(answer, []);
        [Message::User(question.into()), Message::Assistant(turn)]
    }

    #[test]
    fn a_conversation_continues_only_for_its_caller_and_session() {
        let conversations = Conversations::default();
        conversations.add(&key("ann"), &key("s"), exchange("one", "1"));
        conversations.add(&key("ann"), &key("s"), exchange("two", "2"));
        let whole = [exchange("one", "1"), exchange("two", "2")].concat();
        assert_eq!(conversations.of("ann", "s"), whole);
        assert!(conversations.of("bob", "s").is_empty() && conversations.of("ann", "t").is_empty());
    }

    #[test]
    fn the_oldest_exchanges_of_a_long_conversation_are_dropped_and_the_last_one_stays() {
        let conversations = Conversations::default();
        let long = "x".repeat(MAX_CONVERSATION / 2);
        for question in ["one", "two", "three"] {
            conversations.add(&key("ann"), &key("s"), exchange(question, &long));
        }
        assert_eq!(conversations.of("ann", "s"), exchange("three", &long));
        conversations.add(&key("ann"), &key("s"), exchange("four", &long.repeat(3)));
        assert_eq!(conversations.of("ann", "s").len(), 2, "its length does not matter");
    }

    #[test]
    fn the_least_recently_used_conversations_are_evicted_above_the_limits() {
        let conversations = Conversations::default();
        for number in 0..MAX_CONVERSATIONS {
            conversations.add(&key("ann"), &key(&number.to_string()), exchange("q", "a"));
        }
        conversations.add(&key("ann"), &key("0"), exchange("again", "a"));
        conversations.add(&key("ann"), &key("new"), exchange("q", "a"));
        let lengths = ["0", "1", "new"].map(|session| conversations.of("ann", session).len());
        assert_eq!(lengths, [4, 0, 2]);
        conversations.add(&key("bob"), &key("large"), exchange("q", &"x".repeat(MAX_BYTES - 100)));
        assert_eq!(["large", "2"].map(|session| conversations.of("bob", session).len()), [2, 0]);
        assert!(conversations.of("ann", "2").is_empty());
    }
}
