//! The index of tools, and how the ranks by words and by meaning become one.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use crate::document::Searchable;
use crate::embeddings::Embeddings;
use crate::file_types::words_of_files;
use crate::meaning::MeaningIndex;
use crate::steps::steps;
use crate::stop_words::{are_stop_words, without_stop_words};
use crate::usage::Usage;
use crate::word_index::{Posting, WordIndex, at};
use crate::words::{MAX_TEXT, Stems, beginning, words};

/// Maximum distinct words of a task or step that count: those that say the most.
const MAX_WORDS: usize = 48;

/// Maximum of them for which words of names are sought that are near in meaning.
const MAX_WITH_NEAR: usize = 12;

/// Share of the words in a score, where there is meaning beside them; each part counts by its best tool.
const WORD_SHARE: f32 = 0.5;

/// Weight of the step that fits a tool best by its words, beside the whole task. Steps have no vectors: these took most of the time
/// of a search, and brought nothing.
const STEP_WEIGHT: f32 = 0.12;

/// Share of the best score of its source that a tool gains.
const SOURCE_WEIGHT: f32 = 0.5;

/// Weight of tools called after such words, and the share of the words from which it has all of it.
const AFTER_WEIGHT: f32 = 0.8;
const SURE_SHARE: f32 = 0.35;
/// Weight of tools called with the best tools, of at most so many.
const TOGETHER_WEIGHT: f32 = 0.5;
const MAX_TOGETHER: usize = 3;
/// Share of its score that a tool loses whose calls all fail.
const FAILURE_WEIGHT: f32 = 0.5;

/// Minimum closeness of a tool that shares no word with the query, and the maximum of such tools.
const MIN_CLOSENESS: f32 = 0.3;
const MAX_CLOSE: usize = 100;

/// The words and vectors of all tools.
#[derive(Debug, Default)]
pub struct SearchIndex {
    words: WordIndex,
    meaning: Option<MeaningIndex>,
    /// The names of the tools, and their positions by name: of several with one name the first.
    names: Vec<Box<str>>,
    positions: HashMap<Box<str>, usize>,
    /// The number of each tool's source.
    groups: Vec<Option<usize>>,
}

/// What takes part in a search: all of it, or what measurements compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    All,
    Words,
    Meaning,
    /// All but the steps of the task.
    WithoutSteps,
}

/// A query and its options.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// Some words, or a task in whole sentences.
    pub query: &'a str,
    pub at_most: usize,
    pub part: Part,
    /// The tools that the caller's tenant used so far.
    pub usage: Option<&'a Usage>,
}

impl SearchIndex {
    /// An index that searches by words and, with a table, by meaning.
    pub fn build<'a>(tools: impl IntoIterator<Item = Searchable<'a>>, embeddings: Option<Arc<Embeddings>>) -> Self {
        let tools: Vec<_> = tools.into_iter().collect();
        let stems = Stems::new();
        let words = WordIndex::build(&tools, &stems);
        let meaning = embeddings.map(|embeddings| MeaningIndex::build(&tools, embeddings, &words, &stems));
        let mut numbers = HashMap::new();
        let groups = tools.iter().map(Searchable::group).map(|group| {
            let next = numbers.len();
            group.map(|group| *numbers.entry(group).or_insert(next))
        });
        let names: Vec<Box<str>> = tools.iter().map(|tool| tool.name.into()).collect();
        let positions = names.iter().cloned().enumerate().rev().map(|(at, name)| (name, at)).collect();
        Self { words, meaning, names, positions, groups: groups.collect() }
    }

    /// Positions in `tools` with their scores, best first; equal scores in the order of the tools.
    pub fn search(&self, query: &str, at_most: usize) -> Vec<(usize, f64)> {
        self.search_where(Search { query, at_most, part: Part::All, usage: None }, |_| true)
    }

    /// As [`search`](Self::search), among the tools that `may_be_found`, which is asked about the best ones only.
    pub fn search_where(&self, search: Search<'_>, may_be_found: impl FnMut(usize) -> bool) -> Vec<(usize, f64)> {
        let mut asked = Asked { index: self, stems: Stems::new(), gains: HashMap::new() };
        let mut scores = asked.all_scores(search.part, beginning(search.query, MAX_TEXT));
        if let Some(usage) = search.usage {
            asked.add_usage(&mut scores, search.query, usage);
        }
        best_of(&scores, search.at_most, may_be_found)
    }

    /// The position of the tool of that name.
    fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Adds to each score a share of the best one of its source.
    fn add_sources(&self, scores: &mut [f32]) {
        let mut best = vec![0.0_f32; self.groups.len()];
        for (group, score) in self.groups.iter().zip(&*scores) {
            let best = group.and_then(|group| best.get_mut(group));
            best.into_iter().for_each(|best| *best = best.max(*score));
        }
        for (group, score) in self.groups.iter().zip(scores).filter(|(_, score)| **score > 0.0) {
            *score += SOURCE_WEIGHT * group.and_then(|group| best.get(group).copied()).unwrap_or_default();
        }
    }
}

/// A query that is searched.
struct Asked<'a> {
    index: &'a SearchIndex,
    stems: Stems,
    /// Of each stem so far: a task and its steps have the same ones.
    gains: HashMap<String, Vec<Posting>>,
}

/// A word of a query.
struct QueryWord {
    word: String,
    stem: String,
    information: f32,
}

impl Asked<'_> {
    /// The score of each tool for a task and its steps.
    fn all_scores(&mut self, part: Part, query: &str) -> Vec<f32> {
        let mut scores = self.scores(query, part);
        let steps = if [Part::WithoutSteps, Part::Meaning].contains(&part) { Vec::new() } else { steps(query) };
        let mut best_step = vec![0.0_f32; scores.len()];
        for step in steps.iter().filter(|step| !are_stop_words(&words(step))) {
            let of_step = self.scores(step, Part::Words);
            best_step.iter_mut().zip(of_step).for_each(|(best, score)| *best = best.max(score));
        }
        scores.iter_mut().zip(best_step).for_each(|(score, step)| *score += STEP_WEIGHT * step);
        scores
    }

    /// Adds the tools that the tenant called after such words, and with the best tools; divides failing ones.
    fn add_usage(&self, scores: &mut [f32], query: &str, usage: &Usage) {
        let words = self.query_words(beginning(query, MAX_TEXT));
        let words: Vec<_> = words.iter().map(|word| (word.stem.as_str(), word.information)).collect();
        let gain = |scores: &mut [f32], tool: &str, gain: f32| {
            let score = self.index.position(tool).and_then(|at| scores.get_mut(at));
            score.into_iter().for_each(|score| *score += gain);
        };
        let after = usage.after(&words);
        let most = after.values().copied().fold(SURE_SHARE, f32::max);
        for (tool, share) in after {
            gain(scores, tool, AFTER_WEIGHT * share / most);
        }
        let best = best_of(scores, MAX_TOGETHER, |_| true).into_iter();
        let best: Vec<_> = best.filter_map(|(tool, _)| Some((tool, *scores.get(tool)?))).collect();
        let most = best.first().map_or(1.0, |(_, score)| *score);
        for (tool, score) in best {
            let Some(name) = self.index.names.get(tool) else { continue };
            for (other, share) in usage.with(name) {
                gain(scores, other, TOGETHER_WEIGHT * share * score / most);
            }
        }
        for (tool, share) in usage.failing() {
            let score = self.index.position(tool).and_then(|at| scores.get_mut(at));
            score.into_iter().for_each(|score| *score *= 1.0 - FAILURE_WEIGHT * share);
        }
    }

    /// The score of each tool for a text.
    fn scores(&mut self, text: &str, part: Part) -> Vec<f32> {
        let words = self.query_words(text);
        let mut scores = vec![0.0_f32; self.index.groups.len()];
        if part != Part::Meaning {
            for (place, word) in words.iter().enumerate() {
                let meaning = self.index.meaning.as_ref().filter(|_| part != Part::Words && place < MAX_WITH_NEAR);
                let gained = self.gains.entry(word.stem.clone()).or_insert_with(|| {
                    let near = meaning.map(|meaning| meaning.near(&word.word)).unwrap_or_default();
                    self.index.words.gains(&word.stem, &near)
                });
                for Posting { tool, weight } in gained {
                    scores.get_mut(at(*tool)).into_iter().for_each(|score| *score += *weight);
                }
            }
        }
        let meaning = self.index.meaning.as_ref().filter(|_| part != Part::Words);
        if let Some(meaning) = meaning {
            let vector = meaning.vector(words.iter().map(|word| (word.word.as_str(), word.information)));
            add_meaning(&mut scores, &meaning.closeness(&vector).collect::<Vec<_>>());
        } else {
            divide_by_best(&mut scores);
        }
        self.index.add_sources(&mut scores);
        scores
    }

    /// The distinct words that count: those that say the most.
    fn query_words(&self, text: &str) -> Vec<QueryWord> {
        let mut found = without_stop_words(words(text));
        found.extend(words_of_files(text).filter(|word| !word.is_empty()).map(str::to_owned));
        let mut seen = HashSet::new();
        let mut distinct: Vec<_> = found
            .into_iter()
            .filter_map(|word| {
                let stem = self.stems.of(&word);
                let is_new = seen.insert(stem.clone());
                is_new.then(|| QueryWord { word, information: self.index.words.information(&stem), stem })
            })
            .collect();
        distinct.sort_by(|a, b| b.information.total_cmp(&a.information));
        distinct.truncate(MAX_WORDS);
        distinct
    }
}

/// Adds the closeness in meaning to the scores by words.
fn add_meaning(scores: &mut [f32], closeness: &[f32]) {
    divide_by_best(scores);
    let best = closeness.iter().copied().fold(0.0, f32::max);
    if best <= 0.0 {
        return;
    }
    let least = least_of_best(closeness, MAX_CLOSE).max(MIN_CLOSENESS);
    for (score, close) in scores.iter_mut().zip(closeness) {
        let counts = *score > 0.0 || *close >= least;
        let close = if counts { close.max(0.0) / best } else { 0.0 };
        *score = *score * WORD_SHARE + close * (1.0 - WORD_SHARE);
    }
}

/// The least of the best values, at most so many.
fn least_of_best(values: &[f32], at_most: usize) -> f32 {
    let mut values = values.to_vec();
    if at_most >= values.len() {
        return 0.0;
    }
    *values.select_nth_unstable_by(at_most, |a, b| b.total_cmp(a)).1
}

fn divide_by_best(scores: &mut [f32]) {
    let best = scores.iter().copied().fold(0.0, f32::max);
    if best > 0.0 {
        scores.iter_mut().for_each(|score| *score /= best);
    }
}

/// The positions of the best scores above zero that may be found.
fn best_of(scores: &[f32], at_most: usize, mut may_be_found: impl FnMut(usize) -> bool) -> Vec<(usize, f64)> {
    let scored = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
    let mut left: BinaryHeap<_> = scored.map(|(tool, score)| Scored { score: *score, tool }).collect();
    let best = std::iter::from_fn(|| left.pop()).filter(|scored| may_be_found(scored.tool));
    best.take(at_most).map(|scored| (scored.tool, f64::from(scored.score))).collect()
}

/// Orders by score; of equal scores the first tool is the greatest.
#[derive(Debug, Clone, Copy)]
struct Scored {
    score: f32,
    tool: usize,
}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.tool.cmp(&self.tool))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scored {}
