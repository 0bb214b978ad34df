//! The fields of requests: each is changed on its own.

/// What callers write into fields: where it is sent, it must have been judged.
pub(super) const MARK: &str = "zq7changed";

/// One field of a request, and another value for it.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) place: Place,
    /// In a header the value, in a body JSON. `{n}` becomes another number each time.
    pub(super) value: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Header(&'static str),
    /// A JSON pointer into the body.
    Body(&'static str),
    /// Of a command.
    Option(&'static str),
    /// Of a command's environment.
    Variable(&'static str),
}

const fn header(name: &'static str, value: &'static str) -> Field {
    Field { place: Place::Header(name), value }
}

const fn body(pointer: &'static str, value: &'static str) -> Field {
    Field { place: Place::Body(pointer), value }
}

const fn option(name: &'static str, value: &'static str) -> Field {
    Field { place: Place::Option(name), value }
}

const fn variable(name: &'static str, value: &'static str) -> Field {
    Field { place: Place::Variable(name), value }
}

/// Of every request.
pub(super) const HEADERS: &[Field] = &[
    header("authorization", "Bearer key-of-bob"),
    header("traceparent", "00-11111111111111111111111111111111-2222222222222222-01"),
    header("tracestate", "congo=zq7changed"),
    header("baggage", "k=zq7changed"),
    header("user-agent", "zq7changed"),
    header("accept-language", "zq7changed"),
    header("referer", "http://zq7changed.example/"),
    header("cookie", "k=zq7changed"),
    header("via", "1.1 zq7changed"),
    header("forwarded", "for=203.0.113.7;host=zq7changed"),
    header("x-forwarded-for", "203.0.113.7"),
    header("x-forwarded-host", "zq7changed"),
    header("x-real-ip", "203.0.113.7"),
    header("x-request-id", "zq7changed-{n}"),
    header("x-agent-id", "zq7changed-{n}"),
    header("x-task-id", "zq7changed-{n}"),
    header("x-openwebui-chat-id", "zq7changed-{n}"),
    header("x-openwebui-user-name", "zq7changed"),
    header("x-sekisho-tokens", "unused=zq7changed"),
    header("x-sekisho-tools", "all"),
    header("x-custom", "zq7changed"),
    header("prefer", "handle"),
];

/// Not of a batch.
pub(super) const KEY: &[Field] =
    &[header("idempotency-key", "zq7changed-{n}"), header("x-approval-id", "zq7changed-{n}")];

/// `session_context`, and `dry_run` where it changes nothing.
pub(super) const CONTEXT: &[Field] = &[
    body("/session_context/session_id", r#""zq7changed-{n}""#),
    body("/session_context/user_id", r#""zq7changed""#),
    body("/session_context/user_text", r#""zq7changed""#),
    body("/session_context/request_id", r#""zq7changed-{n}""#),
    body("/session_context/agent_id", r#""zq7changed-{n}""#),
    body("/session_context/task_id", r#""zq7changed-{n}""#),
    body("/session_context/prompt_params/account", r#""zq7changed""#),
    body("/session_context/prompt_params/unused", r#""zq7changed""#),
    body("/session_context/tool_parameters/tokens/unused", r#""zq7changed""#),
    body("/session_context/tool_parameters/unused", r#"{"zq7changed": "zq7changed"}"#),
    body("/dry_run", "false"),
];

pub(super) const SESSION: &[Field] = &[body("/session_id", r#""zq7changed-{n}""#), body("/dry_run", "false")];

/// The same of the elements of a batch.
pub(super) const CONTEXT_IN_BATCH: &[Field] = &[
    body("/0/session_context/session_id", r#""zq7changed-{n}""#),
    body("/0/session_context/user_id", r#""zq7changed""#),
    body("/0/session_context/user_text", r#""zq7changed""#),
    body("/0/session_context/request_id", r#""zq7changed-{n}""#),
    body("/0/session_context/agent_id", r#""zq7changed-{n}""#),
    body("/0/session_context/task_id", r#""zq7changed-{n}""#),
    body("/0/session_context/prompt_params/account", r#""zq7changed""#),
    body("/0/session_context/prompt_params/unused", r#""zq7changed""#),
    body("/0/session_context/tool_parameters/tokens/unused", r#""zq7changed""#),
    body("/0/dry_run", "false"),
];

/// `tools/call` of MCP, in every revision.
pub(super) const MCP_CALL: &[Field] = &[
    body("/id", r#""zq7changed""#),
    body("/params/_meta/progressToken", r#""zq7changed""#),
    body("/params/_meta/traceparent", r#""00-33333333333333333333333333333333-4444444444444444-01""#),
    body("/params/_meta/baggage", r#""k=zq7changed""#),
    body("/params/_meta/example.com~1tenant", r#"{"zq7changed": ["zq7changed"]}"#),
    body("/params/_meta/sekisho~1key", r#""zq7changed""#),
    body("/params/_meta/claudecode~1toolUseId", r#""zq7changed""#),
    body("/params/_meta/io.modelcontextprotocol~1other", r#""zq7changed""#),
    body("/params/other", r#""zq7changed""#),
];

/// Of requests without a session.
pub(super) const MCP_STATELESS: &[Field] = &[
    body("/params/_meta/io.modelcontextprotocol~1clientInfo/name", r#""zq7changed""#),
    body("/params/_meta/io.modelcontextprotocol~1clientInfo/version", r#""zq7changed""#),
    body("/params/_meta/io.modelcontextprotocol~1clientInfo/title", r#""zq7changed""#),
    body("/params/_meta/io.modelcontextprotocol~1logLevel", r#""debug""#),
    body(
        "/params/_meta/io.modelcontextprotocol~1clientCapabilities/elicitation",
        r#"{"form": {"zq7changed": 1}, "url": {"zq7changed": 1}}"#,
    ),
    body(
        "/params/_meta/io.modelcontextprotocol~1clientCapabilities/sampling",
        r#"{"tools": {"zq7changed": "zq7changed"}}"#,
    ),
    body("/params/_meta/io.modelcontextprotocol~1clientCapabilities/roots", r#"{"listChanged": true}"#),
    body(
        "/params/_meta/io.modelcontextprotocol~1clientCapabilities/experimental",
        r#"{"zq7changed": {"a": "zq7changed"}}"#,
    ),
    body(
        "/params/_meta/io.modelcontextprotocol~1clientCapabilities/extensions",
        r#"{"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app", "zq7changed"]}}"#,
    ),
    body(
        "/params/_meta/io.modelcontextprotocol~1clientCapabilities/extensions",
        r#"{"zq7changed.example/a": {"a": "zq7changed"}}"#,
    ),
];

/// Of requests in a session, which begins with `initialize`.
pub(super) const MCP_SESSION: &[Field] = &[
    body("/initialize/clientInfo/name", r#""zq7changed""#),
    body("/initialize/clientInfo/version", r#""zq7changed""#),
    body("/initialize/clientInfo/title", r#""zq7changed""#),
    body("/initialize/capabilities/elicitation", r#"{"form": {"zq7changed": 1}, "url": {"zq7changed": 1}}"#),
    body("/initialize/capabilities/sampling", r#"{"tools": {"zq7changed": "zq7changed"}}"#),
    body("/initialize/capabilities/roots", r#"{"listChanged": true}"#),
    body("/initialize/capabilities/experimental", r#"{"zq7changed": {"a": "zq7changed"}}"#),
    body(
        "/initialize/capabilities/extensions",
        r#"{"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app", "zq7changed"]}}"#,
    ),
    body("/initialize/_meta", r#"{"example.com/a": "zq7changed"}"#),
    body("/call/id", r#""zq7changed""#),
    body("/call/params/_meta/progressToken", r#""zq7changed""#),
    body("/call/params/_meta/traceparent", r#""00-33333333333333333333333333333333-4444444444444444-01""#),
    body("/call/params/_meta/baggage", r#""k=zq7changed""#),
    body("/call/params/_meta/example.com~1tenant", r#"{"zq7changed": ["zq7changed"]}"#),
    body("/call/params/_meta/sekisho~1key", r#""zq7changed""#),
    body("/call/params/_meta/claudecode~1toolUseId", r#""zq7changed""#),
    body("/call/params/other", r#""zq7changed""#),
];

pub(super) const COMPLETION: &[Field] = &[
    body("/messages/0/content", r#""zq7changed""#),
    body("/messages/0/name", r#""zq7changed""#),
    body("/user", r#""zq7changed""#),
    body("/metadata", r#"{"zq7changed": "zq7changed"}"#),
    body("/safety_identifier", r#""zq7changed""#),
    body("/prompt_cache_key", r#""zq7changed""#),
    body("/service_tier", r#""flex""#),
    body("/store", "true"),
    body("/temperature", "0.1"),
    body("/top_p", "0.5"),
    body("/seed", "7"),
    body("/presence_penalty", "1"),
    body("/frequency_penalty", "1"),
    body("/max_tokens", "900"),
    body("/max_completion_tokens", "900"),
    body("/stop", r#"["zq7changed"]"#),
    body("/parallel_tool_calls", "false"),
    body("/tool_choice", r#""auto""#),
    body("/response_format", r#"{"type": "text"}"#),
    body("/reasoning_effort", r#""low""#),
    body("/n", "1"),
    body("/stream_options", r#"{"include_usage": true}"#),
    body("/model", r#""other""#),
    body("/stream", "true"),
    body("/logprobs", "false"),
    body("/logit_bias", "{}"),
    body("/modalities", r#"["text"]"#),
    body("/functions", r#"[{"name": "zq7changed"}]"#),
    body("/verbosity", r#""low""#),
    body("/web_search_options", r#"{"zq7changed": "zq7changed"}"#),
    body("/prediction", r#"{"type": "content", "content": "zq7changed"}"#),
    body("/top_k", "5"),
    body("/chat_template_kwargs", r#"{"zq7changed": true}"#),
    body("/think", "true"),
    body(
        "/tools",
        r#"[{"type": "function", "function": {"name": "zq7changed", "description": "zq7changed", "parameters": {"type": "object"}}}]"#,
    ),
];

pub(super) const RESPONSE: &[Field] = &[
    body("/input", r#""zq7changed""#),
    body("/instructions", r#""zq7changed""#),
    body("/metadata", r#"{"zq7changed": "zq7changed"}"#),
    body("/user", r#""zq7changed""#),
    body("/safety_identifier", r#""zq7changed""#),
    body("/prompt_cache_key", r#""zq7changed""#),
    body("/service_tier", r#""flex""#),
    body("/truncation", r#""auto""#),
    body("/store", "false"),
    body("/temperature", "0.1"),
    body("/top_p", "0.5"),
    body("/max_output_tokens", "900"),
    body("/parallel_tool_calls", "false"),
    body("/tool_choice", r#""auto""#),
    body("/text", r#"{"format": {"type": "text"}}"#),
    body("/background", "false"),
    body("/model", r#""other""#),
    body("/stream", "true"),
    body("/include", r#"["reasoning.encrypted_content"]"#),
    body("/reasoning", r#"{"effort": "low"}"#),
    body("/top_logprobs", "0"),
    body("/conversation", r#""zq7changed""#),
    body("/prompt", r#"{"id": "zq7changed"}"#),
    body("/max_tool_calls", "9"),
    body("/previous_response_id", r#""zq7changed""#),
    body(
        "/tools",
        r#"[{"type": "function", "name": "zq7changed", "description": "zq7changed", "parameters": {"type": "object"}}]"#,
    ),
];

pub(super) const MESSAGE: &[Field] = &[
    body("/messages/0/content", r#""zq7changed""#),
    body("/system", r#""zq7changed""#),
    body("/metadata", r#"{"user_id": "zq7changed"}"#),
    body("/service_tier", r#""auto""#),
    body("/max_tokens", "900"),
    body("/temperature", "0.1"),
    body("/top_p", "0.5"),
    body("/stop_sequences", r#"["zq7changed"]"#),
    body("/tool_choice", r#"{"type": "auto"}"#),
    body("/model", r#""other""#),
    body("/stream", "true"),
    body("/thinking", r#"{"type": "adaptive"}"#),
    body("/output_config", r#"{"effort": "low"}"#),
    body("/top_k", "5"),
    body("/mcp_servers", r#"[{"type": "url", "name": "zq7changed", "url": "http://zq7changed.example/"}]"#),
    body("/container", r#""zq7changed""#),
    body("/thread", r#"{"type": "create"}"#),
    body("/context_management", r#"{"edits": []}"#),
    body("/fallbacks", r#"[{"model": "zq7changed"}]"#),
    body("/tools", r#"[{"name": "zq7changed", "description": "zq7changed", "input_schema": {"type": "object"}}]"#),
];

pub(super) const CHAT: &[Field] =
    &[body("/message", r#""zq7changed""#), body("/model", r#""other""#), body("/session_id", r#""zq7changed""#)];

pub(super) const CONVERSATION: &[Field] = &[
    body("/user_input", r#""zq7changed""#),
    body("/executor", r#"{"user_id": "zq7changed"}"#),
    body("/tokens/unused", r#""zq7changed""#),
    body("/model", r#""other""#),
    body("/on_busy", r#""interrupt""#),
    body("/on_unknown", r#""pause""#),
    body("/on_disconnect", r#""continue""#),
    body("/preferred_skills", r#"["zq7changed"]"#),
    body("/stream", "true"),
    body("/refresh", "true"),
];

pub(super) const PLAN: &[Field] = &[
    body("/goal", r#""zq7changed""#),
    body("/session_id", r#""zq7changed-{n}""#),
    body("/profile", r#""other""#),
    body("/model", r#""other""#),
    body("/preset", r#""plan_and_act""#),
    body("/approve_plan", "false"),
];

/// Of a program in a call of `python_executor` over REST.
pub(super) const PROGRAM: &[Field] = &[
    body("/arguments/stdin", r#""zq7changed""#),
    body("/arguments/timeout_seconds", "9"),
    body("/arguments/profile", r#""data""#),
    body("/arguments/files", r#"[{"path": "zq7changed.txt", "text": "zq7changed"}]"#),
];

pub(super) const PROGRAM_OVER_MCP: &[Field] =
    &[body("/params/arguments/stdin", r#""zq7changed""#), body("/params/arguments/timeout_seconds", "9")];

/// Of a call of a Python function that calls the tool.
pub(super) const FUNCTION: &[Field] = &[body("/arguments/note", r#""zq7changed""#)];

/// Of `sekisho call`.
pub(super) const CALL_OPTIONS: &[Field] =
    &[option("--session", "zq7changed-{n}"), option("--as", "zq7changed"), option("--role", "zq7changed")];

/// Of every command that is a client of the gateway.
pub(super) const VARIABLES: &[Field] = &[
    variable("SEKISHO_API_KEY", "key-of-bob"),
    variable("TRACEPARENT", "00-33333333333333333333333333333333-4444444444444444-01"),
    variable("BAGGAGE", "k=zq7changed"),
    variable("USER", "zq7changed"),
    variable("LANG", "zq7changed"),
];

/// Ways and fields with which no call is made: an approval that does not exist, a list of tools without the one that is called, a
/// caller beside that of the key, something unknown that is to go on, and options that no agent can keep.
pub(super) const REFUSED: [(&str, Place); 26] = [
    ("REST, with the tool in the body", Place::Header("x-approval-id")),
    ("REST, with the tool in the path", Place::Header("x-approval-id")),
    ("REST under /api/v1", Place::Header("x-approval-id")),
    ("a program", Place::Header("x-approval-id")),
    ("a Python function", Place::Header("x-approval-id")),
    ("a program over MCP", Place::Header("x-sekisho-tools")),
    ("the command `call`", Place::Option("--as")),
    ("the command `call`", Place::Option("--role")),
    ("/v1/chat/completions", Place::Body("/functions")),
    ("/v1/chat/completions", Place::Body("/verbosity")),
    ("/v1/chat/completions", Place::Body("/web_search_options")),
    ("/v1/chat/completions", Place::Body("/prediction")),
    ("/v1/chat/completions", Place::Body("/top_k")),
    ("/v1/chat/completions", Place::Body("/chat_template_kwargs")),
    ("/v1/chat/completions", Place::Body("/think")),
    ("/v1/responses", Place::Body("/conversation")),
    ("/v1/responses", Place::Body("/prompt")),
    ("/v1/responses", Place::Body("/max_tool_calls")),
    ("/v1/responses", Place::Body("/previous_response_id")),
    ("/v1/messages", Place::Body("/top_k")),
    ("/v1/messages", Place::Body("/mcp_servers")),
    ("/v1/messages", Place::Body("/container")),
    ("/v1/messages", Place::Body("/fallbacks")),
    ("/api/chat", Place::Body("/session_id")),
    ("a conversation", Place::Body("/preferred_skills")),
    ("a plan", Place::Body("/model")),
];

/// Fields that are a part of the call beside its arguments: values of the session for a vendor adapter, and `_meta` of MCP.
pub(super) const JUDGED: [Place; 6] = [
    Place::Body("/session_context/prompt_params/account"),
    Place::Body("/0/session_context/prompt_params/account"),
    Place::Body("/params/_meta/baggage"),
    Place::Body("/params/_meta/example.com~1tenant"),
    Place::Body("/call/params/_meta/baggage"),
    Place::Body("/call/params/_meta/example.com~1tenant"),
];
