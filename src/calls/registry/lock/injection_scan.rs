//! Scans the texts of a tool for prompt injections: a model reads all of them, an operator sees few of them.
//!
//! A finding is only a hint for an operator: a harmless tool may have findings, and a careful attack may have none.
//! The lock ([`crate::registry::lock`]) decides whether a tool is offered.

mod encoded;
mod phrases;
mod tags;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use sekisho_guards::escape_hidden;

use sekisho_core::error::Detail;

/// Maximum number of findings for one tool.
const MAX_FINDINGS: usize = 8;

/// Scans everything of a tool that a model may read: keys and values.
pub(in crate::registry) fn scan_for_injection(
    description: &str,
    parts: &[(&str, &Value)],
    annotations: &Map<String, Value>,
) -> Vec<Detail> {
    let mut search = Search::default();
    search.text("/description", description);
    for (name, part) in parts {
        search.value(&mut format!("/{name}"), part);
    }
    for (name, part) in annotations.iter().filter(|(name, _)| *name != "icons") {
        search.value(&mut format!("/{name}"), part);
    }
    search.found
}

/// Scans all texts in a value that is not a tool; the paths of the findings begin with `name`.
pub fn injection_findings(name: &str, value: &Value) -> Vec<Detail> {
    scan_for_injection("", &[(name, value)], &Map::new())
}

#[derive(Default)]
struct Search {
    found: Vec<Detail>,
}

impl Search {
    fn value(&mut self, path: &mut String, value: &Value) {
        if self.found.len() >= MAX_FINDINGS {
            return;
        }
        let length = path.len();
        match value {
            Value::String(text) => self.text(path, text),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    path.push_str(&format!("/{at}"));
                    self.value(path, item);
                    path.truncate(length);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    path.push('/');
                    path.push_str(&escape_hidden(&key.replace('~', "~0").replace('/', "~1")));
                    self.text(path, key);
                    self.value(path, member);
                    path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, path: &str, text: &str) {
        /// Shorter texts cannot be an instruction; they are scanned only for hidden characters.
        const MIN_LENGTH: usize = 6;
        let mut report = |rule: &str, message: Option<String>| {
            if let Some(message) = message.filter(|_| self.found.len() < MAX_FINDINGS) {
                self.found.push(Detail { path: path.to_owned(), rule: rule.to_owned(), message });
            }
        };
        report("hidden_characters", sekisho_guards::hidden_characters(text));
        if text.len() < MIN_LENGTH {
            return;
        }
        let plain = phrases::plain(text);
        report("instructions", phrases::find(text));
        report("embedded_tag", tags::find(&plain));
        report("encoded_block", encoded::find(text));
    }
}
