use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::models::Replay;
use crate::{Agent, Event, Message, RunInput};
use sekisho_calls::approval::Judgement;
use sekisho_config::{AgentProfile, ApprovalRule, Config, PolicyConfig, ToolOverride};
use sekisho_core::approval::ApprovalScope;
use sekisho_store::test_support::age_approval;

const WEATHER: &str = include_str!("../../../../config/examples/weather.yaml");

async fn toolbox() -> (InProcess, TempDir) {
    toolbox_with(Config::default()).await
}

async fn toolbox_with(config: Config) -> (InProcess, TempDir) {
    let state = TempDir::new().unwrap();
    let config = Config { state_directory: Some(state.path().to_owned()), ..config };
    let gateway = Box::pin(Gateway::start(config)).await.unwrap();
    let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
    (InProcess::new(gateway, caller), state)
}

fn call(tool: &str, arguments: Value) -> ToolboxCall {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    ToolboxCall::new("a", tool, arguments)
}

#[tokio::test]
async fn the_scripted_weather_runs_its_tool_through_the_pipeline() {
    let (toolbox, state) = toolbox().await;
    let gateway = Arc::clone(&toolbox.gateway);
    let agent = Agent {
        model: Arc::new(Replay::parse("weather.yaml", WEATHER).unwrap()),
        toolbox: Arc::new(toolbox),
        profile: Arc::new(AgentProfile::default()),
        summarizer: None,
    };
    let input = RunInput { messages: vec![Message::User("weather?".into())], ..RunInput::default() };
    let events: Vec<_> = agent.run(input).collect().await;
    let result = events.iter().find_map(|event| match event {
        Event::ToolResult { result, .. } => Some(result.as_str()),
        _ => None,
    });
    assert!(result.is_some_and(|result| result.contains("70.7")), "{events:?}");
    gateway.close().await;
    let audit = std::fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"calculator\"") && audit.contains("\"agent\"") && audit.contains("\"ann\""), "{audit}");
}

#[tokio::test]
async fn refusals_carry_their_typed_error_and_disabled_tools_are_not_listed() {
    let (mut toolbox, _state) = toolbox().await;
    let refused = toolbox.call(call("calculater", json!({}))).await;
    assert!(!refused.success);
    assert_eq!(refused.error_info.map(|info| info["code"].clone()), Some(json!("unknown_tool")));

    let names = async |toolbox: &InProcess| {
        let tools = toolbox.list().await.unwrap();
        tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
    };
    assert!(names(&toolbox).await.contains(&"calculator".to_owned()));
    toolbox.off.insert("calculator".into());
    assert!(!names(&toolbox).await.contains(&"calculator".to_owned()));
    let off = toolbox.call(call("calculator", json!({"expression": "1 + 1"}))).await;
    assert!(!off.success && off.text.contains("switched off"), "{off:?}");
}

/// The calculator of a gateway where a person must approve each of its calls.
struct Approving {
    toolbox: InProcess,
    _state: TempDir,
}

impl Approving {
    async fn new() -> Self {
        let mut config = Config::default();
        let always = ToolOverride { approval: Some(ApprovalRule::Always), ..ToolOverride::default() };
        config.tools.overrides.insert("calculator".into(), always);
        Box::pin(Self::of(config)).await
    }

    async fn of(config: Config) -> Self {
        let (toolbox, state) = toolbox_with(config).await;
        Self { toolbox, _state: state }
    }

    async fn calculate(&self, expression: &str, on_approval: OnApproval) -> ToolAnswer {
        let call = ToolboxCall { on_approval, ..call("calculator", json!({"expression": expression})) };
        self.toolbox.call(call).await
    }

    /// The id of the approval for which a run pauses.
    async fn paused(&self, expression: &str) -> Arc<str> {
        OnApproval::Pause.pause(&self.calculate(expression, OnApproval::Pause).await).unwrap().id
    }

    async fn decide(&self, id: &str, approved: bool, changed: Option<Value>) -> Result<(), ErrorCode> {
        let boss = Caller::new("boss", "acme", vec!["approver".to_owned()]);
        let (reason, scope, minutes) = ("not today".to_owned(), ApprovalScope::Once, None);
        let arguments = changed.map(|changed| changed.as_object().cloned().unwrap());
        let judgement = Judgement {
            approved,
            reason,
            scope,
            minutes,
            arguments,
            strike: Vec::new(),
            sent: None,
            arguments_sha256: None,
        };
        let decided = self.toolbox.gateway.approvals().decide(&boss, &[(id.to_owned(), judgement)]).await;
        decided.map(drop).map_err(|error| error.code())
    }
}

fn code_of(answer: &ToolAnswer) -> &str {
    answer.error_info.as_ref().and_then(|info| info["code"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_call_ends_until_somebody_decides_and_is_then_made_by_its_approval() {
    let approving = Approving::new().await;
    let id = approving.paused("6*7").await;
    let resume = || OnApproval::Resume(Arc::clone(&id));
    let undecided = approving.calculate("6*7", resume()).await;
    assert_eq!(resume().pause(&undecided).map(|needed| needed.id), Some(Arc::clone(&id)), "{undecided:?}");
    approving.decide(&id, true, None).await.unwrap();
    for _ in 0..2 {
        let made = approving.calculate("6*7", resume()).await;
        assert!(made.success && made.text == "42", "{made:?}");
    }
    // A call that is approved by the time that it is made does not pause.
    let id = approving.paused("6*8").await;
    approving.decide(&id, true, None).await.unwrap();
    assert_eq!(approving.calculate("6*8", OnApproval::Pause).await.text, "48");
}

#[tokio::test]
async fn a_denied_or_expired_call_is_answered_with_that() {
    let approving = Approving::new().await;
    let (denied, expired) = (approving.paused("6*7").await, approving.paused("6*8").await);
    approving.decide(&denied, false, None).await.unwrap();
    age_approval(approving.toolbox.gateway.store(), &expired, Duration::from_secs(3_601)).await;
    for (id, expression, code, says) in
        [(denied, "6*7", "approval_denied", "not today"), (expired, "6*8", "approval_expired", "has expired")]
    {
        let resume = OnApproval::Resume(id);
        let answer = approving.calculate(expression, resume.clone()).await;
        assert_eq!((code_of(&answer), resume.pause(&answer)), (code, None));
        assert!(answer.text.contains(says), "{answer:?}");
    }
}

#[tokio::test]
async fn a_call_runs_with_the_arguments_that_an_approver_wrote_and_the_model_is_told() {
    let approving = Approving::new().await;
    let id = approving.paused("6*7").await;
    let invalid = approving.decide(&id, true, Some(json!({"expression": {}}))).await;
    assert_eq!(invalid, Err(ErrorCode::InvalidArguments));
    approving.decide(&id, true, Some(json!({"expression": "6*8"}))).await.unwrap();
    for on_approval in [OnApproval::Pause, OnApproval::Resume(id)] {
        let answer = approving.calculate("6*7", on_approval).await;
        let told = "[The approver changed the arguments to {\"expression\":\"6*8\"}.]\n48";
        assert!(answer.success && answer.text == told, "{answer:?}");
    }
}

#[tokio::test]
async fn the_model_is_told_of_a_change_that_needs_an_approval_of_its_own() {
    let folder = TempDir::new().unwrap();
    let rules = "deny[\"no\"] { false }\nrequire_approval[reason] { reason := input.arguments.expression }";
    std::fs::write(folder.path().join("tools.rego"), format!("package tools\n{rules}\n")).unwrap();
    let policy = PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() };
    let approving = Approving::of(Config { policy, ..Config::default() }).await;
    let first = approving.paused("6*7").await;
    approving.decide(&first, true, Some(json!({"expression": "6*8"}))).await.unwrap();
    let second = approving.paused("6*7").await;
    assert_ne!(second, first, "its approver was not shown why what is written now needs approval");
    approving.decide(&second, true, None).await.unwrap();
    for on_approval in [OnApproval::Pause, OnApproval::Resume(second)] {
        let answer = approving.calculate("6*7", on_approval).await;
        let told = "[The approver changed the arguments to {\"expression\":\"6*8\"}.]\n48";
        assert!(answer.success && answer.text == told, "{answer:?}");
    }
}
