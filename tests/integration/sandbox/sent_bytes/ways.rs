//! Every way by which a call comes to the gateway: the request that is sent on it, with the fields that it has.

use serde_json::{Value, json};

use super::fields::{
    CALL_OPTIONS, CHAT, COMPLETION, CONTEXT, CONTEXT_IN_BATCH, CONVERSATION, FUNCTION, Field, HEADERS, KEY, MCP_CALL,
    MCP_SESSION, MCP_STATELESS, MESSAGE, PLAN, PROGRAM, PROGRAM_OVER_MCP, RESPONSE, SESSION, VARIABLES,
};
use super::kinds::{Calls, KINDS, Kind};
use crate::mcp::client::initialize;
use crate::mcp::{NEWER, OLDER};

pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) speaks: Speaks,
    pub(super) by: By,
    /// `TOOL` is the tool's name.
    pub(super) path: &'static str,
    pub(super) body: fn(&str, &Value) -> Value,
    pub(super) fields: &'static [&'static [Field]],
}

/// Who makes the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The caller, or an agent, of a tool.
    Caller,
    /// A program that the caller runs, of a tool.
    Program,
    /// The caller, of another operation of MCP.
    Operation,
}

impl Way {
    /// Whether the kind is called on this way.
    pub(super) fn leads_to(&self, kind: &Kind) -> bool {
        match (self.by, kind.calls) {
            (By::Operation, calls) => matches!(calls, Calls::Method(_)),
            (By::Caller, calls) => !matches!(calls, Calls::Method(_)),
            (By::Program, calls) => calls == Calls::Tool,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// With the output at this place of the reply.
    Rest(&'static str),
    Mcp(&'static str),
    /// `initialize`, the call, and the end of the session.
    McpInSession,
    /// A model calls the tool.
    Agent,
    Conversation,
    Plan,
    /// `sekisho call`.
    Command,
    /// A line for `sekisho mcp serve`.
    Stdio,
}

pub(super) const WAYS: [Way; 19] = [
    Way {
        name: "REST, with the tool in the body",
        speaks: Speaks::Rest("/output"),
        by: By::Caller,
        path: "/tools/execute",
        body: named,
        fields: &[HEADERS, KEY, CONTEXT],
    },
    Way {
        name: "REST, with the tool in the path",
        speaks: Speaks::Rest("/output"),
        by: By::Caller,
        path: "/tools/TOOL/execute",
        body: |_, arguments| json!({"arguments": arguments}),
        fields: &[HEADERS, KEY, SESSION],
    },
    Way {
        name: "REST under /api/v1",
        speaks: Speaks::Rest("/output"),
        by: By::Caller,
        path: "/api/v1/tools/TOOL/execute",
        body: |_, arguments| json!({"parameters": arguments}),
        fields: &[HEADERS, KEY, SESSION],
    },
    Way {
        name: "REST, a batch",
        speaks: Speaks::Rest("/0/output"),
        by: By::Caller,
        path: "/tools/batch-execute",
        body: |tool, arguments| json!([named(tool, arguments)]),
        fields: &[HEADERS, CONTEXT_IN_BATCH],
    },
    Way {
        name: "MCP without sessions",
        speaks: Speaks::Mcp("/result/structuredContent"),
        by: By::Caller,
        path: "/mcp",
        body: mcp_call,
        fields: &[HEADERS, KEY, MCP_CALL, MCP_STATELESS],
    },
    Way {
        name: "MCP in a session",
        speaks: Speaks::McpInSession,
        by: By::Caller,
        path: "/mcp",
        body: |tool, arguments| in_session("tools/call", &json!({"name": tool, "arguments": arguments})),
        fields: &[HEADERS, KEY, MCP_SESSION],
    },
    Way {
        name: "another operation of MCP without sessions",
        speaks: Speaks::Mcp("/result"),
        by: By::Operation,
        path: "/mcp",
        body: |operation, params| stateless(method(operation), params.clone()),
        fields: &[HEADERS, KEY, MCP_CALL, MCP_STATELESS],
    },
    Way {
        name: "another operation of MCP in a session",
        speaks: Speaks::McpInSession,
        by: By::Operation,
        path: "/mcp",
        body: |operation, params| in_session(method(operation), params),
        fields: &[HEADERS, KEY, MCP_SESSION],
    },
    Way {
        name: "MCP at the standard input of `mcp serve`",
        speaks: Speaks::Stdio,
        by: By::Caller,
        path: "",
        body: mcp_call,
        fields: &[MCP_CALL, VARIABLES],
    },
    Way {
        name: "the command `call`",
        speaks: Speaks::Command,
        by: By::Caller,
        path: "",
        body: |_, arguments| arguments.clone(),
        fields: &[CALL_OPTIONS, VARIABLES],
    },
    Way {
        name: "/v1/chat/completions",
        speaks: Speaks::Agent,
        by: By::Caller,
        path: "/v1/chat/completions",
        body: |_, _| json!({"model": "plain", "messages": [{"role": "user", "content": "Call it."}]}),
        fields: &[HEADERS, KEY, COMPLETION],
    },
    Way {
        name: "/v1/responses",
        speaks: Speaks::Agent,
        by: By::Caller,
        path: "/v1/responses",
        body: |_, _| json!({"model": "plain", "input": "Call it."}),
        fields: &[HEADERS, KEY, RESPONSE],
    },
    Way {
        name: "/v1/messages",
        speaks: Speaks::Agent,
        by: By::Caller,
        path: "/v1/messages",
        body: |_, _| json!({"model": "plain", "max_tokens": 500, "messages": [{"role": "user", "content": "Call it."}]}),
        fields: &[HEADERS, KEY, MESSAGE],
    },
    Way {
        name: "/api/chat",
        speaks: Speaks::Agent,
        by: By::Caller,
        path: "/api/chat",
        body: |_, _| json!({"model": "plain", "message": "Call it."}),
        fields: &[HEADERS, KEY, CHAT],
    },
    Way {
        name: "a conversation",
        speaks: Speaks::Conversation,
        by: By::Caller,
        path: "/api/conversations",
        body: |_, _| json!({"user_input": "Call it."}),
        fields: &[HEADERS, KEY, CONVERSATION],
    },
    Way {
        name: "a plan",
        speaks: Speaks::Plan,
        by: By::Caller,
        path: "/api/plans",
        body: |_, _| json!({"profile": "planned", "goal": "Call it."}),
        fields: &[HEADERS, KEY, PLAN],
    },
    Way {
        name: "a program",
        speaks: Speaks::Rest("/output/result"),
        by: By::Program,
        path: "/tools/execute",
        body: |tool, arguments| named("python_executor", &json!({"code": program(tool, arguments)})),
        fields: &[HEADERS, KEY, CONTEXT, PROGRAM],
    },
    Way {
        name: "a program over MCP",
        speaks: Speaks::Mcp("/result/structuredContent/result"),
        by: By::Program,
        path: "/mcp/coded",
        body: |tool, arguments| mcp_call("run_python", &json!({"code": program(tool, arguments)})),
        fields: &[HEADERS, KEY, MCP_CALL, MCP_STATELESS, PROGRAM_OVER_MCP],
    },
    Way {
        name: "a Python function",
        speaks: Speaks::Rest("/output"),
        by: By::Program,
        path: "/tools/execute",
        body: |tool, arguments| named("own__call", &json!({"name": tool, "arguments": arguments})),
        fields: &[HEADERS, KEY, CONTEXT, FUNCTION],
    },
];

fn named(tool: &str, arguments: &Value) -> Value {
    json!({"tool_name": tool, "arguments": arguments})
}

fn mcp_call(tool: &str, arguments: &Value) -> Value {
    stateless("tools/call", json!({"name": tool, "arguments": arguments}))
}

/// The method of an operation that policies know by this name.
fn method(operation: &str) -> &'static str {
    let found = KINDS.iter().find(|kind| kind.tool == operation).map(|kind| kind.calls);
    match found {
        Some(Calls::Method(method)) => method,
        _ => panic!("no operation: {operation}"),
    }
}

fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn in_session(method: &str, params: &Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    json!({"initialize": initialize(OLDER), "call": call})
}

fn program(tool: &str, arguments: &Value) -> String {
    format!("import json\nfrom host import tools\ntools['{tool}'](**json.loads(r'''{arguments}'''))")
}
