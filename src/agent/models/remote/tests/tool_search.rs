//! Tools that a provider searches: requests, answers, and the blocks of both that later requests repeat.

use std::sync::Arc;

use super::*;
use crate::toolbox::ToolDescription;

const ANTHROPIC: &str = include_str!("../../../../../tests/fixtures/model_apis/anthropic.json");
const RESPONSES: &str = include_str!("../../../../../tests/fixtures/model_apis/openai_responses.json");

fn tool(name: &str, is_deferred: bool) -> ToolDescription {
    let parameters = Arc::new(json!({"type": "object"}));
    ToolDescription { name: name.into(), description: "Does it.".into(), parameters, is_deferred }
}

/// A request with a tool that is shown and two that are searched.
fn searching(messages: Vec<Message>) -> ModelRequest {
    let tools = vec![tool("crm__find", true), tool("add", false), tool("crm__close", true)];
    ModelRequest { tools, ..request(messages) }
}

/// The answer to such a request by a model whose provider searches tools, and the request. It is valid against the schema.
async fn asked(protocol: Protocol, schema: &str, body: &[u8], messages: Vec<Message>) -> (Vec<ModelChunk>, Value) {
    let provider = Provider::serving(Answer::whole(protocol, body, 7)).await;
    let model = provider.model(protocol).with_row(ModelRow { deferred_tools: 10, ..ModelRow::default() });
    let chunks: Vec<_> = model.stream(Arc::new(searching(messages))).collect().await;
    let mut chunks: Vec<_> = chunks.into_iter().collect::<Result<_, _>>().unwrap();
    chunks.retain(|chunk| !matches!(chunk, ModelChunk::Fragment { .. }));
    let request = provider.requests.lock()[0].clone();
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let violations: Vec<_> = validator.iter_errors(&request).map(|error| error.to_string()).collect();
    assert!(violations.is_empty(), "{violations:?}\n{request:#}");
    (chunks, request)
}

/// The conversation that goes on after these chunks.
fn continued(chunks: &[ModelChunk]) -> Vec<Message> {
    let part = |chunk: &ModelChunk| match chunk {
        ModelChunk::Text(text) => Some(TurnPart::Text(text.clone())),
        ModelChunk::Thought(thought) => Some(TurnPart::Thought(thought.clone())),
        ModelChunk::Call(call) => Some(TurnPart::Call(call.clone())),
        _ => None,
    };
    let turn = AssistantTurn { parts: chunks.iter().filter_map(part).collect(), api: None };
    [question(), vec![Message::Assistant(turn), answer("a", Vec::new())]].concat()
}

fn search_of_anthropic(found: &str) -> [Value; 2] {
    let references = json!([{"type": "tool_reference", "tool_name": found}]);
    [
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "customers"}}),
        json!({"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1",
            "content": {"type": "tool_search_tool_search_result", "tool_references": references}}),
    ]
}

/// A turn with a search, whose input arrives in fragments, and a call of the tool that was found.
fn answer_of_anthropic(found: &str) -> Vec<u8> {
    let [mut call, result] = search_of_anthropic(found);
    let input = call["input"].take().to_string();
    call["input"] = json!({});
    let start =
        |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let piece = |index: u32, text: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": text});
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    };
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let (first, second) = input.split_at(5);
    anthropic(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}),
        start(0, json!({"type": "text", "text": "I search."})),
        stop(0),
        start(1, call),
        piece(1, ""),
        piece(1, first),
        piece(1, second),
        stop(1),
        start(2, result),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "a", "name": found, "input": {}})),
        piece(3, "{\"x\":1}"),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ])
}

#[tokio::test]
async fn anthropic_searches_deferred_tools_and_gets_its_searches_back() {
    let body = answer_of_anthropic("crm__find");
    let (chunks, request) = asked(Protocol::Anthropic, ANTHROPIC, &body, question()).await;
    let sent = |name: &str| json!({"name": name, "description": "Does it.", "input_schema": {"type": "object"}});
    let deferred = |name: &str| {
        let mut sent = sent(name);
        sent["defer_loading"] = true.into();
        sent
    };
    let mut marked = sent("add");
    marked["cache_control"] = json!({"type": "ephemeral"});
    let search = json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"});
    // A mark at a deferred tool is refused.
    assert_eq!(request["tools"], json!([search, deferred("crm__find"), marked, deferred("crm__close")]));

    let [call, result] =
        search_of_anthropic("crm__find").map(|block| ModelChunk::Thought(Thought::Details(vec![block])));
    let found = RequestedCall::new("a".into(), "crm__find".into(), "{\"x\":1}".into());
    let expected = [ModelChunk::Text("I search.".into()), call, result, ModelChunk::Call(found)];
    assert_eq!(chunks[..4], expected, "{chunks:?}");

    let (_, request) = asked(Protocol::Anthropic, ANTHROPIC, &body, continued(&chunks)).await;
    let [call, result] = search_of_anthropic("crm__find");
    let used = json!({"type": "tool_use", "id": "a", "name": "crm__find", "input": {"x": 1}});
    let text = json!({"type": "text", "text": "I search."});
    assert_eq!(request["messages"][1]["content"], json!([text, call, result, used]), "{request:#}");
}

/// A reference to a tool that the request does not have would be refused.
#[tokio::test]
async fn a_search_that_found_a_tool_that_went_does_not_go_back() {
    let body = answer_of_anthropic("crm__gone");
    let (chunks, _) = asked(Protocol::Anthropic, ANTHROPIC, &body, question()).await;
    let (_, request) = asked(Protocol::Anthropic, ANTHROPIC, &body, continued(&chunks)).await;
    let content = request["messages"][1]["content"].as_array().unwrap();
    let kinds: Vec<_> = content.iter().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(kinds, ["text", "tool_use"]);
}

/// A search beside calls of other tools, or before a pause, has its result in the next turn.
#[test]
fn a_search_without_a_result_goes_back_while_the_provider_still_runs_it() {
    let [call, result] = search_of_anthropic("crm__find");
    let thought = |block: &Value| TurnPart::Thought(Thought::Details(vec![block.clone()]));
    let turn = |parts: Vec<TurnPart>| Message::Assistant(AssistantTurn { parts, api: None });
    let paused = turn(vec![TurnPart::Text("I search.".into()), thought(&call)]);
    let added = RequestedCall::new("a".into(), "add".into(), "{}".into());
    let beside = turn(vec![thought(&call), TurnPart::Call(added)]);
    let found = turn(vec![thought(&result), TurnPart::Text("Found.".into())]);
    let (added, asked) = (|| answer("a", Vec::new()), || Message::User("Go on.".into()));
    for (turns, blocks) in [
        (vec![paused.clone()], 1),
        (vec![paused.clone(), found.clone()], 2),
        (vec![beside.clone(), added()], 1),
        (vec![beside.clone(), added(), found.clone(), asked()], 2),
        (vec![beside, added(), asked()], 0),
        (vec![paused, asked()], 0),
        (vec![found], 0),
    ] {
        let body = crate::models::anthropic::body("claude-opus-4-8", &searching([question(), turns].concat()));
        assert_eq!(body.to_string().matches("srvtoolu_1").count(), blocks, "{body:#}");
    }
}

/// A tool of OpenAI's with this description, in its namespace.
fn found_by_openai() -> Value {
    let function = json!({"type": "function", "name": "crm__find", "description": "Does it.", "parameters": {"type": "object"},
        "strict": false, "defer_loading": true});
    json!({"type": "namespace", "name": "crm", "description": "2 tools: crm__find, crm__close.", "tools": [function]})
}

fn search_of_openai() -> [Value; 2] {
    [
        json!({"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server", "status": "completed",
            "arguments": {"paths": ["crm"]}}),
        json!({"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server", "status": "completed",
            "tools": [found_by_openai()]}),
    ]
}

fn answer_of_openai() -> Vec<u8> {
    let [mut call, output] = search_of_openai();
    call["created_by"] = "system".into();
    let item = |kind: &str, index: u32, item: &Value| json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item});
    let function = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "crm__find", "namespace": "crm", "arguments": arguments});
    let delta = json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"x\":1}"});
    let events = [
        item("added", 0, &call),
        item("done", 0, &call),
        item("done", 1, &output),
        item("added", 2, &function("")),
        delta,
        item("done", 2, &function("{\"x\":1}")),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ];
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
}

#[tokio::test]
async fn openai_searches_namespaces_and_gets_its_searches_back() {
    let body = answer_of_openai();
    let (chunks, request) = asked(Protocol::Responses, RESPONSES, &body, question()).await;
    let mut namespace = found_by_openai();
    let mut close = namespace["tools"][0].clone();
    close["name"] = "crm__close".into();
    namespace["tools"].as_array_mut().unwrap().push(close);
    let shown = json!({"type": "function", "name": "add", "description": "Does it.", "parameters": {"type": "object"}, "strict": false});
    assert_eq!(request["tools"], json!([shown, namespace, {"type": "tool_search"}]));

    let [call, output] = search_of_openai().map(|item| ModelChunk::Thought(Thought::Details(vec![item])));
    let extras = Extras::from_iter([("namespace".to_owned(), json!("crm"))]);
    let found = RequestedCall { extras, ..RequestedCall::new("a".into(), "crm__find".into(), "{\"x\":1}".into()) };
    assert_eq!(chunks[..3], [call, output, ModelChunk::Call(found)], "{chunks:?}");

    let (_, request) = asked(Protocol::Responses, RESPONSES, &body, continued(&chunks)).await;
    let [call, output] = search_of_openai();
    let function = json!({"type": "function_call", "call_id": "a", "name": "crm__find", "namespace": "crm", "arguments": "{\"x\":1}"});
    assert_eq!(request["input"].as_array().unwrap()[1..4], [call, output, function], "{request:#}");

    // Another session shows the tool: it has no group there.
    let tools = vec![tool("crm__find", false), tool("crm__close", true)];
    let shown = ModelRequest { messages: continued(&chunks), tools, ..request_without_search() };
    let body = responses::body("gpt-5.6-sol", &shown, true);
    assert!(body["input"].as_array().unwrap().iter().all(|item| item.get("namespace").is_none()), "{body:#}");

    // A model whose provider searches nothing gets none of it.
    let others = ModelRequest { messages: continued(&chunks), ..request_without_search() };
    let body = responses::body("gpt-5.1", &others, true).to_string();
    assert!(!body.contains("tool_search") && !body.contains("namespace"), "{body}");
}

fn request_without_search() -> ModelRequest {
    ModelRequest { tools: vec![tool("add", false)], ..request(question()) }
}

/// OpenAI accepts 128 entries. Sources for which there is none are in the last namespace.
#[test]
fn a_request_to_openai_has_no_more_entries_than_it_accepts() {
    let shown = (0..120).map(|number| tool(&format!("shown_{number}"), false));
    let deferred = (0..40).map(|number| tool(&format!("source_{number}__list"), true));
    for (shown_tools, namespaces, last) in [(120, 7, 34), (126, 1, 40), (127, 0, 0)] {
        let more = (0..shown_tools - 120).map(|number| tool(&format!("more_{number}"), false));
        let tools = shown.clone().chain(more).chain(deferred.clone()).collect();
        let body = responses::body("gpt-5.6-sol", &ModelRequest { tools, ..request(question()) }, true);
        let entries = body["tools"].as_array().unwrap();
        let found: Vec<_> = entries.iter().filter(|entry| entry["type"] == "namespace").collect();
        assert!(entries.len() <= 128, "{}", entries.len());
        assert_eq!(found.len(), namespaces, "{shown_tools} tools are shown");
        let in_last = found.last().map_or(0, |entry| entry["tools"].as_array().map_or(0, Vec::len));
        assert_eq!(in_last, last, "{shown_tools} tools are shown");
    }
}
