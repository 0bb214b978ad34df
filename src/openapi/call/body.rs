//! Request bodies: the choice of media type, the arguments that fill the body, and its serialization.

mod file;
mod multipart;
mod shape;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Map, Value};

use self::file::{File, FileMembers};
pub(crate) use self::shape::Shape;
use super::parameter_encoding;
use super::parameter_encoding::Escaping;
use super::request::invalid_argument;
use crate::read::operation::{MediaType, PropertyEncoding, RequestBody, Style};
use sekisho_core::error::CallError;
use sekisho_core::headers;

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
    files: FileMembers,
    /// Another media type of the same body, which carries files; the shape has the members of both.
    upload: Option<Box<BodyPlan>>,
}

/// The serialization of a media type, in order of preference where a document offers several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Format {
    Json,
    Form,
    Multipart,
    Text,
    /// The items of a list, each as JSON on a line.
    Lines,
    Binary,
}

impl BodyPlan {
    /// The plan, and notes on the parts that it leaves out; `None` when the document names no media type. `wanted` is
    /// the media type that the settings choose.
    pub(crate) fn of(
        body: &RequestBody,
        definitions: &Map<String, Value>,
        wanted: Option<&str>,
    ) -> (Option<Self>, Vec<String>) {
        let mut notes = Vec::new();
        let chosen = wanted.and_then(|wanted| body.content.iter().find(|offered| is_same(&offered.name, wanted)));
        if let (Some(wanted), None) = (wanted, chosen) {
            notes.push(format!("`media_types` chooses {wanted}, which the body does not have"));
        }
        let by_preference = || body.content.iter().min_by_key(|offered| preference(offered, definitions));
        let Some(preferred) = chosen.or_else(by_preference) else {
            notes.push("the body names no media type and is not sent".to_owned());
            return (None, notes);
        };
        let mut plan = Self::in_media_type(body, preferred, definitions, chosen.is_some());
        let upload = if chosen.is_none() { Self::upload(body, definitions, plan.format) } else { None };
        match upload {
            // A form cannot carry the files, and has no members that multipart has not.
            Some(upload) if plan.format == Format::Form => plan = upload,
            Some(upload) => {
                plan.shape = Shape::of_either(&plan.shape, &upload.shape);
                notes.push(format!(
                    "the body is sent as {}, or as {} where `content_type` says so or a file is given; what only one of \
                     them requires is optional",
                    plan.media_type, upload.media_type
                ));
                plan.upload = Some(Box::new(upload));
            }
            None => {}
        }
        // A file names its media type.
        let are_files = body.content.iter().all(|offered| format_in(offered, definitions) == Format::Binary);
        if body.content.len() > 1 && plan.upload.is_none() && chosen.is_none() && !are_files {
            let (count, media_type) = (body.content.len(), &plan.media_type);
            notes.push(format!(
                "the body is always sent as {media_type}, one of {count}; `media_types` at the collection chooses another"
            ));
        }
        if plan.media_type.to_ascii_lowercase().contains("xml") {
            notes.push("the XML body is one text argument and is sent unchanged".to_owned());
        }
        notes.extend(plan.files.nested_note());
        (Some(plan), notes)
    }

    fn in_media_type(
        body: &RequestBody,
        offered: &MediaType,
        definitions: &Map<String, Value>,
        is_chosen: bool,
    ) -> Self {
        let format = format_in(offered, definitions);
        let (shape, files) = shape::of(body, offered, format, definitions, is_chosen);
        Self {
            required: body.required,
            shape,
            media_type: concrete(&offered.name, format),
            format,
            encoding: offered.encoding.clone(),
            files,
            upload: None,
        }
    }

    /// The multipart form of the body with files, beside another form that has none.
    fn upload(body: &RequestBody, definitions: &Map<String, Value>, preferred: Format) -> Option<Self> {
        if !matches!(preferred, Format::Json | Format::Form) {
            return None;
        }
        let multipart = body.content.iter().filter(|offered| format_of(&offered.name) == Format::Multipart);
        multipart
            .map(|offered| Self::in_media_type(body, offered, definitions, false))
            .find(|plan| !plan.files.is_empty())
    }

    /// The media types that a call may choose from, the usual one first; empty where there is no choice.
    pub(crate) fn media_types(&self) -> Vec<&str> {
        let upload = self.upload.iter().map(|upload| upload.media_type.as_str());
        upload.flat_map(|upload| [self.media_type.as_str(), upload]).collect()
    }

    /// Whether it is serialized as named members, rather than as one text or file.
    pub(crate) fn has_members(&self) -> bool {
        matches!(self.format, Format::Json | Format::Form | Format::Multipart)
    }

    /// Whether an object without members is sent where no argument is given and the body is optional: some servers
    /// refuse an empty body, and an empty object is as valid.
    pub(crate) fn may_be_empty_object(&self) -> bool {
        self.format == Format::Json
    }

    /// The media type, without a boundary, in which a body is sent: `whole`, or one of these members. `chosen` is the one that the
    /// call chooses.
    pub(crate) fn coding<'a>(
        &'a self,
        chosen: Option<&str>,
        whole: Option<&'a Value>,
        mut members: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> &'a str {
        if let Some(upload) = &self.upload {
            let is_file = |(name, value): (&str, &Value)| upload.files.contains(name) && file::has_file(value);
            let of_whole = whole.and_then(Value::as_object).is_some_and(|members| upload.files.are_in(members));
            let is_upload = match chosen {
                Some(chosen) => chosen == upload.media_type,
                None => of_whole || members.any(is_file),
            };
            return if is_upload { &upload.media_type } else { &self.media_type };
        }
        let of_file = whole.filter(|_| self.format == Format::Binary).and_then(|file| file.get("content_type"));
        of_file.and_then(Value::as_str).unwrap_or(&self.media_type)
    }

    /// The value as bytes, with its `Content-Type`; `media_type` is the one that the call chooses.
    /// Errors: `invalid_arguments` for a value that this media type cannot represent.
    pub(crate) fn write(&self, value: &Value, media_type: Option<&str>) -> Result<(HeaderValue, Bytes), CallError> {
        if let Some(upload) = &self.upload {
            let has_files = || value.as_object().is_some_and(|members| upload.files.are_in(members));
            if media_type.map_or_else(has_files, |chosen| chosen == upload.media_type) {
                return upload.write(value, None);
            }
        }
        let (media_type, bytes) = match self.format {
            Format::Json => (self.media_type.clone(), value.to_string().into_bytes()),
            Format::Form => (self.media_type.clone(), self.form(object(value)?).into_bytes()),
            Format::Multipart => multipart::write(object(value)?, &self.media_type, &self.encoding, &self.files)?,
            Format::Text => (self.media_type.clone(), parameter_encoding::plain(value).into_bytes()),
            Format::Lines => (self.media_type.clone(), lines(value)?.into_bytes()),
            Format::Binary => {
                let file = File::read("body", value)?;
                (file.content_type.unwrap_or(&self.media_type).to_owned(), file.bytes)
            }
        };
        let content_type =
            HeaderValue::try_from(media_type).map_err(|_| invalid_argument("the content type is not a media type"))?;
        Ok((content_type, bytes.into()))
    }

    /// `application/x-www-form-urlencoded`: each member in its style. Without one an object is sent as JSON, and a list as
    /// several members.
    fn form(&self, members: &Map<String, Value>) -> String {
        let default = PropertyEncoding::default();
        let mut pairs = Vec::new();
        for (name, value) in members {
            let encoding = self.encoding.get(name).unwrap_or(&default);
            let joined_items = encoding.item_separator.map(|one| parameter_encoding::with_joined_items(value, one));
            let value = joined_items.as_ref().unwrap_or(value);
            let as_json = match &encoding.content_type {
                Some(content_type) => is_json(content_type),
                None => value.is_object() && !encoding.is_styled(),
            };
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

fn object(value: &Value) -> Result<&Map<String, Value>, CallError> {
    value.as_object().ok_or_else(|| invalid_argument("the body must be an object: it is sent as a form"))
}

fn lines(value: &Value) -> Result<String, CallError> {
    let items =
        value.as_array().ok_or_else(|| invalid_argument("the body must be a list: each item is sent as a line"))?;
    let mut lines = String::new();
    for item in items {
        lines.push_str(&item.to_string());
        lines.push('\n');
    }
    Ok(lines)
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

/// The format of a body. In a range of media types, a text or a value without a type is a file. JSON lines that are no list are
/// a file, too.
fn format_in(offered: &MediaType, definitions: &Map<String, Value>) -> Format {
    match format_of(&offered.name) {
        Format::Json if is_range(&offered.name) && shape::may_be_bytes(&offered.schema, definitions) => Format::Binary,
        Format::Json | Format::Binary if is_lines(&offered.name) && shape::is_list(&offered.schema, definitions) => {
            Format::Lines
        }
        format => format,
    }
}

/// A sequence (RFC 7464) has a character before each value as well.
fn is_lines(media_type: &str) -> bool {
    let essence = essence(media_type);
    headers::is_json_lines(&essence) && essence != "application/json-seq"
}

/// Whether both are the same media type, parameters aside.
fn is_same(one: &str, other: &str) -> bool {
    essence(one) == essence(other)
}

/// By format; within one format `application/json` before other JSON types, and a type before a range.
fn preference(offered: &MediaType, definitions: &Map<String, Value>) -> (Format, bool, bool) {
    let is_special = essence(&offered.name) != "application/json";
    (format_in(offered, definitions), is_range(&offered.name), is_special)
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
