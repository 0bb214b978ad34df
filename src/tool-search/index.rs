//! The index of tools, and how the ranks by words and by meaning become one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::document::Searchable;
use crate::embeddings::Embeddings;
use crate::file_types::words_of_files;
use crate::meaning::MeaningIndex;
use crate::steps::steps;
use crate::stop_words::{are_stop_words, without_stop_words};
use crate::word_index::{Posting, WordIndex};
use crate::words::{Stems, words};

/// Maximum distinct words of a task or step that count: those that say the most.
const MAX_WORDS: usize = 48;

/// Share of the words in a score, where there is meaning beside them; each part counts by its best tool.
const WORD_SHARE: f32 = 0.5;

/// Weight of the step that fits a tool best by its words, beside the whole task. Steps have no vectors: these took most of the time
/// of a search, and brought nothing.
const STEP_WEIGHT: f32 = 0.25;

/// Share of the best score of its source that a tool gains.
const SOURCE_WEIGHT: f32 = 0.4;

/// Minimum closeness of a tool that shares no word with the query, and the maximum of such tools.
const MIN_CLOSENESS: f32 = 0.3;
const MAX_CLOSE: usize = 100;

/// The words and vectors of all tools.
#[derive(Debug, Default)]
pub struct SearchIndex {
    words: WordIndex,
    meaning: Option<MeaningIndex>,
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
        Self { words, meaning, groups: groups.collect() }
    }

    /// Positions in `tools` with their scores, best first; equal scores in the order of the tools.
    pub fn search(&self, query: &str, at_most: usize) -> Vec<(usize, f64)> {
        self.search_by(Part::All, query, at_most)
    }

    /// As [`search`](Self::search), by a part of what there is.
    pub fn search_by(&self, part: Part, query: &str, at_most: usize) -> Vec<(usize, f64)> {
        let mut asked = Asked { index: self, stems: Stems::new(), gains: HashMap::new() };
        let mut scores = asked.scores(query, part);
        let mut best_step = vec![0.0_f32; scores.len()];
        let steps = if [Part::WithoutSteps, Part::Meaning].contains(&part) { Vec::new() } else { steps(query) };
        for step in steps.iter().filter(|step| !are_stop_words(&words(step))) {
            let of_step = asked.scores(step, Part::Words);
            best_step.iter_mut().zip(of_step).for_each(|(best, score)| *best = best.max(score));
        }
        scores.iter_mut().zip(best_step).for_each(|(score, step)| *score += STEP_WEIGHT * step);
        best_of(scores, at_most)
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
    /// The score of each tool for a text.
    fn scores(&mut self, text: &str, part: Part) -> Vec<f32> {
        let words = self.query_words(text);
        let mut scores = vec![0.0_f32; self.index.groups.len()];
        if part != Part::Meaning {
            for word in &words {
                let gained = self.gains.entry(word.stem.clone());
                let gained = gained.or_insert_with(|| self.index.words.gains(&word.stem));
                for Posting { tool, weight } in gained {
                    scores.get_mut(*tool).into_iter().for_each(|score| *score += *weight);
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
                let information = self.index.words.information(&stem);
                seen.insert(stem.clone()).then_some(QueryWord { word, stem, information })
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

/// The positions of the best scores above zero.
fn best_of(scores: Vec<f32>, at_most: usize) -> Vec<(usize, f64)> {
    let scores = scores.into_iter().map(f64::from).enumerate();
    let mut ranked: Vec<_> = scores.filter(|(_, score)| *score > 0.0).collect();
    let by_score = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if at_most < ranked.len() {
        ranked.select_nth_unstable_by(at_most, by_score);
        ranked.truncate(at_most);
    }
    ranked.sort_unstable_by(by_score);
    ranked
}
