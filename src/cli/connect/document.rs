//! The text of an editor's file, and the MCP servers in it. Text that is not changed stays as its user wrote it, with
//! its comments.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// With comments and trailing commas.
    Json,
    Toml,
}

/// No looser than the editors read it: JSON5 is not accepted.
const JSON: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) struct Document {
    text: Text,
    /// The member with the servers.
    list: &'static str,
}

enum Text {
    Json(CstRootNode),
    Toml(Box<DocumentMut>),
}

impl Document {
    /// An empty text is a file without servers.
    /// Errors: the text is not of that format, or its list is not an object of servers by name. No value of the text is
    /// shown.
    pub(super) fn parse(text: &str, format: Format, list: &'static str) -> Result<Self, String> {
        let text = match format {
            Format::Json => {
                let root = CstRootNode::parse(text, &JSON)
                    .map_err(|error| format!("is not JSON: {} (line {})", error.kind(), error.line_display()))?;
                Text::Json(root)
            }
            Format::Toml => {
                let parsed = text.parse::<DocumentMut>().map_err(|error| {
                    let start = error.span().map_or(0, |span| span.start);
                    let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
                    format!("is not TOML: {} (line {line})", error.message())
                })?;
                Text::Toml(Box::new(parsed))
            }
        };
        let document = Self { text, list };
        document.servers()?;
        Ok(document)
    }

    /// The entries by name.
    /// Errors: as [`Document::parse`].
    pub(super) fn servers(&self) -> Result<Map<String, Value>, String> {
        let list = self.list;
        let wrong = || format!("has a `{list}` that is not an object of servers by name");
        match &self.text {
            Text::Json(root) if root.value().is_none() => Ok(Map::new()),
            Text::Json(root) => {
                let root = root.object_value().ok_or("is not a JSON object")?;
                if count(&root, list) > 1 {
                    return Err(format!("has `{list}` twice"));
                }
                let Some(member) = root.get(list) else { return Ok(Map::new()) };
                let servers = member.object_value().ok_or_else(wrong)?;
                let names = servers.properties().iter().filter_map(CstObjectProp::decoded_name).collect::<Vec<_>>();
                if let Some(twice) = names.iter().find(|name| count(&servers, name) > 1) {
                    return Err(format!("has the server {twice:?} twice"));
                }
                match servers.to_serde_value() {
                    Some(Value::Object(servers)) => Ok(servers),
                    _ => Err(wrong()),
                }
            }
            Text::Toml(root) => match root.get(list) {
                None => Ok(Map::new()),
                Some(servers) => {
                    let servers = servers.as_table_like().ok_or_else(wrong)?;
                    Ok(servers.iter().map(|(name, entry)| (name.to_owned(), json_of(entry))).collect())
                }
            },
        }
    }

    /// Adds a server, or replaces its entry.
    pub(super) fn set(&mut self, name: &str, entry: &Value) {
        let list = self.list;
        match &mut self.text {
            Text::Json(root) => {
                let servers = root.object_value_or_set().object_value_or_set(list);
                match servers.get(name) {
                    Some(member) => member.set_value(cst_of(entry)),
                    None => {
                        servers.append(name, cst_of(entry));
                    }
                }
            }
            Text::Toml(root) => {
                let servers = root.entry(list).or_insert_with(|| {
                    let mut table = Table::new();
                    table.set_implicit(true);
                    Item::Table(table)
                });
                if let Some(servers) = servers.as_table_like_mut() {
                    servers.insert(name, Item::Table(table_of(entry)));
                }
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        match &mut self.text {
            Text::Json(root) => {
                let servers = root.object_value().and_then(|root| root.object_value(self.list));
                if let Some(member) = servers.and_then(|servers| servers.get(name)) {
                    member.remove();
                }
            }
            Text::Toml(root) => {
                if let Some(servers) = root.get_mut(self.list).and_then(Item::as_table_like_mut) {
                    servers.remove(name);
                }
            }
        }
    }

    pub(super) fn text(&self) -> String {
        match &self.text {
            Text::Json(root) => root.to_string(),
            Text::Toml(root) => root.to_string(),
        }
    }
}

fn count(object: &CstObject, name: &str) -> usize {
    object.properties().iter().filter(|member| member.decoded_name().as_deref() == Some(name)).count()
}

fn cst_of(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(truth) => CstInputValue::Bool(*truth),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(cst_of).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), cst_of(value))).collect())
        }
    }
}

fn json_of(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => json_of_value(value),
        Item::Table(table) => table.iter().map(|(name, item)| (name.to_owned(), json_of(item))).collect(),
        Item::ArrayOfTables(tables) => {
            let object = |table: &Table| -> Value {
                table.iter().map(|(name, item)| (name.to_owned(), json_of(item))).collect()
            };
            tables.iter().map(object).collect()
        }
    }
}

fn json_of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => text.value().as_str().into(),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(truth) => (*truth.value()).into(),
        toml_edit::Value::Datetime(moment) => moment.value().to_string().into(),
        toml_edit::Value::Array(items) => items.iter().map(json_of_value).collect(),
        toml_edit::Value::InlineTable(members) => {
            members.iter().map(|(name, value)| (name.to_owned(), json_of_value(value))).collect()
        }
    }
}

/// An entry; members without a value in TOML are left out.
fn table_of(entry: &Value) -> Table {
    let mut table = Table::new();
    for (name, value) in entry.as_object().into_iter().flatten() {
        if let Some(value) = toml_of(value) {
            table.insert(name, Item::Value(value));
        }
    }
    table
}

fn toml_of(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => toml_edit::Value::Array(items.iter().filter_map(toml_of).collect::<Array>()),
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| Some((name.as_str(), toml_of(value)?)));
            toml_edit::Value::InlineTable(members.collect::<InlineTable>())
        }
    })
}
