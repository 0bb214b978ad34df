//! Public OpenAPI documents on offer: what of their lists of tools every client has to accept.

use std::collections::{BTreeSet, HashSet};
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, config};
use crate::checkout::checkout;

/// The documents of `tests/openapi`, and how many operations each has.
pub(crate) const DOCUMENTS: [(&str, usize); 6] = [
    ("petstore3.yaml", 19),
    ("figma.yaml", 47),
    ("httpbin-swagger2.json", 78),
    ("twilio-api-v2010.json.gz", 197),
    ("stripe-2022-04-12.spec3.json.gz", 417),
    ("github-api.min.json.gz", 1_223),
];

/// What a client holds at most of one document's tools, in bytes.
const MAX_LIST: usize = 2_000_000;

#[tokio::test]
async fn lists_of_public_documents_are_what_clients_accept() {
    for (name, operations) in DOCUMENTS {
        let (app, yaml) = offer(&fixture(name), "http://127.0.0.1:9", &json!({})).await;
        let tools = schemas(&app).await;
        assert_eq!(tools.len(), operations, "{name}: every operation is a tool");
        let names: BTreeSet<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), operations, "{name}: names are unique");
        for tool in &tools {
            let (own, parameters) = (tool["name"].as_str().unwrap(), &tool["parameters"]);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            assert!((1..=64).contains(&own.len()) && own.bytes().all(allowed), "{name}: {own:?}");
            assert_eq!(parameters["type"], "object", "{own}");
            let error = jsonschema::draft202012::meta::validate(parameters).err();
            assert!(error.is_none(), "{name}: {own}: {error:?}");
            assert_eq!(refused_by_clients(parameters), None, "{name}: {own}");
        }
        let listed: Vec<_> = tools
            .iter()
            .map(|tool| json!({"name": tool["name"], "description": tool["description"], "inputSchema": tool["parameters"]}))
            .collect();
        let bytes = json!(listed).to_string().len();
        assert!(name.starts_with("github") || bytes < MAX_LIST, "{name}: {bytes} bytes");
        app.gateway.reload(config(&app.directory, &yaml)).await;
        app.gateway.collections().fetch_pending_documents().await;
        assert_eq!(schemas(&app).await, tools, "{name}: a reload changes nothing");
        _ = app.stop().await;
    }
}

/// The first part of a schema that OpenAI or VS Code refuse.
fn refused_by_clients(schema: &Value) -> Option<&Value> {
    match schema {
        Value::Object(members) => {
            let lacks_items = members.get("type").is_some_and(|kind| kind == "array") && !members.contains_key("items");
            let values = members.get("enum").and_then(Value::as_array);
            let is_doubled = values.is_some_and(|values| values.iter().collect::<HashSet<_>>().len() < values.len());
            let below =
                members.iter().filter(|(key, _)| !["enum", "const", "default", "examples"].contains(&key.as_str()));
            (lacks_items || is_doubled)
                .then_some(schema)
                .or_else(|| below.map(|(_, value)| value).find_map(refused_by_clients))
        }
        Value::Array(items) => items.iter().find_map(refused_by_clients),
        _ => None,
    }
}

/// A document as it was published.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(checkout().join("tests/openapi").join(name)).unwrap();
    if !name.ends_with(".gz") {
        return bytes;
    }
    let mut text = Vec::new();
    GzDecoder::new(bytes.as_slice()).read_to_end(&mut text).unwrap();
    text
}

/// The service with a document's operations on offer as `api__…`, its requests sent to `server`; and its configuration.
pub(crate) async fn offer(text: &[u8], server: &str, further: &Value) -> (TestApp, String) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("document");
    std::fs::write(&file, text).unwrap();
    let mut settings = json!({
        "spec_file": file, "base_url": server, "category": "documents", "rate_limit": 1_000_000, "base_cost_per_use": 0,
        "auth_config": {"token": "t", "api_key": "k", "username": "u", "password": "p"}, "dangerous": {"methods": []}
    });
    for (key, value) in further.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let yaml = json!({
        "outbound": {"allow_networks": ["127.0.0.0/8"], "openapi_allowed_domains": ["127.0.0.1"]},
        "openapi": {"collections": {"api": settings}}
    });
    let yaml = yaml.to_string();
    let app = TestApp::in_directory(directory, &yaml).await;
    // A start waits ten seconds for a document, which is not always enough for one of 7 MB on a busy machine.
    app.gateway.collections().fetch_pending_documents().await;
    (app, yaml)
}

/// Names, descriptions and schemas of the document's tools.
pub(crate) async fn schemas(app: &TestApp) -> Vec<Value> {
    let (_, schemas) = answer(app.get("/tools/schemas?category=documents")).await;
    serde_json::from_value(schemas).unwrap()
}
