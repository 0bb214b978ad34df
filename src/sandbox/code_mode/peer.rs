//! The client of the outer call, as the tools that a program calls see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use sekisho_core::caller::Owner;
use sekisho_core::peer::{Answers, ClientPeer, LogLevel, LogMessage, Progress, Questions, Unanswered};

/// Passes on the messages and questions of tools. The client gets the messages of their progress, counted over all of
/// them: its own number must not go back.
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

    fn elicitation_complete(&self, id: &str) {
        self.client.elicitation_complete(id);
    }

    fn log(&self, message: LogMessage) {
        self.client.log(message);
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
        self.client.ask(questions)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use parking_lot::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Client(Mutex<Vec<Progress>>);

    impl ClientPeer for Client {
        fn owner(&self) -> &Owner {
            Owner::gateway()
        }
        fn capabilities(&self) -> &Value {
            &Value::Null
        }
        fn wants_progress(&self) -> bool {
            true
        }
        fn log_level(&self) -> Option<LogLevel> {
            None
        }
        fn time_asking(&self) -> Duration {
            Duration::ZERO
        }
        fn progress(&self, progress: Progress) {
            self.0.lock().push(progress);
        }
        fn log(&self, _message: LogMessage) {}
        fn ask(&self, _questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
            async { Err(Unanswered::Gone) }.boxed()
        }
    }

    #[test]
    fn the_progress_of_several_tools_counts_up_and_questions_reach_the_client() {
        let client = Arc::new(Client::default());
        let peer = NestedPeer::new(Arc::clone(&client) as Arc<dyn ClientPeer>);
        for (progress, message) in [(50.0, "half"), (1.0, "another begins")] {
            peer.progress(Progress { progress, total: Some(100.0), message: Some(message.to_owned()) });
        }
        let sent = client.0.lock();
        let seen: Vec<_> = sent.iter().map(|sent| (sent.progress, sent.total, sent.message.as_deref())).collect();
        assert_eq!(seen, [(1.0, None, Some("half")), (2.0, None, Some("another begins"))]);
        let asked = peer.ask(Questions::new()).now_or_never().unwrap();
        assert_eq!(asked.unwrap_err(), Unanswered::Gone);
    }
}
