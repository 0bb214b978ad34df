//! Makes the receipt of a line, from its segment and the checkpoint of that.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::Path;

use thiserror::Error;

use super::Receipt;
use super::checkpoint::Checkpoint;
use super::note::text_in;
use super::tree::{leaf, path_to};
use crate::chain::Link;
use crate::error::AuditError;
use crate::lines::{Lines, Next};
use crate::search::{LineFilter, search};
use crate::segments::{checkpoint_path, first_line_of};
use crate::verify::files;

/// Why a line has no receipt.
#[derive(Debug, Error)]
pub enum NoReceipt {
    #[error(
        "the trail has no such line: one is written within a second of its call, and `sekisho audit search` lists all"
    )]
    NoLine,
    #[error(
        "the line is not signed yet; a running gateway signs its trail each second, and another one at its next start"
    )]
    NotSigned,
    #[error("line {line} or a line near it is not as it was signed: the trail was changed")]
    Changed { line: u64 },
    #[error(transparent)]
    Trail(#[from] AuditError),
}

/// The receipt of the line about a call; of calls that were refused alike, the line that they have together.
pub fn receipt_of_call(file: &Path, call_id: &str) -> Result<String, NoReceipt> {
    let filter = LineFilter { call_id: Some(call_id.to_owned()), ..LineFilter::default() };
    let mut line = None;
    search(&[file.to_owned()], &filter, |text| {
        line = Link::read(text.as_bytes());
        false
    })?;
    receipt_of_line(file, line.ok_or(NoReceipt::NoLine)?.seq)
}

/// The receipt of the line with this number. Reads one segment, of 64 MiB at most.
pub fn receipt_of_line(file: &Path, line: u64) -> Result<String, NoReceipt> {
    for (path, segment) in files(file)?.into_iter().rev() {
        let unusable = AuditError::unusable(&path);
        let Some(first) = first_line_of(&segment).map_err(&unusable)? else { continue };
        if first.number() <= line {
            let note = match fs::read_to_string(checkpoint_path(file, first.number())) {
                Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Err(NoReceipt::NotSigned),
                note => note.map_err(&unusable)?,
            };
            return receipt_in(&segment, line, &note).map_err(&unusable)?;
        }
    }
    Err(NoReceipt::NoLine)
}

fn receipt_in(mut segment: &File, number: u64, note: &str) -> io::Result<Result<String, NoReceipt>> {
    let checkpoint = text_in(note).ok().and_then(Checkpoint::read);
    // A crash can leave one that is not whole: it is written anew.
    let Some(Checkpoint { origin, lines: signed, root }) = checkpoint else { return Ok(Err(NoReceipt::NotSigned)) };
    let index = number.saturating_sub(origin.first_line);
    if index >= signed {
        return Ok(Err(NoReceipt::NotSigned));
    }
    segment.seek(SeekFrom::Start(0))?;
    let (mut leaves, mut found) = (Vec::new(), None);
    let mut lines = Lines::new(BufReader::new(segment));
    while (leaves.len() as u64) < signed
        && let Next::Line(line) = lines.next()?
    {
        if leaves.len() as u64 == index {
            found = Some(line.to_vec());
        }
        leaves.push(leaf(line));
    }
    let has_all = leaves.len() as u64 == signed;
    let made = usize::try_from(index).ok().and_then(|index| path_to(leaves, index));
    Ok(match (found, made) {
        (Some(line), Some((path, made))) if has_all && made == root => Ok(Receipt { line, index, path, note }.text()),
        _ => Err(NoReceipt::Changed { line: number }),
    })
}
