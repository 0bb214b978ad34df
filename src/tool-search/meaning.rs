//! Ranks by meaning: how close the vectors of tools are to the vector of a text, and which words of names are close to a word.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::document::{Field, Searchable};
use crate::embeddings::Embeddings;
use crate::word_index::{Near, WordIndex};
use crate::words::{Stems, words};

/// The length of a vector in whole numbers. Bytes would need half the memory, and twice the time of a search: what multiplies eight
/// numbers at once multiplies 16-bit ones.
const LENGTH: f32 = 1_024.0;

/// Maximum words of a tool that its vector is made of.
const MAX_WORDS: usize = 192;
/// Maximum vectors of words that are kept while an index is built: 4 MB.
const MAX_KEPT: usize = 4_096;
/// Maximum words of names that a word of a query is compared with: those that most tools have.
const MAX_NAME_WORDS: usize = 4_096;
/// Maximum of them that are near one word.
const MAX_NEAR: usize = 8;
/// Closeness at which two words begin to be near each other.
const NEAR_CLOSENESS: f32 = 0.3;
/// Weight of a near word as a hit, if it has the same meaning.
const NEAR_WEIGHT: f32 = 0.5;

/// The vectors of tools.
#[derive(Debug)]
pub(crate) struct MeaningIndex {
    embeddings: Arc<Embeddings>,
    /// One after the other, each of [`LENGTH`].
    vectors: Vec<i16>,
    /// The numbers of words of names, and their vectors.
    name_words: Vec<usize>,
    name_vectors: Vec<i16>,
}

/// The weight of a field's words in the vector of a tool, and the maximum of its words.
fn share(field: Field) -> Option<(f32, usize)> {
    match field {
        Field::Name => Some((2.0, 32)),
        Field::Description => Some((1.0, 32)),
        Field::Category => Some((0.5, 32)),
        Field::ParameterName => Some((0.3, 8)),
        Field::ParameterText | Field::Value => None,
    }
}

impl MeaningIndex {
    pub(crate) fn build(
        tools: &[Searchable<'_>],
        embeddings: Arc<Embeddings>,
        word_index: &WordIndex,
        stems: &Stems,
    ) -> Self {
        let mut known = HashMap::<String, Vec<f32>>::new();
        let mut vectors = Vec::with_capacity(tools.len() * embeddings.dimensions());
        let mut names = BTreeMap::new();
        for tool in tools {
            let mut sum = vec![0.0; embeddings.dimensions()];
            let mut left = MAX_WORDS;
            tool.for_each_text(|field, text| {
                let Some((weight, most)) = share(field) else { return };
                for word in words(text).into_iter().take(most.min(left)) {
                    left -= 1;
                    if known.len() >= MAX_KEPT {
                        known.clear();
                    }
                    let number = (field == Field::Name).then(|| word_index.number(&stems.of(&word))).flatten();
                    let vector = known.entry(word).or_insert_with_key(|word| {
                        let mut vector = vec![0.0; embeddings.dimensions()];
                        embeddings.add_word(word, word_index.information(&stems.of(word)), &mut vector);
                        vector
                    });
                    if let Some(number) = number {
                        names.entry(number).or_insert_with(|| quantised(vector));
                    }
                    sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * *value);
                }
            });
            vectors.extend(quantised(&sum));
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(word, _)| std::cmp::Reverse(word_index.tools_with(*word)));
        names.truncate(MAX_NAME_WORDS);
        let (name_words, name_vectors): (_, Vec<_>) = names.into_iter().unzip();
        Self { embeddings, vectors, name_words, name_vectors: name_vectors.concat() }
    }

    /// The vector of words with their weights.
    pub(crate) fn vector<'a>(&self, words: impl IntoIterator<Item = (&'a str, f32)>) -> Vec<i16> {
        let mut sum = vec![0.0; self.embeddings.dimensions()];
        for (word, weight) in words {
            self.embeddings.add_word(word, weight, &mut sum);
        }
        quantised(&sum)
    }

    /// How close each tool is to the vector, from -1 to 1.
    pub(crate) fn closeness<'a>(&'a self, vector: &'a [i16]) -> impl Iterator<Item = f32> + use<'a> {
        self.compare(&self.vectors, vector)
    }

    /// The words of names that are nearest in meaning to a word.
    pub(crate) fn near(&self, word: &str) -> Vec<Near> {
        let vector = self.vector([(word, 1.0)]);
        let closeness = self.compare(&self.name_vectors, &vector).zip(&self.name_words);
        let mut near: Vec<_> = closeness.filter(|(closeness, _)| *closeness > NEAR_CLOSENESS).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        let near = near.into_iter().take(MAX_NEAR);
        near.map(|(closeness, word)| Near {
            word: *word,
            weight: NEAR_WEIGHT * (closeness - NEAR_CLOSENESS) / (1.0 - NEAR_CLOSENESS),
        })
        .collect()
    }

    fn compare<'a>(&self, vectors: &'a [i16], vector: &'a [i16]) -> impl Iterator<Item = f32> + use<'a> {
        vectors.chunks_exact(self.embeddings.dimensions()).map(|other| dot(other, vector) as f32 / (LENGTH * LENGTH))
    }
}

fn dot(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// A vector of [`LENGTH`] in the same direction; of zeros for zeros.
fn quantised(vector: &[f32]) -> Vec<i16> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    let factor = if length > 0.0 { LENGTH / length } else { 0.0 };
    vector.iter().map(|value| whole(value * factor)).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a value of a vector of this length is at most that")]
fn whole(value: f32) -> i16 {
    value.round() as i16
}
