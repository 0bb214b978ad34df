//! A sign-in whose requests are answered by two replicas in turn.

use tempfile::TempDir;

use super::provider::{Provider, Shape};
use super::run::{Run, STAGES, Stage, World, settings};
use crate::app::TestApp;
use crate::store_database::TestDatabase;

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_each_request_of_a_sign_in_is_answered_by_another_replica() {
    let database = TestDatabase::new().await;
    let topics = database.settings(&format!("cluster: {{enabled: true}}\nsecrets: {{key: {}}}\n", "0a".repeat(32)));
    let provider = Provider::start(Shape::Entra).await;
    let world = World::with(provider, "", &topics, TempDir::new().unwrap()).await;
    // The replicas have one public address.
    let yaml = settings(&world.provider, "", &topics).replace("http://127.0.0.1:0", &world.app.url);
    let other = TestApp::with(&yaml).await;
    let urls = [world.app.url.clone(), other.url.clone()];
    let mut run = Run::new(&world);
    for (at, stage) in STAGES.iter().filter(|stage| **stage != Stage::Revoke).enumerate() {
        run.turn_to(&urls[at % 2]);
        run.pass(*stage).await;
    }
    // A session that one replica has ended is over at both.
    for url in &urls {
        run.turn_to(url);
        assert!(!run.refreshes().await, "{url}");
    }

    let mut run = Run::new(&world);
    run.reach(Stage::Refresh).await;
    let sent = run.request(Stage::Refresh);
    let mut at_other = Run::new(&world);
    at_other.turn_to(&other.url);
    // Of two that come at once with one refresh token at most one gets the next.
    let (one, second) = tokio::join!(run.send(&sent), at_other.send(&sent));
    assert!([one.status, second.status].contains(&400), "{one:?} {second:?}");
}
