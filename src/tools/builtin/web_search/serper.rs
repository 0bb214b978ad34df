//! Serper, Google's results: <https://serper.dev>.

use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Engine, Found, Query, Question, entries, read};

pub(super) const BASE_URL: &str = "https://google.serper.dev";

pub(super) fn question(engine: &Engine, query: &Query) -> Question {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", engine.key.clone());
    let body = json!({"q": query.query, "num": query.max_results});
    Question { method: Method::POST, url: engine.address(&["search"]), headers, body: Some(body) }
}

/// A search without hits has no `organic`, but repeats the query.
pub(super) fn results(answer: &[u8]) -> Result<Vec<Found>, serde_json::Error> {
    let answer: Answer = read(answer)?;
    Ok(entries::<Entry>(answer.organic).map(Found::from).collect())
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "searchParameters")]
    _asked: Value,
    #[serde(default)]
    organic: Vec<Value>,
}

#[derive(Deserialize)]
struct Entry {
    title: String,
    link: String,
    snippet: Option<String>,
    date: Option<String>,
}

impl From<Entry> for Found {
    fn from(entry: Entry) -> Self {
        Self { title: entry.title, url: entry.link, snippet: entry.snippet.unwrap_or_default(), published: entry.date }
    }
}
