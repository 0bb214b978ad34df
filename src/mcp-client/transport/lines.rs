//! Lines of limited size.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::message_id::MessageIdReader;

/// A line of more than this many times the limit ends the reading: it may have no end.
const MAX_TIMES: usize = 16;

/// Reads lines.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// The line that is being skipped, with its bytes so far.
    skipped: Option<(MessageIdReader, usize)>,
}

/// One line.
#[derive(Debug)]
pub(crate) enum Line {
    /// Without its end.
    Text(Vec<u8>),
    /// It was longer than the limit and was skipped.
    TooLong(MessageIdReader),
}

/// Why there is no further line.
#[derive(Debug)]
pub(crate) enum LineError {
    /// It has more than this many bytes.
    Endless(usize),
    Unreadable(std::io::Error),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// `max`: bytes of one line.
    pub(crate) fn new(reader: R, max: usize) -> Self {
        let reader = BufReader::with_capacity(64 << 10, reader);
        Self { reader, line: Vec::new(), max, skipped: None }
    }

    /// The next line; `None` at the end of the input. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Line>, LineError> {
        loop {
            let piece = self.reader.fill_buf().await.map_err(LineError::Unreadable)?;
            if piece.is_empty() {
                return Ok(None);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let read = end.map_or(piece.len(), |end| end + 1);
            if self.skipped.is_none() && self.line.len() + read > self.max {
                let begun = std::mem::take(&mut self.line);
                self.skipped = Some((MessageIdReader::of(&begun), begun.len()));
            }
            match &mut self.skipped {
                Some((message, bytes)) => {
                    message.read(&piece[..read]);
                    *bytes += read;
                    let max = self.max.saturating_mul(MAX_TIMES);
                    if *bytes > max {
                        return Err(LineError::Endless(max));
                    }
                }
                None => self.line.extend_from_slice(&piece[..read]),
            }
            self.reader.consume(read);
            if end.is_some() {
                return Ok(Some(self.take_line()));
            }
        }
    }

    /// The request that the line answers that is being skipped, if its id has been read.
    pub(super) fn skipped_answer(&self) -> Option<i64> {
        self.skipped.as_ref().and_then(|(message, _)| message.answered())
    }

    fn take_line(&mut self) -> Line {
        if let Some((message, _)) = self.skipped.take() {
            return Line::TooLong(message);
        }
        let mut line = std::mem::take(&mut self.line);
        line.truncate(line.trim_ascii_end().len());
        Line::Text(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(lines: &mut Lines<&[u8]>) -> Vec<u8> {
        let Ok(Some(Line::Text(line))) = lines.next().await else { panic!("a line") };
        line
    }

    #[tokio::test]
    async fn lines_end_where_they_end_and_a_long_one_is_skipped() {
        let mut lines = Lines::new(&b"one\r\n\n two\nand too long\nlast\n"[..], 8);
        for expected in [&b"one"[..], b"", b" two"] {
            assert_eq!(text(&mut lines).await, expected);
        }
        assert!(matches!(lines.next().await, Ok(Some(Line::TooLong(message))) if message.answered().is_none()));
        assert_eq!(text(&mut lines).await, b"last");
        let mut lines = Lines::new(&b"one\nrest"[..], 8);
        assert_eq!(text(&mut lines).await, b"one");
        assert!(lines.next().await.unwrap().is_none(), "a line that does not end is not one");
    }

    #[tokio::test]
    async fn a_long_answer_names_its_request_and_a_line_without_end_ends_the_reading() {
        let answer = format!(r#"{{"result":{{"text":"{}"}},"jsonrpc":"2.0","id":5}}"#, "x".repeat(200));
        let input = format!("{answer}\n{answer}\nnext\n{}", "x".repeat(1_700));
        let mut lines = Lines::new(input.as_bytes(), 100);
        for _ in 0..2 {
            assert!(matches!(lines.next().await, Ok(Some(Line::TooLong(message))) if message.answered() == Some(5)));
        }
        assert_eq!(text(&mut lines).await, b"next");
        assert!(matches!(lines.next().await, Err(LineError::Endless(1_600))));
    }
}
