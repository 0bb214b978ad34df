//! A worker process that has loaded its frame.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::time::timeout;

use super::next;
use super::process::{Program, WorkerStartError, spawn};
use sekisho_guest_protocol::{Frames, FromWorker, Greeting};

/// A worker maps its interpreter in a fraction of a second, or a few seconds on a loaded machine; one that takes this
/// long is stuck.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that is ready. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct StartedWorker {
    pub(super) child: Child,
    pub(super) incoming: Frames<OwnedReadHalf>,
    pub(super) sending: OwnedWriteHalf,
    pub(crate) greeting: Greeting,
}

impl StartedWorker {
    /// `load` is the frame of a [`ToWorker::Load`](sekisho_guest_protocol::ToWorker::Load) or a
    /// [`ToWorker::LoadComponents`](sekisho_guest_protocol::ToWorker::LoadComponents).
    /// Errors: why it could not be started, for the log.
    pub(crate) async fn new(program: &Program, load: &[u8]) -> Result<Self, WorkerStartError> {
        let (stream, mut child) =
            spawn(program).map_err(|error| WorkerStartError::broken(format!("{}: {error}", program.file.display())))?;
        let (incoming, mut sending) = stream.into_split();
        let mut incoming = Frames::new(incoming);
        let greeted = timeout(READY_TIMEOUT, async {
            sending.write_all(load).await?;
            next(&mut incoming).await
        });
        match greeted.await {
            Ok(Ok(FromWorker::Ready(greeting))) => Ok(Self { child, incoming, sending, greeting: *greeting }),
            Ok(Ok(_)) => Err(WorkerStartError::broken("the worker sent a message before it was ready")),
            Ok(Err(error)) => Err(WorkerStartError::ended(&mut child, &error).await),
            Err(_) => {
                let limit = READY_TIMEOUT.as_secs();
                Err(WorkerStartError::broken(format!("the worker was not ready within {limit} s")))
            }
        }
    }
}
