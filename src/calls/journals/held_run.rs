//! A run of a program that this process has in the store.

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use sekisho_store::{LockState, ProgramRunLease, ProgramRunStore};

/// The lease of a run, which is renewed until this is dropped. Once it is lost, nothing is written of the run.
#[derive(Debug)]
pub(super) struct HeldRun {
    lease: ProgramRunLease,
    _renewal: AbortOnDropHandle<LockState>,
}

impl HeldRun {
    /// `asked`: when the lease was asked for.
    pub(super) fn new(store: ProgramRunStore, lease: ProgramRunLease, asked: Instant) -> Self {
        let renewed = lease.clone();
        let renewal = tokio::spawn(async move { store.keep_renewing(&renewed, asked).await });
        Self { lease, _renewal: AbortOnDropHandle::new(renewal) }
    }

    pub(super) fn lease(&self) -> &ProgramRunLease {
        &self.lease
    }
}
