//! Names that a tenant registered, and the configuration has later.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::callers::{ADA, ANN, EVE, ROOT};
use super::owners::{call, get, post, remove, yaml};
use crate::app::{TestApp, code};
use crate::mcp_servers::ready;
use crate::openapi::document;

/// The configuration counts, whoever registered the name before: a tenant cannot take a name from the operator.
#[tokio::test]
async fn the_configuration_has_a_name_that_a_tenant_registered_before() {
    let upstream = TestApp::start().await;
    let app = TestApp::with(&yaml("")).await;
    let (document, url) = (document(&upstream.url).to_string(), format!("{}/mcp", upstream.url));
    for (path, body) in [
        ("/tools/openapi/register", json!({"name": "bank", "spec_inline": document})),
        ("/tools/mcp/register", json!({"name": "crm", "url": url})),
    ] {
        let (status, reply) = post(&app, ADA, path, body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {reply}");
        assert_eq!(call(&app, EVE, "bank__tools", json!({})).await.0, StatusCode::NOT_FOUND);
    }
    let configured = format!(
        "openapi: {{collections: {{bank: {{spec_inline: '{document}'}}}}}}\nmcp: {{servers: {{crm: {{url: '{url}'}}}}}}"
    );
    let app = TestApp::in_directory(app.stop().await, &yaml(&configured)).await;
    ready(&app).await;
    for by in [EVE, ANN] {
        assert_eq!(call(&app, by, "bank__tools", json!({})).await.0, StatusCode::OK, "{}", by.id);
    }
    for path in ["/admin/servers/openapi/bank", "/admin/servers/mcp/crm"] {
        let (_, found) = get(&app, ROOT, path).await;
        assert_eq!((&found["tenant"], &found["registered"]), (&Value::Null, &json!(false)), "{found}");
        assert_eq!(remove(&app, ADA, path).await.0, StatusCode::FORBIDDEN, "{path}");
        let (status, reply) = remove(&app, ROOT, path).await;
        assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"), "{path}: {reply}");
    }
    app.stop().await;
    upstream.stop().await;
}
