//! Reads a file line after line, in bounded memory.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::chain::MAX_LINE;

pub(super) struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

pub(super) enum Next<'a> {
    /// Without its newline.
    Line(&'a [u8]),
    End {
        /// The bytes after the last newline.
        unfinished_bytes: u64,
    },
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Vec::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        self.line.clear();
        let read = self.from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut self.line)?;
        Ok(match self.line.split_last() {
            Some((b'\n', line)) => Next::Line(line),
            // Too long for a line of ours: reported as invalid.
            _ if read == MAX_LINE => Next::Line(&self.line),
            _ => Next::End { unfinished_bytes: read as u64 },
        })
    }
}

/// The line that ends at byte `end`, without its newline.
pub(super) fn line_before(mut file: &File, end: u64) -> io::Result<Vec<u8>> {
    let start = end.saturating_sub(MAX_LINE as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    file.take(end - start).read_to_end(&mut text)?;
    text.pop();
    let begin = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    Ok(text.split_off(begin))
}
