//! Proofs by machine. The tests `protocol` are models of the protocols between replicas; the tests `interleavings` run the bounded
//! structures of `sekisho-core` with threads whose order shuttle chooses.
//!
//! This crate compiles the files of the structures as they are. Their locks and their deadlines are those below, by the names of the
//! crates that the files use: at each lock, another thread may go on, and a deadline passes at any time.

mod locks;

// The names that the files use: `parking_lot::Mutex`, `tokio::time::Instant` …
extern crate self as parking_lot;
extern crate self as tokio;

pub use self::locks::{Mutex, RwLock};
pub use sekisho_core::caller;

/// The structures: `unchanged`, and with a mistake in each (`mistakes.rs`).
pub mod structures {
    include!(concat!(env!("OUT_DIR"), "/modules.rs"));
}

/// As in tokio. Its channel for one value has no lock to replace, and wakes as shuttle's executor says.
pub mod sync {
    pub use tokio_real::sync::oneshot;
}

/// As in tokio, with deadlines that shuttle chooses.
pub mod time {
    pub use tokio_real::time::Instant;

    use futures_util::FutureExt;
    use shuttle::rand::Rng;

    /// The deadline passed.
    #[derive(Debug)]
    pub struct Elapsed;

    /// Waits for a future, or for the deadline: that passes at once where shuttle chooses so.
    ///
    /// # Errors
    /// The deadline passed.
    pub async fn timeout_at<F: Future + Unpin>(_until: Instant, future: F) -> Result<F::Output, Elapsed> {
        let passes = shuttle::rand::thread_rng().gen_ratio(1, 4);
        match passes {
            true => future.now_or_never().ok_or(Elapsed),
            false => Ok(future.await),
        }
    }
}
