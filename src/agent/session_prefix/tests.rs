//! The prefix of a session over several runs, without a gateway.

use jiff::civil::date;
use serde_json::json;

use super::*;
use crate::message::{AssistantTurn, Thought, TurnPart};
use crate::session_news::NEWS;
use sekisho_store::test_support::test_store;

fn tool(name: &str) -> ToolDescription {
    let parameters = Arc::new(json!({"z": 1, "a": 2}));
    ToolDescription { name: name.into(), description: "Does it.".into(), parameters, is_deferred: false }
}

fn user(text: &str) -> Message {
    Message::User(text.into())
}

fn text_of(message: &Message) -> String {
    match message {
        Message::User(message) => message.text(),
        Message::System(_) | Message::Assistant(_) | Message::Tool(_) => String::new(),
    }
}

/// The prefix of a run, as it is loaded when that begins.
async fn of_run(store: &Store, run: i64, files: &[&str]) -> SessionPrefix {
    SessionPrefix {
        store: store.clone(),
        conversation: "c".into(),
        session: "s".into(),
        agent: "a".into(),
        run,
        kept: KeptPrefix::load(store, ["c", "s", "a"]).await.unwrap(),
        files: Some(files.iter().map(|file| (*file).to_owned()).collect()),
        skills: String::new(),
    }
}

/// The prefix and the text of the user's message that a run sends on a day of December 2026.
async fn settled(prefix: &SessionPrefix, day: i8, tools: &[ToolDescription], said: &str) -> (Frozen, String) {
    let mut messages = [user(said)];
    let now = ToolsNow { offered: tools, all: Some(tools) };
    let system = || format!("Today is the {day}th.");
    let frozen = prefix.settle(date(2026, 12, day), system, now, &mut messages).await.unwrap();
    (frozen, text_of(&messages[0]))
}

#[tokio::test]
async fn a_session_keeps_its_prompt_and_its_tools_and_learns_news_once() {
    let store = test_store().await;
    let first = [tool("one"), tool("two")];
    let (frozen, said) = settled(&of_run(&store, 1, &["x"]).await, 1, &first, "hello").await;
    assert_eq!((&*frozen.system, &*said), ("Today is the 1th.", "hello"));

    let later = [tool("three"), tool("one")];
    let (frozen, said) = settled(&of_run(&store, 2, &["x", "y"]).await, 2, &later, "and now?").await;
    assert_eq!((&*frozen.system, &frozen.tools[..]), ("Today is the 1th.", &first[..]), "the same bytes");
    assert!(said.starts_with(&format!("and now?\n\n{NEWS}\n- Today is 2026-12-02.\n")), "{said}");
    assert!(
        said.contains("New files in the workspace: \"y\".") && said.contains("fail when they are called: two."),
        "{said}"
    );

    let (_, said) = settled(&of_run(&store, 3, &["x", "y"]).await, 2, &later, "again").await;
    assert_eq!(said, "again", "nothing is said twice");
    let kept = KeptPrefix::load(&store, ["c", "s", "a"]).await.unwrap();
    let news = [1, 2, 3].map(|run| kept.news_of(run).is_some());
    assert_eq!(news, [false, true, false]);
    assert_eq!(KeptPrefix::load(&store, ["c", "s", "other"]).await.unwrap().news_of(2), None, "each agent has its own");
}

#[tokio::test]
async fn a_run_that_goes_on_without_the_user_learns_nothing() {
    let store = test_store().await;
    settled(&of_run(&store, 1, &[]).await, 1, &[tool("one")], "hello").await;
    let mut messages = [Message::Assistant(AssistantTurn::new("so", []))];
    let tools = [tool("one")];
    let now = ToolsNow { offered: &tools, all: Some(&tools) };
    of_run(&store, 2, &[]).await.settle(date(2026, 12, 2), String::new, now, &mut messages).await.unwrap();
    let (_, said) = settled(&of_run(&store, 3, &[]).await, 2, &tools, "and now?").await;
    assert!(said.contains("Today is 2026-12-02."), "the next message has it: {said}");
}

/// Thoughts of a conversation that an earlier version stored are bound to a prompt that nobody kept.
#[tokio::test]
async fn the_first_run_removes_thoughts_that_are_bound_to_another_beginning() {
    let store = test_store().await;
    let thoughts = [
        Thought::Signed { text: "hm".into(), signature: "s".into() },
        Thought::Redacted("c2VjcmV0".into()),
        Thought::Unsigned { text: "hm".into(), field: "reasoning_content" },
    ];
    let parts = thoughts.into_iter().map(TurnPart::Thought).chain([TurnPart::Text("so".into())]).collect();
    let mut messages = [user("a"), Message::Assistant(AssistantTurn { parts, api: None }), user("b")];
    let now = ToolsNow { offered: &[], all: Some(&[]) };
    let prefix = of_run(&store, 7, &[]).await;
    prefix.settle(date(2026, 12, 1), String::new, now, &mut messages).await.unwrap();
    let left: Vec<_> = messages[1].as_assistant().unwrap().thoughts().collect();
    assert!(matches!(left[..], [Thought::Unsigned { .. }]), "{left:?}");
    let kept = KeptPrefix::load(&store, ["c", "s", "a"]).await.unwrap();
    assert_eq!([6, 7, 8].map(|run| kept.binds(run)), [false, true, true]);
}

#[tokio::test]
async fn a_session_that_was_shortened_is_closed_and_one_without_a_message_has_no_news_of_it() {
    let store = test_store().await;
    settled(&of_run(&store, 1, &[]).await, 1, &[], "hello").await;
    let second = of_run(&store, 2, &[]).await;
    settled(&second, 2, &[], "more").await;
    second.close().await.unwrap();
    let mut kept = KeptPrefix::load(&store, ["c", "s", "a"]).await.unwrap();
    assert!(kept.is_closed() && kept.news_of(2).is_some());
    kept.keep_news_of(&[1, 2].into());
    assert!(kept.news_of(2).is_some());
    kept.keep_news_of(&[1, 3].into());
    assert_eq!(kept.news_of(2), None);
}
