//! `sekisho cluster release`.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Replica, SlowUpstream, call};
use crate::cli::{sekisho, text};
use crate::slack::slack;
use crate::store_database::TestDatabase;

/// After so long what a lost replica leases may be released.
const MINUTE: Duration = Duration::from_secs(60);

impl Replica {
    /// What `sekisho cluster release` says of a replica, and whether it released anything.
    fn release(&self, id: &str) -> (bool, String) {
        let run =
            sekisho(&self.directory).args(["--config", "sekisho.yaml", "cluster", "release", id]).output().unwrap();
        (run.status.success(), text(&run))
    }

    fn id(&self) -> String {
        self.command(&["cluster"])["replica"].as_str().unwrap().to_owned()
    }

    /// The lines of the audit trail with this event.
    fn events(&self, event: &str) -> Vec<Value> {
        let trail = std::fs::read_to_string(self.directory.path().join("state/audit.jsonl")).unwrap();
        let lines = trail.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == event).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_what_a_killed_replica_leases_is_released_by_an_administrator_once() {
    let database = TestDatabase::new().await;
    let host = SlowUpstream::start().await;
    // Two calls, of which one runs at the replica when it is killed, and what replicas lease ahead. The test calls again until
    // the released share has arrived: more often than the default rate on a fast machine.
    let settings = format!(
        "{}\nlimits: {{caller_rate_limit: 1000000}}\nbudget: {{max_cost_per_caller_per_day: '0.025'}}\n\
         tools: {{overrides: {{calculator: {{cost_per_use: '0.01', rate_limit: 1000000}}, slow__wait: {{cost_per_use: '0.01'}}}}}}",
        host.collection()
    );
    let (mut lost, other) = (Replica::start(&database, &settings), Replica::start(&database, &settings));
    let (id, own) = (lost.id(), other.id());
    let held =
        lost.client.post(format!("{}/tools/slow__wait/execute", lost.url())).json(&json!({"arguments": {}})).send();
    let held = tokio::spawn(held);
    host.until_called().await;
    lost.kill();
    assert!(held.await.unwrap().is_err());
    let leased = |listed: &Value| {
        let replicas = listed["replicas"].as_array().unwrap().iter();
        replicas.filter(|one| one["id"] == id.as_str()).find_map(|one| one["leased_usd"].as_f64()).unwrap()
    };
    assert!(leased(&other.command(&["cluster"])) > 0.0);

    for (refused, why) in [(&*own, "is live"), ("nobody", "no replica \"nobody\"")] {
        let (success, said) = other.release(refused);
        assert!(!success && said.contains(why), "{refused}: {said}");
    }
    // On a loaded machine an answer of the database may come too late.
    let until = Instant::now() + slack(Duration::from_secs(10));
    let mut succeeded = 0;
    loop {
        match call(&other.client, other.url()).await {
            Some(StatusCode::OK) => succeeded += 1,
            Some(StatusCode::SERVICE_UNAVAILABLE) if Instant::now() < until => {}
            _ => break,
        }
    }
    assert_eq!(succeeded, 1, "the other one is leased");
    database.silence(&id, MINUTE / 2).await;
    let (success, said) = other.release(&id);
    assert!(!success && said.contains("is lost since") && said.contains("Try again in"), "{said}");

    database.silence(&id, MINUTE).await;
    let (success, said) = other.release(&id);
    assert!(success && said.contains("0.01") && said.contains("public"), "{said}");
    let (success, said) = other.release(&id);
    assert!(success && said.contains("it leased nothing"), "{said}");
    assert!(leased(&other.command(&["cluster"])).abs() < f64::EPSILON);
    let until = Instant::now() + slack(Duration::from_secs(10));
    while call(&other.client, other.url()).await != Some(StatusCode::OK) {
        assert!(Instant::now() < until, "what was released cannot be spent");
    }
    assert_eq!(call(&other.client, other.url()).await, Some(StatusCode::PAYMENT_REQUIRED));

    let written = other.events("leases_released");
    let outcomes: Vec<_> = written.iter().map(|line| (&line["subject"], line["success"].as_bool().unwrap())).collect();
    assert_eq!(outcomes.len(), 5, "{written:?}");
    assert_eq!(outcomes.iter().filter(|(subject, success)| *subject == id.as_str() && *success).count(), 2);
    assert!(written[0]["detail"].as_str().unwrap().contains("is live"), "{written:?}");
}
