//! A form made from a JSON Schema, and arguments made from what was filled in. The arguments are checked by the call
//! itself: here is no second check.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::format;
use super::schema_table::{kind, resolved};
use super::text::Texts;
use crate::core::call::Arguments;
use crate::core::error::Detail;
use crate::core::json;

/// Names of fields begin so, so that none is that of a token.
const PREFIX: &str = "argument.";

/// The field with all arguments as JSON, instead of the others.
const AS_JSON: &str = "json";

/// Maximum fields; the arguments of a tool with more are written as JSON.
const MAX_FIELDS: usize = 60;

/// What was filled in: names and texts of a form.
pub(super) type Filled<'a> = &'a [(String, String)];

/// How the value of one argument is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Text,
    LongText,
    Number,
    Select,
    Json,
}

/// The fields, with what was filled in before and what is wrong with it.
pub(super) fn fields(texts: &Texts, schema: &Value, filled: Filled<'_>, problems: &[Detail]) -> Markup {
    let parts = parts(schema);
    let json = value_of(filled, AS_JSON);
    html! {
        @if !problems.is_empty() { (summary(texts, &parts, problems)) }
        @for part in &parts { (field(texts, *part, &id_of(&parts, part.0), filled, problems)) }
        @if parts.is_empty() && !takes_any(schema) { p.quiet { (texts.get("try-no-arguments")) } }
        details.json open[!json.is_empty() || parts.is_empty() && takes_any(schema)] {
            summary { (texts.get("try-as-json")) }
            div.field {
                label for="json" { (texts.get("try-json-label")) }
                textarea #json name=(AS_JSON) rows="6" spellcheck="false" aria-describedby="json-help" { (json) }
                p.help #json-help { (texts.get("try-json-help")) }
            }
        }
    }
}

/// The arguments that were filled in. Empty fields are left out.
///
/// # Errors
/// Fields that are no JSON where JSON is needed.
pub(super) fn arguments(schema: &Value, filled: Filled<'_>) -> Result<Arguments, Vec<Detail>> {
    let whole = value_of(filled, AS_JSON);
    if !whole.trim().is_empty() {
        return match json::parse(whole.as_bytes()) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err(vec![problem("", "it must be one JSON object: {\"name\": value}".to_owned())]),
            Err(error) => Err(vec![problem("", error.to_string())]),
        };
    }
    let (mut arguments, mut problems) = (Map::new(), Vec::new());
    for (name, part, _) in parts(schema) {
        let text = value_of(filled, &format!("{PREFIX}{name}"));
        if text.is_empty() {
            continue;
        }
        match read(part, text) {
            Ok(value) => _ = arguments.insert(name.to_owned(), value),
            Err(error) => problems.push(problem(name, error)),
        }
    }
    if problems.is_empty() { Ok(arguments) } else { Err(problems) }
}

/// The named arguments of the schema: name, schema, whether it is required.
fn parts(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let top = resolved(schema, schema);
    let required: Vec<_> = top["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = top["properties"].as_object().into_iter().flatten();
    let parts: Vec<_> = properties
        .map(|(name, part)| (name.as_str(), resolved(schema, part), required.contains(&name.as_str())))
        .collect();
    if parts.len() > MAX_FIELDS { Vec::new() } else { parts }
}

/// Whether there may be arguments that no field is for.
fn takes_any(schema: &Value) -> bool {
    let top = resolved(schema, schema);
    top["properties"].as_object().is_none_or(|parts| parts.len() > MAX_FIELDS) && top["additionalProperties"] != false
}

fn control(schema: &Value) -> Control {
    let is_text = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    if schema["enum"].as_array().is_some_and(|values| values.iter().all(is_text)) {
        return Control::Select;
    }
    match kind(schema).as_str() {
        "boolean" => Control::Select,
        "integer" | "number" => Control::Number,
        "string" if schema["maxLength"].as_u64().is_none_or(|max| max > 200) && is_long(schema) => Control::LongText,
        "string" => Control::Text,
        _ => Control::Json,
    }
}

/// Texts like code have more than a line.
fn is_long(schema: &Value) -> bool {
    const WORDS: [&str; 7] = ["code", "script", "query", "content", "body", "text", "prompt"];
    let described = schema["description"].as_str().unwrap_or_default().to_lowercase();
    schema["format"].is_null() && WORDS.iter().any(|word| described.contains(word))
}

fn read(schema: &Value, text: &str) -> Result<Value, String> {
    let as_json = |text: &str| json::parse(text.as_bytes());
    match control(schema) {
        Control::Text | Control::LongText => Ok(Value::from(text.replace("\r\n", "\n"))),
        // What is no number is refused by the call, with the rule that it violates.
        Control::Number => Ok(as_json(text.trim()).unwrap_or_else(|_| Value::from(text))),
        Control::Select => Ok(options(schema).find(|value| shown(value) == text).unwrap_or_else(|| Value::from(text))),
        Control::Json => as_json(text).map_err(|error| error.to_string()),
    }
}

fn options(schema: &Value) -> impl Iterator<Item = Value> {
    let values = schema["enum"].as_array().cloned();
    values.unwrap_or_else(|| vec![Value::Bool(true), Value::Bool(false)]).into_iter()
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn value_of<'a>(filled: Filled<'a>, name: &str) -> &'a str {
    filled.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
}

fn problem(name: &str, message: String) -> Detail {
    let path = if name.is_empty() { String::new() } else { format!("/{}", name.replace('~', "~0").replace('/', "~1")) };
    Detail { path, rule: "json".into(), message }
}

/// The argument that a JSON Pointer begins with.
fn named_by(path: &str) -> String {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    first.replace("~1", "/").replace("~0", "~")
}

/// The position of an argument in the form, which is its id there: names may be any text.
fn id_of(parts: &[(&str, &Value, bool)], name: &str) -> String {
    parts.iter().position(|(known, _, _)| *known == name).map_or_else(|| "json".to_owned(), |at| format!("a{at}"))
}

fn summary(texts: &Texts, parts: &[(&str, &Value, bool)], problems: &[Detail]) -> Markup {
    html! {
        div.notice.bad #problems role="alert" tabindex="-1" {
            p { (texts.with("try-problems", [("n", problems.len().into())])) }
            ul { @for problem in problems {
                @let name = named_by(&problem.path);
                li { a href={ "#" (id_of(parts, &name)) } { (if name.is_empty() { "JSON".into() } else { format::text(&name) }) } ": " (format::text(&problem.message)) }
            } }
        }
    }
}

fn field(
    texts: &Texts,
    (name, schema, required): (&str, &Value, bool),
    id: &str,
    filled: Filled<'_>,
    problems: &[Detail],
) -> Markup {
    let (input, value) = (format!("{PREFIX}{name}"), value_of(filled, &format!("{PREFIX}{name}")));
    let wrong: Vec<_> =
        problems.iter().filter(|problem| !problem.path.is_empty() && named_by(&problem.path) == name).collect();
    let default = schema.get("default").map(shown).unwrap_or_default();
    let described = format!("{id}-help");
    let invalid = (!wrong.is_empty()).then_some("true");
    html! {
        div.field {
            label for=(id) { code { (name) } span.kind { (kind(schema)) } @if required { span.tag { (texts.get("schema-required")) } } }
            @match control(schema) {
                Control::Select => select #(id) name=(input) aria-describedby=(described) aria-invalid=[invalid] {
                    option value="" { (texts.get("try-unset")) @if !default.is_empty() { " (" (default) ")" } }
                    @for option in options(schema).map(|option| shown(&option)) {
                        option value=(option) selected[option == value] { (option) }
                    }
                },
                Control::LongText | Control::Json => textarea #(id) name=(input) rows="3" spellcheck="false"
                    placeholder=(default) aria-describedby=(described) aria-invalid=[invalid] { "\n" (value) },
                Control::Text | Control::Number => input #(id) name=(input) value=(value) placeholder=(default)
                    inputmode=[(control(schema) == Control::Number).then_some("decimal")] autocomplete="off" spellcheck="false"
                    aria-describedby=(described) aria-invalid=[invalid];
            }
            p.help #(described) {
                @if let Some(description) = schema["description"].as_str() { (format::text(description)) }
                @if control(schema) == Control::Json { " " (texts.get("try-needs-json")) }
            }
            @for problem in wrong { p.error { (format::text(&problem.message)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn schema() -> Value {
        json!({
            "type": "object", "required": ["name"],
            "properties": {
                "name": {"type": "string"}, "count": {"type": "integer"}, "on": {"type": "boolean"},
                "level": {"enum": [1, "two"]}, "tags": {"type": "array", "items": {"type": "string"}},
            },
        })
    }

    #[test]
    fn what_is_filled_in_becomes_arguments_of_their_types() {
        let form = filled(&[
            ("token", "t"),
            ("argument.name", "a\r\nb"),
            ("argument.count", " 3 "),
            ("argument.on", "false"),
            ("argument.level", "1"),
            ("argument.tags", "[\"x\"]"),
            ("argument.other", "ignored"),
        ]);
        let expected = json!({"name": "a\nb", "count": 3, "on": false, "level": 1, "tags": ["x"]});
        assert_eq!(Value::Object(arguments(&schema(), &form).unwrap()), expected);
        let form = filled(&[("argument.count", "many"), ("argument.level", "two")]);
        assert_eq!(Value::Object(arguments(&schema(), &form).unwrap()), json!({"count": "many", "level": "two"}));
    }

    #[test]
    fn what_is_no_json_is_said_at_its_field() {
        let wrong = arguments(&schema(), &filled(&[("argument.tags", "[1"), ("argument.name", "n")])).unwrap_err();
        assert_eq!((wrong.len(), &*wrong[0].path), (1, "/tags"));
        let form = filled(&[("json", "{\"name\": \"n\"}"), ("argument.name", "other")]);
        assert_eq!(Value::Object(arguments(&schema(), &form).unwrap()), json!({"name": "n"}));
        for text in ["[1]", "{\"a\": 1, \"a\": 2}", "{"] {
            assert!(arguments(&schema(), &filled(&[("json", text)])).is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_texts_of_a_schema_are_escaped() {
        let hostile = "\"><script>alert(1)</script>";
        let schema = json!({"properties": {hostile: {"type": "string", "description": hostile, "default": hostile, "enum": [hostile]}}});
        let texts = Texts::new(super::super::text::Language::English);
        let detail =
            Detail { path: format!("/{}", hostile.replace('/', "~1")), rule: "r".into(), message: hostile.into() };
        let form =
            fields(&texts, &schema, &filled(&[(&format!("{PREFIX}{hostile}"), hostile)]), &[detail]).into_string();
        assert!(!form.contains("<script"), "{form}");
        assert!(form.contains("aria-invalid=\"true\""), "{form}");
    }
}
