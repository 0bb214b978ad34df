//! Tavily: <https://docs.tavily.com/documentation/api-reference/endpoint/search>.

use http::{HeaderMap, Method, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Engine, Found, Query, Question, entries, read};

pub(super) const BASE_URL: &str = "https://api.tavily.com";

pub(super) fn question(engine: &Engine, query: &Query) -> Question {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, engine.key.clone());
    let body = json!({"query": query.query, "max_results": query.max_results});
    Question { method: Method::POST, url: engine.address(&["search"]), headers, body: Some(body) }
}

/// The form of SearXNG's answer, too.
pub(super) fn results(answer: &[u8]) -> Result<Vec<Found>, serde_json::Error> {
    let answer: Answer = read(answer)?;
    Ok(entries::<Entry>(answer.results).map(Found::from).collect())
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Value>,
}

#[derive(Deserialize)]
struct Entry {
    title: String,
    url: String,
    content: Option<String>,
    #[serde(alias = "publishedDate")]
    published_date: Option<String>,
}

impl From<Entry> for Found {
    fn from(entry: Entry) -> Self {
        Self {
            title: entry.title,
            url: entry.url,
            snippet: entry.content.unwrap_or_default(),
            published: entry.published_date,
        }
    }
}
