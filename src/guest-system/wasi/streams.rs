use std::collections::VecDeque;
use std::mem;

use bytes::{Buf, Bytes};

use crate::files::copy;
use sekisho_guest_protocol::Captured;

/// Standard input: bytes given at the start.
#[derive(Debug, Default)]
pub(super) struct Input(pub(super) Bytes);

impl Input {
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = copy(buffer, &self.0);
        self.0.advance(count);
        count
    }
}

/// Standard output or error: stores the start and the end, and accepts the middle as written, so that a program that prints too much
/// continues.
#[derive(Debug)]
pub(super) struct Output {
    start: Vec<u8>,
    end: VecDeque<u8>,
    total: u64,
    max_start: usize,
    max_end: usize,
}

/// The share of a stream that is its end, unless that is too short to say where it begins.
const END_SHARE: usize = 4;
const MIN_END: usize = 256;

impl Output {
    pub(super) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let max_end = Some(most / END_SHARE).filter(|end| *end >= MIN_END).unwrap_or(0);
        Self { start: Vec::new(), end: VecDeque::new(), total: 0, max_start: most - max_end, max_end }
    }

    pub(super) fn write(&mut self, data: &[u8]) -> usize {
        let (start, rest) = data.split_at(data.len().min(self.max_start - self.start.len()));
        self.start.extend_from_slice(start);
        // No more of it than is kept.
        self.end.extend(&rest[rest.len().saturating_sub(self.max_end)..]);
        self.end.drain(..self.end.len().saturating_sub(self.max_end));
        self.total = self.total.saturating_add(data.len() as u64);
        data.len()
    }

    /// The stream so far, as long as it may be. Without its middle it says how much is missing.
    pub(super) fn take(&mut self) -> Captured {
        let (mut bytes, mut end, total) =
            (mem::take(&mut self.start), mem::take(&mut self.end), mem::take(&mut self.total));
        let left_out = total.saturating_sub((bytes.len() + end.len()) as u64);
        if left_out > 0 && !end.is_empty() {
            let note = |left_out: u64| format!("\n[… {left_out} bytes left out …]\n");
            // The note is in place of the beginning of the end.
            let length = note(total).len();
            end.drain(..length);
            bytes.extend_from_slice(note(left_out + length as u64).as_bytes());
        }
        bytes.extend(end);
        Captured { bytes, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_stream_the_start_and_the_end_are_kept() {
        let printed = |most: u64, count: usize| {
            let mut output = Output::new(most);
            (0..count).for_each(|number| _ = output.write(format!("line {number}\n").as_bytes()));
            let captured = output.take();
            assert_eq!(output.take(), Captured::default(), "it begins anew");
            (String::from_utf8(captured.bytes).unwrap(), captured.total)
        };
        let (whole, total) = printed(2_000, 100);
        assert_eq!((whole.len() as u64, whole.lines().count()), (total, 100));
        let (cut, total) = printed(2_000, 10_000);
        assert!(cut.len() <= 2_000 && cut.starts_with("line 0\n") && cut.ends_with("line 9999\n"), "{cut}");
        let (start, rest) = cut.split_once("\n[… ").unwrap();
        let (left_out, end) = rest.split_once(" bytes left out …]\n").unwrap();
        let kept = (start.len() + end.len()) as u64;
        assert_eq!(kept + left_out.parse::<u64>().unwrap(), total);
        assert_eq!(printed(10, 3), ("line 0\nlin".to_owned(), 21), "too short for an end");
    }

    #[test]
    fn one_write_may_be_longer_than_all_that_is_kept() {
        for length in [0, 1_500, 1_999, 2_000, 2_001, 9_000] {
            let mut output = Output::new(2_000);
            assert_eq!(output.write(&vec![b'x'; length]), length);
            let Captured { bytes, total } = output.take();
            assert_eq!(total, length as u64);
            assert!(
                if length <= 2_000 { bytes.len() == length } else { (1_990..=2_000).contains(&bytes.len()) },
                "{length}"
            );
        }
    }
}
