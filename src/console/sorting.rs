//! Lists that are sorted by the title of a column: the address names it, downwards with a `-` before its name.

use std::cmp::Ordering;

use maud::{Markup, html};
use serde_json::Value;

use sekisho_api::column::{self, Column, Form, Listed};

/// The order of a table, and the ways to others.
#[derive(Clone, Copy)]
pub(super) struct Sorting<'a> {
    /// As the address has it.
    pub chosen: &'a str,
    /// Whether one can sort by the column.
    pub is_open: fn(&Column) -> bool,
    /// The address of the page in another order.
    pub address: &'a dyn Fn(&str) -> String,
}

/// A value as it is compared: numbers before texts, without regard to case.
enum Key {
    Number(f64),
    Text(String),
}

/// Sorts entries by the column that the address names; as they are where it names none.
pub(super) fn sort<T: Listed>(entries: &mut [T], chosen: &str) {
    let (name, is_down) = chosen.strip_prefix('-').map_or((chosen, false), |name| (name, true));
    let Some(column) = T::COLUMNS.iter().find(|column| column.name == name && column.title.is_some()) else { return };
    entries.sort_by_cached_key(|entry| Key::of(column.form, &column.value(&entry.members())));
    if is_down {
        entries.reverse();
    }
}

impl Sorting<'_> {
    /// The title of a column, as a link where one can sort by it, and what `aria-sort` says.
    pub(super) fn title(&self, column: &Column, title: &str) -> (Markup, Option<&'static str>) {
        if !(self.is_open)(column) {
            return (html! { (title) }, None);
        }
        let (next, sign, sorted) = match self.chosen {
            chosen if chosen == column.name => (format!("-{chosen}"), " ↑", Some("ascending")),
            chosen if chosen.strip_prefix('-') == Some(column.name) => {
                (column.name.to_owned(), " ↓", Some("descending"))
            }
            _ => (column.name.to_owned(), "", None),
        };
        (html! { a href=((self.address)(&next)) { (title) (sign) } }, sorted)
    }
}

impl Key {
    fn of(form: Form, value: &Value) -> Self {
        let text = column::text(value);
        let number = if form == Form::Money { text.parse().ok() } else { value.as_f64() };
        number.map_or_else(|| Self::Text(text.to_lowercase()), Self::Number)
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.total_cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Entry(&'static str, Option<f64>, &'static str);

    impl Listed for Entry {
        const NAME: &'static str = "entries";
        const ROUTE: &'static str = "/entries";
        const COLUMNS: &'static [Column] = &[
            Column::new("name", Form::Name).at("/0").titled("tool-name"),
            Column::new("took", Form::Duration).at("/1").titled("call-duration"),
            Column::new("cost", Form::Money).at("/2").titled("call-cost"),
            Column::new("hidden", Form::Name).at("/0"),
        ];
    }

    #[test]
    fn entries_are_sorted_by_what_the_column_has() {
        for (chosen, names) in [
            ("name", "A b C"),
            ("-name", "C b A"),
            ("took", "C b A"),
            ("cost", "b A C"),
            ("-cost", "C A b"),
            ("hidden", "C A b"),
            ("", "C A b"),
            ("none", "C A b"),
        ] {
            let mut entries =
                [Entry("C", Some(9_000.0), "100"), Entry("A", None, "20"), Entry("b", Some(20_000.0), "3.5")];
            sort(&mut entries, chosen);
            assert_eq!(entries.map(|entry| entry.0).join(" "), names, "{chosen}");
        }
    }

    #[test]
    fn a_title_leads_to_the_other_order() {
        let column = &Entry::COLUMNS[0];
        let title = |chosen: &str, is_open: fn(&Column) -> bool| {
            let address = |sort: &str| format!("/entries?sort={sort}");
            let (title, sorted) = Sorting { chosen, is_open, address: &address }.title(column, "Name");
            (title.into_string(), sorted)
        };
        for (chosen, next, sign, sorted) in [
            ("", "name", "", None),
            ("name", "-name", " ↑", Some("ascending")),
            ("-name", "name", " ↓", Some("descending")),
            ("took", "name", "", None),
        ] {
            let link = format!("<a href=\"/entries?sort={next}\">Name{sign}</a>");
            assert_eq!(title(chosen, |_| true), (link, sorted), "{chosen}");
        }
        assert_eq!(title("name", |_| false), ("Name".to_owned(), None));
    }
}
