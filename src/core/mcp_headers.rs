//! The headers that repeat parts of an MCP request, so that proxies can route it without reading its body
//! (SEP-2243, since revision 2026-07-28): `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderName;
use serde_json::{Map, Value};

pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Prefix of the headers with arguments of a tool.
pub const PARAMETER: &str = "mcp-param-";

/// Marks a value that a header cannot hold as text.
const BASE64_PREFIX: &str = "=?base64?";
const BASE64_SUFFIX: &str = "?=";

/// The parameter whose value `Mcp-Name` repeats: the name or address of the object of this method.
pub fn name_parameter(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The arguments that must be repeated in headers: their path in the arguments, and the header's name without its
/// prefix. An input schema marks them with `x-mcp-header`.
pub fn parameters(input_schema: &Map<String, Value>) -> Vec<(Vec<&str>, &str)> {
    let mut found = Vec::new();
    collect(input_schema.get("properties"), &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(properties: Option<&'a Value>, path: &mut Vec<&'a str>, found: &mut Vec<(Vec<&'a str>, &'a str)>) {
    let Some(Value::Object(properties)) = properties else { return };
    for (name, schema) in properties {
        path.push(name);
        if let Some(header) = schema.get("x-mcp-header").and_then(Value::as_str).filter(|header| !header.is_empty()) {
            found.push((path.clone(), header));
        }
        collect(schema.get("properties"), path, found);
        path.pop();
    }
}

/// A scalar argument as the text of its header; `None` for an absent, null or structured one.
pub fn argument_text(arguments: Option<&Value>, path: &[&str]) -> Option<String> {
    let value = path.iter().try_fold(arguments?, |value, key| value.get(key))?;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The value as a header carries it: text where a header can hold it, else Base64.
pub fn encode(value: &str) -> String {
    let is_padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let is_text = value.chars().all(|character| (' '..='~').contains(&character));
    let looks_encoded = value.starts_with(BASE64_PREFIX) && value.ends_with(BASE64_SUFFIX);
    if value.is_empty() || (is_text && !is_padded && !looks_encoded) {
        return value.to_owned();
    }
    format!("{BASE64_PREFIX}{}{BASE64_SUFFIX}", BASE64_STANDARD.encode(value))
}

/// The value that a header carries; `None` if its Base64 is malformed.
pub fn decode(header: &str) -> Option<String> {
    match header.strip_prefix(BASE64_PREFIX).and_then(|rest| rest.strip_suffix(BASE64_SUFFIX)) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(header.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_found_by_their_mark_at_any_depth() {
        let schema = json!({"properties": {
            "region": {"x-mcp-header": "Region"},
            "at": {"properties": {"zone": {"x-mcp-header": "Zone"}, "other": {"x-mcp-header": 5}}},
        }});
        let found = parameters(schema.as_object().expect("an object"));
        assert_eq!(found, [(vec!["region"], "Region"), (vec!["at", "zone"], "Zone")]);
        let arguments = json!({"region": "eu", "at": {"zone": 5}, "list": [1]});
        assert_eq!(argument_text(Some(&arguments), &["region"]).as_deref(), Some("eu"));
        assert_eq!(argument_text(Some(&arguments), &["at", "zone"]).as_deref(), Some("5"));
        assert_eq!(argument_text(Some(&arguments), &["list"]), None);
        assert_eq!(argument_text(None, &["region"]), None);
    }

    proptest! {
        #[test]
        fn any_value_survives_a_header(value in ".*") {
            let header = encode(&value);
            prop_assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header:?}");
            prop_assert_eq!(decode(&header), Some(value));
        }
    }
}
