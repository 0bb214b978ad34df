//! The entry of one server: from an editor's file to the gateway's own, and the gateway's entry for an editor.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::editors::{Editor, Variables};

/// The variable with a caller's key. No file has the key itself.
const KEY: &str = "SEKISHO_API_KEY";

/// Members that neither change the server nor restrict it: the gateway has its own time limits and asks nobody.
const IGNORED: [&str; 14] = [
    "alwaysAllow",
    "autoApprove",
    "description",
    "disabled",
    "enabled",
    "gallery",
    "required",
    "source",
    "startup_timeout_ms",
    "startup_timeout_sec",
    "timeout",
    "tool_timeout_sec",
    "trust",
    "version",
];

/// An editor's entry as the gateway's file has it. Members that the gateway does not know may restrict the server, so
/// that an entry with one stays with the editor.
/// Errors: why it stays, without any value of the entry.
pub(super) fn for_gateway(entry: &Value, editor: &Editor) -> Result<Value, String> {
    let entry = entry.as_object().ok_or("it is not an object")?;
    let flag = |name: &str| entry.get(name).and_then(Value::as_bool);
    if flag("disabled") == Some(true) || flag("enabled") == Some(false) {
        return Err("it is disabled".to_owned());
    }
    let mut conversion = Conversion { variables: editor.variables, entry: Map::new() };
    for (member, value) in entry {
        conversion.add(member, value)?;
    }
    let entry = conversion.entry;
    if !entry.contains_key("command") && !entry.contains_key("url") {
        return Err("it has neither a program nor an address: the editor itself starts it".to_owned());
    }
    if is_gateway(&entry) {
        return Err("it is a gateway".to_owned());
    }
    Ok(Value::Object(entry))
}

/// Whether it starts a gateway, which would have itself as a server.
fn is_gateway(entry: &Map<String, Value>) -> bool {
    let arguments = entry.get("args").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<_> = entry.get("command").into_iter().chain(arguments).filter_map(Value::as_str).collect();
    let is_program = |word: &&str| Path::new(word).file_name().is_some_and(|name| name == "sekisho");
    words.iter().any(is_program) && words.contains(&"mcp")
}

struct Conversion {
    variables: Variables,
    entry: Map<String, Value>,
}

impl Conversion {
    fn add(&mut self, member: &str, value: &Value) -> Result<(), String> {
        match member {
            // An earlier form of Zed.
            "command" if value.is_object() => {
                for (member, value) in value.as_object().into_iter().flatten() {
                    self.add(if member == "path" { "command" } else { member }, value)?;
                }
            }
            "command" | "cwd" => {
                let text = self.text(member, value)?;
                if is_relative(member, &text) {
                    return Err(format!("`{member}` is relative to the folder of the editor"));
                }
                self.entry.insert(member.to_owned(), text.into());
            }
            "url" | "serverUrl" | "httpUrl" => {
                let text = self.text(member, value)?;
                self.entry.insert("url".to_owned(), text.into());
            }
            "args" => {
                let items = value.as_array().ok_or_else(|| wrong(member))?;
                let items = items.iter().map(|item| self.text(member, item)).collect::<Result<Vec<_>, _>>()?;
                let is_of_folder =
                    |item: &String| matches!(&**item, "." | "..") || item.starts_with("./") || item.starts_with("../");
                if items.iter().any(is_of_folder) {
                    return Err(format!("a path in `{member}` is relative to the folder of the editor"));
                }
                self.entry.insert(member.to_owned(), items.into());
            }
            "env" => self.add_texts("env", member, value)?,
            "headers" | "http_headers" => self.add_texts("headers", member, value)?,
            "bearer_token_env_var" | "env_http_headers" | "env_vars" => self.add_variables(member, value)?,
            "type" | "transport" => self.add_transport(value)?,
            ignored if IGNORED.contains(&ignored) => {}
            other => return Err(format!("the gateway does not know its setting `{other}`")),
        }
        Ok(())
    }

    fn add_texts(&mut self, map: &str, member: &str, value: &Value) -> Result<(), String> {
        for (name, value) in value.as_object().ok_or_else(|| wrong(member))? {
            let text = match value {
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                value => self.text(member, value)?,
            };
            self.set(map, name, text);
        }
        Ok(())
    }

    /// Members of Codex that name variables.
    fn add_variables(&mut self, member: &str, value: &Value) -> Result<(), String> {
        let name_of = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| wrong(member));
        match value {
            Value::String(name) if member == "bearer_token_env_var" => {
                self.set("headers", "Authorization", format!("Bearer {}", variable(name)));
            }
            Value::Object(headers) if member == "env_http_headers" => {
                for (header, name) in headers {
                    self.set("headers", header, variable(&name_of(name)?));
                }
            }
            Value::Array(names) if member == "env_vars" => {
                for name in names {
                    let name = name_of(name)?;
                    self.set("env", &name, variable(&name));
                }
            }
            _ => return Err(wrong(member)),
        }
        Ok(())
    }

    fn add_transport(&mut self, value: &Value) -> Result<(), String> {
        match value.as_str() {
            Some("stdio") => {}
            Some("sse") => {
                self.entry.insert("type".to_owned(), "sse".into());
            }
            Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => {
                self.entry.insert("type".to_owned(), "http".into());
            }
            _ => return Err("the gateway does not know its `type`".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, map: &str, name: &str, text: String) {
        let map = self.entry.entry(map).or_insert_with(|| json!({}));
        map[name] = text.into();
    }

    /// The text with variables as the gateway's file names them. One that is not set is empty there, as in an editor,
    /// so that it fails its own server only.
    fn text(&self, member: &str, value: &Value) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| wrong(member))?;
        match self.variables {
            Variables::None | Variables::Members => Ok(text.replace("${", "$${")),
            Variables::Braces | Variables::Dollar | Variables::Prefixed => self.expand(text),
        }
    }

    fn expand(&self, text: &str) -> Result<String, String> {
        let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(start) = rest.find('$') {
            let (before, after) = (&rest[..start], &rest[start + 1..]);
            expanded.push_str(before);
            let name_length = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            rest = match after.strip_prefix('{') {
                Some(after) => {
                    let (reference, left) = after.split_once('}').ok_or("a `${` in it is not closed")?;
                    expanded.push_str(&self.reference(reference)?);
                    left
                }
                None if self.variables == Variables::Dollar && name_length > 0 => {
                    expanded.push_str(&variable(&after[..name_length]));
                    &after[name_length..]
                }
                // Two before a brace would be an escape in the gateway's file.
                None if after.starts_with("${") => return Err("the gateway cannot write its `$$`".to_owned()),
                None => {
                    expanded.push('$');
                    after
                }
            };
        }
        Ok(expanded + rest)
    }

    fn reference(&self, reference: &str) -> Result<String, String> {
        let known = match (self.variables, reference.strip_prefix("env:")) {
            (Variables::Prefixed, known) => known,
            (_, Some(_)) => None,
            (_, None) => Some(reference),
        };
        let (name, default) = known
            .map(|known| known.split_once(":-").unwrap_or((known, "")))
            .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
            .ok_or_else(|| format!("only the editor knows the value of `${{{reference}}}`"))?;
        Ok(format!("${{{name}:-{default}}}"))
    }
}

fn variable(name: &str) -> String {
    format!("${{{name}:-}}")
}

fn wrong(member: &str) -> String {
    format!("its `{member}` has an unknown form")
}

/// Programs without a slash are looked up in `PATH`.
fn is_relative(member: &str, path: &str) -> bool {
    !path.starts_with(['/', '$']) && (member == "cwd" || path.contains('/'))
}

/// The gateway, as a server of an editor.
#[derive(Debug, Clone)]
pub(super) enum GatewayEntry {
    /// The editor starts the program.
    Program { command: String, arguments: Vec<String>, environment: Map<String, Value> },
    /// The editor sends requests.
    Address { url: String, needs_key: bool },
}

impl GatewayEntry {
    /// The entry in the form of the editor.
    /// Errors: the editor's file cannot express it.
    pub(super) fn entry(&self, editor: &Editor) -> Result<Value, String> {
        let mut entry = Map::new();
        let mut set = |member: &str, value: Value| entry.insert(member.to_owned(), value);
        match self {
            Self::Program { command, arguments, environment } => {
                if editor.is_typed {
                    set("type", "stdio".into());
                }
                set("command", command.as_str().into());
                set("args", arguments.clone().into());
                if !environment.is_empty() {
                    set("env", Value::Object(environment.clone()));
                }
            }
            Self::Address { url, needs_key } => {
                let member = editor
                    .url
                    .ok_or_else(|| format!("{} starts its servers itself; connect it without --http", editor.title))?;
                if editor.is_typed {
                    set("type", "http".into());
                }
                set(member, url.as_str().into());
                let header = |reference: String| json!({"Authorization": format!("Bearer {reference}")});
                match editor.variables {
                    _ if !needs_key => {}
                    Variables::Members => {
                        set("bearer_token_env_var", KEY.into());
                    }
                    Variables::Braces | Variables::Dollar => {
                        set("headers", header(format!("${{{KEY}}}")));
                    }
                    Variables::Prefixed => {
                        set("headers", header(format!("${{env:{KEY}}}")));
                    }
                    Variables::None => {
                        let title = editor.title;
                        return Err(format!("{title} cannot read a key from a variable; connect it without --http"));
                    }
                }
            }
        }
        Ok(Value::Object(entry))
    }
}
