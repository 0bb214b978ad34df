//! Outcomes of runs, as the gateway gets them.

use std::io;

use sekisho_guest_protocol::{End, FromWorker, JobId, Outcome, encode};

/// The end of a job whose files cannot be where its session has something else.
pub(super) fn not_placed(message: String) -> End {
    let (kind, traceback) = ("FileExistsError".to_owned(), String::new());
    End::Exception { kind, message, traceback, line: None, column: None }
}

/// An outcome too long for a frame fails only that run: all others of the process continue.
pub(super) fn done_frame(id: JobId, outcome: Outcome) -> io::Result<Vec<u8>> {
    let usage = outcome.usage.clone();
    encode(&FromWorker::Done(id, Box::new(outcome))).or_else(|_| {
        let end = End::Output("frame_bytes".to_owned());
        encode(&FromWorker::Done(id, Box::new(Outcome { usage, ..Outcome::without_output(end) })))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use sekisho_guest_protocol::{Captured, Frames, Usage};

    #[tokio::test]
    async fn an_outcome_too_long_for_a_frame_is_reported_as_that_runs_failure() {
        let usage = Usage { wall_time: Duration::from_millis(7), ..Usage::default() };
        let stdout = Captured { bytes: vec![b'x'; 256 << 20], total: 256 << 20 };
        let outcome = Outcome { stdout, usage: usage.clone(), ..Outcome::without_output(End::Exited { code: 0 }) };
        let frame = done_frame(5, outcome).unwrap();
        let reported = Frames::new(&frame[..]).next::<FromWorker>().await.unwrap();
        let Some(FromWorker::Done(5, reported)) = reported else { panic!("{reported:?}") };
        assert_eq!(*reported, Outcome { usage, ..Outcome::without_output(End::Output("frame_bytes".to_owned())) });
    }
}
