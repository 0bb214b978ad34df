//! Messages of the domain name system (RFC 1035), as far as a program's resolver and its answers need them.

use std::net::IpAddr;

/// Addresses of IPv4 (A).
const V4: u16 = 1;
/// Addresses of IPv6 (AAAA).
const V6: u16 = 28;
const INTERNET: u16 = 1;

const HEADER: usize = 12;
const MAX_NAME: usize = 255;
/// Of an answer by UDP that every resolver takes.
const MAX_ANSWER: usize = 512;

/// Seconds for which a program may keep an address.
const KEPT: u32 = 30;

/// A question for the addresses of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    id: [u8; 2],
    recursion: u8,
    /// As it was sent: an answer repeats it.
    section: Vec<u8>,
    /// Without the last dot. None when no host has such a name.
    pub(super) host: Option<String>,
    kind: u16,
}

/// How a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Success = 0,
    Failure = 2,
    NoSuchName = 3,
}

impl Question {
    /// Reads a message with one question; others get no answer.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut rest) = message.split_first_chunk::<HEADER>()?;
        let [id_high, id_low, flags, _, 0, 1, ..] = *header else { return None };
        // An answer, or another operation than a query.
        if flags & 0b1111_1000 != 0 {
            return None;
        }
        let host = take_name(&mut rest)?;
        let (&[kind_high, kind_low, class_high, class_low], after) = rest.split_first_chunk::<4>()?;
        if u16::from_be_bytes([class_high, class_low]) != INTERNET {
            return None;
        }
        let section = message.get(HEADER..message.len() - after.len())?.to_vec();
        let kind = u16::from_be_bytes([kind_high, kind_low]);
        Some(Self { id: [id_high, id_low], recursion: flags & 1, section, host, kind })
    }

    /// Whether it asks for addresses. Every name has nothing else.
    pub(super) fn is_for_addresses(&self) -> bool {
        matches!(self.kind, V4 | V6)
    }

    /// The answer, with the addresses of the type that was asked for, as many as fit.
    pub(super) fn answer(&self, code: Code, addresses: &[IpAddr]) -> Vec<u8> {
        let mut records = Vec::new();
        let mut count = 0_u16;
        for record in addresses.iter().filter_map(|address| self.record(*address)) {
            if HEADER + self.section.len() + records.len() + record.len() > MAX_ANSWER {
                break;
            }
            records.extend(record);
            count += 1;
        }
        let [count_high, count_low] = count.to_be_bytes();
        let flags = [0b1000_0000 | self.recursion, 0b1000_0000 | code as u8];
        let counts = [0, 1, count_high, count_low, 0, 0, 0, 0];
        [&self.id[..], &flags, &counts, &self.section, &records].concat()
    }

    fn record(&self, address: IpAddr) -> Option<Vec<u8>> {
        let (kind, bytes) = match address {
            IpAddr::V4(address) => (V4, address.octets().to_vec()),
            IpAddr::V6(address) => (V6, address.octets().to_vec()),
        };
        let length = u16::try_from(bytes.len()).ok()?.to_be_bytes();
        // The name is the question's.
        let head = [&[0xc0, 12][..], &kind.to_be_bytes(), &INTERNET.to_be_bytes(), &KEPT.to_be_bytes(), &length];
        (kind == self.kind).then(|| [&head.concat()[..], &bytes].concat())
    }
}

/// Takes a name off the front. None when it is malformed; within, None for one that no host has.
#[expect(clippy::option_option, reason = "the two are named above")]
fn take_name(rest: &mut &[u8]) -> Option<Option<String>> {
    let (mut labels, mut length, mut valid) = (Vec::new(), 1, true);
    loop {
        let (&size, after) = rest.split_first()?;
        // References to other names begin at 64; a question has none.
        if size >= 64 {
            return None;
        }
        let (label, after) = after.split_at_checked(size.into())?;
        *rest = after;
        if label.is_empty() {
            break;
        }
        length += label.len() + 1;
        valid &= label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    if length > MAX_NAME {
        return None;
    }
    Some((valid && !labels.is_empty()).then(|| labels.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in labels {
            message.push(label.len().try_into().unwrap());
            message.extend(*label);
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        // Options (EDNS), which every modern resolver sends.
        message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        message
    }

    #[test]
    fn a_question_is_read_and_answered_with_the_addresses_of_its_type() {
        let asked = Question::parse(&question(&[b"API", b"example", b"com"], V4)).unwrap();
        assert_eq!(asked.host.as_deref(), Some("api.example.com"));
        let answer = asked.answer(Code::Success, &["1.2.3.4".parse().unwrap(), "2a00::1".parse().unwrap()]);
        let mut expected = vec![7, 9, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        expected.extend(b"\x03API\x07example\x03com\0\0\x01\0\x01");
        expected.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 1, 2, 3, 4]);
        assert_eq!(answer, expected);
    }

    #[test]
    fn as_many_addresses_are_answered_as_fit() {
        let asked = Question::parse(&question(&[&[b'a'; 63], &[b'b'; 63], &[b'c'; 63], &[b'd'; 61]], V6)).unwrap();
        let addresses = vec!["2a00::1".parse().unwrap(); 100];
        let answer = asked.answer(Code::Success, &addresses);
        assert!((450..=512).contains(&answer.len()), "{}", answer.len());
        assert_eq!(usize::from(answer[7]), (answer.len() - HEADER - 259) / 28);
    }

    #[test]
    fn a_name_that_no_host_has_is_read_without_a_host() {
        for label in [&b"a b"[..], b"a.b", b"\xff", b"a\0"] {
            let asked = Question::parse(&question(&[label, b"com"], V4)).unwrap();
            assert_eq!(asked.host, None);
            assert_eq!(asked.answer(Code::NoSuchName, &[])[3], 0x83);
        }
        assert_eq!(Question::parse(&question(&[], V4)).unwrap().host, None);
    }

    #[test]
    fn malformed_messages_have_no_answer() {
        let whole = question(&[b"example", b"com"], V4);
        let options = 11;
        for length in 0..whole.len() - options {
            assert_eq!(Question::parse(&whole[..length]), None, "{length} bytes");
        }
        for (at, value) in [(2, 0x80), (2, 0x08), (5, 2), (12, 64), (12, 0xc0), (28, 3)] {
            let mut message = whole.clone();
            message[at] = value;
            assert_eq!(Question::parse(&message), None, "{value} at {at}");
        }
        assert_eq!(Question::parse(&question(&[&[b'a'; 63][..]; 4], V4)), None, "a name of 257 bytes");
    }
}
