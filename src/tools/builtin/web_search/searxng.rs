//! SearXNG, self-hosted: <https://docs.searxng.org/dev/search_api.html>. Its `settings.yml` must
//! list `json` under `search.formats`; it answers 403 otherwise.

use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::Value;

use super::{Engine, Found, Query, Question, entries, read};

/// It has no parameter for the number of results: its engines determine the page size.
pub(super) fn question(engine: &Engine, query: &Query) -> Question {
    let mut url = engine.address(&["search"]);
    url.query_pairs_mut().append_pair("q", &query.query).append_pair("format", "json");
    Question { method: Method::GET, url, headers: HeaderMap::new(), body: None }
}

pub(super) fn results(answer: &[u8]) -> Result<Vec<Found>, serde_json::Error> {
    let answer: Answer = read(answer)?;
    Ok(entries::<Entry>(answer.results).map(Found::from).collect())
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    title: String,
    url: String,
    content: Option<String>,
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
