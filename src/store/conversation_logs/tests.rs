use jiff::Timestamp;

use super::super::test_support::{end_leases, fill_the_disk, free_disk, test_store};
use super::super::{
    Branch, ConversationLock, ConversationRun, HandOver, RunEnd, RunStatus, SessionMessage, SessionSummary,
    StoredError, StoredPrefix, ToolOutcome, TurnMessage, Used,
};
use super::*;
use crate::test_support::conversation_created as conversation;
use sekisho_config::ProfilePrompt;

fn at(second: i64) -> DatabaseTime {
    Timestamp::from_second(second).unwrap().into()
}

fn run(id: &str, conversation: &str) -> ConversationRun {
    ConversationRun {
        id: id.into(),
        conversation: conversation.into(),
        number: 1,
        session_id: "s".into(),
        agent: "default".into(),
        claimed_executor: Some("nightly".into()),
        user_input: "hello".into(),
        status: RunStatus::Running,
        error: None,
        begun: at(100),
        ended: None,
    }
}

fn used(cost_usd: &str) -> RunUsage {
    RunUsage {
        turns: 2,
        tool_calls: 1,
        prompt_tokens: 10,
        completion_tokens: 5,
        cached_tokens: 3,
        cache_write_tokens: 1,
        cost_usd: cost_usd.parse().unwrap(),
        duration_ms: 7,
    }
}

fn usage(model: &str, cost_usd: &str) -> ModelUsageRow {
    let (agent, provider) = ("default".into(), "openai".into());
    ModelUsageRow { agent, provider, model: model.into(), used: used(cost_usd) }
}

fn execution(id: &str, position: i64) -> ToolExecution {
    let (turn, begun) = (1, at(101));
    let (tool_name, tool_input) = ("add".into(), "{}".into());
    ToolExecution { tool_use_id: id.into(), position, turn, tool_name, tool_input, output: None, begun, ended: None }
}

async fn lock(store: &Store, id: &str) -> ConversationLock {
    store.conversations().lock(id, None).await.unwrap().unwrap()
}

/// A conversation of ann with a run that is on.
async fn begun(store: &Store) -> (ConversationRun, ConversationLock) {
    store.conversations().add(&conversation("c", "ann", 1), 10).await.unwrap();
    let lock = lock(store, "c").await;
    let mut run = run("r", "c");
    assert!(store.conversation_runs().begin(&lock, &mut run).await.unwrap());
    assert_eq!((run.number, run.begun), (1, at(100)));
    (run, lock)
}

fn ended(run: &ConversationRun, status: RunStatus) -> ConversationRun {
    ConversationRun { status, ended: Some(at(110)), ..run.clone() }
}

async fn said(store: &Store, conversation: &str) -> Vec<String> {
    let found = store.conversation_logs().session_messages(conversation, "s", None, 100).await.unwrap();
    found.messages.into_iter().map(|message| message.log.message).collect()
}

fn filter<'a>(after: Option<(&'a str, i64)>, max: u32) -> LogFilter<'a> {
    LogFilter { caller_key: "ann", conversation: None, after, max }
}

#[tokio::test]
async fn a_run_ends_with_all_that_it_stores_and_gives_its_lock_back() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    let run = ended(&run, RunStatus::Succeeded);
    let (messages, usage) = (["1".to_owned(), "2".to_owned()], [usage("a", "0.000001"), usage("b", "0.2")]);
    let end = RunEnd {
        run: &run,
        lock: Some(&held),
        keeps_lock: false,
        messages: &messages,
        title: Some("t"),
        used: Used { rows: &usage, charges: &[] },
    };
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some(), "it is stored");
    let other = RunEnd { run: &ended(&run, RunStatus::Failed), ..end.clone() };
    assert!(store.conversation_runs().end(&other).await.unwrap().is_none(), "it has one end");
    let stored = store.conversations().get("ann", "c").await.unwrap().unwrap();
    assert_eq!((stored.session_id.as_deref(), stored.title.as_deref()), (Some("s"), Some("t")));
    assert_eq!(store.conversation_runs().get("ann", "r").await.unwrap(), Some(run));
    assert_eq!(store.conversation_runs().get("bob", "r").await.unwrap(), None);
    let said = store.conversation_logs().session_messages("c", "s", None, 100).await.unwrap().messages;
    assert_eq!(
        said.iter().map(|SessionMessage { log, .. }| (&*log.message, log.incomplete)).collect::<Vec<_>>(),
        [("1", false), ("2", false)]
    );
    assert_eq!(store.conversation_logs().usage_of_run("r").await.unwrap(), usage);
    lock(&store, "c").await;
}

/// Its process was ahead in time. A run that begins at once does not begin before that end, and does not end before it began.
#[tokio::test]
async fn a_run_begins_after_the_end_of_the_one_before() {
    let store = test_store().await;
    let (run_before, held) = begun(&store).await;
    let before = ended(&run_before, RunStatus::Succeeded);
    let end =
        RunEnd { run: &before, lock: Some(&held), keeps_lock: true, messages: &[], title: None, used: Used::default() };
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
    let mut next = ConversationRun { begun: at(109), ..run("s", "c") };
    assert!(store.conversation_runs().begin(&held, &mut next).await.unwrap());
    assert_eq!((next.number, next.begun), (2, at(110)));
    next.end_at(at(109));
    assert_eq!(next.ended, Some(at(110)));
    let mut later = ConversationRun { begun: at(120), ..run("t", "c") };
    assert!(store.conversation_runs().begin(&held, &mut later).await.unwrap());
    assert_eq!((later.number, later.begun), (3, at(120)));
}

#[tokio::test]
async fn a_holder_that_lost_its_lock_stores_nothing() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    end_leases(&store).await;
    let _other = lock(&store, "c").await;
    let run = ended(&run, RunStatus::Succeeded);
    let messages = ["1".to_owned()];
    for lock in [Some(&held), None] {
        let end =
            RunEnd { run: &run, lock, keeps_lock: false, messages: &messages, title: None, used: Used::default() };
        assert!(store.conversation_runs().end(&end).await.unwrap().is_none());
    }
    assert_eq!(store.conversation_runs().messages("c", 0, 10).await.unwrap(), []);
    assert_eq!(store.conversation_runs().of_conversation("c", None, 10).await.unwrap()[0].status, RunStatus::Running);
}

#[tokio::test]
async fn the_end_of_a_run_that_a_full_disk_refuses_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    let (run, held) = begun(&store).await;
    let run = ended(&run, RunStatus::Succeeded);
    let messages = ["x".repeat(1 << 20)];
    let end = RunEnd {
        run: &run,
        lock: Some(&held),
        keeps_lock: false,
        messages: &messages,
        title: Some("t"),
        used: Used { rows: &[usage("a", "1")], charges: &[] },
    };
    fill_the_disk(&store).await;
    store.conversation_runs().end(&end).await.unwrap_err();
    free_disk(&store).await;
    assert_eq!(store.conversations().get("ann", "c").await.unwrap().unwrap().title, None);
    assert_eq!(store.conversation_runs().of_conversation("c", None, 1).await.unwrap()[0].status, RunStatus::Running);
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
}

#[tokio::test]
async fn the_journal_has_what_was_answered_and_what_was_only_begun() {
    let store = test_store().await;
    let (_run, held) = begun(&store).await;
    let turn = TurnMessage { turn: 1, message: "{}".into() };
    assert!(store.conversation_runs().add_turn(&held, "r", &turn).await.unwrap());
    for (position, id) in (0..).zip(["x", "y"]) {
        assert!(
            store
                .conversation_runs()
                .begin_tool_execution(&held, "r", &execution(id, position), Used::default())
                .await
                .unwrap()
                .is_some()
        );
    }
    let outcome = ToolOutcome { text: "3".into(), images: Some("[]".into()), is_error: false };
    store.conversation_runs().end_tool_execution(("r", "x"), &outcome, &[], Some(at(102))).await.unwrap();
    let calls = store.conversation_runs().tool_executions("r").await.unwrap();
    assert_eq!(
        calls,
        [ToolExecution { output: Some(outcome), ended: Some(at(102)), ..execution("x", 0) }, execution("y", 1)]
    );
    assert_eq!(store.conversation_runs().turns_of("r").await.unwrap(), [turn]);
    // Sent again, its answer is not known again.
    assert!(
        store
            .conversation_runs()
            .begin_tool_execution(&held, "r", &execution("x", 0), Used::default())
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(store.conversation_runs().tool_executions("r").await.unwrap()[0].output, None);
    // Without the lock nothing is added.
    store.conversations().unlock(&held).await.unwrap();
    let later = TurnMessage { turn: 2, message: "{}".into() };
    assert!(!store.conversation_runs().add_turn(&held, "r", &later).await.unwrap());
    assert!(
        store
            .conversation_runs()
            .begin_tool_execution(&held, "r", &execution("z", 2), Used::default())
            .await
            .unwrap()
            .is_none()
    );
    let _next = lock(&store, "c").await;
    assert!(!store.conversation_runs().add_turn(&held, "r", &later).await.unwrap());
    assert_eq!(store.conversation_runs().tool_executions("r").await.unwrap().len(), 2);
}

#[tokio::test]
async fn texts_with_a_null_character_are_stored() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    let mut second = ConversationRun { id: "s".into(), user_input: "a\0b".into(), ..run };
    assert!(store.conversation_runs().begin(&held, &mut second).await.unwrap());
    assert!(
        store
            .conversation_runs()
            .begin_tool_execution(&held, "r", &execution("x", 0), Used::default())
            .await
            .unwrap()
            .is_some()
    );
    let outcome = ToolOutcome { text: "\0".into(), images: None, is_error: false };
    store.conversation_runs().end_tool_execution(("r", "x"), &outcome, &[], Some(at(102))).await.unwrap();
    assert_eq!(store.conversation_runs().get("ann", "s").await.unwrap().unwrap().user_input, "a\u{FFFD}b".into());
    let stored = store.conversation_runs().tool_executions("r").await.unwrap().remove(0).output;
    assert_eq!(stored.map(|outcome| outcome.text).as_deref(), Some("\u{FFFD}"));
}

#[tokio::test]
async fn runs_of_ended_processes_are_found_when_their_lock_is_free_or_with_it() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    let runs = store.conversation_runs();
    assert_eq!(runs.interrupted().await.unwrap(), []);
    end_leases(&store).await;
    assert_eq!(runs.interrupted().await.unwrap(), std::slice::from_ref(&run));
    let next = lock(&store, "c").await;
    assert_eq!(runs.interrupted().await.unwrap(), []);
    assert_eq!(runs.interrupted_in(&next).await.unwrap(), std::slice::from_ref(&run));
    assert_eq!(runs.interrupted_in(&held).await.unwrap(), []);
    let error = StoredError { code: "interrupted".into(), message: "its process ended".into() };
    let run = ConversationRun { error: Some(error), ..ended(&run, RunStatus::Interrupted) };
    let end = RunEnd {
        run: &run,
        lock: None,
        keeps_lock: false,
        messages: &["1".to_owned()],
        title: None,
        used: Used::default(),
    };
    assert!(store.conversation_runs().end(&end).await.unwrap().is_none(), "another process has the lock");
    store.conversations().unlock(&next).await.unwrap();
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
    assert!(store.conversation_runs().messages("c", 0, 10).await.unwrap()[0].incomplete);
    assert_eq!(store.conversation_runs().get("ann", "r").await.unwrap(), Some(run));
}

#[tokio::test]
async fn logs_are_read_in_pages_and_by_their_caller_alone() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    let run = ended(&run, RunStatus::Failed);
    let messages = ["1".to_owned(), "2".to_owned(), "3".to_owned()];
    let end = RunEnd {
        run: &run,
        lock: Some(&held),
        keeps_lock: false,
        messages: &messages,
        title: None,
        used: Used { rows: &[usage("a", "0.1")], charges: &[] },
    };
    assert!(
        store
            .conversation_runs()
            .begin_tool_execution(&held, "r", &execution("x", 0), Used::default())
            .await
            .unwrap()
            .is_some()
    );
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
    let first = store.conversation_logs().messages(&filter(None, 2)).await.unwrap();
    assert_eq!(first.iter().map(|log| (&*log.run, log.position)).collect::<Vec<_>>(), [("r", 0), ("r", 1)]);
    let rest = store.conversation_logs().messages(&filter(Some(("r", 1)), 2)).await.unwrap();
    assert_eq!(
        rest.iter().map(|log| (&*log.row.row.message, log.row.row.incomplete)).collect::<Vec<_>>(),
        [("3", true)]
    );
    assert_eq!(store.conversation_logs().usage(&filter(None, 9)).await.unwrap()[0].row, usage("a", "0.1"));
    assert_eq!(
        store.conversation_logs().tool_executions(&filter(None, 9)).await.unwrap()[0].row.row,
        execution("x", 0)
    );
    for other in [
        LogFilter { caller_key: "bob", ..filter(None, 9) },
        LogFilter { conversation: Some("other"), ..filter(None, 9) },
    ] {
        assert!(store.conversation_logs().messages(&other).await.unwrap().is_empty());
        assert!(store.conversation_logs().usage(&other).await.unwrap().is_empty());
        assert!(store.conversation_logs().tool_executions(&other).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_conversation_is_removed_with_its_runs_but_not_while_one_is_on() {
    let store = test_store().await;
    let (_run, held) = begun(&store).await;
    assert!(
        store
            .conversation_runs()
            .begin_tool_execution(&held, "r", &execution("x", 0), Used::default())
            .await
            .unwrap()
            .is_some()
    );
    assert!(!store.conversations().delete("c").await.unwrap());
    store.conversations().unlock(&held).await.unwrap();
    assert!(store.conversations().delete("c").await.unwrap());
    assert!(!store.conversations().delete("c").await.unwrap());
    assert!(store.conversation_runs().of_conversation("c", None, 10).await.unwrap().is_empty());
    assert!(store.conversation_runs().tool_executions("r").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_fork_has_the_messages_up_to_one_and_old_logs_go() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    let run = ended(&run, RunStatus::Succeeded);
    let messages = ["1".to_owned(), "2".to_owned()];
    let end = RunEnd {
        run: &run,
        lock: Some(&held),
        keeps_lock: false,
        messages: &messages,
        title: None,
        used: Used { rows: &[usage("a", "0.1")], charges: &[] },
    };
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
    let fork = Conversation { session_id: Some("s".into()), ..conversation("f", "ann", 200_000_000) };
    let copied = CopiedRun { id: "r".into(), new_id: "r2".into(), up_to: 0 };
    let summary = SessionSummary { text: "so far".into(), last: (1, 0), hand_over: None };
    store.conversation_logs().keep_session_summary("c", "s", &summary).await.unwrap();
    assert!(!store.conversations().fork(&fork, std::slice::from_ref(&copied), 1).await.unwrap(), "too many");
    assert_eq!(store.conversations().get("ann", "f").await.unwrap(), None);
    // The original went on after the run, with one agent more.
    let news = |runs: &[i64]| runs.iter().map(|run| (*run, "{}".to_owned())).collect();
    let prefix = |first_run, news| StoredPrefix { first_run, prefix: "{}".into(), news };
    store.conversation_logs().keep_session_prefix("c", "s", "a", &prefix(1, news(&[1, 2]))).await.unwrap();
    store.conversation_logs().keep_session_prefix("c", "s", "b", &prefix(2, news(&[]))).await.unwrap();
    assert!(store.conversations().fork(&fork, &[copied], 2).await.unwrap());
    assert_eq!(store.conversation_logs().session_summary("f", "s").await.unwrap(), None, "of messages it may not have");
    assert_eq!(store.conversation_logs().session_prefix("f", "s", "a").await.unwrap(), Some(prefix(1, news(&[1]))));
    assert_eq!(
        store.conversation_logs().session_prefix("f", "s", "b").await.unwrap(),
        None,
        "of a run it does not have"
    );
    assert_eq!(said(&store, "f").await, ["1"]);
    assert_eq!(said(&store, "c").await, ["1", "2"]);
    assert_eq!(store.conversation_logs().usage(&filter(None, 9)).await.unwrap().len(), 1, "no usage counts twice");
    // The first one changed at second 110, the fork at second 200.
    store.conversation_logs().forget_before(at(150)).await.unwrap();
    assert_eq!(said(&store, "c").await, [""; 0]);
    assert_eq!(store.conversation_logs().session_summary("c", "s").await.unwrap(), None);
    assert_eq!(store.conversation_logs().session_prefix("c", "s", "a").await.unwrap(), None);
    assert_eq!(store.conversation_runs().of_conversation("c", None, 9).await.unwrap().len(), 1);
    assert_eq!(said(&store, "f").await, ["1"]);
}

#[tokio::test]
async fn the_latest_messages_of_a_session_are_read_as_far_as_they_are_wanted() {
    let store = test_store().await;
    let (run, held) = begun(&store).await;
    let run = ended(&run, RunStatus::Succeeded);
    let messages = ["1111", "2222", "33333"].map(str::to_owned);
    let lock = Some(&held);
    let end = RunEnd { run: &run, lock, keeps_lock: false, messages: &messages, title: None, used: Used::default() };
    assert!(store.conversation_runs().end(&end).await.unwrap().is_some());
    for (after, max, expected, left_out) in [
        (None, 100, &["1111", "2222", "33333"][..], 0),
        (None, 12, &["2222", "33333"], 1),
        (None, 8, &["33333"], 2),
        (None, 1, &["33333"], 2),
        (Some((1, 0)), 100, &["2222", "33333"], 0),
        (Some((1, 2)), 100, &[], 0),
        (Some((0, 9)), 13, &["1111", "2222", "33333"], 0),
    ] {
        let found = store.conversation_logs().session_messages("c", "s", after, max).await.unwrap();
        let texts: Vec<_> = found.messages.iter().map(|message| &*message.log.message).collect();
        assert_eq!((&texts[..], found.left_out), (expected, left_out), "{after:?}, {max}");
    }
    assert!(
        store.conversation_logs().has_session("c", "s").await.unwrap()
            && !store.conversation_logs().has_session("c", "other").await.unwrap()
    );
    assert!(
        store.conversation_logs().has_message("r", 2).await.unwrap()
            && !store.conversation_logs().has_message("r", 3).await.unwrap()
    );
    let hand_over = HandOver { earlier: "before".into(), kept: "[]".into() };
    for hand_over in [None, Some(hand_over)] {
        let summary = SessionSummary { text: "so far".into(), last: (1, 1), hand_over };
        store.conversation_logs().keep_session_summary("c", "s", &summary).await.unwrap();
        assert_eq!(store.conversation_logs().session_summary("c", "s").await.unwrap(), Some(summary));
    }
    for news in [Vec::new(), vec![(1, "{}".to_owned())]] {
        let prefix = StoredPrefix { first_run: 1, prefix: "{}".into(), news };
        store.conversation_logs().keep_session_prefix("c", "s", "a", &prefix).await.unwrap();
        assert_eq!(store.conversation_logs().session_prefix("c", "s", "a").await.unwrap(), Some(prefix));
        assert_eq!(store.conversation_logs().session_prefix("c", "s", "b").await.unwrap(), None, "another agent's");
    }
    let fork = Conversation { session_id: Some("s".into()), ..conversation("f", "ann", 1) };
    let copied = CopiedRun { id: "r".into(), new_id: "r2".into(), up_to: 0 };
    assert!(store.conversations().fork(&fork, &[copied], 9).await.unwrap());
    let of_fork = store.conversation_logs().session_summary("f", "s").await.unwrap();
    assert!(of_fork.is_some_and(|summary| summary.hand_over.is_some()), "the beginning of the session");
    a_branch_has_a_session_of_its_own(&store).await;
    assert!(store.conversations().delete("c").await.unwrap());
    assert_eq!(store.conversation_logs().session_summary("c", "s").await.unwrap(), None);
    assert_eq!(store.conversation_logs().session_prefix("c", "s", "a").await.unwrap(), None);
}

/// Of the run `r` in the session `s`, which begins with a summary.
async fn a_branch_has_a_session_of_its_own(store: &Store) {
    let logs = store.conversation_logs();
    let branch = Branch { run: "r".into(), model: Some("m".into()), prompt: Some(ProfilePrompt::default()) };
    let branch = Conversation { session_id: Some("t".into()), branch: Some(branch), ..conversation("b", "ann", 1) };
    let copied = CopiedRun { id: "r".into(), new_id: "r3".into(), up_to: 0 };
    assert!(store.conversations().branch(&branch, &[copied], "s", 9).await.unwrap());
    assert_eq!(store.conversations().get("ann", "b").await.unwrap(), Some(branch));
    assert!(logs.has_session("b", "t").await.unwrap() && !logs.has_session("b", "s").await.unwrap());
    assert!(logs.has_message("r3", 0).await.unwrap() && !logs.has_message("r3", 1).await.unwrap());
    let hand_over = Some(HandOver { earlier: "s".into(), kept: "[]".into() });
    let expected = SessionSummary { text: "so far".into(), last: (0, -1), hand_over };
    assert_eq!(logs.session_summary("b", "t").await.unwrap(), Some(expected));
    assert_eq!(logs.session_prefix("b", "t", "a").await.unwrap(), None, "its requests begin with other bytes");
    assert!(logs.has_session("c", "s").await.unwrap(), "the original stays");
}

#[tokio::test]
async fn the_prefixes_of_the_latest_sessions_are_kept() {
    let store = test_store().await;
    let logs = store.conversation_logs();
    let prefix = StoredPrefix { first_run: 1, prefix: "{}".into(), news: Vec::new() };
    for number in 0..20 {
        logs.keep_session_prefix("c", &format!("s{number:02}"), "a", &prefix).await.unwrap();
    }
    logs.keep_session_prefix("c", "s00", "a", &prefix).await.unwrap();
    let mut kept = Vec::new();
    for number in 0..20 {
        let found = logs.session_prefix("c", &format!("s{number:02}"), "a").await.unwrap();
        kept.extend(found.map(|_| number));
    }
    assert_eq!(kept, [0].into_iter().chain(4..20).collect::<Vec<_>>(), "and an earlier one that is continued");
}

#[tokio::test]
async fn of_many_ids_those_are_found_whose_conversations_have_workspaces() {
    let store = test_store().await;
    for (id, workspace, changed) in
        [("kept", true, 100), ("old", true, 10), ("without", false, 100), ("other", true, 100)]
    {
        let conversation = Conversation { workspace, changed: at(changed), ..conversation(id, "ann", 1) };
        store.conversations().add(&conversation, 10).await.unwrap();
    }
    let unknown: Vec<_> = (0..MAX_IDS).map(|number| number.to_string()).collect();
    let mut ids: Vec<_> = unknown.iter().map(String::as_str).collect();
    ids.extend(["kept", "old", "without"]);
    let found = store.conversations().with_workspaces_among(&ids, at(50)).await.unwrap();
    assert_eq!(found, [("ann".to_owned(), "kept".to_owned())]);
    assert_eq!(store.conversations().with_workspaces_among(&[], at(50)).await.unwrap(), []);
}
