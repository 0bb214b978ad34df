use super::*;
use crate::message::{AssistantTurn, RequestedCall, ToolMessage};

async fn keep(store: &Store, caller: &str, transcript: &[Message], added: &[Message]) -> Result<(), CallError> {
    super::keep(store, caller, transcript, (added, &SentPrefix::default())).await
}

async fn restore(store: &Store, caller: &str, messages: Vec<Message>) -> Result<Vec<Message>, CallError> {
    Ok(super::restore(store, caller, messages).await?.messages)
}

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

/// A turn of a run with a thought that its provider has signed.
fn thoughtful(id: &str) -> Message {
    let Message::Assistant(mut turn) = turn("", &[id]) else { panic!() };
    turn.api = Some("api".into());
    let thought = crate::message::Thought::Signed { text: "hm".into(), signature: "s".into() };
    turn.parts.insert(0, crate::message::TurnPart::Thought(thought));
    Message::Assistant(turn)
}

#[tokio::test]
async fn a_session_of_a_client_goes_on_with_the_beginning_of_its_runs() {
    let prefix = |system: &str| SentPrefix { system: system.into(), ..SentPrefix::default() };
    for (second, thoughts) in [("Today is the 1st.", 2), ("Today is the 2nd.", 0)] {
        let store = store().await;
        let first = prefix("Today is the 1st.");
        super::keep(&store, "ann", &[user("go")], (&[thoughtful("a")], &first)).await.unwrap();
        let shown = vec![user("go"), turn("", &["a"]), result("a", "1")];
        super::keep(&store, "ann", &shown, (&[thoughtful("b")], &prefix(second))).await.unwrap();
        let whole = [&shown[..], &[turn("", &["b"]), result("b", "2")]].concat();
        let restored = super::restore(&store, "ann", whole).await.unwrap();
        assert_eq!(restored.prefix, Some(first));
        let turns = restored.messages.iter().filter_map(Message::as_assistant);
        assert_eq!(turns.map(|turn| turn.thoughts().count()).sum::<usize>(), thoughts, "{second}");
    }
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
    assert!(store.paused_runs().waiting_for("ann", &["a"], store.now()).await.unwrap().is_empty());
}

/// A turn as a run adds it: the last call waits for an approver.
fn paused_turn(ids: &[&str]) -> Message {
    let Message::Assistant(mut turn) = turn("", ids) else { panic!() };
    turn.api = Some("api".into());
    turn.calls_mut().last().unwrap().approval = Some("p".into());
    Message::Assistant(turn)
}

/// The message with the calls that wait, as the client got it.
fn sent_back(client: &[&str], waiting: &[&str]) -> Message {
    let Message::Assistant(mut turn) = turn("", client) else { panic!() };
    let waiting = waiting.iter().map(|id| RequestedCall::paused((*id).into(), "click".into(), "p"));
    turn.parts.extend(waiting.map(crate::message::TurnPart::Call));
    Message::Assistant(turn)
}

#[tokio::test]
async fn a_run_that_waits_for_an_approver_is_restored_and_keeps_the_answer() {
    let store = store().await;
    keep(&store, "ann", &[user("go")], &[paused_turn(&["a", "b"]), result("a", "1")]).await.unwrap();
    let shown = vec![user("go"), sent_back(&[], &["b"])];
    let find = async |messages: &[Message]| restore(&store, "ann", messages.to_vec()).await;
    assert_eq!(outline(&find(&shown).await.unwrap()), ["go", "(a,b)", "a=1"]);
    // A client that adds each answer to its transcript.
    let repeated = [&shown[..], &[sent_back(&[], &["b"])]].concat();
    assert_eq!(outline(&find(&repeated).await.unwrap()), ["go", "(a,b)", "a=1"]);
    let Message::Tool(answer) = result("b", "2") else { panic!() };
    for _ in 0..2 {
        keep_answer(&store, "ann", &answer).await.unwrap();
    }
    let later = [&shown[..], &[turn("done", &[]), user("and?")]].concat();
    assert_eq!(outline(&find(&later).await.unwrap()), ["go", "(a,b)", "a=1", "b=2", "done()", "and?"]);
}

#[tokio::test]
async fn a_client_that_knows_nothing_of_approvals_goes_on_with_its_own_calls() {
    let store = store().await;
    let added = [paused_turn(&["a", "c", "b"]), result("a", "1")];
    keep(&store, "ann", &[user("go")], &added).await.unwrap();
    for waiting in [&["b"][..], &[]] {
        let shown = vec![user("go"), sent_back(&["c"], waiting), result("c", "3")];
        let restored = restore(&store, "ann", shown).await.unwrap();
        assert_eq!(outline(&restored), ["go", "(a,c,b)", "a=1", "c=3"], "{waiting:?}");
    }
}

#[tokio::test]
async fn a_run_that_is_not_kept_cannot_go_on_and_is_left_out_later() {
    let store = store().await;
    keep(&store, "ann", &[user("go")], &[paused_turn(&["b"])]).await.unwrap();
    let shown = [user("go"), sent_back(&[], &["b"])];
    for (caller, messages) in [
        ("bob", shown.to_vec()),
        ("ann", vec![user("stop"), shown[1].clone()]),
        ("ann", vec![shown[0].clone(), sent_back(&[], &["x"])]),
    ] {
        let error = restore(&store, caller, messages).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnknownSession, "{caller}: {error}");
    }
    let later = [&shown[..], &[turn("done", &[]), user("and?")]].concat();
    assert_eq!(outline(&restore(&store, "bob", later).await.unwrap()), ["go", "done()", "and?"]);
    let mut planned = vec![user("go"), paused_turn(&["a", "b"]), result("a", "1"), user("plan it")];
    forget_paused(&mut planned);
    assert_eq!(outline(&planned), ["go", "(a)", "a=1", "plan it"]);
}
