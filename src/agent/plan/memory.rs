//! The memory of a plan, in the order of time (B15–B17), and the part of it that the planner gets (B24).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::prompts::beginning;
use sekisho_calls::registry::{SearchIndex, Searchable};

/// Maximum entries; the oldest go first.
const MAX_ENTRIES: usize = 300;

/// Maximum characters of an entry.
const MAX_ENTRY: usize = 4_000;

/// Maximum characters of an older entry in a request.
const MAX_OLDER: usize = 400;

/// How often the same action with the same observation makes a circle (B16).
const CIRCLE: u32 = 3;

/// Bytes of a token, as the budget counts them.
const BYTES_OF_A_TOKEN: usize = 4;

/// The log of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pub entries: Vec<Entry>,
    /// Digest of an action and its observation → how often they came.
    seen: BTreeMap<String, u32>,
    /// How often the plan went in circles.
    pub(super) circles: u32,
}

/// Something that happened in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// RFC 3339.
    pub at: String,
    pub kind: EntryKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// How far the plan is.
    Progress,
    /// A plan as it was made or changed.
    Plan,
    /// The calls of a step.
    Action,
    /// What a step gave.
    Observation,
    /// What the planner thought: why a step passed or failed, or the plan was changed.
    Thought,
}

impl Memory {
    pub(super) fn add(&mut self, kind: EntryKind, text: &str) {
        let text = beginning(text, MAX_ENTRY).to_owned();
        self.entries.push(Entry { at: Timestamp::now().to_string(), kind, text });
        let surplus = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..surplus);
    }

    /// Counts an action with its observation; whether they came so often that the plan goes in circles. The count begins
    /// again then.
    pub(super) fn is_circle(&mut self, action: &str, observation: &str) -> bool {
        let digest = Sha256::new().chain_update(action).chain_update([0]).chain_update(observation).finalize();
        let count = self.seen.entry(hex::encode(digest)).or_default();
        *count += 1;
        if *count < CIRCLE {
            return false;
        }
        self.seen.clear();
        self.circles += 1;
        true
    }

    /// A step has passed: the same action is no circle from here on.
    pub(super) fn progress_was_made(&mut self) {
        self.seen.clear();
    }

    /// The part that fits `tokens`, in the order of time: the latest entries whole, with up to half of the tokens, then
    /// older ones that fit `query` best, shortened. `closest`: positions of the [`older`](Self::older) ones by their
    /// meaning, best first, where that is known.
    pub(super) fn brief(&self, tokens: usize, query: &str, closest: &[usize]) -> String {
        let (latest, mut left) = self.latest(tokens);
        let candidates = &self.entries[..latest];
        let mut chosen: BTreeMap<_, _> =
            self.entries.iter().enumerate().skip(latest).map(|(index, entry)| (index, entry.line(MAX_ENTRY))).collect();
        let by_words = index(candidates).search(query, candidates.len()).into_iter().map(|(index, _)| index);
        for index in interleaved(by_words, closest) {
            let Some(line) = candidates.get(index).map(|entry| entry.line(MAX_OLDER)) else { continue };
            if line.len() <= left {
                left -= line.len();
                chosen.insert(index, line);
            }
        }
        chosen.into_values().collect()
    }

    /// The entries from which a brief selects; none if all of them fit.
    pub(super) fn older(&self, tokens: usize) -> &[Entry] {
        let (latest, left) = self.latest(tokens);
        let older = &self.entries[..latest];
        let all = older.iter().map(|entry| entry.line(MAX_OLDER).len()).sum::<usize>();
        if all <= left { &[] } else { older }
    }

    /// The position of the first of the latest entries, and the bytes that are left for older ones.
    fn latest(&self, tokens: usize) -> (usize, usize) {
        let mut left = tokens.saturating_mul(BYTES_OF_A_TOKEN);
        let floor = left / 2;
        let mut latest = self.entries.len();
        for (index, entry) in self.entries.iter().enumerate().rev() {
            let rest = left.checked_sub(entry.line(MAX_ENTRY).len()).filter(|rest| *rest >= floor);
            let Some(rest) = rest else { break };
            (left, latest) = (rest, index);
        }
        (latest, left)
    }
}

/// Two rankings as one, in turns.
fn interleaved(by_words: impl Iterator<Item = usize>, closest: &[usize]) -> Vec<usize> {
    let (mut by_words, mut closest) = (by_words.fuse(), closest.iter().copied().fuse());
    let mut ranked = Vec::new();
    loop {
        let (word, close) = (by_words.next(), closest.next());
        if word.is_none() && close.is_none() {
            return ranked;
        }
        for index in word.into_iter().chain(close) {
            if !ranked.contains(&index) {
                ranked.push(index);
            }
        }
    }
}

impl Entry {
    fn line(&self, max: usize) -> String {
        let kind = match self.kind {
            EntryKind::Progress => "progress",
            EntryKind::Plan => "plan",
            EntryKind::Action => "action",
            EntryKind::Observation => "observation",
            EntryKind::Thought => "thought",
        };
        format!("- {kind}: {}\n", beginning(&self.text, max).trim())
    }
}

fn index(entries: &[Entry]) -> SearchIndex {
    SearchIndex::build(entries.iter().map(|entry| searchable(&entry.text)), None)
}

/// The `max` texts that fit a query best, in their own order.
pub(super) fn relevant<'a>(texts: &[&'a str], query: &str, max: usize) -> Vec<&'a str> {
    let index = SearchIndex::build(texts.iter().map(|text| searchable(text)), None);
    let mut found: Vec<_> = index.search(query, max).into_iter().map(|(position, _)| position).collect();
    found.sort_unstable();
    found.into_iter().filter_map(|position| texts.get(position).copied()).collect()
}

fn searchable(text: &str) -> Searchable<'_> {
    Searchable { name: "", description: text, category: "", source: "", parameters: &Value::Null }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(texts: &[&str]) -> Memory {
        let mut memory = Memory::default();
        texts.iter().for_each(|text| memory.add(EntryKind::Observation, text));
        memory
    }

    #[test]
    fn the_latest_entries_come_whole_and_older_ones_by_relevance_in_the_order_of_time() {
        let filler = "word ".repeat(60);
        let long = format!("価格表 {filler}");
        let memory = memory(&[&long, &format!("weather {filler}"), &filler, &filler, "latest"]);
        let brief = memory.brief(200, "商品の価格", &[]);
        assert!(brief.starts_with("- observation: 価格表"), "{brief}");
        assert!(brief.ends_with("- observation: latest\n") && !brief.contains("weather"), "{brief}");
        assert!(brief.len() <= 800, "{}", brief.len());
        assert_eq!(memory.brief(0, "商品", &[]), "");
        assert_eq!(Memory::default().brief(100, "x", &[]), "");
    }

    #[test]
    fn entries_that_are_close_in_meaning_come_beside_those_with_the_same_words() {
        let filler = "word ".repeat(60);
        let [car, price, rain] = ["automobile", "price", "rain"].map(|word| format!("{word} {filler}"));
        let memory = memory(&[&car, &rain, &price, &filler, "latest"]);
        assert_eq!(memory.older(200).len(), 3);
        assert!(memory.older(2_000).is_empty(), "all fit");
        let lines = |brief: &str| brief.lines().map(|line| line[15..].split(' ').next().unwrap().to_owned()).collect();
        let chosen: Vec<String> = lines(&memory.brief(260, "the price of a car", &[0, 2, 1]));
        assert_eq!(chosen, ["automobile", "price", "word", "latest"]);
        assert_eq!(interleaved([4, 2].into_iter(), &[2, 7, 4]), [4, 2, 7]);
        assert_eq!(interleaved([4, 2].into_iter(), &[]), [4, 2]);
    }

    #[test]
    fn a_third_time_makes_a_circle_and_the_count_begins_again() {
        let mut memory = Memory::default();
        let came: Vec<_> = (0..6).map(|_| memory.is_circle("click", "not found")).collect();
        assert_eq!(came, [false, false, true, false, false, true]);
        assert_eq!(memory.circles, 2);
        assert!(!memory.is_circle("click", "found") && !memory.is_circle("clicknot", " found"));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = Memory::default();
        let long = "x".repeat(2 * MAX_ENTRY);
        (0..MAX_ENTRIES + 5).for_each(|_| memory.add(EntryKind::Thought, &long));
        assert_eq!((memory.entries.len(), memory.entries[0].text.len()), (MAX_ENTRIES, MAX_ENTRY));
    }

    #[test]
    fn the_relevant_texts_keep_their_order() {
        let lines = ["button Buy red shoes", "heading Weather", "link Shoes", "text Imprint"];
        assert_eq!(relevant(&lines, "buy the shoes", 2), ["button Buy red shoes", "link Shoes"]);
    }
}
