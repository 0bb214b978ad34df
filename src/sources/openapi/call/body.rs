//! Request bodies: the choice of media type, the arguments that fill the body, and its serialization.

mod multipart;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::arguments::whole_definition;
use super::parameter_encoding;
use super::parameter_encoding::Escaping;
use crate::core::error::{CallError, ErrorCode};
use crate::core::headers;
use crate::sources::openapi::read::operation::{MediaType, PropertyEncoding, RequestBody, Style};

/// How the body of one operation is built from arguments and serialized.
#[derive(Debug, PartialEq)]
pub(crate) struct BodyPlan {
    /// Sent even when no argument fills it.
    pub(crate) required: bool,
    pub(crate) shape: Shape,
    media_type: String,
    format: Format,
    encoding: BTreeMap<String, PropertyEncoding>,
    /// Members of a multipart body that are files.
    files: BTreeSet<String>,
}

/// The arguments of a body.
#[derive(Debug, PartialEq)]
pub(crate) enum Shape {
    /// A plain object: each member is an argument.
    Members(Vec<Member>),
    /// Any other body is one argument with this schema.
    Whole { schema: Value, description: String },
}

/// A member of a body that is a plain object.
#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) schema: Value,
    pub(crate) required: bool,
}

/// The serialization of a media type, in order of preference where a document offers several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Format {
    Json,
    Form,
    Multipart,
    Text,
    Binary,
}

impl BodyPlan {
    /// The plan, and notes on what it leaves out; `None` when the document names no media type.
    pub(crate) fn of(body: &RequestBody, definitions: &Map<String, Value>) -> (Option<Self>, Vec<String>) {
        let mut notes = Vec::new();
        let chosen = body.content.iter().min_by_key(|offered| preference(&offered.name));
        let Some(chosen) = chosen else {
            notes.push("the body names no media type and is not sent".to_owned());
            return (None, notes);
        };
        let format = format_of(&chosen.name);
        let media_type = concrete(&chosen.name, format);
        if body.content.len() > 1 {
            notes.push(format!("the body is always sent as {media_type}, one of {}", body.content.len()));
        }
        if chosen.name.to_ascii_lowercase().contains("xml") {
            notes.push("the XML body is one text argument and is sent unchanged".to_owned());
        }
        let mut files = BTreeSet::new();
        let shape = shape(body, chosen, format, definitions, &mut files);
        let plan =
            Self { required: body.required, shape, media_type, format, encoding: chosen.encoding.clone(), files };
        (Some(plan), notes)
    }

    /// Whether it is serialized as named members, rather than as one text or file.
    pub(crate) fn has_members(&self) -> bool {
        matches!(self.format, Format::Json | Format::Form | Format::Multipart)
    }

    /// The value as bytes, with its `Content-Type`.
    ///
    /// # Errors
    /// `invalid_arguments` for a value that this media type cannot represent.
    pub(crate) fn write(&self, value: &Value) -> Result<(HeaderValue, Bytes), CallError> {
        let (media_type, bytes) = match self.format {
            Format::Json => (self.media_type.clone(), value.to_string().into_bytes()),
            Format::Form => (self.media_type.clone(), self.form(object(value)?).into_bytes()),
            Format::Multipart => multipart::write(object(value)?, &self.media_type, &self.encoding, &self.files)?,
            Format::Text => (self.media_type.clone(), parameter_encoding::plain(value).into_bytes()),
            Format::Binary => {
                let file = File::read("body", value)?;
                (file.content_type.unwrap_or(&self.media_type).to_owned(), file.bytes)
            }
        };
        let content_type =
            HeaderValue::try_from(media_type).map_err(|_| invalid_argument("the content type is not a media type"))?;
        Ok((content_type, bytes.into()))
    }

    /// `application/x-www-form-urlencoded`: each member in its style, `form` and exploded where none is given.
    fn form(&self, members: &Map<String, Value>) -> String {
        let default = PropertyEncoding::default();
        let mut pairs = Vec::new();
        for (name, value) in members {
            let encoding = self.encoding.get(name).unwrap_or(&default);
            let as_json = encoding.content_type.as_deref().is_some_and(is_json);
            let style = encoding.style.unwrap_or(Style::Form);
            let explode = encoding.explode.unwrap_or(style == Style::Form);
            let escaping = if encoding.allow_reserved { Escaping::Reserved } else { Escaping::Percent };
            if as_json && (value.is_object() || value.is_array()) {
                let text = Value::String(value.to_string());
                pairs.extend(parameter_encoding::pairs(name, &text, Style::Form, false, Escaping::Percent));
            } else {
                pairs.extend(parameter_encoding::pairs(name, value, style, explode, escaping));
            }
        }
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }
}

/// `application/json`, `application/problem+json`, with or without parameters.
pub(crate) fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// A media type without its parameters, in lower case (RFC 9110 §8.3.1).
pub(crate) fn essence(media_type: &str) -> String {
    headers::essence(media_type).to_ascii_lowercase()
}

/// The schema of a file argument, with a media type where the document leaves it open.
fn file_schema(description: &str, is_typed: bool) -> Value {
    let description = if description.is_empty() { "A file" } else { description };
    let mut schema = json!({
        "type": "object",
        "description": format!("{description} (give `content_base64`, or `text` for a text file)"),
        "properties": {
            "filename": {"type": "string"},
            "content_base64": {"type": "string", "contentEncoding": "base64", "description": "The bytes in base64 (RFC 4648, with padding)."},
            "text": {"type": "string"}
        },
        "oneOf": [{"required": ["content_base64"]}, {"required": ["text"]}],
        "additionalProperties": false
    });
    if is_typed {
        schema["properties"]["content_type"] =
            json!({"type": "string", "pattern": MEDIA_TYPE, "description": "Its media type, such as image/png."});
    }
    schema
}

/// RFC 9110 §8.3.1, without parameters.
const MEDIA_TYPE: &str = "^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$";

/// A file argument.
struct File<'a> {
    filename: Option<&'a str>,
    content_type: Option<&'a str>,
    bytes: Vec<u8>,
}

impl<'a> File<'a> {
    fn read(argument: &str, value: &'a Value) -> Result<Self, CallError> {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        let bytes = match (field("content_base64"), field("text")) {
            (Some(encoded), None) => STANDARD.decode(encoded).map_err(|error| {
                invalid_argument(format!("`{argument}.content_base64` is not base64 (RFC 4648, with padding): {error}"))
            })?,
            (None, Some(text)) => text.as_bytes().to_vec(),
            _ => return Err(invalid_argument(format!("`{argument}` needs either `content_base64` or `text`"))),
        };
        Ok(Self { filename: field("filename"), content_type: field("content_type"), bytes })
    }
}

fn invalid_argument(message: impl Into<String>) -> CallError {
    CallError::new(ErrorCode::InvalidArguments, message)
}

fn object(value: &Value) -> Result<&Map<String, Value>, CallError> {
    value.as_object().ok_or_else(|| invalid_argument("the body must be an object: it is sent as a form"))
}

fn format_of(media_type: &str) -> Format {
    let essence = essence(media_type);
    match essence.as_str() {
        "application/x-www-form-urlencoded" => Format::Form,
        "*/*" | "application/*" => Format::Json,
        _ if is_json(&essence) => Format::Json,
        _ if essence.starts_with("multipart/") => Format::Multipart,
        _ if essence.starts_with("text/") || essence.ends_with("xml") || essence.ends_with("yaml") => Format::Text,
        _ => Format::Binary,
    }
}

/// By format; within one format `application/json` before other JSON types, and a type before a range.
fn preference(media_type: &str) -> (Format, bool, bool) {
    let is_special = essence(media_type) != "application/json";
    (format_of(media_type), is_range(media_type), is_special)
}

/// `image/*`, `*/*`.
fn is_range(media_type: &str) -> bool {
    media_type.contains('*')
}

/// The media type sent where the document names a range.
fn concrete(name: &str, format: Format) -> String {
    if !is_range(name) {
        return name.to_owned();
    }
    match format {
        Format::Json => "application/json",
        Format::Multipart => "multipart/form-data",
        Format::Text => "text/plain",
        _ => "application/octet-stream",
    }
    .to_owned()
}

fn shape(
    body: &RequestBody,
    MediaType { name: media_type, schema, .. }: &MediaType,
    format: Format,
    definitions: &Map<String, Value>,
    files: &mut BTreeSet<String>,
) -> Shape {
    let whole = |schema| Shape::Whole { schema, description: body.description.clone() };
    match format {
        Format::Text => return whole(json!({"type": "string"})),
        Format::Binary => return whole(file_schema(&body.description, is_range(media_type))),
        Format::Json | Format::Form | Format::Multipart => {}
    }
    let Some(mut members) = members(schema, definitions) else { return whole(schema.clone()) };
    // Members that are required only if there is a body: flat arguments cannot express that.
    if !body.required && members.iter().any(|member| member.required) {
        return whole(schema.clone());
    }
    if format == Format::Multipart {
        for member in &mut members {
            if let Some(schema) = file_argument(resolved(&member.schema, definitions)) {
                member.schema = schema;
                files.insert(member.name.clone());
            }
        }
    }
    Shape::Members(members)
}

/// The schema of a member that a multipart body carries as a file; `None` for any other member.
fn file_argument(schema: &Value) -> Option<Value> {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let is_file = |schema: &Value| {
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        text("format") == Some("binary")
            || (schema.get("contentMediaType").is_some() && schema.get("contentEncoding").is_none())
    };
    if is_file(schema) {
        return Some(file_schema(description, true));
    }
    let items = schema.get("items").filter(|items| is_file(items))?;
    Some(json!({"type": "array", "description": description, "items": file_argument(items)?}))
}

/// Longest chain of references that is followed to find a body's members.
const MAX_REFERENCES: usize = 16;

/// The target of a schema that is only a reference.
fn resolved<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    let mut found = schema;
    for _ in 0..MAX_REFERENCES {
        let target = found
            .as_object()
            .filter(|keywords| keywords.keys().all(|keyword| keyword == "$ref" || is_annotation(keyword)))
            .and_then(|keywords| keywords.get("$ref")?.as_str().and_then(whole_definition))
            .and_then(|name| definitions.get(&name));
        match target {
            Some(target) => found = target,
            None => break,
        }
    }
    found
}

fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "title"
            | "description"
            | "example"
            | "examples"
            | "default"
            | "deprecated"
            | "externalDocs"
            | "$comment"
            | "xml"
    ) || keyword.starts_with("x-")
}

/// The members of a schema that is only a plain object. Other keywords (alternatives, additional properties)
/// would be lost as flat arguments.
fn members(schema: &Value, definitions: &Map<String, Value>) -> Option<Vec<Member>> {
    let keywords = resolved(schema, definitions).as_object()?;
    let plain = keywords.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => value == "object",
        "properties" | "required" => true,
        "additionalProperties" => value == false,
        other => is_annotation(other),
    });
    let properties = keywords.get("properties")?.as_object()?;
    // Without members any object is allowed, unless the schema excludes additional ones.
    let is_free = properties.is_empty() && !keywords.contains_key("additionalProperties");
    let required: Vec<&str> = match keywords.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !plain || is_free || required.iter().any(|name| !properties.contains_key(*name)) {
        return None;
    }
    let sent = properties.iter().filter(|(_, schema)| schema.get("readOnly") != Some(&Value::Bool(true)));
    Some(
        sent.map(|(name, schema)| Member {
            name: name.clone(),
            schema: schema.clone(),
            required: required.contains(&name.as_str()),
        })
        .collect(),
    )
}
