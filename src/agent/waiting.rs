//! What an agent did before it handed a call to its client. The client's transcript does not show it, so it
//! waits here, and is put back when the client comes with its result.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Message;

/// How long a client may take for its calls.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// Most runs that wait, of all callers; beyond them the oldest go.
const MOST_RUNS: usize = 1_000;

/// Most text that waits, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// The runs that wait for their clients.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<VecDeque<Run>>);

#[derive(Debug)]
struct Run {
    caller_key: Arc<str>,
    /// Ids of the calls that the client makes.
    awaited: Vec<String>,
    messages: Vec<Message>,
    bytes: usize,
    until: Instant,
}

impl Waiting {
    /// Keeps what a run added to its conversation, the last turn of which has calls for the client.
    pub fn keep(&self, caller_key: &Arc<str>, messages: Vec<Message>) {
        let Some(run) = Run::of(caller_key, messages) else { return };
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        runs.push_front(run);
        // The latest first: from the first that does not fit on, all go.
        let mut bytes = 0_usize;
        runs.retain(|kept| {
            bytes = bytes.saturating_add(kept.bytes);
            kept.until > now && bytes <= MOST_BYTES
        });
        runs.truncate(MOST_RUNS);
    }

    /// The client's messages, with what happened in between put in the place of turns that wait.
    pub fn restore(&self, caller_key: &str, messages: Vec<Message>) -> Vec<Message> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut restored = Vec::with_capacity(messages.len());
        for message in messages {
            let run = awaited_of(&message).and_then(|ids| {
                runs.iter().find(|run| {
                    &*run.caller_key == caller_key
                        && run.until > now
                        && ids.len() == run.awaited.len()
                        && ids.iter().all(|id| run.awaited.iter().any(|awaited| awaited == id))
                })
            });
            match run {
                Some(run) => restored.extend(run.messages.iter().cloned()),
                None => restored.push(message),
            }
        }
        restored
    }
}

fn awaited_of(message: &Message) -> Option<Vec<&str>> {
    match message {
        Message::Assistant(turn) if !turn.calls.is_empty() => {
            Some(turn.calls.iter().map(|call| call.id.as_str()).collect())
        }
        _ => None,
    }
}

impl Run {
    /// `None` where the client's transcript shows everything.
    fn of(caller_key: &Arc<str>, messages: Vec<Message>) -> Option<Self> {
        let answered =
            |id: &str| messages.iter().any(|message| matches!(message, Message::Tool(result) if result.call_id == id));
        let mut turns = messages.iter().rev().filter_map(|message| match message {
            Message::Assistant(turn) => Some(turn),
            _ => None,
        });
        let awaited: Vec<_> =
            turns.next()?.calls.iter().map(|call| call.id.clone()).filter(|id| !answered(id)).collect();
        if awaited.is_empty() || messages.len() == 1 {
            return None;
        }
        let bytes = messages.iter().map(Message::bytes).sum();
        let until = Instant::now() + KEPT_FOR;
        Some(Self { caller_key: Arc::clone(caller_key), awaited, messages, bytes, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::message::{AssistantTurn, RequestedCall, ToolMessage};

    fn key(key: &str) -> Arc<str> {
        key.into()
    }

    fn turn(text: &str, ids: &[&str]) -> Message {
        let call = |id: &&str| RequestedCall { id: (*id).into(), tool: "click".into(), arguments: "{}".into() };
        let calls = ids.iter().map(call).collect();
        Message::Assistant(AssistantTurn { text: text.into(), calls, ..AssistantTurn::default() })
    }

    fn result(id: &str, text: &str) -> Message {
        Message::Tool(ToolMessage { call_id: id.into(), tool: "click".into(), text: text.into(), images: Vec::new() })
    }

    /// Ids of calls and results, in order.
    fn outline(messages: &[Message]) -> Vec<String> {
        let each = |message: &Message| match message {
            Message::Assistant(turn) => {
                let ids: Vec<_> = turn.calls.iter().map(|call| call.id.as_str()).collect();
                format!("{}({})", turn.text, ids.join(","))
            }
            Message::Tool(result) => format!("{}={}", result.call_id, result.text),
            Message::System(text) | Message::User(text) => text.clone(),
        };
        messages.iter().map(each).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_gateway_did_is_put_back_for_its_caller_within_ten_minutes() {
        let waiting = Waiting::default();
        let added = [turn("one", &["a"]), result("a", "1"), turn("two", &["b", "c", "d"]), result("b", "2")];
        waiting.keep(&key("ann"), added.into());
        let shown = || vec![Message::User("go".into()), turn("", &["c", "d"])];
        let whole = ["go", "one(a)", "a=1", "two(b,c,d)", "b=2"];
        assert_eq!(outline(&waiting.restore("ann", shown())), whole);
        assert_eq!(outline(&waiting.restore("ann", shown())), whole, "a client may try again");
        let untouched = ["go", "(c,d)"];
        assert_eq!(outline(&waiting.restore("bob", shown())), untouched);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(outline(&waiting.restore("ann", shown())), untouched);
    }

    #[test]
    fn nothing_waits_that_the_client_knows() {
        assert!(Run::of(&key("ann"), vec![turn("hi", &["c"])]).is_none());
        assert!(Run::of(&key("ann"), vec![turn("", &["a"]), result("a", "1"), turn("done", &[])]).is_none());
        assert!(Run::of(&key("ann"), Vec::new()).is_none());
    }

    #[tokio::test]
    async fn the_oldest_go_when_there_are_too_many_or_too_large_ones() {
        let waiting = Waiting::default();
        let run = |id: &str, size: usize| vec![turn("", &["a", id]), result("a", &"x".repeat(size))];
        for number in 0..=MOST_RUNS {
            waiting.keep(&key("ann"), run(&number.to_string(), 1));
        }
        let found = |id: &str| waiting.restore("ann", vec![turn("", &[id])]).len() > 1;
        assert_eq!((found("0"), found("1"), found(&MOST_RUNS.to_string())), (false, true, true));
        waiting.keep(&key("ann"), run("large", MOST_BYTES * 3 / 4));
        waiting.keep(&key("ann"), run("larger", MOST_BYTES / 2));
        assert_eq!((found("large"), found("larger"), found("1")), (false, true, false));
    }
}
