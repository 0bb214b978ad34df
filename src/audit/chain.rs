//! The hash chain of lines.
//!
//! `hash` is the SHA-256, in hex, over `prev` and then the line as it reads without its hash: `{"seq":1,…,"prev":"…"}`.
//! `prev` is 64 zeros in the first line, and in a line that starts a new chain. `seq` counts the lines of all segments,
//! and of all chains of the trail.

use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::entry::{Item, Line};
use super::error::AuditError;
use super::event::EventLine;
use super::mark::{Mark, MarkLine, NewChain};

/// No line is longer, newline included: a text grows at most sixfold when escaped.
pub(super) const MAX_LINE: usize = 32 << 10;

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
    pub(super) fn append(&mut self, item: &Item, text: &mut Vec<u8>) -> serde_json::Result<()> {
        match item {
            Item::Call(entry) => self.append_line(&Line(*self, entry), text),
            Item::Event(event, _) => self.append_line(&EventLine::after(self, event), text),
        }
    }

    /// Writes a line about the trail itself to `text`.
    pub(super) fn append_mark(&mut self, mark: &Mark, text: &mut Vec<u8>) -> serde_json::Result<()> {
        if let Mark::NewChain(new) = mark {
            *self = Self { lines: new.last_line, bytes: 0, hash: Hash::NONE };
        }
        let line = MarkLine::after(self, mark);
        self.append_line(&line, text)
    }

    /// The line must end with its field `prev`.
    fn append_line(&mut self, line: &impl Serialize, text: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = text.len();
        serde_json::to_writer(&mut *text, line)?;
        let hash = Hash::of(self.hash, &[&text[start..]]);
        text.pop();
        text.extend_from_slice(HASH_FIELD);
        text.extend_from_slice(&hash.0);
        text.extend_from_slice(b"\"}\n");
        *self = Self { lines: self.lines + 1, bytes: self.bytes + (text.len() - start) as u64, hash };
        Ok(())
    }

    /// Advances to `line`, if it is the next one.
    pub(super) fn follow(&mut self, line: &[u8]) -> Result<(), AuditError> {
        let number = self.lines + 1;
        let link = Link::valid(line, number)?;
        if link.seq != number {
            return Err(AuditError::OutOfOrder { line: number, found: link.seq });
        }
        if link.prev != self.hash {
            return Err(AuditError::Replaced { line: number });
        }
        *self = Self { lines: number, bytes: self.bytes + line.len() as u64 + 1, hash: link.stated };
        Ok(())
    }

    /// Advances to the first line of a segment: the next line, or one that starts a new chain, which is returned.
    pub(super) fn follow_first(&mut self, line: &[u8]) -> Result<Option<NewChain>, AuditError> {
        self.bytes = 0;
        let Some(new) = NewChain::read(line) else { return self.follow(line).map(|()| None) };
        let number = self.lines + 1;
        let link = Link::valid(line, number)?;
        if new.last_line < self.lines || link.seq != new.last_line + 1 {
            return Err(AuditError::OutOfOrder { line: number, found: link.seq });
        }
        if link.prev != Hash::NONE {
            return Err(AuditError::Replaced { line: number });
        }
        *self = Self { lines: link.seq, bytes: line.len() as u64 + 1, hash: link.stated };
        Ok(Some(new))
    }

    /// Whether `line` is the last one of this chain.
    pub(super) fn ends_with(&self, line: &[u8]) -> Result<(), AuditError> {
        let number = self.lines;
        let link = Link::valid(line, number)?;
        if self.hash != Hash::NONE && link.stated == self.hash && link.seq == number {
            Ok(())
        } else {
            Err(AuditError::NotTheHead { line: number })
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
    /// Parses the line with this number, and checks its own hash.
    fn valid(line: &[u8], number: u64) -> Result<Self, AuditError> {
        let link = Self::read(line).ok_or(AuditError::Malformed { line: number })?;
        if link.stated != link.actual {
            return Err(AuditError::Changed { line: number });
        }
        Ok(link)
    }

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
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "&str")]
pub(super) struct Hash([u8; 64]);

impl Hash {
    pub(super) const NONE: Self = Self([b'0'; 64]);

    pub(super) fn of(prev: Self, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new_with_prefix(prev.0);
        parts.iter().for_each(|part| hasher.update(part));
        Self::from_digest(hasher.finalize().into())
    }

    pub(super) fn from_digest(digest: [u8; 32]) -> Self {
        let mut digits = [0; 64];
        // Cannot fail: there is room for two digits a byte.
        let _ = hex::encode_to_slice(digest, &mut digits);
        Self(digits)
    }

    pub(super) fn as_str(&self) -> &str {
        // Cannot fail: digits are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
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

/// RFC 3339 in UTC, with microseconds.
pub(super) struct Micros(pub(super) SystemTime);

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let timestamp = Timestamp::try_from(self.0).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{timestamp:.6}"))
    }
}
