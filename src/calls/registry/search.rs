//! Searches tools offline: BM25 over names, descriptions and parameters.
//!
//! Ranking after Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
//! (2009), with weighted fields as in BM25F (§3.6): a word in the name counts more than one in the description.

mod stop_words;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use self::stop_words::is_stop_word;
use crate::tool::Tool;

/// BM25's parameters for term saturation and length normalization, with the usual values.
const K1: f64 = 1.2;
const B: f64 = 0.75;

const NAME_WEIGHT: f64 = 4.0;
const PARAMETER_NAME_WEIGHT: f64 = 1.5;
const TEXT_WEIGHT: f64 = 1.0;

/// Weight of a word that only shares its beginning with the query's: "calculator" for "calc" or "calculate".
const ALIKE_WEIGHT: f64 = 0.4;
/// Minimum letters of a beginning that is matched.
const SHORTEST_BEGINNING: usize = 3;
/// The stem of a longer word is the word without its last letters, which may be an ending ("-ion", "-ing")...
const MAX_ENDING: usize = 3;
/// ... but has at least this many letters.
const SHORTEST_STEM: usize = 5;
/// Maximum words looked up for one beginning.
const MAX_COMPLETIONS: usize = 64;
/// Maximum distinct words of a query that count, beside stop words; later ones are ignored.
const MAX_QUERY: usize = 32;

/// The searched texts of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Searchable<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub category: &'a str,
    /// JSON Schema of the arguments.
    pub parameters: &'a Value,
}

impl<'a> From<&'a Tool> for Searchable<'a> {
    fn from(tool: &'a Tool) -> Self {
        let metadata = &tool.metadata;
        let (name, description, category) = (&metadata.name, &metadata.description, &metadata.category);
        Self { name, description, category, parameters: tool.input.document() }
    }
}

/// The words of all tools, with the weight of each word for each tool.
#[derive(Debug, Default)]
pub struct SearchIndex {
    postings: BTreeMap<String, Vec<Posting>>,
    tools: usize,
}

#[derive(Debug)]
struct Posting {
    tool: usize,
    /// The word's weighted frequency, saturated and normalized by the text's length: BM25 without
    /// the inverse document frequency.
    weight: f64,
}

impl SearchIndex {
    pub fn build<'a>(tools: impl IntoIterator<Item = Searchable<'a>>) -> Self {
        let texts: Vec<_> = tools.into_iter().map(frequencies).collect();
        let tools = texts.len();
        let length = |frequencies: &HashMap<String, f64>| frequencies.values().sum::<f64>();
        let mean_length = texts.iter().map(length).sum::<f64>() / count(texts.len().max(1));
        let mut postings = BTreeMap::<String, Vec<Posting>>::new();
        for (tool, text) in texts.into_iter().enumerate() {
            let norm = K1 * (1.0 - B + B * length(&text) / mean_length.max(1.0));
            for (word, frequency) in text {
                let weight = frequency * (K1 + 1.0) / (frequency + norm);
                postings.entry(word).or_default().push(Posting { tool, weight });
            }
        }
        Self { postings, tools }
    }

    /// Positions in `tools` with their scores, best first; equal scores in the order of the tools.
    pub fn search(&self, query: &str, at_most: usize) -> Vec<(usize, f64)> {
        let mut scores = vec![0.0; self.tools];
        let mut best = vec![0.0; self.tools];
        let mut seen = HashSet::new();
        let mut query = words(query);
        query.retain(|word| seen.insert(word.clone()));
        if query.iter().any(|word| !is_stop_word(word)) {
            query.retain(|word| !is_stop_word(word));
        }
        for word in query.iter().take(MAX_QUERY) {
            // Several forms of a word in a tool count as one.
            best.fill(0.0);
            for (postings, weight) in self.matches(word) {
                let rarity = self.rarity(postings.len());
                for posting in postings {
                    best[posting.tool] = f64::max(best[posting.tool], weight * rarity * posting.weight);
                }
            }
            scores.iter_mut().zip(&best).for_each(|(score, gained)| *score += gained);
        }
        let mut ranked: Vec<_> = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0).collect();
        let by_score = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if at_most < ranked.len() {
            ranked.select_nth_unstable_by(at_most, by_score);
            ranked.truncate(at_most);
        }
        ranked.sort_unstable_by(by_score);
        ranked
    }

    /// The word itself, words that begin with it or its stem, and words that are a beginning of it.
    fn matches<'s>(&'s self, word: &'s str) -> impl Iterator<Item = (&'s [Posting], f64)> {
        let letters = word.chars().count();
        let shortest = if word.chars().all(is_cjk) { 1 } else { SHORTEST_BEGINNING };
        let stem = beginning(word, letters.saturating_sub(MAX_ENDING).max(SHORTEST_STEM));
        let longer = self
            .postings
            .range(stem.to_owned()..)
            .take_while(move |(other, _)| other.starts_with(stem))
            .filter(move |(other, _)| *other != word && letters >= shortest)
            .take(MAX_COMPLETIONS)
            .map(|(_, postings)| postings);
        let shorter = (SHORTEST_BEGINNING + 1..stem.chars().count())
            .filter_map(move |letters| self.postings.get(beginning(word, letters)));
        let alike = longer.chain(shorter).map(|postings| (postings.as_slice(), ALIKE_WEIGHT));
        self.postings.get(word).map(|postings| (postings.as_slice(), 1.0)).into_iter().chain(alike)
    }

    /// The inverse document frequency, in the form that stays positive for words most tools have.
    fn rarity(&self, having: usize) -> f64 {
        let (all, having) = (count(self.tools), count(having));
        (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
    }
}

fn beginning(word: &str, letters: usize) -> &str {
    word.char_indices().nth(letters).map_or(word, |(end, _)| &word[..end])
}

fn count(number: usize) -> f64 {
    number as f64
}

/// The weighted frequency of each word in a tool's texts.
fn frequencies(tool: Searchable<'_>) -> HashMap<String, f64> {
    let mut frequencies = HashMap::new();
    let mut add = |text: &str, weight: f64| {
        for word in words(text) {
            *frequencies.entry(word).or_default() += weight;
        }
    };
    add(tool.name, NAME_WEIGHT);
    // So that "websearch" finds `web_search` and `webSearch`.
    let joined = tool.name.replace(|character: char| !character.is_alphanumeric(), "").to_lowercase();
    if joined != tool.name {
        add(&joined, TEXT_WEIGHT);
    }
    add(tool.description, TEXT_WEIGHT);
    add(tool.category, TEXT_WEIGHT);
    let parameters = tool.parameters.get("properties").and_then(Value::as_object);
    for (name, schema) in parameters.into_iter().flatten() {
        add(name, PARAMETER_NAME_WEIGHT);
        add(schema.get("description").and_then(Value::as_str).unwrap_or_default(), TEXT_WEIGHT);
    }
    frequencies
}

/// The words of a text, in lower case: sequences of letters and digits, with `camelCase` split. Chinese,
/// Japanese and Korean have no spaces between words, so each pair of adjacent characters is a word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|character: char| !character.is_alphanumeric()) {
        let characters: Vec<char> = run.chars().collect();
        for part in characters.chunk_by(|a, b| is_cjk(*a) == is_cjk(*b)) {
            match part {
                [] => {}
                [first, ..] if !is_cjk(*first) => split_camel_case(part, &mut words),
                [only] => words.push(only.to_string()),
                several => words.extend(several.windows(2).map(|pair| pair.iter().collect::<String>())),
            }
        }
    }
    words
}

/// `getHTTPStatus` → `get`, `http`, `status`.
fn split_camel_case(run: &[char], words: &mut Vec<String>) {
    let mut start = 0;
    for at in 1..=run.len() {
        let ends = match (run[at - 1], run.get(at)) {
            (_, None) => true,
            (before, Some(here)) if here.is_uppercase() => {
                !before.is_uppercase() || run.get(at + 1).is_some_and(|next| next.is_lowercase())
            }
            _ => false,
        };
        if ends {
            words.push(run[start..at].iter().flat_map(|character| character.to_lowercase()).collect());
            start = at;
        }
    }
}

/// Han, kana and hangul (Unicode blocks).
fn is_cjk(character: char) -> bool {
    matches!(u32::from(character),
        0x1100..=0x11FF | 0x3005..=0x3007 | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x20000..=0x323AF)
}
