//! `multipart/form-data` (RFC 7578), files included.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::file::{File, FileMembers, has_file, is_file};
use super::{essence, invalid_argument};
use crate::call::parameter_encoding;
use crate::read::operation::PropertyEncoding;
use sekisho_core::error::CallError;

/// The body, and its `Content-Type` with the boundary: random, so that no content can hold it.
pub(super) fn write(
    members: &Map<String, Value>,
    media_type: &str,
    encoding: &BTreeMap<String, PropertyEncoding>,
    files: &FileMembers,
) -> Result<(String, Vec<u8>), CallError> {
    let boundary = Uuid::new_v4().simple().to_string();
    let mut body = Vec::new();
    for (name, value) in members {
        let declared = encoding.get(name).and_then(|encoding| encoding.content_type.as_deref());
        // An array is a part for each of its items (OpenAPI 3.1.1, "Encoding multipart media types").
        let items = match value {
            Value::Array(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        for item in items {
            if !files.contains(name) || !has_file(item) {
                // No part can say that there is no file.
                if !(item.is_null() && files.contains(name)) {
                    Part::field(item, declared).write(name, &boundary, &mut body)?;
                }
                continue;
            }
            let mut found = Vec::new();
            let rest = without_files(name, item, &mut found);
            if let Some(rest) = rest {
                Part::field(&rest, declared).write(name, &boundary, &mut body)?;
            }
            for (name, file) in found {
                Part::file(&name, file, declared)?.write(&name, &boundary, &mut body)?;
            }
        }
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("{}; boundary={boundary}", essence(media_type)), body))
}

struct Part<'a> {
    filename: Option<&'a str>,
    content_type: Option<&'a str>,
    bytes: Vec<u8>,
}

impl<'a> Part<'a> {
    fn file(name: &'a str, value: &'a Value, declared: Option<&'a str>) -> Result<Self, CallError> {
        let File { filename, content_type, bytes } = File::read(name, value)?;
        let content_type = content_type.or(declared.and_then(first_concrete)).unwrap_or("application/octet-stream");
        Ok(Self { filename: Some(filename.unwrap_or(name)), content_type: Some(content_type), bytes })
    }

    fn field(value: &Value, declared: Option<&'a str>) -> Self {
        let default = if value.is_object() || value.is_array() { Some("application/json") } else { None };
        let content_type = declared.and_then(first_concrete).or(default);
        Self { filename: None, content_type, bytes: parameter_encoding::plain(value).into_bytes() }
    }

    fn write(&self, name: &str, boundary: &str, body: &mut Vec<u8>) -> Result<(), CallError> {
        let mut head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", quoted(name));
        if let Some(filename) = self.filename {
            head.push_str(&format!("; filename=\"{}\"", quoted(filename)));
        }
        if let Some(content_type) = self.content_type {
            if HeaderValue::from_str(content_type).is_err() {
                return Err(invalid_argument(format!("the `content_type` of `{name}` is not a media type")));
            }
            head.push_str(&format!("\r\nContent-Type: {content_type}"));
        }
        head.push_str("\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&self.bytes);
        body.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// A value without its files, which are found with the names of their parts: `name[member][0]` within objects and
/// lists.
fn without_files<'v>(name: &str, value: &'v Value, found: &mut Vec<(String, &'v Value)>) -> Option<Value> {
    if is_file(value) {
        found.push((name.to_owned(), value));
        return None;
    }
    match value {
        Value::Object(members) if has_file(value) => {
            let rest = members.iter().filter_map(|(member, inner)| {
                Some((member.clone(), without_files(&format!("{name}[{member}]"), inner, found)?))
            });
            let rest: Map<_, _> = rest.collect();
            (!rest.is_empty()).then_some(Value::Object(rest))
        }
        Value::Array(items) if has_file(value) => {
            let rest = items.iter().enumerate();
            let rest: Vec<_> =
                rest.filter_map(|(at, item)| without_files(&format!("{name}[{at}]"), item, found)).collect();
            (!rest.is_empty()).then_some(Value::Array(rest))
        }
        other => Some(other.clone()),
    }
}

/// A name in quotes, as browsers write it
/// (<https://html.spec.whatwg.org/multipage/form-control-infrastructure.html#multipart-form-data>).
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// The first of a property's media types that is not a range.
fn first_concrete(declared: &str) -> Option<&str> {
    declared.split(',').map(str::trim).find(|name| !name.is_empty() && !name.contains('*'))
}
