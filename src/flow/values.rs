//! The values that went into a session, by origin.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::destination::{Destination, DestinationHash, KnownDestinations};
use crate::fields::{Field, Fields, fields};
use crate::judge::Judge;
use crate::judgement::{Judgement, ValueOrigin};
use crate::labels::{ToolLabels, Trust};
use crate::normal;
use crate::rules::personal_words;

/// The memory of one session's values, at most, in bytes.
pub const MAX_SESSION_BYTES: usize = 256 << 10;

/// The part of it for texts of users, which are dropped apart from results.
const MAX_USER_BYTES: usize = 64 << 10;
/// Approvals of a session, at most.
const MAX_APPROVED: usize = 256;
/// The part of it for one result.
const MAX_RESULT_BYTES: usize = 96 << 10;
/// The length of an id, a name or a path, at most.
const MAX_NAME: usize = 256;
/// The memory of an approval, with its place in the set.
const APPROVAL_BYTES: usize = 96;
/// The memory of an allocation beside its content.
const ALLOCATION: usize = 16;
/// The lengths of a field that can be personal. A shorter one stands in any text.
const PERSONAL: std::ops::RangeInclusive<usize> = 4..=200;
/// Decoded texts that are kept of one field.
const MAX_HIDDEN: usize = 32;

/// The call whose result is added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallOrigin {
    pub call: String,
    pub tool: String,
    /// An argument of it came from untrusted text ([`Judgement::is_steered`]): nothing that it returned is asserted.
    pub steered: bool,
}

/// Who wrote a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Writer {
    User,
    /// A server that the operator trusts.
    Trusted,
    /// A server, in a field that others cannot write.
    Asserted,
    Stranger,
}

/// A field of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) writer: Writer,
    pub(crate) path: Box<str>,
    pub(crate) text: Box<str>,
    /// It was decoded from a part of the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_decoded: bool,
    /// It is of a person, or a secret, by the name of the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_personal: bool,
}

/// The values of one result, or of one text of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) origin: ValueOrigin,
    pub(crate) pieces: Vec<Piece>,
}

impl Entry {
    fn size(&self) -> usize {
        let names = self.origin.secrecy.iter().map(|name| name.len() + 64).sum::<usize>();
        let pieces = self.pieces.iter().map(Piece::size).sum::<usize>();
        // The queue may have twice the places that it uses.
        2 * size_of::<Self>() + self.origin.call.len() + self.origin.tool.len() + 3 * ALLOCATION + names + pieces
    }
}

impl Piece {
    fn size(&self) -> usize {
        size_of::<Self>() + self.path.len() + self.text.len() + 2 * ALLOCATION
    }
}

/// The values that went into a session. Stored with a conversation, and copied to its forks, sub-agents and other replicas.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionValues {
    user: VecDeque<Entry>,
    results: VecDeque<Entry>,
    /// Destinations that people approved for the rest of the session.
    approved: BTreeSet<DestinationHash>,
    has_untrusted: bool,
    has_forgotten: bool,
    #[serde(skip)]
    sizes: Sizes,
}

/// The sums of the sizes of entries.
#[derive(Debug, Clone, Default)]
struct Sizes {
    user: Option<usize>,
    results: Option<usize>,
}

impl PartialEq for Sizes {
    /// They follow from the entries.
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl SessionValues {
    /// Adds a text of the user or of the operator.
    pub fn add_user_text(&mut self, text: &str) {
        let text = normal::stored(cut(text, MAX_USER_BYTES / 2));
        let path = Box::default();
        let piece = Piece { writer: Writer::User, path, text: text.into(), is_decoded: false, is_personal: false };
        self.push_user(Entry { origin: ValueOrigin::of_user(), pieces: vec![piece] });
    }

    /// Adds the result of a call. A string is text, in which fields are looked for: lines `key: value`, and JSON.
    pub fn add_result(&mut self, origin: &CallOrigin, labels: &ToolLabels, result: &Value) {
        let trust = if origin.steered { Trust::Untrusted } else { labels.returns.trust };
        let mut entry = Entry {
            origin: ValueOrigin {
                call: cut(&origin.call, MAX_NAME).to_owned(),
                tool: cut(&origin.tool, MAX_NAME).to_owned(),
                path: String::new(),
                trust,
                secrecy: labels.returns.secrecy.clone(),
            },
            pieces: Vec::new(),
        };
        let mut room = MAX_RESULT_BYTES;
        let Fields { list, is_cut } = fields(result, &labels.returns, MAX_RESULT_BYTES);
        self.has_forgotten |= is_cut;
        // Nobody knows the writers of the rest.
        self.has_untrusted |= is_cut;
        for field in list {
            let writer = writer(field.is_authored, origin, labels);
            self.has_untrusted |= writer == Writer::Stranger;
            self.has_forgotten |= !add_pieces(&mut entry.pieces, &field, writer, &mut room);
        }
        entry.pieces.shrink_to_fit();
        if !entry.pieces.is_empty() {
            self.push_result(entry);
        }
    }

    /// Adds destinations that a person approved for the rest of the session: they are not asked about again.
    pub fn add_approved(&mut self, tool: &str, destinations: &[Destination]) {
        let room = MAX_APPROVED.saturating_sub(self.approved.len());
        self.approved.extend(destinations.iter().take(room).map(|destination| destination.hash_of_approval(tool)));
    }

    /// Adds all that another session has: of a sub-agent, or of another replica.
    pub fn merge(&mut self, other: &Self) {
        for entry in other.user.iter().filter(|entry| !self.user.contains(entry)).cloned().collect::<Vec<_>>() {
            self.push_user(entry);
        }
        for entry in other.results.iter().filter(|entry| !self.results.contains(entry)).cloned().collect::<Vec<_>>() {
            self.push_result(entry);
        }
        let room = MAX_APPROVED.saturating_sub(self.approved.len());
        self.approved.extend(other.approved.iter().take(room).cloned());
        self.has_untrusted |= other.has_untrusted;
        self.has_forgotten |= other.has_forgotten;
    }

    /// Where the arguments of a call came from, and the questions about them.
    pub fn judge(
        &self,
        tool: &str,
        labels: &ToolLabels,
        arguments: &Value,
        known: &dyn KnownDestinations,
    ) -> Judgement {
        Judge::new(self, tool, labels, known).judge(arguments)
    }

    /// Whether text of strangers went into the session.
    pub fn has_untrusted(&self) -> bool {
        self.has_untrusted
    }

    /// Whether values were dropped because there was no room: values of unknown origin may then be theirs.
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Its memory in bytes, never above [`MAX_SESSION_BYTES`].
    pub fn size(&self) -> usize {
        let entries = self.user.iter().chain(&self.results).map(Entry::size).sum::<usize>();
        size_of::<Self>() + entries + self.approved.len() * APPROVAL_BYTES
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.user.iter().chain(&self.results)
    }

    pub(crate) fn personal_pieces(&self) -> impl Iterator<Item = (&ValueOrigin, &Piece)> {
        let of = |entry: &'_ Entry| entry.pieces.iter().any(|piece| piece.is_personal);
        let entries = self.results.iter().filter(move |entry| of(entry));
        entries
            .flat_map(|entry| entry.pieces.iter().filter(|piece| piece.is_personal).map(|piece| (&entry.origin, piece)))
    }

    pub(crate) fn user_pieces(&self) -> impl Iterator<Item = &Piece> {
        self.user.iter().flat_map(|entry| &entry.pieces)
    }

    pub(crate) fn is_approved(&self, hash: &DestinationHash) -> bool {
        self.approved.contains(hash)
    }

    fn push_user(&mut self, entry: Entry) {
        let total = self.sizes.user.unwrap_or_else(|| self.user.iter().map(Entry::size).sum()) + entry.size();
        self.user.push_back(entry);
        let (total, _) = drop_oldest(&mut self.user, total, MAX_USER_BYTES);
        self.sizes.user = Some(total);
    }

    fn push_result(&mut self, entry: Entry) {
        let total = self.sizes.results.unwrap_or_else(|| self.results.iter().map(Entry::size).sum()) + entry.size();
        self.results.push_back(entry);
        let max = MAX_SESSION_BYTES - MAX_USER_BYTES - MAX_APPROVED * APPROVAL_BYTES - size_of::<Self>();
        let (total, has_dropped) = drop_oldest(&mut self.results, total, max);
        self.sizes.results = Some(total);
        self.has_forgotten |= has_dropped;
    }
}

/// Drops the oldest entries until the rest takes at most `max` bytes.
fn drop_oldest(entries: &mut VecDeque<Entry>, mut total: usize, max: usize) -> (usize, bool) {
    let mut has_dropped = false;
    while total > max
        && let Some(oldest) = entries.pop_front()
    {
        total = total.saturating_sub(oldest.size());
        has_dropped = true;
    }
    (total, has_dropped)
}

/// Who wrote a field.
fn writer(is_authored: bool, origin: &CallOrigin, labels: &ToolLabels) -> Writer {
    match labels.returns.trust {
        _ if origin.steered || is_authored => Writer::Stranger,
        Trust::Trusted => Writer::Trusted,
        Trust::Untrusted => Writer::Asserted,
    }
}

/// Adds the texts of a field. Answers whether there was room for all of them.
fn add_pieces(pieces: &mut Vec<Piece>, field: &Field, writer: Writer, room: &mut usize) -> bool {
    let path = cut(&field.path, MAX_NAME);
    let own = size_of::<Piece>() + path.len() + 2 * ALLOCATION;
    if *room <= own {
        return false;
    }
    let is_personal =
        writer != Writer::Stranger && PERSONAL.contains(&field.text.len()) && !personal_words(path).is_empty();
    let mut is_whole = true;
    for (at, text) in texts(&field.text, writer, *room).into_iter().enumerate() {
        let kept = cut(&text, room.saturating_sub(own));
        is_whole &= kept.len() == text.len();
        if kept.is_empty() {
            break;
        }
        let piece = Piece { writer, path: path.into(), text: kept.into(), is_decoded: at > 0, is_personal };
        *room -= piece.size();
        pieces.push(piece);
    }
    is_whole
}

/// The texts that are kept of a field: its own, with as much of it as there is room for, and its decodings.
fn texts(text: &str, writer: Writer, room: usize) -> Vec<String> {
    let stored = normal::stored_up_to(text, room);
    if writer != Writer::Stranger {
        return vec![stored];
    }
    let hidden = normal::hidden_in(&stored, MAX_HIDDEN);
    let plain = normal::without_look_alikes(&stored);
    std::iter::once(stored).chain(hidden).chain(plain).collect()
}

/// The first `max` bytes of a text, at the edge of a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests;
