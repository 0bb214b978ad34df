//! Results that FastMCP wraps: `structuredContent` is an object, so that it sends a list, a text or a number as `{"result": …}` and
//! marks the output schema. Its own client unwraps them.

use std::borrow::Cow;

use serde_json::Value;

use super::OutputSchema;

/// The mark in the output schema.
const MARK: &str = "x-fastmcp-wrap-result";
const POINTER: &str = "/result";

impl OutputSchema {
    fn is_wrapped(&self) -> bool {
        self.document().get(MARK) == Some(&Value::Bool(true))
    }

    /// The value in an output.
    pub fn value<'v>(&self, output: &'v Value) -> &'v Value {
        output.pointer(POINTER).filter(|_| self.is_wrapped()).unwrap_or(output)
    }

    /// The same, taken out of it.
    pub fn into_value(&self, mut output: Value) -> Value {
        match output.pointer_mut(POINTER).filter(|_| self.is_wrapped()) {
            Some(value) => value.take(),
            None => output,
        }
    }

    /// The schema of that value, as listings show it.
    pub fn value_document(&self) -> Cow<'_, Value> {
        let value =
            self.document().pointer("/properties/result").filter(|value| self.is_wrapped() && value.is_object());
        let Some(mut value) = value.cloned() else { return Cow::Borrowed(self.document()) };
        for definitions in ["$defs", "definitions"] {
            if let Some(referred) = self.document().get(definitions) {
                value[definitions] = referred.clone();
            }
        }
        Cow::Owned(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_value_of_a_wrapped_result_is_taken_out_of_it() {
        let row = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
        let wrapped = json!({
            "type": "object",
            "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Row"}}},
            "required": ["result"],
            "$defs": {"Row": row},
            "x-fastmcp-wrap-result": true,
        });
        let plain = json!({"type": "object", "properties": {"result": {"type": "array", "items": {}}}});
        let rows = json!({"result": [{"id": 1}]});
        for (schema, output, value) in [
            (&wrapped, rows.clone(), json!([{"id": 1}])),
            (&wrapped, json!({"result": null}), Value::Null),
            (&wrapped, json!("another thing"), json!("another thing")),
            (&plain, rows.clone(), rows),
        ] {
            let schema = OutputSchema::compile(schema.clone()).unwrap();
            assert_eq!(schema.value(&output), &value);
            assert_eq!(schema.into_value(output), value);
        }
        let shown = |schema: &Value| OutputSchema::compile(schema.clone()).unwrap().value_document().into_owned();
        let expected = json!({"type": "array", "items": {"$ref": "#/$defs/Row"}, "$defs": {"Row": row}});
        assert_eq!((shown(&wrapped), shown(&plain)), (expected, plain));
    }
}
