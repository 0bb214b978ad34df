//! The same against Prism, a mock server that others wrote: it refuses what the document does not allow.

use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::*;

/// Operations of one document that are tried.
const TRIED: usize = 150;

/// Prism reads GitHub's document in seconds, and does not finish on Stripe's.
const LONGEST_START: Duration = Duration::from_secs(60);

#[tokio::test]
#[ignore = "needs @stoplight/prism-cli, named by the variable PRISM"]
async fn prism_accepts_what_the_service_sends() {
    let program = std::env::var("PRISM").expect("PRISM names the program");
    for (name, operations) in DOCUMENTS.into_iter().filter(|(name, _)| !name.starts_with("stripe")) {
        let text = fixture(name);
        let directory = TempDir::new().unwrap();
        let file = directory.path().join(name.trim_end_matches(".gz"));
        std::fs::write(&file, &text).unwrap();
        let (_prism, server) = start(&program, &file).await;
        let (app, _) = offer(&text, &server, &json!({})).await;
        let mut tally = Tally::of(name, operations);
        for (seed, schema) in (0..).zip(schemas(&app).await.iter().step_by(operations.div_ceil(TRIED))) {
            for fullness in [Fullness::Least, Fullness::Most] {
                tally.calls += 1;
                tally.refused.extend(call(&app, schema, seed, fullness, Texts::Plain).await.err());
            }
        }
        tally.tell();
        judge(&[tally]);
        _ = app.stop().await;
    }
}

/// Killed when the test ends.
async fn start(program: &str, file: &std::path::Path) -> (Child, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new(program)
        .args(["mock", "--host", "127.0.0.1", "--port", &port.to_string()])
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let listens = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LONGEST_START, listens).await.expect("Prism starts");
    (child, format!("http://127.0.0.1:{port}"))
}
