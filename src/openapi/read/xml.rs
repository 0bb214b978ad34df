//! An XML body is one text argument. A model writes it by an example in the words that the document has for elements.

use serde_json::Value;

use super::reference::{References, reference};

/// Nothing is added to a longer example but the ends of its elements.
const MAX_BYTES: usize = 400;

/// Most members of one element.
const MAX_MEMBERS: usize = 100;

/// Deepest element.
const MAX_DEPTH: usize = 8;

/// Most schemas whose members are collected: parts of a composition may refer to each other.
const MAX_VISITED: usize = 200;

/// Such as `<pet id="integer"><name>string</name></pet>`, by the XML objects of the schema in OpenAPI 3.0 to 3.2. `None` where
/// the root has no name.
pub(super) fn example<'v, 'd: 'v>(schema: &'v Value, references: &References<'d>) -> Option<String> {
    let component = reference(schema).and_then(|written| written.rsplit('/').next());
    let target = references.target(schema).ok()?;
    let name = word(target, "name").or(component)?;
    let mut writer = Writer { references, text: String::new(), visits: MAX_VISITED };
    writer.element(name, target, 0);
    Some(writer.text)
}

struct Writer<'r, 'd> {
    references: &'r References<'d>,
    text: String,
    /// How many schemas may still be visited.
    visits: usize,
}

impl<'d> Writer<'_, 'd> {
    fn element<'v>(&mut self, name: &str, schema: &'v Value, depth: usize)
    where
        'd: 'v,
    {
        let Ok(schema) = self.references.target(schema) else { return };
        if depth > MAX_DEPTH || self.text.len() > MAX_BYTES {
            return;
        }
        if let Some(items) = schema.get("items") {
            return self.list(name, schema, items, depth);
        }
        let (name, mut members) = (tag(schema, name), Vec::new());
        self.collect_members(schema, 0, &mut members);
        let (attributes, children): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(_, member)| is_marked(member, "attribute", "attribute"));
        self.text.push_str(&format!("<{name}{}", namespace(schema)));
        for (name, attribute) in attributes {
            if self.text.len() > MAX_BYTES {
                break;
            }
            self.text.push_str(&format!(" {}=\"{}\"", tag(attribute, name), kind(attribute)));
        }
        self.text.push('>');
        if !is_object(schema) && children.is_empty() {
            self.text.push_str(kind(schema));
        }
        for (name, child) in children {
            match word(child, "nodeType") {
                Some("text" | "cdata") => self.text.push_str(kind(child)),
                _ => self.element(name, child, depth + 1),
            }
        }
        self.text.push_str(&format!("</{name}>"));
    }

    /// One item, in an element of the list where the document says so.
    fn list<'v>(&mut self, name: &str, schema: &'v Value, items: &'v Value, depth: usize)
    where
        'd: 'v,
    {
        let is_wrapped = is_marked(schema, "wrapped", "element");
        let outer = tag(schema, name);
        if is_wrapped {
            self.text.push_str(&format!("<{outer}{}>", namespace(schema)));
        }
        // Without a wrapper the list has no element, and its own name counts for nothing.
        let inner = if is_wrapped { word(schema, "name").unwrap_or(name) } else { name };
        self.element(inner, items, depth + 1);
        if is_wrapped {
            self.text.push_str(&format!("</{outer}>"));
        }
    }

    /// The members that a request has, also of the parts of a composition, and of the first of several alternatives.
    fn collect_members<'v>(&mut self, schema: &'v Value, depth: usize, found: &mut Vec<(&'v str, &'v Value)>)
    where
        'd: 'v,
    {
        if depth > MAX_DEPTH || self.visits == 0 || found.len() > MAX_MEMBERS {
            return;
        }
        self.visits -= 1;
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (name, member) in own.take(MAX_MEMBERS) {
            let target = self.references.target(member).ok();
            let target = target.filter(|target| target.get("readOnly") != Some(&Value::Bool(true)));
            found.extend(target.map(|target| (name.as_str(), target)));
        }
        for (keyword, most) in [("allOf", usize::MAX), ("oneOf", 1), ("anyOf", 1)] {
            for part in schema.get(keyword).and_then(Value::as_array).into_iter().flatten().take(most) {
                if let Ok(part) = self.references.target(part) {
                    self.collect_members(part, depth + 1, found);
                }
            }
        }
    }
}

/// A word of a schema's XML object.
fn word<'v>(schema: &'v Value, key: &str) -> Option<&'v str> {
    schema.get("xml")?.get(key)?.as_str()
}

/// By a flag of OpenAPI up to 3.1, or by the type of node of 3.2.
fn is_marked(schema: &Value, flag: &str, node_type: &str) -> bool {
    let is_set = schema.get("xml").and_then(|xml| xml.get(flag)) == Some(&Value::Bool(true));
    is_set || word(schema, "nodeType") == Some(node_type)
}

fn tag(schema: &Value, name: &str) -> String {
    let name = word(schema, "name").unwrap_or(name);
    word(schema, "prefix").map_or_else(|| name.to_owned(), |prefix| format!("{prefix}:{name}"))
}

fn namespace(schema: &Value) -> String {
    let Some(namespace) = word(schema, "namespace") else { return String::new() };
    let prefix = word(schema, "prefix").map(|prefix| format!(":{prefix}")).unwrap_or_default();
    format!(" xmlns{prefix}=\"{namespace}\"")
}

fn is_object(schema: &Value) -> bool {
    schema.get("type").is_none_or(|kind| kind == "object")
}

/// Stands for a value: its format, or its type.
fn kind(schema: &Value) -> &str {
    let written = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.and_then(Value::as_str),
    };
    schema.get("format").and_then(Value::as_str).or(written).unwrap_or("string")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_example_has_the_words_of_the_document() {
        let document = json!({"components": {"schemas": {
            "Pet": {"type": "object", "xml": {"name": "pet", "namespace": "urn:p", "prefix": "p"}, "properties": {
                "id": {"type": "integer", "format": "int64", "xml": {"attribute": true}},
                "name": {"type": "string", "xml": {"name": "called"}},
                "made": {"type": "string", "readOnly": true},
                "tags": {"type": "array", "xml": {"wrapped": true}, "items": {"$ref": "#/components/schemas/Tag"}},
                "photos": {"type": "array", "xml": {"name": "ignored"}, "items": {"type": ["string", "null"]}},
                "owner": {"allOf": [{"properties": {"age": {"type": "integer"}}}]},
            }},
            "Tag": {"type": "object", "xml": {"name": "tag"}, "properties": {
                "language": {"type": "string", "xml": {"nodeType": "attribute"}},
                "text": {"type": "string", "xml": {"nodeType": "text"}},
            }},
            "Tree": {"type": "object", "properties": {"child": {"$ref": "#/components/schemas/Tree"}}},
        }}});
        let references = References::new(&document);
        let of = |name: &str| example(&json!({"$ref": format!("#/components/schemas/{name}")}), &references).unwrap();
        assert_eq!(
            of("Pet"),
            "<p:pet xmlns:p=\"urn:p\" id=\"int64\"><called>string</called><tags><tag language=\"string\">string</tag></tags>\
             <photos>string</photos><owner><age>integer</age></owner></p:pet>"
        );
        assert!(of("Tree").starts_with("<Tree><child><child>") && of("Tree").len() < 200, "it has an end");
        assert_eq!(example(&json!({"type": "string"}), &references), None, "its root has no name");
    }
}
