use super::*;
use crate::message::{RequestedCall, Thought, TurnPart};

fn user(text: &str) -> Message {
    Message::User(text.into())
}

fn said(text: &str) -> Message {
    Message::Assistant(AssistantTurn::new(text, []))
}

/// A turn that calls a tool, and its result with so many bytes.
fn call(id: &str, bytes: usize) -> [Message; 2] {
    let call = RequestedCall::new(id.into(), "read".into(), "{}".into());
    let thought = TurnPart::Thought(Thought::Signed { text: "hm".into(), signature: id.into() });
    let turn = AssistantTurn { parts: vec![thought, TurnPart::Call(call)], api: None };
    let result =
        ToolMessage { call_id: id.into(), tool: "read".into(), text: "x".repeat(bytes), ..ToolMessage::default() };
    [Message::Assistant(turn), Message::Tool(result)]
}

/// A run with five calls of 4,000 bytes after a question.
fn long_run() -> Vec<Message> {
    let calls = ["a", "b", "c", "d", "e"].into_iter().flat_map(|id| call(id, 4_000));
    [Message::System("be brief".into()), user("goal")].into_iter().chain(calls).collect()
}

/// A line for each message: its role, and its text or calls.
fn brief(view: &[Message]) -> Vec<String> {
    let line = |message: &Message| match message {
        Message::System(text) => format!("system {text}"),
        Message::User(message) => format!("user {}", message.text().replace('\n', "/")),
        Message::Assistant(turn) => {
            let calls: Vec<_> = turn.calls().map(|call| call.id.clone()).collect();
            format!("assistant {}{}", turn.text().replace('\n', "/"), calls.join(" "))
        }
        Message::Tool(result) if result.text.starts_with('[') => format!("line {}", result.call_id),
        Message::Tool(result) => format!("result {}", result.call_id),
    };
    view.iter().map(line).collect()
}

/// The view after a summary `S` of the messages that can be summarized.
fn summarized(conversation: &[Message], given: usize) -> Vec<String> {
    let mut compaction = Compaction::default();
    let task = compaction.next_to_summarize(conversation, given).unwrap();
    compaction.summarize(&task, Some("S".into()));
    assert_eq!(compaction.next_to_summarize(conversation, given), None, "nothing is summarized twice");
    brief(&compaction.view(conversation, given))
}

#[test]
fn nothing_changes_without_need() {
    let conversation = long_run();
    assert_eq!(Compaction::default().view(&conversation, 2), conversation);
}

#[test]
fn the_oldest_results_become_lines_until_enough_is_saved_and_the_last_turns_stay() {
    let conversation = long_run();
    for (excess, shortened, lines) in
        [(1, 1, vec!["a"]), (1_500, 2, vec!["a", "b"]), (1_000_000, 3, vec!["a", "b", "c"])]
    {
        let mut compaction = Compaction::default();
        assert_eq!(compaction.shorten_results(&conversation, 2, excess), shortened);
        let view = compaction.view(&conversation, 2);
        let expected: Vec<_> = lines.iter().map(|id| format!("line {id}")).collect();
        assert_eq!(brief(&view).into_iter().filter(|line| line.starts_with("line")).collect::<Vec<_>>(), expected);
        assert_eq!(compaction.shorten_results(&conversation, 2, 0), 0, "and no more");
    }
    let mut compaction = Compaction::default();
    compaction.shorten_results(&conversation, 2, 1);
    let Message::Tool(line) = &compaction.view(&conversation, 2)[3] else { panic!() };
    let expected = "[left out: 4000 bytes of the result of `read`, call a; call the tool again if you need it]";
    assert_eq!((line.text.as_str(), line.call_id.as_str()), (expected, "a"));
}

/// A provider refuses a thought after messages that are not those with which it was made.
#[test]
fn thoughts_of_a_shorter_form_are_left_out_and_later_ones_stay() {
    let mut conversation = long_run();
    let mut compaction = Compaction::default();
    compaction.shorten_results(&conversation, 2, 1);
    compaction.unbind_thoughts(&conversation);
    conversation.extend(call("f", 10));
    let with_thoughts: Vec<_> = compaction
        .view(&conversation, 2)
        .iter()
        .filter_map(Message::as_assistant)
        .map(|turn| turn.thoughts().count())
        .collect();
    assert_eq!(with_thoughts, [0, 0, 0, 0, 0, 1]);
}

#[test]
fn short_results_stay_and_images_go() {
    let mut conversation = vec![user("goal")];
    conversation.extend(["a", "b", "c", "d"].into_iter().flat_map(|id| call(id, 100)));
    let image = crate::message::Image { media_type: "image/png".into(), base64: "x".repeat(100) };
    if let Message::Tool(result) = &mut conversation[4] {
        result.images.push(image);
    }
    let mut compaction = Compaction::default();
    assert_eq!(compaction.shorten_results(&conversation, 1, 1_000_000), 1);
    let view = compaction.view(&conversation, 1);
    let Message::Tool(line) = &view[4] else { panic!() };
    assert!(line.images.is_empty() && line.text.contains("100 bytes and the images of"), "{}", line.text);
    assert!(brief(&view).contains(&"result a".to_owned()));
}

#[test]
fn the_older_part_becomes_a_summary_between_what_stays() {
    let rest = ["assistant d", "result d", "assistant e", "result e"];
    let expect = |head: &[&str]| -> Vec<String> { head.iter().chain(&rest).map(|line| (*line).to_owned()).collect() };
    let summary = "[Summary of the earlier conversation]/S";
    let goal = format!("user goal//{summary}");
    assert_eq!(summarized(&long_run(), 2), expect(&["system be brief", &goal]));

    // With a later question of the user, the summary is the answer in between.
    let exchanges = [user("goal"), said("one"), user("two?"), said("two"), user("question")];
    let calls = ["d", "e"].into_iter().flat_map(|id| call(id, 10));
    let conversation: Vec<_> = exchanges.clone().into_iter().chain(calls).collect();
    let between = format!("assistant {summary}");
    assert_eq!(summarized(&conversation, 5), expect(&["user goal", &between, "user question"]));

    // The rest begins with the user, so that roles alternate.
    assert_eq!(summarized(&exchanges, 5), ["user goal", &between, "user two?", "assistant two", "user question"]);
}

#[test]
fn a_later_summary_replaces_the_first_and_gets_it() {
    let mut conversation = long_run();
    let mut compaction = Compaction::default();
    let first = compaction.next_to_summarize(&conversation, 2).unwrap();
    assert_eq!((first.messages.len(), first.old.clone()), (6, None));
    compaction.summarize(&first, Some("first".into()));
    conversation.extend(["f", "g"].into_iter().flat_map(|id| call(id, 4_000)));
    let second = compaction.next_to_summarize(&conversation, 2).unwrap();
    assert_eq!((second.messages.len(), second.old.as_deref()), (4, Some("first")));
    let transcript = second.transcript(&conversation, 1_000);
    assert!(transcript.starts_with("Call of `read`: {}\n\nResult of `read`: xxx"), "{transcript}");
    assert!(transcript.len() < 1_200, "{}", transcript.len());
    compaction.summarize(&second, None);
    let view = brief(&compaction.view(&conversation, 2));
    assert!(view[1].contains("first//(4 further messages were left out.)"), "{view:?}");
    assert_eq!(view[2..], ["assistant f", "result f", "assistant g", "result g"]);
}

#[test]
fn there_may_be_nothing_to_summarize() {
    for conversation in [vec![], vec![user("goal")], vec![Message::System("s".into())], long_run()[..6].to_vec()] {
        assert_eq!(Compaction::default().next_to_summarize(&conversation, 2), None, "{conversation:?}");
    }
}

#[test]
fn of_a_long_transcript_the_latest_messages_are_kept() {
    let conversation = long_run();
    let task = Compaction::default().next_to_summarize(&conversation, 2).unwrap();
    let transcript = task.transcript(&conversation, 400);
    assert_eq!(transcript.matches("Result of").count(), 1, "{transcript}");
}
