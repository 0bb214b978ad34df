//! The messages of a running call to its client: progress, log messages and questions. Rules without paths apply to
//! their texts; they are not counted, since the call has no result yet.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Transforms;
use sekisho_core::caller::Owner;
use sekisho_core::peer::{Answers, ClientPeer, LogLevel, LogMessage, Progress, Questions, Unanswered};

/// The client of a call, for which the rules for results apply.
#[derive(Debug)]
pub struct TransformedPeer {
    peer: Arc<dyn ClientPeer>,
    transforms: Arc<Transforms>,
}

impl TransformedPeer {
    pub fn new(peer: Arc<dyn ClientPeer>, transforms: Arc<Transforms>) -> Self {
        Self { peer, transforms }
    }

    fn strike(&self, value: &mut Value) {
        for rule in self.transforms.results.iter().filter(|rule| rule.looks_anywhere()) {
            rule.strike(value);
        }
    }
}

impl ClientPeer for TransformedPeer {
    fn owner(&self) -> &Owner {
        self.peer.owner()
    }

    fn capabilities(&self) -> &Value {
        self.peer.capabilities()
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.peer.log_level()
    }

    fn time_asking(&self) -> Duration {
        self.peer.time_asking()
    }

    fn progress(&self, progress: Progress) {
        let message = progress.message.map(|message| {
            let mut message = Value::String(message);
            self.strike(&mut message);
            message.as_str().unwrap_or_default().to_owned()
        });
        self.peer.progress(Progress { message, ..progress });
    }

    fn task_created(&self) {
        self.peer.task_created();
    }

    fn elicitation_complete(&self, id: &str) {
        self.peer.elicitation_complete(id);
    }

    fn log(&self, mut message: LogMessage) {
        self.strike(&mut message.data);
        self.peer.log(message);
    }

    fn ask(&self, mut questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
        questions.values_mut().for_each(|question| self.strike(&mut question.params));
        self.peer.ask(questions)
    }
}
