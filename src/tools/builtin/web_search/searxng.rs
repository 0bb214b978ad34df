//! SearXNG, self-hosted: <https://docs.searxng.org/dev/search_api.html>. Its `settings.yml` must
//! list `json` under `search.formats`; it answers 403 otherwise.

use http::{HeaderMap, Method};

use super::{Engine, Query, Question};

/// It has no parameter for the number of results: its engines determine the page size.
pub(super) fn question(engine: &Engine, query: &Query) -> Question {
    let mut url = engine.address(&["search"]);
    url.query_pairs_mut().append_pair("q", &query.query).append_pair("format", "json");
    Question { method: Method::GET, url, headers: HeaderMap::new(), body: None }
}
