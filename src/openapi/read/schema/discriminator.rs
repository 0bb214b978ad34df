//! Discriminators: the alternatives of a schema, each with the values that select it; also those that are only schemas
//! which inherit from it (`allOf`), as Swagger 2.0 has them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::{Lowering, Site};
use crate::read::reference::{References, reference};

/// Most heirs of a schema that are offered as alternatives.
const MAX_HEIRS: usize = 60;

/// Deepest part of an alternative in which the property's own values are looked for.
const MAX_DEPTH: usize = 4;

/// Which schemas of the document inherit from which.
#[derive(Debug, Default)]
pub(super) struct Inheritance<'d> {
    bases: HashMap<Address, Base<'d>>,
    /// All that inherit from a base with a discriminator.
    heirs: HashSet<Address>,
}

/// An object of the document.
type Address = *const Map<String, Value>;

/// A schema with a discriminator that others inherit from.
#[derive(Debug)]
struct Base<'d> {
    name: &'d str,
    schema: &'d Value,
    heirs: Vec<Heir<'d>>,
}

#[derive(Debug, Clone, Copy)]
struct Heir<'d> {
    name: &'d str,
    schema: &'d Value,
}

impl<'d> Inheritance<'d> {
    pub(super) fn of(references: &References<'d>) -> Self {
        let document = references.document();
        let named = document.get("components").and_then(|components| components.get("schemas"));
        let named = named.or_else(|| document.get("definitions")).and_then(Value::as_object);
        let mut children: HashMap<Address, Vec<Heir<'d>>> = HashMap::new();
        for (name, schema) in named.into_iter().flatten() {
            for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
                if let Some(parent) = followed(part, references).filter(|_| reference(part).is_some()) {
                    children.entry(std::ptr::from_ref(parent)).or_default().push(Heir { name, schema });
                }
            }
        }
        let mut found = Self::default();
        for (name, schema) in named.into_iter().flatten() {
            let Some(members) = schema.as_object().filter(|members| members.contains_key("discriminator")) else {
                continue;
            };
            let heirs = descendants(members, &children);
            if heirs.is_empty() || members.contains_key("oneOf") || members.contains_key("anyOf") {
                continue;
            }
            found.heirs.extend(heirs.iter().filter_map(|heir| Some(std::ptr::from_ref(heir.schema.as_object()?))));
            found.bases.insert(std::ptr::from_ref(members), Base { name, schema, heirs });
        }
        found
    }

    /// Whether the object is a schema that inherits from a base.
    pub(super) fn is_heir(&self, members: &Map<String, Value>) -> bool {
        self.heirs.contains(&std::ptr::from_ref(members))
    }

    /// The base that a part of `allOf` refers to.
    pub(super) fn base_of_part(&self, part: &Value, references: &References<'d>) -> Option<&'d Value> {
        reference(part)?;
        let parent = followed(part, references)?;
        self.bases.get(&std::ptr::from_ref(parent)).map(|base| base.schema)
    }
}

fn followed<'d>(part: &Value, references: &References<'d>) -> Option<&'d Map<String, Value>> {
    references.at(reference(part)?).and_then(|target| references.follow(target)).ok()?.as_object()
}

fn descendants<'d>(base: &Map<String, Value>, children: &HashMap<Address, Vec<Heir<'d>>>) -> Vec<Heir<'d>> {
    let mut found: Vec<Heir<'d>> = Vec::new();
    let mut seen = HashSet::from([std::ptr::from_ref(base)]);
    let mut pending = vec![std::ptr::from_ref(base)];
    while let Some(parent) = pending.pop() {
        for heir in children.get(&parent).into_iter().flatten() {
            let Some(members) = heir.schema.as_object() else { continue };
            if seen.insert(std::ptr::from_ref(members)) {
                found.push(*heir);
                pending.push(std::ptr::from_ref(members));
            }
        }
    }
    found
}

/// The property that selects, and the document's mapping of its values.
struct Discriminator<'s> {
    property: &'s str,
    mapping: Option<&'s Map<String, Value>>,
}

impl<'s> Discriminator<'s> {
    fn of(members: &'s Map<String, Value>) -> Option<Self> {
        let written = members.get("discriminator")?;
        // In 2.0 it is only the name.
        let property = written.get("propertyName").unwrap_or(written).as_str()?;
        Some(Self { property, mapping: written.get("mapping").and_then(Value::as_object) })
    }

    /// The values that the mapping has for an alternative: a reference, or the name of a schema.
    fn values_of(&self, alternative: &Value, references: &References<'_>) -> Vec<&'s str> {
        let name = reference(alternative).map(|written| written.rsplit('/').next().unwrap_or(written));
        let target = |written: &str| references.at(written).and_then(|target| references.follow(target)).ok();
        let own = reference(alternative).and_then(target);
        let leads_here = |written: &str| {
            name == Some(written) || target(written).zip(own).is_some_and(|(one, other)| std::ptr::eq(one, other))
        };
        let mapping = self.mapping.into_iter().flatten();
        mapping.filter(|(_, to)| to.as_str().is_some_and(leads_here)).map(|(value, _)| value.as_str()).collect()
    }
}

impl<'d> Lowering<'d> {
    /// Writes the discriminator of a schema into its lowered form: which values select which alternative. A
    /// discriminator selects, so several matches are not an error.
    pub(super) fn discriminate(
        &mut self,
        members: &Map<String, Value>,
        site: Site<'_, 'd>,
        lowered: &mut Map<String, Value>,
    ) {
        let Some(discriminator) = Discriminator::of(members) else { return };
        if !lowered.contains_key("anyOf")
            && let Some(alternatives) = lowered.shift_remove("oneOf")
        {
            lowered.insert("anyOf".into(), alternatives);
        }
        let mut values = Vec::new();
        if site.direction.is_request() {
            let written = members.get("anyOf").or_else(|| members.get("oneOf")).and_then(Value::as_array);
            if let (Some(written), Some(Value::Array(lowered))) = (written, lowered.get_mut("anyOf")) {
                for (alternative, lowered) in written.iter().zip(lowered) {
                    let mapped = discriminator.values_of(alternative, site.references);
                    let selecting = selecting(&mapped, alternative, discriminator.property, site.references);
                    values.extend(selecting.iter().cloned());
                    if !selecting.is_empty() {
                        *lowered = json!({"allOf": [lowered.take(), with_values(discriminator.property, &selecting)]});
                    }
                }
            }
        }
        describe(discriminator.property, &values, lowered);
    }

    /// A base with its heirs as alternatives; `None` for any other schema.
    pub(super) fn with_heirs(
        &mut self,
        members: &Map<String, Value>,
        site: Site<'_, 'd>,
    ) -> Option<Map<String, Value>> {
        if !site.direction.is_request() {
            return None;
        }
        let inheritance = self.inheritance(site.references);
        let base = inheritance.bases.get(&std::ptr::from_ref(members))?;
        let (name, schema, heirs) = (base.name, base.schema, base.heirs.clone());
        let discriminator = Discriminator::of(members)?;
        if heirs.len() > MAX_HEIRS {
            self.report_loss(
                site,
                format!("{} schemas inherit from {name}; they are not offered one by one", heirs.len()),
            );
            return None;
        }
        let property = discriminator.property;
        let mut own = json!({"$ref": self.define_bare(name, schema, site.direction)});
        let mapped = discriminator.values_of(&by_name(name), site.references);
        if discriminator.mapping.is_some() {
            let own_values = if mapped.is_empty() { vec![name] } else { mapped };
            let selecting = selecting(&own_values, schema, property, site.references);
            if !selecting.is_empty() {
                own = json!({"allOf": [own, with_values(property, &selecting)]});
            }
        }
        let mut alternatives = vec![own];
        let mut values = Vec::new();
        for heir in heirs {
            let mapped = discriminator.values_of(&by_name(heir.name), site.references);
            let vendor = heir.schema.get("x-ms-discriminator-value").and_then(Value::as_str);
            let own_values = if mapped.is_empty() { vec![vendor.unwrap_or(heir.name)] } else { mapped };
            let selecting = selecting(&own_values, heir.schema, property, site.references);
            let reference = format!("#/$defs/{}", self.define(heir.name, heir.schema, site.direction));
            alternatives.push(match selecting.is_empty() {
                true => json!({"$ref": reference}),
                false => json!({"allOf": [{"$ref": reference}, with_values(property, &selecting)]}),
            });
            values.extend(selecting);
        }
        let mut whole = Map::new();
        let description = members.get("description").filter(|description| description.is_string());
        whole.extend(description.map(|description| ("description".to_owned(), description.clone())));
        whole.insert("anyOf".into(), alternatives.into());
        describe(property, &values, &mut whole);
        Some(whole)
    }
}

/// A stand-in for a reference to a schema by its name.
fn by_name(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", name.replace('~', "~0").replace('/', "~1"))})
}

fn with_values(property: &str, values: &[Value]) -> Value {
    json!({"properties": {property: {"enum": values}}})
}

/// The values that the alternative itself allows; all of them where it says nothing, and none where it says something
/// else: then the document contradicts itself.
fn selecting(values: &[&str], alternative: &Value, property: &str, references: &References<'_>) -> Vec<Value> {
    let own = own_values(alternative, property, references, 0);
    let is_own = |value: &&&str| own.as_ref().is_none_or(|own| own.iter().any(|own| own == **value));
    values.iter().filter(is_own).map(|value| Value::from(*value)).collect()
}

/// `enum` or `const` of the property.
fn own_values(schema: &Value, property: &str, references: &References<'_>, depth: usize) -> Option<Vec<Value>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let schema = references.target(schema).ok()?;
    let declared = schema.get("properties").and_then(|properties| properties.get(property));
    let declared = declared.and_then(|declared| references.target(declared).ok());
    let values = declared.and_then(|declared| match (declared.get("enum"), declared.get("const")) {
        (Some(Value::Array(values)), _) => Some(values.clone()),
        (_, Some(value)) => Some(vec![value.clone()]),
        _ => None,
    });
    values.or_else(|| {
        let parts = schema.get("allOf")?.as_array()?;
        parts.iter().find_map(|part| own_values(part, property, references, depth + 1))
    })
}

/// The description names the property, and the values where they are known.
fn describe(property: &str, values: &[Value], lowered: &mut Map<String, Value>) {
    let mut values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
    values.dedup();
    let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
    let note = format!("`{property}` selects the alternative{values}.");
    let described = match lowered.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description}\n{note}"),
        None => note,
    };
    lowered.insert("description".into(), described.into());
}
