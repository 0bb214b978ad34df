//! Requests judged by the document as it was written, read here anew: nothing of the product has a part in it.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, header};
use jsonschema::{Draft, Registry, Validator};
use serde_json::{Map, Value, json};

use super::wire::{self, Form};

/// The address of the document among the schemas.
const DOCUMENT: &str = "urn:document";

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// A document, its schemas converted to JSON Schema 2020-12.
pub(crate) struct Original {
    document: &'static Value,
    registry: &'static Registry<'static>,
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Recorded<'a> {
    pub(crate) method: &'a Method,
    /// Still encoded, below the server's own path.
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// One operation of the document.
#[derive(Clone, Copy)]
struct Operation<'d> {
    template: &'d str,
    item: &'d Value,
    members: &'d Value,
}

impl Original {
    /// Kept until the tests end: the validators point into it.
    pub(crate) fn new(mut document: Value) -> Self {
        let copy = document.clone();
        standardise(&mut document, &copy);
        let document: &'static Value = Box::leak(Box::new(document));
        let registry = Registry::new().draft(Draft::Draft202012).add(DOCUMENT, document).unwrap().prepare().unwrap();
        Self { document, registry: Box::leak(Box::new(registry)) }
    }

    /// `METHOD path` of every operation.
    pub(crate) fn operations(&self) -> Vec<String> {
        let paths = self.document["paths"].as_object().unwrap();
        let methods = paths.iter().flat_map(|(path, item)| {
            let item = self.followed(item);
            METHODS.iter().filter(|method| item.get(**method).is_some()).map(move |method| key(method, path))
        });
        methods.collect()
    }

    /// The operation that a request is for.
    ///
    /// # Errors
    /// All that the document does not allow, the operation before it.
    pub(crate) fn check(&self, recorded: &Recorded<'_>) -> Result<String, String> {
        let (operation, in_path) =
            self.operation(recorded).ok_or(format!("no {} {}", recorded.method, recorded.path))?;
        let key = key(recorded.method.as_str(), operation.template);
        let mut errors = Vec::new();
        self.check_parameters(operation, recorded, &in_path, &mut errors);
        if let Err(error) = self.check_body(operation, recorded) {
            errors.push(error);
        }
        if errors.is_empty() { Ok(key) } else { Err(format!("{key}: {}", errors.join("; "))) }
    }

    /// Of the paths that fit the one with the most that is no template.
    fn operation(&self, recorded: &Recorded<'_>) -> Option<(Operation<'_>, BTreeMap<&str, String>)> {
        let method = recorded.method.as_str().to_ascii_lowercase();
        let fitting = self.document["paths"].as_object()?.iter().filter_map(|(template, item)| {
            let item = self.followed(item);
            let members = item.get(&method)?;
            let mut found = BTreeMap::new();
            matches(template, recorded.path, &mut found).then_some((Operation { template, item, members }, found))
        });
        let literal =
            |template: &str| template.split('{').map(|part| part.rsplit('}').next().unwrap().len()).sum::<usize>();
        fitting.max_by_key(|(operation, _)| literal(operation.template))
    }

    fn parameters<'d>(&'d self, operation: Operation<'d>) -> Vec<&'d Value> {
        let mut all: Vec<&Value> = Vec::new();
        for list in [operation.item.get("parameters"), operation.members.get("parameters")].into_iter().flatten() {
            for parameter in list.as_array().into_iter().flatten().map(|one| self.followed(one)) {
                all.retain(|other| (&other["name"], &other["in"]) != (&parameter["name"], &parameter["in"]));
                all.push(parameter);
            }
        }
        all
    }

    fn check_parameters(
        &self,
        operation: Operation<'_>,
        recorded: &Recorded<'_>,
        in_path: &BTreeMap<&str, String>,
        errors: &mut Vec<String>,
    ) {
        let mut query = match wire::pairs(recorded.query) {
            Ok(pairs) => pairs,
            Err(error) => return errors.push(error),
        };
        let mut cookies = cookies(recorded.headers);
        let mut parameters = self.parameters(operation);
        // An exploded object of any members takes what no other parameter takes.
        parameters.sort_by_key(|one| self.kind(&schema(one)) == "object");
        for parameter in parameters {
            let name = parameter["name"].as_str().unwrap();
            let schema = schema(parameter);
            let found = match parameter["in"].as_str() {
                Some("path") => in_path.get(name).map(|text| self.in_path(parameter, &schema, text)).transpose(),
                Some("query") => self.in_pairs(parameter, &schema, &mut query),
                Some("cookie") => self.in_pairs(parameter, &schema, &mut cookies),
                Some("header") if is_ignored(name) => continue,
                Some("header") => self.in_header(parameter, &schema, recorded.headers),
                // Of Swagger 2.0's body, checked with it.
                _ => continue,
            };
            match found {
                Ok(Some(value)) => errors.extend(self.misfit(name, &schema, value).err()),
                Ok(None) if parameter.get("required") == Some(&json!(true)) => {
                    errors.push(format!("`{name}` is missing"));
                }
                Ok(None) => {}
                Err(error) => errors.push(format!("`{name}`: {error}")),
            }
        }
        errors.extend(query.iter().map(|(name, _)| format!("nobody asks for `{name}` in the query")));
    }

    fn in_path(&self, parameter: &Value, schema: &Value, text: &str) -> Result<Value, String> {
        if is_content(parameter) {
            return read_json(&wire::decoded(text)?);
        }
        wire::path(parameter["name"].as_str().unwrap(), text, form(parameter, "simple"), self.kind(schema))
    }

    fn in_pairs(
        &self,
        parameter: &Value,
        schema: &Value,
        pairs: &mut Vec<(String, String)>,
    ) -> Result<Option<Value>, String> {
        let name = parameter["name"].as_str().unwrap();
        if is_content(parameter) {
            let form = Form { style: "form", explode: false };
            let text = wire::take(name, form, "string", None, pairs)?;
            return text.map(|text| read_json(text.as_str().unwrap())).transpose();
        }
        wire::take(name, form(parameter, "form"), self.kind(schema), self.members(schema).as_deref(), pairs)
    }

    fn in_header(&self, parameter: &Value, schema: &Value, headers: &HeaderMap) -> Result<Option<Value>, String> {
        let Some(value) = headers.get(parameter["name"].as_str().unwrap()) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes()).map_err(|error| error.to_string())?;
        if is_content(parameter) {
            return read_json(text).map(Some);
        }
        let verbatim = |text: &str| Ok(text.to_owned());
        wire::simple(text, ",", form(parameter, "simple").explode, self.kind(schema), verbatim).map(Some)
    }

    fn check_body(&self, operation: Operation<'_>, recorded: &Recorded<'_>) -> Result<(), String> {
        let Some(body) = self.body(operation) else {
            return if recorded.body.is_empty() { Ok(()) } else { Err("nobody asks for a body".into()) };
        };
        let content_type = recorded.headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap());
        let Some(content_type) = content_type else {
            let is_needed = body.get("required") == Some(&json!(true));
            return if is_needed { Err("the body is missing".into()) } else { Ok(()) };
        };
        let essence = content_type.split(';').next().unwrap().trim().to_ascii_lowercase();
        let offered = body["content"].as_object().unwrap();
        let (_, described) = offered
            .iter()
            .find(|(name, _)| covers(name, &essence))
            .ok_or(format!("{essence} is not among the body's media types"))?;
        let any = json!({});
        let schema = described.get("schema").unwrap_or(&any);
        let text = || std::str::from_utf8(recorded.body).map_err(|error| error.to_string());
        if essence.ends_with("json") {
            return self.valid("the body", schema, &read_json(text()?)?);
        }
        match essence.as_str() {
            "application/x-www-form-urlencoded" => self.check_form(described, schema, wire::pairs(text()?)?),
            "multipart/form-data" => self.check_parts(schema, &wire::parts(content_type, recorded.body)?),
            // Text and bytes are what they are.
            _ => Ok(()),
        }
    }

    fn check_form(&self, described: &Value, schema: &Value, mut pairs: Vec<(String, String)>) -> Result<(), String> {
        let mut members = Map::new();
        for (name, property) in self.properties(schema) {
            let encoding = &described["encoding"][&name];
            let found = if encoding["contentType"].as_str().is_some_and(|name| name.ends_with("json")) {
                let text = wire::take(&name, Form { style: "form", explode: false }, "string", None, &mut pairs)?;
                text.map(|text| read_json(text.as_str().unwrap())).transpose()?
            } else {
                let listed = self.members(&property);
                wire::take(&name, form(encoding, "form"), self.kind(&property), listed.as_deref(), &mut pairs)?
            };
            members.extend(found.map(|value| (name, value)));
        }
        if !pairs.is_empty() && self.is_closed(schema) {
            return Err(format!("nobody asks for {pairs:?} in the form"));
        }
        for (name, value) in pairs {
            members.insert(name, wire::decoded(&value.replace('+', " "))?.into());
        }
        let typed = self.typed(members.into(), schema);
        self.valid("the form", schema, &typed)
    }

    fn check_parts(&self, schema: &Value, parts: &[wire::Part]) -> Result<(), String> {
        let properties: BTreeMap<_, _> = self.properties(schema).into_iter().collect();
        let mut members = Map::new();
        for part in parts {
            let any = json!({});
            let property = properties.get(&part.name).unwrap_or(&any);
            let is_list = self.kind(property) == "array";
            let item = if is_list { self.followed(property).get("items").unwrap_or(&any) } else { property };
            let is_binary = self.followed(item).get("format") == Some(&json!("binary"));
            if is_binary && !part.is_file {
                return Err(format!("`{}` has to be a file", part.name));
            }
            let value = if part.is_json { read_json(&part.text)? } else { self.typed(part.text.clone().into(), item) };
            if is_list {
                let list = members.entry(part.name.clone()).or_insert_with(|| json!([]));
                list.as_array_mut().unwrap().push(value);
            } else if members.insert(part.name.clone(), value).is_some() {
                return Err(format!("`{}` has two parts", part.name));
            }
        }
        self.valid("the parts", schema, &members.into())
    }

    /// `requestBody`, or what Swagger 2.0 has in its place.
    fn body(&self, operation: Operation<'_>) -> Option<Value> {
        if let Some(body) = operation.members.get("requestBody") {
            return Some(self.followed(body).clone());
        }
        let parameters = self.parameters(operation);
        let consumes = operation.members.get("consumes").or_else(|| self.document.get("consumes"));
        if let Some(body) = parameters.iter().find(|parameter| parameter["in"] == "body") {
            let json = json!(["application/json"]);
            let names = consumes.unwrap_or(&json).as_array()?.iter().filter_map(Value::as_str);
            let content: Map<_, _> = names.map(|name| (name.to_owned(), json!({"schema": body["schema"]}))).collect();
            return Some(json!({"required": body["required"], "content": content}));
        }
        let in_form: Vec<_> = parameters.into_iter().filter(|parameter| parameter["in"] == "formData").collect();
        if in_form.is_empty() {
            return None;
        }
        let name = |one: &&Value| one["name"].as_str().unwrap().to_owned();
        let required: Vec<_> = in_form.iter().filter(|one| one["required"] == true).map(name).collect();
        let properties: Map<_, _> = in_form.iter().map(|one| (name(one), schema(one))).collect();
        let encoding: Map<_, _> = in_form.iter().map(|one| (name(one), (*one).clone())).collect();
        let described = json!({
            "schema": {"type": "object", "properties": properties, "required": required}, "encoding": encoding
        });
        let content = json!({"application/x-www-form-urlencoded": described, "multipart/form-data": described});
        Some(json!({"required": !required.is_empty(), "content": content}))
    }

    fn misfit(&self, name: &str, schema: &Value, value: Value) -> Result<(), String> {
        let typed = self.typed(value, schema);
        self.valid(&format!("`{name}`"), schema, &typed)
    }

    fn valid(&self, subject: &str, schema: &Value, value: &Value) -> Result<(), String> {
        let validator = self.validator(schema)?;
        validator.validate(value).map_err(|error| {
            let shown: String = error.to_string().chars().take(200).collect();
            format!("{subject} at {:?}: {shown}", error.instance_path().as_str())
        })
    }

    fn validator(&self, schema: &Value) -> Result<Validator, String> {
        let mut options = jsonschema::options().with_draft(Draft::Draft202012).with_registry(self.registry);
        options = options.should_validate_formats(false);
        options.build(schema).map_err(|error| format!("the document's schema is none: {error}"))
    }

    /// Texts as the values that the schema has in their place.
    fn typed(&self, value: Value, schema: &Value) -> Value {
        let schema = self.followed(schema);
        let is_valid = |value: &Value| self.validator(schema).is_ok_and(|validator| validator.is_valid(value));
        let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|keyword| schema.get(keyword)?.as_array());
        for part in parts.flatten() {
            let typed = self.typed(value.clone(), part);
            if typed != value && is_valid(&typed) {
                return typed;
            }
        }
        match value {
            Value::String(text) => {
                let whole = Value::String(text.clone());
                if is_valid(&whole) {
                    return whole;
                }
                let null = text.is_empty().then_some(Value::Null);
                let read = serde_json::from_str(&text).ok().or(null).filter(|value| is_valid(value));
                read.unwrap_or(whole)
            }
            Value::Array(items) => {
                let any = json!({});
                let each = schema.get("items").unwrap_or(&any);
                let listed = items.iter().map(|item| self.typed(item.clone(), each)).collect();
                match items.as_slice() {
                    // A list of one is written as that one alone, which the schema may allow instead.
                    [one] if !is_valid(&listed) => self.typed(one.clone(), schema),
                    _ => listed,
                }
            }
            Value::Object(members) => {
                let any = json!({});
                let property = |name: &str| schema.get("properties").and_then(|properties| properties.get(name));
                let other = schema.get("additionalProperties").unwrap_or(&any);
                let typed = members.into_iter().map(|(name, value)| {
                    let typed = self.typed(value, property(&name).unwrap_or(other));
                    (name, typed)
                });
                Value::Object(typed.collect())
            }
            other => other,
        }
    }

    /// The type that a value is written as.
    fn kind<'s>(&'s self, schema: &'s Value) -> &'s str {
        let schema = self.followed(schema);
        let reported = match schema.get("type") {
            Some(Value::String(kind)) => Some(kind.as_str()),
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
            _ => None,
        };
        let parts = || ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|keyword| schema.get(keyword)?.as_array());
        let nested = || parts().flatten().map(|part| self.kind(part)).find(|kind| matches!(*kind, "array" | "object"));
        reported.or_else(nested).unwrap_or(if schema.get("properties").is_some() { "object" } else { "string" })
    }

    /// The names of an object's members, where it may have no others.
    fn members(&self, schema: &Value) -> Option<Vec<String>> {
        let properties = self.properties(schema);
        (!properties.is_empty()).then(|| properties.into_iter().map(|(name, _)| name).collect())
    }

    fn properties(&self, schema: &Value) -> Vec<(String, Value)> {
        let schema = self.followed(schema);
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut all: Vec<_> = own.map(|(name, property)| (name.clone(), property.clone())).collect();
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let parts = schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
            all.extend(parts.flat_map(|part| self.properties(part)));
        }
        all
    }

    fn is_closed(&self, schema: &Value) -> bool {
        let schema = self.followed(schema);
        schema.get("additionalProperties").is_none_or(|more| *more == false) && schema.get("properties").is_some()
    }

    /// The target of a reference.
    fn followed<'s>(&'s self, mut value: &'s Value) -> &'s Value {
        while let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let pointer = reference.split('#').nth(1).unwrap();
            let pointer = wire::decoded(pointer).unwrap();
            value = self.document.pointer(&pointer).unwrap_or_else(|| panic!("{reference} points at nothing"));
        }
        value
    }
}

fn key(method: &str, path: &str) -> String {
    format!("{} {path}", method.to_ascii_uppercase())
}

/// Converts OpenAPI's keywords to those of JSON Schema, and makes references absolute.
fn standardise(value: &mut Value, document: &Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| standardise(item, document)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| standardise(member, document));
            standardise_schema(members, document);
        }
        _ => {}
    }
}

fn standardise_schema(members: &mut Map<String, Value>, document: &Value) {
    if let Some(Value::String(reference)) = members.get_mut("$ref") {
        *reference = format!("{DOCUMENT}{reference}");
    }
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match members.get(exclusive) {
            Some(Value::Bool(true)) => {
                if let Some(limit) = members.shift_remove(bound) {
                    members.insert(exclusive.to_owned(), limit);
                }
            }
            Some(Value::Bool(false)) => _ = members.shift_remove(exclusive),
            _ => {}
        }
    }
    // Properties that are only in responses are not required.
    if let (Some(Value::Object(properties)), Some(Value::Array(required))) =
        (members.get("properties").cloned(), members.get_mut("required"))
    {
        let is_read_only = |name: &Value| {
            let property = name.as_str().and_then(|name| properties.get(name));
            property.is_some_and(|property| is_read_only(property, document))
        };
        required.retain(|name| !is_read_only(name));
    }
    if members.get("nullable") == Some(&json!(true)) || members.get("x-nullable") == Some(&json!(true)) {
        if let Some(Value::Array(values)) = members.get_mut("enum") {
            values.push(Value::Null);
        }
        match members.get_mut("type") {
            Some(kind @ Value::String(_)) => *kind = json!([kind.clone(), "null"]),
            Some(_) => {}
            None => {
                let whole = Value::Object(std::mem::take(members));
                members.insert("anyOf".into(), json!([whole, {"type": "null"}]));
            }
        }
    }
    // Type names that some documents use and no version defines.
    let known = |kind: &str| matches!(kind, "string" | "number" | "integer" | "boolean" | "array" | "object" | "null");
    if members.get("type").and_then(Value::as_str).is_some_and(|kind| !known(kind)) {
        members.shift_remove("type");
    }
}

fn is_read_only(property: &Value, document: &Value) -> bool {
    let target = property.get("$ref").and_then(Value::as_str).and_then(|reference| document.pointer(&reference[1..]));
    [Some(property), target].into_iter().flatten().any(|schema| schema.get("readOnly") == Some(&json!(true)))
}

/// A parameter's schema; in Swagger 2.0 the parameter itself.
fn schema(parameter: &Value) -> Value {
    let content = parameter.get("content").and_then(Value::as_object).and_then(|content| content.values().next());
    match parameter.get("schema").or_else(|| content?.get("schema")) {
        Some(schema) => schema.clone(),
        None => {
            let mut schema = parameter.as_object().unwrap().clone();
            for key in ["name", "in", "required", "description", "collectionFormat", "style", "explode", "content"] {
                schema.shift_remove(key);
            }
            schema.into()
        }
    }
}

fn is_content(parameter: &Value) -> bool {
    parameter.get("content").is_some()
}

/// Header parameters of these names are to be ignored (OpenAPI 3.1.1, "Parameter Object").
fn is_ignored(name: &str) -> bool {
    ["accept", "content-type", "authorization"].iter().any(|ignored| name.eq_ignore_ascii_case(ignored))
}

/// `style` and `explode`, or what Swagger 2.0 calls `collectionFormat`.
fn form<'a>(described: &'a Value, usual: &'a str) -> Form<'a> {
    if described.get("type") == Some(&json!("array")) && described.get("schema").is_none() {
        let (style, explode) = match described["collectionFormat"].as_str().unwrap_or("csv") {
            "multi" => ("form", true),
            "ssv" => ("spaceDelimited", false),
            "pipes" => ("pipeDelimited", false),
            "tsv" => ("tabDelimited", false),
            _ => (usual, false),
        };
        return Form { style, explode };
    }
    let style = described.get("style").and_then(Value::as_str).unwrap_or(usual);
    let explode = described.get("explode").and_then(Value::as_bool);
    Form { style, explode: explode.unwrap_or(style == "form" || style == "deepObject") }
}

fn covers(range: &str, essence: &str) -> bool {
    let range = range.split(';').next().unwrap().trim().to_ascii_lowercase();
    range == essence
        || range == "*/*"
        || range.strip_suffix("/*").is_some_and(|main| essence.starts_with(&format!("{main}/")))
}

fn cookies(headers: &HeaderMap) -> Vec<(String, String)> {
    let Some(text) = headers.get(header::COOKIE) else { return Vec::new() };
    let pairs = text.to_str().unwrap().split("; ").filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn read_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{text:?} is no JSON: {error}"))
}

/// Whether a path matches its template; the value of each name is recorded, still encoded.
fn matches<'t>(template: &'t str, path: &str, found: &mut BTreeMap<&'t str, String>) -> bool {
    let Some((literal, rest)) = template.split_once('{') else { return template == path };
    let Some((name, template)) = rest.split_once('}') else { return template == path };
    let Some(path) = path.strip_prefix(literal) else { return false };
    let end = path.find('/').unwrap_or(path.len());
    for (at, _) in path.char_indices().skip(1).chain([(path.len(), ' ')]).filter(|(at, _)| *at > 0 && *at <= end) {
        if matches(template, &path[at..], found) {
            found.insert(name, path[..at].to_owned());
            return true;
        }
    }
    false
}
