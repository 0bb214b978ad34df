//! Converts Swagger 2.0's pieces to OpenAPI 3.0, each after its `$ref` is resolved.
//! <https://swagger.io/specification/v2/>

use serde_json::{Map, Value, json};
use url::Url;

use super::parameter::SKIP_URL_ENCODING;

/// The private style name for `collectionFormat: tsv`.
pub(crate) const TAB_DELIMITED: &str = "x-tabDelimited";

/// The private member of a parameter with the separator of the items of a list within its list.
pub(crate) const ITEM_SEPARATOR: &str = "x-itemSeparator";

const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";
const JSON: &str = "application/json";

/// The members of a parameter that do not belong to its schema.
const NOT_SCHEMA: [&str; 7] =
    ["name", "in", "description", "required", "collectionFormat", "allowEmptyValue", "schema"];

/// The separator of the items of a list within a list, of a converted parameter or field.
pub(crate) fn separator_of_items(converted: &Value) -> Option<char> {
    converted.get(ITEM_SEPARATOR)?.as_str()?.chars().next()
}

/// Separates body and form parameters from the others and makes a request body of them.
pub(crate) fn split_body(parameters: Vec<&Value>, consumes: Vec<String>) -> (Vec<&Value>, Option<Value>) {
    let is_in = |parameter: &Value, place: &str| parameter.get("in").is_some_and(|written| written == place);
    let (form, rest): (Vec<_>, Vec<_>) = parameters.into_iter().partition(|p| is_in(p, "formData"));
    let (bodies, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|p| is_in(p, "body"));
    let body = match bodies.first() {
        Some(body) => Some(json_body(body, consumes)),
        None if form.is_empty() => None,
        None => Some(form_body(&form, &consumes)),
    };
    (rest, body)
}

/// A parameter that goes in the path, the query or a header.
pub(crate) fn parameter(written: &Value) -> Value {
    let mut converted = Map::new();
    for key in ["name", "in", "description", "required", "allowEmptyValue", SKIP_URL_ENCODING] {
        if let Some(value) = written.get(key) {
            converted.insert(key.to_owned(), value.clone());
        }
    }
    if let Some((style, explode)) = collection(written) {
        converted.insert("style".into(), style.into());
        converted.insert("explode".into(), explode.into());
    }
    if let Some(separator) = written.get("items").and_then(item_separator) {
        converted.insert(ITEM_SEPARATOR.into(), separator.into());
    }
    converted.insert("schema".into(), schema_of(written));
    Value::Object(converted)
}

/// A response with its schema, if it has one, under each media type that is produced.
pub(crate) fn response(written: &Value, produces: &[String]) -> Value {
    let described = written.get("schema").map_or_else(|| json!({}), |schema| json!({"schema": schema}));
    let json = [JSON.to_owned()];
    let is_silent = produces.is_empty() && written.get("schema").is_some();
    let produces = if is_silent { &json } else { produces };
    let content: Map<_, _> = produces.iter().map(|name| (name.clone(), described.clone())).collect();
    json!({"description": written.get("description"), "content": content})
}

/// Servers from `schemes`, `host` and `basePath`; missing parts are taken from the document's own address.
pub(crate) fn servers(document: &Value, base: Option<&Url>) -> Vec<Value> {
    let path = document.get("basePath").and_then(Value::as_str).unwrap_or("/");
    let Some(host) = document.get("host").and_then(Value::as_str) else { return vec![json!({"url": path})] };
    let mut schemes: Vec<&str> =
        document.get("schemes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    schemes.retain(|scheme| matches!(*scheme, "http" | "https"));
    if schemes.is_empty() {
        schemes.push(base.map_or("https", Url::scheme));
    }
    // https first where a document offers both.
    schemes.sort_by_key(|scheme| *scheme != "https");
    schemes.iter().map(|scheme| json!({"url": format!("{scheme}://{host}{path}")})).collect()
}

fn json_body(body: &Value, mut consumes: Vec<String>) -> Value {
    if consumes.is_empty() {
        consumes.push(JSON.to_owned());
    }
    let schema = body.get("schema").cloned().unwrap_or(Value::Bool(true));
    let content: Map<_, _> = consumes.into_iter().map(|name| (name, json!({"schema": schema}))).collect();
    json!({"required": body.get("required"), "description": body.get("description"), "content": content})
}

fn form_body(form: &[&Value], consumes: &[String]) -> Value {
    let is_file = |parameter: &Value| parameter.get("type").is_some_and(|kind| kind == "file");
    let has_files = |parameter: &&Value| is_file(parameter) || parameter.get("items").is_some_and(is_file);
    let multipart = form.iter().any(has_files) || consumes.first().is_some_and(|name| name == MULTIPART);
    let mut properties = Map::new();
    let mut encoding = Map::new();
    let mut required: Vec<&Value> = Vec::new();
    for parameter in form {
        let Some(name) = parameter.get("name").and_then(Value::as_str) else { continue };
        let mut schema = schema_of(parameter);
        if is_file(parameter) {
            schema = json!({"type": "string", "format": "binary"});
        } else if parameter.get("items").is_some_and(is_file) {
            schema["items"] = json!({"type": "string", "format": "binary"});
        }
        if let (Some(description), Value::Object(schema)) = (parameter.get("description"), &mut schema) {
            schema.insert("description".into(), description.clone());
        }
        if let Some((style, explode)) = collection(parameter) {
            let separator = parameter.get("items").and_then(item_separator);
            let styled = json!({"style": style, "explode": explode, ITEM_SEPARATOR: separator});
            encoding.insert(name.to_owned(), styled);
        }
        properties.insert(name.to_owned(), schema);
        if parameter.get("required") == Some(&Value::Bool(true)) {
            required.extend(parameter.get("name"));
        }
    }
    // Its fields are parameters, of which there are no others than those written.
    let schema =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let media_type = if multipart { MULTIPART } else { FORM };
    let content = json!({media_type: {"schema": schema, "encoding": encoding}});
    json!({"required": !required.is_empty(), "content": content})
}

fn schema_of(parameter: &Value) -> Value {
    let members = parameter.as_object().into_iter().flatten();
    let schema = members.filter(|(key, _)| !NOT_SCHEMA.contains(&key.as_str()));
    Value::Object(schema.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// The separator of the items of a list within a list.
fn item_separator(items: &Value) -> Option<&'static str> {
    items.get("type").filter(|kind| *kind == "array")?;
    Some(match items.get("collectionFormat").and_then(Value::as_str).unwrap_or("csv") {
        "ssv" => " ",
        "pipes" => "|",
        "tsv" => "\t",
        _ => ",",
    })
}

/// Style and explode of a list; `csv` is the default.
fn collection(parameter: &Value) -> Option<(&'static str, bool)> {
    if parameter.get("type").is_none_or(|kind| kind != "array") {
        return None;
    }
    let in_query = parameter.get("in").is_some_and(|place| place == "query" || place == "formData");
    Some(match parameter.get("collectionFormat").and_then(Value::as_str).unwrap_or("csv") {
        "ssv" => ("spaceDelimited", false),
        "pipes" => ("pipeDelimited", false),
        "tsv" => (TAB_DELIMITED, false),
        "multi" if in_query => ("form", true),
        _ if in_query => ("form", false),
        _ => ("simple", false),
    })
}
