//! The conversations behind responses, kept in memory so that another response continues them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::model_api::output::OutputPart;
use sekisho_agent::Message;
use sekisho_core::caller::{Caller, Owner};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::per_owner::PerOwner;
use sekisho_core::share::{Lease, Share};

/// Maximum number of responses of all callers.
const MAX_RESPONSES: usize = 10_000;

/// Maximum number of one caller; above it the least recently used are evicted.
const MAX_OF_CALLER: usize = 1_000;

/// Maximum bytes of all conversations, divided fairly between callers.
const MAX_BYTES: u64 = 64 << 20;

/// Maximum bytes that one response adds to its conversation.
const MAX_EXCHANGE_BYTES: usize = 16 << 20;

/// How long a response can be continued.
const TTL: Duration = Duration::from_secs(3_600);

/// Estimated memory of a response, and of each of its messages, besides the text.
const OVERHEAD_BYTES: usize = 512;

/// The responses that can be continued.
#[derive(Debug)]
pub(crate) struct KeptResponses {
    responses: PerOwner<String, Response>,
    memory: Arc<Share>,
}

#[derive(Debug)]
struct Response {
    caller_key: Arc<str>,
    conversation: Conversation,
    output: Vec<OutputPart>,
    /// As it was answered; null for a message of another API.
    body: Value,
    until: Instant,
}

/// The messages of a conversation, and the session with its files.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub session_id: Arc<str>,
    /// The additions of each response; responses that continue one share the exchanges before it.
    exchanges: Vec<Arc<Exchange>>,
}

#[derive(Debug)]
struct Exchange {
    messages: Vec<Message>,
    _memory: Lease,
}

impl Conversation {
    /// A conversation without messages.
    pub(crate) fn new(session_id: &str) -> Self {
        Self { session_id: session_id.into(), exchanges: Vec::new() }
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.exchanges.iter().flat_map(|exchange| &exchange.messages).cloned().collect()
    }
}

impl Default for KeptResponses {
    fn default() -> Self {
        Self { responses: PerOwner::new(MAX_RESPONSES, MAX_OF_CALLER), memory: Share::new(MAX_BYTES) }
    }
}

impl KeptResponses {
    /// Removes responses that cannot be continued any more; run every minute.
    pub(crate) fn remove_expired(&self, now: Instant) {
        drop(self.responses.take_if(|response| response.until <= now));
    }

    /// Keeps a response that added these messages to a conversation. Responses of the same caller go for it, if there is no
    /// memory; where that is not enough, it is not kept.
    pub(crate) fn keep(
        &self,
        caller: &Caller,
        id: &str,
        mut conversation: Conversation,
        messages: Vec<Message>,
        output: Vec<OutputPart>,
        body: Value,
    ) {
        let now = Instant::now();
        self.remove_expired(now);
        let bytes = messages.iter().map(|message| message.bytes() + OVERHEAD_BYTES).sum::<usize>()
            + output.iter().map(OutputPart::bytes).sum::<usize>()
            + body.to_string().len()
            + conversation.exchanges.len() * size_of::<Arc<Exchange>>()
            + OVERHEAD_BYTES;
        let memory = (bytes <= MAX_EXCHANGE_BYTES).then(|| self.memory_for(&caller.owner, bytes as u64)).flatten();
        let Some(memory) = memory else {
            tracing::debug!(bytes, "a response is not kept: there is no memory for it");
            return;
        };
        conversation.exchanges.push(Arc::new(Exchange { messages, _memory: memory }));
        let response = Response { caller_key: Arc::clone(&caller.key), conversation, output, body, until: now + TTL };
        if self.responses.insert(&caller.owner, id.to_owned(), response, |_, _| true).is_err() {
            tracing::debug!("a response is not kept: there are too many");
        }
    }

    /// The conversation that ends with a response.
    /// Errors: `unknown_session`: the caller has no such response, or not any more.
    pub(super) fn find(&self, caller: &Caller, id: &str) -> Result<Conversation, CallError> {
        self.read(caller, id, |response| response.conversation.clone()).ok_or_else(|| {
            let shown: String = id.chars().take(100).collect();
            let message = format!(
                "`previous_response_id`: there is no response {shown:?} to continue; it is kept for {} minutes unless \
                 `store` is false, and lost in a restart: send the whole conversation as `input`",
                TTL.as_secs() / 60
            );
            CallError::new(ErrorCode::UnknownSession, message)
        })
    }

    /// The conversation of a thread that ends with a message.
    /// Errors: `unknown_session`: the caller has no such message, or not any more.
    pub(crate) fn find_message(&self, caller: &Caller, id: &str) -> Result<Conversation, CallError> {
        self.read(caller, id, |response| response.conversation.clone()).ok_or_else(|| {
            let shown: String = id.chars().take(100).collect();
            let message = format!(
                "`thread.previous_message_id`: there is no message {shown:?} to continue; it is kept for {} minutes, and lost \
                 in a restart: send all messages, without `thread`",
                TTL.as_secs() / 60
            );
            CallError::new(ErrorCode::UnknownSession, message)
        })
    }

    /// A response as it was answered; `None` if the caller has none of this id, or not any more.
    pub(super) fn body(&self, caller: &Caller, id: &str) -> Option<Value> {
        self.read(caller, id, |response| response.body.clone()).filter(|body| !body.is_null())
    }

    /// A part of a response's output by the id of its item.
    pub(super) fn item(&self, caller: &Caller, id: &str) -> Option<OutputPart> {
        let (response, index) = super::response::response_of_item(id)?;
        self.read(caller, &response, |response| response.output.get(index).cloned()).flatten()
    }

    fn read<R>(&self, caller: &Caller, id: &str, read: impl FnOnce(&Response) -> R) -> Option<R> {
        let now = Instant::now();
        let is_theirs = |response: &Response| *response.caller_key == *caller.key && response.until > now;
        let id = id.to_owned();
        self.responses.with(&id, |response| is_theirs(response).then(|| read(response))).flatten()
    }

    /// Responses of the owner are evicted until there is memory; further ones only if the freed memory was not enough.
    fn memory_for(&self, owner: &Owner, bytes: u64) -> Option<Lease> {
        loop {
            if let Some(lease) = self.memory.try_acquire(owner, bytes) {
                return Some(lease);
            }
            self.responses.remove_oldest_of(owner)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller::new(name, "default", Vec::new())
    }

    fn said(text: &str) -> Vec<Message> {
        vec![Message::User(text.into())]
    }

    fn keep(kept: &KeptResponses, caller: &Caller, id: &str, before: Option<&str>, text: &str) {
        let conversation = before.map_or_else(|| Conversation::new("s"), |before| kept.find(caller, before).unwrap());
        kept.keep(caller, id, conversation, said(text), vec![OutputPart::Text(text.into())], text.into());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_continued_by_its_caller_alone_and_for_an_hour() {
        let (kept, ann, bob) = (KeptResponses::default(), caller("ann"), caller("bob"));
        keep(&kept, &ann, "resp_1", None, "one");
        keep(&kept, &ann, "resp_2", Some("resp_1"), "two");
        keep(&kept, &ann, "resp_3", Some("resp_1"), "three");
        let texts = |id: &str| kept.find(&ann, id).map(|conversation| conversation.messages());
        assert_eq!(texts("resp_2").unwrap(), [said("one"), said("two")].concat());
        assert_eq!(texts("resp_3").unwrap(), [said("one"), said("three")].concat(), "a conversation may branch");
        assert_eq!(kept.find(&bob, "resp_1").unwrap_err().code(), ErrorCode::UnknownSession);
        assert_eq!(kept.item(&ann, "msg_2_0"), Some(OutputPart::Text("two".into())));
        assert_eq!((kept.item(&bob, "msg_2_0"), kept.item(&ann, "msg_2_1")), (None, None));
        assert_eq!((kept.body(&ann, "resp_2"), kept.body(&bob, "resp_2")), (Some("two".into()), None));
        kept.keep(&ann, "msg_1", Conversation::new("s"), said("five"), Vec::new(), Value::Null);
        assert_eq!(kept.find_message(&ann, "msg_1").unwrap().messages(), said("five"));
        assert!(kept.find_message(&bob, "msg_1").is_err() && kept.body(&ann, "msg_1").is_none());
        tokio::time::advance(TTL).await;
        assert!(texts("resp_2").unwrap_err().message().contains("60 minutes"));
        keep(&kept, &bob, "resp_4", None, "four");
        assert_eq!(kept.responses.len(), 1, "expired ones are removed");
        kept.remove_expired(Instant::now());
        assert_eq!(kept.responses.len(), 1);
        kept.remove_expired(Instant::now() + TTL);
        assert_eq!((kept.responses.len(), kept.memory.used()), (0, 0), "also when no other one comes");
    }

    #[test]
    fn memory_is_bounded_and_a_caller_evicts_only_its_own() {
        let (kept, ann, bob) = (KeptResponses::default(), caller("ann"), caller("bob"));
        keep(&kept, &bob, "resp_b", None, "mine");
        let large = "x".repeat(5 << 20);
        for number in 0..20 {
            keep(&kept, &ann, &format!("resp_{number}"), None, &large);
        }
        assert!(kept.memory.used() <= MAX_BYTES);
        assert!(kept.find(&bob, "resp_b").is_ok() && kept.find(&ann, "resp_19").is_ok());
        assert!(kept.find(&ann, "resp_0").is_err());
        keep(&kept, &ann, "resp_huge", None, &large.repeat(2));
        assert!(kept.find(&ann, "resp_huge").is_err() && kept.find(&ann, "resp_19").is_ok());
    }
}
