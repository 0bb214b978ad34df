//! Tokens in place of the values of effects that are not made yet.
//!
//! A program that proposes effects gets `{"$effect": TOKEN}` for each, from which the interpreter makes a text that it can put into
//! further arguments. A token names the effect and, by a JSON Pointer, a part of its value. It has a text that nobody else knows.

use std::ops::Range;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};

/// The member with the token, also in `effect_values.py`.
const MEMBER: &str = "$effect";

/// The tokens of one run.
#[derive(Debug)]
pub(super) struct Tokens {
    /// In lower case.
    secret: String,
    begin: String,
}

/// A token in a text.
struct Found<'t> {
    at: Range<usize>,
    call: u32,
    pointer: &'t str,
}

impl Tokens {
    /// The same in all parts of a run. `run`: its keys.
    pub(super) fn new(run: &[u8; 32]) -> Self {
        let secret = hex::encode(&Sha256::new().chain_update("effects").chain_update(run).finalize()[..12]);
        Self { begin: format!("{{{{effect:{secret}:"), secret }
    }

    /// The JSON that a program gets for an effect.
    pub(super) fn placeholder(&self, call: u32) -> String {
        json!({ MEMBER: format!("{}{call}:}}}}", self.begin) }).to_string()
    }

    /// Whether arguments have a token, or a part of one.
    pub(super) fn are_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.is_in(text),
            Value::Array(items) => items.iter().any(|item| self.are_in(item)),
            Value::Object(members) => members.iter().any(|(name, value)| self.is_in(name) || self.are_in(value)),
            _ => false,
        }
    }

    /// The same of any of the arguments and their names.
    pub(super) fn are_among(&self, arguments: &Arguments) -> bool {
        arguments.iter().any(|(name, value)| self.is_in(name) || self.are_in(value))
    }

    fn is_in(&self, text: &str) -> bool {
        text.len() >= self.secret.len() && text.to_ascii_lowercase().contains(&self.secret)
    }

    /// The value with what `of` gives for each token. A token that is a whole text becomes the value itself, one in a text the text of it.
    /// Errors: the tokens of `of`; `invalid_arguments` where a token was changed, or is a name.
    pub(super) fn replaced(
        &self,
        value: Value,
        of: &mut dyn FnMut(u32, &str) -> Result<Value, CallError>,
    ) -> Result<Value, CallError> {
        match value {
            Value::String(text) => self.replaced_in_text(text, of),
            Value::Array(items) => items.into_iter().map(|item| self.replaced(item, of)).collect(),
            Value::Object(members) => {
                let mut replaced = Map::new();
                for (name, value) in members {
                    if self.is_in(&name) {
                        return Err(changed());
                    }
                    replaced.insert(name, self.replaced(value, of)?);
                }
                Ok(Value::Object(replaced))
            }
            other => Ok(other),
        }
    }

    fn replaced_in_text(
        &self,
        text: String,
        of: &mut dyn FnMut(u32, &str) -> Result<Value, CallError>,
    ) -> Result<Value, CallError> {
        if !self.is_in(&text) {
            return Ok(Value::String(text));
        }
        let (mut replaced, mut rest) = (String::new(), &*text);
        while let Some(found) = self.first_in(rest) {
            let value = of(found.call, found.pointer)?;
            if found.at == (0..text.len()) {
                return Ok(value);
            }
            let before = &rest[..found.at.start];
            if self.is_in(before) {
                return Err(changed());
            }
            replaced.push_str(before);
            replaced.push_str(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            rest = &rest[found.at.end..];
        }
        if self.is_in(rest) {
            return Err(changed());
        }
        replaced.push_str(rest);
        Ok(Value::String(replaced))
    }

    fn first_in<'t>(&self, text: &'t str) -> Option<Found<'t>> {
        let start = text.find(&self.begin)?;
        let (inner, _) = text[start + self.begin.len()..].split_once("}}")?;
        let (call, pointer) = inner.split_once(':')?;
        let end = start + self.begin.len() + inner.len() + "}}".len();
        Some(Found { at: start..end, call: call.parse().ok()?, pointer })
    }
}

fn changed() -> CallError {
    let message = "an argument has a part of the value of an effect that is not made yet, which cannot be changed or be a name: pass \
                   the value as it is, or put it into a text";
    CallError::new(ErrorCode::InvalidArguments, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new(&[7; 32])
    }

    /// As the interpreter makes it of the placeholder.
    fn token(call: u32, pointer: &str) -> String {
        let placeholder: Value = serde_json::from_str(&tokens().placeholder(call)).unwrap();
        placeholder[MEMBER].as_str().unwrap().replace(":}}", &format!(":{pointer}}}}}"))
    }

    #[test]
    fn a_token_becomes_the_value_that_it_names() {
        let made = |call: u32, pointer: &str| {
            let values = json!({"3": {"id": 7, "lines": [{"sku": "a"}]}});
            let value = values[call.to_string()].pointer(pointer).cloned();
            value.ok_or_else(|| CallError::internal(pointer))
        };
        let (whole, id, sku) = (token(3, ""), token(3, "/id"), token(3, "/lines/0/sku"));
        for (value, expected) in [
            (json!(whole), json!({"id": 7, "lines": [{"sku": "a"}]})),
            (json!({"order": id, "n": 1}), json!({"order": 7, "n": 1})),
            (json!([format!("order {id} of {sku}.")]), json!(["order 7 of a."])),
            (json!(format!("{id}{id}")), json!("77")),
            (json!("{{effect:00:3:}}"), json!("{{effect:00:3:}}")),
        ] {
            assert_eq!(tokens().replaced(value.clone(), &mut { made }).unwrap(), expected, "{value}");
            assert_eq!(tokens().are_in(&value), value != expected);
        }
        assert!(tokens().replaced(json!(token(3, "/none")), &mut { made }).is_err());
    }

    #[test]
    fn a_token_that_was_changed_is_refused() {
        let id = token(3, "/id");
        for value in [
            json!(id.to_uppercase()),
            json!(id[..id.len() - 3]),
            json!(id.replace(":3:", ":x:")),
            json!({ id.as_str(): 1 }),
            json!(format!("{} {id}", &id[4..id.len() - 2])),
        ] {
            assert!(tokens().are_in(&value), "{value}");
            let error = tokens().replaced(value.clone(), &mut |_, _| Ok(Value::Null)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArguments, "{value}");
        }
        assert!(!Tokens::new(&[8; 32]).are_in(&json!(id)), "of another run");
    }
}
