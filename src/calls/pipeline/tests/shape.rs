//! Fixed arguments and projections on the path of a call: the values that the stages after them see, and the records.

use serde_json::Value;

use super::*;
use sekisho_config::{AuditArguments, Summary, ToolOverride};
use sekisho_core::call::{CallOrigin, ResultHandles};
use sekisho_core::json;

fn config(changes: ToolOverride) -> Config {
    let mut config = Config::default();
    config.tools.overrides.insert("scripted".to_owned(), changes);
    config
}

fn answering(value: Value) -> Scripted {
    Scripted::answering(move |_| Ok(value.clone().into()))
}

#[tokio::test]
async fn a_fixed_argument_is_recorded_as_it_is_sent() {
    let fix = [("n".to_owned(), json!(7))].into();
    let metadata = Metadata { audit_arguments: AuditArguments::Full, ..Metadata::default() };
    let checkpoint =
        Checkpoint::with(&config(ToolOverride { fix, ..ToolOverride::default() }), metadata, answering(json!(1)));
    assert_eq!(checkpoint.tool().input.document()["properties"], json!({}));
    let given = |n: Value| Arguments::from_iter([("n".to_owned(), n)]);
    for arguments in [Arguments::new(), given(json!(7)), given(json!(8))] {
        checkpoint.pipeline.call(call(), arguments).await;
    }
    let lines = checkpoint.lines().await;
    for line in &lines[..2] {
        assert_eq!(line["arguments"], json!({"n": 7}));
        assert_eq!(line["arguments_sha256"], hex::encode(json::digest(&given(json!(7)))));
    }
    assert_eq!((&lines[2]["code"], checkpoint.runs()), (&json!("invalid_arguments"), 2));
}

#[tokio::test]
async fn a_projection_is_answered_or_the_call_fails_and_costs() {
    let project = |project: &str| config(ToolOverride { project: Some(project.into()), ..ToolOverride::default() });
    let answer = || answering(json!({"rows": [{"id": 1, "long": "x"}]}));
    let checkpoint = Checkpoint::with(&project("rows[*].id"), Metadata::default(), answer());
    let reply = checkpoint.pipeline.call(call(), Arguments::new()).await.reply;
    let found = reply.outcome.as_ref().unwrap();
    assert_eq!((&found.output, found.text.as_str()), (&json!([1]), "[1]"));
    let checkpoint = Checkpoint::with(&project("sum(rows)"), Metadata::default(), answer());
    let reply = checkpoint.pipeline.call(call(), Arguments::new()).await.reply;
    let error = reply.outcome.as_ref().unwrap_err();
    assert_eq!((error.code(), reply.cost_usd), (ErrorCode::InvalidOutput, cents(10)));
    assert!(error.message().contains("\"scripted\" (sum(rows))"), "{error}");
}

#[tokio::test]
async fn a_result_beyond_the_maximum_may_have_a_small_projection() {
    let changes = ToolOverride { project: Some("length(@)".into()), ..ToolOverride::default() };
    let large = || answering(json!("x".repeat(3 << 19)));
    let as_it_is = Checkpoint::with(&Config::default(), Metadata::default(), large());
    let reply = as_it_is.pipeline.call(call(), Arguments::new()).await.reply;
    assert_eq!(reply.outcome.as_ref().unwrap_err().code(), ErrorCode::OutputTooLarge);
    let list = answering(json!(["x".repeat(3 << 19)]));
    let projected = Checkpoint::with(&config(changes.clone()), Metadata::default(), list);
    let reply = projected.pipeline.call(call(), Arguments::new()).await.reply;
    assert_eq!(reply.outcome.as_ref().unwrap().text, "1");
    // A text that is no JSON has no projection.
    let text = Checkpoint::with(&config(changes), Metadata::default(), large());
    let reply = text.pipeline.call(call(), Arguments::new()).await.reply;
    assert_eq!(reply.outcome.as_ref().unwrap_err().code(), ErrorCode::OutputTooLarge);
}

#[tokio::test]
async fn a_model_gets_a_summary_and_others_get_the_result() {
    let rows: Vec<_> = (0..200).map(|id| json!({"id": id})).collect();
    let changes = ToolOverride { summarise: Some(Summary::Table), ..ToolOverride::default() };
    let with_handles = || {
        let handles = Some(ResultHandles { max_inline_bytes: 1 << 20, session: None });
        CallContext { origin: CallOrigin { handles, ..CallOrigin::default() }, ..call() }
    };
    let checkpoint = Checkpoint::with(&config(changes.clone()), Metadata::default(), answering(json!(rows)));
    let shown = |reply: &Arc<Reply>| serde_json::to_value(&**reply).unwrap()["output"].clone();
    let summary = shown(&checkpoint.pipeline.call(with_handles(), Arguments::new()).await.reply);
    assert!(summary["table"].as_str().is_some_and(|table| table.starts_with("id\n0\n1\n")), "{summary}");
    assert_eq!(shown(&checkpoint.pipeline.call(call(), Arguments::new()).await.reply), json!(rows));
    let few = Checkpoint::with(&config(changes), Metadata::default(), answering(json!([{"id": 1}])));
    assert_eq!(shown(&few.pipeline.call(with_handles(), Arguments::new()).await.reply), json!([{"id": 1}]));
}
