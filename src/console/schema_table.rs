//! A JSON Schema as an indented table: name, type, whether it is required, default, rule.

use maud::{Markup, html};
use serde_json::Value;

use super::format;
use super::text::Texts;

/// Maximum depth and rows: a schema is a text of another author.
const MAX_DEPTH: usize = 6;
const MAX_ROWS: usize = 300;

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    depth: usize,
    name: String,
    kind: String,
    required: bool,
    default: Option<String>,
    rules: String,
    description: &'a str,
}

/// The table; a sentence for a schema without named parts.
pub(super) fn table(texts: &Texts, schema: &Value) -> Markup {
    let mut rows = Vec::new();
    collect(schema, schema, 0, &mut rows);
    if rows.is_empty() {
        return html! { p.quiet { (texts.get("schema-empty")) } };
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("schema-title")) {
            table.schema.cards {
                thead { tr {
                    th scope="col" { (texts.get("schema-name")) }
                    th scope="col" { (texts.get("schema-type")) }
                    th scope="col" { (texts.get("schema-rule")) }
                    th scope="col" { (texts.get("schema-default")) }
                } }
                tbody {
                    @for row in rows.iter().take(MAX_ROWS) {
                        tr {
                            th scope="row" class={ "d" (row.depth) } {
                                code { (format::text(&row.name)) }
                                @if row.required { " " span.tag { (texts.get("schema-required")) } }
                                @if !row.description.is_empty() { span.help { (format::text(row.description)) } }
                            }
                            td { code { (format::text(&row.kind)) } }
                            td { (format::text(&row.rules)) }
                            td data-label=[row.default.as_ref().map(|_| texts.get("schema-default"))] { @if let Some(default) = &row.default { code { (format::text(default)) } } }
                        }
                    }
                }
            }
        }
        @if rows.len() > MAX_ROWS { p.quiet { (texts.with("schema-more", [("n", (rows.len() - MAX_ROWS).into())])) } }
    }
}

fn collect<'a>(whole: &'a Value, schema: &'a Value, depth: usize, rows: &mut Vec<Row<'a>>) {
    if depth >= MAX_DEPTH || rows.len() > 2 * MAX_ROWS {
        return;
    }
    let schema = resolved(whole, schema);
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        let part = resolved(whole, part);
        rows.push(row(depth, name.clone(), part, required.contains(&name.as_str())));
        collect(whole, part, depth + 1, rows);
    }
    if let Some(items) = schema.get("items") {
        let items = resolved(whole, items);
        if items.get("properties").is_some() || items.get("items").is_some() {
            collect(whole, items, depth, rows);
        }
    }
}

fn row(depth: usize, name: String, schema: &Value, required: bool) -> Row<'_> {
    let description = schema["description"].as_str().unwrap_or_default();
    let default = schema.get("default").map(|default| shortened(&default.to_string()));
    Row { depth, name, kind: kind(schema), required, default, rules: rules(schema), description }
}

/// A local reference is followed.
pub(super) fn resolved<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let target = |schema: &'a Value| whole.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?);
    let mut found = schema;
    for _ in 0..8 {
        match target(found) {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}

/// The type in one word.
pub(super) fn kind(schema: &Value) -> String {
    let of = |schema: &Value| match &schema["type"] {
        Value::String(kind) => Some(kind.clone()),
        Value::Array(kinds) => Some(kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | ")),
        _ => None,
    };
    match of(schema) {
        Some(kind) if kind == "array" => match of(&schema["items"]) {
            Some(items) => format!("{items}[]"),
            None => kind,
        },
        Some(kind) => kind,
        None if schema["enum"].is_array() => "enum".to_owned(),
        None if schema["properties"].is_object() => "object".to_owned(),
        None if ["anyOf", "oneOf", "allOf"].iter().any(|key| schema[key].is_array()) => "one of several".to_owned(),
        None => "any".to_owned(),
    }
}

/// The rules beside the type.
fn rules(schema: &Value) -> String {
    const RULES: [(&str, &str); 14] = [
        ("minimum", "≥ "),
        ("exclusiveMinimum", "> "),
        ("maximum", "≤ "),
        ("exclusiveMaximum", "< "),
        ("multipleOf", "multiple of "),
        ("minLength", "length ≥ "),
        ("maxLength", "length ≤ "),
        ("pattern", "pattern "),
        ("format", "format "),
        ("minItems", "items ≥ "),
        ("maxItems", "items ≤ "),
        ("const", "= "),
        ("minProperties", "members ≥ "),
        ("maxProperties", "members ≤ "),
    ];
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let simple = RULES.iter().filter_map(|(key, says)| Some(format!("{says}{}", shortened(&text(schema.get(*key)?)))));
    let values = schema["enum"].as_array().map(|values| {
        let shown = values.iter().take(20).map(text).collect::<Vec<_>>().join(", ");
        if values.len() > 20 { format!("{shown}, …") } else { shown }
    });
    values.map(|values| shortened(&values)).into_iter().chain(simple).collect::<Vec<_>>().join(" · ")
}

fn shortened(text: &str) -> String {
    const MAX: usize = 200;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_becomes_rows_with_types_and_rules() {
        let schema = json!({
            "type": "object", "required": ["to"], "$defs": {"address": {"type": "string", "format": "email"}},
            "properties": {
                "to": {"type": "array", "items": {"$ref": "#/$defs/address"}, "minItems": 1},
                "options": {"type": "object", "properties": {"priority": {"enum": ["low", "high"], "default": "low"}}},
                "loop": {"$ref": "#/properties/loop"},
            },
        });
        let mut rows = Vec::new();
        collect(&schema, &schema, 0, &mut rows);
        let shown: Vec<_> =
            rows.iter().map(|row| (row.depth, &*row.name, &*row.kind, row.required, &*row.rules)).collect();
        assert_eq!(
            shown,
            [
                (0, "to", "array", true, "items ≥ 1"),
                (0, "options", "object", false, ""),
                (1, "priority", "enum", false, "low, high"),
                (0, "loop", "any", false, ""),
            ]
        );
        assert_eq!(rows[2].default.as_deref(), Some("\"low\""));
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}});
        let mut rows = Vec::new();
        collect(&schema, &schema, 0, &mut rows);
        assert!(rows.len() < 4 * MAX_ROWS && rows.iter().all(|row| row.depth < MAX_DEPTH));
    }
}
