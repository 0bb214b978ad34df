//! The client of a run of a conversation, whose disconnection may end the run.

use std::sync::Arc;

use serde::Deserialize;
use utoipa::ToSchema;

use sekisho_agent::conversation::{LiveRun, StopCause};

/// What becomes of a run whose client disconnects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDisconnect {
    /// It is cancelled, and what it has so far is stored.
    #[default]
    Cancel,
    /// It goes on, and can be followed with `GET /api/runs/{id}/events`.
    Continue,
}

/// The client of a run: dropped before [`leave`](Self::leave), it has disconnected.
#[derive(Debug)]
pub(super) struct ConnectedClient {
    run: Arc<LiveRun>,
    on_disconnect: OnDisconnect,
    is_done: bool,
}

impl ConnectedClient {
    pub(super) fn new(run: &Arc<LiveRun>, on_disconnect: OnDisconnect) -> Self {
        Self { run: Arc::clone(run), on_disconnect, is_done: false }
    }

    /// It has all that it waits for.
    pub(super) fn leave(mut self) {
        self.is_done = true;
    }
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        if !self.is_done && self.on_disconnect == OnDisconnect::Cancel {
            self.run.stop(StopCause::Disconnected);
        }
    }
}
