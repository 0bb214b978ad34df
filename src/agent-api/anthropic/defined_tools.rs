//! Tools that Anthropic defines and the client runs: a request names them by their type, and Anthropic's models know their
//! schemas (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview>). Other models are told them.

use serde_json::{Value, json};

/// The description and the schema of a tool by its type, which ends with a date; `None` for another.
pub(super) fn find(kind: &str) -> Option<(&'static str, Value)> {
    let (name, date) = kind.rsplit_once('_')?;
    if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match name {
        "bash" => Some(("Runs a command in a bash session that keeps its state between calls.", bash())),
        "text_editor" => {
            Some(("Views, creates and edits text files.", editor(&["view", "create", "str_replace", "insert"])))
        }
        "memory" => Some((
            "Keeps notes between conversations, in files below `/memories`.",
            editor(&["view", "create", "str_replace", "insert", "delete", "rename"]),
        )),
        _ => None,
    }
}

fn bash() -> Value {
    json!({"type": "object", "properties": {
        "command": {"type": "string", "description": "The command; not with `restart`."},
        "restart": {"type": "boolean", "description": "Begins a new session."},
    }})
}

fn editor(commands: &[&str]) -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let mut schema = json!({"type": "object", "required": ["command"], "properties": {
        "command": {"type": "string", "enum": commands},
        "path": text("The file or folder."),
        "view_range": {"type": "array", "items": {"type": "integer"}, "description": "Of `view`: the first and last line."},
        "file_text": text("Of `create`: the content."),
        "old_str": text("Of `str_replace`: the text that is replaced, which must be there once."),
        "new_str": text("Of `str_replace`: the text in its place."),
        "insert_line": {"type": "integer", "description": "Of `insert`: the line after which the text comes."},
        "insert_text": text("Of `insert`: the text."),
    }});
    if commands.contains(&"rename") {
        schema["properties"]["old_path"] = text("Of `rename`: the file or folder.");
        schema["properties"]["new_path"] = text("Of `rename`: its new path.");
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_known_by_their_type_with_any_date() {
        for (kind, expected) in [
            ("bash_20250124", Some("restart")),
            ("text_editor_20250728", Some("insert_text")),
            ("memory_20250818", Some("new_path")),
            ("bash", None),
            ("bash_latest", None),
            ("web_search_20250305", None),
            ("computer_20250124", None),
        ] {
            let found = find(kind);
            let has_it =
                found.is_some_and(|(_, schema)| schema["properties"].get(expected.unwrap_or_default()).is_some());
            assert_eq!(has_it, expected.is_some(), "{kind}");
        }
        let (_, editor) = find("text_editor_20250728").unwrap();
        assert!(editor["properties"].get("old_path").is_none(), "{editor}");
    }
}
