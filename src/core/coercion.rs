//! A change of a call's form, noted in its receipt.

use serde::Serialize;
use serde_json::Value;

/// One change made to the arguments, or to the name that an agent's model wrote.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coercion {
    /// JSON Pointer (RFC 6901) to the value after the change.
    pub path: String,
    /// `string_to_integer`, `string_to_number`, `string_to_boolean`, `whole_number_to_integer`; or `renamed` and
    /// `unwrapped`, whose `from` and `to` are the pointers to the arguments before and after. For agents also `tool_name`, and
    /// `decoded_twice` for arguments that were encoded twice, whose `from` and `to` are JSON types.
    pub rule: &'static str,
    pub from: Value,
    pub to: Value,
}

impl Coercion {
    /// The model of an agent wrote the tool's name in another form.
    pub fn of_name(from: &str, to: &str) -> Self {
        Self { path: String::new(), rule: "tool_name", from: from.into(), to: to.into() }
    }

    /// The arguments were the text of a JSON object.
    pub fn decoded_twice() -> Self {
        Self { path: String::new(), rule: "decoded_twice", from: "string".into(), to: "object".into() }
    }
}
