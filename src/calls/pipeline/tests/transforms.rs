//! Rules of `tools.transform` on the path of a call: the values that the stages after them see, and the records.

use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use sekisho_config::{ApprovalRule, AuditArguments, Detector, TransformRule};
use sekisho_core::call::CallClient;
use sekisho_core::json;
use sekisho_core::peer::{Answers, ClientPeer, LogLevel, LogMessage, Progress, Questions, Unanswered};
use sekisho_core::transform_finding::TransformFinding;

const ADDRESS: &str = "ann@example.org";

fn mail() -> TransformRule {
    let detect = vec![Detector::Emails];
    TransformRule { name: "mail".into(), tools: Vec::new(), paths: Vec::new(), detect, replace: None }
}

fn path(path: &str) -> TransformRule {
    TransformRule { name: "path".into(), paths: vec![path.into()], detect: Vec::new(), ..mail() }
}

fn config(arguments: &[TransformRule], results: &[TransformRule]) -> Config {
    let mut config = Config::default();
    config.tools.transform.arguments = arguments.to_vec();
    config.tools.transform.results = results.to_vec();
    config
}

fn arguments(value: &Value) -> Arguments {
    value.as_object().cloned().unwrap()
}

fn to_ann() -> Arguments {
    arguments(&json!({"to": ADDRESS, "n": 1}))
}

fn answering(value: Value) -> Scripted {
    Scripted::answering(move |_| Ok(value.clone().into()))
}

fn found(receipt: &[TransformFinding]) -> Vec<(&str, &str, &str, usize)> {
    receipt.iter().map(|found| (found.part.as_str(), &*found.rule, &*found.path, found.count)).collect()
}

#[tokio::test]
async fn what_is_sent_is_what_is_recorded() {
    let metadata = Metadata { audit_arguments: AuditArguments::Full, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&config(&[mail()], &[]), metadata, answering(json!("fine")));
    let reply = checkpoint.pipeline.call(call(), to_ann()).await.reply;
    assert_eq!(found(&reply.receipt.transforms), [("arguments", "mail", "$", 1)]);
    let written = serde_json::to_string(&*reply).unwrap();
    assert!(written.contains(r#""transforms":[{"part":"arguments","rule":"mail","path":"$","count":1}]"#), "{written}");
    assert!(!written.contains(ADDRESS), "{written}");
    let metrics = checkpoint.pipeline.settlement.metrics.render();
    assert!(metrics.contains(r#"test_transform_findings_total{part="arguments",rule="mail"} 1"#), "{metrics}");
    let lines = checkpoint.lines().await;
    let sent = json!({"to": "[redacted]", "n": 1});
    assert_eq!(lines[0]["arguments"], sent);
    assert_eq!(lines[0]["arguments_sha256"], hex::encode(json::digest(&arguments(&sent))));
}

#[tokio::test]
async fn arguments_that_are_refused_before_a_rule_applies_are_not_written_in_full() {
    let metadata = Metadata { audit_arguments: AuditArguments::Full, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&config(&[mail()], &[]), metadata, answering(json!("fine")));
    checkpoint.pipeline.call(call(), arguments(&json!({"to": ADDRESS, "n": []}))).await;
    let lines = checkpoint.lines().await;
    assert_eq!((&lines[0]["code"], lines[0].get("arguments")), (&json!("invalid_arguments"), None));
}

#[tokio::test]
async fn a_dry_run_says_what_rules_would_change_and_runs_nothing() {
    let checkpoint = Checkpoint::with(&config(&[mail()], &[]), Metadata::default(), answering(json!("fine")));
    let reply = checkpoint.pipeline.call(CallContext { dry_run: true, ..call() }, to_ann()).await.reply;
    assert_eq!((found(&reply.receipt.transforms).len(), checkpoint.runs()), (1, 0));
    assert!(!checkpoint.pipeline.settlement.metrics.render().contains("test_transform_findings_total{"));
    let verdicts = checkpoint.pipeline.explain(&call(), to_ann(), None).await;
    assert!(verdicts[2].because.contains("the rule `mail` of tools.transform changes 1 value at $"), "{verdicts:?}");
}

#[tokio::test]
async fn an_example_of_a_result_shows_what_the_rules_for_results_would_change() {
    let config = config(&[], &[mail(), path("$.n")]);
    let checkpoint = Checkpoint::with(&config, Metadata::default(), answering(json!("fine")));
    let explain = async |result: Value| {
        let mut verdicts = checkpoint.pipeline.explain(&call(), Arguments::new(), Some(result)).await;
        assert_eq!(verdicts.len(), 7);
        verdicts.remove(6)
    };
    let changed = explain(json!({"by": ADDRESS, "to": [ADDRESS], "n": 1})).await;
    assert_eq!((changed.stage, changed.passes), (Stage::Accept, Some(true)));
    for part in ["no output schema", "the rule `mail` of tools.transform changes 2 values at $;", "`path`", "at $.n"] {
        assert!(changed.because.contains(part), "{part}: {changed:?}");
    }
    assert!(!changed.because.contains(ADDRESS), "{changed:?}");
    assert_eq!(explain(json!("nothing to find")).await.because, "the tool has no output schema");
    // A text that is JSON is changed like its value.
    assert!(explain(json!(format!(r#"{{"by": "{ADDRESS}"}}"#))).await.because.contains("changes 1 value at $"));
    assert_eq!(checkpoint.runs(), 0);
    assert!(!checkpoint.pipeline.settlement.metrics.render().contains("test_transform_findings_total{"));
}

#[tokio::test]
async fn arguments_must_be_valid_after_the_rules_too() {
    let checkpoint = Checkpoint::with(&config(&[path("$.n")], &[]), Metadata::default(), answering(json!("fine")));
    let reply = checkpoint.pipeline.call(call(), to_ann()).await.reply;
    let error = reply.outcome.as_ref().unwrap_err();
    assert_eq!((error.code(), error.stage()), (ErrorCode::InvalidArguments, Some(Stage::Validate)));
    assert!(error.message().contains("the rules `path` of tools.transform.arguments"), "{error}");
    assert_eq!(checkpoint.runs(), 0);
    // A value that was coerced before is not in the receipt either.
    let zero = TransformRule { replace: Some(json!(0)), ..path("$.n") };
    let checkpoint = Checkpoint::with(&config(&[zero], &[]), Metadata::default(), answering(json!("fine")));
    let reply = checkpoint.pipeline.call(call(), arguments(&json!({"n": "4711"}))).await.reply;
    let coercion = &reply.receipt.coercions[0];
    assert_eq!((coercion.rule, &coercion.from, &coercion.to), ("string_to_integer", &Value::Null, &Value::Null));
}

#[tokio::test]
async fn an_approval_and_a_key_are_for_what_is_sent() {
    let store = test_store().await;
    let metadata = || Metadata { approval: ApprovalRule::Always, ..Metadata::default() };
    let mut with_key = config(&[mail()], &[]);
    with_key.secrets.key = Some(sekisho_config::Secret::new("00".repeat(32)));
    let checkpoint = Checkpoint::of_tool_on(&store, &with_key, metadata(), answering(json!("fine"))).await;
    let asked = |to: &str| checkpoint.pipeline.call(call(), arguments(&json!({"to": to})));
    let (first, same) = (asked(ADDRESS).await, asked("bob@example.org").await);
    let id = |answered: &Answered| Arc::clone(&answered.needed_approval().unwrap().id);
    assert_eq!(id(&first), id(&same), "the same arguments are sent");
    let pipeline = &checkpoint.pipeline;
    let kept = pipeline.approvals.arguments(&pipeline.approvals.find(&id(&first)).await.unwrap()).unwrap();
    assert_eq!(Value::Object(kept), json!({"to": "[redacted]"}));

    let checkpoint = Checkpoint::with(&config(&[mail()], &[]), Metadata::default(), answering(json!("fine")));
    for (to, replayed) in [(ADDRESS, false), ("bob@example.org", true)] {
        let call = CallContext {
            resumption: CallResumption { idempotency_key: Some("k".into()), ..CallResumption::default() },
            ..call()
        };
        let answered = checkpoint.pipeline.call(call, arguments(&json!({"to": to}))).await;
        assert_eq!((answered.reply.outcome.is_ok(), answered.replayed), (true, replayed), "{to}");
    }
    assert_eq!(checkpoint.runs(), 1);
}

#[tokio::test]
async fn results_and_what_failed_tools_say_are_changed_and_counted() {
    let config = config(&[], &[mail()]);
    let checkpoint = Checkpoint::with(&config, Metadata::default(), answering(json!({"by": ADDRESS})));
    let reply = checkpoint.pipeline.call(call(), Arguments::new()).await.reply;
    let answer = reply.outcome.as_ref().unwrap();
    assert_eq!((&answer.output, &*answer.text), (&json!({"by": "[redacted]"}), r#"{"by":"[redacted]"}"#));
    assert_eq!(found(&reply.receipt.transforms), [("results", "mail", "$", 1)]);

    let fails = Scripted::answering(|_| Err(CallError::tool(format!("{ADDRESS} is unknown"))));
    let checkpoint = Checkpoint::with(&config, Metadata::default(), fails);
    let reply = checkpoint.pipeline.call(call(), Arguments::new()).await.reply;
    assert_eq!(reply.outcome.as_ref().unwrap_err().message(), "[redacted] is unknown");
    assert_eq!(found(&reply.receipt.transforms).len(), 1);
}

/// A client that keeps the messages that it is sent.
#[derive(Debug, Default)]
struct Client(Mutex<Vec<String>>);

impl ClientPeer for Client {
    fn owner(&self) -> &sekisho_core::caller::Owner {
        sekisho_core::caller::Owner::gateway()
    }
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn wants_progress(&self) -> bool {
        true
    }
    fn log_level(&self) -> Option<LogLevel> {
        Some(LogLevel::Info)
    }
    fn time_asking(&self) -> Duration {
        Duration::ZERO
    }
    fn progress(&self, progress: Progress) {
        self.0.lock().extend(progress.message);
    }
    fn log(&self, message: LogMessage) {
        self.0.lock().push(message.data.to_string());
    }
    fn ask(&self, questions: Questions) -> futures_util::future::BoxFuture<'_, Result<Answers, Unanswered>> {
        self.0.lock().extend(questions.values().map(|question| question.params.to_string()));
        Box::pin(async { Err(Unanswered::Unsupported) })
    }
}

#[tokio::test]
async fn progress_log_messages_and_questions_are_changed_too() {
    let client = Arc::new(Client::default());
    let checkpoint =
        Checkpoint::with(&config(&[], &[mail(), path("$.iban")]), Metadata::default(), answering(json!("fine")));
    let mut call = CallContext {
        client: CallClient { peer: Some(Arc::clone(&client) as Arc<dyn ClientPeer>), ..CallClient::default() },
        ..call()
    };
    checkpoint.pipeline.transform_messages(&mut call);
    let peer = call.client.peer.unwrap();
    assert!(peer.wants_progress());
    peer.progress(Progress { progress: 1.0, total: None, message: Some(format!("to {ADDRESS}")) });
    peer.progress(Progress { progress: 2.0, total: None, message: None });
    peer.log(LogMessage { level: LogLevel::Info, logger: None, data: json!({"to": ADDRESS}) });
    let method = sekisho_core::peer::QuestionMethod::Elicitation;
    let question = sekisho_core::peer::Question { method, params: json!({"message": ADDRESS}) };
    assert!(peer.ask(Questions::from([("q".to_owned(), question)])).await.is_err());
    assert_eq!(*client.0.lock(), ["to [redacted]", r#"{"to":"[redacted]"}"#, r#"{"message":"[redacted]"}"#]);
}

#[tokio::test]
async fn a_client_is_left_alone_where_no_rule_is_for_results() {
    let client = Arc::new(Client::default());
    let checkpoint = Checkpoint::with(&config(&[mail()], &[]), Metadata::default(), answering(json!("fine")));
    let mut call = CallContext {
        client: CallClient { peer: Some(Arc::clone(&client) as Arc<dyn ClientPeer>), ..CallClient::default() },
        ..call()
    };
    checkpoint.pipeline.transform_messages(&mut call);
    call.client.peer.unwrap().progress(Progress { progress: 1.0, total: None, message: Some(ADDRESS.to_owned()) });
    assert_eq!(*client.0.lock(), [ADDRESS]);
}
