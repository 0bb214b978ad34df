use wasmtime::Trap;

use super::memory::TooSmall;
use crate::host_call::Spent;
use sekisho_guest_protocol::End;
use sekisho_guest_system::wasi::Stop;

/// The valid exit codes.
const EXIT_CODES: std::ops::RangeInclusive<i32> = 0..=255;

/// Why the host stopped running a guest.
pub(crate) enum Stopped {
    Late,
    /// The module returned, with an exit code.
    Returned(wasmtime::Result<i32>),
}

/// How a run ended. `reported` is the report of the guest's harness; `refused` whether the host refused to grow the
/// memory.
pub(crate) fn end_of(stopped: Stopped, reported: Option<End>, refused: bool) -> End {
    let returned = match stopped {
        Stopped::Late => return End::Timeout,
        Stopped::Returned(returned) => returned,
    };
    // A program that was refused memory may have continued without it. It failed for lack of memory only if it
    // reports so, cannot report, or gave up.
    match returned {
        Ok(code) => match reported {
            Some(End::Exception { kind, .. }) if refused && kind.ends_with("MemoryError") => End::Memory,
            Some(reported) => reported,
            None if refused && code != 0 => End::Memory,
            None => End::Exited { code },
        },
        Err(error) => {
            let gave_up = matches!(error.downcast_ref(), Some(Trap::UnreachableCodeReached));
            let exited_unheard = matches!(error.downcast_ref(), Some(Stop::Exit(1)));
            if refused && (gave_up || exited_unheard) || error.is::<TooSmall>() {
                return End::Memory;
            }
            match (error.downcast_ref(), error.downcast_ref()) {
                (Some(Stop::Exit(code)), _) if EXIT_CODES.contains(code) => End::Exited { code: *code },
                (Some(Stop::Exit(code)), _) => End::Trap(format!("{code} is not a valid exit code")),
                (Some(Stop::RandomBytes), _) => End::Output("random_bytes".to_owned()),
                (None, Some(Spent(limit))) => End::Output((*limit).to_owned()),
                (None, None) => End::Trap(error.root_cause().to_string()),
            }
        }
    }
}
