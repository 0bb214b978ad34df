//! Ranks by words: BM25 over the fields of tools, each with a weight.
//!
//! Ranking after Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields as
//! in BM25F (§3.6): a word in the name counts more than one in the description.

use std::collections::{BTreeMap, HashMap};

use crate::document::{Field, Searchable};
use crate::synonyms;
use crate::words::{Stems, beginning, is_cjk, words};

/// BM25's parameters for term saturation and length normalization.
const K1: f32 = 1.6;
const B: f32 = 0.75;

/// Weight of a word that only shares its beginning with the query's: "calculator" for "calc".
const ALIKE_WEIGHT: f32 = 0.4;
/// Weight of a word that often means the same.
const SYNONYM_WEIGHT: f32 = 0.4;
/// Minimum letters of a beginning that is matched.
const SHORTEST_BEGINNING: usize = 3;
/// Maximum words looked up for one beginning.
const MAX_COMPLETIONS: usize = 64;

/// The words of all tools, with the weight of each word for each tool.
#[derive(Debug, Default)]
pub(crate) struct WordIndex {
    postings: BTreeMap<String, Vec<Posting>>,
    tools: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) tool: usize,
    /// The word's weighted frequency, saturated and normalized by the text's length: BM25 without the inverse document frequency.
    pub(crate) weight: f32,
}

impl WordIndex {
    pub(crate) fn build(tools: &[Searchable<'_>], stems: &Stems) -> Self {
        let texts: Vec<_> = tools.iter().map(|tool| frequencies(tool, stems)).collect();
        let length = |frequencies: &HashMap<String, f32>| frequencies.values().sum::<f32>();
        let mean_length = texts.iter().map(length).sum::<f32>() / count(texts.len().max(1));
        let mut postings = BTreeMap::<String, Vec<Posting>>::new();
        for (tool, text) in texts.into_iter().enumerate() {
            let norm = K1 * (1.0 - B + B * length(&text) / mean_length.max(1.0));
            for (word, frequency) in text {
                let weight = frequency * (K1 + 1.0) / (frequency + norm);
                postings.entry(word).or_default().push(Posting { tool, weight });
            }
        }
        Self { postings, tools: tools.len() }
    }

    /// The gain of each tool by a stem of a query: several forms of it in a tool count as one.
    pub(crate) fn gains(&self, stem: &str) -> Vec<Posting> {
        let (mut best, mut having) = (vec![0.0_f32; self.tools], Vec::new());
        let others = synonyms::of(stem).filter_map(|other| self.postings.get(other));
        let others = others.map(|postings| (postings.as_slice(), SYNONYM_WEIGHT));
        for (postings, weight) in self.matches(stem).chain(others) {
            let rarity = self.rarity(postings.len());
            for posting in postings {
                let Some(gain) = best.get_mut(posting.tool) else { continue };
                if *gain == 0.0 {
                    having.push(posting.tool);
                }
                *gain = gain.max(weight * rarity * posting.weight);
            }
        }
        having.into_iter().filter_map(|tool| Some(Posting { tool, weight: *best.get(tool)? })).collect()
    }

    /// The stem itself; where no tool has it, words that begin with it, and words that are a beginning of it.
    fn matches<'s>(&'s self, word: &'s str) -> impl Iterator<Item = (&'s [Posting], f32)> {
        let letters = word.chars().count();
        let shortest = if word.chars().all(is_cjk) { 1 } else { SHORTEST_BEGINNING };
        let exact = self.postings.get(word);
        let is_unknown = exact.is_none();
        let longer = self
            .postings
            .range(word.to_owned()..)
            .take_while(move |(other, _)| other.starts_with(word))
            .filter(move |(other, _)| *other != word && letters >= shortest && is_unknown)
            .take(MAX_COMPLETIONS)
            .map(|(_, postings)| postings);
        let shorter = (SHORTEST_BEGINNING + 1..letters)
            .filter(move |_| is_unknown)
            .filter_map(move |letters| self.postings.get(beginning(word, letters)));
        let alike = longer.chain(shorter).map(|postings| (postings.as_slice(), ALIKE_WEIGHT));
        exact.map(|postings| (postings.as_slice(), 1.0)).into_iter().chain(alike)
    }

    /// How much a stem says: its inverse document frequency, of a word without tools as if one had it.
    pub(crate) fn information(&self, stem: &str) -> f32 {
        self.rarity(self.postings.get(stem).map_or(1, Vec::len))
    }

    /// The inverse document frequency, in the form that stays positive for words most tools have.
    fn rarity(&self, having: usize) -> f32 {
        let (all, having) = (count(self.tools), count(having));
        (1.0 + (all - having + 0.5).max(0.0) / (having + 0.5)).ln()
    }
}

fn count(number: usize) -> f32 {
    number as f32
}

/// The weighted frequency of each stem in a tool's texts.
fn frequencies(tool: &Searchable<'_>, stems: &Stems) -> HashMap<String, f32> {
    let mut frequencies = HashMap::new();
    let mut add = |text: &str, weight: f32| {
        for word in words(text) {
            *frequencies.entry(stems.of(&word)).or_default() += weight;
        }
    };
    tool.for_each_text(|field, text| {
        add(text, field.weight());
        if field == Field::Name {
            // So that "websearch" finds `web_search` and `webSearch`.
            let joined = text.replace(|character: char| !character.is_alphanumeric(), "").to_lowercase();
            if joined != text {
                add(&joined, Field::Description.weight());
            }
        }
    });
    frequencies
}
