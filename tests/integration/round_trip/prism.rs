//! The same against Prism, a mock server that others wrote: it refuses what the document does not allow.

use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::child_server::ChildServer;

/// Prism reads GitHub's document in ten seconds of processor time.
const MAX_START: Duration = Duration::from_secs(100);

/// Those whose schemas lead in circles: Prism does not finish reading Stripe's, nor answering by Figma's. And that
/// of httpbin, which answers itself in a suite of its own; Prism answers with the redirects it describes.
const NOT_FOR_PRISM: [&str; 3] = ["stripe-2022-04-12.spec3.json.gz", "figma.yaml", "httpbin-swagger2.json"];

/// The documents of the tests, and those of `SEKISHO_OPENAPI_DOCUMENTS`: files, separated by `:`.
#[tokio::test]
#[ignore = "needs @stoplight/prism-cli, named by the variable PRISM"]
async fn prism_accepts_what_the_service_sends() {
    let program = std::env::var("PRISM").expect("PRISM names the program");
    let own = DOCUMENTS.into_iter().filter(|(name, _)| !NOT_FOR_PRISM.contains(name));
    let own = own.map(|(name, _)| (name.to_owned(), fixture(name)));
    let further = std::env::var("SEKISHO_OPENAPI_DOCUMENTS").unwrap_or_default();
    let further = further.split(':').filter(|file| !file.is_empty());
    let further = further.map(|file| (file.to_owned(), std::fs::read(file).unwrap()));
    let mut tallies = Vec::new();
    for (name, text) in own.chain(further) {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join(name.rsplit('/').next().unwrap().trim_end_matches(".gz"));
        std::fs::write(&file, &text).unwrap();
        let arguments = ["mock", "--host", "127.0.0.1", "--port", "PORT", file.to_str().unwrap()];
        let prism = ChildServer::start(&program, &arguments, MAX_START).await;
        let (app, _) = offer(&text, &prism.url, &json!({})).await;
        let schemas = schemas(&app).await;
        let mut tally = Tally::of(&name, schemas.len());
        for (seed, schema) in (0..).zip(schemas.iter().step_by(schemas.len().div_ceil(TRIED).max(1))) {
            for fullness in [Fullness::Least, Fullness::Most] {
                tally.calls += 1;
                tally.refused.extend(call(&app, schema, seed, fullness, Texts::Plain).await.err());
            }
        }
        tally.tell();
        tallies.push(tally);
        _ = app.stop().await;
    }
    judge(&tallies);
}
