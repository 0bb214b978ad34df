use std::collections::HashMap;

use serde_json::json;

use super::*;
use crate::text::Language;

fn run(usage: &Value) -> RunBody {
    let run = json!({"id": "r", "conversation_id": "c", "number": 3, "session_id": "s", "agent": "main", "claimed_executor": null,
        "user_input": "go", "status": "succeeded", "error": null, "created_at": "2026-01-01T00:00:00Z",
        "begun_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:10Z", "usage": usage});
    serde_json::from_value(run).unwrap()
}

fn step(state: StepState, work: StepWork) -> RunStep {
    let (begun_at, ended_at) = ("2026-01-01T00:00:02Z".to_owned(), Some("2026-01-01T00:00:03Z".to_owned()));
    RunStep { depth: 1, state, begun_at, ended_at, work }
}

#[test]
fn the_sums_of_a_run_are_exact() {
    let usage = json!([
        {"agent": "main", "input_tokens": 7, "output_tokens": 2, "cached_tokens": 1, "cost_usd": "0.1000001"},
        {"agent": "reader", "input_tokens": 5, "output_tokens": 1, "cached_tokens": 0, "cost_usd": "0.2"},
    ]);
    let expected = Sums { prompt: 12, answer: 3, cached: 1, cost: "0.3000001".parse().unwrap() };
    assert_eq!(Sums::of(&run(&usage)), expected);
    assert_eq!(Sums::of(&run(&Value::Null)), Sums::default());
    let texts = Texts::new(Language::English);
    let (both, one) =
        (models(&texts, &run(&usage)).into_string(), models(&texts, &run(&json!([usage[0]]))).into_string());
    assert!(both.contains("reader") && one.is_empty(), "{both} {one}");
}

#[test]
fn texts_of_steps_are_escaped() {
    let texts = Texts::new(Language::English);
    let hostile = || "<script>\u{202e}".to_owned();
    let turn = StepWork::Turn { number: 1, text: hostile(), thinking: hostile(), hides_thinking: true, usage: None };
    let call = StepWork::Call { id: hostile(), tool: hostile(), arguments: hostile(), approval: Some(hostile()) };
    for work in [turn, call] {
        let drawn = row(&texts, &HashMap::new(), &step(StepState::Failed, work), 4).unwrap();
        let name = drawn.name.into_string();
        assert!(!name.contains("<script>") && !name.contains('\u{202e}') && name.contains("&lt;script&gt;"), "{name}");
        assert_eq!((drawn.id.as_deref(), drawn.depth, drawn.cost), (Some("s4"), 1, None));
    }
}

#[test]
fn a_call_that_was_approved_later_makes_the_axis_longer() {
    let found = |until: Option<&str>| TimelineBody {
        run: run(&Value::Null),
        turns: 0,
        calls: 0,
        until: until.map(str::to_owned),
        page: sekisho_api::list::Page { items: Vec::new(), next: None },
    };
    for (until, seconds) in [(None, "10 s"), (Some("2026-01-01T00:00:40Z"), "40 s")] {
        let Axis { from, until } = axis(&found(until)).unwrap();
        assert_eq!(timeline::span(from, until), seconds);
    }
}
