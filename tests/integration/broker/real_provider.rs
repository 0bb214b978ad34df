//! Sign-ins at an OpenID provider of the field (npm `oidc-provider`) that registers no clients, in the shapes of Entra and of Google.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::provider::{CLIENT, Provider, SECRET, Shape};
use super::run::{Run, STAGES, Stage, World};
use crate::child_server::ChildServer;

#[tokio::test]
#[ignore = "needs oidc-provider and node, in the folder named by the variable OAUTH"]
async fn editors_sign_in_until_their_user_is_removed() {
    let folder = std::env::var("OAUTH").expect("OAUTH names the folder");
    // Node resolves modules relative to the script.
    let script = Path::new(&folder).join("broker_provider.mjs");
    std::fs::copy("tests/mcp/broker_provider.mjs", &script).unwrap();
    let node = Path::new(&folder).join("node_modules/.bin/node");
    for (shape, name) in [(Shape::Entra, "entra"), (Shape::Google, "google")] {
        let arguments = [script.to_str().unwrap(), "PORT", CLIENT, SECRET, name, shape.path()];
        let server = ChildServer::start(node.to_str().unwrap(), &arguments, Duration::from_secs(60)).await;
        let provider = Provider::elsewhere(shape, &server.url);
        let world = World::with(provider, "", "", TempDir::new().unwrap()).await;
        let mut run = Run::new(&world);
        for stage in STAGES.iter().filter(|stage| !matches!(stage, Stage::Revoke | Stage::End)) {
            run.pass(*stage).await;
        }
        assert!(run.refreshes().await, "{name}: once more");

        let mut run = Run::new(&world);
        run.reach(Stage::Refresh).await;
        run.pass(Stage::Refresh).await;
        let removed = world.app.client.post(format!("{}/remove/ann", server.url)).send().await.unwrap();
        assert!(removed.status().is_success(), "{removed:?}");
        assert!(!run.refreshes().await, "{name}: a removed user");
    }
}
