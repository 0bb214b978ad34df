//! The `input` of policies. Operators' rules use these names, so they must not change.
//!
//! ```json
//! {"tool": "file_write", "kind": "tool|resource|prompt|completion|effects", "target": null,
//!  "metadata": {"category", "version", "source", "dangerous", "requires_auth", "sandboxed", "cost_per_use", "labels": [],
//!               "flags": []},
//!  "arguments": {}, "user": {"id", "tenant", "roles": [], "anonymous": false},
//!  "sent": {"method", "address", "coding", "arguments": {}, "meta": {}, "as_task"},
//!  "session": {"id", "calls", "cost_usd"},
//!  "argument_labels": {"/to": {"state", "origins": [{"call", "tool", "path", "trust", "secrecy": []}]}},
//!  "flow": {"mode": "off|observe|enforce", "sink", "untrusted": false, "questions": [{"argument", "kind", "state", "origin"}],
//!           "forbidden": [{"argument", "secrecy": [], "origin"}]},
//!  "call": {"id", "via": "rest|mcp|agent|sandbox", "depth", "parent", "program", "dry_run"}}
//! ```
//! `target` is the URI of a resource (of a completion for a template: its URI template) or the name of a prompt, null
//! for a tool. `arguments` have the tool's own names, with the values that are filled in; `sent` is the form that goes
//! out. `flags` are the rules of suspected prompt injections in the tool's texts. `session` is null for a call without
//! a session. `parent` is the id of the call whose tool makes this one, and `program` the SHA-256 of the program that
//! it runs, with the programs before it in a session; both are null for a call from outside. `argument_labels` says by
//! JSON Pointer where the arguments come from, and `flow` which of them are in question; with `policy.flow: off` they are
//! empty. Money is a number, in USD.

use std::collections::BTreeMap;

use regorus::Value;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::Value as Json;

use super::reads::Reads;
use crate::tool::{Destination, Metadata, SentCall};
use sekisho_core::call::{Arguments, CallContext, Caller, ToolOutput};
use sekisho_core::error::{Detail, rules_of};
use sekisho_core::json;
use sekisho_core::session::Session;

/// The part of the input that is the same for all calls of a tool by a caller.
pub(super) fn subject(metadata: &Metadata, flags: &[Detail], caller: &Caller) -> Value {
    object([
        ("tool", text(&metadata.name)),
        ("kind", text(metadata.kind.as_str())),
        ("target", Value::Null),
        (
            "metadata",
            object([
                ("category", text(&metadata.category)),
                ("version", text(&metadata.version)),
                ("source", text(&metadata.source)),
                ("dangerous", Value::Bool(metadata.dangerous)),
                ("requires_auth", Value::Bool(metadata.requires_auth)),
                ("sandboxed", Value::Bool(metadata.sandboxed)),
                ("cost_per_use", usd(metadata.cost_per_use)),
                ("labels", texts(&metadata.labels)),
                ("flags", rules_of(flags).into_iter().map(text).collect::<Vec<_>>().into()),
            ]),
        ),
        (
            "user",
            object([
                ("id", text(&caller.id)),
                ("tenant", text(&caller.tenant)),
                ("roles", texts(&caller.roles)),
                ("anonymous", Value::Bool(caller.anonymous)),
            ]),
        ),
    ])
}

/// Adds the part that depends on the call, limited to the fields that the rules read.
/// Errors: arguments that are nested too deeply.
pub(super) fn complete(
    subject: &Value,
    call: &CallContext,
    arguments: &Arguments,
    reads: Reads,
) -> Result<Value, String> {
    let mut input = subject.clone();
    if let Ok(fields) = input.as_object_mut() {
        if reads.target
            && let Some(target) = &call.target
        {
            fields.insert("target".into(), text(&target.name));
        }
        if reads.arguments {
            fields.insert("arguments".into(), converted_object(arguments, 1)?);
        }
        if reads.session {
            fields.insert("session".into(), call.origin.session.as_deref().map_or(Value::Null, of_session));
        }
        if reads.call {
            fields.insert("call".into(), of_call(call));
        }
    }
    Ok(input)
}

/// Adds the form in which the call is sent.
/// Errors: arguments that are nested too deeply.
pub(super) fn add_sent(input: &mut Value, sent: &SentCall<'_>) -> Result<(), String> {
    let SentCall { destination: Destination { method, address, coding, meta, as_task }, arguments } = sent;
    let meta = meta.map_or_else(|| Ok(Value::new_object()), |meta| converted_object(meta, 1))?;
    let sent = object([
        ("method", text(method)),
        ("address", text(address)),
        ("coding", coding.as_deref().map_or(Value::Null, text)),
        ("arguments", converted_object(arguments, 1)?),
        ("meta", meta),
        ("as_task", Value::Bool(*as_task)),
    ]);
    if let Ok(fields) = input.as_object_mut() {
        fields.insert("sent".into(), sent);
    }
    Ok(())
}

/// Adds the digest of the arguments, for a policy that may not get them.
pub(super) fn add_digest(input: &mut Value, arguments: &Arguments) {
    if let Ok(fields) = input.as_object_mut() {
        fields.insert("arguments_sha256".into(), hex::encode(json::digest(arguments)).into());
    }
}

/// Adds an answer, for a policy that is asked about it: `phase` is `answer`, and `answer` has its value and its text.
/// Errors: an answer that is nested too deeply.
pub(super) fn add_answer(input: &mut Value, output: &ToolOutput) -> Result<(), String> {
    let value = converted(&output.value, 1)?;
    let said = output.text.clone().or_else(|| output.mcp.as_ref().and_then(|mcp| mcp.text()));
    let answer = object([("value", value), ("text", said.map_or(Value::Null, |said| text(&said)))]);
    if let Ok(fields) = input.as_object_mut() {
        fields.insert("phase".into(), text("answer"));
        fields.insert("answer".into(), answer);
    }
    Ok(())
}

/// The `session` part of the input.
pub(super) fn session(id: &str, calls: u64, cost_usd: Decimal) -> Value {
    object([("id", text(id)), ("calls", calls.into()), ("cost_usd", usd(cost_usd))])
}

/// The first name on a path into the input that the input does not have, with the path to it.
pub(super) fn unknown_field(fields: &[(&str, &[&str])], path: &[String]) -> Option<String> {
    let [field, rest @ ..] = path else { return None };
    let Some((_, names)) = fields.iter().find(|(name, _)| name == field) else { return Some(field.clone()) };
    let inner = rest.first()?;
    (!names.is_empty() && !names.contains(&&**inner)).then(|| format!("{field}.{inner}"))
}

/// The fields of the input, two levels deep; the names of arguments are the tool's.
pub(super) const FIELDS: [(&str, &[&str]); 11] = [
    ("tool", &[]),
    ("kind", &[]),
    ("target", &[]),
    (
        "metadata",
        &[
            "category",
            "version",
            "source",
            "dangerous",
            "requires_auth",
            "sandboxed",
            "cost_per_use",
            "labels",
            "flags",
        ],
    ),
    ("arguments", &[]),
    ("sent", &["method", "address", "coding", "arguments", "meta", "as_task"]),
    ("user", &["id", "tenant", "roles", "anonymous"]),
    ("session", &["id", "calls", "cost_usd"]),
    ("argument_labels", &[]),
    ("flow", &["mode", "sink", "untrusted", "questions", "forbidden"]),
    ("call", &["id", "via", "depth", "parent", "program", "dry_run"]),
];

/// Errors: nested deeper than [`DEEPEST`].
pub(super) fn converted(value: &Json, depth: usize) -> Result<Value, String> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => converted_number(number),
        Json::String(string) => text(string),
        Json::Array(items) => {
            check(depth)?;
            items.iter().map(|item| converted(item, depth + 1)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Json::Object(fields) => converted_object(fields, depth)?,
    })
}

/// Deeper arguments are refused, so that neither conversion nor a recursive builtin exhausts the stack.
/// `serde_json` itself accepts at most 128 levels.
const DEEPEST: usize = 128;

fn check(depth: usize) -> Result<(), String> {
    if depth > DEEPEST { Err(format!("the arguments are nested deeper than {DEEPEST} levels")) } else { Ok(()) }
}

fn converted_object(fields: &Arguments, depth: usize) -> Result<Value, String> {
    check(depth)?;
    let fields = fields.iter().map(|(name, value)| Ok((text(name), converted(value, depth + 1)?)));
    Ok(fields.collect::<Result<BTreeMap<_, _>, String>>()?.into())
}

fn converted_number(number: &serde_json::Number) -> Value {
    if let Some(integer) = number.as_i64() {
        integer.into()
    } else if let Some(integer) = number.as_u64() {
        integer.into()
    } else {
        // Never `None`: without arbitrary precision, every other number is a float.
        number.as_f64().map_or(Value::Undefined, Value::from)
    }
}

fn of_session(of: &Session) -> Value {
    session(&of.id, of.calls(), of.cost_usd())
}

fn of_call(call: &CallContext) -> Value {
    let parent = call.nesting.parent.as_deref();
    object([
        ("id", call.id.to_string().into()),
        ("via", text(call.via.as_str())),
        ("depth", call.nesting.depth.into()),
        ("parent", parent.map_or(Value::Null, |parent| parent.id.to_string().into())),
        ("program", parent.map_or(Value::Null, |parent| hex::encode(parent.program).into())),
        ("dry_run", Value::Bool(call.dry_run)),
    ])
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    BTreeMap::from(fields.map(|(name, value)| (text(name), value))).into()
}

fn text(value: &str) -> Value {
    Value::from(value)
}

fn texts(values: &[String]) -> Value {
    values.iter().map(|value| text(value)).collect::<Vec<_>>().into()
}

/// A price as a number that a policy can compare. An amount beyond `f64` becomes the largest `f64`.
fn usd(amount: Decimal) -> Value {
    Value::from(amount.to_f64().unwrap_or(f64::MAX))
}
