//! The requests of a program to tools: the operations `call`, `start`, `wait`, `describe` and `search` of `host.call`.
//!
//! A request goes to the gateway, and the program is suspended until its reply is here. `start` only sends it; `wait` then
//! waits for one of several replies. The gateway checks each call like any other: here are only the limits of frames.

mod inbox;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;

pub use self::inbox::Inbox;
use super::{Operation, refusal};
use sekisho_core::call::OpenTime;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_protocol::{
    FromWorker, MAX_NESTING, MAX_OPEN_REQUESTS, MAX_VALUE_BYTES, ToolQuestion, ToolReply, ToolRequest,
};
use sekisho_guest_system::wasi::Sleeper;

/// Maximum length of a frame with a call.
pub(super) const MAX_CALL_BYTES: usize = 1 << 20;
/// Calls that a program may have open: a request that is no call may be open besides.
const MAX_OPEN_CALLS: usize = MAX_OPEN_REQUESTS - 1;
/// All long frames with calls, and all replies, of one run.
const MAX_BYTES: u64 = 256 << 20;
/// Arguments of all open calls together: the gateway holds them parsed.
const MAX_OPEN_BYTES: usize = 2 << 20;
/// A program needs no more descriptions than calls, and searches take the gateway longest.
const MAX_DESCRIPTIONS: u32 = 1_000;
const MAX_SEARCHES: u32 = 100;
/// Maximum length of a tool's name, and so of its identifier.
const MAX_NAME: usize = 64;
/// Longer than any run.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// The kind of an error of `host.call`, and its message.
type Refusal = (&'static str, Cow<'static, str>);

/// The connection of one run with the gateway, by which it asks and sleeps.
#[derive(Debug, Clone)]
pub struct ToolLink {
    pub sleeper: Sleeper,
    pub inbox: Arc<Inbox>,
    /// How long the program has waited for replies.
    pub waited: Arc<OpenTime>,
    /// The recorder of the values that the program reads.
    pub recorder: Arc<ReadRecorder>,
}

/// The requests of one run. By default a program has no tools.
#[derive(Debug, Default)]
pub(super) struct Tools {
    link: Option<ToolLink>,
    calls_left: u32,
    bytes_left: u64,
    calls: u32,
    descriptions_left: u32,
    searches_left: u32,
    next: u32,
    /// Calls whose replies the program has not taken, with the lengths of their arguments.
    open: Vec<(u32, usize)>,
}

/// The members of a frame that asks for something of tools.
#[derive(Debug)]
pub(super) struct ToolFrame<'a> {
    pub(super) id: u64,
    pub(super) tool: Option<Cow<'a, str>>,
    pub(super) args: Option<&'a RawValue>,
    pub(super) identifier: Option<Cow<'a, str>>,
    pub(super) query: Option<Cow<'a, str>>,
    pub(super) limit: Option<u32>,
    pub(super) ids: Option<Vec<u32>>,
    pub(super) timeout_ms: Option<u64>,
}

/// The answer to the program.
#[derive(Debug)]
pub(super) enum Handled {
    /// At once.
    Reply(Vec<u8>),
    /// Once one of these requests has been answered.
    Wait(Wait),
}

/// A program that waits for the reply to one of some requests.
#[derive(Debug)]
pub(super) struct Wait {
    id: u64,
    link: ToolLink,
    numbers: Vec<u32>,
    limit: Option<Duration>,
    /// Whether the frame says which request was answered: the frame of `wait` does.
    is_named: bool,
}

impl Tools {
    pub(super) fn new(link: ToolLink, calls: u32) -> Self {
        Self {
            link: Some(link),
            calls_left: calls,
            bytes_left: MAX_BYTES,
            descriptions_left: MAX_DESCRIPTIONS,
            searches_left: MAX_SEARCHES,
            ..Self::default()
        }
    }

    /// Whether a long frame with a call is parsed.
    pub(super) fn admit(&mut self, bytes: usize) -> bool {
        let Some(left) = self.bytes_left.checked_sub(bytes as u64) else { return false };
        self.bytes_left = left;
        true
    }

    pub(super) fn handle(&mut self, operation: &Operation, frame: ToolFrame<'_>) -> Handled {
        let id = frame.id;
        let handled = match &self.link {
            None => Err(("denied", "this program cannot call tools".into())),
            Some(link) => {
                let link = link.clone();
                self.ask(&link, operation, frame)
            }
        };
        handled.unwrap_or_else(|(kind, message)| Handled::Reply(refusal(id, kind, &message)))
    }

    fn ask(&mut self, link: &ToolLink, operation: &Operation, frame: ToolFrame<'_>) -> Result<Handled, Refusal> {
        let (id, limit) = (frame.id, frame.timeout_ms.map(|ms| Duration::from_millis(ms).min(MAX_WAIT)));
        let wait = |numbers, limit, is_named| Handled::Wait(Wait { id, link: link.clone(), numbers, limit, is_named });
        Ok(match operation {
            Operation::Start => {
                let number = self.start(link, frame)?;
                Handled::Reply(super::answer(id, &number.into()))
            }
            Operation::Wait => wait(self.open_ones(frame.ids)?, limit, true),
            Operation::Call => wait(vec![self.start(link, frame)?], None, false),
            _ => wait(vec![self.inquire(link, frame)?], None, false),
        })
    }

    fn start(&mut self, link: &ToolLink, frame: ToolFrame<'_>) -> Result<u32, Refusal> {
        let Some(tool) = frame.tool else { return Err(("protocol", "the frame has no `tool`".into())) };
        let tool = name(tool)?;
        let arguments = frame.args.map_or("{}", RawValue::get);
        if is_nested_deeper(arguments.as_bytes(), MAX_NESTING) {
            return Err(("invalid_arguments", "the arguments are nested deeper than 64 levels".into()));
        }
        if self.open.len() >= MAX_OPEN_CALLS {
            return Err(("budget_exceeded", "32 calls are under way; wait for one of them".into()));
        }
        let open_bytes = arguments.len() + self.open.iter().map(|(_, bytes)| bytes).sum::<usize>();
        if open_bytes > MAX_OPEN_BYTES {
            return Err((
                "too_large",
                "the calls under way have more than 2 MiB of arguments; wait for one of them".into(),
            ));
        }
        take(&mut self.calls_left, || {
            format!(
                "the run has made {} calls, as many as it may (`sandbox.code_mode.max_calls`); make fewer calls, or several runs",
                self.calls
            )
        })?;
        let ordinal = self.calls;
        self.calls += 1;
        let question = ToolQuestion::Call { ordinal, tool, arguments: arguments.to_owned() };
        let number = self.send(link, question);
        self.open.push((number, arguments.len()));
        Ok(number)
    }

    /// Sends a question that is no call.
    fn inquire(&mut self, link: &ToolLink, frame: ToolFrame<'_>) -> Result<u32, Refusal> {
        let question = question(frame)?;
        match &question {
            ToolQuestion::Search { .. } => {
                take(&mut self.searches_left, || {
                    format!("the run has searched {MAX_SEARCHES} times, as often as it may")
                })?;
            }
            _ => take(&mut self.descriptions_left, || {
                format!("the run has asked for {MAX_DESCRIPTIONS} descriptions, as many as it may")
            })?,
        }
        Ok(self.send(link, question))
    }

    fn send(&mut self, link: &ToolLink, question: ToolQuestion) -> u32 {
        let number = self.next;
        self.next += 1;
        let Sleeper { job, gateway, .. } = &link.sleeper;
        let request = ToolRequest { number, question, read: link.recorder.take() };
        // Without the gateway the worker ends.
        let _ = gateway.send(FromWorker::Ask(*job, Box::new(request)));
        number
    }

    /// The calls that a program may wait for.
    fn open_ones(&self, ids: Option<Vec<u32>>) -> Result<Vec<u32>, Refusal> {
        let ids = ids.filter(|ids| !ids.is_empty() && ids.len() <= MAX_OPEN_CALLS);
        let is_open = |id: &u32| self.open.iter().any(|(number, _)| number == id);
        let ids = ids.filter(|ids| ids.iter().all(is_open));
        ids.ok_or(("invalid_arguments", "`ids` are not those of calls that are under way".into()))
    }

    /// The frame for a program that has waited. `None`: none of its requests was answered in time.
    pub(super) fn end_wait(&mut self, wait: &Wait, reply: Option<ToolReply>) -> Vec<u8> {
        let Some(reply) = reply else { return super::answer(wait.id, &serde_json::Value::Null) };
        self.open.retain(|(number, _)| *number != reply.number);
        let reply = match self.bytes_left.checked_sub(reply.json.len() as u64) {
            _ if reply.json.len() > MAX_VALUE_BYTES => inbox::without_value(&reply, "the result has more than 16 MiB"),
            None => inbox::without_value(&reply, "the calls of this run and their results have more than 256 MiB"),
            Some(left) => {
                self.bytes_left = left;
                reply
            }
        };
        wait.frame(&reply)
    }
}

impl Wait {
    /// Waits for a reply; meanwhile the program uses `memory_bytes` of memory. A wait for several ends as it has ended before.
    pub(super) async fn reply(&self, memory_bytes: u64) -> Option<ToolReply> {
        let recorder = &self.link.recorder;
        if !self.is_named {
            return self.reply_of(&self.numbers, self.limit, memory_bytes).await;
        }
        match recorder.past_wait() {
            Some(None) => return None,
            Some(Some(number)) if self.numbers.contains(&number) => {
                return self.reply_of(&[number], None, memory_bytes).await;
            }
            Some(Some(_)) => recorder.diverge(),
            None => {}
        }
        let reply = self.reply_of(&self.numbers, self.limit, memory_bytes).await;
        recorder.record_wait(reply.as_ref().map(|reply| reply.number));
        reply
    }

    async fn reply_of(&self, numbers: &[u32], limit: Option<Duration>, memory_bytes: u64) -> Option<ToolReply> {
        let ToolLink { sleeper, inbox, waited, .. } = &self.link;
        if let Some(reply) = inbox.take(numbers) {
            return Some(reply);
        }
        let _open = waited.open();
        match limit {
            None => Some(sleeper.wait(inbox.next(numbers), memory_bytes).await),
            Some(limit) => sleeper.wait(timeout(limit, inbox.next(numbers)), memory_bytes).await.ok(),
        }
    }

    fn frame(&self, reply: &ToolReply) -> Vec<u8> {
        let member = if reply.is_ok { "value" } else { "error" };
        let mut frame = format!(r#"{{"v":1,"id":{},"#, self.id).into_bytes();
        if self.is_named {
            frame.extend_from_slice(format!(r#""ok":true,"value":{{"id":{},"#, reply.number).as_bytes());
        }
        frame.extend_from_slice(format!(r#""ok":{},"{member}":"#, reply.is_ok).as_bytes());
        frame.extend_from_slice(&reply.json);
        frame.extend_from_slice(if self.is_named { b"}}" } else { b"}" });
        frame
    }
}

fn take(left: &mut u32, refusal: impl FnOnce() -> String) -> Result<(), Refusal> {
    let Some(fewer) = left.checked_sub(1) else { return Err(("budget_exceeded", refusal().into())) };
    *left = fewer;
    Ok(())
}

/// The question of a frame of `describe` or `search`.
fn question(frame: ToolFrame<'_>) -> Result<ToolQuestion, Refusal> {
    match frame {
        ToolFrame { tool: Some(tool), .. } => name(tool).map(ToolQuestion::Describe),
        ToolFrame { identifier: Some(identifier), .. } => name(identifier).map(ToolQuestion::DescribeIdentifier),
        ToolFrame { query: Some(query), limit, .. } => {
            Ok(ToolQuestion::Search { query: query.into_owned(), limit: limit.unwrap_or(u32::MAX) })
        }
        _ => Err(("protocol", "the frame has no `tool`, `identifier` or `query`".into())),
    }
}

/// The name of a tool, if a tool can have it. The gateway keeps the names of calls, which have no other bound.
fn name(written: Cow<'_, str>) -> Result<String, Refusal> {
    match written.len() > MAX_NAME {
        true => Err(("unknown_tool", "no tool has a name of more than 64 bytes".into())),
        false => Ok(written.into_owned()),
    }
}

/// Whether arrays and objects of a JSON text are nested deeper than `most`.
fn is_nested_deeper(json: &[u8], most: usize) -> bool {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > most {
                    return true;
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
