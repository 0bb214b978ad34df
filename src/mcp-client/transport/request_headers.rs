//! The headers that repeat parts of a request since revision 2026-07-28 (SEP-2243), and which arguments a tool's schema
//! marks for them.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use sekisho_core::mcp_headers::{METHOD, NAME, PARAMETER, argument_text, encode, name_parameter};

/// The keyword of a schema that marks an argument.
const KEYWORD: &str = "x-mcp-header";

/// The marked arguments of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MarkedArguments(Vec<(Vec<String>, HeaderName)>);

impl MarkedArguments {
    /// Errors: why a tool with this schema must not be offered.
    pub(crate) fn of(schema: &Value) -> Result<Self, String> {
        let mut marked = Self::default();
        if marks(schema) {
            marked.collect(schema, &mut Vec::new())?;
        }
        Ok(marked)
    }

    /// Only properties that are reached only through `properties` can be marked.
    fn collect(&mut self, schema: &Value, path: &mut Vec<String>) -> Result<(), String> {
        let Some(schema) = schema.as_object() else { return Ok(()) };
        if let Some(name) = schema.get(KEYWORD) {
            self.add(name, schema.get("type"), path)?;
        }
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        path.push(name.clone());
                        self.collect(property, path)?;
                        path.pop();
                    }
                }
                (KEYWORD | "default" | "const" | "enum" | "examples", _) => {}
                (_, value) if marks(value) => {
                    return Err(format!("{KEYWORD} is below {keyword}, where it cannot be used"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &Value, kind: Option<&Value>, path: &[String]) -> Result<(), String> {
        let place = path.join(".");
        if path.is_empty() {
            return Err(format!("{KEYWORD} must mark a property, not the whole schema"));
        }
        let header = name.as_str().filter(|name| !name.is_empty());
        let header = header.and_then(|name| format!("{PARAMETER}{name}").parse::<HeaderName>().ok());
        let header = header.ok_or_else(|| format!("{KEYWORD} of {place} is not the name of a header"))?;
        if !matches!(kind.and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
            return Err(format!("{KEYWORD} of {place} needs the type string, integer or boolean"));
        }
        if self.0.iter().any(|(_, known)| *known == header) {
            return Err(format!("two properties have the same {KEYWORD}, {place} is one of them"));
        }
        self.0.push((path.to_vec(), header));
        Ok(())
    }
}

/// Adds the headers of a request.
pub fn add(headers: &mut HeaderMap, method: &str, params: &Map<String, Value>, marked: Option<&MarkedArguments>) {
    let mut add = |name: HeaderName, value: &str| {
        headers.extend(HeaderValue::try_from(encode(value)).map(|value| (name, value)));
    };
    add(METHOD, method);
    if let Some(name) = name_parameter(method).and_then(|name| params.get(name)?.as_str()) {
        add(NAME, name);
    }
    for (path, header) in marked.iter().flat_map(|marked| &marked.0) {
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        if let Some(value) = argument_text(params.get("arguments"), &path) {
            add(header.clone(), &value);
        }
    }
}

/// Whether the keyword is in the schema or below.
fn marks(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key(KEYWORD) || members.values().any(marks),
        Value::Array(items) => items.iter().any(marks),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
        let params = json!({"name": "t", "arguments": arguments});
        let marked = MarkedArguments::of(schema).unwrap();
        let mut headers = HeaderMap::new();
        add(&mut headers, "tools/call", params.as_object().unwrap(), Some(&marked));
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).skip(2).collect()
    }

    #[test]
    fn marked_arguments_are_headers_wherever_their_properties_are() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "page": {"type": "object", "properties": {"size": {"type": "integer", "x-mcp-header": "Size"}}},
            "fast": {"type": "boolean", "x-mcp-header": "Fast"},
        }});
        let arguments = json!({"region": "eu", "page": {"size": 5}, "fast": true});
        let expected = [("mcp-param-region", "eu"), ("mcp-param-size", "5"), ("mcp-param-fast", "true")];
        assert_eq!(sent(&schema, &arguments), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(sent(&schema, &json!({"region": null, "page": 3})).is_empty());
        assert_eq!(sent(&schema, &json!({"region": "ü"}))[0].1, "=?base64?w7w=?=");
    }

    #[test]
    fn a_mark_that_cannot_be_followed_is_an_error() {
        let property = |schema: Value| json!({"properties": {"a": schema}});
        for schema in [
            json!({"x-mcp-header": "A", "type": "string"}),
            property(json!({"type": "string", "x-mcp-header": ""})),
            property(json!({"type": "string", "x-mcp-header": "a b"})),
            property(json!({"type": "string", "x-mcp-header": 1})),
            property(json!({"type": "number", "x-mcp-header": "A"})),
            property(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
            json!({"anyOf": [property(json!({"type": "string", "x-mcp-header": "A"}))]}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}),
        ] {
            assert!(MarkedArguments::of(&schema).is_err(), "{schema}");
        }
        for schema in [json!({}), json!(null), property(json!({"default": {"x-mcp-header": 1}}))] {
            assert_eq!(MarkedArguments::of(&schema), Ok(MarkedArguments::default()), "{schema}");
        }
    }
}
