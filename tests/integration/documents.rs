//! Documents split over files and addresses, and documents that are fetched again.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config};
use crate::document_host::DocumentHost;
use crate::openapi::{ADMIN, document};

/// An API whose only operation is in another document, as are its parameter and its response.
fn split(path_item: &str) -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Split", "version": "1"}, "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/pets/{id}": {"$ref": path_item}},
    })
}

const PATH_ITEM: &str = r##"{"get": {"operationId": "pet", "parameters": [{"$ref": "shared/parameters.yaml#/id"}],
    "responses": {"200": {"description": "A pet.", "content": {"application/json": {"schema": {"$ref": "shared/pet.yaml"}}}}}}}"##;

const PARAMETERS: &str = "id: {name: id, in: path, required: true, schema: {$ref: pet.yaml#/properties/id}}\n";

/// Refers to itself, and to the file that refers to it.
const PET: &str = "{type: object, properties: {id: {type: integer}, mother: {$ref: pet.yaml},
    twin: {$ref: '../paths.json#/get/responses/200/content/application~1json/schema'}}}\n";

/// The folder of an API in four files, and the YAML that names it.
fn in_files(directory: &TempDir) -> String {
    let folder = directory.path().join("api");
    std::fs::create_dir_all(folder.join("shared")).unwrap();
    for (name, text) in [
        ("api.json", split("paths.json").to_string().as_str()),
        ("paths.json", PATH_ITEM),
        ("shared/parameters.yaml", PARAMETERS),
        ("shared/pet.yaml", PET),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    named(&format!("spec_file: '{}'", folder.join("api.json").display()))
}

fn named(origin: &str) -> String {
    format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
         openapi: {{collections: {{split: {{{origin}}}}}}}"
    )
}

async fn schema(app: &TestApp) -> Value {
    answer(app.get("/tools/split__pet/schema")).await.1
}

#[tokio::test]
async fn an_api_in_several_files_is_one_and_each_of_them_is_watched() {
    let directory = TempDir::new().unwrap();
    let yaml = in_files(&directory);
    let app = TestApp::in_directory(directory, &yaml).await;
    let found = schema(&app).await;
    assert_eq!(found["parameters"]["properties"]["id"]["$ref"], "#/$defs/id", "{found}");
    assert_eq!(found["parameters"]["$defs"]["id"]["type"], "integer", "{found}");
    let pet = &found["output_schema"]["$defs"]["pet-Output"]["properties"];
    assert_eq!(pet["mother"]["$ref"], "#/$defs/pet-Output", "{found}");

    let watched = app.gateway.watched_files();
    let shared = app.directory.path().canonicalize().unwrap().join("api/shared/pet.yaml");
    assert!(watched.contains(&shared), "{watched:?}");
    std::fs::write(&shared, PET.replace("type: integer", "type: string")).unwrap();
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(schema(&app).await["parameters"]["$defs"]["id"]["type"], "string");
}

#[tokio::test]
async fn a_bundled_api_is_revalidated_with_conditional_requests() {
    let host = DocumentHost::start().await;
    let url = host.put("/v1/api.json", split("paths.json"));
    host.put("/v1/paths.json", PATH_ITEM);
    host.put("/v1/shared/parameters.yaml", PARAMETERS);
    host.put("/v1/shared/pet.yaml", PET);
    let yaml = named(&format!("spec_url: '{url}'"));
    let app = TestApp::with(&yaml).await;
    app.gateway.collections().fetch_pending_documents().await;
    assert_eq!(schema(&app).await["parameters"]["$defs"]["id"]["type"], "integer");
    assert_eq!(host.answers("/v1/shared/pet.yaml"), [200], "each document is fetched once");

    host.put("/v1/shared/pet.yaml", PET.replace("type: integer", "type: string"));
    app.gateway.reload(config(&app.directory, &yaml)).await;
    app.gateway.collections().fetch_pending_documents().await;
    assert_eq!(schema(&app).await["parameters"]["$defs"]["id"]["type"], "string");
    assert_eq!(host.answers("/v1/shared/pet.yaml"), [200, 200]);
    assert_eq!(host.answers("/v1/api.json"), [200, 304]);
}

/// A document's author must not learn about files of this machine or its network.
#[tokio::test]
async fn references_lead_to_no_forbidden_place() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("secret.json"), PATH_ITEM).unwrap();
    let folder = directory.path().join("api");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("../secret.json", folder.join("link.json")).unwrap();
    let host = DocumentHost::start().await;
    let private = DocumentHost::start().await.put("/paths.json", PATH_ITEM).replace("127.0.0.1", "127.0.0.2");
    let redirect = host.put("/redirect", format!("->{private}"));
    let elsewhere = host.put("/elsewhere", "->http://localhost/paths.json");
    let gone = format!("{}/gone.json", host.url);
    for (reference, reason) in [
        ("../secret.json", "may refer only to files"),
        ("link.json", "may refer only to files"),
        ("/etc/passwd", "may refer only to files"),
        ("file:///etc/passwd", "the scheme `file` is not supported"),
        ("gone.json", "cannot be read"),
        ("http://example.com/paths.json", "is not allowed"),
        (private.as_str(), "is not allowed"),
        (redirect.as_str(), "127.0.0.2"),
        (elsewhere.as_str(), "localhost"),
        (gone.as_str(), "404"),
    ] {
        let file = folder.join("api.json");
        std::fs::write(&file, split(reference).to_string()).unwrap();
        let settings = config(&directory, &named(&format!("spec_file: '{}'", file.display())));
        let collections = sekisho::testing::offered_tools(&settings).await.unwrap().collections;
        let report = &collections.loaded["split"].report;
        assert_eq!(report.tools, 0, "{reference}");
        assert!(report.approximated.iter().any(|note| note.reason.contains(reason)), "{reference}: {report:?}");
    }
}

/// The allowlist names hosts. An internal address is refused all the same, from any document.
#[tokio::test]
async fn no_document_leads_to_an_address_inside() {
    let trap = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let inside = format!("http://{}", trap.local_addr().unwrap());
    let host = DocumentHost::start().await;
    host.put("/tools/list", format!("->{inside}/"));
    let redirect = host.put("/redirect", format!("->{inside}/api.json"));
    let yaml = json!({
        "outbound": {"allow_networks": ["127.0.0.1/32"], "openapi_allowed_domains": ["127.0.0.1", "127.0.0.2"]},
        "openapi": {"collections": {
            "server": {"spec_inline": document(&inside).to_string()},
            "forwarding": {"spec_inline": document(&host.url).to_string()},
            "fetched": {"spec_url": format!("{inside}/api.json")},
            "forwarded": {"spec_url": redirect},
        }},
    });
    let app = TestApp::with(&yaml.to_string()).await;
    app.gateway.collections().fetch_pending_documents().await;
    for tool in ["server__tools", "forwarding__tools"] {
        let (_, reply) = app.call(tool, json!({})).await;
        assert_eq!(code(&reply), "denied", "{tool}");
        assert!(reply["error"].as_str().unwrap().contains("may not reach it"), "{reply}");
    }
    for collection in ["openapi:fetched", "openapi:forwarded"] {
        let reason = app.gateway.readiness.degraded()[collection].clone();
        assert!(reason.contains("may not reach it"), "{collection}: {reason}");
    }
    assert_eq!(trap.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody came");
}

#[tokio::test]
async fn validation_and_registration_share_what_was_fetched() {
    let host = DocumentHost::start().await;
    let url = host.put("/api.json", document("http://127.0.0.1:9"));
    let allowed = "outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}";
    let app = TestApp::with(&format!("{allowed}\n{ADMIN}")).await;
    let post = async |path: &str, body: Value| answer(app.post(path).bearer_auth("key-of-ada").json(&body)).await.1;
    assert_eq!(post("/tools/openapi/validate", json!({"spec_url": url})).await["valid"], true);
    assert_eq!(post("/tools/openapi/register", json!({"name": "a", "spec_url": url})).await["success"], true);
    assert_eq!(post("/tools/openapi/register", json!({"name": "b", "spec_url": url})).await["success"], true);
    assert_eq!(host.answers("/api.json"), [200, 304, 304]);
}
