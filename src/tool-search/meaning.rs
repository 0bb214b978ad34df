//! Ranks by meaning: how close the vectors of tools are to the vector of a text.

use std::collections::HashMap;
use std::sync::Arc;

use crate::document::{Field, Searchable};
use crate::embeddings::Embeddings;
use crate::word_index::WordIndex;
use crate::words::{Stems, words};

/// The length of a vector in whole numbers.
const LENGTH: f32 = 127.0;

/// The vectors of tools.
#[derive(Debug)]
pub(crate) struct MeaningIndex {
    embeddings: Arc<Embeddings>,
    /// One after the other, each of [`LENGTH`].
    vectors: Vec<i8>,
}

/// The weight of a field's words in the vector of a tool, and the maximum of its words.
fn share(field: Field) -> Option<(f32, usize)> {
    match field {
        Field::Name => Some((2.0, 64)),
        Field::Description => Some((1.0, 48)),
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
        for tool in tools {
            let mut sum = vec![0.0; embeddings.dimensions()];
            tool.for_each_text(|field, text| {
                let Some((weight, most)) = share(field) else { return };
                for word in words(text).into_iter().take(most) {
                    let vector = known.entry(word).or_insert_with_key(|word| {
                        let mut vector = vec![0.0; embeddings.dimensions()];
                        embeddings.add_word(word, word_index.information(&stems.of(word)), &mut vector);
                        vector
                    });
                    sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * *value);
                }
            });
            vectors.extend(quantised(&sum));
        }
        Self { embeddings, vectors }
    }

    /// The vector of words with their weights.
    pub(crate) fn vector<'a>(&self, words: impl IntoIterator<Item = (&'a str, f32)>) -> Vec<i8> {
        let mut sum = vec![0.0; self.embeddings.dimensions()];
        for (word, weight) in words {
            self.embeddings.add_word(word, weight, &mut sum);
        }
        quantised(&sum)
    }

    /// How close each tool is to the vector, from -1 to 1.
    pub(crate) fn closeness(&self, vector: &[i8]) -> impl Iterator<Item = f32> {
        let tools = self.vectors.chunks_exact(self.embeddings.dimensions());
        tools.map(move |tool| dot(tool, vector) as f32 / (LENGTH * LENGTH))
    }
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(i16::from(*a) * i16::from(*b))).sum()
}

/// A vector of [`LENGTH`] in the same direction; of zeros for zeros.
fn quantised(vector: &[f32]) -> Vec<i8> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    let factor = if length > 0.0 { LENGTH / length } else { 0.0 };
    vector.iter().map(|value| whole(value * factor)).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a value of a vector of this length is at most 127")]
fn whole(value: f32) -> i8 {
    value.round() as i8
}
