//! Why a connection ended.

use std::sync::Arc;

use parking_lot::Mutex;

/// The first reason is kept. Clones belong to one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<Option<String>>>);

impl Ending {
    pub(crate) fn set_reason(&self, reason: impl Into<String>) {
        self.0.lock().get_or_insert_with(|| reason.into());
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.0.lock().clone()
    }
}
