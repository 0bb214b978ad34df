//! Tools beyond `max_tools`, for a model whose provider searches tools: they are in each request, deferred, and are called once the
//! search has found them. The model server refuses what Anthropic refuses of them, and fails at the first changed byte.

use serde_json::{Value, json};

use super::prefixes::Talk;
use crate::app::answer;

/// Of two more, which `CallTool` and `Wait` take, the better half is shown: one.
#[tokio::test]
async fn tools_beyond_the_maximum_are_found_by_the_search_of_the_provider() {
    let talk = Talk::begin(", max_tools: 4").await;
    talk.say("talk-g 1: what time is it?").await;
    let arguments = json!({"expression": "6*7"});
    let reply = talk.say(&format!("talk-g 2: seek calculator {arguments}")).await;
    assert_eq!(reply["status"], "succeeded", "{reply}");
    let calls = answer(talk.app.get("/api/logs/tool_executions").bearer_auth("key-of-ada")).await.1.to_string();
    assert!(calls.contains("\"calculator\""), "the tool that was found is called: {calls}");
    let talk = talk.restarted().await;
    talk.say("talk-g 3: thanks").await;

    let requests = talk.model.requests();
    let tools = requests[0]["tools"].as_array().unwrap();
    let named = |deferred: bool| {
        let of_kind = tools.iter().filter(|tool| tool["defer_loading"].as_bool().unwrap_or_default() == deferred);
        of_kind.filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>()
    };
    assert!(named(true).contains(&"calculator"), "{:?}", named(true));
    assert_eq!(named(false).len(), 4, "the tool that searches, one other, CallTool and Wait: {:?}", named(false));
    assert!(!requests[0]["system"].to_string().contains("calculator"), "the prompt has only tools that are shown");
    // The search stays in its place: in the request after the call, and after the restart.
    let is_search = |block: &Value| block["type"] == "tool_search_tool_result";
    let searches = |request: &Value| {
        let messages = request["messages"].as_array().unwrap().iter();
        messages.filter_map(|message| message["content"].as_array()).flatten().filter(|block| is_search(block)).count()
    };
    assert_eq!(requests.iter().map(searches).collect::<Vec<_>>(), [0, 0, 1, 1]);
}
