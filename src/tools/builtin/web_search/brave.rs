//! Brave Search: <https://api-dashboard.search.brave.com/app/documentation/web-search>.

use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::Value;

use super::{Engine, Found, Query, Question, entries, read};

pub(super) const BASE_URL: &str = "https://api.search.brave.com";

pub(super) fn question(engine: &Engine, query: &Query) -> Question {
    let mut url = engine.address(&["res", "v1", "web", "search"]);
    url.query_pairs_mut()
        .append_pair("q", &query.query)
        .append_pair("count", &query.max_results.to_string())
        // Without `<strong>` around the words found.
        .append_pair("text_decorations", "false");
    let mut headers = HeaderMap::new();
    headers.insert("x-subscription-token", engine.key.clone());
    Question { method: Method::GET, url, headers, body: None }
}

/// A search without web results has no `web`.
pub(super) fn results(answer: &[u8]) -> Result<Vec<Found>, serde_json::Error> {
    let answer: Answer = read(answer)?;
    Ok(entries::<Entry>(answer.web.unwrap_or_default().results).map(Found::from).collect())
}

#[derive(Deserialize)]
struct Answer {
    web: Option<Web>,
}

#[derive(Default, Deserialize)]
struct Web {
    #[serde(default)]
    results: Vec<Value>,
}

#[derive(Deserialize)]
struct Entry {
    title: String,
    url: String,
    description: Option<String>,
    page_age: Option<String>,
}

impl From<Entry> for Found {
    fn from(entry: Entry) -> Self {
        Self {
            title: entry.title,
            url: entry.url,
            snippet: entry.description.unwrap_or_default(),
            published: entry.page_age,
        }
    }
}
