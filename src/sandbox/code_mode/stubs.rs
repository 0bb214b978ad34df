//! The schemas of a tool as Python: the signature of its function, and a `TypedDict` for each object in its arguments and result.

use std::collections::HashSet;

use serde_json::Value;

use super::for_models::{is_identifier, python_function};

/// Parameters that a signature shows, and members that a class does.
const MAX_PARAMETERS: usize = 20;
/// Values of an enumeration.
const MAX_LITERALS: usize = 24;
/// Types within types, and references that follow each other.
const MAX_DEPTH: usize = 8;
/// Schemas that are read for one stub: a schema from outside may refer to itself in many places.
const MAX_SCHEMAS: usize = 2_000;
/// Maximum bytes of a value, and of a type.
const MAX_VALUE: usize = 60;
const MAX_TYPE: usize = 1_000;
/// Parts (`allOf`) of an object, and its members that are read.
const MAX_PARTS: usize = 50;
const MAX_MEMBERS: usize = 2_000;
/// Classes of one stub, which are more than its text has room for.
const MAX_FOUND: usize = 100;
/// Maximum bytes of the name of a class.
const MAX_NAME: usize = 60;
/// Maximum bytes of the classes. Those that are found first, near the arguments, come first.
const MAX_CLASSES: usize = 2_000;

/// How a program calls a tool, and the classes that this names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stub {
    pub(super) call: String,
    /// Empty if there are none.
    pub(super) types: String,
}

/// The type of everything.
const ANY: &str = "Any";
/// Names that no class may have.
const TYPES: [&str; 7] = [ANY, "False", "Literal", "None", "NotRequired", "True", "TypedDict"];

/// A schema in its document.
#[derive(Debug, Clone, Copy)]
struct Place<'s> {
    root: &'s Value,
    schema: &'s Value,
}

#[derive(Debug)]
struct Classes<'s> {
    /// Schemas that may still be read.
    left: usize,
    /// With their names, in the order in which they were found.
    found: Vec<(String, Place<'s>)>,
}

/// A member of an object.
struct Member<'s> {
    name: &'s str,
    place: Place<'s>,
    is_required: bool,
}

pub(super) fn stub(name: &str, input: &Value, output: Option<&Value>) -> Stub {
    let mut classes = Classes { left: MAX_SCHEMAS, found: Vec::new() };
    let mut members = Place { root: input, schema: input }.members();
    members.sort_by_key(|member| !member.is_required);
    let shown = members.iter().take(MAX_PARAMETERS).map(|member| classes.parameter(member));
    let mut parameters: Vec<_> = shown.collect();
    if members.len() > MAX_PARAMETERS {
        parameters.push("…".to_owned());
    }
    let result = output.map(|output| classes.kind(Place { root: output, schema: output }, "Result", 0));
    let result = result.filter(|result| result != ANY).map_or_else(String::new, |result| format!(" -> {result}"));
    let call = format!("{}({}){result}", python_function(name), parameters.join(", "));
    Stub { call, types: classes.text(name) }
}

impl<'s> Classes<'s> {
    fn parameter(&mut self, member: &Member<'s>) -> String {
        let Member { name, place, is_required } = member;
        let shown = if is_identifier(name) { (*name).to_owned() } else { format!("**{{{name:?}: …}}") };
        let shown = if shown.len() > MAX_TYPE { "…".to_owned() } else { shown };
        let default = match default_of(*place) {
            Some(default) => format!(" = {default}"),
            None if *is_required => String::new(),
            None => " = ...".to_owned(),
        };
        format!("{shown}: {}{default}", self.kind(*place, name, 0))
    }

    /// The type of a schema. `hint` is the beginning of the name of its class.
    fn kind(&mut self, place: Place<'s>, hint: &str, depth: usize) -> String {
        self.left = self.left.saturating_sub(1);
        let kind = if depth > MAX_DEPTH || self.left == 0 { ANY.to_owned() } else { self.kind_of(place, hint, depth) };
        if kind.len() > MAX_TYPE { ANY.to_owned() } else { kind }
    }

    fn kind_of(&mut self, place: Place<'s>, hint: &str, depth: usize) -> String {
        let (place, referred) = place.resolved();
        let (schema, hint) = (place.schema, referred.unwrap_or(hint));
        if let Some(values) = values_of(schema) {
            return literal(&values);
        }
        if !schema["type"].is_array() && place.is_object() {
            return self.class(place, hint);
        }
        let forms = ["anyOf", "oneOf"].into_iter().find_map(|keyword| schema[keyword].as_array());
        if let Some(forms) = forms {
            return union(forms.iter().map(|schema| self.kind(Place { schema, ..place }, hint, depth + 1)).collect());
        }
        match &schema["type"] {
            Value::Array(kinds) => {
                union(kinds.iter().map(|kind| self.named(kind.as_str(), place, hint, depth)).collect())
            }
            kind => self.named(kind.as_str(), place, hint, depth),
        }
    }

    fn named(&mut self, kind: Option<&str>, place: Place<'s>, hint: &str, depth: usize) -> String {
        let within = |schema| Place { schema, ..place };
        match kind {
            Some("string") => "str".to_owned(),
            Some("integer") => "int".to_owned(),
            Some("number") => "float".to_owned(),
            Some("boolean") => "bool".to_owned(),
            Some("null") => "None".to_owned(),
            Some("array") if place.schema["items"].is_object() => {
                format!("list[{}]", self.kind(within(&place.schema["items"]), hint, depth + 1))
            }
            Some("array") => "list".to_owned(),
            Some("object") if place.is_object() => self.class(place, hint),
            Some("object") if place.schema["additionalProperties"].is_object() => {
                format!("dict[str, {}]", self.kind(within(&place.schema["additionalProperties"]), hint, depth + 1))
            }
            Some("object") => "dict".to_owned(),
            _ => ANY.to_owned(),
        }
    }

    /// The name of the class of an object.
    fn class(&mut self, place: Place<'s>, hint: &str) -> String {
        if let Some((name, _)) = self.found.iter().find(|(_, found)| std::ptr::eq(found.schema, place.schema)) {
            return name.clone();
        }
        if self.found.len() == MAX_FOUND {
            return "dict".to_owned();
        }
        let name = class_name(hint);
        let is_free = |name: &String| !self.found.iter().any(|(found, _)| found == name);
        let numbered = (2..).map(|number| format!("{name}{number}"));
        let name = std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or_default();
        self.found.push((name.clone(), place));
        name
    }

    /// The classes, with those for their members.
    fn text(mut self, tool: &str) -> String {
        let (mut text, mut at) = (String::new(), 0);
        while let Some((name, place)) = self.found.get(at).cloned() {
            let mut class = format!("class {name}(TypedDict):\n");
            let members = place.members();
            for member in members.iter().take(MAX_PARAMETERS) {
                class.push_str(&self.member(member));
            }
            if members.len() > MAX_PARAMETERS {
                class.push_str("    # and more\n");
            }
            if text.len() + class.len() > MAX_CLASSES {
                text.push_str(&format!("# tools.schema({tool:?}) has the others"));
                break;
            }
            text.push_str(&class);
            at += 1;
        }
        text.trim_end().to_owned()
    }

    fn member(&mut self, member: &Member<'s>) -> String {
        let Member { name, place, is_required } = member;
        let shown = if is_identifier(name) { (*name).to_owned() } else { format!("{name:?}") };
        let kind = self.kind(*place, name, 0);
        let kind = if *is_required { kind } else { format!("NotRequired[{kind}]") };
        let default = default_of(*place).map_or_else(String::new, |default| format!("  # {default} by default"));
        format!("    {shown}: {kind}{default}\n")
    }
}

impl<'s> Place<'s> {
    /// The schema that it refers to, with the name of that.
    fn resolved(self) -> (Self, Option<&'s str>) {
        let (mut place, mut name) = (self, None);
        for _ in 0..MAX_DEPTH {
            // Keywords beside a reference or a single part only describe it.
            let single = place.schema["allOf"].as_array().filter(|parts| parts.len() == 1);
            if let Some(pointer) = place.schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
                let Some(schema) = self.root.pointer(pointer) else { break };
                (place.schema, name) = (schema, pointer.rsplit('/').next());
            } else if let Some(parts) = single.filter(|_| !place.schema["properties"].is_object()) {
                place.schema = &parts[0];
            } else {
                break;
            }
        }
        (place, name)
    }

    fn is_object(self) -> bool {
        self.has_members(&mut { MAX_PARTS })
    }

    fn has_members(self, parts_left: &mut usize) -> bool {
        let (place, _) = self.resolved();
        let mut parts = place.schema["allOf"].as_array().into_iter().flatten();
        place.schema["properties"].as_object().is_some_and(|members| !members.is_empty())
            || parts.any(|schema| match parts_left.checked_sub(1) {
                Some(left) => {
                    *parts_left = left;
                    Place { schema, ..place }.has_members(parts_left)
                }
                None => false,
            })
    }

    /// The members of an object and of all its parts.
    fn members(self) -> Vec<Member<'s>> {
        let mut members = Vec::<Member<'s>>::new();
        self.add_members(&mut members, &mut HashSet::new(), &mut { MAX_PARTS });
        members
    }

    fn add_members(self, members: &mut Vec<Member<'s>>, names: &mut HashSet<&'s str>, parts_left: &mut usize) {
        let (place, _) = self.resolved();
        let required = place.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let required: HashSet<_> = required.take(MAX_MEMBERS).collect();
        for (name, schema) in place.schema["properties"].as_object().into_iter().flatten().take(MAX_MEMBERS) {
            if members.len() < MAX_MEMBERS && names.insert(name) {
                members.push(Member { name, place: Place { schema, ..place }, is_required: false });
            }
        }
        for schema in place.schema["allOf"].as_array().into_iter().flatten() {
            if let Some(left) = parts_left.checked_sub(1) {
                *parts_left = left;
                Place { schema, ..place }.add_members(members, names, parts_left);
            }
        }
        // A part may require members of another one.
        members.iter_mut().filter(|member| required.contains(member.name)).for_each(|member| member.is_required = true);
    }
}

fn values_of(schema: &Value) -> Option<Vec<&Value>> {
    match schema.get("const") {
        Some(value) => Some(vec![value]),
        // One more than is shown.
        None => {
            let values = schema["enum"].as_array().filter(|values| !values.is_empty());
            values.map(|values| values.iter().take(MAX_LITERALS + 1).collect())
        }
    }
}

fn literal(values: &[&Value]) -> String {
    let shown = values.iter().take(MAX_LITERALS).map(|value| python(value).unwrap_or_else(|| "…".to_owned()));
    let mut shown: Vec<_> = shown.collect();
    if values.len() > MAX_LITERALS {
        shown.push("…".to_owned());
    }
    format!("Literal[{}]", shown.join(", "))
}

fn union(kinds: Vec<String>) -> String {
    let mut different = Vec::<String>::new();
    for kind in kinds {
        if !different.contains(&kind) {
            different.push(kind);
        }
    }
    if different.is_empty() || different.iter().any(|kind| kind == ANY) {
        ANY.to_owned()
    } else {
        different.join(" | ")
    }
}

fn default_of(place: Place<'_>) -> Option<String> {
    let default = place.schema.get("default").or_else(|| place.resolved().0.schema.get("default"))?;
    python(default)
}

/// A value as Python writes it; none where it is longer than is shown.
fn python(value: &Value) -> Option<String> {
    let is_large = match value {
        Value::String(text) => text.len() > MAX_VALUE,
        Value::Array(items) => items.len() > MAX_VALUE,
        Value::Object(members) => members.len() > MAX_VALUE || members.keys().any(|name| name.len() > MAX_VALUE),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    if is_large {
        return None;
    }
    let text = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Option<Vec<_>>>()?.join(", ")),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| Some(format!("{name:?}: {}", python(value)?)));
            format!("{{{}}}", members.collect::<Option<Vec<_>>>()?.join(", "))
        }
        other => other.to_string(),
    };
    Some(text).filter(|text| text.len() <= MAX_VALUE)
}

/// `order_lines` is `OrderLines`.
fn class_name(hint: &str) -> String {
    let words = hint.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name: String =
        words.take(MAX_NAME).flat_map(|word| [word[..1].to_ascii_uppercase(), word[1..].to_owned()]).collect();
    name.truncate(MAX_NAME);
    let is_free = name.starts_with(|first: char| first.is_ascii_alphabetic()) && !TYPES.contains(&&*name);
    if is_free { name } else { format!("Object{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_of_objects_enumerations_and_defaults_are_shown() {
        let input = json!({
            "type": "object",
            "properties": {
                "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                "customer": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
                "status": {"anyOf": [{"enum": ["open", "closed"]}, {"type": "null"}], "default": null},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                "gift": {"type": ["boolean", "null"], "default": true},
                "other": {"allOf": [{"$ref": "#/$defs/line"}, {"properties": {"note": {}}, "required": ["qty"]}]},
            },
            "required": ["lines", "customer"],
            "$defs": {"line": {"type": "object", "properties": {
                "sku": {"type": "string"},
                "qty": {"type": "integer", "default": 1},
                "unit-code": {"enum": ["kg", "pc"], "default": "pc"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            }, "required": ["sku"]}},
        });
        let output = json!({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}});
        let Stub { call, types } = stub("shop__create", &input, Some(&output));
        let expected = "tools.shop__create(lines: list[Line], customer: Customer, status: Literal[\"open\", \"closed\"] | None = None, \
                        tags: dict[str, str] = ..., gift: bool | None = True, other: Other = ...) -> list[Result]";
        assert_eq!(call, expected);
        for class in [
            "class Customer(TypedDict):\n    id: int\n",
            "class Line(TypedDict):\n",
            "    sku: str\n",
            "    qty: NotRequired[int]  # 1 by default\n",
            "    \"unit-code\": NotRequired[Literal[\"kg\", \"pc\"]]  # \"pc\" by default\n",
            "    parts: NotRequired[list[Line]]\n",
            "class Other(TypedDict):\n",
            "    qty: int  # 1 by default\n",
            "    note: NotRequired[Any]\n",
            "class Result(TypedDict):\n    id: NotRequired[str]",
        ] {
            assert!(types.contains(class), "{class}\n{types}");
        }
        assert_eq!(types.matches("class ").count(), 4, "{types}");
    }

    #[test]
    fn large_and_hostile_schemas_have_small_stubs() {
        let wide = |depth: usize| {
            (0..depth).fold(json!({"type": "string"}), |inner, _| {
                let members = (0..5).map(|n| (format!("member_{n}"), inner.clone()));
                json!({"type": "object", "properties": members.collect::<serde_json::Map<_, _>>()})
            })
        };
        let endless =
            json!({"properties": {"a": {"$ref": "#/properties/a"}, "b": {"allOf": [{"$ref": "#/properties/b"}]}}});
        let nested = (0..40).fold(json!({}), |inner, _| json!({"type": "array", "items": inner}));
        let many = json!({"properties": {"x": {"enum": (0..500).collect::<Vec<_>>()}}});
        for schema in
            [wide(4), endless, json!({"properties": {"x": nested}}), many, json!({"properties": 7}), json!(true)]
        {
            let Stub { call, types } = stub("t", &schema, Some(&schema));
            assert!(call.len() < 1_000 && types.len() < 2 * MAX_CLASSES, "{call}\n{types}");
        }
        // Many wide objects, with long names that are the same at their beginning and large values.
        let long = "n".repeat(100_000);
        let forms = (0..3_000).map(|n| json!({"properties": {"x": {"default": [long.as_str()], "const": n}}}));
        let many = forms.collect::<Vec<_>>();
        let members = (0..20_000).map(|n| (format!("m{n}"), json!({"$ref": "#/$defs/wide"})));
        let members = members.collect::<serde_json::Map<_, _>>();
        let required: Vec<_> = members.keys().cloned().collect();
        let mut properties = serde_json::Map::from_iter([(long.clone(), json!({"anyOf": many}))]);
        properties.insert("odd name".repeat(10_000), json!({"enum": [long.as_str(), {"a": long.as_str()}]}));
        properties.insert("w".into(), json!({"allOf": vec![json!({"$ref": "#/$defs/wide"}); 60]}));
        let defs = json!({"wide": {"properties": members, "required": required}});
        let Stub { call, types } = stub("t", &json!({"properties": properties, "$defs": defs}), None);
        assert!(call.len() < 3_000 && types.len() < 2 * MAX_CLASSES, "{}", call.len());
        let Stub { types, .. } = stub("t", &wide(4), None);
        assert!(types.ends_with("# tools.schema(\"t\") has the others"), "{types}");
        let same = json!({"properties": {"a": {"properties": {"x": {}}}, "b": {"properties": {"a": {"properties": {"y": {}}}}}}});
        let Stub { call, types } = stub("t", &same, None);
        assert!(call.contains("a: A = ...") && types.contains("a: NotRequired[A2]"), "{call}\n{types}");
    }
}
