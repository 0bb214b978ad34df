//! Finds the id of a message that cannot be parsed: it is too long, not UTF-8, nested too deeply, or an answer without a
//! result. Then its request fails at once, instead of waiting for a timeout.

use rmcp::model::RequestId;

/// Bytes of an outermost key or scalar that matter.
const MAX_TOKEN: usize = 64;

/// Reads the outermost members of a JSON object, from pieces of any size. Uses no memory for the rest.
#[derive(Debug, Default)]
pub(crate) struct MessageIdReader {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The key or scalar that is being read, if it is an outermost one.
    token: Vec<u8>,
    key: Vec<u8>,
    id: Option<RequestId>,
    is_message: bool,
    has_method: bool,
}

impl MessageIdReader {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut reader = Self::default();
        reader.read(text);
        reader
    }

    pub(super) fn read(&mut self, piece: &[u8]) {
        piece.iter().for_each(|byte| self.step(*byte));
    }

    /// The id of the request that the message answers; `None` if it is not an answer. Some servers write numbers as text.
    pub(super) fn answered(&self) -> Option<i64> {
        match self.id.as_ref().filter(|_| self.is_message && !self.has_method)? {
            RequestId::Number(id) => Some(*id),
            RequestId::String(id) => id.parse().ok(),
        }
    }

    /// The id of the message, if it is a request.
    pub(crate) fn requested(&self) -> Option<&RequestId> {
        self.id.as_ref().filter(|_| self.is_message && self.has_method)
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return self.collect(byte);
        }
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_member(),
            b':' if self.depth == 1 => self.key = std::mem::take(&mut self.token),
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                self.in_string = byte == b'"';
                self.collect(byte);
            }
        }
    }

    fn collect(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < MAX_TOKEN {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let value = std::mem::take(&mut self.token);
        match &*std::mem::take(&mut self.key) {
            b"\"id\"" => self.id = serde_json::from_slice(&value).ok(),
            b"\"jsonrpc\"" => self.is_message = true,
            b"\"method\"" => self.has_method = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_an_answer_itself_counts_wherever_it_is() {
        for (text, expected) in [
            (&br#"{"jsonrpc":"2.0","id":7,"result":{}}"#[..], Some(7)),
            (br#"{"result":{"id":1,"n":[{"id":2}]},"jsonrpc":"2.0", "id" : "7" }"#, Some(7)),
            (br#"{"result":"},\"id\":1,\\","jsonrpc":"2.0","id":7}"#, Some(7)),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}", Some(7)),
            (br#"{"jsonrpc":"2.0","id":7}"#, Some(7)),
            (br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, None),
            (br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":7}}"#, None),
            (br#"{"id":7,"level":"info"}"#, None),
            (br#"{"jsonrpc":"2.0","id":{"a":7}}"#, None),
            (br#"[{"jsonrpc":"2.0","id":7}]"#, None),
            (b"hello, id: 7", None),
        ] {
            assert_eq!(MessageIdReader::of(text).answered(), expected, "{}", String::from_utf8_lossy(text));
            let mut in_pieces = MessageIdReader::default();
            text.chunks(3).for_each(|piece| in_pieces.read(piece));
            assert_eq!(in_pieces.answered(), expected);
        }
    }

    #[test]
    fn a_request_has_its_id_as_it_was_sent() {
        let requested = |text: &[u8]| MessageIdReader::of(text).requested().cloned();
        let id = requested(br#"{"params":{"id":1},"method":"ping","id":"a-7","jsonrpc":"2.0"}"#);
        assert_eq!(id, Some(RequestId::String("a-7".into())));
        assert_eq!(requested(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#), Some(RequestId::Number(7)));
        assert_eq!(requested(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#), None);
    }

    #[test]
    fn depth_costs_nothing() {
        let deep = [
            br#"{"jsonrpc":"2.0","result":"#.to_vec(),
            vec![b'['; 100_000],
            vec![b']'; 100_000],
            br#","id":7}"#.to_vec(),
        ];
        assert_eq!(MessageIdReader::of(&deep.concat()).answered(), Some(7));
    }
}
