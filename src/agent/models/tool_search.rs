//! Tools that a model's provider searches (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool>,
//! <https://developers.openai.com/api/docs/guides/tools-tool-search>): each request has all of them, and the model is shown those that
//! it searches for, at the end of its context. The searches go back in their places, so that nothing before them changes.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::ModelRequest;
use crate::message::{Message, Thought};
use crate::toolbox::ToolDescription;

/// The member that defers a tool.
pub(super) const DEFERRED: &str = "defer_loading";

/// Begins the types of the items of a search, and the names of Anthropic's tools that search.
const SEARCH: &str = "tool_search";

/// Entries of `tools` that OpenAI accepts; a namespace is one.
const MAX_ENTRIES: usize = 128;

/// Names of tools in the description of a namespace.
const MAX_NAMES: usize = 20;

/// The namespace of tools without a source.
const OWN: &str = "gateway";

/// Members of the items of OpenAI's that it takes back.
const MEMBERS: [&str; 7] = ["type", "id", "call_id", "arguments", "execution", "status", "tools"];

/// Whether the provider searches tools of a request.
pub(super) fn is_used(tools: &[ToolDescription]) -> bool {
    tools.iter().any(|tool| tool.is_deferred)
}

/// Whether a block or an item of a search has this type, or a tool of the provider this name.
pub(super) fn is_of_search(name: &str) -> bool {
    name.starts_with(SEARCH)
}

/// Anthropic's tool that searches by words.
pub(super) fn tool_of_anthropic() -> Value {
    json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"})
}

/// The ids of the searches that go back to Anthropic: those whose result is in the conversation, in the turn of the call or, after a pause
/// or calls of other tools beside it, in the next one. A reference to a tool that the request does not have would be refused. A call that
/// waits for its result goes back while nothing but results of other calls follows: the provider runs it then
/// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools>).
pub(super) fn searches_of_anthropic(request: &ModelRequest) -> HashSet<&str> {
    let (mut calls, mut known) = (HashSet::new(), HashMap::new());
    if !is_used(&request.tools) {
        return calls;
    }
    let names: HashSet<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let is_known = |reference: &Value| reference["tool_name"].as_str().is_some_and(|name| names.contains(name));
    let results = request.messages.iter().rev().take_while(|message| matches!(message, Message::Tool(_))).count();
    for (place, message) in (1..).zip(&request.messages) {
        let Message::Assistant(turn) = message else { continue };
        let is_last = place + results == request.messages.len();
        for block in turn.thoughts().filter_map(Thought::details).flatten() {
            match (block["tool_use_id"].as_str(), block["id"].as_str()) {
                (Some(id), _) => {
                    let mut found = block["content"]["tool_references"].as_array().into_iter().flatten();
                    known.insert(id, found.all(is_known));
                }
                (None, Some(id)) => {
                    calls.insert(id);
                    known.insert(id, is_last);
                }
                (None, None) => {}
            }
        }
    }
    calls.retain(|id| known.get(id).copied().unwrap_or_default());
    calls
}

/// A block of one of these searches, the call or its result, as it goes back to Anthropic.
pub(super) fn block_of_anthropic(blocks: &[Value], searches: &HashSet<&str>) -> Option<Value> {
    let [block] = blocks else { return None };
    let id = block.get("tool_use_id").or_else(|| block.get("id"))?.as_str()?;
    searches.contains(id).then(|| block.clone())
}

/// The deferred tools of a request to OpenAI, by their source, and its tool that searches them. `shown`: how many others there are.
pub(super) fn namespaces_of_openai(
    tools: &[ToolDescription],
    shown: usize,
    function: impl Fn(&ToolDescription) -> Value,
) -> Vec<Value> {
    let most = MAX_ENTRIES.saturating_sub(shown).saturating_sub(1);
    let mut sources: Vec<(&str, Vec<&ToolDescription>)> = Vec::new();
    for tool in tools.iter().filter(|tool| tool.is_deferred) {
        let source = tool.name.split_once("__").map_or(OWN, |(source, _)| source);
        match sources.iter().position(|(known, _)| *known == source) {
            Some(place) => sources[place].1.push(tool),
            None if sources.len() < most => sources.push((source, vec![tool])),
            // The last one has those for which there is no entry.
            None => {
                if let Some((_, tools)) = sources.last_mut() {
                    tools.push(tool);
                }
            }
        }
    }
    let mut entries: Vec<_> = sources.into_iter().map(|(source, tools)| namespace(source, &tools, &function)).collect();
    if !entries.is_empty() {
        entries.push(json!({"type": SEARCH}));
    }
    entries
}

fn namespace(source: &str, tools: &[&ToolDescription], function: impl Fn(&ToolDescription) -> Value) -> Value {
    let names: Vec<_> = tools.iter().take(MAX_NAMES).map(|tool| tool.name.as_str()).collect();
    let more = if tools.len() > MAX_NAMES { ", and others" } else { "" };
    let description = format!("{} tools: {}{more}.", tools.len(), names.join(", "));
    let tools: Vec<_> = tools.iter().map(|tool| function(tool)).collect();
    json!({"type": "namespace", "name": source, "description": description, "tools": tools})
}

/// An item of a search as OpenAI takes it back: without members of answers.
pub(super) fn item_of_openai(mut item: Map<String, Value>) -> Value {
    item.retain(|name, _| MEMBERS.contains(&&**name));
    Value::Object(item)
}
