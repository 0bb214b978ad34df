//! The replies for one run, until its program takes them.

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

use sekisho_guest_protocol::{MAX_HELD_REPLY_BYTES, ToolReply};

/// In the order in which they came.
#[derive(Debug, Default)]
pub struct Inbox {
    replies: Mutex<Vec<ToolReply>>,
    arrived: Notify,
}

impl Inbox {
    /// Keeps a reply. A reply that does not fit beside the waiting ones loses its value.
    pub fn deliver(&self, reply: ToolReply) {
        let mut replies = self.replies.lock();
        let held: u64 = replies.iter().chain([&reply]).map(|reply| reply.json.len() as u64).sum();
        let reply = match held > MAX_HELD_REPLY_BYTES {
            true => without_value(&reply, "the results of parallel calls have more than 32 MiB; call fewer at once"),
            false => reply,
        };
        replies.push(reply);
        drop(replies);
        // Several requests of a component may wait at once; one permit is left for a wait that begins later.
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// The first reply to one of these requests, if one is here.
    pub(super) fn take(&self, numbers: &[u32]) -> Option<ToolReply> {
        let mut replies = self.replies.lock();
        let at = replies.iter().position(|reply| numbers.contains(&reply.number))?;
        Some(replies.remove(at))
    }

    /// Waits for it. Cancel safe.
    pub(crate) async fn next(&self, numbers: &[u32]) -> ToolReply {
        loop {
            if let Some(reply) = self.take(numbers) {
                return reply;
            }
            // A reply that came since leaves a permit.
            self.arrived.notified().await;
        }
    }
}

/// The reply to a call whose result cannot be given to the program.
pub(super) fn without_value(reply: &ToolReply, reason: &str) -> ToolReply {
    let json = json!({"kind": "too_large", "message": reason}).to_string().into_bytes();
    ToolReply { number: reply.number, is_ok: false, json }
}
