use super::*;
use crate::agent::message::{AssistantTurn, RequestedCall, ToolMessage};

fn key(key: &str) -> Arc<str> {
    key.into()
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

#[tokio::test(start_paused = true)]
async fn what_the_gateway_did_is_restored_for_its_caller_within_ten_minutes() {
    let paused_runs = PausedRuns::default();
    let added = vec![turn("one", &["a"]), result("a", "1"), turn("two", &["b", "c", "d"]), result("b", "2")];
    paused_runs.keep(&key("ann"), &[user("go")], added);
    let shown = || vec![user("go"), turn("", &["c", "d"])];
    let whole = ["go", "one(a)", "a=1", "two(b,c,d)", "b=2"];
    assert_eq!(outline(&paused_runs.restore("ann", shown())), whole);
    assert_eq!(outline(&paused_runs.restore("ann", shown())), whole, "a client may try again");
    let untouched = ["go", "(c,d)"];
    assert_eq!(outline(&paused_runs.restore("bob", shown())), untouched);
    tokio::time::advance(RUN_TTL).await;
    assert_eq!(outline(&paused_runs.restore("ann", shown())), untouched);
}

#[tokio::test]
async fn a_run_is_found_after_the_messages_it_began_with_and_no_others() {
    let paused_runs = PausedRuns::default();
    let system = |text: &str| Message::System(text.into());
    let begun = [system("It is 9:00."), user("go"), turn("", &["z"]), result("z", "0")];
    paused_runs.keep(&key("ann"), &begun, vec![turn("one", &["a"]), result("a", "1"), turn("two", &["c"])]);
    let found = |before: &[Message], ids: &[&str]| {
        let messages = [before, &[turn("", ids), result("c", "3")]].concat();
        paused_runs.restore("ann", messages.clone()) != messages
    };
    assert!(found(&begun, &["c"]));
    assert!(found(&[system("It is 9:01."), user("go"), turn("", &["z"]), result("z", "0")], &["c"]));
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
        assert!(!found(&before, ids), "{:?} {ids:?}", outline(&before));
    }
}

#[tokio::test]
async fn every_paused_turn_of_a_conversation_is_restored() {
    let paused_runs = PausedRuns::default();
    paused_runs.keep(&key("ann"), &[user("go")], vec![turn("", &["a"]), result("a", "1"), turn("", &["b"])]);
    let later = [user("go"), turn("", &["b"]), result("b", "2")];
    paused_runs.keep(&key("ann"), &later, vec![turn("", &["c"]), result("c", "3"), turn("", &["d"])]);
    let shown = [&later[..], &[turn("", &["d"]), result("d", "4")]].concat();
    let whole = ["go", "(a)", "a=1", "(b)", "b=2", "(c)", "c=3", "(d)", "d=4"];
    assert_eq!(outline(&paused_runs.restore("ann", shown)), whole);
}

#[test]
fn transcripts_of_the_same_text_in_other_messages_differ() {
    let called = AssistantTurn::new("t", [RequestedCall::new("tool".into(), "a".into(), "b".into())]);
    let answered = [turn("t", &[]), result("a", "b")];
    assert_ne!(Transcript::of(&[Message::Assistant(called)]), Transcript::of(&answered));
    assert_ne!(Transcript::of(&[user("ab"), user("c")]), Transcript::of(&[user("a"), user("bc")]));
}

#[tokio::test]
async fn nothing_is_stored_without_a_call_for_the_client() {
    let paused_runs = PausedRuns::default();
    paused_runs.keep(&key("ann"), &[user("go")], vec![turn("", &["a"]), result("a", "1"), turn("done", &[])]);
    paused_runs.keep(&key("ann"), &[user("go")], vec![turn("", &["a"]), result("a", "1")]);
    paused_runs.keep(&key("ann"), &[user("go")], Vec::new());
    assert!(paused_runs.0.lock().by_call.is_empty());
}

#[tokio::test(start_paused = true)]
async fn above_the_memory_limit_the_oldest_run_of_the_largest_caller_is_evicted() {
    let paused_runs = PausedRuns::default();
    let keep = |caller: &str, id: &str, size: usize| {
        paused_runs.keep(&key(caller), &[], vec![turn("", &["own", id]), result("own", &"x".repeat(size))]);
    };
    let found = |caller: &str, id: &str| paused_runs.restore(caller, vec![turn("", &[id])]).len() > 1;
    keep("bob", "his", MAX_BYTES / 8);
    for id in ["0", "1", "2", "3"] {
        keep("ann", id, MAX_BYTES / 4);
    }
    assert_eq!(["0", "1", "2", "3"].map(|id| found("ann", id)), [false, true, true, true]);
    assert!(found("bob", "his"), "the oldest of all, and another caller's");
    let (bobs, anns) = (["his", "second", "third"], ["1", "2", "3"]);
    keep("bob", "second", MAX_BYTES * 5 / 16);
    assert_eq!(
        (bobs.map(|id| found("bob", id)), anns.map(|id| found("ann", id))),
        ([true, true, false], [false, true, true])
    );
    keep("bob", "third", MAX_BYTES * 5 / 16);
    assert_eq!(
        (bobs.map(|id| found("bob", id)), anns.map(|id| found("ann", id))),
        ([false, false, true], [false, true, true])
    );
    // Expired runs are evicted when the next one is added.
    tokio::time::advance(RUN_TTL).await;
    keep("ann", "last", 1);
    let runs = paused_runs.0.lock();
    assert_eq!((runs.by_call.len(), runs.order.len(), runs.bytes_of.len()), (1, 1, 1));
    assert!(runs.bytes < 4 * OVERHEAD_BYTES + 8, "{}", runs.bytes);
}
