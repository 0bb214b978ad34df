//! Request bodies, and the responses of success.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Reader, flag, parameter, text};
use crate::load::document::Version;
use crate::read::operation::{MediaType, PropertyEncoding, RequestBody, Response, StatusRange};
use crate::read::schema::Direction;
use crate::read::{swagger2, xml};
use sekisho_core::headers;

impl<'d> Reader<'d> {
    pub(super) fn request_body(&mut self, body: &Value) -> Option<RequestBody> {
        let content = self.content(body, Direction::Request);
        if content.is_empty() {
            self.approximated("its body has no media type and was left out");
            return None;
        }
        Some(RequestBody { required: flag(body.get("required")), description: text(body.get("description")), content })
    }

    /// The responses of success. `default` counts as one only where there is no other; beside one it describes errors.
    pub(super) fn responses(&mut self, operation: &'d Map<String, Value>) -> Vec<Response> {
        let Some(Value::Object(written)) = operation.get("responses") else { return Vec::new() };
        let mut read: Vec<(StatusRange, &'d Value)> = Vec::new();
        for (status, response) in written.iter().filter(|(status, _)| !status.starts_with("x-")) {
            match status_range(status) {
                Some(range) => read.push((range, response)),
                None => self.approximated(format!("the response {status:?} is not a status and was left out")),
            }
        }
        let succeeds = |range: StatusRange| match range {
            StatusRange::Exactly(status) => (200..300).contains(&status),
            StatusRange::Class(class) => class == 2,
            StatusRange::Default => false,
        };
        let any = read.iter().any(|(range, _)| succeeds(*range));
        read.retain(|(range, _)| if any { succeeds(*range) } else { *range == StatusRange::Default });
        read.sort_by_key(|(range, _)| *range);
        let produces = self.media_types("produces", operation);
        read.into_iter().filter_map(|(status, response)| self.response(status, response, &produces)).collect()
    }

    fn response(&mut self, status: StatusRange, response: &'d Value, produces: &[String]) -> Option<Response> {
        let response = self.resolved(response)?;
        let response = match self.version {
            Version::Swagger2 => Cow::Owned(swagger2::response(response, produces)),
            _ => Cow::Borrowed(response),
        };
        let content = self.content(&response, Direction::Response);
        Some(Response { status, description: text(response.get("description")), content })
    }

    fn content(&mut self, holder: &Value, direction: Direction) -> Vec<MediaType> {
        let content = holder.get("content").and_then(|content| self.target(content)).and_then(Value::as_object);
        let mut found = Vec::new();
        for (name, described) in content.into_iter().flatten().filter(|(name, _)| !name.starts_with("x-")) {
            // From OpenAPI 3.2's `components.mediaTypes`.
            let Some(described) = self.target(described) else { continue };
            let is_patch = headers::essence(name).eq_ignore_ascii_case("application/merge-patch+json");
            let direction = match direction {
                Direction::Request if is_patch => Direction::MergePatch,
                direction => direction,
            };
            let example = described.get("schema").filter(|_| direction == Direction::Request && is_xml(name));
            let schema = match example.and_then(|schema| xml::example(schema, &self.references)) {
                Some(example) => json!({"type": "string", "description": format!("XML, such as {example}")}),
                None => self.media_schema(described, direction),
            };
            found.push(MediaType { name: name.clone(), schema, encoding: encodings(described) });
        }
        found
    }

    /// The value, or the target of its reference; a broken reference becomes a line of the report.
    fn target<'v>(&mut self, value: &'v Value) -> Option<&'v Value>
    where
        'd: 'v,
    {
        match self.references.target(value) {
            Ok(value) => Some(value),
            Err(broken) => {
                self.report.broken_reference(&self.place, &broken);
                None
            }
        }
    }

    /// OpenAPI 3.2 describes a stream by the schema of its items.
    fn media_schema(&mut self, described: &Value, direction: Direction) -> Value {
        match (described.get("schema"), described.get("itemSchema")) {
            (Some(schema), _) => self.lower(schema, direction),
            (None, Some(item)) => {
                self.approximated("`itemSchema` was read as the item schema of an array");
                json!({"type": "array", "items": self.lower(item, direction)})
            }
            (None, None) => Value::Bool(true),
        }
    }
}

fn is_xml(media_type: &str) -> bool {
    headers::essence(media_type).to_ascii_lowercase().ends_with("xml")
}

fn encodings(described: &Value) -> BTreeMap<String, PropertyEncoding> {
    let encodings = described.get("encoding").and_then(Value::as_object).into_iter().flatten();
    encodings
        .map(|(property, encoding)| {
            let read = PropertyEncoding {
                content_type: encoding.get("contentType").and_then(Value::as_str).map(str::to_owned),
                style: encoding.get("style").and_then(Value::as_str).and_then(parameter::style),
                explode: encoding.get("explode").and_then(Value::as_bool),
                allow_reserved: flag(encoding.get("allowReserved")),
                item_separator: swagger2::separator_of_items(encoding),
            };
            (property.clone(), read)
        })
        .collect()
}

fn status_range(written: &str) -> Option<StatusRange> {
    if written == "default" {
        return Some(StatusRange::Default);
    }
    match written.as_bytes() {
        [class @ b'1'..=b'5', b'X' | b'x', b'X' | b'x'] => Some(StatusRange::Class(u16::from(class - b'0'))),
        _ => written.parse().ok().filter(|status| (100..600).contains(status)).map(StatusRange::Exactly),
    }
}
