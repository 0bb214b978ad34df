use super::*;
use crate::agent::message::{AssistantTurn, RequestedCall, ToolMessage};

async fn store() -> Store {
    Store::in_memory().await.unwrap()
}

fn user(text: &str) -> Message {
    Message::User(text.into())
}

fn turn(text: &str, ids: &[&str]) -> Message {
    let call = |id: &&str| RequestedCall::new((*id).into(), "click".into(), "{}".into());
    Message::Assistant(AssistantTurn::new(text, ids.iter().map(call)))
}

fn result(id: &str, text: &str) -> Message {
    Message::Tool(ToolMessage { call_id: id.into(), tool: "click".into(), text: text.into(), ..ToolMessage::default() })
}

/// Ids of calls and results, in order.
fn outline(messages: &[Message]) -> Vec<String> {
    let each = |message: &Message| match message {
        Message::Assistant(turn) => {
            let ids: Vec<_> = turn.calls().map(|call| call.id.as_str()).collect();
            format!("{}({})", turn.text(), ids.join(","))
        }
        Message::Tool(result) => format!("{}={}", result.call_id, result.text),
        Message::System(text) => text.clone(),
        Message::User(message) => message.text(),
    };
    messages.iter().map(each).collect()
}

#[tokio::test]
async fn what_the_gateway_did_is_restored_for_its_caller() {
    let store = store().await;
    let added = [turn("one", &["a"]), result("a", "1"), turn("two", &["b", "c", "d"]), result("b", "2")];
    keep(&store, "ann", &[user("go")], &added).await.unwrap();
    let shown = || vec![user("go"), turn("", &["c", "d"])];
    let whole = ["go", "one(a)", "a=1", "two(b,c,d)", "b=2"];
    assert_eq!(outline(&restore(&store, "ann", shown()).await.unwrap()), whole);
    assert_eq!(outline(&restore(&store, "ann", shown()).await.unwrap()), whole, "a client may try again");
    assert_eq!(outline(&restore(&store, "bob", shown()).await.unwrap()), ["go", "(c,d)"]);
}

#[tokio::test]
async fn a_run_is_found_after_the_messages_it_began_with_and_no_others() {
    let store = store().await;
    let system = |text: &str| Message::System(text.into());
    let begun = [system("It is 9:00."), user("go"), turn("", &["z"]), result("z", "0")];
    keep(&store, "ann", &begun, &[turn("one", &["a"]), result("a", "1"), turn("two", &["c"])]).await.unwrap();
    let found = async |before: &[Message], ids: &[&str]| {
        let messages = [before, &[turn("", ids), result("c", "3")]].concat();
        restore(&store, "ann", messages.clone()).await.unwrap() != messages
    };
    assert!(found(&begun, &["c"]).await);
    assert!(found(&[system("It is 9:01."), user("go"), turn("", &["z"]), result("z", "0")], &["c"]).await);
    for (before, ids) in [
        (vec![], &["c"][..]),
        (vec![user("go")], &["c"]),
        (vec![user("stop"), turn("", &["z"]), result("z", "0")], &["c"]),
        (vec![user("go"), turn("", &["z"]), result("z", "1")], &["c"]),
        (vec![user("go"), turn("", &["y"]), result("z", "0")], &["c"]),
        (vec![user("go"), turn("", &["z"]), result("z", "0"), user("and?")], &["c"]),
        (begun.to_vec(), &["a"]),
        (begun.to_vec(), &["c", "c"]),
        (begun.to_vec(), &["c", "x"]),
        (begun.to_vec(), &[]),
    ] {
        assert!(!found(&before, ids).await, "{:?} {ids:?}", outline(&before));
    }
}

#[tokio::test]
async fn every_paused_turn_of_a_conversation_is_restored() {
    let store = store().await;
    keep(&store, "ann", &[user("go")], &[turn("", &["a"]), result("a", "1"), turn("", &["b"])]).await.unwrap();
    let later = [user("go"), turn("", &["b"]), result("b", "2")];
    keep(&store, "ann", &later, &[turn("", &["c"]), result("c", "3"), turn("", &["d"])]).await.unwrap();
    let shown = [&later[..], &[turn("", &["d"]), result("d", "4")]].concat();
    let whole = ["go", "(a)", "a=1", "(b)", "b=2", "(c)", "c=3", "(d)", "d=4"];
    assert_eq!(outline(&restore(&store, "ann", shown).await.unwrap()), whole);
}

#[test]
fn transcripts_of_the_same_text_in_other_messages_differ() {
    let called = AssistantTurn::new("t", [RequestedCall::new("tool".into(), "a".into(), "b".into())]);
    let answered = [turn("t", &[]), result("a", "b")];
    assert_ne!(transcript_of(&[Message::Assistant(called)]), transcript_of(&answered));
    assert_ne!(transcript_of(&[user("ab"), user("c")]), transcript_of(&[user("a"), user("bc")]));
}

#[tokio::test]
async fn nothing_is_stored_without_a_call_for_the_client() {
    let store = store().await;
    for added in [
        vec![turn("", &["a"]), result("a", "1"), turn("done", &[])],
        vec![turn("", &["a"]), result("a", "1")],
        Vec::new(),
    ] {
        keep(&store, "ann", &[user("go")], &added).await.unwrap();
    }
    assert!(store.paused_runs("ann", &["a"], Timestamp::now()).await.unwrap().is_empty());
}
