//! What pages with lists have in common: the fields that choose their entries, and the way to further pages.

use maud::{Markup, html};

use super::text::Texts;

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
    html! {
        nav.paging aria-label=(texts.get("paging-label")) {
            a rel="next" href=(address) { (texts.get("calls-older")) " →" }
        }
    }
}

/// The links to the pages before and after page `at` of `pages`; none where there is one page.
pub(super) fn paging(texts: &Texts, at: usize, pages: usize, address: impl Fn(usize) -> String) -> Markup {
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
