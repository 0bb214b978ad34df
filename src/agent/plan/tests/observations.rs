//! Steps whose model says something else than their calls did, and pages that a browser has left.

use futures_util::future::BoxFuture;

use super::*;
use crate::toolbox::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_config::Evaluate;

/// More than 50 characters, and not true.
const CLAIMED: &str = "I opened the site X, and everything is there as the step says.";

/// A browser without elements to click: its answers are successes of MCP.
struct Browser;

impl Toolbox for Browser {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        let text = match call.tool.as_str() {
            "pw__browser_click" => "ERROR: element not found",
            "pw__browser_snapshot" => {
                "### Page\n- Page URL: http://x/\n- Page Title: Search\n```yaml\n- heading \"ERROR: a list of errors\" [ref=e1]\n```"
            }
            _ => "### Page\n- Page URL: http://x/results\n- Page Title: Results\n- [Snapshot](page-2.yml)",
        };
        Box::pin(async move { ToolAnswer { success: true, text: text.into(), error_info: None, images: Vec::new() } })
    }
}

fn calls(tools: &[&str]) -> Value {
    let call = |tool: &&str| json!({"id": tool, "tool": format!("pw__browser_{tool}"), "arguments": "{}"});
    json!({"calls": tools.iter().map(call).collect::<Vec<_>>()})
}

async fn play_in_browser(planner: PlannerConfig, script: Value) -> (Vec<Event>, Plan) {
    play_with(planner, script, |request| request.toolbox = Arc::new(Browser)).await
}

#[tokio::test]
async fn a_step_whose_last_call_reports_an_error_has_failed_whatever_its_model_says() {
    let script = json!({
        "planner": [
            plan_of(&["open the site X"]),
            text(&json!({"decision": "modify", "steps": ["open the site Y"]}).to_string()),
        ],
        "attempts": [[calls(&["click"]), {"text": [CLAIMED]}], text("It is open.")],
        "evaluator": [text("{\"passed\": true}")],
        "answer": text("done"),
    });
    let (events, plan) = play_in_browser(of(PlanPreset::PlanAndAct), script).await;
    assert_eq!((plan.status, plan.state.total_attempts), (PlanStatus::Finished, 2));
    assert_eq!(nodes(&events).iter().filter(|node| **node == "replan").count(), 1);
    let memory: String = plan.state.memory.entries.iter().map(|entry| entry.text.clone()).collect();
    let called = "- pw__browser_click {}: failed: ERROR: element not found";
    assert!(memory.contains(CLAIMED) && memory.contains(called), "{memory}");
    assert!(memory.contains("failed: `pw__browser_click`, the last call of the step, answered: ERROR:"), "{memory}");
}

#[tokio::test]
async fn the_text_of_a_page_decides_nothing() {
    let planner = |evaluate| PlannerConfig { evaluate: Some(evaluate), ..of(PlanPreset::PlanAndAct) };
    // The elements of the page are a long text with the word for errors, and the answer is short.
    let script = || {
        json!({
            "planner": [plan_of(&["list the errors"])],
            "attempts": [[calls(&["snapshot"]), {"text": ["?"]}]],
            "evaluator": [text("{\"passed\": true}")],
            "answer": text("done"),
        })
    };
    for evaluate in [Evaluate::WhenUnclear, Evaluate::Always] {
        let (_, plan) = play_in_browser(planner(evaluate), script()).await;
        let asked = plan.state.evaluator_requests;
        assert_eq!((plan.status, asked, plan.state.total_attempts), (PlanStatus::Finished, 1, 1), "{evaluate:?}");
        let observation = &plan.state.last_observation;
        assert!(observation.starts_with("?\n\nThe calls of the step:\n- pw__browser_snapshot"), "{observation}");
        assert!(observation.contains("- heading \"ERROR: a list of errors\" [ref=e1]"), "{observation}");
    }
}

#[tokio::test]
async fn a_page_that_the_browser_has_left_is_not_shown() {
    let script = json!({
        "planner": [plan_of(&["search for errors"])],
        "attempts": [[calls(&["snapshot"]), calls(&["navigate"]), {"text": [CLAIMED]}]],
        "evaluator": [text("{\"passed\": true}")],
        "answer": text("done"),
    });
    let (_, plan) = play_in_browser(of(PlanPreset::PlanAndAct), script).await;
    let (_, page) = plan.state.last_observation.split_once("\n\nThe page").unwrap();
    let expected = " (no snapshot of it was taken):\n- Page URL: http://x/results\n- Page Title: Results\n";
    assert_eq!(page, expected);
}

#[tokio::test]
async fn a_call_whose_arguments_were_refused_is_one_of_the_step_and_counts_once() {
    let broken = json!({"calls": [{"id": "a", "tool": "pw__browser_click", "arguments": "{\"ref\":"}]});
    let planner = PlannerConfig { evaluate: Some(Evaluate::WhenUnclear), ..of(PlanPreset::PlanAndAct) };
    let script = json!({
        "planner": [plan_of(&["click"])],
        "attempts": [[calls(&["snapshot"]), broken, {"text": [CLAIMED]}]],
        "evaluator": [text("{\"passed\": true}")],
        "answer": text("done"),
    });
    let (events, plan) = play_in_browser(planner, script).await;
    assert_eq!((plan.status, plan.state.evaluator_requests), (PlanStatus::Finished, 1), "{events:?}");
    assert!(plan.state.last_observation.contains("- pw__browser_click : failed: "), "{}", plan.state.last_observation);
    assert_eq!(plan.state.used.tool_calls, 2);
}
