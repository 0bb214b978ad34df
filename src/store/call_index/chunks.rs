//! Which parts of the index may have a value: calls are in chunks of about four thousand, in the order of time, and each has a Bloom
//! filter of the values of its calls. Trees of values would be written at as many places as a call has values; a chunk is written at
//! one place, and a search for a rare value passes over the chunks that cannot have it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sqlx::AnyConnection;

use super::{CallIndexStore, NewIndexedCall, StoreError, micros_of, server_of, storable};
use sekisho_core::call::Stage;
use sekisho_core::error::ErrorCode;

/// Calls and values of a chunk that is full.
const CALLS: usize = 4_096;
const VALUES: usize = 10_240;

/// Twelve for each value: of three hundred values that a chunk does not have, it seems to have one.
const BITS: usize = 12 * VALUES;

/// Bits that are set for a value.
const BITS_OF_VALUE: u64 = 8;

/// The chunk to which calls are added.
#[derive(Debug)]
pub(super) struct OpenChunk {
    id: i64,
    first_time: i64,
    last_time: i64,
    calls: usize,
    values: usize,
    bits: Vec<u8>,
}

impl Default for OpenChunk {
    fn default() -> Self {
        // Of no other chunk, also not of another process.
        let id = rand::random::<u64>() >> 1;
        let bits = vec![0; BITS / 8];
        Self { id: id.cast_signed(), first_time: i64::MAX, last_time: i64::MIN, calls: 0, values: 0, bits }
    }
}

impl OpenChunk {
    pub(super) fn is_full(&self) -> bool {
        self.calls >= CALLS || self.values >= VALUES
    }

    pub(super) fn add(&mut self, row: &NewIndexedCall) {
        let (call, time) = (&row.call, micros_of(row.call.time));
        (self.first_time, self.last_time) = (self.first_time.min(time), self.last_time.max(time));
        self.calls += 1;
        self.set("call_id", &call.id.to_string());
        for (column, value) in [
            ("tenant", Some(&*call.tenant)),
            ("owner", Some(&*call.owner.caller)),
            ("caller", Some(&*call.caller)),
            ("key_id", call.key.as_deref()),
            ("tool", Some(&*call.tool)),
            ("server", server_of(&call.tool)),
            ("via", Some(call.via.as_str())),
            ("status", Some(call.status.as_str())),
            ("code", call.code.map(ErrorCode::as_str)),
            ("stage", call.stage.map(Stage::as_str)),
            ("upstream", call.breaker.as_ref().map(|(upstream, _)| &**upstream)),
            ("session", call.session.as_deref()),
            ("agent_call", call.agent_call.as_deref()),
            ("run", call.run.as_deref()),
            ("program", call.program.as_deref()),
            ("approval", call.approval.as_deref()),
            ("request_id", Some(&*call.request_id)),
        ] {
            if let Some(value) = value {
                self.set(column, &storable(value));
            }
        }
        if let Some(parent) = call.parent {
            self.set("parent", &parent.to_string());
        }
        if let Some(status) = call.http_status {
            self.set("http_status", &status.to_string());
        }
    }

    fn set(&mut self, column: &str, value: &str) {
        let mut is_new = false;
        for bit in bits_of(column, value) {
            let (byte, mask) = (&mut self.bits[bit / 8], 1_u8 << (bit % 8));
            is_new |= *byte & mask == 0;
            *byte |= mask;
        }
        self.values += usize::from(is_new);
    }

    /// Within the transaction that adds its calls.
    pub(super) async fn write(&self, index: &CallIndexStore, connection: &mut AnyConnection) -> Result<(), StoreError> {
        let written = sqlx::query(
            "INSERT INTO indexed_chunks (chunk, first_time, last_time, value_bits) VALUES ($1, $2, $3, $4)
             ON CONFLICT (chunk) DO UPDATE SET first_time = excluded.first_time, last_time = excluded.last_time,
                 value_bits = excluded.value_bits",
        )
        .bind(self.id)
        .bind(self.first_time)
        .bind(self.last_time)
        .bind(STANDARD_NO_PAD.encode(&self.bits))
        .execute(connection);
        written.await.map(drop).map_err(|error| index.0.failed(error))
    }
}

/// A value that is looked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted(Vec<usize>);

impl Wanted {
    pub(super) fn new(column: &str, value: &str) -> Self {
        Self(bits_of(column, value).collect())
    }

    fn may_be_in(&self, bits: &[u8]) -> bool {
        self.0.iter().all(|bit| bits.get(bit / 8).is_none_or(|byte| *byte & (1_u8 << (bit % 8)) != 0))
    }
}

/// The places of a value, by FNV-1a with the last steps of `SplitMix64`: the same in each version.
fn bits_of(column: &str, value: &str) -> impl Iterator<Item = usize> {
    let bytes = column.bytes().chain([0]).chain(value.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let hash = hash ^ (hash >> 31);
    let (start, step) = (hash & 0xffff_ffff, (hash >> 32) | 1);
    (0..BITS_OF_VALUE).map(move |n| usize::try_from((start + n * step) % BITS as u64).unwrap_or_default())
}

/// Times that may have wanted calls, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: i64,
    pub(super) last: i64,
}

/// A chunk as stored: its id, its first and last time, its bits.
type Row = (i64, i64, i64, String);

/// Chunks that are read at once.
const CHUNKS: i64 = 256;

/// Goes through the chunks of a time, the latest first.
#[derive(Debug)]
pub(super) struct Ranges<'a> {
    index: &'a CallIndexStore,
    /// Of each of these, a call has one.
    wanted: &'a [Vec<Wanted>],
    since: i64,
    /// Calls from here on were looked at.
    looked_at: i64,
    /// The last time and the id of the chunk that was read last.
    after: (i64, i64),
    read: std::vec::IntoIter<Row>,
    is_over: bool,
}

impl<'a> Ranges<'a> {
    /// `since` included, `until` not.
    pub(super) fn new(index: &'a CallIndexStore, wanted: &'a [Vec<Wanted>], since: i64, until: i64) -> Self {
        let read = Vec::new().into_iter();
        Self { index, wanted, since, looked_at: until, after: (i64::MAX, i64::MAX), read, is_over: false }
    }

    /// The next times, before those that were returned.
    pub(super) async fn next(&mut self) -> Result<Option<Range>, StoreError> {
        loop {
            while let Some((id, first, last, bits)) = self.read.next() {
                self.after = (last, id);
                let range = Range { first: first.max(self.since), last: last.min(self.looked_at.saturating_sub(1)) };
                if range.first <= range.last && self.may_be_in(&bits) {
                    self.looked_at = range.first;
                    return Ok(Some(range));
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.read_on().await?;
        }
    }

    fn may_be_in(&self, bits: &str) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        // What cannot be read may have everything.
        let bits = STANDARD_NO_PAD.decode(bits).unwrap_or_default();
        self.wanted.iter().all(|one_of| one_of.iter().any(|wanted| wanted.may_be_in(&bits)))
    }

    async fn read_on(&mut self) -> Result<(), StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT chunk, first_time, last_time, value_bits FROM indexed_chunks
             WHERE last_time >= $1 AND first_time < $2 AND (last_time, chunk) < ($3, $4)
             ORDER BY last_time DESC, chunk DESC LIMIT $5",
        )
        .bind(self.since)
        .bind(self.looked_at)
        .bind(self.after.0)
        .bind(self.after.1)
        .bind(CHUNKS)
        .fetch_all(&self.index.0.pool)
        .await
        .map_err(|error| self.index.0.failed(error))?;
        self.is_over = rows.is_empty();
        self.read = rows.into_iter();
        Ok(())
    }
}
