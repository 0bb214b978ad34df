//! The outcome of a run as the tool's output: a success, or the error that ended it with its output until then.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::session;
use sekisho_config::SandboxConfig;
use sekisho_core::call::{InterpreterSession, ToolOutput};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::json::approximate_size;
use sekisho_guest_protocol::{Captured, End, Outcome};
use sekisho_sandbox::limits;

/// Success, or the error that ended the run. The output of both has at most `max_output_bytes`: a success that has more
/// is refused by the pipeline, an error is returned without its files and pictures.
pub(super) fn answer(
    outcome: &Outcome,
    session: Option<&InterpreterSession>,
    config: &SandboxConfig,
    max_output_bytes: usize,
) -> Result<ToolOutput, CallError> {
    let exit_code = match &outcome.end {
        End::Exited { code } => Some(*code),
        End::Exception { .. } => Some(1),
        _ => None,
    };
    let metadata = limits::usage_metadata(outcome);
    let mut value = output(outcome, exit_code, &metadata)?;
    if let Some(session) = session {
        value["session"] = session::output(session);
    }
    let note = session.and_then(session::notice).map(|note| format!("; {note}")).unwrap_or_default();
    let Some(error) = failure(outcome, config, &note) else {
        return Ok(ToolOutput { value, metadata, ..ToolOutput::default() });
    };
    let size = approximate_size(&value);
    if size <= max_output_bytes {
        return Err(error.with_output(value));
    }
    let left_out =
        format!("its files and pictures are left out: the output has {size} bytes, {max_output_bytes} are allowed");
    for part in ["files", "images"] {
        value[part] = json!([]);
    }
    let stderr = value["stderr"].as_str().unwrap_or_default();
    value["stderr"] = format!("{stderr}\n{left_out}").into();
    Err(if approximate_size(&value) <= max_output_bytes { error.with_output(value) } else { error })
}

/// `note`: a further sentence about its session.
fn failure(outcome: &Outcome, config: &SandboxConfig, note: &str) -> Option<CallError> {
    let End::Exception { kind, message, traceback, line, column } = &outcome.end else {
        return limits::stop_error(outcome, config, note);
    };
    let text = if traceback.is_empty() { format!("{kind}: {message}") } else { traceback.trim_end().to_owned() };
    Some(exception(text + note, kind, message, *line, *column))
}

fn exception(text: String, kind: &str, message: &str, line: Option<u32>, column: Option<u32>) -> CallError {
    let error = CallError::tool(text);
    let Some(line) = line else { return error };
    let place = column.map_or_else(|| format!("line {line}"), |column| format!("line {line}, column {column}"));
    error.with_detail(Detail { path: "/code".into(), rule: kind.to_owned(), message: format!("{place}: {message}") })
}

fn output(outcome: &Outcome, exit_code: Option<i32>, metadata: &Map<String, Value>) -> Result<Value, CallError> {
    let result = match outcome.result.as_deref().map(serde_json::from_str::<Value>) {
        None => Value::Null,
        Some(Ok(result)) => result,
        Some(Err(error)) => {
            return Err(CallError::new(ErrorCode::SandboxTrap, "the program tampered with the channel for its result")
                .caused_by(error));
        }
    };
    let files =
        outcome.files.iter().map(|file| json!({"path": file.path, "content_base64": BASE64.encode(&file.content)}));
    let images =
        outcome.images.iter().map(|png| json!({"media_type": "image/png", "content_base64": BASE64.encode(png)}));
    Ok(json!({
        "result": result,
        "stdout": text_of(&outcome.stdout),
        "stderr": text_of(&outcome.stderr),
        "exit_code": exit_code,
        "files": files.collect::<Vec<_>>(),
        "images": images.collect::<Vec<_>>(),
        "usage": metadata,
    }))
}

/// Appends a note when the stream was truncated.
fn text_of(stream: &Captured) -> String {
    let mut text = String::from_utf8_lossy(&stream.bytes).into_owned();
    let kept = stream.bytes.len() as u64;
    if stream.total > kept {
        text.push_str(&format!("\n… ({kept} of {} bytes)", stream.total));
    }
    text
}
