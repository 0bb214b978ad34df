//! Ranks by words: BM25 over the fields of tools, each with a weight.
//!
//! Ranking after Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields as
//! in BM25F (§3.6): a word in the name counts more than one in the description.

use std::collections::HashMap;

use crate::document::{Field, Searchable};
use crate::synonyms;
use crate::vocabulary::Vocabulary;
use crate::words::{Stems, words};

/// BM25's parameters for term saturation and length normalization.
const K1: f32 = 1.6;
const B: f32 = 0.75;

/// Weight of a word that is only like the query's: "calculator" for "calc".
const ALIKE_WEIGHT: f32 = 0.4;
/// Weight of a word that often means the same.
const SYNONYM_WEIGHT: f32 = 0.4;

/// Maximum distinct words of a tool: those with the most weight. Of LiveMCPBench's tools half have fewer than 40.
const MAX_TOOL_WORDS: usize = 192;
/// Maximum distinct words of all tools, and the part of them that words in names do not take from others.
const MAX_VOCABULARY: usize = 65_536;
const MAX_OUTSIDE_NAMES: usize = MAX_VOCABULARY / 4 * 3;

/// The words of all tools, with the weight of each word for each tool.
#[derive(Debug, Default)]
pub(crate) struct WordIndex {
    vocabulary: Vocabulary,
    /// Where the postings of each word begin, and at last where all end.
    starts: Vec<usize>,
    postings: Vec<Posting>,
    tools: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Posting {
    pub(crate) tool: u32,
    /// The word's weighted frequency, saturated and normalized by the text's length: BM25 without the inverse document frequency.
    pub(crate) weight: f32,
}

/// A word that is close in meaning to one of a query, by its number, with its weight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    pub(crate) word: usize,
    pub(crate) weight: f32,
}

impl WordIndex {
    pub(crate) fn build(tools: &[Searchable<'_>], stems: &Stems) -> Self {
        let mut collected = Collected::default();
        let texts: Vec<_> = tools.iter().map(|tool| collected.add(tool, stems)).collect();
        let mean_length = texts.iter().map(|text| text.length).sum::<f32>() / count(texts.len().max(1));
        let mut words: Vec<_> = collected.numbers.into_iter().collect();
        words.sort_unstable();
        let mut places = vec![0; words.len()];
        for (place, (_, number)) in words.iter().enumerate() {
            places[*number] = place;
        }
        let mut postings = vec![Vec::new(); words.len()];
        for (tool, text) in (0..).zip(&texts) {
            let norm = K1 * (1.0 - B + B * text.length / mean_length.max(1.0));
            for (number, frequency) in &text.words {
                let weight = frequency * (K1 + 1.0) / (frequency + norm);
                postings[places[*number]].push(Posting { tool, weight });
            }
        }
        let mut starts = vec![0];
        starts.extend(postings.iter().scan(0, |end, of_word| {
            *end += of_word.len();
            Some(*end)
        }));
        let vocabulary = Vocabulary::of_sorted(words.into_iter().map(|(word, _)| word).collect());
        Self { vocabulary, starts, postings: postings.concat(), tools: tools.len() }
    }

    /// The gain of each tool by a stem of a query: several forms of it in a tool count as one. Words that are `near` it say no more
    /// than it does.
    pub(crate) fn gains(&self, stem: &str, near: &[Near]) -> Vec<Posting> {
        let own = self.vocabulary.number(stem);
        let own_rarity = self.information(stem);
        let alike = if own.is_none() { self.vocabulary.alike(stem) } else { Vec::new() };
        let synonyms = synonyms::of(stem).filter_map(|other| self.vocabulary.number(other));
        let full = |weight: f32| move |word: usize| (word, weight * self.rarity(self.postings_of(word).len()));
        let found: Vec<_> = own
            .into_iter()
            .map(full(1.0))
            .chain(alike.into_iter().map(full(ALIKE_WEIGHT)))
            .chain(synonyms.map(full(SYNONYM_WEIGHT)))
            .chain(near.iter().filter(|near| Some(near.word) != own).map(|near| {
                let rarity = self.rarity(self.postings_of(near.word).len()).min(own_rarity);
                (near.word, near.weight * rarity)
            }))
            .collect();
        let weighted = |(word, weight): &(usize, f32)| {
            let weight = *weight;
            self.postings_of(*word).iter().map(move |posting| Posting { weight: posting.weight * weight, ..*posting })
        };
        if let [only] = found.as_slice() {
            return weighted(only).collect();
        }
        // Not all tools are looked at in the end: most have none of the words.
        let (mut best, mut having) = (vec![0.0_f32; self.tools], Vec::new());
        for posting in found.iter().flat_map(weighted) {
            let Some(gain) = best.get_mut(at(posting.tool)) else { continue };
            if *gain == 0.0 {
                having.push(posting.tool);
            }
            *gain = gain.max(posting.weight);
        }
        having.into_iter().filter_map(|tool| Some(Posting { tool, weight: *best.get(at(tool))? })).collect()
    }

    /// The number of a stem that a tool has.
    pub(crate) fn number(&self, stem: &str) -> Option<usize> {
        self.vocabulary.number(stem)
    }

    /// How many tools have the word of that number.
    pub(crate) fn tools_with(&self, word: usize) -> usize {
        self.postings_of(word).len()
    }

    /// How much a stem says: its inverse document frequency, of a word without tools as if one had it.
    pub(crate) fn information(&self, stem: &str) -> f32 {
        self.rarity(self.vocabulary.number(stem).map_or(1, |word| self.postings_of(word).len()))
    }

    fn postings_of(&self, word: usize) -> &[Posting] {
        let range = self.starts.get(word).zip(self.starts.get(word + 1));
        range.and_then(|(start, end)| self.postings.get(*start..*end)).unwrap_or_default()
    }

    /// The inverse document frequency, in the form that stays positive for words most tools have.
    fn rarity(&self, having: usize) -> f32 {
        let (all, having) = (count(self.tools), count(having));
        (1.0 + (all - having + 0.5).max(0.0) / (having + 0.5)).ln()
    }
}

/// The position of a tool.
pub(crate) fn at(tool: u32) -> usize {
    usize::try_from(tool).unwrap_or(usize::MAX)
}

fn count(number: usize) -> f32 {
    number as f32
}

/// The words so far, in the order in which they were found.
#[derive(Default)]
struct Collected {
    numbers: HashMap<Box<str>, usize>,
}

/// The weighted frequencies of the words of a tool.
struct Text {
    words: Vec<(usize, f32)>,
    /// Their sum, with the one of words that are left out.
    length: f32,
}

/// A stem of a tool, with its weighted frequency.
struct Stem {
    text: String,
    frequency: f32,
    is_of_name: bool,
}

impl Collected {
    fn add(&mut self, tool: &Searchable<'_>, stems: &Stems) -> Text {
        let (mut places, mut found) = (HashMap::new(), Vec::<Stem>::new());
        let mut length = 0.0;
        let mut add = |text: &str, weight: f32, is_of_name: bool| {
            for word in words(text) {
                length += weight;
                let text = stems.of(&word);
                let place = *places.entry(text.clone()).or_insert(found.len());
                match found.get_mut(place) {
                    Some(stem) => stem.frequency += weight,
                    None => found.push(Stem { text, frequency: weight, is_of_name }),
                }
            }
        };
        tool.for_each_text(|field, text| {
            let is_name = field == Field::Name;
            add(text, field.weight(), is_name);
            if is_name {
                // So that "websearch" finds `web_search` and `webSearch`.
                let joined = text.replace(|character: char| !character.is_alphanumeric(), "").to_lowercase();
                if joined != text {
                    add(&joined, Field::Description.weight(), true);
                }
            }
        });
        found.sort_by(|a, b| b.frequency.total_cmp(&a.frequency));
        found.truncate(MAX_TOOL_WORDS);
        let words = found.into_iter().filter_map(|stem| Some((self.number(&stem)?, stem.frequency)));
        Text { words: words.collect(), length }
    }

    /// The number of a stem; of a new one, if there is room.
    fn number(&mut self, stem: &Stem) -> Option<usize> {
        let next = self.numbers.len();
        let most = if stem.is_of_name { MAX_VOCABULARY } else { MAX_OUTSIDE_NAMES };
        match self.numbers.get(stem.text.as_str()) {
            Some(number) => Some(*number),
            None if next >= most => None,
            None => Some(*self.numbers.entry(stem.text.as_str().into()).or_insert(next)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn index(texts: &[(String, String)]) -> WordIndex {
        let parameters = Value::Null;
        let tools = texts.iter().map(|(name, description)| Searchable {
            name,
            description,
            category: "",
            source: "",
            parameters: &parameters,
        });
        WordIndex::build(&tools.collect::<Vec<_>>(), &Stems::new())
    }

    #[test]
    fn words_are_bounded_and_those_of_names_have_room_that_others_cannot_take() {
        let letters =
            |number: usize| number.to_string().bytes().map(|digit| char::from(digit + 49)).collect::<String>();
        let long = |tool: usize| (0..1_000).map(|word| format!("zz{} ", letters(tool * 1_000 + word))).collect();
        let mut texts: Vec<_> = (0..500).map(|tool| ("x".to_owned(), long(tool))).collect();
        texts.push(("unmistakable".to_owned(), "hidden".to_owned()));
        let index = index(&texts);
        assert_eq!(index.starts.len() - 1, MAX_OUTSIDE_NAMES + 1);
        assert!(index.postings.len() <= texts.len() * MAX_TOOL_WORDS);
        let last = u32::try_from(texts.len() - 1).unwrap();
        assert_eq!(index.gains("unmistak", &[]).iter().map(|posting| posting.tool).collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn an_index_is_the_same_each_time() {
        let texts: Vec<_> =
            (0..50).map(|tool| (format!("tool_{tool}"), format!("a{tool} text of many different words"))).collect();
        let (first, second) = (index(&texts), index(&texts));
        assert_eq!(first.postings, second.postings);
    }
}
