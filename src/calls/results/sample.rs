//! The beginning of a JSON value: the first elements of its lists, the first members of its objects, the beginnings of its texts.

use serde_json::{Map, Value};

/// How much of a value a sample has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Maximum elements of each list.
    elements: usize,
    /// Members of each object.
    members: usize,
    /// Bytes of each text.
    text: usize,
    depth: usize,
}

/// From the largest to the smallest.
pub(super) const EXTENTS: [Extent; 7] = [
    Extent { elements: 50, members: 60, text: 1_000, depth: 6 },
    Extent { elements: 20, members: 40, text: 400, depth: 6 },
    Extent { elements: 10, members: 40, text: 200, depth: 5 },
    Extent { elements: 5, members: 30, text: 100, depth: 4 },
    Extent { elements: 3, members: 20, text: 60, depth: 3 },
    Extent { elements: 2, members: 10, text: 40, depth: 2 },
    Extent { elements: 1, members: 5, text: 20, depth: 1 },
];

/// `None` if it would have more than `max_bytes`, of which escapes are not counted.
pub(super) fn sample(value: &Value, extent: Extent, max_bytes: usize) -> Option<Value> {
    Sampler { extent, bytes_left: max_bytes }.sample(value, 0)
}

struct Sampler {
    extent: Extent,
    bytes_left: usize,
}

impl Sampler {
    fn sample(&mut self, value: &Value, depth: usize) -> Option<Value> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                self.spend(value.to_string().len())?;
                Some(value.clone())
            }
            Value::String(text) => self.text(text),
            Value::Array(elements) if depth >= self.extent.depth => self.word(format!("[{}]", elements.len())),
            Value::Object(members) if depth >= self.extent.depth => self.word(format!("{{{} keys}}", members.len())),
            Value::Array(elements) => {
                let shown = elements.iter().take(self.extent.elements);
                let mut shown = shown.map(|element| self.sample(element, depth + 1)).collect::<Option<Vec<_>>>()?;
                if let Some(more) = elements.len().checked_sub(self.extent.elements).filter(|more| *more > 0) {
                    shown.push(self.word(format!("… {more} more"))?);
                }
                Some(Value::Array(shown))
            }
            Value::Object(members) => {
                let mut shown = Map::new();
                for (key, member) in members.iter().take(self.extent.members) {
                    self.spend(key.len() + 4)?;
                    shown.insert(key.clone(), self.sample(member, depth + 1)?);
                }
                if let Some(more) = members.len().checked_sub(self.extent.members).filter(|more| *more > 0) {
                    shown.insert("…".to_owned(), self.word(format!("{more} more keys"))?);
                }
                Some(Value::Object(shown))
            }
        }
    }

    fn text(&mut self, text: &str) -> Option<Value> {
        if text.len() <= self.extent.text {
            return self.word(text.to_owned());
        }
        let beginning = &text[..text.floor_char_boundary(self.extent.text)];
        self.word(format!("{beginning}… ({} bytes)", text.len()))
    }

    fn word(&mut self, text: String) -> Option<Value> {
        self.spend(text.len() + 2)?;
        Some(Value::String(text))
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes + 1)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let smallest = EXTENTS[6];
        let value = json!({"rows": [1, 2, 3], "name": "x".repeat(30), "a": 1, "b": null, "c": true, "d": 2});
        let shown = json!({
            "rows": "[3]", "name": format!("{}… (30 bytes)", "x".repeat(20)), "a": 1, "b": null, "c": true, "…": "1 more keys",
        });
        assert_eq!(sample(&value, smallest, 1_000), Some(shown));
        assert_eq!(sample(&json!([1, 2, 3]), smallest, 1_000), Some(json!([1, "… 2 more"])));
        assert_eq!(sample(&value, smallest, 50), None);
        assert_eq!(sample(&json!([7]), EXTENTS[0], 1_000), Some(json!([7])));
    }
}
