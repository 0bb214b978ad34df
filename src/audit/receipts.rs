//! Receipts: a line of the trail with the proof that a signed checkpoint includes it. Who has the public key verifies it offline,
//! without the trail.
//!
//! The forms come from transparency logs (c2sp.org: `tlog-proof`, `tlog-checkpoint`, `signed-note`). Each segment is a log of its own,
//! whose entries are its lines: a proof never needs more than one file, retention removes whole logs, and a segment after a
//! damage needs nothing of those before. The segments are joined by `prev` of their first lines.

mod checkpoint;
mod key_file;
mod note;
mod proof;
mod signer;
mod tree;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use self::checkpoint::Checkpoint;
use self::tree::{Node, leaf, root_by};
use super::chain::Link;

pub use self::key_file::{public_keys, rotate_key};
pub use self::note::VerifierKey;
pub use self::proof::{NoReceipt, receipt_of_call, receipt_of_line};
pub(super) use self::signer::Signer;

/// The first line of a receipt.
const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// Why a receipt proves nothing.
#[derive(Debug, Error)]
pub enum InvalidReceipt {
    #[error("it is no receipt of a call: {0}; get it again, as `sekisho receipt get` writes it")]
    Form(&'static str),
    #[error(
        "it is signed by {0}, and no key of that name and id was given; ask who runs the gateway for its public keys"
    )]
    Signer(String),
    #[error("the signature does not fit: the checkpoint was changed, or signed by another key of the same id")]
    Signature,
    #[error("the checkpoint does not include the line: the line, its place or its proof was changed")]
    NotIncluded,
    #[error("the line has another place than the receipt says, or is not of the signer's trail")]
    OtherPlace,
}

/// A receipt that is in the form, and not verified.
#[derive(Debug)]
struct Receipt<'a> {
    line: Vec<u8>,
    index: u64,
    path: Vec<Node>,
    note: &'a str,
}

/// The content of a receipt that is valid.
#[derive(Debug)]
pub struct VerifiedReceipt {
    /// The line, as it is in the trail.
    pub line: String,
    /// The name of who signed it.
    pub signer: String,
}

/// Verifies receipts with public keys.
#[derive(Debug)]
pub struct ReceiptVerifier {
    keys: Vec<VerifierKey>,
    /// The note that was verified last: receipts of one segment often have the same.
    last: Option<(String, Checkpoint)>,
}

impl ReceiptVerifier {
    pub fn new(keys: Vec<VerifierKey>) -> Self {
        Self { keys, last: None }
    }

    /// Errors: [`InvalidReceipt`]: something was changed, or another key has signed it.
    pub fn verify(&mut self, receipt: &str) -> Result<VerifiedReceipt, InvalidReceipt> {
        let Receipt { line, index, path, note } = Receipt::read(receipt)?;
        let checkpoint = self.checkpoint(note)?;
        let root = root_by(&path, leaf(&line), index, checkpoint.lines);
        if root != Some(checkpoint.root) {
            return Err(InvalidReceipt::NotIncluded);
        }
        let link = Link::read(&line).filter(|link| link.stated == link.actual);
        let origin = &checkpoint.origin;
        let is_there = |link: &Link| origin.first_line.checked_add(index) == Some(link.seq);
        let is_first = |link: &Link| index > 0 || origin.begins_with(&link.stated);
        if !link.is_some_and(|link| is_there(&link) && is_first(&link)) {
            return Err(InvalidReceipt::OtherPlace);
        }
        let line = String::from_utf8(line).map_err(|_| InvalidReceipt::Form("the line is no text"))?;
        Ok(VerifiedReceipt { line, signer: origin.signer.clone() })
    }

    /// The checkpoint of a note, once its signature was verified.
    fn checkpoint(&mut self, note: &str) -> Result<&Checkpoint, InvalidReceipt> {
        if self.last.as_ref().is_none_or(|(last, _)| last != note) {
            let (text, key) = note::open(note, &self.keys)?;
            let checkpoint =
                Checkpoint::read(text).ok_or(InvalidReceipt::Form("its checkpoint is none of a segment"))?;
            if checkpoint.origin.signer != key.name() {
                return Err(InvalidReceipt::OtherPlace);
            }
            self.last = Some((note.to_owned(), checkpoint));
        }
        match &self.last {
            Some((_, checkpoint)) => Ok(checkpoint),
            None => Err(InvalidReceipt::Signature),
        }
    }
}

impl<'a> Receipt<'a> {
    fn read(text: &'a str) -> Result<Self, InvalidReceipt> {
        let form = InvalidReceipt::Form;
        let (head, note) = text.split_once("\n\n").ok_or(form("it has no empty line before its checkpoint"))?;
        let mut lines = head.split('\n');
        if lines.next() != Some(HEADER) {
            return Err(form("its first line is not `c2sp.org/tlog-proof@v1`"));
        }
        let line = lines.next().and_then(|line| STANDARD.decode(line.strip_prefix("extra ")?).ok());
        let line = line.ok_or(form("its second line is not `extra` with a line of a trail"))?;
        let index = lines.next().and_then(|line| {
            let text = line.strip_prefix("index ")?;
            text.parse::<u64>().ok().filter(|index| index.to_string() == text)
        });
        let index = index.ok_or(form("its third line is not `index` with a number"))?;
        let node = |line: &str| -> Option<Node> { STANDARD.decode(line).ok()?.try_into().ok() };
        let path = lines.map(node).collect::<Option<Vec<_>>>();
        let path = path.ok_or(form("a line of its proof is no hash"))?;
        Ok(Self { line, index, path, note })
    }

    fn text(&self) -> String {
        let Self { line, index, path, note } = self;
        let mut text = format!("{HEADER}\nextra {}\nindex {index}\n", STANDARD.encode(line));
        for node in path {
            let _ = writeln!(text, "{}", STANDARD.encode(node));
        }
        text.push('\n');
        text.push_str(note);
        text
    }
}

/// The receipts of a text that has one after the other.
pub fn receipts_in(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let next = rest.get(1..).and_then(|after| after.find(&format!("\n{HEADER}\n")));
        let (receipt, others) = rest.split_at(next.map_or(rest.len(), |end| end + 2));
        rest = others;
        (!receipt.is_empty()).then_some(receipt)
    })
}
