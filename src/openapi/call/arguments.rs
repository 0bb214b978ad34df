//! The arguments of an operation: its parameters and the members of its body, each bound to its location.

use std::collections::{BTreeMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::body::{BodyPlan, Shape};
use super::executor::IDEMPOTENCY_KEY;
use crate::read::operation::{Location, Operation, Parameter};
use sekisho_calls::tool::Aliases;

/// The location of an argument in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// By its position in [`Operation::parameters`].
    Parameter(usize),
    /// Into the body, under this name.
    Member(String),
    /// The body itself.
    Body,
    /// The choice between the body's media types.
    MediaType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) place: Place,
}

/// All arguments of an operation, and their schema.
#[derive(Debug)]
pub(crate) struct ArgumentList {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) schema: Value,
    /// The document's names of arguments that have other ones, and the body around those that are its members.
    pub(crate) aliases: Aliases,
}

/// Longest name of an argument that model APIs accept; they accept letters, digits, `_`, `-` and `.`.
const MAX_NAME: usize = 64;

/// The argument that is a whole body.
const BODY: &str = "body";

/// Ends of names, which compare, with their words.
const COMPARISONS: [(&str, &str); 4] = [("<=", "_lte"), (">=", "_gte"), ("<", "_lt"), (">", "_gt")];

/// Most characters of one argument's description.
const MAX_DESCRIPTION: usize = 600;

impl ArgumentList {
    /// Parameters for which `sent` is false are left out.
    pub(crate) fn of(
        operation: &Operation,
        body: Option<&BodyPlan>,
        definitions: &Map<String, Value>,
        sent: impl Fn(&Parameter) -> bool,
    ) -> Self {
        let mut builder = Builder::default();
        let mut parameters: Vec<_> = operation.parameters.iter().enumerate().filter(|(_, one)| sent(one)).collect();
        // The executor sends one for a call that has none.
        let is_filled_in = |parameter: &Parameter| !operation.method.is_safe() && parameter.is_header(&IDEMPOTENCY_KEY);
        // Names are assigned by location, so that they do not depend on the document's order.
        parameters.sort_by_key(|(_, parameter)| parameter.location);
        for (at, parameter) in parameters {
            builder.add(ArgumentSource {
                name: &parameter.name,
                location: word(parameter.location),
                place: Place::Parameter(at),
                schema: &parameter.schema,
                description: &parameter.description,
                required: parameter.required && !is_filled_in(parameter) || parameter.location == Location::Path,
                deprecated: parameter.deprecated,
            });
        }
        match body.map(|plan| (&plan.shape, plan.required)) {
            Some((Shape::Members { members, open }, _)) => {
                builder.open = *open;
                for member in members {
                    builder.add(ArgumentSource {
                        name: &member.name,
                        location: "body",
                        place: Place::Member(member.name.clone()),
                        schema: &member.schema,
                        description: "",
                        required: member.required,
                        deprecated: false,
                    });
                }
            }
            Some((Shape::Whole { schema, description }, required)) => builder.add(ArgumentSource {
                name: BODY,
                location: "request",
                place: Place::Body,
                schema,
                description,
                required,
                deprecated: false,
            }),
            None => {}
        }
        let media_types = body.map(BodyPlan::media_types).unwrap_or_default();
        if let Some(usual) = media_types.first() {
            builder.add(ArgumentSource {
                name: "content_type",
                location: "request",
                place: Place::MediaType,
                schema: &json!({"type": "string", "enum": media_types}),
                description: &format!("How the body is sent: {usual} by default, unless a file is given."),
                required: false,
                deprecated: false,
            });
        }
        builder.finish(definitions)
    }
}

/// Adds to a schema the definitions it reaches, and no others.
pub(crate) fn add_definitions(schema: &mut Value, definitions: &Map<String, Value>) {
    let found = reached(schema, definitions);
    if let (false, Value::Object(members)) = (found.is_empty(), schema) {
        let found: Map<String, Value> =
            found.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        members.insert("$defs".into(), found.into());
    }
}

/// The definitions that a schema reaches, by name.
pub(crate) fn reached<'d>(schema: &Value, definitions: &'d Map<String, Value>) -> BTreeMap<&'d str, &'d Value> {
    let mut reached = BTreeMap::new();
    let mut pending: Vec<&'d Value> = Vec::new();
    collect_references(schema, definitions, &mut reached, &mut pending);
    while let Some(definition) = pending.pop() {
        collect_references(definition, definitions, &mut reached, &mut pending);
    }
    reached
}

fn collect_references<'d>(
    schema: &Value,
    definitions: &'d Map<String, Value>,
    reached: &mut BTreeMap<&'d str, &'d Value>,
    found: &mut Vec<&'d Value>,
) {
    let mut pending = vec![schema];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => {
                pending.extend(members.values());
                let name = members.get("$ref").and_then(Value::as_str).and_then(definition_name);
                if let Some((key, definition)) = name.and_then(|name| definitions.get_key_value(&name))
                    && reached.insert(key, definition).is_none()
                {
                    found.push(definition);
                }
            }
            _ => {}
        }
    }
}

/// The name in `#/$defs/NAME`; `None` for a place below it.
pub(crate) fn whole_definition(reference: &str) -> Option<String> {
    let below = reference.strip_prefix("#/$defs/")?.contains('/');
    if below { None } else { definition_name(reference) }
}

/// The name in `#/$defs/NAME` or a place below it, unescaped (RFC 6901).
fn definition_name(reference: &str) -> Option<String> {
    let name = reference.strip_prefix("#/$defs/")?.split('/').next()?;
    Some(percent_decode_str(name).decode_utf8().ok()?.replace("~1", "/").replace("~0", "~"))
}

/// `text`, truncated to this many characters.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

struct ArgumentSource<'a> {
    /// As in the document.
    name: &'a str,
    location: &'static str,
    place: Place,
    schema: &'a Value,
    /// Replaces the schema's own, unless empty.
    description: &'a str,
    required: bool,
    deprecated: bool,
}

#[derive(Default)]
struct Builder {
    taken: HashSet<String>,
    arguments: Vec<Argument>,
    properties: Map<String, Value>,
    required: Vec<String>,
    /// Whether further arguments become members of the body.
    open: bool,
    /// The document's names that differ, with the arguments; several arguments may have one of them.
    renamed: Vec<(String, String)>,
}

impl Builder {
    fn add(&mut self, source: ArgumentSource<'_>) {
        let name = self.free_name(source.name, source.location);
        if source.required {
            self.required.push(name.clone());
        }
        if name != source.name {
            self.renamed.push((source.name.to_owned(), name.clone()));
        }
        self.properties.insert(name.clone(), described(&source, &name));
        self.arguments.push(Argument { name, place: source.place });
    }

    /// The name itself where it is free, then with its location, then with a number.
    fn free_name(&mut self, name: &str, location: &str) -> String {
        let plain = allowed(name);
        let mut free = plain.clone();
        let mut number = 1;
        while !self.taken.insert(free.clone()) {
            let prefix = if number == 1 { format!("{location}_") } else { format!("{location}{number}_") };
            free = format!("{prefix}{plain}");
            free.truncate(MAX_NAME);
            number += 1;
        }
        free
    }

    fn finish(self, definitions: &Map<String, Value>) -> ArgumentList {
        let aliases = self.aliases();
        let mut schema = json!({"type": "object", "properties": self.properties});
        if !self.open {
            schema["additionalProperties"] = false.into();
        }
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        add_definitions(&mut schema, definitions);
        ArgumentList { arguments: self.arguments, schema, aliases }
    }

    fn aliases(&self) -> Aliases {
        let is_clear = |(name, _): &&(String, String)| {
            !self.taken.contains(name) && self.renamed.iter().filter(|(other, _)| other == name).count() == 1
        };
        let members = self.arguments.iter().filter(|argument| matches!(argument.place, Place::Member(_)));
        let members: Vec<_> = members.map(|argument| argument.name.clone()).collect();
        let wrapper = Some(BODY.to_owned()).filter(|body| !members.is_empty() && !self.taken.contains(body));
        Aliases { names: self.renamed.iter().filter(is_clear).cloned().collect(), wrapper, members }
    }
}

/// The name in the alphabet that model APIs accept: `filter[name]` becomes `filter_name`, `time<` becomes `time_lt`.
fn allowed(name: &str) -> String {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.');
    if name.len() <= MAX_NAME && !name.is_empty() && name.chars().all(is_allowed) {
        return name.to_owned();
    }
    let comparison = COMPARISONS.iter().find_map(|(end, word)| Some((name.strip_suffix(end)?, *word)));
    let (name, word) = comparison.unwrap_or((name, ""));
    let mut allowed = String::new();
    for character in name.chars().map(|character| if is_allowed(character) { character } else { '_' }) {
        if !(character == '_' && allowed.ends_with('_')) {
            allowed.push(character);
        }
    }
    allowed.truncate(MAX_NAME - word.len());
    match allowed.trim_matches('_') {
        "" => format!("argument{word}"),
        trimmed => format!("{trimmed}{word}"),
    }
}

fn described(source: &ArgumentSource<'_>, name: &str) -> Value {
    let mut schema = match source.schema {
        Value::Object(keywords) => keywords.clone(),
        // The document allows no value: it is never sent.
        Value::Bool(false) => Map::from_iter([("not".to_owned(), json!({}))]),
        _ => Map::new(),
    };
    let own = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let mut description =
        bounded(if source.description.is_empty() { own } else { source.description }, MAX_DESCRIPTION);
    if name != source.name {
        let place = if source.location == "body" { "the body" } else { source.location };
        description = format!("{description} (`{}` in {place})", source.name).trim_start().to_owned();
    }
    if source.deprecated {
        schema.insert("deprecated".into(), true.into());
    }
    if !description.is_empty() {
        schema.insert("description".into(), description.into());
    }
    schema.into()
}

fn word(location: Location) -> &'static str {
    match location {
        Location::Path => "path",
        Location::Query | Location::QueryString => "query",
        Location::Header => "header",
        Location::Cookie => "cookie",
    }
}

#[cfg(test)]
mod tests;
