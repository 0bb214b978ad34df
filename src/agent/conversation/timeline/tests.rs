use super::*;
use crate::message::{ToolMessage, TurnPart};
use sekisho_store::ToolOutcome;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn run(status: RunStatus, ended: Option<i64>) -> ConversationRun {
    ConversationRun {
        id: "r".into(),
        conversation: "c".into(),
        number: 1,
        session_id: "s".into(),
        agent: "main".into(),
        claimed_executor: None,
        user_input: "go".into(),
        status,
        error: None,
        begun: at(0).into(),
        ended: ended.map(|second| at(second).into()),
    }
}

/// `outcome`: whether it failed; `None` without an answer.
fn executed(id: &str, tool: &str, (begun, ended): (i64, Option<i64>), outcome: Option<bool>) -> ToolExecution {
    ToolExecution {
        tool_use_id: id.into(),
        position: begun,
        turn: 1,
        tool_name: tool.into(),
        tool_input: "{}".into(),
        output: outcome.map(|is_error| ToolOutcome { text: "x".into(), images: None, is_error }),
        begun: at(begun).into(),
        ended: ended.map(|second| at(second).into()),
    }
}

fn turn(text: &str, calls: &[&str], took: Option<u64>) -> (AssistantTurn, Option<Used>) {
    let calls = calls.iter().map(|id| RequestedCall::new((*id).into(), "add".into(), "{\"a\": 1}".into()));
    let used = took.map(|seconds| Used { duration_ms: seconds * 1_000, ..Used::default() });
    (AssistantTurn::new(text, calls), used)
}

/// Depth, name, state, begin and end of each step.
fn drawn(run: &ConversationRun, turns: &Turns, executions: &[ToolExecution]) -> Vec<String> {
    let second = |moment: &str| moment.parse::<Timestamp>().unwrap().as_second();
    let steps = Timeline::new(run, turns, executions).steps();
    let line = |step: RunStep| {
        let name = match step.work {
            StepWork::Turn { number, .. } => format!("turn {number}"),
            StepWork::Call { id, .. } => id,
        };
        let (begun, ended) = (second(&step.begun_at), step.ended_at.as_deref().map(second));
        format!("{} {name} {:?} {begun} {ended:?}", step.depth, step.state)
    };
    steps.into_iter().map(line).collect()
}

#[test]
fn turns_are_between_the_calls_and_sub_agents_below_theirs() {
    let turns = Turns { turns: vec![turn("", &["a", "t"], Some(2)), turn("done", &[], Some(3))], ..Turns::default() };
    let executions = [
        executed("a", "add", (3, Some(4)), Some(true)),
        executed("t", TASK, (4, Some(10)), Some(false)),
        executed("inner", "add", (5, Some(6)), Some(false)),
        executed("u", TASK, (6, Some(9)), Some(false)),
        executed("innermost", "add", (7, Some(8)), Some(false)),
    ];
    let expected = [
        // Its model took two seconds, and its first call began after three.
        "0 turn 1 Succeeded 1 Some(3)",
        "1 a Failed 3 Some(4)",
        "1 t Succeeded 4 Some(10)",
        "2 inner Succeeded 5 Some(6)",
        "2 u Succeeded 6 Some(9)",
        "3 innermost Succeeded 7 Some(8)",
        "0 turn 2 Succeeded 11 Some(14)",
    ];
    assert_eq!(drawn(&run(RunStatus::Succeeded, Some(14)), &turns, &executions), expected);
}

#[test]
fn a_turn_of_unknown_length_fills_the_time_since_the_calls_before() {
    let turns = Turns { turns: vec![turn("", &["a"], None), turn("done", &[], None)], ..Turns::default() };
    let executions = [executed("a", "add", (3, Some(4)), Some(false))];
    let expected = ["0 turn 1 Succeeded 0 Some(3)", "1 a Succeeded 3 Some(4)", "0 turn 2 Succeeded 4 Some(9)"];
    assert_eq!(drawn(&run(RunStatus::Succeeded, Some(9)), &turns, &executions), expected);
}

#[test]
fn a_run_that_is_on_ends_with_what_it_does_now() {
    let turns = Turns { turns: vec![turn("", &["a"], Some(1))], ..Turns::default() };
    let running = run(RunStatus::Running, None);
    let now = |execution| drawn(&running, &turns, &[execution]).split_off(1);
    assert_eq!(now(executed("a", "add", (2, None), None)), ["1 a Running 2 None"]);
    let answered = now(executed("a", "add", (2, Some(3)), Some(false)));
    assert_eq!(answered, ["1 a Succeeded 2 Some(3)", "0 turn 2 Running 3 None"]);
    assert_eq!(drawn(&running, &Turns::default(), &[]), ["0 turn 1 Running 0 None"]);
}

#[test]
fn a_call_waits_is_unknown_or_was_never_sent() {
    let failed = HashSet::from(["c".to_owned()]);
    let turns = Turns { turns: vec![turn("", &["a", "b", "c"], Some(1))], failed };
    let executions = [
        executed("a", "add", (2, None), Some(true)),
        executed("b", "add", (2, None), None),
        executed("d", "add", (3, None), None),
    ];
    let expected = [
        "0 turn 1 Succeeded 1 Some(2)",
        "1 a Waits 2 None",
        "1 b Unknown 2 None",
        "1 c Failed 2 Some(2)",
        // The message of its turn is lost.
        "1 d Unknown 3 None",
    ];
    assert_eq!(drawn(&run(RunStatus::Interrupted, Some(5)), &turns, &executions), expected);
}

#[test]
fn turns_have_the_usage_of_their_message_or_of_the_journal() {
    let used = |tokens| Used { prompt_tokens: tokens, ..Used::default() };
    let message = |calls: &[&str]| Message::Assistant(turn("so", calls, None).0);
    let journal = [TurnMessage { turn: 1, message: stored::write_turn(&message(&["a"]), Some(&used(7))) }];
    let answer = ToolMessage { call_id: "a".into(), is_error: true, ..ToolMessage::default() };
    let messages = [
        stored::write(&message(&["a"])),
        stored::write(&Message::Tool(answer)),
        stored::write_turn(&message(&[]), Some(&used(9))),
    ];
    let read = Turns::read(&messages, &journal).unwrap();
    let tokens: Vec<_> = read.turns.iter().map(|(_, used)| used.as_ref().map(|used| used.prompt_tokens)).collect();
    assert_eq!((tokens, read.failed), (vec![Some(7), Some(9)], HashSet::from(["a".to_owned()])));
    assert!(Turns::read(&["{}".to_owned()], &[]).is_err());
}

#[test]
fn texts_are_cut_and_hidden_thoughts_are_named() {
    let parts = vec![
        TurnPart::Thought(Thought::Signed { text: "hm".into(), signature: "s".into() }),
        TurnPart::Text("関".repeat(MAX_TEXT)),
    ];
    let StepWork::Turn { text, thinking, hides_thinking, .. } =
        work_of_turn(1, &AssistantTurn { parts, api: None }, None)
    else {
        panic!("it is a turn")
    };
    assert_eq!((text.len(), &*thinking, hides_thinking), (4_095, "hm", false));
    let parts = vec![TurnPart::Thought(Thought::Redacted("eA==".into()))];
    let hidden = work_of_turn(1, &AssistantTurn { parts, api: None }, None);
    assert!(matches!(hidden, StepWork::Turn { hides_thinking: true, .. }), "{hidden:?}");
}
