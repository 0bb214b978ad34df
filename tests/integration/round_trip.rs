//! Every operation of a document, called with arguments made from its tool's own schema, arrives as the
//! document demands: the service's requests are judged by the document itself, read anew.

mod arguments;
mod original;
mod prism;
mod wire;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use reqwest::StatusCode;
use serde_json::{Value, json};

use self::arguments::{Fullness, Texts, arguments};
use self::original::{Original, Recorded};
use crate::app::TestApp;
use crate::public_documents::{DOCUMENTS, fixture, offer, schemas};

/// The share of calls that has to arrive as it should.
const ACCEPTED: f64 = 0.98;

/// Operations of one document that the quick suite tries, spread over all of it.
const TRIED: usize = 60;

#[tokio::test]
async fn calls_made_from_the_schemas_arrive_as_the_document_demands() {
    let mut tallies = Vec::new();
    for (name, operations) in DOCUMENTS {
        tallies.push(round_trip(name, &fixture(name), operations.div_ceil(TRIED)).await);
    }
    judge(&tallies);
}

/// All operations, of `SEKISHO_OPENAPI_DOCUMENTS` too: files, separated by `:`.
#[tokio::test]
#[ignore = "takes minutes"]
async fn round_trip_of_every_operation() {
    let mut tallies = Vec::new();
    for (name, _) in DOCUMENTS {
        tallies.push(round_trip(name, &fixture(name), 1).await);
    }
    let further = std::env::var("SEKISHO_OPENAPI_DOCUMENTS").unwrap_or_default();
    for file in further.split(':').filter(|file| !file.is_empty()) {
        tallies.push(round_trip(file, &std::fs::read(file).unwrap(), 1).await);
    }
    judge(&tallies);
}

/// What became of one document's calls.
#[derive(Debug)]
struct Tally {
    document: String,
    operations: usize,
    calls: usize,
    refused: Vec<String>,
    /// Of the operations that were meant to be called.
    reached: BTreeSet<String>,
}

impl Tally {
    fn of(document: &str, operations: usize) -> Self {
        let document = document.to_owned();
        Self { document, operations, calls: 0, refused: Vec::new(), reached: BTreeSet::new() }
    }

    fn tell(&self) {
        let Self { document, operations, calls, refused, reached } = self;
        let accepted = calls - refused.len();
        #[expect(clippy::print_stderr, reason = "the figures are what the suite is for")]
        {
            eprintln!(
                "{document}: {operations} operations, {} reached, {accepted} of {calls} calls accepted",
                reached.len()
            );
            refused.iter().for_each(|reason| eprintln!("    {reason}"));
        }
    }
}

/// Each document on its own.
#[expect(clippy::cast_precision_loss, reason = "thousands")]
fn judge(tallies: &[Tally]) {
    for Tally { document, calls, refused, .. } in tallies {
        assert!(*calls > 0, "{document} has no tools");
        let share = (calls - refused.len()) as f64 / *calls as f64;
        assert!(share >= ACCEPTED, "{document}: {share:.3} of the calls were accepted: {refused:#?}");
    }
}

/// Calls one of so many tools of the document, with few arguments and with many.
async fn round_trip(name: &str, text: &[u8], every: usize) -> Tally {
    // YAML has no surrogate pairs as JSON has.
    let document = serde_json::from_slice(text).or_else(|_| yaml_serde::from_slice(text)).unwrap();
    let original = Original::new(document);
    let operations = original.operations().len();
    let judge = Judge { original: Arc::new(original), reached: Arc::default() };
    let server = serve(judge.clone()).await;
    let (app, _) = offer(text, &server, &json!({})).await;
    let schemas = schemas(&app).await;
    assert_eq!(schemas.len(), operations, "{name}: every operation is a tool");
    let mut tally = Tally::of(name, operations);
    for (seed, schema) in (0..).zip(schemas.iter().step_by(every)) {
        for fullness in [Fullness::Least, Fullness::Most] {
            tally.calls += 1;
            tally.refused.extend(call(&app, schema, seed, fullness, Texts::Awkward).await.err());
        }
    }
    tally.reached.clone_from(&judge.reached.lock().unwrap());
    tally.tell();
    _ = app.stop().await;
    tally
}

/// One call; why it did not arrive as it should.
async fn call(app: &TestApp, schema: &Value, seed: u64, fullness: Fullness, texts: Texts) -> Result<(), String> {
    let name = schema["name"].as_str().unwrap();
    let made = arguments(&schema["parameters"], seed, fullness, texts);
    let made = made.ok_or(format!("{name} {fullness:?}: no arguments fit its schema"))?;
    let (status, reply) = app.call(name, made.clone()).await;
    if (status, &reply["success"]) == (StatusCode::OK, &json!(true)) {
        return Ok(());
    }
    let shown: String = made.to_string().chars().take(300).collect();
    Err(format!("{name} {fullness:?}: {} — {shown}", reply["error"]))
}

/// A server that answers what the document allows, and refuses everything else with the reason.
#[derive(Clone)]
struct Judge {
    original: Arc<Original>,
    reached: Arc<Mutex<BTreeSet<String>>>,
}

async fn serve(judge: Judge) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(take).with_state(judge);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}/base")
}

async fn take(State(judge): State<Judge>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap();
    let recorded = Recorded {
        method: &head.method,
        path: head.uri.path().strip_prefix("/base").unwrap_or_default(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        body: &body,
    };
    match judge.original.check(&recorded) {
        Ok(operation) => {
            judge.reached.lock().unwrap().insert(operation);
            axum::Json(json!({})).into_response()
        }
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, axum::Json(json!({"message": error}))).into_response(),
    }
}
