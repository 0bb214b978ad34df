//! Whole plans, played by scripts over a gateway with its own tools.

mod observations;
mod unstored_ends;

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::*;
use crate::toolbox::InProcess;
use crate::{AgentRequest, AgentService, Event, FinishReason, Message};
use sekisho_config::{AgentProfile, Config, PlanPreset, PlannerConfig};
use sekisho_core::call::Caller;
use sekisho_core::error::ErrorCode;
use sekisho_core::until::until;
use sekisho_gateway::Gateway;

/// More than 50 characters.
const LONG: &str = "The price of the shoes is 42 EUR, and the shop delivers them in two days.";

/// The service, in a folder of its own.
async fn service(folder: &tempfile::TempDir) -> Arc<AgentService> {
    let config = Config { state_directory: Some(folder.path().to_owned()), ..Config::default() };
    AgentService::new(&Gateway::start(config).await.unwrap()).unwrap()
}

fn text(text: &str) -> Value {
    json!([{"text": [text]}])
}

fn plan_of(steps: &[&str]) -> Value {
    text(&json!({"steps": steps, "success_criteria": "all known"}).to_string())
}

fn request(service: &Arc<AgentService>, folder: &tempfile::TempDir, script: &Value) -> AgentRequest {
    let file = folder.path().join("script.yaml");
    std::fs::write(&file, json!({"turns": [], "plan": script}).to_string()).unwrap();
    let profile = Arc::new(AgentProfile::replay(file.to_str().unwrap()));
    let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
    let toolbox = Arc::new(InProcess::new(Arc::clone(service.gateway()), Arc::clone(&caller)));
    AgentRequest::new("planned", profile, caller, toolbox, vec![Message::User("Find the price".into())])
}

/// The events of a plan, and the plan as it is then.
async fn play(planner: PlannerConfig, script: Value) -> (Vec<Event>, Plan) {
    play_with(planner, script, |_| {}).await
}

/// The same, with a changed request.
async fn play_with(
    planner: PlannerConfig,
    script: Value,
    change: impl FnOnce(&mut AgentRequest),
) -> (Vec<Event>, Plan) {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder).await;
    let mut request = request(&service, &folder, &script);
    change(&mut request);
    let caller = Arc::clone(&request.caller);
    let events: Vec<_> =
        service.follow_plan(NewPlan { request, planner, approve: false }).await.unwrap().collect().await;
    let plans = service.plans_of(&caller, jiff::Timestamp::MAX, 10).await.unwrap();
    let [plan] = &plans[..] else { panic!("{plans:?}") };
    (events, plan.clone())
}

fn nodes(events: &[Event]) -> Vec<&'static str> {
    let node = |event: &Event| match event {
        Event::Node { node } => Some(match node {
            Node::PlannerInit => "init",
            Node::ExecutorDispatch => "dispatch",
            Node::ExecutorRunMcp => "run",
            Node::ExecutorProcessResult => "result",
            Node::MemoryUpdate => "memory",
            Node::PlannerEvaluate => "evaluate",
            Node::PlannerReplanning => "replan",
            Node::End => "end",
        }),
        _ => None,
    };
    events.iter().filter_map(node).collect()
}

fn answer(events: &[Event]) -> String {
    let content = |event: &Event| match event {
        Event::Content { text } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(content).collect()
}

fn reason(events: &[Event]) -> FinishReason {
    let reason = |event: &Event| match event {
        Event::Finished { reason, .. } => Some(*reason),
        _ => None,
    };
    events.iter().find_map(reason).unwrap()
}

fn errors(events: &[Event]) -> Vec<ErrorCode> {
    let code = |event: &Event| match event {
        Event::Error(error) | Event::PartFailed(error) => Some(error.code),
        _ => None,
    };
    events.iter().filter_map(code).collect()
}

fn of(preset: PlanPreset) -> PlannerConfig {
    PlannerConfig { preset, ..PlannerConfig::default() }
}

#[tokio::test]
async fn a_plan_runs_its_steps_with_tools_and_streams_the_answer() {
    let script = json!({
        "planner": [plan_of(&["calculate", "report"])],
        "attempts": [
            [{"calls": [{"id": "a", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"}]}, {"text": [LONG]}],
            text(LONG),
        ],
        "answer": text("It is 42 EUR."),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    let cycle = ["dispatch", "run", "result", "memory", "evaluate"];
    let expected: Vec<_> = ["init"].into_iter().chain(cycle).chain(cycle).chain(["end"]).collect();
    assert_eq!(nodes(&events), expected);
    assert_eq!((answer(&events).as_str(), reason(&events)), ("It is 42 EUR.", FinishReason::Stop));
    assert!(matches!(events.last(), Some(Event::Usage(used)) if used.tool_calls == 1), "{events:?}");
    assert!(
        events.iter().any(|event| matches!(event, Event::ToolResult { result, .. } if result == "42")),
        "{events:?}"
    );
    assert_eq!((plan.status, plan.state.answer.as_str()), (PlanStatus::Finished, "It is 42 EUR."));
    assert_eq!((plan.state.success_criteria.as_str(), plan.state.total_attempts), ("all known", 2));
    assert!(plan.state.plan.iter().all(|step| step.status == StepStatus::Completed && step.result == LONG));
    let kinds: Vec<_> = plan.state.memory.entries.iter().take(6).map(|entry| json!(entry.kind)).collect();
    assert_eq!(kinds, ["plan", "action", "observation", "thought", "progress", "action"]);
}

#[tokio::test]
async fn a_step_has_two_attempts_then_the_plan_is_made_anew_with_the_reason() {
    let script = json!({
        "planner": [plan_of(&["open the shop"]), plan_of(&["ask another shop"])],
        "attempts": [text("Error: it is closed"), text("Error: it is still closed"), text(LONG)],
        "answer": text("42 EUR"),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    let cycle = ["dispatch", "run", "result", "memory", "evaluate"];
    let begin = ["init"].into_iter().chain(cycle).chain(cycle);
    let expected: Vec<_> = begin.chain(["init"]).chain(cycle).chain(["end"]).collect();
    assert_eq!(nodes(&events), expected);
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Finished, 3));
    assert_eq!(plan.state.plan[0].instruction, "ask another shop");
    let thoughts: String = plan.state.memory.entries.iter().map(|entry| entry.text.clone()).collect();
    assert!(thoughts.contains("Error: it is still closed"), "{thoughts}");
}

#[tokio::test]
async fn ten_attempts_are_all_and_then_the_plan_ends() {
    let attempts: Vec<_> = (0..20).map(|number| text(&format!("Error: failed for the {number}th time"))).collect();
    let script = json!({
        "planner": (0..9).map(|_| plan_of(&["try"])).collect::<Vec<_>>(),
        "attempts": attempts,
        "answer": text("It could not be found."),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    let runs = nodes(&events).iter().filter(|node| **node == "run").count();
    assert_eq!((runs, nodes(&events).iter().filter(|node| **node == "init").count()), (10, 5));
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Impossible, 10));
    assert!(plan.state.reason.contains("its 10 attempts"), "{}", plan.state.reason);
    assert_eq!((answer(&events).as_str(), reason(&events)), ("It could not be found.", FinishReason::Limit));
}

#[tokio::test]
async fn a_short_result_is_evaluated_by_the_model_which_may_want_another_plan() {
    let script = json!({
        "planner": [plan_of(&["look"]), plan_of(&["ask"])],
        "attempts": [text("none"), text("42"), text("42 EUR")],
        "evaluator": [
            text("{\"passed\": false, \"reason\": \"no price\", \"need_replan\": true}"),
            text("{\"passed\": false, \"reason\": \"no currency\"}"),
            text("```json\n{\"passed\": true}\n```"),
        ],
        "answer": text("42 EUR"),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    let evaluations: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Evaluation { passed, reason, need_replan } => Some((*passed, reason.as_str(), *need_replan)),
            _ => None,
        })
        .collect();
    assert_eq!(evaluations, [(false, "no price", true), (false, "no currency", false), (true, "", false)]);
    assert_eq!((plan.status, plan.state.total_attempts, plan.state.attempts), (PlanStatus::Finished, 3, 2));
}

#[tokio::test]
async fn a_broken_plan_gets_one_repair_turn_and_then_an_error_event() {
    let repaired = json!([{"text": ["Here is my plan"]}, {"text": ["{\"steps\": [\"look\"]}"]}]);
    let script = json!({"planner": [repaired], "attempts": [text(LONG)], "answer": text("done")});
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    assert_eq!((plan.status, errors(&events)), (PlanStatus::Finished, Vec::new()));

    let broken = json!([{"text": ["Here is my plan"]}, {"text": ["{\"steps\": []}"]}]);
    let (events, plan) = play(of(PlanPreset::Steps), json!({"planner": [broken]})).await;
    assert_eq!((plan.status, errors(&events)), (PlanStatus::Failed, vec![ErrorCode::InvalidOutput]));
    assert_eq!(reason(&events), FinishReason::Error);
}

#[tokio::test]
async fn an_evaluator_that_fails_is_an_error_event_and_the_plan_goes_on() {
    let broken = json!([{"text": ["yes"]}, {"text": ["certainly"]}]);
    let script = json!({
        "planner": [plan_of(&["look"])],
        "attempts": [text("42"), text(LONG)],
        "evaluator": [broken],
        "answer": text("42 EUR"),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    assert_eq!((plan.status, errors(&events)), (PlanStatus::Finished, vec![ErrorCode::InvalidOutput]));
    assert_eq!(plan.state.total_attempts, 2);
}

#[tokio::test]
async fn plan_and_act_modifies_discards_and_renews_its_plan() {
    let passed = || text("{\"passed\": true}");
    let change = |decision: &str, steps: &[&str]| text(&json!({"decision": decision, "steps": steps}).to_string());
    let script = json!({
        "planner": [
            plan_of(&["a", "b", "c"]),
            change("modify", &["b2", "c2"]),
            change("discard", &[]),
            change("new", &["z"]),
        ],
        // a passes, b fails, b2 fails and is discarded, c2 fails, z passes.
        "attempts": [text("ok"), text("ERROR: b"), text("ERROR: b2"), text("ERROR: c2"), text("fine")],
        "evaluator": [passed(), passed()],
        "answer": text("done"),
    });
    let (events, plan) = play(of(PlanPreset::PlanAndAct), script).await;
    let plans: Vec<Vec<_>> = events
        .iter()
        .filter_map(|event| match event {
            Event::Plan { steps, .. } => Some(steps.iter().map(|step| step.instruction.clone()).collect()),
            _ => None,
        })
        .collect();
    assert_eq!(plans, [vec!["a", "b", "c"], vec!["a", "b2", "c2"], vec!["a", "c2"], vec!["z"]]);
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Finished, 5));
    assert_eq!(nodes(&events).iter().filter(|node| **node == "replan").count(), 3);
    assert_eq!(answer(&events), "done");
}

#[tokio::test]
async fn plan_and_act_ends_early_where_the_goal_is_reached_or_impossible() {
    let script = json!({
        "planner": [plan_of(&["a", "b", "c"])],
        "attempts": [text("42 EUR")],
        "evaluator": [text("{\"passed\": true, \"goal_reached\": true}")],
        "answer": text("42 EUR"),
    });
    let (_, plan) = play(of(PlanPreset::PlanAndAct), script).await;
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Finished, 1));
    let script = json!({
        "planner": [plan_of(&["a"]), text("{\"decision\": \"impossible\", \"reason\": \"nobody sells it\"}")],
        "attempts": [text("ERROR: sold out")],
        "answer": text("Nobody sells it."),
    });
    let (events, plan) = play(of(PlanPreset::PlanAndAct), script).await;
    assert_eq!((plan.status, plan.state.reason.as_str()), (PlanStatus::Impossible, "nobody sells it"));
    assert_eq!((answer(&events).as_str(), reason(&events)), ("Nobody sells it.", FinishReason::Limit));
}

#[tokio::test]
async fn a_plan_in_circles_is_changed_and_the_second_time_impossible() {
    let script = json!({
        "planner": (0..9).map(|_| plan_of(&["click"])).collect::<Vec<_>>(),
        "attempts": (0..10).map(|_| text("Error: not found")).collect::<Vec<_>>(),
        "answer": text("It is not there."),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Impossible, 6));
    assert!(plan.state.reason.contains("in circles"), "{}", plan.state.reason);
    let reasons = events.iter().filter(
        |event| matches!(event, Event::Evaluation { reason, need_replan: true, .. } if reason.contains("in circles")),
    );
    assert_eq!(reasons.count(), 2);
}

/// Each of them passes, by the same answer of its executor.
#[tokio::test]
async fn steps_that_pass_in_the_same_way_are_no_circle() {
    let steps = ["one", "two", "three", "four", "five"];
    let script = json!({
        "planner": [plan_of(&steps)],
        "attempts": (0..5).map(|_| json!([
            {"calls": [{"id": "c", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"}]},
            {"text": [LONG]},
        ])).collect::<Vec<_>>(),
        "answer": text("done"),
    });
    let (events, plan) = play(of(PlanPreset::Steps), script).await;
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Finished, 5), "{}", plan.state.reason);
    assert!(!nodes(&events).contains(&"replan"), "{:?}", nodes(&events));
}

#[tokio::test]
async fn several_steps_are_run_together() {
    let planner = PlannerConfig { steps_per_dispatch: 2, ..of(PlanPreset::Steps) };
    let script = json!({
        "planner": [plan_of(&["a", "b", "c"])],
        "attempts": [text(LONG), text(LONG)],
        "answer": text("done"),
    });
    let (_, plan) = play(planner, script).await;
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Finished, 2));
    assert!(plan.state.plan.iter().all(|step| step.status == StepStatus::Completed));
}

#[tokio::test]
async fn a_plan_waits_for_approval_is_changed_and_is_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder).await;
    let script = json!({"planner": [plan_of(&["a", "b"])], "attempts": [text(LONG)], "answer": text("done")});
    let begun = request(&service, &folder, &script);
    let caller = Arc::clone(&begun.caller);
    let new = NewPlan { request: begun, planner: of(PlanPreset::Steps), approve: true };
    let plan = service.start_plan(new).await.unwrap();
    let ended = async || service.plan_events(&caller, &plan.id, None).await.unwrap().unwrap().collect::<Vec<_>>().await;
    let events = ended().await;
    assert!(events.last().unwrap().data.contains("usage"), "{events:?}");
    let waiting = service.plan(&caller, &plan.id).await.unwrap();
    assert_eq!((waiting.status, waiting.state.total_attempts), (PlanStatus::WaitingForApproval, 0));

    let other = Caller::new("bob", "acme", Vec::new());
    assert_eq!(service.plan(&other, &plan.id).await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(service.cancel_plan(&other, &plan.id).await.unwrap_err().code(), ErrorCode::NotFound);
    let step = |text: &str| StepChange { instruction: text.into(), expected: String::new() };
    for steps in [Vec::new(), vec![step(" ")], (0..6).map(|_| step("x")).collect()] {
        assert_eq!(service.change_plan(&caller, &plan.id, steps).await.unwrap_err().code(), ErrorCode::InvalidRequest);
    }
    service.change_plan(&caller, &plan.id, vec![step("c")]).await.unwrap();
    let go_on = |approve| service.continue_plan(&plan.id, request(&service, &folder, &script), approve);
    assert_eq!(go_on(false).await.unwrap_err().code(), ErrorCode::InvalidRequest);
    go_on(true).await.unwrap();
    let last_before = events.last().unwrap().id;
    let events = ended().await;
    // The ids go on, and a gap stands for the events of the log before.
    assert_eq!(events[0].id, last_before);
    assert_eq!(events[1].id, last_before + 1);
    let done = service.plan(&caller, &plan.id).await.unwrap();
    assert_eq!((done.status, done.state.plan.len(), done.state.answer.as_str()), (PlanStatus::Finished, 1, "done"));
    assert_eq!(go_on(false).await.unwrap_err().code(), ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn a_plan_whose_client_leaves_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder).await;
    let script = json!({"planner": [plan_of(&["a"])], "attempts": [[{"text": ["x"], "delay_seconds": 60}]]});
    let request = request(&service, &folder, &script);
    let caller = Arc::clone(&request.caller);
    let new = NewPlan { request, planner: of(PlanPreset::Steps), approve: false };
    let mut events = service.follow_plan(new).await.unwrap();
    while !matches!(events.next().await.expect("a step begins"), Event::Step { .. }) {}
    drop(events);
    let status = async || service.plans_of(&caller, jiff::Timestamp::MAX, 1).await.unwrap()[0].status;
    until("the plan has ended", async || status().await != PlanStatus::Running).await;
    assert_eq!(status().await, PlanStatus::Cancelled);
}
