//! The arguments that an adapter changes arrive, also those that the document does not have.

use super::*;
use crate::call::adapter::Adapter;

fn adapted(api: &Api, declared: Value) -> ToolDefinition {
    let adapter = Adapter::compile(serde_json::from_value(declared).unwrap()).unwrap();
    let access = Arc::new(Access { adapter: Some(Arc::new(adapter)), ..Access::clone(&access()) });
    definitions("pets", api, &CollectionSettings::default(), &access).unwrap().0.remove(0)
}

async fn call_in_session(tool: &ToolDefinition, arguments: Value) {
    let mut context = CallContext::new("pets", Arc::new(Caller::anonymous()), Via::Rest);
    context.origin.prompt_params.insert("account_id".into(), json!("42"));
    call_as(tool, &context, arguments).await.unwrap();
}

fn sent(upstream: &Upstream) -> Value {
    serde_json::from_slice(&upstream.last().body).unwrap()
}

#[tokio::test]
async fn what_the_document_lacks_becomes_a_member_of_the_body() {
    let upstream = Upstream::start().await;
    let mut post = operation("query", Method::POST, "/query");
    post.body = body("application/json", json!({"type": "object", "properties": {"from": {"type": "string"}}}));
    let tool = adapted(
        &upstream.api(vec![post]),
        json!({"keys": {"from": "startTime"}, "inject": {"account_id": "account_id"}, "defaults": {"step": "day"}}),
    );
    call_in_session(&tool, json!({"from": "a"})).await;
    assert_eq!(sent(&upstream), json!({"startTime": "a", "step": "day", "account_id": "42"}));
}

#[tokio::test]
async fn the_members_of_a_body_that_is_one_argument_are_adapted_too() {
    let upstream = Upstream::start().await;
    let mut post = operation("query", Method::POST, "/query/{id}");
    post.parameters = vec![parameter("id", Location::Path, json!({"type": "string"}))];
    // Alternatives, and members of any name: flat arguments cannot express that.
    post.body = body("application/json", json!({"type": "object", "properties": {"from": {}}, "minProperties": 1}));
    let tool = adapted(
        &upstream.api(vec![post]),
        json!({"keys": {"from": "startTime"}, "inject": {"account_id": "account_id"}}),
    );
    let arguments = json!({"id": "a", "body": {"from": "b", "id": "c", "account_id": "someone else's"}});
    call_in_session(&tool, arguments).await;
    assert_eq!(upstream.last().uri.path(), "/v1/query/a");
    assert_eq!(sent(&upstream), json!({"id": "c", "startTime": "b", "account_id": "42"}));
}

#[tokio::test]
async fn an_operation_without_a_body_takes_it_in_the_query() {
    let upstream = Upstream::start().await;
    let mut get = operation("query", Method::GET, "/query");
    get.parameters = vec![parameter("q", Location::Query, json!({"type": "string"}))];
    let tool = adapted(&upstream.api(vec![get]), json!({"inject": {"account_id": "account_id"}}));
    call_in_session(&tool, json!({"q": "a"})).await;
    assert_eq!(upstream.last().uri.query(), Some("q=a&account_id=42"));
}

/// An adapter's header may be a key, and a server of an operation's own may be anybody's.
#[tokio::test]
async fn an_adapters_headers_go_to_the_collections_own_server_only() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let declared = json!({"headers": {"X-Vendor-Key": "s1"}});
    let own = operation("own", Method::GET, "/pets");
    let mut elsewhere = operation("elsewhere", Method::GET, "/pets");
    elsewhere.servers = vec![Server { url: other.url.clone(), description: String::new() }];
    call_in_session(&adapted(&upstream.api(vec![own]), declared.clone()), json!({})).await;
    assert_eq!(upstream.last().header("x-vendor-key"), Some("s1"));
    call_in_session(&adapted(&upstream.api(vec![elsewhere]), declared), json!({})).await;
    assert_eq!(other.last().header("x-vendor-key"), None);
}
