//! The entries of a journal, in the order in which they happened.
//!
//! A journal is a beginning of the program's work: an entry is in it only with all before it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rust_decimal::Decimal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use sekisho_core::reading::Reading;

/// A question of a program. The same question is equal however its JSON is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalQuestion {
    Call {
        /// Its position among the calls of the run, from 0.
        ordinal: u32,
        tool: String,
        /// SHA-256 of their canonical form.
        arguments: [u8; 32],
    },
    /// SHA-256 of a question about tools.
    Other([u8; 32]),
}

/// An answer, as the program gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalAnswer {
    pub is_ok: bool,
    /// JSON.
    pub json: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    Asked {
        /// The number of the request, from 0.
        number: u32,
        question: JournalQuestion,
        /// Whether it may be made again when its outcome is not known.
        may_repeat: bool,
        /// The readings of the program since the request before.
        readings: Vec<Reading>,
    },
    /// In the order of completion.
    Answered { number: u32, answer: JournalAnswer },
    /// The run ended here, since the call needs this approval.
    Paused { number: u32, approval: String },
    /// A call that has waited for an approval is about to be made by it, and must not be made again.
    Made { number: u32 },
    /// The charge of a call, as the bytes of the decimal number.
    Charged { cost_usd: [u8; 16] },
    /// The outcome of a call was not known, and somebody said this about it. An answer behind it is what somebody said, too.
    Settled { number: u32, settled: Settled },
}

/// What became of a call whose outcome was not known, and which has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// It is made now.
    NotMade,
    /// The program gets the error.
    Unknown,
}

/// The beginning of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// The arguments of the call that runs the program: JSON.
    pub arguments: String,
    /// Other than the arguments of that call: JSON.
    pub context: String,
    /// The program's input, as the caller of these functions encodes it.
    pub input: Vec<u8>,
}

/// The entries that were written at a time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// In the first one.
    pub start: Option<RunStart>,
    pub entries: Vec<Entry>,
}

/// A journal that was read: the beginning of the run, and its work.
#[derive(Debug, PartialEq, Eq)]
pub struct Past {
    pub start: RunStart,
    /// The bytes of the whole journal, as they are counted when it is written.
    pub bytes: usize,
    /// The charges of its calls.
    pub spent_usd: Decimal,
    pub readings: VecDeque<Reading>,
    pub requests: HashMap<u32, PastRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRequest {
    pub question: JournalQuestion,
    pub may_repeat: bool,
    pub answer: Option<JournalAnswer>,
    /// The approval for which the run waited.
    pub approval: Option<Arc<str>>,
    pub settled: Option<Settled>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the journal of the run is damaged")]
pub struct DamagedJournalError;

impl RunStart {
    pub fn bytes(&self) -> usize {
        self.arguments.len() + self.context.len() + self.input.len()
    }
}

impl Entry {
    /// About as many bytes as it is written with.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 64;
        FIXED
            + match self {
                Self::Asked { question, readings, .. } => {
                    let tool = if let JournalQuestion::Call { tool, .. } = question { tool.len() } else { 0 };
                    tool + readings.iter().map(Reading::bytes).sum::<usize>()
                }
                Self::Answered { answer, .. } => answer.json.len(),
                Self::Paused { approval, .. } => approval.len(),
                Self::Made { .. } | Self::Charged { .. } | Self::Settled { .. } => 0,
            }
    }
}

impl PastRequest {
    /// Whether it was started, has no answer, and must not be made again.
    pub fn is_unknown(&self) -> bool {
        !self.may_repeat && self.answer.is_none() && self.approval.is_none() && self.settled.is_none()
    }
}

impl Past {
    /// Errors: the parts are not the parts of a journal.
    pub fn of(parts: Vec<Part>) -> Result<Self, DamagedJournalError> {
        let mut parts = parts.into_iter();
        let Some(Part { start: Some(start), entries: first }) = parts.next() else { return Err(DamagedJournalError) };
        let bytes = start.bytes();
        let (readings, requests) = (VecDeque::new(), HashMap::new());
        let mut past = Self { start, bytes, spent_usd: Decimal::ZERO, readings, requests };
        past.add(first)?;
        for part in parts {
            if part.start.is_some() {
                return Err(DamagedJournalError);
            }
            past.add(part.entries)?;
        }
        Ok(past)
    }

    fn add(&mut self, entries: Vec<Entry>) -> Result<(), DamagedJournalError> {
        for entry in entries {
            self.bytes = self.bytes.saturating_add(entry.bytes());
            match entry {
                Entry::Asked { number, question, may_repeat, readings } => {
                    self.readings.extend(readings);
                    let request = PastRequest { question, may_repeat, answer: None, approval: None, settled: None };
                    if self.requests.insert(number, request).is_some() {
                        return Err(DamagedJournalError);
                    }
                }
                Entry::Answered { number, answer } => {
                    self.requests.get_mut(&number).ok_or(DamagedJournalError)?.answer = Some(answer);
                }
                Entry::Paused { number, approval } => {
                    self.requests.get_mut(&number).ok_or(DamagedJournalError)?.approval = Some(approval.into());
                }
                Entry::Made { number } => {
                    let request = self.requests.get_mut(&number).ok_or(DamagedJournalError)?;
                    (request.approval, request.settled) = (None, None);
                }
                Entry::Settled { number, settled } => {
                    self.requests.get_mut(&number).ok_or(DamagedJournalError)?.settled = Some(settled);
                }
                Entry::Charged { cost_usd } => {
                    self.spent_usd = self.spent_usd.saturating_add(Decimal::deserialize(cost_usd));
                }
            }
        }
        Ok(())
    }
}

/// Errors: never for the types of this file: the encoding has a form for them.
pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, DamagedJournalError> {
    postcard::to_extend(value, Vec::new()).map_err(|_| DamagedJournalError)
}

/// Errors: the bytes are another thing.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DamagedJournalError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(DamagedJournalError),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start() -> RunStart {
        RunStart { arguments: r#"{"code":"1"}"#.to_owned(), context: "{}".to_owned(), input: vec![1, 2] }
    }

    fn reading() -> impl Strategy<Value = Reading> {
        prop_oneof![
            any::<u64>().prop_map(Reading::Real),
            any::<u64>().prop_map(Reading::Elapsed),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Reading::Random),
            any::<Option<u32>>().prop_map(Reading::Waited),
        ]
    }

    fn question() -> impl Strategy<Value = JournalQuestion> {
        let call = (any::<u32>(), ".{0,9}", any::<[u8; 32]>());
        prop_oneof![
            call.prop_map(|(ordinal, tool, arguments)| JournalQuestion::Call { ordinal, tool, arguments }),
            any::<[u8; 32]>().prop_map(JournalQuestion::Other),
        ]
    }

    prop_compose! {
        fn request(number: u32)(
            question in question(),
            may_repeat in any::<bool>(),
            readings in prop::collection::vec(reading(), 0..4),
            outcome in any::<Option<(bool, String)>>(),
            approval in any::<Option<String>>(),
            is_made in any::<bool>(),
            settled in prop::option::of(prop_oneof![Just(Settled::NotMade), Just(Settled::Unknown)]),
        ) -> Vec<Entry> {
            let mut entries = vec![Entry::Asked { number, question, may_repeat, readings }];
            entries.extend(approval.map(|approval| Entry::Paused { number, approval }));
            entries.extend(is_made.then_some(Entry::Made { number }));
            entries.extend(settled.map(|settled| Entry::Settled { number, settled }));
            let answer = outcome.map(|(is_ok, json)| JournalAnswer { is_ok, json });
            entries.extend(answer.map(|answer| Entry::Answered { number, answer }));
            entries
        }
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        (0..9_u32).prop_flat_map(|count| (0..count).map(request).collect::<Vec<_>>()).prop_map(|all| all.concat())
    }

    proptest! {
        /// However the entries are divided into parts.
        #[test]
        fn a_journal_is_read_as_it_was_written(entries in entries(), cut in 0..30_usize) {
            let cut = cut.min(entries.len());
            let parts = [
                Part { start: Some(start()), entries: entries[..cut].to_vec() },
                Part { start: None, entries: entries[cut..].to_vec() },
            ];
            let written = parts.iter().map(|part| encode(part).unwrap()).collect::<Vec<_>>();
            let read = written.iter().map(|part| decode::<Part>(part).unwrap()).collect();
            let past = Past::of(read).unwrap();
            let whole = Past::of(vec![Part { start: Some(start()), entries: entries.clone() }]).unwrap();
            prop_assert_eq!(&past, &whole);
            let readings = entries.iter().filter_map(|entry| match entry {
                Entry::Asked { readings, .. } => Some(readings.clone()),
                _ => None,
            });
            prop_assert_eq!(past.readings.into_iter().collect::<Vec<_>>(), readings.flatten().collect::<Vec<_>>());
            let bytes = start().bytes() + entries.iter().map(Entry::bytes).sum::<usize>();
            prop_assert_eq!(past.bytes, bytes);
            let asked = entries.iter().filter(|entry| matches!(entry, Entry::Asked { .. })).count();
            prop_assert_eq!(past.requests.len(), asked);
        }
    }

    #[test]
    fn what_is_no_journal_is_damaged() {
        let question = JournalQuestion::Other([0; 32]);
        let asked = Entry::Asked { number: 0, question, may_repeat: true, readings: vec![] };
        let answer = JournalAnswer { is_ok: true, json: "1".to_owned() };
        let first = |entries| Part { start: Some(start()), entries };
        for parts in [
            vec![],
            vec![Part { start: None, entries: vec![] }],
            vec![first(vec![]), first(vec![])],
            vec![first(vec![asked.clone(), asked])],
            vec![first(vec![Entry::Answered { number: 0, answer }])],
            vec![first(vec![Entry::Paused { number: 7, approval: "a".to_owned() }])],
            vec![first(vec![Entry::Made { number: 7 }])],
            vec![first(vec![Entry::Settled { number: 7, settled: Settled::NotMade }])],
        ] {
            assert_eq!(Past::of(parts), Err(DamagedJournalError));
        }
        let mut bytes = encode(&start()).unwrap();
        bytes.push(0);
        assert_eq!(decode::<RunStart>(&bytes), Err(DamagedJournalError), "something is left");
    }

    #[test]
    fn hostile_bytes_as_parts_of_a_journal() {
        let question = JournalQuestion::Call { ordinal: 1, tool: "t".to_owned(), arguments: [7; 32] };
        let readings = vec![Reading::Real(1), Reading::Random(vec![1, 2, 3]), Reading::Waited(Some(2))];
        let entries = vec![
            Entry::Asked { number: 0, question, may_repeat: false, readings },
            Entry::Answered { number: 0, answer: JournalAnswer { is_ok: false, json: "{}".to_owned() } },
        ];
        let part = encode(&Part { start: Some(start()), entries }).unwrap();
        let paused = vec![Entry::Paused { number: 0, approval: "a".to_owned() }];
        let next = encode(&Part { start: None, entries: paused }).unwrap();
        sekisho_core::fuzz::feed(&[&part, &next], |bytes| {
            let Ok(read) = decode::<Part>(bytes) else { return };
            // As the first one, or after one that is as it was written.
            let parts = if read.start.is_some() { vec![read] } else { vec![decode(&part).unwrap(), read] };
            let _ = Past::of(parts);
        });
    }
}
