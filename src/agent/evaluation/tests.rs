use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::message::{AssistantTurn, ToolMessage};
use crate::models::replay::Replay;
use crate::toolbox::{ToolDescription, ToolboxCall};
use sekisho_config::Config;
use sekisho_gateway::Gateway;

fn members(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn call(id: &str, tool: &str, arguments: &Value) -> RequestedCall {
    RequestedCall::new(id.into(), tool.into(), arguments.to_string())
}

fn tool(name: &str) -> ToolDescription {
    let parameters = Arc::new(json!({"type": "object"}));
    ToolDescription { name: name.into(), description: "d".into(), parameters, is_deferred: false }
}

#[test]
fn each_check_says_why_it_failed() {
    let made = [call("1", "add", &json!({"a": 1, "b": [2.0]})), call("2", "mail", &json!({"to": "ann"}))];
    let text = "```json\n{\"sum\": 3}\n```";
    for (expect, failed) in [
        (json!({}), vec![]),
        (json!({"calls": [{"tool": "add"}, {"tool": "mail"}]}), vec![]),
        (json!({"calls": [{"tool": "add", "arguments": {"b": [2], "a": 1.0}}, {"tool": "mail"}]}), vec![]),
        (json!({"calls": []}), vec!["expected calls: none; made: add, mail"]),
        (json!({"calls": [{"tool": "mail"}, {"tool": "add"}]}), vec!["expected calls: mail, add; made: add, mail"]),
        (
            json!({"calls": [{"tool": "add"}, {"tool": "mail", "arguments": {"to": "bob"}}]}),
            vec![r#"expected of `mail`: {"to":"bob"}; sent: {"to":"ann"}"#],
        ),
        (
            json!({"calls": [{"tool": "add"}, {"tool": "mail", "arguments": {"to": "ann", "cc": null}}]}),
            vec!["sent: {\"to\":\"ann\"}"],
        ),
        (json!({"text_contains": ["sum", "total"]}), vec!["the answer has no \"total\""]),
        (json!({"json": {"sum": 3.0}}), vec![]),
        (json!({"json": {"sum": 4}}), vec!["the answer is {\"sum\":3}"]),
    ] {
        let read: Expectation = serde_json::from_value(expect.clone()).unwrap();
        let checks = checks::of(&read, &made, text);
        let problems: Vec<_> = checks.iter().filter(|check| !check.passed).map(|check| &check.problem).collect();
        assert_eq!(problems.len(), failed.len(), "{expect}: {checks:?}");
        for (problem, part) in problems.iter().zip(failed) {
            assert!(problem.as_ref().is_some_and(|problem| problem.contains(part)), "{expect}: {problem:?}");
        }
    }
    let large = json!(9_007_199_254_740_993_i64);
    assert!(!checks::same(&large, &json!(9_007_199_254_740_992_i64)) && checks::same(&large, &large));
    let no_json: Expectation = serde_json::from_value(json!({"json": 1})).unwrap();
    assert!(!checks::of(&no_json, &[], "one")[0].passed);
}

#[tokio::test]
async fn equal_calls_get_their_answers_in_order_and_others_none() {
    let answer = |arguments: Value, text: &str| json!({"tool": "read", "arguments": arguments, "text": text});
    let case = json!({"input": "x", "answers": [
        answer(json!({"n": 1}), "a"), answer(json!({"n": 1}), "b"), answer(json!({"n": 2}), "c"),
        {"tool": "any", "text": "d", "is_error": true},
    ]});
    let tools = CaseTools::new(&serde_json::from_value(case).unwrap());
    let ask = async |tool: &str, arguments: Value| {
        let answer = tools.call(ToolboxCall::new("1", tool, members(&arguments))).await;
        (answer.success, answer.text)
    };
    for (tool, arguments, expected) in [
        ("read", json!({"n": 2}), (true, "c")),
        ("read", json!({"n": 1}), (true, "a")),
        ("read", json!({"n": 1.0}), (true, "b")),
        ("read", json!({"n": 1}), (true, "b")),
        ("any", json!({"x": 0}), (false, "d")),
        ("read", json!({"n": 3}), (false, "the case has no answer of `read` for these arguments")),
    ] {
        assert_eq!(ask(tool, arguments.clone()).await, (expected.0, expected.1.to_owned()), "{tool} {arguments}");
    }
}

fn stored() -> Vec<SavedMessage> {
    let said = |run: &str, incomplete, message| SavedMessage { run: run.into(), incomplete, message };
    let indirect = call("2", "CallTool", &json!({"tool": "mail", "arguments": {"to": "ann"}}));
    let result =
        ToolMessage { call_id: "2".into(), tool: "mail".into(), text: "sent".into(), ..ToolMessage::default() };
    vec![
        said("a", false, Message::User("hi".into())),
        said("a", false, Message::Assistant(AssistantTurn::new("hello", []))),
        said("b", true, Message::User("cut off".into())),
        said("c", false, Message::User("mail ann".into())),
        said("c", false, Message::Assistant(AssistantTurn::new("", [indirect]))),
        said("c", false, Message::Tool(result)),
        said("c", false, Message::Assistant(AssistantTurn::new("done", []))),
        said("d", false, Message::User("later".into())),
    ]
}

#[test]
fn a_run_is_saved_with_the_script_that_plays_it() {
    let saved = save("c", stored(), vec![tool("mail")]).unwrap();
    let text = saved.to_string();
    let case = Case::parse("case.yaml", &text).unwrap();
    assert_eq!((case.input.as_str(), case.history.len(), case.tools.len()), ("mail ann", 2, 1));
    let to = Some(members(&json!({"to": "ann"})));
    let answer = Answer { tool: "mail".into(), arguments: to.clone(), text: "sent".into(), is_error: false };
    assert_eq!(case.answers, [answer]);
    assert_eq!(case.expect.calls, Some(vec![ExpectedCall { tool: "mail".into(), arguments: to }]));
    assert_eq!(saved["turns"].as_array().unwrap().len(), 3, "with the turns of the history");
    Replay::parse("case.yaml", &text).unwrap();
    for (run, problem) in [("d", "did not end with an answer"), ("x", "has no messages")] {
        let refused = save(run, stored(), Vec::new()).unwrap_err();
        assert!(refused.contains(problem), "{refused}");
    }
    let paused = save("c", stored().split_off(4), Vec::new()).unwrap_err();
    assert!(paused.contains("after a pause"), "{paused}");
}

#[test]
fn a_file_that_is_no_case_is_refused_with_its_name() {
    for yaml in ["", "turns: []", "case: {}", "case: {input: a, expects: {}}", "case: {input: a, answers: [{tool: b}]}"]
    {
        let error = Case::parse("broken.yaml", yaml).unwrap_err().to_string();
        assert!(error.starts_with("broken.yaml: is no case: "), "{yaml}: {error}");
    }
}

#[tokio::test]
async fn an_agent_is_asked_with_the_answers_of_the_case_and_judged() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { state_directory: Some(directory.path().to_owned()), ..Config::default() };
    let gateway = Gateway::start(config).await.unwrap();
    let agents = AgentService::new(&gateway).unwrap();
    let caller = Arc::new(Caller::new("ann", "acme", vec![]));
    let candidate = |name: &str, script: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, script).unwrap();
        Candidate { name: name.into(), profile: Arc::new(AgentProfile::replay(file.to_str().unwrap())) }
    };
    let mut saved = save("c", stored(), vec![tool("mail")]).unwrap();
    saved["case"]["expect"]["text_contains"] = json!(["done"]);
    saved["case"]["expect"]["judge"] = json!("Is it done?");
    let case = Case::parse("case.yaml", &saved.to_string()).unwrap();
    let recorded = candidate("recorded", &saved.to_string());
    let silent = candidate("silent", "turns: [{text: [hello]}, {text: [no]}]");
    for (agent, verdict, expected) in [
        (
            &recorded,
            Some("yes."),
            [("calls", true), ("arguments", true), ("text_contains", true), ("judge", true)].as_slice(),
        ),
        (&recorded, None, &[("calls", true), ("arguments", true), ("text_contains", true)]),
        (&silent, Some("No"), &[("calls", false), ("text_contains", false), ("judge", false)]),
        (&silent, Some("perhaps"), &[("calls", false), ("text_contains", false), ("judge", false)]),
    ] {
        let judge = verdict.map(|verdict| candidate("judge", &format!("turns: [{{text: ['{verdict}']}}]")));
        let toolbox = Arc::new(CaseTools::new(&case));
        let score = evaluate(&agents, &caller, agent, (&case, toolbox), judge.as_ref()).await;
        let checks: Vec<_> = score.checks.iter().map(|check| (check.name, check.passed)).collect();
        assert_eq!(checks, expected, "{verdict:?}: {score:?}");
        assert_eq!(score.judge_usage.is_some(), verdict.is_some());
    }
    // Used up: it has one turn less than the history.
    let short = candidate("short", "turns: []");
    let score = evaluate(&agents, &caller, &short, (&case, Arc::new(CaseTools::new(&case))), None).await;
    assert!(score.checks.iter().any(|check| check.name == "run" && !check.passed), "{score:?}");
    gateway.close().await;
}
