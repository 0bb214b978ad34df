//! Several gateways on one PostgreSQL database, as replicas: real programs, which are also killed.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::cli::{Serving, sekisho};
use crate::store_database::TestDatabase;

/// A running replica with a state directory of its own.
struct Replica {
    directory: TempDir,
    serving: Option<Serving>,
    client: Client,
}

impl Replica {
    fn start(database: &TestDatabase, more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("sekisho.yaml"), database.settings(&clustered(more))).unwrap();
        let client = Client::builder().no_proxy().build().unwrap();
        let mut replica = Self { directory, serving: None, client };
        replica.restart();
        replica
    }

    fn restart(&mut self) {
        self.serving = Some(Serving::start_with(&self.directory, &["--config", "sekisho.yaml"]));
    }

    fn url(&self) -> &str {
        &self.serving.as_ref().unwrap().url
    }

    fn command(&self, arguments: &[&str]) -> Value {
        let run =
            sekisho(&self.directory).args(["--config", "sekisho.yaml", "--json"]).args(arguments).output().unwrap();
        serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{}", crate::cli::text(&run)))
    }

}

fn clustered(more: &str) -> String {
    format!("cluster: {{enabled: true}}\n{more}\n")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_are_listed_until_they_leave() {
    let database = TestDatabase::new().await;
    let (one, mut other) = (Replica::start(&database, ""), Replica::start(&database, "limits: {max_concurrent: 7}"));
    let ids = |listed: &Value| {
        let replicas = listed["replicas"].as_array().unwrap().iter();
        replicas.map(|replica| replica["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let listed = one.command(&["cluster"]);
    assert_eq!(ids(&listed).len(), 2, "{listed}");
    let (status, ready) = answer(one.client.get(format!("{}/readyz", one.url()))).await;
    assert_eq!((status, &ready["replica"]), (StatusCode::OK, &listed["replica"]));
    assert_eq!(ids(&listed)[0], ready["replica"].as_str().unwrap(), "the one that started first");
    for replica in listed["replicas"].as_array().unwrap() {
        assert_eq!((&replica["status"], &replica["version"]), (&json!("live"), &json!(env!("CARGO_PKG_VERSION"))));
    }
    let stopped = other.serving.as_ref().unwrap().id();
    let pid = rustix::process::Pid::from_raw(i32::try_from(stopped).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(other.serving.as_mut().unwrap().wait().success());
    assert_eq!(ids(&one.command(&["cluster"])), [ready["replica"].as_str().unwrap()]);
    let checked = one.command(&["check"]);
    let found = checked.as_array().unwrap().iter().find(|finding| finding["part"] == "cluster").unwrap();
    assert!(found["says"].as_str().unwrap().contains("1 replicas are live"), "{found}");
}

/// No server is needed for this one.
#[test]
fn replicas_without_a_database_are_a_configuration_error() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("sekisho.yaml"), "cluster:\n  enabled: true\n").unwrap();
    let run = sekisho(&directory).args(["--config", "sekisho.yaml", "serve"]).output().unwrap();
    let said = crate::cli::text(&run);
    assert_eq!(run.status.code(), Some(4), "{said}");
    assert!(
        said.contains("sekisho.yaml:2") && said.contains("cluster.enabled") && said.contains("store.url"),
        "{said}"
    );
}

#[tokio::test]
async fn a_gateway_that_is_no_replica_says_so() {
    let app = TestApp::start().await;
    let (_, ready) = answer(app.get("/readyz")).await;
    assert_eq!(ready.get("replica"), None);
    let shown = app.gateway.replica_id();
    assert_eq!(shown, None);
}
