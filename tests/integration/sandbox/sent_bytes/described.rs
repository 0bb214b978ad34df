//! No member of a request is forgotten: each that `/openapi.json` describes is a field, or part of the call itself.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::Place;
use super::ways::{By, Speaks, WAYS, Way};
use crate::app::TestApp;

/// The call itself: its tool, and its arguments under both of their names.
const CALL: [&str; 6] = ["/tool_name", "/arguments", "/parameters", "/0/tool_name", "/0/arguments", "/0/parameters"];

/// Maximum members above a member that is compared. Schemas may refer to themselves.
const MAX_DEPTH: usize = 8;

const KEY: &str = "idempotency-key";

/// The route of a way, as the document names it. Messages of MCP and options of commands are not in it.
fn route(way: &Way) -> Option<String> {
    match (way.by, way.speaks) {
        (By::Caller, Speaks::Rest(_) | Speaks::Agent | Speaks::Plan) => Some(way.path.replace("TOOL", "{name}")),
        (By::Caller, Speaks::Conversation) => Some(format!("{}/{{id}}/execute", way.path)),
        _ => None,
    }
}

/// A part of the document, or the part that it refers to.
fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => part,
    }
}

/// Adds the members of a body with this schema, by pointer. Of a list only the body itself is read, a batch.
fn add_members(document: &Value, schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    let schema = resolved(document, schema);
    let parts = ["allOf", "oneOf", "anyOf"].into_iter().filter_map(|parts| schema[parts].as_array());
    for part in parts.flatten() {
        add_members(document, part, at, found);
    }
    if at.is_empty() && schema["type"] == "array" {
        add_members(document, &schema["items"], "/0", found);
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        if at.matches('/').count() < MAX_DEPTH {
            add_members(document, member, &at, found);
        }
        found.insert(at);
    }
}

/// Whether one of the fields is the member, a part of it, or has it.
fn is_changed(member: &str, fields: &BTreeSet<&str>) -> bool {
    let is_in = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    fields.iter().any(|field| *field == member || is_in(field, member) || is_in(member, field))
}

/// The members of the bodies of an operation.
fn members_of(document: &Value, operation: &Value) -> BTreeSet<String> {
    let mut members = BTreeSet::new();
    for (_, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
        add_members(document, &content["schema"], "", &mut members);
    }
    members
}

/// The headers and parameters of a query, in lower case.
fn headers_of(document: &Value, operation: &Value) -> BTreeSet<String> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters = parameters.map(|parameter| resolved(document, parameter));
    let parameters = parameters.filter(|parameter| parameter["in"] != "path");
    parameters.map(|parameter| parameter["name"].as_str().unwrap().to_lowercase()).collect()
}

#[tokio::test]
async fn each_member_and_header_that_a_route_describes_is_changed() {
    let app = TestApp::start().await;
    let document: Value = app.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let (mut of_calls, mut routes, mut forgotten) = (BTreeSet::new(), 0, Vec::<String>::new());
    for (way, route) in WAYS.iter().filter_map(|way| Some((way, route(way)?))) {
        let (mut bodies, mut headers) = (BTreeSet::new(), BTreeSet::new());
        for field in way.fields.concat() {
            match field.place {
                Place::Body(pointer) => _ = bodies.insert(pointer),
                Place::Header(name) => _ = headers.insert(name),
                Place::Option(_) | Place::Variable(_) => {}
            }
        }
        let operation = &document["paths"][&route]["post"];
        let (call, others): (BTreeSet<_>, BTreeSet<_>) =
            members_of(&document, operation).into_iter().partition(|member| CALL.contains(&member.as_str()));
        assert!(!others.is_empty(), "{route} describes no body");
        of_calls.extend(call);
        forgotten.extend(others.into_iter().filter(|member| !is_changed(member, &bodies)));
        let described = headers_of(&document, operation);
        assert_eq!(described.contains(KEY), headers.contains(KEY), "{route} takes a key where it describes one");
        forgotten.extend(described.into_iter().filter(|name| !headers.contains(name.as_str())));
        assert!(forgotten.is_empty(), "{route}: no test changes these: {forgotten:?}");
        routes += 1;
    }
    assert_eq!((routes, of_calls), (10, CALL.map(str::to_owned).into()));
}
