//! Schemas of OpenAPI 2.0, 3.0 and 3.1 lowered to JSON Schema 2020-12.
//!
//! Only supported keywords with valid values are kept, so that an error in the document cannot make a tool's
//! schema invalid. A `$ref` becomes `#/$defs/NAME`; its target is lowered once, from a queue, so that recursion
//! in the document is recursion in the schema and not in this code.

mod circles;
mod discriminator;
mod keyword;
mod nullable;
mod one_way;
mod overlap;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use self::discriminator::Inheritance;
use self::keyword::{Form, insert_example, is_annotation, names_in, types, values_of};
use self::nullable::with_null;
use self::one_way::drop_one_way;
use self::overlap::has_overlap;
use super::reference::References;
use super::report::Note;
use crate::load::document::Version;
use sekisho_calls::tool::is_pattern;

/// The direction of a value: `readOnly` properties are not in requests, `writeOnly` ones not in responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Request,
    /// A request in which null removes a member (RFC 7396).
    MergePatch,
    Response,
}

impl Direction {
    fn is_request(self) -> bool {
        self != Self::Response
    }
}

/// Lowers the schemas of one document.
#[derive(Debug)]
pub(crate) struct Lowering<'d> {
    version: Version,
    /// Names of the reference targets, by address; a base without its heirs is another one.
    names: HashMap<(*const Value, Direction, bool), String>,
    queue: Vec<Pending<'d>>,
    definitions: Map<String, Value>,
    patterns: HashMap<String, bool>,
    notes: Vec<Note>,
    /// Read when it is first needed.
    inheritance: Option<Rc<Inheritance<'d>>>,
    /// Whether a schema is being lowered in place of a reference to it.
    is_inlining: bool,
}

#[derive(Debug)]
struct Pending<'d> {
    name: String,
    schema: &'d Value,
    direction: Direction,
    place: String,
    /// A base with a discriminator, without the schemas that inherit from it.
    bare: bool,
}

/// The lowered schemas of a document.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// The definitions that the lowered schemas point at.
    pub(crate) definitions: Map<String, Value>,
    /// Notes on the approximations.
    pub(crate) notes: Vec<Note>,
    /// Definitions that differ from the document's schemas, with the first reason.
    pub(crate) approximated: BTreeMap<String, String>,
}

/// The place of a schema and the direction of its values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'s, 'd> {
    pub(crate) references: &'s References<'d>,
    pub(crate) direction: Direction,
    /// For the report: the operation, or the reference of a shared schema.
    pub(crate) place: &'s str,
}

/// A keyword with its value and the other keywords of its schema.
#[derive(Clone, Copy)]
struct Written<'s> {
    keyword: &'s str,
    value: &'s Value,
    members: &'s Map<String, Value>,
}

impl<'d> Lowering<'d> {
    pub(crate) fn new(version: Version) -> Self {
        Self {
            version,
            names: HashMap::new(),
            queue: Vec::new(),
            definitions: Map::new(),
            patterns: HashMap::new(),
            notes: Vec::new(),
            inheritance: None,
            is_inlining: false,
        }
    }

    /// The definitions that the lowered schemas point at, and the approximations.
    pub(crate) fn finish(mut self, references: &References<'d>) -> Lowered {
        let mut approximated = BTreeMap::new();
        while let Some(Pending { name, schema, direction, place, bare }) = self.queue.pop() {
            let noted = self.notes.len();
            let lowered = self.lower_as(schema, Site { references, direction, place: &place }, bare);
            if let Some(note) = self.notes.get(noted) {
                approximated.insert(name.clone(), note.reason.clone());
            }
            self.definitions.insert(name, lowered);
        }
        let noted = self.notes.len();
        circles::open(&mut self.definitions, &mut self.notes);
        for Note { operation, reason } in self.notes.iter().skip(noted) {
            let name = operation.trim_start_matches("#/$defs/");
            approximated.insert(name.to_owned(), reason.clone());
        }
        Lowered { definitions: self.definitions, notes: self.notes, approximated }
    }

    /// One schema in 2020-12, its references pointing into the definitions.
    pub(crate) fn lower(&mut self, schema: &Value, site: Site<'_, 'd>) -> Value {
        self.lower_as(schema, site, false)
    }

    /// A schema in place of a reference to it; `None` within another one, since it may contain itself.
    fn lower_inline(&mut self, schema: &Value, site: Site<'_, 'd>) -> Option<Value> {
        if std::mem::replace(&mut self.is_inlining, true) {
            return None;
        }
        let lowered = self.lower(schema, site);
        self.is_inlining = false;
        Some(lowered)
    }

    /// `bare`: a base without the schemas that inherit from it.
    fn lower_as(&mut self, schema: &Value, site: Site<'_, 'd>, bare: bool) -> Value {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => return schema.clone(),
            _ => {
                self.report_loss(site, "a schema that is not an object was read as one that allows everything");
                return Value::Bool(true);
            }
        };
        if !bare
            && members.contains_key("discriminator")
            && let Some(alternatives) = self.with_heirs(members, site)
        {
            return self.nullable(members, alternatives);
        }
        let mut lowered = Map::new();
        let refers = self.refer(members, site, &mut lowered);
        // Up to 3.0 siblings of a `$ref` are ignored; annotations are kept all the same.
        let only_annotations = refers && self.version < Version::V3_1;
        for (keyword, value) in members {
            if !only_annotations || is_annotation(keyword) {
                self.keyword(Written { keyword, value, members }, site, &mut lowered);
            }
        }
        drop_one_way(self, &mut lowered, members, site);
        self.discriminate(members, site, &mut lowered);
        self.nullable(members, lowered)
    }

    /// `nullable: true` of 3.0 (and `x-nullable` of 2.0).
    fn nullable(&self, members: &Map<String, Value>, lowered: Map<String, Value>) -> Value {
        let is_nullable = [members.get("nullable"), members.get("x-nullable")].contains(&Some(&json!(true)));
        if self.version < Version::V3_1 && is_nullable { with_null(lowered) } else { Value::Object(lowered) }
    }

    /// Inserts `$ref`; `$dynamicRef` is treated as `$ref`.
    fn refer(&mut self, members: &Map<String, Value>, site: Site<'_, 'd>, lowered: &mut Map<String, Value>) -> bool {
        let written = members.get("$ref").or_else(|| members.get("$dynamicRef")).and_then(Value::as_str);
        let Some(written) = written else { return false };
        match site.references.at(written).and_then(|target| site.references.follow(target).map(|_| target)) {
            Ok(target) => {
                let name = self.define(written, target, site.direction);
                lowered.insert("$ref".into(), format!("#/$defs/{name}").into());
            }
            Err(broken) => self.report_loss(site, format!("{broken}: anything is allowed there")),
        }
        if members.contains_key("$dynamicRef") {
            self.report_loss(site, "`$dynamicRef` was read as `$ref`");
        }
        true
    }

    /// The name of a reference's target; queues it the first time.
    fn define(&mut self, written: &str, target: &'d Value, direction: Direction) -> String {
        self.define_as(written, target, direction, false)
    }

    /// A reference to a base without the schemas that inherit from it.
    fn define_bare(&mut self, written: &str, target: &'d Value, direction: Direction) -> String {
        format!("#/$defs/{}", self.define_as(written, target, direction, true))
    }

    fn define_as(&mut self, written: &str, target: &'d Value, direction: Direction, bare: bool) -> String {
        let key = (std::ptr::from_ref(target), direction, bare);
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let last = written.rsplit('/').next().unwrap_or(written);
        let mut wanted: String = last
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
            .take(100)
            .collect();
        wanted.push_str(match direction {
            Direction::Request => "",
            Direction::MergePatch => "-Patch",
            Direction::Response => "-Output",
        });
        if bare {
            wanted.push_str("-Base");
        }
        let mut name = wanted.clone();
        let mut turn = 2_usize;
        while self.definitions.contains_key(&name) {
            name = format!("{wanted}-{turn}");
            turn += 1;
        }
        // Holds the name, and the order in which names were first met.
        self.definitions.insert(name.clone(), Value::Null);
        self.names.insert(key, name.clone());
        self.queue.push(Pending { name: name.clone(), schema: target, direction, place: written.to_owned(), bare });
        name
    }

    fn keyword(&mut self, written: Written<'_>, site: Site<'_, 'd>, lowered: &mut Map<String, Value>) {
        let Written { keyword, value, members } = written;
        let Some(form) = Form::of(keyword) else { return };
        let read = match form {
            Form::Schema if matches!(keyword, "additionalProperties" | "unevaluatedProperties") => {
                Some(self.member(value, site))
            }
            Form::Schema => Some(self.lower(value, site)),
            Form::Schemas if keyword == "oneOf" => return self.one_of(written, site, lowered),
            Form::Schemas if keyword == "allOf" => self.all_of(written, site),
            Form::Schemas => self.listed(value, site),
            Form::Named => self.named(value, site, keyword == "properties"),
            Form::Patterned => self.patterned(value, site),
            Form::Items => return self.items(value, site, lowered),
            Form::Example => return insert_example(value, lowered),
            Form::Type => types(value),
            Form::Enum => values_of(value, members),
            Form::Bound => return self.bound(written, site, lowered),
            Form::Pattern => value.as_str().is_some_and(|pattern| self.compiles(pattern)).then(|| value.clone()),
            Form::Text => value.is_string().then(|| value.clone()),
            Form::Flag => value.is_boolean().then(|| value.clone()),
            Form::Count => value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0).then(|| value.clone()),
            Form::Divisor => value.as_f64().is_some_and(|n| n > 0.0).then(|| value.clone()),
            Form::Names => names_in(value),
            Form::List => value.is_array().then(|| value.clone()),
            Form::Any => Some(value.clone()),
        };
        match read {
            Some(read) => {
                lowered.insert(keyword.to_owned(), read);
            }
            // `required: true` beside a property's schema is a common mistake without effect.
            None if keyword == "required" => {}
            None if matches!(form, Form::Pattern | Form::Patterned) => {
                self.report_loss(
                    site,
                    format!(
                        "`{keyword}` is too large to be checked, or not a supported regular expression; it was left out"
                    ),
                );
            }
            None => self.report_loss(site, format!("`{keyword}` has an invalid value and was left out")),
        }
    }

    fn listed(&mut self, value: &Value, site: Site<'_, 'd>) -> Option<Value> {
        let listed: Vec<_> = value.as_array()?.iter().map(|schema| self.lower(schema, site)).collect();
        (!listed.is_empty()).then_some(Value::Array(listed))
    }

    /// Alternatives of which one contains another become an `anyOf`.
    fn one_of(&mut self, written: Written<'_>, site: Site<'_, 'd>, lowered: &mut Map<String, Value>) {
        let Written { value, members, .. } = written;
        let Some(alternatives) = self.listed(value, site) else {
            return self.report_loss(site, "`oneOf` has an invalid value and was left out");
        };
        let overlaps = || value.as_array().is_some_and(|written| has_overlap(written, site.references));
        if members.contains_key("anyOf") || members.contains_key("discriminator") || !overlaps() {
            lowered.insert("oneOf".into(), alternatives);
        } else {
            self.report_loss(site, "alternatives of `oneOf` overlap: a value that fits several of them is accepted");
            lowered.insert("anyOf".into(), alternatives);
        }
    }

    /// A schema that inherits from a base refers only to the base, and not to its heirs.
    fn all_of(&mut self, written: Written<'_>, site: Site<'_, 'd>) -> Option<Value> {
        let Written { value, members, .. } = written;
        let parts = value.as_array()?;
        let inheritance = self.inheritance(site.references);
        let is_heir = inheritance.is_heir(members);
        let lowered: Vec<_> = parts
            .iter()
            .map(|part| match inheritance.base_of_part(part, site.references).filter(|_| is_heir) {
                Some(base) => {
                    let name = part.get("$ref").and_then(Value::as_str).unwrap_or_default();
                    json!({"$ref": self.define_bare(name, base, site.direction)})
                }
                None => self.lower(part, site),
            })
            .collect();
        (!lowered.is_empty()).then_some(Value::Array(lowered))
    }

    fn inheritance(&mut self, references: &References<'d>) -> Rc<Inheritance<'d>> {
        Rc::clone(self.inheritance.get_or_insert_with(|| Rc::new(Inheritance::of(references))))
    }

    fn named(&mut self, value: &Value, site: Site<'_, 'd>, are_members: bool) -> Option<Value> {
        let named = value.as_object()?.iter();
        let lowered = named.map(|(name, schema)| {
            let lowered = if are_members { self.member(schema, site) } else { self.lower(schema, site) };
            (name.clone(), lowered)
        });
        Some(Value::Object(lowered.collect()))
    }

    /// The schema of a member, which a merge patch removes by null.
    fn member(&mut self, schema: &Value, site: Site<'_, 'd>) -> Value {
        match self.lower(schema, site) {
            Value::Object(lowered) if site.direction == Direction::MergePatch => with_null(lowered),
            lowered => lowered,
        }
    }

    fn patterned(&mut self, value: &Value, site: Site<'_, 'd>) -> Option<Value> {
        let named = value.as_object()?;
        let mut lowered = Map::new();
        for (pattern, schema) in named {
            if !self.compiles(pattern) {
                return None;
            }
            lowered.insert(pattern.clone(), self.member(schema, site));
        }
        Some(Value::Object(lowered))
    }

    /// A list of schemas, as until draft 2019-09, is `prefixItems`.
    fn items(&mut self, value: &Value, mut site: Site<'_, 'd>, lowered: &mut Map<String, Value>) {
        // A patch replaces a list as a whole.
        if site.direction == Direction::MergePatch {
            site.direction = Direction::Request;
        }
        match self.listed(value, site) {
            Some(listed) => lowered.insert("prefixItems".into(), listed),
            None if value.is_array() => None,
            None => {
                let items = self.lower(value, site);
                lowered.insert("items".into(), items)
            }
        };
    }

    /// Bounds of numbers; until 3.0 an exclusive one is a flag beside the bound.
    fn bound(&mut self, written: Written<'_>, site: Site<'_, 'd>, lowered: &mut Map<String, Value>) {
        let Written { keyword, value, members } = written;
        let (exclusive, flag) = match keyword {
            "minimum" => ("exclusiveMinimum", members.get("exclusiveMinimum")),
            "maximum" => ("exclusiveMaximum", members.get("exclusiveMaximum")),
            exclusive => (exclusive, None),
        };
        match value {
            Value::Number(_) if flag == Some(&Value::Bool(true)) => lowered.insert(exclusive.to_owned(), value.clone()),
            Value::Number(_) => lowered.insert(keyword.to_owned(), value.clone()),
            Value::Bool(_) if keyword.starts_with("exclusive") => None,
            _ => {
                self.report_loss(site, format!("`{keyword}` is not a number and was left out"));
                None
            }
        };
    }

    /// Whether the schema validator accepts a pattern.
    fn compiles(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.patterns.get(pattern) {
            return *known;
        }
        let compiles = is_pattern(pattern);
        self.patterns.insert(pattern.to_owned(), compiles);
        compiles
    }

    fn report_loss(&mut self, site: Site<'_, 'd>, reason: impl Into<String>) {
        let note = Note { operation: site.place.to_owned(), reason: reason.into() };
        if self.notes.last() != Some(&note) {
            self.notes.push(note);
        }
    }
}
