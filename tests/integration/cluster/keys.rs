//! Managed keys with several replicas.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::Replica;
use crate::cli::{sekisho, text};
use crate::slack::slack;
use crate::store_database::TestDatabase;

/// Within so long a replica knows what another one changed.
const KNOWN_AFTER: Duration = Duration::from_secs(2);

const CLOSED: &str = "auth: {anonymous: never}";

impl Replica {
    /// What a command about keys prints.
    fn keys(&self, arguments: &[&str]) -> String {
        let run = sekisho(&self.directory).args(["--config", "sekisho.yaml", "keys"]).args(arguments).output().unwrap();
        assert!(run.status.success(), "{}", text(&run));
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    }

    /// Lists tools, which needs nothing of the database.
    async fn call_with(&self, token: &str) -> (StatusCode, String) {
        let request = self.client.get(format!("{}/tools/list", self.url()));
        let response = request.bearer_auth(token).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    /// Calls with a token until the answer has this status; how long that took.
    async fn answers(&self, token: &str, status: StatusCode, within: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let (found, said) = self.call_with(token).await;
            if found == status {
                return began.elapsed();
            }
            assert!(began.elapsed() < within, "{found}, not {status}: {said}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_key_is_known_and_revoked_at_all_replicas_within_two_seconds() {
    let database = TestDatabase::new().await;
    let (one, other) = (Replica::start(&database, CLOSED), Replica::start(&database, CLOSED));
    let token = one.keys(&["create", "--role", "operator"]);
    let id = token.split('_').nth(1).unwrap();
    assert_eq!(one.call_with(&token).await.0, StatusCode::OK);
    other.answers(&token, StatusCode::OK, slack(KNOWN_AFTER)).await;

    let rotated = other.keys(&["rotate", id, "--overlap", "3600"]);
    assert_eq!(other.call_with(&rotated).await.0, StatusCode::OK);
    assert_eq!(other.call_with(&token).await.0, StatusCode::OK);
    one.answers(&rotated, StatusCode::OK, slack(KNOWN_AFTER)).await;

    other.keys(&["revoke", id]);
    let (status, said) = other.call_with(&token).await;
    assert!(status == StatusCode::UNAUTHORIZED && said.contains("was revoked"), "{said}");
    one.answers(&token, StatusCode::UNAUTHORIZED, slack(KNOWN_AFTER)).await;
    for replica in [&one, &other] {
        assert_eq!(replica.call_with(&rotated).await.0, StatusCode::UNAUTHORIZED);
        assert!(replica.keys(&["show", id]).contains("revoked_at"));
    }
}

/// The copy in memory answers without the database for a minute; then it is not known what was revoked elsewhere.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_keys_are_accepted_for_a_minute_without_the_database() {
    let database = TestDatabase::new().await;
    let one = Replica::start(&database, CLOSED);
    let token = one.keys(&["create"]);
    assert_eq!(one.call_with(&token).await.0, StatusCode::OK);
    database.take_away().await;
    assert_eq!(one.call_with(&token).await.0, StatusCode::OK);
    let minute = Duration::from_secs(60);
    let took = one.answers(&token, StatusCode::SERVICE_UNAVAILABLE, minute + slack(Duration::from_secs(10))).await;
    assert!(took > Duration::from_secs(50), "{took:?}");
    database.bring_back().await;
    one.answers(&token, StatusCode::OK, slack(Duration::from_secs(10))).await;
}
