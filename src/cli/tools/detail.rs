//! One tool for a reader: its description, arguments, callers and limits. `--json` has the schemas.

use serde_json::Value;

use crate::cli::{Exit, present};

/// Rows for a tool as `/tools/{name}/metadata` and `/tools/{name}/schema` have it, in one object.
pub(super) fn show(tool: &Value) -> Exit {
    present::line(&present::text(tool, "name"));
    present::line(&present::text(tool, "description"));
    present::line("");
    let arguments = arguments(&tool["parameters"]);
    if arguments.is_empty() {
        present::line("It takes no arguments.");
    } else {
        present::table(&["argument", "type", "required", "description"], arguments);
    }
    present::line("");
    present::lines(facts(tool));
    present::info("the schemas: `sekisho tools show NAME --json`");
    Exit::Done
}

fn arguments(schema: &Value) -> Vec<Vec<String>> {
    let required = present::entries(&schema["required"]);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let row = |(name, property): (&String, &Value)| {
        let is_required = required.iter().any(|required| required == name);
        let words = property["description"].as_str().unwrap_or_default().to_owned();
        vec![name.clone(), kind(property), if is_required { "yes" } else { "" }.to_owned(), words]
    };
    properties.map(row).collect()
}

/// The type of an argument with its values and its default, as a schema states them.
fn kind(property: &Value) -> String {
    let mut kind = match &property["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    if let Some(values) = property["enum"].as_array() {
        kind = values.iter().map(shown).collect::<Vec<_>>().join(" | ");
    }
    match &property["default"] {
        Value::Null => kind,
        default => format!("{kind}, by default {}", shown(default)),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Further facts for a caller, without those that most tools share.
fn facts(tool: &Value) -> Vec<Vec<String>> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: String| facts.push(vec![name.to_owned(), value]);
    add("source", present::text(tool, "source"));
    for (member, words) in [
        ("dangerous", "yes: callers need a role of `policy.dangerous_roles`, or one of `roles`"),
        ("requires_auth", "yes: only callers with a key or a token"),
        ("sandboxed", "yes"),
        ("session_aware", "yes: name a session with `--session`"),
        ("idempotent", "yes"),
    ] {
        if tool[member] == true {
            add(member, words.to_owned());
        }
    }
    for member in ["roles", "labels"] {
        let names: Vec<_> = present::entries(&tool[member]).iter().filter_map(Value::as_str).collect();
        if !names.is_empty() {
            add(member, names.join(", "));
        }
    }
    for (member, unit) in [
        ("rate_limit", "calls a minute for each caller"),
        ("timeout_seconds", "s"),
        ("max_concurrent", "calls at once"),
        ("max_output_bytes", "bytes"),
    ] {
        if tool[member].is_number() {
            add(member, format!("{} {unit}", tool[member]));
        }
    }
    if tool["cost_per_use"].as_f64().is_some_and(|cost| cost > 0.0) {
        add("cost_per_use", format!("{} USD", tool["cost_per_use"]));
    }
    facts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_have_their_type_values_and_default() {
        let schema = json!({"required": ["path"], "properties": {
            "path": {"type": "string", "description": "Where."},
            "mode": {"enum": ["r", "w"], "default": "r"},
            "lines": {"type": ["integer", "null"]},
            "any": {},
        }});
        let mut rows = arguments(&schema);
        rows.sort();
        assert_eq!(
            rows,
            [
                ["any", "any", "", ""],
                ["lines", "integer or null", "", ""],
                ["mode", "r | w, by default r", "", ""],
                ["path", "string", "yes", "Where."],
            ]
        );
        assert!(arguments(&json!({"type": "object"})).is_empty());
    }

    #[test]
    fn only_facts_that_matter_are_listed() {
        let facts = facts(&json!({"source": "builtin", "dangerous": true, "idempotent": false, "roles": ["admin"],
            "rate_limit": 60, "max_concurrent": null, "cost_per_use": 0.0}));
        let names: Vec<_> = facts.iter().map(|fact| fact[0].as_str()).collect();
        assert_eq!(names, ["source", "dangerous", "roles", "rate_limit"]);
    }
}
