//! Tools that a model's provider searches (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool>,
//! <https://developers.openai.com/api/docs/guides/tools-tool-search>): each request has all of them, and the model is shown those that
//! it searches for, at the end of its context. The searches go back in their places, so that nothing before them changes.

use serde_json::{Map, Value, json};

use crate::message::{AssistantTurn, Thought};
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

/// A block of a search as it goes back to Anthropic: the call or its result, if the request has the tools that were found. A reference to
/// another tool would be refused.
pub(super) fn block_of_anthropic(blocks: &[Value], turn: &AssistantTurn, tools: &[ToolDescription]) -> Option<Value> {
    let [block] = blocks else { return None };
    let id = block.get("tool_use_id").or_else(|| block.get("id"))?;
    let mut others = turn.thoughts().filter_map(Thought::details).flatten();
    let result = others.find(|other| other.get("tool_use_id") == Some(id))?;
    let mut found = result["content"]["tool_references"].as_array().into_iter().flatten();
    let is_known = |reference: &Value| tools.iter().any(|tool| reference["tool_name"] == *tool.name);
    (is_used(tools) && found.all(is_known)).then(|| block.clone())
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
