//! The columns of lists: described once, for exports, the tables of the console and the tables of the command line.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

/// An entry of a list.
pub trait Listed: Serialize {
    /// The name of the list, in the names of files.
    const NAME: &'static str;
    /// The route that lists them, or whose answer has them.
    const ROUTE: &'static str;
    /// In the order of exports and tables.
    const COLUMNS: &'static [Column];
    /// The sentence of a command for an empty list: how an entry comes into it.
    const NONE: &'static str = "no entries";

    /// Its members, from which columns take their values.
    fn members(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// How values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An id or a name.
    Name,
    Text,
    /// A text that may be long: its first line.
    Line,
    Count,
    /// The number of elements of a list.
    Entries,
    Bytes,
    Seconds,
    /// The seconds of a member with microseconds.
    Duration,
    /// USD.
    Money,
    /// RFC 3339.
    Moment,
}

impl Form {
    /// Whether it is a number or a moment, which says nothing without the title of its column.
    pub fn is_measured(self) -> bool {
        !matches!(self, Self::Name | Self::Text | Self::Line)
    }
}

/// A column of a list.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// In exports; the name of a member where `pointer` is empty.
    pub name: &'static str,
    pub form: Form,
    /// The id of its title among the texts of the console; `None` where the table of the console lacks it.
    pub title: Option<&'static str>,
    /// Its title on the command line; `None` where that lacks it.
    pub heading: Option<&'static str>,
    /// Whether it is the first column in the table of the console, with the link.
    pub leads: bool,
    /// On the command line for an entry without a value, or with an empty one.
    absent: &'static str,
    /// RFC 6901.
    pointer: &'static str,
    /// Of the limit of the value; empty where that is not shown.
    limit: &'static str,
}

impl Column {
    pub const fn new(name: &'static str, form: Form) -> Self {
        Self { name, form, title: None, heading: None, leads: false, absent: "", pointer: "", limit: "" }
    }

    /// The same, of the member of entries that a JSON pointer names.
    pub const fn at(self, pointer: &'static str) -> Self {
        Self { pointer, ..self }
    }

    /// The same, with the limit of the value, at a JSON pointer, beside it in tables.
    pub const fn out_of(self, limit: &'static str) -> Self {
        Self { limit, ..self }
    }

    /// The same, in the table of the console.
    pub const fn titled(self, title: &'static str) -> Self {
        Self { title: Some(title), ..self }
    }

    /// The same, first in the table of the console.
    pub const fn leading(self) -> Self {
        Self { leads: true, ..self }
    }

    /// The same, on the command line.
    pub const fn headed(self, heading: &'static str) -> Self {
        Self { heading: Some(heading), ..self }
    }

    /// The same, with a text on the command line where an entry has no value.
    pub const fn absent(self, absent: &'static str) -> Self {
        Self { absent, ..self }
    }

    /// The value of an entry with these members.
    pub fn value<'a>(&self, members: &'a Value) -> Cow<'a, Value> {
        let found = if self.pointer.is_empty() { members.get(self.name) } else { members.pointer(self.pointer) };
        match (self.form, found.unwrap_or(&Value::Null)) {
            (Form::Entries, Value::Array(entries)) => Cow::Owned(entries.len().into()),
            (Form::Duration, Value::Number(micros)) => Cow::Owned(micros.as_f64().map(|micros| micros / 1e6).into()),
            (_, value) => Cow::Borrowed(value),
        }
    }

    /// The limit of the value, where an entry with these members has one.
    pub fn limit<'a>(&self, members: &'a Value) -> Option<&'a Value> {
        members.pointer(self.limit).filter(|limit| !self.limit.is_empty() && !limit.is_null())
    }

    /// The value as a text of one line for the command line.
    pub fn words(&self, members: &Value) -> String {
        let value = self.value(members);
        match self.limit(members) {
            Some(limit) => format!("{} of {}", self.words_of(&value), self.words_of(limit)),
            None => self.words_of(&value),
        }
    }

    fn words_of(&self, value: &Value) -> String {
        match self.form {
            _ if text(value).is_empty() => self.absent.to_owned(),
            Form::Bytes => format!("{} MiB", value.as_u64().unwrap_or_default() >> 20),
            Form::Seconds | Form::Duration => format!("{value} s"),
            Form::Money => format!("{} USD", text(value)),
            _ => text(value),
        }
    }
}

/// A value as a text: a list as its elements.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(elements) => elements.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_column_takes_its_value_from_a_member() {
        let members = json!({
            "roles": ["a", "b"], "caller": {"id": "ann"}, "bytes": 3 << 20, "ends": 4, "expires": null, "cost": "0.10",
            "duration_us": 1_500_000, "argument": "",
        });
        for (column, words) in [
            (Column::new("roles", Form::Text), "a, b"),
            (Column::new("caller", Form::Name).at("/caller/id"), "ann"),
            (Column::new("bytes", Form::Bytes), "3 MiB"),
            (Column::new("ends", Form::Seconds), "4 s"),
            (Column::new("roles", Form::Entries), "2"),
            (Column::new("duration_seconds", Form::Duration).at("/duration_us"), "1.5 s"),
            (Column::new("cost", Form::Money), "0.10 USD"),
            (Column::new("ends", Form::Count).out_of("/bytes"), "4 of 3145728"),
            (Column::new("ends", Form::Count).out_of("/expires"), "4"),
            (Column::new("expires", Form::Moment), ""),
            (Column::new("tools", Form::Text).absent("all"), "all"),
            (Column::new("argument", Form::Name).absent("any"), "any"),
        ] {
            assert_eq!(column.words(&members), words);
        }
    }
}
