//! Lines of limited size.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max: usize,
}

/// Why there is no further line.
#[derive(Debug)]
pub(crate) enum LineError {
    TooLong,
    Unreadable(std::io::Error),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// `max`: bytes of one line.
    pub(crate) fn new(reader: R, max: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new(), max }
    }

    /// The next line without its end; `None` at the end of the input. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`LineError`].
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            let piece = self.reader.fill_buf().await.map_err(LineError::Unreadable)?;
            if piece.is_empty() {
                return Ok(None);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let read = end.map_or(piece.len(), |end| end + 1);
            if self.line.len() + read > self.max {
                return Err(LineError::TooLong);
            }
            self.line.extend_from_slice(&piece[..read]);
            self.reader.consume(read);
            if end.is_some() {
                let mut line = std::mem::take(&mut self.line);
                line.truncate(line.trim_ascii_end().len());
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_where_they_end_and_a_long_one_is_refused() {
        let mut lines = Lines::new(&b"one\r\n\n two\nand too long\n"[..], 8);
        for expected in [&b"one"[..], b"", b" two"] {
            assert_eq!(lines.next().await.unwrap().as_deref(), Some(expected));
        }
        assert!(matches!(lines.next().await, Err(LineError::TooLong)));
        let mut lines = Lines::new(&b"one\nrest"[..], 8);
        assert!(lines.next().await.unwrap().is_some());
        assert!(lines.next().await.unwrap().is_none(), "a line that does not end is not one");
    }
}
