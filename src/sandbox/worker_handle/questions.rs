//! The requests to a worker about its sessions, until it answers or exits.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use sekisho_guest_protocol::{RequestId, SessionReply};

/// The open requests; `None` once the worker has exited.
#[derive(Debug)]
pub(super) struct Questions(Mutex<Option<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: RequestId,
    answers: HashMap<RequestId, oneshot::Sender<SessionReply>>,
}

impl Default for Questions {
    fn default() -> Self {
        Self(Mutex::new(Some(Open::default())))
    }
}

impl Questions {
    /// The id of one more, and its answer. `None` once the worker has exited.
    pub(super) fn add(&self) -> Option<(RequestId, oneshot::Receiver<SessionReply>)> {
        let mut open = self.0.lock();
        let open = open.as_mut()?;
        let (answer, answered) = oneshot::channel();
        open.last += 1;
        open.answers.insert(open.last, answer);
        Some((open.last, answered))
    }

    pub(super) fn answer(&self, id: RequestId, reply: SessionReply) {
        let answer = self.0.lock().as_mut().and_then(|open| open.answers.remove(&id));
        if let Some(answer) = answer {
            // Nobody waits for it any more.
            let _ = answer.send(reply);
        }
    }

    /// All that are open fail, and so do later ones.
    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }
}
