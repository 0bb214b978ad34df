//! `tools: search`: for large catalogues a client sees three tools that find, describe and call all others. `tools:
//! code_mode`: a client sees two tools. One finds the others, and one runs programs, which call them.

use std::sync::LazyLock;

use rmcp::model::{CallToolResult, ContentBlock, ErrorData, Tool as McpTool};
use serde_json::{Value, json};

use super::McpServer;
use super::catalogue::without_output_schema;
use super::client_context::McpClientContext;
use super::result;
use sekisho_calls::tool::OutputSchema;
use sekisho_config::McpToolListing;
use sekisho_core::call::Arguments;
use sekisho_core::error::ErrorCode;
use sekisho_sandbox::{HITS, MAX_HITS, PYTHON, RUN_PYTHON, SEARCH_TOOLS, model_hit, model_tools};

const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

/// The result of a call of one of these tools.
pub(super) enum Answer {
    Result(Result<CallToolResult, ErrorData>),
    /// A call of the tool it names.
    Call(String, Arguments),
    /// A catalogue tool, called by its own name.
    NotOurs,
}

/// The tools that are listed in place of all others, in the order of their names; `None`: all others are.
pub(super) fn tools(listing: McpToolListing) -> Option<&'static [McpTool]> {
    match listing {
        McpToolListing::All | McpToolListing::Auto => None,
        McpToolListing::Search => Some(&TOOLS),
        McpToolListing::CodeMode => Some(&CODE_MODE_TOOLS),
    }
}

/// Whether a tool of `tools: search` has this name.
pub(super) fn is_own(name: &str) -> bool {
    [CALL, DESCRIBE, SEARCH_TOOLS].contains(&name)
}

static CODE_MODE_TOOLS: LazyLock<Vec<McpTool>> = LazyLock::new(|| {
    let tools = model_tools().into_iter().map(|(name, description, schema)| {
        McpTool::new(name, description, schema.as_object().cloned().unwrap_or_default())
    });
    tools.collect()
});

pub(super) static TOOLS: LazyLock<Vec<McpTool>> = LazyLock::new(|| {
    let name = json!({"type": "string", "description": "The tool's name, as search_tools gives it."});
    let described = [
        (
            CALL,
            "Calls a tool of the catalogue. Find it with search_tools and read its schema with describe_tool first.",
            json!({"name": name, "arguments": {"type": "object", "description": "The tool's arguments."}}),
            json!(["name"]),
        ),
        (
            DESCRIBE,
            "Returns a tool's description and the JSON Schema of its arguments.",
            json!({"name": name}),
            json!(["name"]),
        ),
        (
            SEARCH_TOOLS,
            "Finds the tools that fit a task best, with a line on each.",
            json!({
                "query": {"type": "string", "minLength": 1, "description": "The task, in a few words."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": HITS},
            }),
            json!(["query"]),
        ),
    ];
    let tools = described.into_iter().map(|(name, description, properties, required)| {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        McpTool::new(name, description, schema.as_object().cloned().unwrap_or_default())
    });
    tools.collect()
});

/// With `listing` as it is for this call.
pub(super) fn answer(
    listing: McpToolListing,
    tool: &str,
    arguments: &Arguments,
    server: &McpServer,
    client_context: &McpClientContext,
) -> Answer {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    match (listing, tool) {
        (McpToolListing::All | McpToolListing::Auto, _) => Answer::NotOurs,
        (_, SEARCH_TOOLS) => Answer::Result(Ok(match text("query") {
            Some(query) => find(query, arguments.get("limit"), server, client_context),
            None => missing("query", "describe the task in a few words"),
        })),
        (McpToolListing::CodeMode, RUN_PYTHON) => Answer::Call(PYTHON.to_owned(), arguments.clone()),
        (McpToolListing::CodeMode, _) => Answer::NotOurs,
        (McpToolListing::Search, DESCRIBE) => Answer::Result(match text("name") {
            Some(name) => describe(name, server, client_context),
            None => Ok(missing("name", "search_tools finds names")),
        }),
        (McpToolListing::Search, CALL) => match (text("name"), arguments.get("arguments")) {
            (None, _) => Answer::Result(Ok(missing("name", "search_tools finds names"))),
            (Some(name), None) => Answer::Call(name.to_owned(), Arguments::new()),
            (Some(name), Some(Value::Object(arguments))) => Answer::Call(name.to_owned(), arguments.clone()),
            (Some(_), Some(_)) => Answer::Result(Ok(missing("arguments", "send an object"))),
        },
        (McpToolListing::Search, _) => Answer::NotOurs,
    }
}

fn find(query: &str, limit: Option<&Value>, server: &McpServer, client_context: &McpClientContext) -> CallToolResult {
    let limit = limit.and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok()).unwrap_or(HITS);
    let tools = server.gateway.pipeline.tools_for(&client_context.caller);
    let found = tools.search(query, limit.clamp(1, MAX_HITS)).into_iter();
    let is_code_mode = client_context.listing == McpToolListing::CodeMode;
    let found = found.filter(|(tool, _)| !is_code_mode || tool.name() != PYTHON);
    let hits = found.map(|(tool, score)| match is_code_mode {
        true => {
            let output = tool.output.as_ref().map(OutputSchema::value_document);
            model_hit(tool.name(), &tool.metadata.description, tool.input.document(), output.as_deref())
        }
        false => json!({"name": tool.name(), "description": first_line(&tool.metadata.description), "score": score}),
    });
    of_json(json!({"tools": hits.collect::<Vec<_>>()}))
}

fn describe(name: &str, server: &McpServer, client_context: &McpClientContext) -> Result<CallToolResult, ErrorData> {
    let gateway = &server.gateway;
    let catalogue = server.catalogues.present(gateway);
    match catalogue.tools_for(&client_context.caller, gateway).find(name) {
        Ok(_) => {
            let tool = catalogue.get(name, &client_context.caller).cloned();
            Ok(of_json(match client_context.has_handles() {
                true => json!(tool.map(without_output_schema)),
                false => json!(tool),
            }))
        }
        // The same error as for a call of it.
        Err(error) if error.code() == ErrorCode::UnknownTool => {
            Err(result::unknown_tool(error.message(), error.alternatives()))
        }
        Err(error) => Ok(result::of_error(&error)),
    }
}

fn first_line(description: &str) -> &str {
    description.trim().lines().next().unwrap_or_default()
}

fn of_json(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

fn missing(argument: &str, advice: &str) -> CallToolResult {
    let message = format!("invalid_arguments: `{argument}` is missing or of the wrong type; {advice}");
    let mut result = CallToolResult::error(vec![ContentBlock::text(&message)]);
    let details = json!([{"path": format!("/{argument}"), "rule": "required", "message": advice}]);
    result.structured_content = Some(
        json!({"error_info": {"code": "invalid_arguments", "message": message, "retryable": false, "details": details}}),
    );
    result
}
