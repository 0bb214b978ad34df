//! Code mode for models: two tools in place of all others, one that finds tools and one that runs a program over them.

use serde_json::{Value, json};

/// The tool that runs programs.
pub const PYTHON: &str = "python_executor";

pub const SEARCH_TOOLS: &str = "search_tools";
pub const RUN_PYTHON: &str = "run_python";

/// Default and maximum number of hits of a search.
pub const HITS: usize = 10;
pub const MAX_HITS: usize = 50;

/// Maximum bytes of the text about a hit.
const MAX_TEXT: usize = 300;
/// Parameters that a signature shows.
const MAX_PARAMETERS: usize = 20;

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
             result_handle, with pandas imported a table as a DataFrame. Do all steps of a task in one program: only the value \
             of its last expression, what it prints and its files come back. numpy and pandas are there; there is no network.",
            schema(
                json!({
                    "code": {"type": "string", "description": "A complete program."},
                    "timeout_seconds": {
                        "type": "number", "exclusiveMinimum": 0, "description": "Stop the program after this long."
                    },
                }),
                "code",
            ),
        ),
        (
            SEARCH_TOOLS,
            "Finds the tools that fit a task best, each with how a program calls it. Search before you write a program for \
             run_python.",
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

/// A hit of a search: how a program calls the tool, and the tool's description.
pub fn model_hit(name: &str, description: &str, parameters: &Value) -> Value {
    let text = description.trim();
    json!({
        "call": python_call(name, parameters),
        "description": text[..text.floor_char_boundary(MAX_TEXT)],
    })
}

/// A call of a tool with its parameters and their types, those that are required first.
fn python_call(name: &str, schema: &Value) -> String {
    let function = python_function(name);
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let (first, rest): (Vec<_>, Vec<_>) = properties.partition(|(name, _)| is_required(name));
    let shown = |(name, schema): &(&String, &Value)| {
        let shown = if is_identifier(name) { (*name).clone() } else { format!("**{{{name:?}: …}}") };
        let default = if is_required(name) { "" } else { " = ..." };
        format!("{shown}: {}{default}", python_type(schema))
    };
    let count = first.len() + rest.len();
    let mut parameters: Vec<_> = first.iter().chain(&rest).take(MAX_PARAMETERS).map(shown).collect();
    if count > MAX_PARAMETERS {
        parameters.push("…".to_owned());
    }
    format!("{function}({})", parameters.join(", "))
}

fn python_type(schema: &Value) -> &'static str {
    match schema["type"].as_str() {
        Some("string") => "str",
        Some("integer") => "int",
        Some("number") => "float",
        Some("boolean") => "bool",
        Some("array") => "list",
        Some("object") => "dict",
        _ => "Any",
    }
}

/// A tool, as a program writes it.
pub(super) fn python_function(name: &str) -> String {
    if is_identifier(name) { format!("tools.{name}") } else { format!("tools[{name:?}]") }
}

/// Whether a name is an attribute of `tools`, or the name of a parameter, as it is.
fn is_identifier(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    is_word && begins && !KEYWORDS.contains(&name) && !["gather", "result", "search"].contains(&name)
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
        let hit = model_hit("weather", " The weather.\nMore. ", &schema);
        let call = r#"tools.weather(city: str, **{"from": …}: str, days: int = ..., any: Any = ...)"#;
        assert_eq!(hit, json!({"call": call, "description": "The weather.\nMore."}));
        for name in ["a-b", "import", "9", "search", "result", "_a"] {
            assert_eq!(python_call(name, &json!({})), format!("tools[{name:?}]()"));
        }
        let many = json!({"properties": Value::from_iter((0..30).map(|n| (format!("p{n}"), json!({}))))});
        assert!(python_call("many", &many).ends_with("p19: Any = ..., …)"));
    }
}
