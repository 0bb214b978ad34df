//! The bytes that reach an API depend only on the parts of a call that policies, approvers and digests have seen.

use std::str::FromStr;

use proptest::prelude::*;
use proptest::test_runner::{Config as RunnerConfig, TestRunner};
use tokio::runtime::Runtime;

use super::*;
use crate::call::adapter::Adapter;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{Executor, Tool};
use sekisho_config::ToolsConfig;
use sekisho_core::call::Arguments;
use sekisho_observe::metrics::Metrics;

/// Writes a text into a field of a call, besides its arguments.
type Write = fn(&mut CallContext, String);

/// The fields that a caller writes. (The session and files are no inputs of an HTTP API.)
const FIELDS: [(&str, Write); 14] = [
    ("prompt_params.account", |call, text| _ = call.origin.prompt_params.insert("account".into(), text.into())),
    ("prompt_params.unused", |call, text| _ = call.origin.prompt_params.insert("unused".into(), text.into())),
    ("tool_parameters", |call, text| _ = call.origin.tool_parameters.insert("tokens".into(), json!({"unused": text}))),
    ("user_id", |call, text| call.origin.claimed_user = Some(text)),
    ("request_id", |call, text| call.charging.scopes.request = Some(text)),
    ("agent_id", |call, text| call.charging.scopes.agent = Some(text)),
    ("task_id", |call, text| call.charging.scopes.task = Some(text)),
    ("Idempotency-Key", |call, text| call.resumption.idempotency_key = Some(text)),
    ("X-Approval-Id", |call, text| call.resumption.approval = Some(text.into())),
    ("run", |call, text| call.resumption.run = Some(text.into())),
    ("_meta", |call, text| _ = call.client.meta.insert("example.com/a".into(), text.into())),
    ("agent's id of the call", |call, text| call.body.agent_call = Some(text.into())),
    ("name of the tool", |call, text| call.tool = text),
    ("task", |call, _| call.client.as_task = true),
];

/// An operation with a parameter in each place, a body, and an adapter that does all that one can.
struct Adapted {
    upstream: Upstream,
    tool: Arc<Tool>,
    executor: Arc<dyn Executor>,
}

/// A call that was sent: the digest of its judged values, the arguments by the tool's names, and the request.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    digest: String,
    own: Arguments,
    request: (Method, Uri, Vec<(String, String)>, Bytes),
}

impl Adapted {
    async fn start() -> Self {
        let upstream = Upstream::start().await;
        let text = || json!({"type": "string"});
        let mut post = operation("query", Method::POST, "/query/{id}");
        post.parameters = vec![
            parameter("id", Location::Path, text()),
            parameter("q", Location::Query, text()),
            parameter("X-Kind", Location::Header, text()),
            parameter("place", Location::Cookie, text()),
        ];
        let range = json!({"type": "object"});
        let properties = json!({"account_id": text(), "startTime": text(), "metrics": text(), "range": range});
        post.body = body("application/json", json!({"type": "object", "properties": properties}));
        let declared = json!({
            "keys": {"from": "startTime"},
            "values": {"metrics": {"users": "di:users"}},
            "time_ranges": {"range": {"start": "startTime"}},
            "defaults": {"q": "everything", "step": "day"},
            "inject": {"account_id": "account"},
            "headers": {"X-Vendor": "v1"},
        });
        let adapter = Adapter::compile(serde_json::from_value(declared).unwrap()).unwrap();
        let access = Arc::new(Access { adapter: Some(Arc::new(adapter)), ..Access::clone(&access()) });
        let api = upstream.api(vec![post]);
        let definition = definitions("pets", &api, &CollectionSettings::default(), &access).unwrap().0.remove(0);
        let executor = Arc::clone(&definition.executor);
        let metrics = Metrics::new("test").unwrap();
        let snapshot = Snapshot::build(vec![definition], Vec::new(), &ToolsConfig::default(), &metrics).unwrap();
        let tool = Arc::clone(snapshot.get("pets__query").unwrap());
        Self { upstream, tool, executor }
    }

    /// `None` for arguments that are refused.
    async fn send(&self, call: &CallContext, arguments: &Arguments) -> Option<Sent> {
        let valid = self.tool.valid_arguments(arguments.clone(), &call.origin.prompt_params).ok()?;
        let attempt = Attempt {
            call,
            deadline: Deadline::after(Duration::from_secs(20)),
            memory_limit_bytes: 128 << 20,
            max_output_bytes: 1 << 20,
        };
        self.executor.execute(attempt, valid.sent()).await.ok()?;
        let ReceivedRequest { method, uri, headers, body } = self.upstream.last();
        // The trace is the gateway's own.
        let is_trace = |name: &str| matches!(name, "traceparent" | "tracestate");
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let headers = headers.filter(|(name, _)| !is_trace(name)).collect();
        let digest = self.tool.sent_call(call, valid.sent()).digest(&self.tool);
        Some(Sent { digest, own: valid.as_map().clone(), request: (method, uri, headers, body) })
    }
}

fn call_with(account: Option<&str>) -> CallContext {
    let mut call = CallContext::new("pets__query", Arc::new(Caller::anonymous()), Via::Rest);
    call.origin.prompt_params.extend(account.map(|account| ("account".to_owned(), account.into())));
    call
}

fn some_arguments() -> impl Strategy<Value = Arguments> {
    let text = || prop::option::of("[a-z]{1,3}");
    let metric = prop::option::of(prop_oneof![Just("users".to_owned()), "[a-z]{1,3}"]);
    ("[a-z]{1,3}", text(), text(), text(), text(), text(), metric).prop_map(
        |(id, q, kind, place, account_id, from, metrics)| {
            let given = [
                ("q", q),
                ("X-Kind", kind),
                ("place", place),
                ("account_id", account_id),
                ("from", from.clone()),
                ("metrics", metrics),
            ];
            let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
            let range = from.map(|start| ("range".to_owned(), json!({"start": start})));
            [("id".to_owned(), id.into())].into_iter().chain(given).chain(range).collect()
        },
    )
}

/// Each field of a call is changed on its own. Where the judged values are the same, so is each byte of the request,
/// apart from the trace. Filled-in values are judged by the tool's own name.
#[test]
fn no_byte_that_is_sent_depends_on_what_was_not_judged() {
    let runtime = Runtime::new().unwrap();
    let adapted = runtime.block_on(Adapted::start());
    let strategy = (some_arguments(), prop::option::of("[a-z]{1,3}"), "[a-z]{4,6}", some_arguments());
    let mut runner = TestRunner::new(RunnerConfig { cases: 24, ..RunnerConfig::default() });
    let outcome = runner.run(&strategy, |(arguments, account, text, other)| {
        let first = runtime.block_on(adapted.send(&call_with(account.as_deref()), &arguments)).unwrap();
        if let Some(account) = &account {
            let body: Value = serde_json::from_slice(&first.request.3).unwrap();
            prop_assert_eq!(&first.own["account_id"], &json!(account));
            prop_assert_eq!(&body["account_id"], &json!(account));
        }
        for (field, write) in FIELDS {
            let mut call = call_with(account.as_deref());
            write(&mut call, text.clone());
            let sent = runtime.block_on(adapted.send(&call, &arguments)).unwrap();
            prop_assert_eq!(sent.digest == first.digest, sent.request == first.request, "{}", field);
            prop_assert_eq!(sent.digest == first.digest, field != "prompt_params.account", "{}", field);
        }
        let sent = runtime.block_on(adapted.send(&call_with(account.as_deref()), &other)).unwrap();
        prop_assert_eq!(sent.digest == first.digest, sent.request == first.request);
        Ok(())
    });
    outcome.unwrap();
}

#[tokio::test]
async fn what_is_sent_is_known_before() {
    let adapted = Adapted::start().await;
    let arguments = json!({"id": "a", "from": "x", "metrics": "users", "range": {"start": "y"}, "account_id": "EVIL"});
    let (call, arguments) = (call_with(Some("acme")), arguments.as_object().cloned().unwrap());
    let valid = adapted.tool.valid_arguments(arguments.clone(), &call.origin.prompt_params).unwrap();
    let own = json!({
        "id": "a", "from": "x", "metrics": "users", "range": {"start": "y"}, "account_id": "acme", "q": "everything",
        "step": "day",
    });
    assert_eq!(Value::Object(valid.as_map().clone()), own);
    let expected = json!({
        "id": "a", "startTime": "x", "metrics": "di:users", "range": {"startTime": "y"}, "account_id": "acme",
        "q": "everything", "step": "day",
    });
    assert_eq!(Value::Object(valid.sent().clone()), expected);
    let destination = adapted.tool.sent_call(&call, valid.sent()).destination;
    let server = adapted.upstream.url.as_str().trim_end_matches('/');
    assert_eq!((&*destination.method, &*destination.address), ("POST", format!("{server}/query/{{id}}").as_str()));
    assert_eq!(destination.coding.as_deref(), Some("application/json"));
    let identity = adapted.executor.identity().unwrap();
    assert!(identity.ends_with("\0x-vendor:v1"), "an approval is for the adapter's header: {identity:?}");
    let sent = adapted.send(&call, &arguments).await.unwrap();
    assert_eq!(sent.request.1, Uri::from_str("/v1/query/a?q=everything").unwrap());
    let body = json!({
        "startTime": "x", "metrics": "di:users", "range": {"startTime": "y"}, "account_id": "acme", "step": "day",
    });
    assert_eq!(serde_json::from_slice::<Value>(&sent.request.3).unwrap(), body);
}

#[tokio::test]
async fn a_value_of_the_session_must_fit_the_tools_schema() {
    let adapted = Adapted::start().await;
    let mut call = call_with(None);
    call.origin.prompt_params.insert("account".into(), json!({"$ne": null}));
    let arguments = json!({"id": "a"}).as_object().cloned().unwrap();
    let error = adapted.tool.valid_arguments(arguments, &call.origin.prompt_params).unwrap_err();
    assert!(error.message().starts_with("what the vendor adapter fills in"), "{error}");
}
