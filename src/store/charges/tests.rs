use std::sync::atomic::{AtomicBool, Ordering};

use jiff::SignedDuration;
use jiff::civil::date;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::super::test_support::{conversation, database_of_tests, test_store};
use super::super::{ConversationRun, RunEnd, RunStatus, StoreLocation, Used};
use super::*;
use sekisho_config::Secret;
use sekisho_core::call::Caller;

const MONDAY: Date = date(2126, 3, 4);

fn cents(cents: i64) -> Decimal {
    Decimal::new(cents, 2)
}

fn charge(id: &str, is_reserved: bool, cost_cents: i64) -> StoredCharge {
    let of =
        |scope, key: &str| DailyUsage { day: MONDAY, scope, key: key.into(), cost_usd: cents(cost_cents), tokens: 1 };
    let usage = vec![of(DailyScope::Caller, "acme\u{1f}ann"), of(DailyScope::Tenant, "acme")];
    StoredCharge { id: id.into(), is_reserved, usage, models: Vec::new() }
}

fn reservation(id: &str, turn: Option<ReservedTurn>, cost_cents: i64) -> Reservation {
    let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
    Reservation { id: id.into(), caller, day: MONDAY, cost_usd: cents(cost_cents), turn }
}

/// The spending of the caller.
async fn spent(store: &Store) -> Decimal {
    let usage = store.usage().of_day(MONDAY).await.unwrap();
    usage.into_iter().filter(|usage| usage.scope == DailyScope::Caller).map(|usage| usage.cost_usd).sum()
}

async fn begun(store: &Store) -> (ConversationRun, super::super::ConversationLock) {
    store.conversations().add(&conversation("c", "ann"), 9).await.unwrap();
    let begun = store.now();
    let lock = store.conversations().lock("c", None).await.unwrap().unwrap();
    let mut run = ConversationRun {
        id: "r".into(),
        conversation: "c".into(),
        number: 1,
        session_id: "s".into(),
        agent: "main".into(),
        claimed_executor: None,
        user_input: "hello".into(),
        status: RunStatus::Running,
        error: None,
        begun,
        ended: None,
    };
    assert!(store.conversation_runs().begin(&lock, &mut run).await.unwrap());
    (run, lock)
}

#[tokio::test]
async fn a_charge_is_made_once_and_one_that_was_reserved_only_while_it_is() {
    let store = test_store().await;
    store.charges().reserve("r", &reservation("b", None, 30)).await.unwrap();
    let charges = [charge("a", false, 10), charge("b", true, 20)];
    let totals = store.charges().add(&charges, &[]).await.unwrap();
    assert_eq!(totals.iter().map(|total| total.cost_usd).collect::<Vec<_>>(), [cents(30), cents(30)]);
    assert_eq!(store.charges().add(&charges, &[]).await.unwrap(), totals);
    assert!(store.charges().reserved("r").await.unwrap().is_empty());
    // Once it is known to be stored, nobody stores it again, and nothing is left of it.
    store.charges().add(&[charge("c", false, 1)], &["a".into()]).await.unwrap();
    let left: Vec<String> = sqlx::query_scalar("SELECT id FROM stored_charges").fetch_all(&store.pool).await.unwrap();
    assert_eq!((left, spent(&store).await), (vec!["c".to_owned()], cents(31)));
    store.charges().forget_before(store.now().later(SignedDuration::from_secs(1))).await.unwrap();
    let left: Vec<String> = sqlx::query_scalar("SELECT id FROM stored_charges").fetch_all(&store.pool).await.unwrap();
    assert!(left.is_empty());
}

#[tokio::test]
async fn an_interrupted_run_is_charged_what_it_had_reserved_with_the_usage_of_its_models() {
    let store = test_store().await;
    let (run, lock) = begun(&store).await;
    let row = |cost_cents, prompt_tokens| ModelUsageRow {
        agent: "main".into(),
        provider: "openai".into(),
        model: "m".into(),
        used: RunUsage { cost_usd: cents(cost_cents), prompt_tokens, ..RunUsage::default() },
    };
    store
        .conversation_runs()
        .keep_usage("r", Used { rows: &[row(10, 5)], charges: &[charge("a", false, 10)] })
        .await
        .unwrap();
    let turn = |agent: &str| {
        let model = UsedModel { agent: agent.into(), provider: "openai".into(), model: "m".into() };
        Some(ReservedTurn { model, prompt_tokens: 7, completion_tokens: 9 })
    };
    store.charges().reserve("r", &reservation("turn", turn("main"), 2)).await.unwrap();
    store.charges().reserve("r", &reservation("child", turn("child"), 3)).await.unwrap();
    store.charges().reserve("r", &reservation("call", None, 4)).await.unwrap();
    store.charges().reserve("another", &reservation("other", None, 50)).await.unwrap();
    let run = ConversationRun { status: RunStatus::Interrupted, ended: Some(store.now()), ..run };
    let end =
        RunEnd { run: &run, lock: Some(&lock), keeps_lock: true, messages: &[], title: None, used: Used::default() };
    for _ in 0..2 {
        assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
        assert_eq!(spent(&store).await, cents(19));
        let rows = store.conversation_logs().usage_of_run("r").await.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (&*row.agent, row.used.cost_usd, row.used.prompt_tokens)).collect();
        assert_eq!(rows, [("main", cents(12), 12), ("child", cents(3), 7)]);
        let of_days = store.model_usage().between(MONDAY, MONDAY).await.unwrap();
        let of_days: Vec<_> =
            of_days.iter().map(|row| (&*row.model.agent, row.used.cost_usd, row.used.tokens())).collect();
        assert_eq!(of_days, [("child", cents(3), 16), ("main", cents(2), 16)]);
        let tokens: Vec<_> = store.usage().of_day(MONDAY).await.unwrap().iter().map(|usage| usage.tokens).collect();
        assert_eq!(tokens, [33, 33], "of two turns, and one of the charge");
    }
    // A call that is sent again has its charge.
    store.charges().reserve("later", &reservation("call", None, 4)).await.unwrap();
    store.charges().add(&[charge("call", true, 4)], &[]).await.unwrap();
    assert_eq!(spent(&store).await, cents(19));
}

/// In front of a database. Once it is told so, the next `COMMIT` reaches the database, and its answer does not come back.
async fn lossy_proxy(database: &Url, is_armed: Arc<AtomicBool>) -> Url {
    let (host, port) = (database.host_str().unwrap().to_owned(), database.port().unwrap_or(5432));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect((host.as_str(), port)).await.unwrap();
            tokio::spawn(relay(client, server, Arc::clone(&is_armed)));
        }
    });
    let mut url = database.clone();
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(own.port())).unwrap();
    url
}

async fn relay(mut client: TcpStream, mut server: TcpStream, is_armed: Arc<AtomicBool>) {
    let (mut from_client, mut from_server) = ([0; 65536], [0; 65536]);
    loop {
        tokio::select! {
            Ok(length @ 1..) = client.read(&mut from_client) => {
                let sent = &from_client[..length];
                server.write_all(sent).await.unwrap();
                let commits = sent.windows(6).any(|word| word == b"COMMIT");
                if commits && is_armed.swap(false, Ordering::SeqCst) {
                    let _committed = server.read(&mut from_server).await;
                    return;
                }
            }
            Ok(length @ 1..) = server.read(&mut from_server) => client.write_all(&from_server[..length]).await.unwrap(),
            else => return,
        }
    }
}

/// Only a database can be lost so: a file's commit has its answer, or its process is gone.
#[tokio::test]
async fn the_end_of_a_run_whose_commit_loses_its_answer_is_stored_once() {
    let Some(StoreLocation::PostgreSql(url)) = database_of_tests().await else { return };
    let is_armed = Arc::new(AtomicBool::new(false));
    let url = lossy_proxy(&url.expose().parse().unwrap(), Arc::clone(&is_armed)).await;
    let store = Store::open(&StoreLocation::PostgreSql(Secret::new(url.as_str()))).await.unwrap();
    let (run, lock) = begun(&store).await;
    store.charges().reserve("r", &reservation("turn", None, 20)).await.unwrap();
    let run = ConversationRun { status: RunStatus::Succeeded, ended: Some(store.now()), ..run };
    let charges = [charge("turn", true, 15), charge("free", false, 1)];
    let messages = [r#"{"user":"hello"}"#.to_owned()];
    let used = Used { rows: &[], charges: &charges };
    let end = RunEnd { run: &run, lock: Some(&lock), keeps_lock: false, messages: &messages, title: None, used };
    is_armed.store(true, Ordering::SeqCst);
    let lost = store.conversation_runs().end(&end).await.unwrap_err();
    assert!(lost.is_outage(), "{lost:?}");
    let totals = store.conversation_runs().end(&end).await.unwrap().unwrap();
    assert_eq!((totals[0].cost_usd, spent(&store).await), (cents(16), cents(16)));
    assert_eq!(store.conversation_runs().messages("c", 0, 9).await.unwrap().len(), 1);

    is_armed.store(true, Ordering::SeqCst);
    let more = [charge("more", false, 2)];
    assert!(store.charges().add(&more, &[]).await.unwrap_err().is_outage());
    store.charges().add(&more, &[]).await.unwrap();
    assert_eq!(spent(&store).await, cents(18));
}
