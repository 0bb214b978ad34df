//! What looks like instructions hidden in a tool's words: a model reads them all, a person sees few of them.
//!
//! A finding is a flag for people, not a verdict: descriptions of harmless tools may look so, and a clever
//! attack may not. What decides is the lock ([`crate::registry::lock`]).

mod encoded;
mod hidden;
mod phrases;
mod tags;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use self::hidden::escape_hidden;
pub(super) use self::hidden::is_hidden;

use crate::core::error::Detail;

/// Findings that are told of one tool.
const MAX_TOLD: usize = 8;

/// Looks at everything of a tool that a model may read: keys as well as values.
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

/// Looks at every word of something that is no tool, which is told as `name`.
pub fn injection_findings(name: &str, value: &Value) -> Vec<Detail> {
    scan_for_injection("", &[(name, value)], &Map::new())
}

#[derive(Default)]
struct Search {
    found: Vec<Detail>,
}

impl Search {
    fn value(&mut self, path: &mut String, value: &Value) {
        if self.found.len() >= MAX_TOLD {
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
        /// No instruction is shorter; hidden characters are looked for in any text.
        const SHORTEST: usize = 6;
        let mut told = |rule: &str, message: Option<String>| {
            if let Some(message) = message.filter(|_| self.found.len() < MAX_TOLD) {
                self.found.push(Detail { path: path.to_owned(), rule: rule.to_owned(), message });
            }
        };
        told("hidden_characters", hidden::find(text));
        if text.len() < SHORTEST {
            return;
        }
        let plain = phrases::plain(text);
        told("instructions", phrases::find(&plain));
        told("embedded_tag", tags::find(&plain));
        told("encoded_block", encoded::find(text));
    }
}
