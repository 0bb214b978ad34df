//! The short form of a schema of arguments, for lists that models read. It allows the same values: titles, long texts and all examples
//! but the first are left out, and equal parts are shared in `$defs`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::bounds::subschemas_mut;

/// Keywords that say nothing to a model.
const LEFT_OUT: [&str; 4] = ["$comment", "title", "externalDocs", "xml"];

/// The dialect of a schema that names none: another one must stay, since keywords differ.
const OWN_DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The prefix of keywords that no standard defines, and the one of them that clients obey.
const VENDOR: &str = "x-";
const HEADER: &str = "x-mcp-header";

/// Maximum bytes of a description, and of one beside an example, which says more.
const MAX_TEXT: usize = 200;
const MAX_TEXT_WITH_EXAMPLE: usize = 100;

/// Maximum bytes of an example.
const MAX_EXAMPLE: usize = 100;

/// Minimum bytes of a part that is shared, and maximum bytes of a schema whose parts are compared.
const MIN_SHARED: usize = 100;
const MAX_COMPARED: usize = 64 << 10;

/// Keywords by which parts have other names than `#/$defs/NAME`, or that clients look for at one place.
const BOUND_TO_PLACE: [&str; 6] = ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", HEADER];

/// The short form of a schema.
#[must_use]
pub fn short_schema(document: &Value) -> Value {
    let mut short = document.clone();
    shorten(&mut short);
    if may_share(&short) && short.to_string().len() <= MAX_COMPARED {
        Sharing::default().share(&mut short);
    }
    short
}

/// The beginning of a text of at most `max` bytes: whole sentences where they fill half of it, else whole words.
#[must_use]
pub fn short_text(text: &str, max: usize) -> String {
    let text = text.trim();
    if text.len() <= max {
        return text.to_owned();
    }
    let (beginning, _) = text.split_at(text.floor_char_boundary(max));
    let sentences = beginning.rfind(". ").map(|end| end + 1).filter(|end| *end >= max / 2);
    let end = sentences.or_else(|| beginning.rfind(char::is_whitespace)).unwrap_or(beginning.len());
    let (kept, _) = beginning.split_at(end);
    format!("{}…", kept.trim_end())
}

fn shorten(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    let is_left_out = |keyword: &str| LEFT_OUT.contains(&keyword) || (keyword.starts_with(VENDOR) && keyword != HEADER);
    let says_nothing = |keyword: &str, value: &Value| match keyword {
        "$schema" => value.as_str().is_some_and(|dialect| dialect.trim_end_matches('#') == OWN_DIALECT),
        "default" => value.is_null(),
        "description" => value.as_str().is_some_and(|text| text.trim().is_empty()),
        _ => is_left_out(keyword),
    };
    keywords.retain(|keyword, value| !says_nothing(keyword, value));
    let examples = keywords.shift_remove("examples");
    let first = examples.as_ref().and_then(Value::as_array).and_then(|examples| examples.first().cloned());
    let example = keywords.shift_remove("example").or(first).filter(|example| example.to_string().len() <= MAX_EXAMPLE);
    let max = if example.is_some() { MAX_TEXT_WITH_EXAMPLE } else { MAX_TEXT };
    if let Some(Value::String(text)) = keywords.get_mut("description") {
        *text = short_text(text, max);
    }
    if let Some(example) = example {
        keywords.shift_insert(0, "examples".to_owned(), json!([example]));
    }
    subschemas_mut(keywords, &mut shorten);
}

/// Whether references still find their targets when parts have moved.
fn may_share(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(key, member)| match (key.as_str(), member) {
            ("$ref", Value::String(reference)) => names_definition(reference),
            (key, _) if BOUND_TO_PLACE.contains(&key) => false,
            (_, member) => may_share(member),
        }),
        Value::Array(items) => items.iter().all(may_share),
        _ => true,
    }
}

fn names_definition(reference: &str) -> bool {
    let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"));
    reference == "#" || name.is_some_and(|name| !name.contains('/'))
}

/// Moves parts that occur several times into `$defs`.
#[derive(Default)]
struct Sharing {
    /// How often a part occurs, by its text. Within an equal part it counts once.
    counts: HashMap<String, usize>,
    /// The names of shared parts, by their text.
    names: HashMap<String, String>,
    definitions: Map<String, Value>,
}

impl Sharing {
    fn share(mut self, document: &mut Value) {
        let Value::Object(root) = document else { return };
        if let Some(Value::Object(known)) = root.get("$defs") {
            self.definitions = known.iter().map(|(name, _)| (name.clone(), Value::Null)).collect();
        }
        subschemas_mut(root, &mut |part| self.count(part));
        if self.counts.values().all(|count| *count < 2) {
            return;
        }
        subschemas_mut(root, &mut |part| self.replace(part));
        self.definitions.retain(|_, definition| !definition.is_null());
        match root.get_mut("$defs") {
            Some(Value::Object(known)) => known.extend(self.definitions),
            _ => _ = root.insert("$defs".to_owned(), Value::Object(self.definitions)),
        }
    }

    fn count(&mut self, part: &mut Value) {
        let text = part.to_string();
        if text.len() >= MIN_SHARED {
            let count = self.counts.entry(text).or_default();
            *count += 1;
            if *count > 1 {
                return;
            }
        }
        if let Value::Object(keywords) = part {
            subschemas_mut(keywords, &mut |part| self.count(part));
        }
    }

    fn replace(&mut self, part: &mut Value) {
        let text = part.to_string();
        let is_shared = self.counts.get(&text).is_some_and(|count| *count > 1);
        let known = self.names.get(&text).cloned();
        if is_shared && known.is_none() {
            let name = self.free_name();
            // The name is taken before the parts of this one get theirs.
            self.definitions.insert(name.clone(), Value::Null);
            self.names.insert(text, name.clone());
            self.replace_below(part);
            self.definitions.insert(name.clone(), part.take());
            *part = reference_to(&name);
        } else if let Some(name) = known {
            *part = reference_to(&name);
        } else {
            self.replace_below(part);
        }
    }

    fn replace_below(&mut self, part: &mut Value) {
        if let Value::Object(keywords) = part {
            subschemas_mut(keywords, &mut |part| self.replace(part));
        }
    }

    fn free_name(&self) -> String {
        let mut number = self.names.len() + 1;
        while self.definitions.contains_key(&format!("s{number}")) {
            number += 1;
        }
        format!("s{number}")
    }
}

fn reference_to(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::InputSchema;

    fn address(example: &str) -> Value {
        json!({
            "title": "Address", "type": "object", "description": "", "x-order": 3,
            "properties": {
                "city": {"type": "string", "title": "City", "description": "The name of the city.", "examples": [example, "Osaka"]},
                "title": {"type": "string", "description": "How to address the person there.", "default": null},
            },
            "required": ["city"],
        })
    }

    #[test]
    fn titles_and_long_texts_go_and_examples_come_first() {
        let long = format!("The first sentence, which is kept whole. {}", "More words about it. ".repeat(30));
        let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {
            "a": {"type": "string", "description": long, "examples": ["x", "y"]},
            "b": {"type": "string", "description": long, "example": "z".repeat(MAX_EXAMPLE)},
            "title": {"type": "integer", "x-mcp-header": "Title", "x-other": 1},
        }});
        let short = short_schema(&schema);
        let text = |name: &str| short["properties"][name]["description"].as_str().unwrap();
        assert!(text("a").len() <= MAX_TEXT_WITH_EXAMPLE + 3 && text("b").len() <= MAX_TEXT + 3, "{short}");
        assert!(text("a").starts_with("The first sentence") && text("a").ends_with(".…"), "{short}");
        let first = short["properties"]["a"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(first, (&"examples".to_owned(), &json!(["x"])));
        assert_eq!(short["properties"]["title"], json!({"type": "integer", "x-mcp-header": "Title"}));
        let older = json!({"$schema": "http://json-schema.org/draft-07/schema#"});
        assert_eq!(short_schema(&older), older);
        assert!(short.get("$schema").is_none() && short["properties"]["b"].get("examples").is_none(), "{short}");
    }

    #[test]
    fn equal_parts_are_shared_and_the_same_values_are_allowed() {
        let schema = json!({
            "type": "object",
            "properties": {"from": address("Kyoto"), "to": address("Kyoto"), "through": {"type": "array", "items": address("Kyoto")}},
            "required": ["from"],
            "$defs": {"s1": {"type": "string"}},
        });
        let short = short_schema(&schema);
        let shared = json!({"$ref": "#/$defs/s2"});
        assert_eq!(short["properties"]["from"], shared);
        assert_eq!((&short["properties"]["to"], &short["properties"]["through"]["items"]), (&shared, &shared));
        assert_eq!(short["$defs"].as_object().unwrap().len(), 2, "parts of a shared part stay in it: {short}");
        assert!(short.to_string().len() * 2 < schema.to_string().len(), "{short}");
        let compile = |schema: &Value| InputSchema::compile("travel", schema.clone(), false).unwrap();
        for (arguments, fits) in [
            (json!({"from": {"city": "Kyoto"}, "through": [{"city": "Nara"}]}), true),
            (json!({"from": {}}), false),
            (json!({"from": {"city": "Kyoto"}, "through": [{"city": {}}]}), false),
        ] {
            for schema in [&schema, &short] {
                let valid = compile(schema).validate(arguments.as_object().unwrap().clone());
                assert_eq!(valid.is_ok(), fits, "{arguments}");
            }
        }
    }

    #[test]
    fn parts_that_are_found_by_their_place_stay_there() {
        for (name, part) in [
            ("pointer", json!({"$ref": "#/properties/from/properties/city"})),
            ("id", json!({"$id": "https://x.example/a"})),
            ("header", json!({"type": "string", "x-mcp-header": "Region"})),
        ] {
            let schema = json!({"properties": {"from": address("Kyoto"), "to": address("Kyoto"), name: part}});
            let short = short_schema(&schema);
            assert!(short["properties"]["to"]["properties"].is_object(), "{short}");
        }
    }

    #[test]
    fn a_text_ends_after_a_sentence_or_a_word() {
        for (text, max, expected) in [
            (" Short. ", 10, "Short."),
            ("One sentence. And another one.", 20, "One sentence.…"),
            ("One. And quite another one.", 20, "One. And quite…"),
            ("全角の文字ばかり", 10, "全角の…"),
        ] {
            assert_eq!(short_text(text, max), expected);
        }
    }
}
