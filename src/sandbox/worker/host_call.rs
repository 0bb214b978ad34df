//! `host.call`: the guest's only interface beside WASI. Frames are JSON objects, one in each direction. They deliver
//! the program, and return its result and pictures, so that printed text cannot be mistaken for them.
//!
//! A command, which cannot import it, exchanges the same frames [in files](file_channel).
//!
//! The program can send frames of its own: this only forges its own result.

pub(super) mod file_channel;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;
use wasmtime::{AsContextMut, Caller, Extern};

use crate::sandbox::protocol::End;
use crate::sandbox::wasi::{Errno, GuestMemory};

/// The size of a frame without the result or pictures in it.
const FRAME_BYTES: u64 = 1 << 20;
/// `host.call`'s result for an invalid frame or invalid addresses.
const FAULT: i32 = -2;

/// Ends the guest when a limit of `host.call` is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the program exceeded its limit {0}")]
pub struct Spent(pub &'static str);

/// The limits of one run, and its input.
#[derive(Debug, Default)]
pub struct HostCall {
    code: String,
    result_bytes: u64,
    result_left: u64,
    calls_left: u32,
    /// What the run reported.
    pub left: Left,
}

/// The output of a guest.
#[derive(Debug, Default, PartialEq)]
pub struct Left {
    pub end: Option<End>,
    pub result: Option<String>,
    pub images: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
struct Frame {
    v: u32,
    #[serde(default)]
    id: serde_json::Value,
    #[serde(flatten)]
    operation: Operation,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Operation {
    Job,
    Image { png: String },
    Done { end: ReportedEnd, result: Option<String> },
    List,
    Call,
}

/// How a run reports its end.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ReportedEnd {
    Exited {
        code: i32,
    },
    Exception {
        #[serde(rename = "type")]
        kind: String,
        message: String,
        traceback: String,
        line: Option<u32>,
        column: Option<u32>,
    },
}

impl HostCall {
    /// The state for one program; `result_bytes` counts its result and pictures together.
    pub fn new(code: String, result_bytes: u64, calls: u32) -> Self {
        Self { code, result_bytes, result_left: result_bytes, calls_left: calls, left: Left::default() }
    }

    /// The longest frame that is parsed: quoting a result at most doubles it.
    fn frame_bytes(&self) -> u64 {
        FRAME_BYTES.saturating_add(self.result_bytes.saturating_mul(2))
    }

    /// Handles a frame and returns the reply.
    ///
    /// # Errors
    /// When a limit is exceeded, which ends the run.
    pub fn answer(&mut self, frame: &[u8]) -> Result<Vec<u8>, Spent> {
        let Ok(frame) = serde_json::from_slice::<Frame>(frame) else {
            return Ok(refusal(&serde_json::Value::Null, "protocol", "the frame is not a valid `host.call` request"));
        };
        if frame.v != 1 {
            return Ok(refusal(&frame.id, "protocol", "only version 1 is supported"));
        }
        match frame.operation {
            Operation::Job => return Ok(self.job(&frame.id)),
            Operation::Image { png } => {
                let Ok(image) = BASE64_STANDARD.decode(png) else {
                    return Ok(refusal(&frame.id, "invalid_arguments", "png is not base64"));
                };
                self.take(image.len())?;
                self.left.images.push(image);
            }
            Operation::Done { end, result } => {
                self.take(result.as_ref().map_or(0, String::len))?;
                self.left.end = Some(end.into());
                self.left.result = result;
            }
            Operation::List | Operation::Call => {
                return Ok(refusal(&frame.id, "denied", "tools cannot be called from inside the sandbox"));
            }
        }
        Ok(answer(&frame.id, &serde_json::Value::Null))
    }

    /// The reply to a request for the program.
    fn job(&self, id: &serde_json::Value) -> Vec<u8> {
        answer(id, &json!({"code": self.code, "result_bytes": self.result_bytes}))
    }

    fn count_call(&mut self) -> Result<(), Spent> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or(Spent("host_calls"))?;
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Spent> {
        self.result_left = self.result_left.checked_sub(bytes as u64).ok_or(Spent("result_bytes"))?;
        Ok(())
    }
}

impl From<ReportedEnd> for End {
    fn from(end: ReportedEnd) -> Self {
        match end {
            ReportedEnd::Exited { code } => Self::Exited { code },
            ReportedEnd::Exception { kind, message, traceback, line, column } => {
                Self::Exception { kind, message, traceback, line, column }
            }
        }
    }
}

fn answer(id: &serde_json::Value, value: &serde_json::Value) -> Vec<u8> {
    json!({"v": 1, "id": id, "ok": true, "value": value}).to_string().into_bytes()
}

fn refusal(id: &serde_json::Value, kind: &str, message: &str) -> Vec<u8> {
    json!({"v": 1, "id": id, "ok": false, "error": {"kind": kind, "message": message}}).to_string().into_bytes()
}

/// Implements `host.call`: reads the frame at an address, and writes the reply to the address that the guest's
/// `host_alloc` returns. `view` gets the guest's [`HostCall`] out of the store's data.
///
/// # Errors
/// When a limit is exceeded, or the guest ends while it allocates.
pub async fn call<T: Send + 'static>(
    caller: &mut Caller<'_, T>,
    view: fn(&mut T) -> &mut HostCall,
    (at, length, out, length_out): (u32, u32, u32, u32),
) -> wasmtime::Result<i32> {
    view(caller.data_mut()).count_call()?;
    let answer = with_memory(caller, |memory, data| {
        memory.bytes(out, 4)?;
        memory.bytes(length_out, 4)?;
        let host_call = view(data);
        if u64::from(length) > host_call.frame_bytes() {
            return Ok(Ok(refusal(&serde_json::Value::Null, "too_large", "the frame is too long")));
        }
        Ok(host_call.answer(memory.bytes(at, length)?))
    });
    let Ok(answer) = answer else { return Ok(FAULT) };
    give(caller, &answer?, out, length_out).await
}

async fn give<T: Send + 'static>(
    caller: &mut Caller<'_, T>,
    answer: &[u8],
    out: u32,
    length_out: u32,
) -> wasmtime::Result<i32> {
    let Ok(length) = u32::try_from(answer.len()) else { return Ok(FAULT) };
    let Some(Extern::Func(allocate)) = caller.get_export("host_alloc") else { return Ok(FAULT) };
    let Ok(allocate) = allocate.typed::<u32, u32>(caller.as_context_mut()) else { return Ok(FAULT) };
    let at = allocate.call_async(caller.as_context_mut(), length).await?;
    if at == 0 {
        return Ok(FAULT);
    }
    let given = with_memory(caller, |memory, _| {
        memory.store(at, answer)?;
        memory.store(out, &at.to_le_bytes())?;
        memory.store(length_out, &length.to_le_bytes())
    });
    Ok(if given.is_ok() { 0 } else { FAULT })
}

fn with_memory<T: 'static, R>(
    caller: &mut Caller<'_, T>,
    work: impl FnOnce(&mut GuestMemory<'_>, &mut T) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Err(Errno::Fault) };
    let (bytes, data) = memory.data_and_store_mut(caller.as_context_mut());
    work(&mut GuestMemory(bytes), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: Result<Vec<u8>, Spent>) -> String {
        String::from_utf8(answer.unwrap()).unwrap()
    }

    #[test]
    fn the_program_is_delivered_and_its_result_and_pictures_are_received() {
        let mut host_call = HostCall::new("1+1".to_owned(), 8, 9);
        let job = text(host_call.answer(br#"{"v":1,"id":7,"op":"job"}"#));
        let job: serde_json::Value = serde_json::from_str(&job).unwrap();
        assert_eq!(job, json!({"v": 1, "id": 7, "ok": true, "value": {"code": "1+1", "result_bytes": 8}}));
        host_call.answer(br#"{"v":1,"op":"image","png":"UE5H"}"#).unwrap();
        host_call.answer(br#"{"v":1,"op":"done","end":{"kind":"exited","code":3},"result":"2"}"#).unwrap();
        let left =
            Left { end: Some(End::Exited { code: 3 }), result: Some("2".to_owned()), images: vec![b"PNG".to_vec()] };
        assert_eq!(host_call.left, left);
    }

    #[test]
    fn a_result_and_pictures_over_the_limit_end_the_run() {
        let mut host_call = HostCall::new(String::new(), 4, 9);
        host_call.answer(br#"{"v":1,"op":"image","png":"UE5H"}"#).unwrap();
        let done = host_call.answer(br#"{"v":1,"op":"done","end":{"kind":"exited","code":0},"result":"22"}"#);
        assert_eq!(done, Err(Spent("result_bytes")));
    }

    #[test]
    fn an_invalid_frame_is_answered_with_its_kind_of_error() {
        let cases: [(&[u8], &str); 7] = [
            (b"", "protocol"),
            (b"\xff\x00", "protocol"),
            (br#"{"v":1,"op":"fork"}"#, "protocol"),
            (br#"{"v":2,"op":"job"}"#, "protocol"),
            (br#"{"v":1,"op":"image","png":"*"}"#, "invalid_arguments"),
            (br#"{"v":1,"op":"list"}"#, "denied"),
            (br#"{"v":1,"op":"call","tool":"t","args":{}}"#, "denied"),
        ];
        for (frame, kind) in cases {
            let answer = text(HostCall::new(String::new(), 8, 9).answer(frame));
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["error"]["kind"], kind, "{}", String::from_utf8_lossy(frame));
        }
        let nested = format!(r#"{{"v":1,"op":"call","args":{}"#, "[".repeat(1 << 20));
        assert!(text(HostCall::new(String::new(), 8, 9).answer(nested.as_bytes())).contains("protocol"));
    }
}
