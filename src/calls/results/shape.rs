//! The shape of a JSON value in a line: `{total: number, items: [1000 × {id: number, name: string}]}`.

use serde_json::Value;

/// Members of an object that are named.
const MAX_KEYS: usize = 40;

/// Nesting that is shown.
const MAX_DEPTH: usize = 5;

/// At most so many bytes. The elements of a list are shown by its first one.
pub(super) fn shape(value: &Value, max_bytes: usize) -> String {
    let mut shape = Shape { text: String::new(), max_bytes };
    shape.add(value, 0);
    shape.text
}

struct Shape {
    text: String,
    max_bytes: usize,
}

impl Shape {
    fn add(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(_) => self.push("boolean"),
            Value::Number(_) => self.push("number"),
            Value::String(_) => self.push("string"),
            Value::Array(items) => match items.first().filter(|_| depth < MAX_DEPTH) {
                Some(first) => {
                    self.push(&format!("[{} × ", items.len()));
                    self.add(first, depth + 1);
                    self.push("]");
                }
                None => self.push(&format!("[{}]", items.len())),
            },
            Value::Object(members) if depth < MAX_DEPTH => {
                self.push("{");
                for (index, (key, member)) in members.iter().take(MAX_KEYS).enumerate() {
                    self.push(if index > 0 { ", " } else { "" });
                    self.push(key);
                    self.push(": ");
                    self.add(member, depth + 1);
                    if self.text.len() >= self.max_bytes {
                        return;
                    }
                }
                if members.len() > MAX_KEYS {
                    self.push(&format!(", and {} more keys", members.len() - MAX_KEYS));
                }
                self.push("}");
            }
            Value::Object(members) => self.push(&format!("{{{} keys}}", members.len())),
        }
    }

    /// As much of the text as there is room for, and nothing after a text that does not fit.
    fn push(&mut self, text: &str) {
        let room = self.max_bytes.saturating_sub(self.text.len());
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room {
            self.max_bytes = self.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_types_and_counts_are_shown() {
        let deep = json!({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}});
        for (value, expected) in [
            (json!([]), "[0]"),
            (json!([1, 2, 3]), "[3 × number]"),
            (
                json!({"total": 2, "items": [{"id": 1, "on": true}, {}]}),
                "{total: number, items: [2 × {id: number, on: boolean}]}",
            ),
            (json!({"a": null, "b": "x", "c": {}}), "{a: null, b: string, c: {}}"),
            (deep, "{a: {b: {c: {d: {e: {1 keys}}}}}}"),
        ] {
            assert_eq!(shape(&value, 1_000), expected);
        }
        let wide = Value::Object((0..100).map(|n| (format!("k{n}"), json!(n))).collect());
        assert!(shape(&wide, 1_000).ends_with("k39: number, and 60 more keys}"));
        assert_eq!(shape(&json!({"関所": 1}), 5), "{関");
    }
}
