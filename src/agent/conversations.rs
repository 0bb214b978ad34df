//! The conversations of sessions (A41): what was said in each, kept in memory for its next message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::Message;

/// Most conversations kept, of all callers; beyond them those not used for longest go.
const MAX_CONVERSATIONS: usize = 1_000;

/// Most bytes of one conversation; beyond them its oldest exchanges go.
const MAX_CONVERSATION: usize = 512 << 10;

/// Most bytes of all conversations.
const MAX_BYTES: usize = 64 << 20;

/// The conversations of all callers, the latest used first.
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
    /// What was said so far; empty for a session that has said nothing, or has been forgotten.
    pub fn of(&self, caller_key: &str, session: &str) -> Vec<Message> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|conversation| conversation.is(caller_key, session));
        found.map(|conversation| conversation.messages.clone()).unwrap_or_default()
    }

    /// Adds a message of the user and what came of it. Two exchanges at the same time follow one another.
    pub fn add(&self, caller_key: &Arc<str>, session: &Arc<str>, exchange: impl IntoIterator<Item = Message>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Where the exchange after the first begins: a conversation is cut only between two of them.
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
        let turn = AssistantTurn { text: answer.into(), ..AssistantTurn::default() };
        [Message::User(question.into()), Message::Assistant(turn)]
    }

    /// Fault 11.
    #[test]
    fn a_conversation_goes_on_for_its_caller_and_session_alone() {
        let conversations = Conversations::default();
        conversations.add(&key("ann"), &key("s"), exchange("one", "1"));
        conversations.add(&key("ann"), &key("s"), exchange("two", "2"));
        let whole = [exchange("one", "1"), exchange("two", "2")].concat();
        assert_eq!(conversations.of("ann", "s"), whole);
        assert!(conversations.of("bob", "s").is_empty() && conversations.of("ann", "t").is_empty());
    }

    #[test]
    fn the_oldest_exchanges_of_a_long_conversation_go_and_the_last_one_stays() {
        let conversations = Conversations::default();
        let long = "x".repeat(MAX_CONVERSATION / 2);
        for question in ["one", "two", "three"] {
            conversations.add(&key("ann"), &key("s"), exchange(question, &long));
        }
        assert_eq!(conversations.of("ann", "s"), exchange("three", &long));
        conversations.add(&key("ann"), &key("s"), exchange("four", &long.repeat(3)));
        assert_eq!(conversations.of("ann", "s").len(), 2, "whatever its length");
    }

    #[test]
    fn those_not_used_for_longest_go_when_there_are_too_many_or_too_large_ones() {
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
