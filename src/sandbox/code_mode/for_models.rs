//! Code mode for models: two tools in place of all others, one that finds tools and one that runs a program over them.

use serde_json::{Value, json};

use super::stubs::{Stub, stub};

pub use sekisho_calls::tool::PYTHON;

pub const SEARCH_TOOLS: &str = "search_tools";
pub const RUN_PYTHON: &str = "run_python";

/// Default and maximum number of hits of a search.
pub const HITS: usize = 10;
pub const MAX_HITS: usize = 50;

/// Maximum bytes of the text about a hit.
const MAX_TEXT: usize = 300;

/// What `tools` has besides tools; also in `tools.py`.
const OWN: [&str; 4] = ["gather", "result", "schema", "search"];

const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// A tool as a model sees it: name, description, and JSON Schema of the arguments.
pub type ModelTool = (&'static str, &'static str, Value);

/// In the order of their names.
pub fn model_tools() -> [ModelTool; 2] {
    let schema = |properties: Value, required: &str| json!({"type": "object", "properties": properties, "required": [required], "additionalProperties": false});
    [
        (
            RUN_PYTHON,
            "Runs a Python 3 program that calls tools: `from host import tools`, then tools.NAME(argument=value), which returns \
             the result as a Python value. tools.gather(tools.a(x=1), tools.b(y=2)) runs calls in parallel; a refused call \
             raises host.ToolError with code, message and retry_after. tools.result(\"…\") opens a large result by its \
             result_handle, with pandas imported a table as a DataFrame; tools.schema(\"NAME\") gives the JSON Schemas of a tool. Do \
             all steps of a task in one program: only the value of its last expression, what it prints and its files come back. numpy \
             and pandas are there; there is no network.",
            schema(
                json!({
                    "code": {"type": "string", "description": "A complete program."},
                    "timeout_seconds": {
                        "type": "number", "exclusiveMinimum": 0, "description": "Stop the program after this long."
                    },
                    "mode": {
                        "type": "string", "enum": ["run", "propose"],
                        "description": "propose: calls that change something are made at the end, once a person has approved their list."
                    },
                }),
                "code",
            ),
        ),
        (
            SEARCH_TOOLS,
            "Finds the tools that fit a task best, each with how a program calls it and the types of its arguments. Search before you \
             write a program for run_python.",
            schema(
                json!({
                    "query": {"type": "string", "minLength": 1, "description": "The task, in a few words."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": HITS},
                }),
                "query",
            ),
        ),
    ]
}

/// A hit of a search: how a program calls the tool, the classes of its arguments and result, and its description.
pub fn model_hit(name: &str, description: &str, parameters: &Value, output: Option<&Value>) -> Value {
    let text = description.trim();
    let Stub { call, types } = stub(name, parameters, output);
    let mut hit = json!({"call": call, "description": text[..text.floor_char_boundary(MAX_TEXT)]});
    if !types.is_empty() {
        hit["types"] = types.into();
    }
    hit
}

/// A tool, as a program writes it.
pub(super) fn python_function(name: &str) -> String {
    let is_attribute = is_identifier(name) && !OWN.contains(&name);
    if is_attribute { format!("tools.{name}") } else { format!("tools[{name:?}]") }
}

/// Whether a name is an identifier of Python, other than a keyword.
pub(super) fn is_identifier(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    is_word && begins && !KEYWORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_shows_how_a_program_calls_the_tool() {
        let schema = json!({
            "properties": {"days": {"type": "integer"}, "city": {"type": "string"}, "from": {"type": "string"}, "any": {}},
            "required": ["city", "from"],
        });
        let hit = model_hit("weather", " The weather.\nMore. ", &schema, None);
        let call = r#"tools.weather(city: str, **{"from": …}: str, days: int = ..., any: Any = ...)"#;
        assert_eq!(hit, json!({"call": call, "description": "The weather.\nMore."}));
        for name in ["a-b", "import", "9", "search", "schema", "result", "_a"] {
            assert_eq!(stub(name, &json!({}), None).call, format!("tools[{name:?}]()"));
        }
        let many = json!({"properties": Value::from_iter((0..30).map(|n| (format!("p{n}"), json!({}))))});
        assert!(stub("many", &many, None).call.ends_with("p19: Any = ..., …)"));
    }
}
