//! Checkpoints (c2sp.org/tlog-checkpoint) of segments: number of lines and root of the tree over them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::tree::Node;
use crate::chain::Hash;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) origin: Origin,
    /// Lines from the beginning of the segment.
    pub(super) lines: u64,
    pub(super) root: Node,
}

/// The name of a segment among all segments that one gateway signs: `SIGNER/FIRST-HASH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) signer: String,
    /// The number of its first line.
    pub(super) first_line: u64,
    /// The beginning of the hash of its first line: a trail that begins again has other segments.
    hash: String,
}

impl Origin {
    pub(super) fn new(signer: &str, first_line: u64, hash: Hash) -> Self {
        Self { signer: signer.to_owned(), first_line, hash: beginning(&hash).to_owned() }
    }

    /// Whether the segment's first line can have this hash.
    pub(super) fn begins_with(&self, hash: &Hash) -> bool {
        self.hash == beginning(hash)
    }
}

fn beginning(hash: &Hash) -> &str {
    &hash.as_str()[..16]
}

impl Checkpoint {
    /// The text that is signed.
    pub(super) fn text(&self) -> String {
        let Self { origin: Origin { signer, first_line, hash }, lines, root } = self;
        format!("{signer}/{first_line}-{hash}\n{lines}\n{}\n", STANDARD.encode(root))
    }

    /// Reads exactly what [`text`](Self::text) writes.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let (signer, segment) = lines.next()?.rsplit_once('/')?;
        let (first_line, hash) = segment.split_once('-')?;
        let origin = Origin { signer: signer.to_owned(), first_line: first_line.parse().ok()?, hash: hash.to_owned() };
        let read = Self {
            origin,
            lines: lines.next()?.parse().ok()?,
            root: STANDARD.decode(lines.next()?).ok()?.try_into().ok()?,
        };
        (read.text() == text).then_some(read)
    }
}
