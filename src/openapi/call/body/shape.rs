//! The arguments of a body: its members side by side where it is a plain object, otherwise one argument.

use serde_json::{Map, Value, json};

use super::file::{FileMembers, Offering, file_schema};
use super::{Format, essence, format_in, is_range};
use crate::call::arguments::whole_definition;
use crate::read::operation::{MediaType, RequestBody};

/// The arguments of a body.
#[derive(Debug, PartialEq)]
pub(crate) enum Shape {
    /// A plain object: each member is an argument. `open`: it may have further ones.
    Members { members: Vec<Member>, open: bool },
    /// Any other body is one argument with this schema.
    Whole { schema: Value, description: String },
}

/// A member of a body that is a plain object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) schema: Value,
    pub(crate) required: bool,
}

impl Shape {
    /// The arguments of a body that may be sent in either of two forms.
    pub(super) fn of_either(one: &Self, other: &Self) -> Self {
        if let (Self::Members { members, open }, Self::Members { members: others, open: other_open }) = (one, other) {
            return Self::Members { members: Member::of_either(members, others), open: *open || *other_open };
        }
        let description = match (one, other) {
            (Self::Whole { description, .. }, _) | (_, Self::Whole { description, .. }) => description.clone(),
            _ => String::new(),
        };
        Self::Whole { schema: json!({"anyOf": [one.as_schema(), other.as_schema()]}), description }
    }

    fn as_schema(&self) -> Value {
        match self {
            Self::Whole { schema, .. } => schema.clone(),
            Self::Members { members, open } => {
                let properties: Map<_, _> =
                    members.iter().map(|member| (member.name.clone(), member.schema.clone())).collect();
                let required = members.iter().filter(|member| member.required).map(|member| member.name.as_str());
                let required: Vec<_> = required.collect();
                let mut schema = json!({"type": "object", "properties": properties, "required": required});
                if !open {
                    schema["additionalProperties"] = false.into();
                }
                schema
            }
        }
    }
}

impl Member {
    fn of_either(these: &[Self], those: &[Self]) -> Vec<Self> {
        let named = |members: &[Self], name: &str| members.iter().find(|member| member.name == name).cloned();
        let mut all: Vec<_> = these
            .iter()
            .map(|member| match named(those, &member.name) {
                None => Self { required: false, ..member.clone() },
                Some(other) if other.schema == member.schema => {
                    Self { required: member.required && other.required, ..other }
                }
                Some(other) => Self {
                    name: other.name,
                    schema: json!({"anyOf": [member.schema, other.schema]}),
                    required: member.required && other.required,
                },
            })
            .collect();
        let further = those.iter().filter(|member| named(these, &member.name).is_none());
        all.extend(further.map(|member| Self { required: false, ..member.clone() }));
        all
    }
}

/// `is_chosen`: the settings name this media type.
pub(super) fn of(
    body: &RequestBody,
    offered: &MediaType,
    format: Format,
    definitions: &Map<String, Value>,
    is_chosen: bool,
) -> (Shape, FileMembers) {
    let MediaType { name: media_type, schema, encoding } = offered;
    let whole = |schema| Shape::Whole { schema, description: body.description.clone() };
    match format {
        Format::Text if essence(media_type).ends_with("xml") => {
            return (xml(schema, &body.description, definitions), FileMembers::default());
        }
        Format::Text => return (whole(text(schema, definitions)), FileMembers::default()),
        Format::Binary => {
            let all = if is_chosen { std::slice::from_ref(offered) } else { body.content.as_slice() };
            let of_files = all.iter().filter(|one| format_in(one, definitions) == Format::Binary);
            let names: Vec<_> = of_files.map(|one| one.name.as_str()).collect();
            return (whole(file_schema(&body.description, listed(&names))), FileMembers::default());
        }
        Format::Json | Format::Form | Format::Multipart | Format::Lines => {}
    }
    // Where JSON is offered, too, a member without a type is one of JSON.
    let untyped = is_chosen || body.content.iter().all(|one| format_in(one, definitions) != Format::Json);
    let offering = Offering::new(definitions, encoding, untyped);
    let files = if format == Format::Multipart { offering.members(schema) } else { FileMembers::default() };
    let with_files = |member: Option<&str>, schema: &Value| {
        let found = match member {
            _ if files.is_empty() => None,
            Some(name) => offering.offered_member(name, schema),
            None => offering.offered(schema),
        };
        found.unwrap_or_else(|| schema.clone())
    };
    let shape = match members(schema, definitions) {
        // Members that are required only if there is a body: flat arguments cannot express that.
        Some((members, open)) if body.required || members.iter().all(|member| !member.required) => {
            let members = members.into_iter().map(|member| {
                let schema = with_files(Some(&member.name), &member.schema);
                Member { schema, ..member }
            });
            Shape::Members { members: members.collect(), open }
        }
        _ => whole(with_files(None, schema)),
    };
    (shape, files)
}

/// A text whose description begins with the example of the XML: long descriptions are cut.
fn xml(schema: &Value, of_body: &str, definitions: &Map<String, Value>) -> Shape {
    let own = resolved(schema, definitions).get("description").and_then(Value::as_str).unwrap_or_default();
    let texts: Vec<_> = [own, of_body].into_iter().filter(|text| !text.is_empty()).collect();
    Shape::Whole { schema: json!({"type": "string"}), description: texts.join(". ") }
}

/// A text, which may be a number or a truth value as text.
fn text(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let resolved = resolved(schema, definitions);
    let is_scalar = |kind: &Value| kind.as_str().is_some_and(|kind| !matches!(kind, "object" | "array"));
    let is_text = match resolved.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().all(is_scalar),
        Some(kind) => is_scalar(kind),
        None => resolved.get("enum").is_some(),
    };
    if is_text { schema.clone() } else { json!({"type": "string"}) }
}

/// The allowed media types of a file: the document has them, unless one stands for any.
fn listed<'n>(names: &'n [&'n str]) -> &'n [&'n str] {
    let is_any = |name: &&str| is_range(name) || essence(name) == "application/octet-stream";
    if names.iter().any(is_any) { &[] } else { names }
}

/// Whether the document says nothing of the values but a description.
pub(super) fn is_untyped(schema: &Value, definitions: &Map<String, Value>) -> bool {
    match resolved(schema, definitions) {
        Value::Object(keywords) => keywords.keys().all(|keyword| is_annotation(keyword)),
        schema => *schema == Value::Bool(true),
    }
}

pub(super) fn is_list(schema: &Value, definitions: &Map<String, Value>) -> bool {
    resolved(schema, definitions).get("type").is_some_and(|kind| *kind == "array")
}

/// Whether the values can be bytes: texts, or of no type.
pub(super) fn may_be_bytes(schema: &Value, definitions: &Map<String, Value>) -> bool {
    let is_text = |kind: &Value| kind == "string" || kind == "null";
    let target = resolved(schema, definitions);
    match target.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().all(is_text),
        Some(kind) => is_text(kind),
        None => is_untyped(target, definitions) || has_only_content(target),
    }
}

/// Whether a schema without a type describes only the content of a text, as OpenAPI 3.1 writes bytes.
fn has_only_content(schema: &Value) -> bool {
    let is_content = |(keyword, value): (&String, &Value)| {
        keyword == "contentMediaType" || keyword == "format" && value == "binary" || is_annotation(keyword)
    };
    schema.as_object().is_some_and(|keywords| keywords.iter().all(is_content))
}

/// Longest chain of references that is followed to find a body's members.
const MAX_REFERENCES: usize = 16;

/// The target of a schema that is only a reference.
pub(super) fn resolved<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
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

pub(super) fn is_annotation(keyword: &str) -> bool {
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

/// The members of a schema that is only a plain object, and whether it may have further ones. Other keywords
/// (alternatives, described additional properties) would be lost as flat arguments.
fn members(schema: &Value, definitions: &Map<String, Value>) -> Option<(Vec<Member>, bool)> {
    let keywords = resolved(schema, definitions).as_object()?;
    let plain = keywords.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => value == "object",
        "properties" | "required" => true,
        "additionalProperties" => value == false,
        other => is_annotation(other),
    });
    let open = !keywords.contains_key("additionalProperties");
    let properties = keywords.get("properties")?.as_object()?;
    let required: Vec<&str> = match keywords.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    // Without members any object is allowed, unless the schema excludes additional ones.
    if !plain || (properties.is_empty() && open) || required.iter().any(|name| !properties.contains_key(*name)) {
        return None;
    }
    let sent = properties.iter().filter(|(_, schema)| schema.get("readOnly") != Some(&Value::Bool(true)));
    let members = sent.map(|(name, schema)| Member {
        name: name.clone(),
        schema: schema.clone(),
        required: required.contains(&name.as_str()),
    });
    Some((members.collect(), open))
}
