//! The format of a line, and the hash chain of lines.
//!
//! `hash` is the SHA-256, in hex, over `prev` and then the line as it reads without its hash:
//! `{"seq":1,…,"prev":"…"}`. The first line's `prev` is 64 zeros.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::core::call::{CallId, Caller, Stage, Via};
use crate::core::error::{CallError, ErrorCode};
use crate::core::record::{CallRecord, Status};

/// Maximum length of a text from a caller, in bytes: a line stays bounded.
pub(super) const MAX_TEXT: usize = 256;

/// No line is longer, newline included: a text grows at most sixfold when escaped.
pub(super) const MAX_LINE: usize = 32 << 10;

/// One call as it is sent to the writer: owned, and cheap to create.
#[derive(Debug)]
pub(super) struct Entry {
    time: SystemTime,
    pub(super) call_id: CallId,
    pub(super) caller: Arc<Caller>,
    claimed_user: Option<Box<str>>,
    via: Via,
    depth: u32,
    dry_run: bool,
    session: Option<Arc<str>>,
    pub(super) tool: Box<str>,
    pub(super) status: Status,
    pub(super) code: Option<ErrorCode>,
    stage: Option<Stage>,
    arguments_digest: [u8; 32],
    policy_version: Option<Box<str>>,
    cost_usd: Decimal,
    tokens: u64,
    attempts: u32,
    duration: Duration,
    trace_id: Option<[u8; 16]>,
    pub(super) repeated: Option<Repeated>,
    /// Notified once the line is on the disk; dropped when the disk fails.
    pub(super) acknowledge: Option<oneshot::Sender<()>>,
}

/// Further calls that were refused alike, in the same line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repeated {
    /// All calls of the line.
    pub(super) calls: u64,
    pub(super) last_call_id: CallId,
}

impl Entry {
    pub(super) fn new(record: &CallRecord<'_>, acknowledge: Option<oneshot::Sender<()>>) -> Self {
        let call = record.call;
        Self {
            time: SystemTime::now(),
            call_id: call.id,
            caller: Arc::clone(&call.caller),
            claimed_user: call.claimed_user.as_deref().map(|user| shortened(user).into()),
            via: call.via,
            depth: call.depth,
            dry_run: call.dry_run,
            session: call.session.as_ref().map(|session| Arc::clone(&session.id)),
            tool: shortened(record.tool.unwrap_or(&call.tool)).into(),
            status: record.status,
            code: record.error.map(CallError::code),
            stage: record.error.and_then(CallError::stage),
            arguments_digest: record.arguments_digest,
            policy_version: record.policy_version.map(Into::into),
            cost_usd: record.cost_usd,
            tokens: record.tokens,
            attempts: record.attempts,
            duration: record.duration,
            trace_id: call.trace.as_ref().map(|trace| trace.trace_id),
            repeated: None,
            acknowledge,
        }
    }
}

/// A line's fields, in their order.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    /// RFC 3339, UTC.
    #[serde(serialize_with = "micros")]
    time: SystemTime,
    call_id: CallId,
    tenant: &'a str,
    caller: &'a str,
    anonymous: bool,
    claimed_user: Option<&'a str>,
    via: Via,
    depth: u32,
    dry_run: bool,
    session: Option<&'a str>,
    tool: &'a str,
    status: Status,
    code: Option<ErrorCode>,
    stage: Option<Stage>,
    arguments_sha256: Hash,
    policy_version: Option<&'a str>,
    cost_usd: Decimal,
    tokens: u64,
    attempts: u32,
    duration_us: u128,
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_call_id: Option<CallId>,
    prev: Hash,
}

/// The end of a trail: position and previous hash of the next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chain {
    pub(super) lines: u64,
    /// Length of the file up to the end of the last line.
    pub(super) bytes: u64,
    /// Hash of the last line.
    pub(super) hash: Hash,
}

impl Chain {
    pub(super) const EMPTY: Self = Self { lines: 0, bytes: 0, hash: Hash::NONE };

    /// Writes the next line, newline included, to `text`.
    pub(super) fn append(&mut self, entry: &Entry, text: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = text.len();
        serde_json::to_writer(&mut *text, &self.next_line(entry))?;
        let hash = Hash::of(self.hash, &[&text[start..]]);
        text.pop();
        text.extend_from_slice(HASH_FIELD);
        text.extend_from_slice(&hash.0);
        text.extend_from_slice(b"\"}\n");
        *self = Self { lines: self.lines + 1, bytes: self.bytes + (text.len() - start) as u64, hash };
        Ok(())
    }

    fn next_line<'a>(&self, entry: &'a Entry) -> Line<'a> {
        Line {
            seq: self.lines + 1,
            time: entry.time,
            call_id: entry.call_id,
            tenant: shortened(&entry.caller.tenant),
            caller: shortened(&entry.caller.id),
            anonymous: entry.caller.anonymous,
            claimed_user: entry.claimed_user.as_deref(),
            via: entry.via,
            depth: entry.depth,
            dry_run: entry.dry_run,
            session: entry.session.as_deref().map(shortened),
            tool: &entry.tool,
            status: entry.status,
            code: entry.code,
            stage: entry.stage,
            arguments_sha256: Hash::from_digest(entry.arguments_digest),
            policy_version: entry.policy_version.as_deref(),
            cost_usd: entry.cost_usd,
            tokens: entry.tokens,
            attempts: entry.attempts,
            duration_us: entry.duration.as_micros(),
            trace_id: entry.trace_id.map(hex::encode),
            calls: entry.repeated.map(|repeated| repeated.calls),
            last_call_id: entry.repeated.map(|repeated| repeated.last_call_id),
            prev: self.hash,
        }
    }
}

const HASH_FIELD: &[u8] = b",\"hash\":\"";
/// `,"hash":"` and 64 digits and `"}`.
const HASH_TAIL: usize = HASH_FIELD.len() + 64 + 2;

/// A written line's place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) prev: Hash,
    /// The hash in the line.
    pub(super) stated: Hash,
    /// The hash the line should have.
    pub(super) actual: Hash,
}

impl Link {
    /// Parses a line without its newline; `None` when it is not a line of a trail.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Fields {
            seq: u64,
            prev: Hash,
            hash: Hash,
        }
        let fields: Fields = serde_json::from_slice(line).ok()?;
        let (body, tail) = line.split_at(line.len().checked_sub(HASH_TAIL)?);
        tail.starts_with(HASH_FIELD).then(|| Self {
            seq: fields.seq,
            prev: fields.prev,
            stated: fields.hash,
            actual: Hash::of(fields.prev, &[body, b"}"]),
        })
    }
}

/// SHA-256 as 64 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "&str")]
pub(super) struct Hash([u8; 64]);

impl Hash {
    pub(super) const NONE: Self = Self([b'0'; 64]);

    pub(super) fn of(prev: Self, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new_with_prefix(prev.0);
        parts.iter().for_each(|part| hasher.update(part));
        Self::from_digest(hasher.finalize().into())
    }

    fn from_digest(digest: [u8; 32]) -> Self {
        let mut digits = [0; 64];
        // Cannot fail: there is room for two digits a byte.
        let _ = hex::encode_to_slice(digest, &mut digits);
        Self(digits)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from(*self))
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        Self::from_utf8_lossy(&hash.0).into_owned()
    }
}

impl TryFrom<&str> for Hash {
    type Error = &'static str;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let digits = <[u8; 64]>::try_from(text.as_bytes()).ok().filter(|digits| digits.iter().all(is_hex));
        digits.map(Self).ok_or("not 64 lowercase hex digits")
    }
}

fn micros<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let timestamp = Timestamp::try_from(*time).map_err(serde::ser::Error::custom)?;
    serializer.collect_str(&format_args!("{timestamp:.6}"))
}

/// `text`, truncated to the maximum for texts of callers.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}
