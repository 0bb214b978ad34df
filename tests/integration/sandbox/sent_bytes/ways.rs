//! Every way by which a call comes to the gateway: the request that is sent on it, with the fields that it has.

use serde_json::{Value, json};

use super::fields::{
    CHAT, COMPLETION, CONTEXT, CONTEXT_IN_BATCH, CONVERSATION, FUNCTION, Field, HEADERS, KEY, MCP_CALL, MCP_SESSION,
    MCP_STATELESS, MESSAGE, PLAN, PROGRAM, PROGRAM_OVER_MCP, RESPONSE, SESSION,
};
use crate::mcp::NEWER;
use crate::mcp::client::initialize;

pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) speaks: Speaks,
    /// `TOOL` is the tool's name.
    pub(super) path: &'static str,
    pub(super) body: fn(&str, &Value) -> Value,
    pub(super) fields: &'static [&'static [Field]],
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
}

pub(super) const WAYS: [Way; 15] = [
    Way {
        name: "REST, with the tool in the body",
        speaks: Speaks::Rest("/output"),
        path: "/tools/execute",
        body: named,
        fields: &[HEADERS, KEY, CONTEXT],
    },
    Way {
        name: "REST, with the tool in the path",
        speaks: Speaks::Rest("/output"),
        path: "/tools/TOOL/execute",
        body: |_, arguments| json!({"arguments": arguments}),
        fields: &[HEADERS, KEY, SESSION],
    },
    Way {
        name: "REST under /api/v1",
        speaks: Speaks::Rest("/output"),
        path: "/api/v1/tools/TOOL/execute",
        body: |_, arguments| json!({"parameters": arguments}),
        fields: &[HEADERS, KEY, SESSION],
    },
    Way {
        name: "REST, a batch",
        speaks: Speaks::Rest("/0/output"),
        path: "/tools/batch-execute",
        body: |tool, arguments| json!([named(tool, arguments)]),
        fields: &[HEADERS, CONTEXT_IN_BATCH],
    },
    Way {
        name: "MCP without sessions",
        speaks: Speaks::Mcp("/result/structuredContent"),
        path: "/mcp",
        body: mcp_call,
        fields: &[HEADERS, KEY, MCP_CALL, MCP_STATELESS],
    },
    Way {
        name: "MCP in a session",
        speaks: Speaks::McpInSession,
        path: "/mcp",
        body: |tool, arguments| {
            let params = json!({"name": tool, "arguments": arguments});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            json!({"initialize": initialize(crate::mcp::OLDER), "call": call})
        },
        fields: &[HEADERS, KEY, MCP_SESSION],
    },
    Way {
        name: "/v1/chat/completions",
        speaks: Speaks::Agent,
        path: "/v1/chat/completions",
        body: |_, _| json!({"model": "plain", "messages": [{"role": "user", "content": "Call it."}]}),
        fields: &[HEADERS, KEY, COMPLETION],
    },
    Way {
        name: "/v1/responses",
        speaks: Speaks::Agent,
        path: "/v1/responses",
        body: |_, _| json!({"model": "plain", "input": "Call it."}),
        fields: &[HEADERS, KEY, RESPONSE],
    },
    Way {
        name: "/v1/messages",
        speaks: Speaks::Agent,
        path: "/v1/messages",
        body: |_, _| json!({"model": "plain", "max_tokens": 500, "messages": [{"role": "user", "content": "Call it."}]}),
        fields: &[HEADERS, KEY, MESSAGE],
    },
    Way {
        name: "/api/chat",
        speaks: Speaks::Agent,
        path: "/api/chat",
        body: |_, _| json!({"model": "plain", "message": "Call it."}),
        fields: &[HEADERS, KEY, CHAT],
    },
    Way {
        name: "a conversation",
        speaks: Speaks::Conversation,
        path: "/api/conversations",
        body: |_, _| json!({"user_input": "Call it."}),
        fields: &[HEADERS, KEY, CONVERSATION],
    },
    Way {
        name: "a plan",
        speaks: Speaks::Plan,
        path: "/api/plans",
        body: |_, _| json!({"profile": "planned", "goal": "Call it."}),
        fields: &[HEADERS, PLAN],
    },
    Way {
        name: "a program",
        speaks: Speaks::Rest("/output/result"),
        path: "/tools/execute",
        body: |tool, arguments| named("python_executor", &json!({"code": program(tool, arguments)})),
        fields: &[HEADERS, KEY, CONTEXT, PROGRAM],
    },
    Way {
        name: "a program over MCP",
        speaks: Speaks::Mcp("/result/structuredContent/result"),
        path: "/mcp/coded",
        body: |tool, arguments| mcp_call("run_python", &json!({"code": program(tool, arguments)})),
        fields: &[HEADERS, KEY, MCP_CALL, MCP_STATELESS, PROGRAM_OVER_MCP],
    },
    Way {
        name: "a Python function",
        speaks: Speaks::Rest("/output"),
        path: "/tools/execute",
        body: |tool, arguments| named("own__call", &json!({"name": tool, "arguments": arguments})),
        fields: &[HEADERS, KEY, CONTEXT, FUNCTION],
    },
];

fn named(tool: &str, arguments: &Value) -> Value {
    json!({"tool_name": tool, "arguments": arguments})
}

fn mcp_call(tool: &str, arguments: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
}

fn program(tool: &str, arguments: &Value) -> String {
    format!("import json\nfrom host import tools\ntools['{tool}'](**json.loads(r'''{arguments}'''))")
}
