//! The notices to the receiver of webhooks: approvals that wait, and decisions. They have no arguments.

use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{Approval, Approvals};
use sekisho_core::visible_text::visible;

/// Maximum notices that wait to be sent. Further ones are dropped: the lists of approvals have their content.
const MAX_WAITING: usize = 1_000;

#[derive(Debug)]
pub struct Notice {
    /// The same one however often it is sent.
    pub id: String,
    pub body: Value,
}

/// Both ends of the queue.
pub(super) fn queue() -> (mpsc::Sender<Notice>, mpsc::Receiver<Notice>) {
    mpsc::channel(MAX_WAITING)
}

impl Approvals {
    /// The notices, for their sender; `None` the second time.
    pub fn take_notices(&self) -> Option<mpsc::Receiver<Notice>> {
        self.notices_to_send.lock().take()
    }

    /// Sends a notice of the new state of an approval.
    pub(super) fn notify(&self, approval: &Approval) {
        let notice = Notice { id: Uuid::now_v7().to_string(), body: self.body_of(approval) };
        if self.notices.try_send(notice).is_err() {
            tracing::debug!(approval = &*approval.id, "a webhook is not sent: too many wait, or nobody sends them");
        }
    }

    fn body_of(&self, approval: &Approval) -> Value {
        let shown = |text: &str| visible(text).into_owned();
        json!({
            "type": format!("approval.{}", approval.state.as_str()),
            "timestamp": approval.changed.to_string(),
            "data": {
                "id": approval.id,
                "status": approval.state,
                "tool": shown(&approval.tool),
                "caller": shown(&approval.caller_id),
                "tenant": shown(&approval.tenant),
                "reasons": approval.details.reasons.iter().map(|reason| shown(reason)).collect::<Vec<_>>(),
                "expires_at": approval.expires.to_string(),
                "url": self.page_of(approval),
            },
        })
    }
}
