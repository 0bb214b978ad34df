//! `host.call`: the guest's only interface beside WASI. Frames are JSON objects, one in each direction. They deliver
//! the program, and return its result and pictures, so that printed text cannot be mistaken for them.
//!
//! A command, which cannot import it, exchanges the same frames [in files](file_channel).
//!
//! The program can send frames of its own: this only forges its own result, and calls [tools] that it may call anyhow.

pub(super) mod file_channel;
mod tools;

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wasmtime::{AsContextMut, Caller, Extern};

pub use self::tools::ToolLink;
use self::tools::{Handled, MAX_CALL_BYTES, ToolFrame, Tools};
use sekisho_guest_protocol::{End, ModuleTask, SessionEntry};
use sekisho_guest_system::wasi::{Errno, GuestMemory};

/// The size of a frame without the result or pictures in it: the texts of an exception are the largest part.
const FRAME_BYTES: u64 = 1 << 20;
/// Maximum length of a frame that has neither a result, nor a picture, nor a call. Parsing blocks the worker's thread.
const SHORT_FRAME_BYTES: usize = 64 << 10;
/// Only frames that begin with one of these may be longer; the harness writes them like this.
const BEGINNINGS_OF_LONG: [&[u8]; 2] = [br#"{"v": 1, "id": 0, "op": "done""#, br#"{"v": 1, "id": 0, "op": "image""#];
/// The same for calls of tools, which have a limit of their own.
const BEGINNINGS_OF_CALLS: [&[u8]; 2] = [br#"{"v": 1, "id": 0, "op": "call""#, br#"{"v": 1, "id": 0, "op": "start""#];
/// `host.call`'s result for an invalid frame or invalid addresses.
const FAULT: i32 = -2;

/// Maximum number of pictures of a run; also in `harness.py`.
const MAX_IMAGES: usize = 16;
/// The first bytes of every PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Maximum lengths of an exception's texts; the harness has lower ones, which a program can avoid.
const MAX_TYPE_NAME_BYTES: usize = 1 << 10;
const MAX_MESSAGE_BYTES: usize = 16 << 10;
const MAX_TRACEBACK_BYTES: usize = 128 << 10;

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
    image_bytes_left: u64,
    /// The bytes of all long frames together, so that a program cannot have the host parse without end.
    frame_bytes_left: u64,
    calls_left: u32,
    tools: Tools,
    session: Option<SessionEntry>,
    module: Option<ModuleTask>,
    reseeds: bool,
    /// The reports of the run.
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
struct Frame<'a> {
    v: u32,
    #[serde(default)]
    id: u64,
    op: Operation,
    /// Base64 of an image.
    #[serde(borrow)]
    png: Option<Cow<'a, str>>,
    end: Option<ReportedEnd>,
    result: Option<String>,
    #[serde(borrow)]
    tool: Option<Cow<'a, str>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    identifier: Option<Cow<'a, str>>,
    #[serde(borrow)]
    query: Option<Cow<'a, str>>,
    limit: Option<u32>,
    ids: Option<Vec<u32>>,
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Operation {
    Job,
    Image,
    Done,
    /// Nothing is listed in advance: tools are searched for.
    List,
    Call,
    Start,
    Wait,
    Describe,
    Search,
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
    /// The state for one program. `result_bytes` is the limit of its result, `image_bytes` the limit of all its
    /// pictures.
    pub fn new(code: String, result_bytes: u64, image_bytes: u64, calls: u32) -> Self {
        let mut new = Self {
            code,
            result_bytes,
            result_left: result_bytes,
            image_bytes_left: image_bytes,
            frame_bytes_left: 0,
            calls_left: calls,
            tools: Tools::default(),
            session: None,
            module: None,
            reseeds: false,
            left: Left::default(),
        };
        // Base64 has four bytes for three.
        new.frame_bytes_left = new.result_frame_bytes().saturating_add(image_bytes / 3 * 4 + FRAME_BYTES);
        new
    }

    /// The same for a program that may call tools so often.
    #[must_use]
    pub fn with_tools(self, link: ToolLink, calls: u32) -> Self {
        Self { tools: Tools::new(link, calls), ..self }
    }

    /// The same in a session.
    #[must_use]
    pub fn in_session(self, entry: SessionEntry) -> Self {
        Self { session: Some(entry), ..self }
    }

    /// The same for code that is a module.
    #[must_use]
    pub fn with_module(self, module: Option<ModuleTask>) -> Self {
        Self { module, ..self }
    }

    /// The same for a program before which the random numbers are seeded anew.
    #[must_use]
    pub fn reseeding(self) -> Self {
        Self { reseeds: true, ..self }
    }

    pub fn reseeds(&self) -> bool {
        self.reseeds
    }

    /// The longest frame with a result: quoting at most doubles it.
    fn result_frame_bytes(&self) -> u64 {
        FRAME_BYTES.saturating_add(self.result_bytes.saturating_mul(2))
    }

    /// Handles a frame and returns the reply, unless the program has to wait for it.
    /// Errors: when a limit is exceeded, which ends the run.
    fn handle(&mut self, frame: &[u8]) -> Result<Handled, Spent> {
        if frame.len() > SHORT_FRAME_BYTES && !self.admits(frame) {
            return Ok(Handled::Reply(refusal(0, "too_large", "the frame is too long")));
        }
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(frame) else {
            let reply = refusal(0, "protocol", "the frame is not a valid `host.call` request");
            return Ok(Handled::Reply(reply));
        };
        if frame.v != 1 {
            return Ok(Handled::Reply(refusal(frame.id, "protocol", "only version 1 is supported")));
        }
        if !matches!(frame.op, Operation::Job | Operation::Image | Operation::Done) {
            return Ok(self.handle_tools(frame));
        }
        self.reply(frame).map(Handled::Reply)
    }

    fn handle_tools(&mut self, frame: Frame<'_>) -> Handled {
        let Frame { id, op, tool, args, identifier, query, limit, ids, timeout_ms, .. } = frame;
        if self.left.end.is_some() {
            return Handled::Reply(refusal(id, "denied", "the program has ended"));
        }
        self.tools.handle(&op, ToolFrame { id, tool, args, identifier, query, limit, ids, timeout_ms })
    }

    /// Whether a frame may be as long as it is.
    fn admits(&mut self, frame: &[u8]) -> bool {
        let begins_with = |beginnings: &[&[u8]]| beginnings.iter().any(|beginning| frame.starts_with(beginning));
        if begins_with(&BEGINNINGS_OF_CALLS) {
            return frame.len() <= MAX_CALL_BYTES && self.tools.admit(frame.len());
        }
        let left = self.frame_bytes_left.checked_sub(frame.len() as u64).filter(|_| begins_with(&BEGINNINGS_OF_LONG));
        let Some(left) = left else { return false };
        self.frame_bytes_left = left;
        true
    }

    /// Handles a frame of a program for which nothing can be waited.
    fn answer(&mut self, frame: &[u8]) -> Result<Vec<u8>, Spent> {
        Ok(match self.handle(frame)? {
            Handled::Reply(reply) => reply,
            Handled::Wait(_) => refusal(0, "denied", "this program cannot wait for tools"),
        })
    }

    /// The reply to a frame of the harness.
    fn reply(&mut self, frame: Frame<'_>) -> Result<Vec<u8>, Spent> {
        match (frame.op, frame.png, frame.end) {
            (Operation::Job, ..) => return Ok(self.job(frame.id)),
            (Operation::Image, Some(png), _) => {
                if let Err((kind, message)) = self.take_image(&png) {
                    return Ok(refusal(frame.id, kind, message));
                }
            }
            (Operation::Done, _, Some(end)) => {
                self.take_result(frame.result.as_ref().map_or(0, String::len))?;
                self.left.end = Some(end.into());
                self.left.result = frame.result;
            }
            _ => return Ok(refusal(frame.id, "protocol", "the frame has no `png` or no `end`")),
        }
        Ok(answer(frame.id, &serde_json::Value::Null))
    }

    /// The reply to a request for the program.
    fn job(&self, id: u64) -> Vec<u8> {
        let mut job = json!({"code": self.code, "result_bytes": self.result_bytes});
        if let Some(entry) = self.session {
            job["session"] = if entry == SessionEntry::Inspect { "inspect" } else { "call" }.into();
        }
        if let Some(module) = &self.module {
            job["module"] = json!(module);
        }
        if self.reseeds {
            job["reseed"] = true.into();
        }
        answer(id, &job)
    }

    fn count_call(&mut self) -> Result<(), Spent> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or(Spent("host_calls"))?;
        Ok(())
    }

    fn take_result(&mut self, bytes: usize) -> Result<(), Spent> {
        self.result_left = self.result_left.checked_sub(bytes as u64).ok_or(Spent("result_bytes"))?;
        Ok(())
    }

    /// Keeps a picture, or gives the kind and the text of the refusal: the run continues without it.
    fn take_image(&mut self, base64: &str) -> Result<(), (&'static str, &'static str)> {
        if self.left.images.len() >= MAX_IMAGES {
            return Err(("too_large", "the run has 16 pictures already; write more of them to files"));
        }
        if base64.len() as u64 / 4 * 3 > self.image_bytes_left.saturating_add(2) {
            return Err((
                "too_large",
                "the pictures of the run are larger than its limit; lower `dpi`, or write to a file",
            ));
        }
        let image = BASE64_STANDARD.decode(base64).map_err(|_| ("invalid_arguments", "the picture is not base64"))?;
        if !image.starts_with(PNG) {
            return Err(("invalid_arguments", "the picture is not a PNG file"));
        }
        self.image_bytes_left = self.image_bytes_left.saturating_sub(image.len() as u64);
        self.left.images.push(image);
        Ok(())
    }
}

impl From<ReportedEnd> for End {
    fn from(end: ReportedEnd) -> Self {
        match end {
            ReportedEnd::Exited { code } => Self::Exited { code },
            ReportedEnd::Exception { mut kind, mut message, mut traceback, line, column } => {
                kind.truncate(kind.floor_char_boundary(MAX_TYPE_NAME_BYTES));
                message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
                traceback.truncate(traceback.floor_char_boundary(MAX_TRACEBACK_BYTES));
                Self::Exception { kind, message, traceback, line, column }
            }
        }
    }
}

fn answer(id: u64, value: &serde_json::Value) -> Vec<u8> {
    json!({"v": 1, "id": id, "ok": true, "value": value}).to_string().into_bytes()
}

fn refusal(id: u64, kind: &str, message: &str) -> Vec<u8> {
    json!({"v": 1, "id": id, "ok": false, "error": {"kind": kind, "message": message}}).to_string().into_bytes()
}

/// Implements `host.call`: reads the frame at an address, and writes the reply to the address that the guest's
/// `host_alloc` returns. `view` gets the guest's [`HostCall`] out of the store's data.
/// Errors: when a limit is exceeded, or the guest ends while it allocates.
pub async fn call<T: Send + 'static>(
    caller: &mut Caller<'_, T>,
    view: fn(&mut T) -> &mut HostCall,
    (at, length, out, length_out): (u32, u32, u32, u32),
) -> wasmtime::Result<i32> {
    view(caller.data_mut()).count_call()?;
    let handled = with_memory(caller, |memory, data| {
        memory.bytes(out, 4)?;
        memory.bytes(length_out, 4)?;
        let handled = view(data).handle(memory.bytes(at, length)?);
        Ok((handled, memory.0.len() as u64))
    });
    let Ok((handled, memory_bytes)) = handled else { return Ok(FAULT) };
    let answer = match handled? {
        Handled::Reply(answer) => answer,
        Handled::Wait(wait) => {
            let reply = wait.reply(memory_bytes).await;
            view(caller.data_mut()).tools.end_wait(&wait, reply)
        }
    };
    give(caller, &answer, out, length_out).await
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
mod tests;
