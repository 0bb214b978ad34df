//! A table of static embeddings: a vector for each token, so that the vector of a text is the mean of its tokens' vectors.
//!
//! The file has the line [`MAGIC`], the numbers of tokens and of dimensions (`u32`, little-endian, as all numbers), and for each token
//! the length of its text (`u8`), its text in UTF-8, its scale (`f32`) and one `i8` for each dimension: the vector divided by its scale.

use std::collections::HashMap;

use thiserror::Error;

/// The first bytes of a file, with the version of its form.
const MAGIC: &[u8] = b"sekisho embeddings 1\n";

/// Maximum bytes of a file.
pub const MAX_EMBEDDINGS_BYTES: u64 = 16 << 20;

/// Maximum dimensions of a vector.
const MAX_DIMENSIONS: usize = 1_024;

/// What stands for the beginning of a word.
const WORD_START: char = '▁';

/// A file that is no table of embeddings.
#[derive(Debug, Error)]
pub enum InvalidEmbeddings {
    #[error("is larger than {MAX_EMBEDDINGS_BYTES} bytes")]
    TooLarge,
    #[error("does not begin with \"sekisho embeddings 1\"")]
    OtherForm,
    #[error("ends before its last token, or has more bytes after it")]
    WrongLength,
    #[error("has {0} dimensions; 1 to {MAX_DIMENSIONS} are possible")]
    Dimensions(usize),
    #[error("has a token that is not UTF-8, or a scale that is not finite")]
    InvalidToken,
}

/// The vectors of tokens.
pub struct Embeddings {
    tokens: HashMap<Box<str>, u32>,
    scales: Vec<f32>,
    values: Vec<i8>,
    dimensions: usize,
}

impl std::fmt::Debug for Embeddings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tokens, dimensions) = (self.scales.len(), self.dimensions);
        formatter.debug_struct("Embeddings").field("tokens", &tokens).field("dimensions", &dimensions).finish()
    }
}

impl Embeddings {
    /// Reads the bytes of a file.
    /// Errors: the bytes are no table of embeddings.
    pub fn read(bytes: &[u8]) -> Result<Self, InvalidEmbeddings> {
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_EMBEDDINGS_BYTES {
            return Err(InvalidEmbeddings::TooLarge);
        }
        let mut rest = Reader(bytes.strip_prefix(MAGIC).ok_or(InvalidEmbeddings::OtherForm)?);
        let (count, dimensions) = (rest.number()?, rest.number()?);
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(InvalidEmbeddings::Dimensions(dimensions));
        }
        // Each token has at least its length, its scale and its vector.
        if count.saturating_mul(dimensions) > rest.0.len() {
            return Err(InvalidEmbeddings::WrongLength);
        }
        let mut table = Self {
            tokens: HashMap::with_capacity(count),
            scales: Vec::with_capacity(count),
            values: Vec::with_capacity(count * dimensions),
            dimensions,
        };
        for token in 0..count {
            table.add(u32::try_from(token).map_err(|_| InvalidEmbeddings::TooLarge)?, &mut rest)?;
        }
        if rest.0.is_empty() { Ok(table) } else { Err(InvalidEmbeddings::WrongLength) }
    }

    fn add(&mut self, token: u32, rest: &mut Reader<'_>) -> Result<(), InvalidEmbeddings> {
        let length = usize::from(rest.array::<1>()?[0]);
        let text = std::str::from_utf8(rest.take(length)?).map_err(|_| InvalidEmbeddings::InvalidToken)?;
        let scale = f32::from_le_bytes(rest.array()?);
        if !scale.is_finite() {
            return Err(InvalidEmbeddings::InvalidToken);
        }
        self.tokens.entry(text.into()).or_insert(token);
        self.scales.push(scale);
        self.values.extend(rest.take(self.dimensions)?.iter().map(|byte| i8::from_le_bytes([*byte])));
        Ok(())
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Adds the vector of a word to a sum: the mean of its tokens' vectors, times `weight`. Characters without a token are left out.
    pub(crate) fn add_word(&self, word: &str, weight: f32, sum: &mut [f32]) {
        let tokens = self.tokens_of(word);
        let share = weight / f32::from(u16::try_from(tokens.len().max(1)).unwrap_or(u16::MAX));
        for token in tokens {
            let values = self.values.chunks_exact(self.dimensions).nth(token).unwrap_or_default();
            let factor = share * self.scales.get(token).copied().unwrap_or_default();
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * f32::from(*value));
        }
    }

    /// The tokens of a word, as byte pair encoding finds them: of two adjacent tokens that make one, those first whose token is the
    /// most frequent, which has the lowest number.
    fn tokens_of(&self, word: &str) -> Vec<usize> {
        let text: String = std::iter::once(WORD_START).chain(word.chars()).collect();
        if let Some(whole) = self.tokens.get(text.as_str()).and_then(|token| usize::try_from(*token).ok()) {
            return vec![whole];
        }
        let mut starts: Vec<usize> = text.char_indices().map(|(start, _)| start).collect();
        let mut ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
        loop {
            let pair = |at: usize| Some((*self.tokens.get(&text[*starts.get(at)?..*ends.get(at + 1)?])?, at));
            let Some((_, at)) = (0..starts.len()).filter_map(pair).min() else { break };
            starts.remove(at + 1);
            ends.remove(at);
        }
        let found = starts.iter().zip(&ends).filter_map(|(start, end)| self.tokens.get(&text[*start..*end]));
        found.filter_map(|token| usize::try_from(*token).ok()).collect()
    }
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], InvalidEmbeddings> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(InvalidEmbeddings::WrongLength)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], InvalidEmbeddings> {
        self.take(LENGTH)?.try_into().map_err(|_| InvalidEmbeddings::WrongLength)
    }

    fn number(&mut self) -> Result<usize, InvalidEmbeddings> {
        usize::try_from(u32::from_le_bytes(self.array()?)).map_err(|_| InvalidEmbeddings::TooLarge)
    }
}
