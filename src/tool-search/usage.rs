//! Counts of one tenant's calls about its tools: which were called after which words, which together, and which fail.
//!
//! All numbers are counts that halve each [`HALF_LIFE`], so that present use counts, and a single call of the past is forgotten.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::stop_words::without_stop_words;
use crate::words::{MAX_TEXT, Stems, beginning, words};

/// Seconds in which a count halves: a week.
const HALF_LIFE: u64 = 7 * 24 * 3_600;
/// Minimum seconds between two reductions of all counts.
const BETWEEN_REDUCTIONS: u64 = 3_600;
/// The count below which an entry is dropped: of one call after five weeks.
const LEAST: f32 = 1.0 / 32.0;

/// Maximum words, and maximum tools that were called or have others called with them. With names of 64 bytes about 1.3 MB a tenant.
const MAX_WORDS: usize = 1_024;
const MAX_TOOLS: usize = 1_024;
/// Maximum tools of one word, or called with one tool.
const MAX_OF_ONE: usize = 8;
/// Maximum words of a query that are counted, and maximum tools called before that count.
const MAX_QUERY_WORDS: usize = 24;
const MAX_BEFORE: usize = 8;
/// Maximum bytes of the name of a tool.
const MAX_NAME: usize = 128;

/// Calls that are counted beside the calls of a tool, so that one failure says little.
const CALLS_BESIDE: f32 = 4.0;

/// Counts of one tenant's calls about its tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// When the counts were last reduced, in seconds since 1970.
    reduced_at: u64,
    /// By the stem of a word of a query: the tools that were called after it.
    words: BTreeMap<String, Counts>,
    /// By tool: those that were called together with it.
    together: BTreeMap<String, Counts>,
    calls: BTreeMap<String, Calls>,
}

/// By the name of a tool.
type Counts = BTreeMap<String, f32>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    successful: f32,
    failed: f32,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub struct UsedTool<'a> {
    pub tool: &'a str,
    /// The caller's last search, if it was for this call.
    pub query: Option<&'a str>,
    /// The tools that the same caller called for the same purpose before, the latest last.
    pub before: &'a [&'a str],
    pub has_failed: bool,
}

impl Usage {
    /// Counts a call that ended at `now`, in seconds since 1970. A failed one counts as that alone.
    pub fn add(&mut self, used: UsedTool<'_>, now: u64) {
        self.reduce(now);
        if used.tool.len() > MAX_NAME {
            return;
        }
        make_room(&mut self.calls, used.tool, MAX_TOOLS, Calls::sum);
        let calls = self.calls.entry(used.tool.to_owned()).or_default();
        if used.has_failed {
            calls.failed += 1.0;
            return;
        }
        calls.successful += 1.0;
        for stem in used.query.map(stems_of).unwrap_or_default() {
            count(&mut self.words, &stem, used.tool, MAX_WORDS);
        }
        let before = used.before.iter().rev().filter(|tool| **tool != used.tool && tool.len() <= MAX_NAME);
        for tool in before.take(MAX_BEFORE) {
            count(&mut self.together, tool, used.tool, MAX_TOOLS);
            count(&mut self.together, used.tool, tool, MAX_TOOLS);
        }
    }

    /// The share of a query's information after which each tool was called, from 0 to 1. Words are stems with their information.
    pub(crate) fn after<'u>(&'u self, words: &[(&str, f32)]) -> BTreeMap<&'u str, f32> {
        let all: f32 = words.iter().map(|(_, information)| information).sum();
        let mut shares = BTreeMap::new();
        for (stem, information) in words {
            let Some(counts) = self.words.get(*stem) else { continue };
            let calls: f32 = counts.values().sum();
            for (tool, count) in counts {
                *shares.entry(tool.as_str()).or_default() += information * count / ((calls + 1.0) * all);
            }
        }
        shares
    }

    /// The share of a tool's calls together with which each other tool was called, from 0 to 1.
    pub(crate) fn with(&self, tool: &str) -> impl Iterator<Item = (&str, f32)> {
        let calls = self.calls.get(tool).map_or(0.0, |calls| calls.successful) + 1.0;
        let counts = self.together.get(tool).into_iter().flatten();
        counts.map(move |(other, count)| (other.as_str(), (count / calls).min(1.0)))
    }

    /// The tools that fail, with the share of failures among their calls.
    pub(crate) fn failing(&self) -> impl Iterator<Item = (&str, f32)> {
        let failing = self.calls.iter().filter(|(_, calls)| calls.failed > 0.0);
        failing.map(|(tool, calls)| (tool.as_str(), calls.failed / (calls.sum() + CALLS_BESIDE)))
    }

    /// The tools with successful calls, the most used first.
    pub fn most_used(&self) -> Vec<&str> {
        let used = self.calls.iter().filter(|(_, calls)| calls.successful >= LEAST);
        let mut used: Vec<_> = used.collect();
        // Equal ones stay in the order of their names.
        used.sort_by(|one, other| other.1.successful.total_cmp(&one.1.successful));
        used.into_iter().map(|(tool, _)| tool.as_str()).collect()
    }

    /// Halves all counts for each half-life that has passed, and drops small ones. A clock that was set back changes nothing.
    fn reduce(&mut self, now: u64) {
        let passed = now.saturating_sub(self.reduced_at);
        if passed < BETWEEN_REDUCTIONS {
            return;
        }
        self.reduced_at = now;
        let factor = (-(passed as f32) / HALF_LIFE as f32).exp2();
        for counts in self.words.values_mut().chain(self.together.values_mut()) {
            counts.values_mut().for_each(|count| *count *= factor);
            counts.retain(|_, count| *count >= LEAST);
        }
        self.words.retain(|_, counts| !counts.is_empty());
        self.together.retain(|_, counts| !counts.is_empty());
        for calls in self.calls.values_mut() {
            *calls = Calls { successful: calls.successful * factor, failed: calls.failed * factor };
        }
        self.calls.retain(|_, calls| calls.sum() >= LEAST);
    }
}

impl Calls {
    fn sum(&self) -> f32 {
        self.successful + self.failed
    }
}

/// Counts a tool under a key.
fn count(all: &mut BTreeMap<String, Counts>, key: &str, tool: &str, most: usize) {
    make_room(all, key, most, |counts| counts.values().sum());
    let counts = all.entry(key.to_owned()).or_default();
    make_room(counts, tool, MAX_OF_ONE, |count| *count);
    *counts.entry(tool.to_owned()).or_default() += 1.0;
}

/// Removes the entry that counts least if there is no room for a new key.
fn make_room<T>(all: &mut BTreeMap<String, T>, key: &str, most: usize, counts: impl Fn(&T) -> f32) {
    if all.len() < most || all.contains_key(key) {
        return;
    }
    let least = all.iter().min_by(|a, b| counts(a.1).total_cmp(&counts(b.1))).map(|(key, _)| key.clone());
    least.into_iter().for_each(|key| {
        all.remove(&key);
    });
}

/// The distinct stems of the words that say something.
fn stems_of(query: &str) -> Vec<String> {
    let (stems, mut seen) = (Stems::new(), HashSet::new());
    let words = without_stop_words(words(beginning(query, MAX_TEXT))).into_iter();
    words.map(|word| stems.of(&word)).filter(|stem| seen.insert(stem.clone())).take(MAX_QUERY_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn call<'a>(tool: &'a str, query: &'a str, before: &'a [&'a str]) -> UsedTool<'a> {
        UsedTool { tool, query: Some(query), before, has_failed: false }
    }

    fn after(usage: &Usage, word: &str) -> Vec<(String, f32)> {
        usage.after(&[(word, 2.0)]).into_iter().map(|(tool, share)| (tool.to_owned(), share)).collect()
    }

    #[test]
    fn tools_are_found_by_the_words_after_which_they_were_called() {
        let mut usage = Usage::default();
        usage.add(call("draw", "the monthly figures", &[]), NOW);
        usage.add(call("draw", "figures", &[]), NOW);
        usage.add(call("mail", "figures", &["draw"]), NOW);
        assert_eq!(after(&usage, "figur"), [("draw".to_owned(), 0.5), ("mail".to_owned(), 0.25)]);
        assert_eq!(after(&usage, "the"), []);
        assert_eq!(usage.with("draw").collect::<Vec<_>>(), [("mail", 1.0 / 3.0)]);
        assert_eq!(usage.with("mail").collect::<Vec<_>>(), [("draw", 0.5)]);
        assert_eq!(usage.failing().count(), 0);
    }

    #[test]
    fn a_failed_call_counts_as_that_alone() {
        let mut usage = Usage::default();
        usage.add(UsedTool { has_failed: true, ..call("draw", "figures", &["mail"]) }, NOW);
        assert_eq!((after(&usage, "figur"), usage.with("draw").count()), (vec![], 0));
        assert_eq!(usage.failing().collect::<Vec<_>>(), [("draw", 0.2)]);
        assert!(usage.most_used().is_empty());
    }

    #[test]
    fn the_most_used_tools_come_first() {
        let mut usage = Usage::default();
        for tool in ["mail", "draw", "sum", "draw"] {
            usage.add(UsedTool { query: None, ..call(tool, "", &[]) }, NOW);
        }
        assert_eq!(usage.most_used(), ["draw", "mail", "sum"]);
    }

    #[test]
    fn counts_halve_each_week_and_end() {
        let mut usage = Usage::default();
        usage.add(call("draw", "figures", &["mail"]), NOW);
        usage.reduce(NOW + HALF_LIFE);
        assert_eq!(usage.words["figur"]["draw"], 0.5);
        usage.reduce(NOW);
        assert_eq!((usage.words["figur"]["draw"], usage.calls["draw"].successful), (0.5, 0.5));
        usage.reduce(NOW + 6 * HALF_LIFE);
        assert_eq!(usage, Usage { reduced_at: NOW + 6 * HALF_LIFE, ..Usage::default() });
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_most_used_stays() {
        let mut usage = Usage::default();
        let names: Vec<_> = (0..3_000).map(|number| format!("tool_{number}")).collect();
        for _ in 0..3 {
            usage.add(call("often", "figures", &["mail"]), NOW);
        }
        for (number, name) in names.iter().enumerate() {
            usage.add(call(name, &format!("w{number}q figures"), &["often", "mail"]), NOW);
        }
        usage.add(call(&"n".repeat(MAX_NAME + 1), &"word ".repeat(1_000_000), &[]), NOW);
        assert_eq!((usage.words.len(), usage.calls.len()), (MAX_WORDS, MAX_TOOLS));
        assert!(usage.together.len() <= MAX_TOOLS);
        assert!(usage.words.values().chain(usage.together.values()).all(|counts| counts.len() <= MAX_OF_ONE));
        assert_eq!(usage.words["figur"]["often"], 3.0);
    }

    #[test]
    fn it_is_stored_as_json() {
        let mut usage = Usage::default();
        usage.add(call("draw", "figures", &["mail"]), NOW);
        let text = serde_json::to_string(&usage).unwrap();
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), usage);
    }
}
