//! The common parts of all lists: pages, and the query that names one.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use sekisho_core::error::CallError;

/// Entries of a page, if the request names no number.
pub const PAGE: usize = 50;
const MAX_PAGE: usize = 500;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// `after` of the next page; null on the last one.
    pub next: Option<String>,
}

/// The part of a list to return.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Entries of the page: 50 if omitted, at most 500.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    // The second is the name of earlier versions, to be dropped in 0.3.
    #[serde(alias = "before")]
    pub after: Option<String>,
}

/// The place of an entry in a list with the latest first. All its characters stand for themselves in an address, if the
/// key's characters do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LatestFirst {
    pub(super) created: Reverse<Timestamp>,
    pub(super) key: String,
}

impl PageQuery {
    /// Errors: `invalid_request`: no page has so many entries.
    pub fn limit(&self) -> Result<usize, CallError> {
        match self.limit.unwrap_or(PAGE) {
            limit @ 1..=MAX_PAGE => Ok(limit),
            _ => Err(CallError::invalid(format!("`limit` must be 1 to {MAX_PAGE}"))),
        }
    }

    /// The limit, as the store counts.
    /// Errors: as [`limit`](Self::limit).
    pub fn limit_in_store(&self) -> Result<u32, CallError> {
        u32::try_from(self.limit()?).map_err(CallError::internal)
    }

    /// The key of the last entry of the page before.
    /// Errors: `invalid_request`: it is no such key.
    pub fn after<K: FromStr>(&self) -> Result<Option<K>, CallError> {
        let key = |after: &str| after.parse().map_err(|_| invalid_after());
        self.after.as_deref().map(key).transpose()
    }
}

impl<T> Page<T> {
    /// The first `limit` of entries of which more were read if there are more.
    pub fn from_read(mut entries: Vec<T>, limit: usize, key: impl Fn(&T) -> String) -> Self {
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(key);
        Self { items: entries, next }
    }

    /// A page of all entries, in the order of their keys.
    /// Errors: `invalid_request`: the query names no page.
    pub(super) fn from_all<K: Ord + fmt::Display + FromStr>(
        mut all: Vec<T>,
        query: &PageQuery,
        key: impl Fn(&T) -> K,
    ) -> Result<Self, CallError> {
        let limit = query.limit()?;
        if let Some(after) = query.after::<K>()? {
            all.retain(|entry| key(entry) > after);
        }
        all.sort_by_cached_key(&key);
        Ok(Self::from_read(all, limit, |entry| key(entry).to_string()))
    }

    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(change).collect(), next: self.next }
    }
}

impl<T: Clone> Page<T> {
    /// A page of all entries, in the order of their keys, and the form under the old name of such a list until 0.3: all
    /// entries if the request names no page, since the old lists had none.
    /// Errors: as [`from_all`](Self::from_all).
    pub(super) fn from_all_with_old_name<K: Ord + fmt::Display + FromStr>(
        all: Vec<T>,
        query: &PageQuery,
        key: impl Fn(&T) -> K,
    ) -> Result<(Self, Vec<T>), CallError> {
        let whole = (query.limit.is_none() && query.after.is_none()).then(|| all.clone());
        let page = Self::from_all(all, query, key)?;
        let old = whole.unwrap_or_else(|| page.items.clone());
        Ok((page, old))
    }
}

/// The refusal of an `after` that names no page.
pub fn invalid_after() -> CallError {
    CallError::invalid("`after` must be `next` of the page before".to_owned())
}

impl LatestFirst {
    pub(super) fn new(created: Timestamp, key: impl Into<String>) -> Self {
        Self { created: Reverse(created), key: key.into() }
    }
}

impl fmt::Display for LatestFirst {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.created.0.as_microsecond(), self.key)
    }
}

impl FromStr for LatestFirst {
    type Err = CallError;

    fn from_str(text: &str) -> Result<Self, CallError> {
        let (created, key) = text.split_once('-').ok_or_else(invalid_after)?;
        let created = created.parse().map_err(|_| invalid_after())?;
        Ok(Self::new(Timestamp::from_microsecond(created).map_err(|_| invalid_after())?, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::error::ErrorCode;

    fn query(limit: usize, after: Option<String>) -> PageQuery {
        PageQuery { limit: Some(limit), after }
    }

    #[test]
    fn pages_go_through_a_list_without_loss() {
        let all: Vec<_> = ["b", "d", "a", "c", "e"].map(str::to_owned).into();
        let (mut read, mut next) = (Vec::new(), None);
        loop {
            let page = Page::from_all(all.clone(), &query(2, next), Clone::clone).unwrap();
            read.extend(page.items);
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(read, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn a_page_goes_on_where_its_last_entry_was_removed() {
        let moment = |second| Timestamp::from_second(second).unwrap();
        let entries = |seconds: &[i64]| seconds.iter().map(|second| (moment(*second), "k")).collect::<Vec<_>>();
        let key = |(created, key): &(Timestamp, &str)| LatestFirst::new(*created, *key);
        let first = Page::from_all(entries(&[1, 2, 3]), &query(2, None), key).unwrap();
        assert_eq!(first.items, entries(&[3, 2]));
        let rest = Page::from_all(entries(&[1, 3]), &query(2, first.next), key).unwrap();
        assert_eq!((rest.items, rest.next), (entries(&[1]), None));
    }

    #[test]
    fn a_query_that_names_no_page_is_refused() {
        let keys = |query| Page::from_all(vec![1_u64], &query, |number| *number).map(|page| page.items);
        assert_eq!(keys(query(MAX_PAGE, None)).unwrap(), [1]);
        for wrong in [query(0, None), query(MAX_PAGE + 1, None), query(1, Some("x".to_owned()))] {
            assert_eq!(keys(wrong).unwrap_err().code(), ErrorCode::InvalidRequest);
        }
        for wrong in ["", "1", "x-a", "-1-a", "99999999999999999999-a"] {
            assert!(wrong.parse::<LatestFirst>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_old_name_has_all_entries_if_no_page_is_named() {
        let list = |query| Page::from_all_with_old_name((0..60_u64).collect(), &query, |number| *number).unwrap();
        let (page, old) = list(PageQuery::default());
        assert_eq!((page.items.len(), old.len()), (PAGE, 60));
        let (page, old) = list(query(1, None));
        assert_eq!((page.items, old), (vec![0], vec![0]));
    }
}
