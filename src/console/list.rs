//! What pages with lists have in common: the fields that choose their entries, and the way to further pages.

use maud::{Markup, html};

use super::text::Texts;

/// Entries of a page.
pub(super) const PAGE: usize = 50;

/// A field of the form that filters a list; `kind` is the type of the input.
pub(super) fn filter_field(texts: &Texts, name: &str, label: &str, value: &str, kind: &str) -> Markup {
    html! {
        div.field {
            label for=(name) { (texts.get(label)) }
            input #(name) name=(name) value=(value) type=(kind) autocomplete="off" spellcheck="false" data-search[name == "tool"];
        }
    }
}

/// The link to older entries.
pub(super) fn older(texts: &Texts, address: &str) -> Markup {
    further(texts, "calls-older", address)
}

/// The link to the next entries of a list in the order of names or ids.
pub(super) fn next(texts: &Texts, address: &str) -> Markup {
    further(texts, "paging-next", address)
}

fn further(texts: &Texts, label: &str, address: &str) -> Markup {
    html! {
        nav.paging aria-label=(texts.get("paging-label")) {
            a rel="next" href=(address) { (texts.get(label)) " →" }
        }
    }
}

/// One page of a list.
#[derive(Debug)]
pub(super) struct Page<'a, T> {
    pub entries: &'a [T],
    /// From 1.
    pub at: usize,
    pages: usize,
}

impl<'a, T> Page<'a, T> {
    /// Page `at` of all entries, or the nearest one that there is.
    pub(super) fn of(all: &'a [T], at: usize) -> Self {
        let pages = all.len().div_ceil(PAGE).max(1);
        let at = at.clamp(1, pages);
        Self { entries: &all[(at - 1) * PAGE..all.len().min(at * PAGE)], at, pages }
    }

    /// The links to the pages before and after it; none where there is one page.
    pub(super) fn links(&self, texts: &Texts, address: impl Fn(usize) -> String) -> Markup {
        let Self { at, pages, .. } = *self;
        html! {
            @if pages > 1 {
                nav.paging aria-label=(texts.get("paging-label")) {
                    @if at > 1 { a rel="prev" href=(address(at - 1)) { "← " (texts.get("paging-back")) } }
                    span { (texts.with("paging-at", [("at", at.into()), ("pages", pages.into())])) }
                    @if at < pages { a rel="next" href=(address(at + 1)) { (texts.get("paging-next")) " →" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn a_page_is_within_the_list_and_leads_to_those_beside_it() {
        let all: Vec<_> = (0..PAGE * 2 + 1).collect();
        for (wanted, at, entries) in [(0, 1, PAGE), (2, 2, PAGE), (3, 3, 1), (usize::MAX, 3, 1)] {
            let page = Page::of(&all, wanted);
            assert_eq!((page.at, page.entries.len(), page.entries[0]), (at, entries, (at - 1) * PAGE), "{wanted}");
        }
        let links = |all: &[usize], at| {
            Page::of(all, at).links(&Texts::new(Language::English), |page| format!("/p{page}")).into_string()
        };
        assert!(links(&all, 2).contains("\"/p1\"") && links(&all, 2).contains("\"/p3\""));
        assert!(!links(&all, 3).contains("/p4") && !links(&all, 1).contains("/p0"));
        assert_eq!((links(&all[..PAGE], 1), links(&[], 1)), (String::new(), String::new()));
    }
}
