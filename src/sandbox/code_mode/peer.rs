//! The client of the outer call, as the tools that a program calls see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::core::caller::Owner;
use crate::core::peer::{Answers, ClientPeer, LogLevel, LogMessage, Progress, Questions, Unanswered};

/// Passes on what tools send and ask. Of their progress the client gets the messages, counted over all of them: its own
/// number must not go back.
#[derive(Debug)]
pub(super) struct NestedPeer {
    client: Arc<dyn ClientPeer>,
    messages: AtomicU32,
}

impl NestedPeer {
    pub(super) fn new(client: Arc<dyn ClientPeer>) -> Self {
        Self { client, messages: AtomicU32::new(0) }
    }
}

impl ClientPeer for NestedPeer {
    fn owner(&self) -> &Owner {
        self.client.owner()
    }

    fn capabilities(&self) -> &Value {
        self.client.capabilities()
    }

    fn wants_progress(&self) -> bool {
        self.client.wants_progress()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.client.log_level()
    }

    fn time_asking(&self) -> Duration {
        self.client.time_asking()
    }

    fn progress(&self, progress: Progress) {
        let count = self.messages.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.client.progress(Progress { progress: count.into(), total: None, message: progress.message });
    }

    fn log(&self, message: LogMessage) {
        self.client.log(message);
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
        self.client.ask(questions)
    }
}
