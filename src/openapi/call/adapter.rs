//! Vendor adapters (E39–E44): declared in the configuration, compiled once, applied to every call.

mod filled;
mod offer;

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use jmespath::Expression;
use serde_json::{Map, Value};
use thiserror::Error;

pub(crate) use self::filled::FilledFields;

use sekisho_config::{AdapterConfig, identity_of_headers};
use sekisho_core::call::Arguments;
use sekisho_core::error::CallError;

/// Longest response expression: its parser recurses on every bracket and prefix.
const MAX_EXPRESSION_BYTES: usize = 1_024;

/// A compiled adapter.
pub struct Adapter {
    config: AdapterConfig,
    headers: HeaderMap,
    response: Option<Expression<'static>>,
}

sekisho_core::debug_fields!(Adapter { config });

/// An error in an adapter's declaration.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AdapterError {
    #[error("`headers.{0}` is not a header; use letters, digits and `-` in its name, and no line break in its value")]
    Header(String),
    #[error("`response` is not a JMESPath expression of at most {MAX_EXPRESSION_BYTES} bytes: {0}")]
    Response(String),
}

impl Adapter {
    /// Errors: [`AdapterError`], without showing a header's value.
    pub fn compile(config: AdapterConfig) -> Result<Self, AdapterError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let header = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value.expose()).ok());
            let (header, mut value) = header.ok_or_else(|| AdapterError::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let response = config.response.as_deref().map(compile_response).transpose()?;
        Ok(Self { config, headers, response })
    }

    /// Turns the complete arguments of a tool into the vendor's, in place: names, values, time ranges. `further` are fields for
    /// which the tool has no argument.
    pub fn transform_request(&self, arguments: &mut Arguments, further: &Arguments) {
        rename(arguments, self.config.keys.iter());
        arguments.extend(further.iter().map(|(field, value)| (field.clone(), value.clone())));
        for (field, aliases) in &self.config.values {
            for text in arguments.get_mut(field).into_iter().flat_map(texts) {
                if let Some(meant) = text.as_str().and_then(|alias| aliases.get(alias)) {
                    *text = Value::String(meant.clone());
                }
            }
        }
        for (field, members) in &self.config.time_ranges {
            if let Some(Value::Object(range)) = arguments.get_mut(field) {
                rename(range, members.iter());
            }
        }
    }

    /// The headers that tell where requests work.
    pub(crate) fn identity(&self) -> String {
        identity_of_headers(&self.config.headers)
    }

    /// Headers of all requests.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The part of the vendor's response that is returned; all of it without a `response` expression.
    /// Errors: `tool_error` when the response does not have the structure that the adapter expects.
    pub fn shape_response(&self, response: Value) -> Result<Value, CallError> {
        let Some(expression) = &self.response else { return Ok(response) };
        let failed = |error: &dyn fmt::Display| {
            CallError::tool("the response does not have the structure that the vendor adapter expects").caused_by(error)
        };
        let selected = expression.search(response).map_err(|error| failed(&error))?;
        serde_json::to_value(&*selected).map_err(|error| failed(&error))
    }

    /// Whether it is for this operation.
    pub fn applies_to(&self, operation_id: &str) -> bool {
        self.config.operations.is_empty() || self.config.operations.iter().any(|id| id == operation_id)
    }
}

fn compile_response(expression: &str) -> Result<Expression<'static>, AdapterError> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(AdapterError::Response("it is too long".into()));
    }
    jmespath::compile(expression).map_err(|error| AdapterError::Response(error.to_string()))
}

/// All at once, so that two names can be swapped. A name that is already used keeps its value.
fn rename<'a>(members: &mut Map<String, Value>, names: impl Iterator<Item = (&'a String, &'a String)>) {
    let renamed: Vec<_> = names.filter_map(|(from, to)| Some((to, members.shift_remove(from)?))).collect();
    for (to, value) in renamed {
        members.entry(to.as_str()).or_insert(value);
    }
}

/// The value itself, or each of a list.
fn texts(value: &mut Value) -> &mut [Value] {
    match value {
        Value::Array(items) => items,
        single => std::slice::from_mut(single),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::arguments::ArgumentList;
    use sekisho_calls::tool::Aliases;

    fn adapter(declared: Value) -> Result<Adapter, AdapterError> {
        Adapter::compile(serde_json::from_value(declared).unwrap())
    }

    #[test]
    fn hostile_bytes_as_an_adapter() {
        let seeds: [&[u8]; 2] = [
            br#"{"keys": {"from": "to"}, "values": {"metrics": {"users": "di:unique_users"}}, "inject": {"a": "b"}}"#,
            br#"{"time_ranges": {"r": {"start": "s", "end": "e"}}, "headers": {"x-a": "b"}, "response": "items[*].{a: b}"}"#,
        ];
        sekisho_core::fuzz::feed(&seeds, |bytes| {
            let Ok(declared) = sekisho_core::json::parse(bytes) else { return };
            let Ok(declared) = serde_json::from_value(declared) else { return };
            if let Ok(adapter) = Adapter::compile(declared) {
                let _ = adapter.shape_response(json!({"items": [{"b": 1}]}));
            }
        });
    }

    /// The sent arguments of an operation that takes any arguments.
    fn transformed(declared: Value, arguments: Value, prompt_params: Value) -> Value {
        let (Value::Object(mut arguments), Value::Object(prompt_params)) = (arguments, prompt_params) else {
            panic!("arguments are objects")
        };
        let adapter = adapter(declared).unwrap();
        let list = ArgumentList { arguments: Vec::new(), schema: json!({}), aliases: Aliases::default() };
        let filled = adapter.fill_in(&adapter.filled_fields(&list, false), &mut arguments, &prompt_params);
        adapter.transform_request(&mut arguments, &filled.further);
        arguments.into()
    }

    #[test]
    fn the_datainsight_example_works_as_written() {
        let declared = json!({
            "values": {"metrics": {"users": "di:unique_users", "sessions": "di:total_sessions"}},
            "inject": {"account_id": "account_id"},
            "time_ranges": {"timeRange": {"start": "startTime", "end": "endTime"}},
        });
        let body = json!({"metrics": ["users", "sessions", "bounces"], "timeRange": {"start": "a", "end": "b"}});
        let expected = json!({
            "metrics": ["di:unique_users", "di:total_sessions", "bounces"],
            "timeRange": {"startTime": "a", "endTime": "b"},
            "account_id": "42",
        });
        assert_eq!(transformed(declared.clone(), body.clone(), json!({"account_id": "42"})), expected);
        // Without a session the field is left out, as in the original.
        assert_eq!(transformed(declared, body, json!({})).get("account_id"), None);
    }

    #[test]
    fn session_values_override_the_models() {
        let declared = json!({"inject": {"account_id": "account"}, "keys": {"acct": "account_id"}});
        let reported = transformed(declared, json!({"acct": "someone else's"}), json!({"account": 7}));
        assert_eq!(reported, json!({"account_id": 7}));
    }

    #[test]
    fn names_may_change_places_and_defaults_fill_only_what_is_missing() {
        let declared = json!({"keys": {"a": "b", "b": "a"}, "defaults": {"a": 9, "c": 3}});
        assert_eq!(transformed(declared, json!({"a": 1, "b": 2}), json!({})), json!({"b": 1, "a": 2, "c": 3}));
    }

    #[test]
    fn it_is_for_the_operations_that_it_names() {
        let declared = json!({"operations": ["other"], "defaults": {"a": 1}, "response": "x", "headers": {"a": "b"}});
        let adapter = adapter(declared).unwrap();
        assert!(!adapter.applies_to("query") && adapter.applies_to("other"));
        assert_eq!(adapter.headers()["a"], "b");
        assert_eq!(adapter.shape_response(json!({"x": 1})).unwrap(), json!(1));
    }

    #[test]
    fn what_cannot_be_used_is_named_without_its_secret() {
        let error = adapter(json!({"headers": {"x-key": "hunter2\n"}})).unwrap_err();
        assert_eq!(error, AdapterError::Header("x-key".into()));
        assert!(!error.to_string().contains("hunter2"));
        assert!(matches!(adapter(json!({"response": "a[["})), Err(AdapterError::Response(_))));
        assert!(matches!(adapter(json!({"response": "!".repeat(100_000)})), Err(AdapterError::Response(_))));
        assert!(!format!("{:?}", adapter(json!({"headers": {"k": "hunter2"}})).unwrap()).contains("hunter2"));
    }
}
