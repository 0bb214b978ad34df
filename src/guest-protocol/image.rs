//! Images of sessions: the requests to a worker between the calls of a session, and its answers.
//!
//! An image has parts, each of which takes about a millisecond to read, so that programs of others run in between. Only
//! workers know the contents of a part; the gateway keeps the parts in their order.

use serde::{Deserialize, Serialize};

use super::{SessionId, whole_bytes};

/// Identifies a request of the gateway about a session.
pub type RequestId = u64;

/// Bytes of contents in one part, at least where there are so many.
pub const PART_BYTES: usize = 1 << 20;

/// Longest part: its contents are bounded, and it names a session's files.
pub const MAX_PART_BYTES: usize = 128 << 20;

/// About a session that rests, or that is to be restored. Each is answered by one [`SessionReply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionRequest {
    /// The part of its image that begins there.
    Read { session: SessionId, profile: String, from: ImageCursor },
    /// The next part of an image, of which the session is made. `EndSession` gives it up.
    Restore {
        session: SessionId,
        profile: String,
        #[serde(with = "whole_bytes")]
        part: Vec<u8>,
    },
    /// All parts are there: from now on the session rests. For a copy, the random numbers are seeded anew.
    Restored { session: SessionId, profile: String, is_copy: bool },
}

/// Where a part of an image begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageCursor {
    /// The first part: globals, descriptors, clocks, and the tree of files.
    State,
    /// Contents of files.
    Files { node: u64, offset: u64 },
    /// Pages that differ from the profile's.
    Memory { offset: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionReply {
    Part {
        #[serde(with = "whole_bytes")]
        part: Vec<u8>,
        /// `None` after the last part.
        next: Option<ImageCursor>,
    },
    Added,
    /// The bytes that the session holds until its next call.
    Rests(u64),
    /// It cannot be answered, now or later.
    Failed(String),
    /// There is no space for the instance now.
    NoSpace(String),
}

/// Pieces of files, or of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// Node, offset in it, and length of each. Memory has no nodes.
    places: Vec<(u64, u64, u32)>,
    #[serde(with = "whole_bytes")]
    bytes: Vec<u8>,
}

/// Why an image cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the image is damaged: {0}")]
pub struct DamagedImageError(pub &'static str);

impl Pieces {
    pub fn push(&mut self, node: u64, offset: u64, bytes: &[u8]) {
        // A piece is a page of memory or of a file.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.places.push((node, offset, length));
        self.bytes.extend_from_slice(bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// No pieces, with the memory of these for further ones.
    pub fn emptied(mut self) -> Self {
        self.places.clear();
        self.bytes.clear();
        self
    }

    /// Node, offset and bytes of each.
    pub fn iter(&self) -> impl Iterator<Item = Result<(u64, u64, &[u8]), DamagedImageError>> {
        let mut rest = self.bytes.as_slice();
        self.places.iter().map(move |(node, offset, length)| {
            let split = rest.split_at_checked(*length as usize);
            let (piece, others) = split.ok_or(DamagedImageError("a piece is incomplete"))?;
            rest = others;
            Ok((*node, *offset, piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_those_that_were_added() {
        let mut pieces = Pieces::default();
        for (node, offset, bytes) in [(0, 4096, &b"one"[..]), (7, 0, b""), (7, 9, b"two")] {
            pieces.push(node, offset, bytes);
        }
        let read: Vec<_> = pieces.iter().map(Result::unwrap).collect();
        assert_eq!(read, [(0, 4096, &b"one"[..]), (7, 0, b""), (7, 9, b"two")]);
        assert_eq!(pieces.len(), 6);
        assert_eq!(pieces.emptied(), Pieces::default());
    }

    #[test]
    fn a_piece_longer_than_what_is_there_is_damage() {
        let pieces = Pieces { places: vec![(0, 0, 2), (0, 2, 2)], bytes: b"abc".to_vec() };
        let read: Vec<_> = pieces.iter().collect();
        assert_eq!(read, [Ok((0, 0, &b"ab"[..])), Err(DamagedImageError("a piece is incomplete"))]);
    }
}
