//! A cache of fetched documents with conditional requests: an unchanged one is not sent again (E38, RFC 9110 §13).

use http::{HeaderMap, HeaderName, header};
use parking_lot::Mutex;
use url::Url;

use super::fetch::SpecText;

/// Most documents in the cache (E38).
const MAX_ENTRIES: usize = 100;

/// Most bytes of all documents in the cache.
const MAX_BYTES: usize = 64 << 20;

/// A document version's validators (`ETag`, `Last-Modified`) for conditional requests.
const VALIDATORS: [(HeaderName, HeaderName); 2] =
    [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];

/// Shared by everything that reads documents: start, reload, validation, registration.
#[derive(Debug, Default)]
pub(crate) struct SpecCache {
    /// In order of last use, most recent last.
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    requested: Url,
    /// The headers that request the document only if it has changed.
    condition: HeaderMap,
    text: SpecText,
}

impl SpecCache {
    /// The document last fetched from that address, and the headers to revalidate it with.
    pub(crate) fn find(&self, requested: &Url) -> Option<(HeaderMap, SpecText)> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|entry| entry.requested == *requested)?;
        let entry = entries.remove(at);
        let found = (entry.condition.clone(), entry.text.clone());
        entries.push(entry);
        Some(found)
    }

    /// Stores a document that has validators; removes one that has none.
    pub(crate) fn keep(&self, requested: Url, answered: &HeaderMap, text: &SpecText) {
        let mut entries = self.entries.lock();
        entries.retain(|entry| entry.requested != requested);
        let condition = condition(answered);
        if condition.is_empty() || forbids_keeping(answered) {
            return;
        }
        entries.push(Entry { requested, condition, text: text.clone() });
        let mut bytes: usize = entries.iter().map(|entry| entry.text.bytes.len()).sum();
        while entries.len() > MAX_ENTRIES || bytes > MAX_BYTES {
            bytes -= entries.remove(0).text.bytes.len();
        }
    }
}

fn condition(answered: &HeaderMap) -> HeaderMap {
    let known = VALIDATORS.into_iter().filter_map(|(says, asks)| Some((asks, answered.get(says)?.clone())));
    known.collect()
}

/// RFC 9111 §5.2.2.5.
fn forbids_keeping(answered: &HeaderMap) -> bool {
    let directives = answered.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    directives.flat_map(|value| value.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn url(name: usize) -> Url {
        Url::parse(&format!("https://docs.example/{name}")).unwrap()
    }

    fn text(bytes: usize) -> SpecText {
        SpecText { bytes: vec![b' '; bytes].into(), from: None }
    }

    fn answered(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn documents_with_validators_are_kept_for_conditional_requests() {
        let cache = SpecCache::default();
        cache.keep(
            url(0),
            &answered(&[("etag", "\"a\""), ("last-modified", "Sat, 21 Nov 2026 10:00:00 GMT")]),
            &text(1),
        );
        let (condition, _) = cache.find(&url(0)).unwrap();
        assert_eq!(condition[header::IF_NONE_MATCH], "\"a\"");
        assert_eq!(condition[header::IF_MODIFIED_SINCE], "Sat, 21 Nov 2026 10:00:00 GMT");
        for headers in [&[][..], &[("etag", "\"b\""), ("cache-control", "private, No-Store")]] {
            cache.keep(url(0), &answered(headers), &text(1));
            assert!(cache.find(&url(0)).is_none(), "{headers:?}");
        }
    }

    #[test]
    fn the_least_recently_used_document_is_evicted() {
        let cache = SpecCache::default();
        let known = answered(&[("etag", "\"a\"")]);
        for name in 0..MAX_ENTRIES {
            cache.keep(url(name), &known, &text(1));
        }
        cache.find(&url(0));
        cache.keep(url(MAX_ENTRIES), &known, &text(1));
        assert!(cache.find(&url(0)).is_some() && cache.find(&url(1)).is_none());
        cache.keep(url(1), &known, &text(MAX_BYTES));
        assert!(cache.find(&url(1)).is_some() && cache.find(&url(0)).is_none(), "the bytes are bounded too");
    }
}
