//! The limits of a run as the configuration sets them, its use of them, and the message for its caller when one of them
//! has ended it.

use std::time::Duration;

use serde_json::{Map, Value};

use sekisho_config::SandboxConfig;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{Captured, End, JobLimits, Outcome};

/// Most files and folders of one run, and most open at once.
const MAX_FILES: u32 = 8_192;
const MAX_OPEN_FILES: u32 = 64;

/// A generator is seeded with 32 bytes; this is enough for keys and samples without draining the host.
const MAX_RANDOM_BYTES: u64 = 16 << 20;

/// Maximum host calls of one run, including the harness's own and without calls of tools.
const MAX_HOST_CALLS: u32 = 1_000;
/// A call of a tool is started, and waited for several times where a program does something else meanwhile.
const HOST_CALLS_PER_CALL: u32 = 10;

/// The part of a function's output that a reply has, for each stream.
const MAX_PRINTED_BYTES: usize = 4 << 10;

/// The limits of a run that has this time left, with its waits for tools.
pub fn job_limits(config: &SandboxConfig, memory_bytes: u64, left: Duration) -> JobLimits {
    JobLimits {
        wall_time: left.min(Duration::from_secs(config.timeout_seconds.into())),
        total_time: left,
        memory_bytes,
        stream_bytes: u64::from(config.max_stream_bytes),
        result_bytes: u64::from(config.max_result_bytes),
        image_bytes: u64::from(config.max_image_bytes),
        file_bytes: u64::from(config.max_file_bytes),
        max_files: MAX_FILES,
        max_open_files: MAX_OPEN_FILES,
        random_bytes: MAX_RANDOM_BYTES,
        host_calls: max_host_calls(config),
        tool_calls: max_tool_calls(config),
        state_bytes: 0,
    }
}

/// The use of the run, as the host measured it.
pub fn usage_metadata(outcome: &Outcome) -> Map<String, Value> {
    let milliseconds = |time: Duration| Value::from(time.as_micros() as f64 / 1_000.0);
    let printed = outcome.stdout.total.saturating_add(outcome.stderr.total);
    [
        ("wall_ms", milliseconds(outcome.usage.wall_time)),
        ("cpu_ms", milliseconds(outcome.usage.cpu_time)),
        ("peak_memory_bytes", outcome.usage.peak_memory_bytes.into()),
        ("output_bytes", printed.into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// The beginning of a stream, for a reply.
pub fn beginning(stream: &Captured) -> String {
    let kept = &stream.bytes[..stream.bytes.len().min(MAX_PRINTED_BYTES)];
    let text = String::from_utf8_lossy(kept);
    match stream.total > kept.len() as u64 {
        true => format!("{text}… ({} of {} bytes)", kept.len(), stream.total),
        false => text.into_owned(),
    }
}

/// Why the code was ended by the host; `None` if it came to an end of its own. `note`: a further sentence of the
/// message.
pub fn stop_error(outcome: &Outcome, config: &SandboxConfig, note: &str) -> Option<CallError> {
    let used = outcome.usage.wall_time.as_secs_f64();
    let (code, message) = match &outcome.end {
        End::Exited { .. } | End::Exception { .. } => return None,
        End::Timeout => {
            let message =
                format!("the program was stopped after {used:.1} s; do less in one call, or ask for more time{note}");
            (ErrorCode::SandboxTimeout, message)
        }
        End::Memory => {
            let message = format!(
                "the program exceeded its memory limit after using {} MiB; process less data at once{note}",
                outcome.usage.peak_memory_bytes >> 20
            );
            (ErrorCode::SandboxMemory, message)
        }
        End::Output(limit) => (ErrorCode::SandboxOutput, at_limit(limit, config) + note),
        End::Trap(reason) => {
            let message = "the interpreter crashed, by too deep recursion or an error in an extension module";
            return Some(CallError::new(ErrorCode::SandboxTrap, format!("{message}{note}")).caused_by(reason));
        }
        End::Cancelled => return Some(CallError::internal("a run that was waited for was cancelled")),
    };
    Some(CallError::new(code, message))
}

fn max_tool_calls(config: &SandboxConfig) -> u32 {
    if config.code_mode.enabled { config.code_mode.max_calls } else { 0 }
}

fn max_host_calls(config: &SandboxConfig) -> u32 {
    MAX_HOST_CALLS.saturating_add(max_tool_calls(config).saturating_mul(HOST_CALLS_PER_CALL))
}

/// The message for a stopped program: the limit, its number, and the remedy.
fn at_limit(limit: &str, config: &SandboxConfig) -> String {
    let (result, files) = (config.max_result_bytes, config.max_file_bytes);
    match limit {
        "result_bytes" => format!(
            "the result is longer than {result} bytes of JSON (`sandbox.max_result_bytes`); return less, or write it to a file"
        ),
        "file_bytes" => format!(
            "the files in /output, or their names, have more than {files} bytes (`sandbox.max_file_bytes`); write less"
        ),
        "random_bytes" => {
            format!("the program read more than {MAX_RANDOM_BYTES} random bytes; use a generator with a seed")
        }
        "host_calls" => {
            let most = max_host_calls(config);
            format!(
                "the program called the host more than {most} times; call fewer tools, and wait for them less often"
            )
        }
        "copied_bytes" => "the component hands over too many values at once; return or send less at a time".to_owned(),
        _ => "the program's output is too long to be handed over; return less".to_owned(),
    }
}
