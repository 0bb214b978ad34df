//! Who gets the turns of a run before their tool calls are sent: a journal.

use std::fmt;
use std::sync::Arc;

use super::message::AssistantTurn;

/// A function that gets each turn. Clones share it.
#[derive(Clone)]
pub struct TurnObserver(Arc<dyn Fn(AssistantTurn) + Send + Sync>);

impl TurnObserver {
    pub fn new(observe: impl Fn(AssistantTurn) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(super) fn observe(&self, turn: AssistantTurn) {
        (self.0)(turn);
    }
}

impl fmt::Debug for TurnObserver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TurnObserver")
    }
}
