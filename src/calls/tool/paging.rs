//! How a caller reads on where a result was cut.

use serde_json::Value;

/// Names of parameters that choose a part of a result, in the order of their use for that.
const PARTS: [&str; 18] = [
    "offset",
    "cursor",
    "page_token",
    "page",
    "start",
    "start_index",
    "start_line",
    "skip",
    "from",
    "range",
    "line",
    "limit",
    "page_size",
    "per_page",
    "max_results",
    "fields",
    "filter",
    "query",
];

/// Most names in the sentence.
const MAX_NAMES: usize = 3;

/// `call it again with another `offset` or `limit` to read on`: by the tool's own parameters, whose JSON Schema this is.
pub fn how_to_read_on(parameters: Option<&Value>) -> String {
    let properties = parameters.and_then(|schema| schema["properties"].as_object());
    let known = |name: &&str| properties.is_some_and(|properties| properties.contains_key(*name));
    let names: Vec<_> = PARTS.iter().copied().filter(known).take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return "call it again for less at a time to read the rest".to_owned();
    }
    format!("call it again with another {} to read the rest", names.join(" or "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_that_choose_a_part_are_named() {
        for (schema, expected) in [
            (json!({"properties": {"limit": {}, "path": {}, "offset": {}}}), "another `offset` or `limit` to read"),
            (json!({"properties": {"path": {}}}), "for less at a time"),
            (json!(true), "for less at a time"),
        ] {
            let sentence = how_to_read_on(Some(&schema));
            assert!(sentence.contains(expected), "{sentence}");
        }
        assert!(how_to_read_on(None).contains("for less at a time"));
    }
}
