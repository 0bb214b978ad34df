//! Why a connection ended.

use std::sync::Arc;

use parking_lot::Mutex;

use super::message::{Failure, endless_line};

/// The first reason is kept. Clones belong to one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<Option<Reason>>>);

#[derive(Debug, Clone)]
enum Reason {
    Text(String),
    /// The server sent a line of more than this many bytes, and nothing tells whose answer it is.
    EndlessLine(usize),
}

impl Ending {
    pub(crate) fn set_reason(&self, reason: impl Into<String>) {
        self.0.lock().get_or_insert_with(|| Reason::Text(reason.into()));
    }

    pub(super) fn set_endless_line(&self, bytes: usize) {
        self.0.lock().get_or_insert(Reason::EndlessLine(bytes));
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.0.lock().as_ref().map(|reason| match reason {
            Reason::Text(text) => text.clone(),
            Reason::EndlessLine(bytes) => endless_line(*bytes).message().to_owned(),
        })
    }

    /// Why the requests have no answer that ran when it ended.
    pub(super) fn failure(&self) -> Failure {
        match &*self.0.lock() {
            Some(Reason::EndlessLine(bytes)) => Failure::Call(endless_line(*bytes)),
            Some(Reason::Text(_)) | None => Failure::Lost,
        }
    }
}
