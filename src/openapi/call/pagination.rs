//! Pagination, where a collection configures it: fetches the further pages of a list and joins them. The next
//! page is given by the `Link` header (RFC 8288), by a cursor in the response, or by the next page number.

use http::{HeaderMap, header};
use serde_json::Value;
use url::Url;

use sekisho_config::PaginationSettings;
use sekisho_outbound::OutboundResponse;

/// The address of the next page; `None` when there is none, or when it is on another origin, which must not get
/// the credentials.
pub(crate) fn next(settings: &PaginationSettings, requested: &Url, page: &Page<'_>) -> Option<Url> {
    let next = linked(page.url, page.headers)
        .or_else(|| by_cursor(settings, requested, page))
        .or_else(|| by_number(settings, requested, page))?;
    (next.origin() == requested.origin() && next != *requested).then_some(next)
}

/// One page as received.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// Its address after redirects.
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) value: &'a Value,
}

impl<'a> Page<'a> {
    pub(crate) fn of(response: &'a OutboundResponse, value: &'a Value) -> Self {
        Self { url: &response.url, headers: &response.headers, value }
    }
}

/// Appends a page's list to the list of the pages before. `false`, without a change, when one of them has no list.
pub(crate) fn append(settings: &PaginationSettings, all: &mut Value, page: Value) -> bool {
    let mut page = page;
    let listed = page.pointer_mut(&settings.items).map(Value::take);
    match (all.pointer_mut(&settings.items), listed) {
        (Some(Value::Array(all)), Some(Value::Array(items))) => {
            all.extend(items);
            true
        }
        _ => false,
    }
}

/// The list of a page.
pub(crate) fn items<'v>(settings: &PaginationSettings, value: &'v Value) -> Option<&'v Vec<Value>> {
    value.pointer(&settings.items)?.as_array()
}

/// `Link: <…>; rel="next"`, possibly with other links and relations.
fn linked(from: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    links.flat_map(|links| links.split('<').skip(1)).find_map(|link| {
        let (target, parameters) = link.split_once('>')?;
        let is_next = parameters.split([';', ',']).any(|parameter| {
            let relations = parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("rel"));
            relations.is_some_and(|(_, relations)| {
                relations.trim().trim_matches('"').split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case("next"))
            })
        });
        is_next.then(|| from.join(target.trim()).ok())?
    })
}

/// The value at `next` in the response: the cursor for the parameter, or without a parameter the address.
fn by_cursor(settings: &PaginationSettings, requested: &Url, page: &Page<'_>) -> Option<Url> {
    let cursor = match page.value.pointer(settings.next.as_deref()?)? {
        Value::String(cursor) if !cursor.is_empty() => cursor.clone(),
        Value::Number(cursor) => cursor.to_string(),
        _ => return None,
    };
    match &settings.cursor_parameter {
        Some(parameter) => Some(with_parameter(requested, parameter, &cursor)),
        None => page.url.join(&cursor).ok(),
    }
}

/// The number after the requested one; the first page is 1. An empty page is the last.
fn by_number(settings: &PaginationSettings, requested: &Url, page: &Page<'_>) -> Option<Url> {
    let parameter = settings.page_parameter.as_deref()?;
    if items(settings, page.value)?.is_empty() {
        return None;
    }
    let current = requested.query_pairs().find(|(name, _)| name == parameter);
    let current: u64 = current.map_or(Some(1), |(_, number)| number.parse().ok())?;
    Some(with_parameter(requested, parameter, &current.checked_add(1)?.to_string()))
}

/// The address with this query parameter; all others stay unchanged.
fn with_parameter(url: &Url, name: &str, value: &str) -> Url {
    let is_other = |pair: &&str| url::form_urlencoded::parse(pair.as_bytes()).next().is_none_or(|(key, _)| key != name);
    let mut pairs: Vec<String> = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter(is_other)
        .map(str::to_owned)
        .collect();
    pairs.push(url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish());
    let mut next = url.clone();
    next.set_query(Some(&pairs.join("&")));
    next
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn following(settings: Value, requested: &str, links: &[&str], value: &Value) -> Option<String> {
        let settings: PaginationSettings = serde_json::from_value(settings).unwrap();
        let requested = Url::parse(requested).unwrap();
        let mut headers = HeaderMap::new();
        for link in links {
            headers.append(header::LINK, HeaderValue::from_str(link).unwrap());
        }
        next(&settings, &requested, &Page { url: &requested, headers: &headers, value }).map(Into::into)
    }

    #[test]
    fn a_link_header_names_the_next_page() {
        let requested = "https://api.example/v1/pets?q=a";
        for (links, expected) in [
            (&["<https://api.example/v1/pets?page=2>; rel=\"next\""][..], Some("https://api.example/v1/pets?page=2")),
            (
                &["</pets?page=1>; rel=prev, <?page=3>; title=\"a\"; REL=\"last Next\""],
                Some("https://api.example/v1/pets?page=3"),
            ),
            (&["</first>; rel=first", "</second>; rel=next"], Some("https://api.example/second")),
            (&["</first>; rel=first"], None),
            (&["<https://elsewhere.example/pets>; rel=next"], None),
            (&["<http://api.example/v1/pets?page=2>; rel=next"], None),
            (&["<https://api.example/v1/pets?q=a>; rel=next"], None),
            (&["nonsense; rel=next"], None),
            (&[], None),
        ] {
            assert_eq!(following(json!({}), requested, links, &json!([])).as_deref(), expected, "{links:?}");
        }
    }

    #[test]
    fn a_cursor_goes_in_its_parameter_or_is_the_address_itself() {
        let cursor = json!({"next": "/meta/next", "cursor_parameter": "after"});
        let address = json!({"next": "/next_page_uri"});
        let requested = "https://api.example/pets?q=a%2Fb&after=x";
        for (settings, value, expected) in [
            (&cursor, json!({"meta": {"next": "a&b"}}), Some("https://api.example/pets?q=a%2Fb&after=a%26b")),
            (&cursor, json!({"meta": {"next": 7}}), Some("https://api.example/pets?q=a%2Fb&after=7")),
            (&cursor, json!({"meta": {"next": null}}), None),
            (&cursor, json!({"meta": {"next": ""}}), None),
            (&cursor, json!([]), None),
            (&address, json!({"next_page_uri": "/pets?page=1"}), Some("https://api.example/pets?page=1")),
            (&address, json!({"next_page_uri": "https://elsewhere.example/"}), None),
        ] {
            assert_eq!(following(settings.clone(), requested, &[], &value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn pages_are_counted_until_one_is_empty() {
        let settings = json!({"page_parameter": "page", "items": "/data"});
        for (requested, value, expected) in [
            ("https://api.example/", json!({"data": [1]}), Some("https://api.example/?page=2")),
            ("https://api.example/?page=7&q=", json!({"data": [1]}), Some("https://api.example/?q=&page=8")),
            ("https://api.example/?page=7", json!({"data": []}), None),
            ("https://api.example/?page=x", json!({"data": [1]}), None),
            ("https://api.example/", json!([1]), None),
        ] {
            assert_eq!(following(settings.clone(), requested, &[], &value).as_deref(), expected, "{requested} {value}");
        }
    }

    #[test]
    fn lists_are_joined_in_place() {
        let settings: PaginationSettings = serde_json::from_value(json!({"items": "/data"})).unwrap();
        let mut all = json!({"data": [1], "total": 2});
        assert!(append(&settings, &mut all, json!({"data": [2]})));
        assert!(!append(&settings, &mut all, json!({"data": null})));
        assert_eq!(all, json!({"data": [1, 2], "total": 2}));
    }
}
