//! The common parts of pages with lists: the fields that choose their entries, their tables, and the way to further
//! pages.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::Response;
use maud::{Markup, html};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format};
use super::sorting::Sorting;
use super::text::Texts;
use super::visit::Visit;
use super::{Console, format};
use sekisho_api::column::{self, Column, Form, Listed};
use sekisho_api::list;
use sekisho_core::error::CallError;

/// Entries of a page.
pub(super) const PAGE: usize = 50;

/// The fields of the address of a list that has no filters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListAddress {
    /// `next` of the page before.
    pub after: String,
    pub format: Format,
}

/// A page of a list of the API, of which `fields` choose the entries.
/// Errors: `denied`, and the errors of the route.
pub(super) async fn fetch<T: Listed + DeserializeOwned>(
    console: &Console,
    visit: &Visit,
    act: Act,
    fields: &[(&str, &str)],
) -> Result<list::Page<T>, CallError> {
    visit.require(act)?;
    visit.fetch(console, &with_query(T::ROUTE, fields.iter().copied())).await
}

/// A list as its page, or as a file with `entries`.
pub(super) fn respond<F, T: Listed>(
    visit: &Visit,
    format: Format,
    found: Result<F, CallError>,
    entries: impl Fn(&F) -> &[T],
    show: impl FnOnce(&F) -> Markup,
) -> Response {
    match found {
        Ok(found) if format != Format::Html => export::listed(entries(&found), format),
        found => visit.answer(found.map(|found| show(&found))),
    }
}

/// All pages of a list of the API.
/// Errors: as [`fetch`].
pub(super) async fn fetch_all<T: Listed + DeserializeOwned>(
    console: &Console,
    visit: &Visit,
    act: Act,
    fields: &[(&str, &str)],
) -> Result<Vec<T>, CallError> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let fields = [fields, &[("limit", "500"), ("after", &*after)]].concat();
        let list::Page { items, next } = fetch(console, visit, act, &fields).await?;
        all.extend(items);
        match next {
            Some(next) => after = next,
            None => return Ok(all),
        }
    }
}

/// The id of the title of a column, and its cells.
type Action<'a, T> = (&'a str, &'a dyn Fn(&T) -> Markup);

/// How a page shows a list of the API: as a table with the columns that have titles.
pub(super) struct Table<'a, T> {
    pub texts: &'a Texts,
    /// The id of its name.
    pub label: &'a str,
    /// The id of the text where there are no entries, and a command or route for them.
    pub empty: (&'a str, &'a str),
    /// The id of a text below it.
    pub help: Option<&'a str>,
    /// Whether keys move from row to row.
    pub has_row_keys: bool,
    /// The page of an entry.
    pub link: Option<fn(&T) -> String>,
    /// The content of cells that show more than their value.
    pub cell: fn(&Texts, &T, &Column) -> Option<Markup>,
    /// A last column with the actions on an entry.
    pub action: Option<Action<'a, T>>,
    /// The order of the entries, where it can be chosen.
    pub sorting: Option<Sorting<'a>>,
    /// The button that leads to where entries come from: the id of its text, and its address.
    pub fill: Option<(&'a str, &'a str)>,
}

impl<'a, T> Table<'a, T> {
    /// A table whose cells have only their values, without a page of each entry.
    pub(super) fn new(texts: &'a Texts, label: &'a str, empty: (&'a str, &'a str)) -> Self {
        let cell: fn(&Texts, &T, &Column) -> Option<Markup> = |_, _, _| None;
        let (help, link, action, sorting, fill) = (None, None, None, None, None);
        Self { texts, label, empty, help, has_row_keys: false, link, cell, action, sorting, fill }
    }
}

impl<T: Listed> Table<'_, T> {
    /// The table, or the text that says that there are no entries.
    pub(super) fn show(&self, entries: &[T]) -> Markup {
        html! {
            @if entries.is_empty() {
                div.empty {
                    p { (self.texts.get(self.empty.0)) }
                    @if let Some((text, address)) = self.fill { p { a.button.main href=(address) { (self.texts.get(text)) } } }
                    p { code { (self.empty.1) } }
                }
            } @else {
                (self.table(entries))
                @if let Some(help) = self.help { p.help { (self.texts.get(help)) } }
            }
        }
    }

    /// The table of a page, the links to its files, and the link to further entries. `address` gives the address of the
    /// page after an entry; `after` is the entry before this page.
    pub(super) fn show_page(
        &self,
        found: &list::Page<T>,
        after: &str,
        address: impl Fn(&str) -> String,
        further: fn(&Texts, &str) -> Markup,
    ) -> Markup {
        let texts = self.texts;
        html! {
            (self.show(&found.items))
            @if !found.items.is_empty() { (export::links(texts, &address(after))) }
            @if let Some(next) = &found.next { (further(texts, &address(next))) }
        }
    }

    /// Page `at` of all entries, the links to the other pages, and those to the files. `address` gives the address of a
    /// page.
    pub(super) fn show_part(&self, all: &[T], at: usize, address: impl Fn(usize) -> String, files: &str) -> Markup {
        let page = Page::of(all, at);
        html! {
            (self.show(page.entries))
            (page.links(self.texts, address))
            @if !all.is_empty() { (export::links(self.texts, files)) }
        }
    }

    /// The table, also without an entry.
    pub(super) fn table(&self, entries: &[T]) -> Markup {
        let (texts, columns) = (self.texts, self.columns());
        html! {
            div.scroll tabindex="0" role="group" aria-label=(texts.get(self.label)) {
                table.list.cards data-rows[self.has_row_keys] {
                    thead { tr {
                        @for (column, title) in &columns { (self.head(column, title)) }
                        @if let Some((title, _)) = self.action { th scope="col" { (texts.get(title)) } }
                    } }
                    tbody { @for entry in entries { (self.row(entry, &columns)) } }
                }
            }
        }
    }

    fn head(&self, column: &Column, title: &str) -> Markup {
        let plain = || (html! { (title) }, None);
        let (title, sorted) = self.sorting.map_or_else(plain, |sorting| sorting.title(column, title));
        let class = class_of(column.form).filter(|_| column.form.is_measured());
        html! { th class=[class] scope="col" aria-sort=[sorted] { (title) } }
    }

    /// The rows of these entries, each by itself.
    pub(super) fn rows(&self, entries: &[T]) -> Vec<String> {
        let columns = self.columns();
        entries.iter().map(|entry| self.row(entry, &columns).into_string()).collect()
    }

    /// The columns that have titles, with them.
    fn columns(&self) -> Vec<(&'static Column, Cow<'static, str>)> {
        let columns = T::COLUMNS.iter().filter_map(|column| Some((column, self.texts.get(column.title?))));
        let mut columns: Vec<_> = columns.collect();
        columns.sort_by_key(|(column, _)| !column.leads);
        columns
    }

    fn row(&self, entry: &T, columns: &[(&Column, Cow<'_, str>)]) -> Markup {
        let members = entry.members();
        let content = |column: &Column| {
            let special = (self.cell)(self.texts, entry, column);
            special.unwrap_or_else(|| value_in(self.texts, column, &members))
        };
        html! {
            tr {
                @for (at, (column, title)) in columns.iter().enumerate() {
                    @let class = class_of(column.form);
                    @if at == 0 {
                        th class=[class] scope="row" {
                            @match self.link { Some(link) => a href=(link(entry)) { (content(column)) }, None => (content(column)) }
                        }
                    } @else if column.form.is_measured() {
                        td class=[class] data-label=(title) { (content(column)) }
                    } @else {
                        td class=[class] { (content(column)) }
                    }
                }
                @if let Some((_, action)) = self.action { td { (action(entry)) } }
            }
        }
    }
}

/// The class of cells with values of this form.
fn class_of(form: Form) -> Option<&'static str> {
    match form {
        Form::Line => Some("text"),
        Form::Count | Form::Entries | Form::Bytes | Form::Duration | Form::Money => Some("number"),
        Form::Name | Form::Text | Form::Seconds | Form::Moment => None,
    }
}

/// The value of a column in its form, with its limit.
fn value_in(texts: &Texts, column: &Column, members: &Value) -> Markup {
    let value = written(texts, column.form, &column.value(members));
    match column.limit(members) {
        Some(limit) => html! { (value) " / " (written(texts, column.form, limit)) },
        None => value,
    }
}

fn written(texts: &Texts, form: Form, value: &Value) -> Markup {
    let (text, number) = (column::text(value), value.as_u64().unwrap_or_default());
    match form {
        form if form.is_measured() && text.is_empty() => html! { "–" },
        Form::Moment => format::moment(texts, &text),
        Form::Name => format::name(&text),
        Form::Text => html! { (format::text(&text)) },
        Form::Line => html! { (format::first_line(&text)) },
        Form::Count | Form::Entries => html! { (format::count(number)) },
        Form::Bytes => html! { (format::count(number >> 10)) " KiB" },
        Form::Seconds | Form::Duration => html! { (format::duration(seconds(value.as_f64()))) },
        Form::Money => html! { (text.parse::<Decimal>().map_or_else(|_| text.clone(), format::money)) },
    }
}

fn seconds(number: Option<f64>) -> Duration {
    number.and_then(|number| Duration::try_from_secs_f64(number).ok()).unwrap_or_default()
}

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
    use serde::Serialize;

    use super::*;
    use crate::text::Language;

    #[derive(Serialize)]
    struct Entry {
        name: &'static str,
        took_us: Option<f64>,
        left: Option<&'static str>,
        limit: Option<&'static str>,
        tools: [u8; 2],
    }

    impl Listed for Entry {
        const NAME: &'static str = "entries";
        const ROUTE: &'static str = "/entries";
        const COLUMNS: &'static [Column] = &[
            Column::new("took", Form::Duration).at("/took_us").titled("call-duration"),
            Column::new("left", Form::Money).out_of("/limit").titled("limits-money-left"),
            Column::new("limit", Form::Money),
            Column::new("tools", Form::Entries).titled("nav-tools"),
            Column::new("name", Form::Name).titled("tool-name").leading(),
        ];
    }

    #[test]
    fn a_row_has_the_values_of_the_columns_with_titles() {
        let texts = Texts::new(Language::English);
        let table = Table {
            link: Some(|entry: &Entry| format!("/entries/{}", entry.name)),
            ..Table::new(&texts, "nav-tools", ("tools-none", "sekisho tools"))
        };
        let whole = Entry { name: "<a>", took_us: Some(1_500.0), left: Some("0.50"), limit: Some("2"), tools: [1, 2] };
        let row = table.rows(&[whole]).concat();
        let first =
            "<tr><th scope=\"row\"><a href=\"/entries/&lt;a&gt;\"><code class=\"name\">&lt;a&gt;</code></a></th>";
        assert!(row.starts_with(first), "{row}");
        for cell in [">1.5 ms</td>", ">$0.50 / $2.00</td>", ">2</td></tr>"] {
            assert!(row.contains(cell), "{cell}: {row}");
        }
        let empty = Entry { name: "b", took_us: None, left: None, limit: None, tools: [1, 2] };
        assert_eq!(table.rows(&[empty]).concat().matches(">–</td>").count(), 2);
        assert!(table.show(&[]).into_string().contains("<code>sekisho tools</code>"));
    }

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
