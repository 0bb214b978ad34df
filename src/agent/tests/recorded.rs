//! Runs that are recorded, and played again from their files.

use super::*;
use crate::run_file::{Change, Difference, Further, RecordedBeginning, RunRecord, replay};
use sekisho_core::run_file::{RunCaller, RunFile, RunHeader, RunKind, ToolOutput, VERSION};

/// They end by a time that passes while a model or a tool is silent, by a budget, or from outside.
const BY_TIME: [&str; 14] = [
    "aborted.yaml",
    "aborted_while_the_model_thinks.yaml",
    "budget_used_up.yaml",
    "client_that_leaves.yaml",
    "cut_off.yaml",
    "endless_loop.yaml",
    "job_that_is_pending.yaml",
    "overloaded.yaml",
    "provider_down_later.yaml",
    "same_answer_for_a_minute.yaml",
    "same_failure_three_times.yaml",
    "silent_model.yaml",
    "token_limit.yaml",
    "tool_that_hangs.yaml",
];

fn header() -> RunHeader {
    RunHeader {
        version: VERSION,
        kind: RunKind::Agent,
        id: "run".into(),
        recorded_at: "2026-01-31T10:00:00Z".into(),
        name: "main".into(),
        caller: RunCaller::default(),
        policy_version: "p".into(),
        lock_sha256: None,
    }
}

async fn record(name: &str, case: Case) -> RunFile {
    let client_tools: Vec<_> = case.client_tools.iter().map(|tool| description(tool)).collect();
    let (messages, options) = (question(), ModelOptions::default());
    let begun = RecordedBeginning {
        profile: &case.profile,
        summarizer: None,
        messages: &messages,
        options: &options,
        client_tools: &client_tools,
        pauses: false,
    };
    let record = RunRecord::new(begun, 1 << 20);
    let toolbox = ScriptedToolbox { tools: case.tools, unreachable: case.toolbox_unreachable, ..Default::default() };
    let meter = Arc::new(Meter::default().recorded_in(Some(Arc::clone(&record))));
    let call_ids = record.call_ids();
    let agent = Agent {
        model: RecordingModel::new(name, &case.model),
        toolbox: record.over(Arc::new(toolbox)),
        profile: Arc::new(case.profile),
        summarizer: None,
    };
    let input = RunInput { messages, client_tools, options, meter, call_ids, ..RunInput::default() };
    let events: Vec<_> = agent.run(input).collect().await;
    let Some(Event::Finished { reason, messages }) = events.iter().rev().nth(1) else { panic!("{name}: {events:?}") };
    RunFile::parse(&record.end(header(), *reason, messages).unwrap()).unwrap()
}

fn case(yaml: &str) -> Case {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Calls `read` twice, and answers.
fn reading() -> Case {
    case(
        "model: {turns: [
            {calls: [{id: a, tool: read, arguments: '{\"n\": 1}'}]},
            {text: [Let, ' me'], calls: [{id: '', tool: read, arguments: '{\"n\": 2}'}]},
            {text: [Done.]}]}
\ntools: [{name: read}]
\nevents: []",
    )
}

#[tokio::test(start_paused = true)]
async fn runs_are_played_again_to_equal_digests_and_ask_nobody() {
    let mut played = 0;
    for entry in fs::read_dir(checkout().join("tests/agent")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if BY_TIME.contains(&name.as_str()) {
            continue;
        }
        let run = record(&name, case(&fs::read_to_string(&file).unwrap())).await;
        let replayed = replay(&run, &[], Further::default()).await.unwrap();
        assert!(replayed.equal, "{name}: {replayed:#?}");
        assert_eq!((replayed.further_requests, replayed.further_calls), (0, 0), "{name}");
        assert_eq!(Some(replayed.result_sha256), run.end.result_sha256, "{name}");
        played += 1;
    }
    assert!(played >= 20, "only {played} runs");
}

#[tokio::test]
async fn another_answer_changes_the_run_from_there_on() {
    let run = record("reading", reading()).await;
    let calls: Vec<_> = run.tool_calls().map(|call| call.id.clone()).collect();
    assert_eq!(calls.len(), 2);
    let output = ToolOutput { success: true, text: "other".into(), ..ToolOutput::default() };
    let change = [Change { call: calls[1].clone(), output }];
    let replayed = replay(&run, &change, Further::default()).await.unwrap();
    assert_eq!((replayed.equal, replayed.requests, replayed.further_requests), (false, 3, 1));
    assert_eq!(replayed.differences[0], Difference::Request { number: 3 });
    assert_eq!(replayed.reason, "error", "nobody answers it");
    let script = json!({"turns": [{}, {}, {"text": ["Another end."]}]});
    let model: Arc<dyn Model> = RecordingModel::new("further", &script);
    let further = Further { model: Some(model), ..Further::default() };
    let replayed = replay(&run, &change, further).await.unwrap();
    assert_eq!((&*replayed.reason, &*replayed.answer), ("stop", "Another end."));
    let unknown = [Change { call: "nobody".into(), output: ToolOutput::default() }];
    let problem = replay(&run, &unknown, Further::default()).await.unwrap_err().to_string();
    assert!(problem.contains(&calls[0]) && problem.contains("read"), "{problem}");
}

#[tokio::test]
async fn another_model_gets_the_recorded_answers_of_tools_and_no_others() {
    let run = record("reading", reading()).await;
    let script = json!({"turns": [
        {"calls": [{"id": "x", "tool": "read", "arguments": "{\"n\": 2}"}]},
        {"calls": [{"id": "y", "tool": "read", "arguments": "{\"n\": 3}"}]},
        {"text": ["Enough."]},
    ]});
    let model: Arc<dyn Model> = RecordingModel::new("other", &script);
    let further = Further { model: Some(model), replaces_model: true, toolbox: None };
    let replayed = replay(&run, &[], further).await.unwrap();
    assert_eq!((replayed.calls, replayed.further_calls, &*replayed.answer), (2, 1, "Enough."));
    assert!(matches!(&replayed.differences[0], Difference::Call { tool, .. } if tool == "read"));
}

#[tokio::test]
async fn a_run_that_is_too_large_is_not_kept() {
    let (profile, options, messages) = (AgentProfile::default(), ModelOptions::default(), question());
    let begun = RecordedBeginning {
        profile: &profile,
        summarizer: None,
        messages: &messages,
        options: &options,
        client_tools: &[],
        pauses: false,
    };
    let record = RunRecord::new(begun, 100);
    assert_eq!(record.end(header(), FinishReason::Stop, &[]), None);
}
