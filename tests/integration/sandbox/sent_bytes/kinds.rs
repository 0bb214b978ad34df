//! Every kind of source, with a tool of it, and how its test knows what was sent.

use serde_json::{Value, json};

/// A source and its tool.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) tool: &'static str,
    /// Arguments with a text, for upstreams at an address.
    pub(super) arguments: fn(&str, &str) -> Value,
    pub(super) sent: Sent,
}

/// Where it is seen what is sent for a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// In requests to this path.
    Requests(&'static str),
    /// In the lines that a program reads.
    Lines,
    /// By a function, which passes on all that it sees.
    Seen,
    /// In the output, which is what the tool was given.
    Output,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind {
        name: "OpenAPI collection with a vendor adapter",
        tool: "api__query",
        arguments: |_, text| json!({"id": "a", "q": text, "X-Kind": "k", "place": "p", "from": "x", "metrics": "users", "more": {"a": 1}}),
        sent: Sent::Requests("/query"),
    },
    Kind {
        name: "MCP server over HTTP, with sessions",
        tool: "far__note",
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Requests("/sessions/mcp"),
    },
    Kind {
        name: "MCP server over HTTP, without sessions",
        tool: "near__note",
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Requests("/stateless/mcp"),
    },
    Kind {
        name: "MCP server that is a program",
        tool: "program__echo",
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Lines,
    },
    Kind {
        name: "registered function",
        tool: "function",
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Requests("/function"),
    },
    Kind {
        name: "built-in tool that sends",
        tool: "web_fetch",
        arguments: |url, text| json!({"url": format!("{url}/page?text={text}"), "format": "text"}),
        sent: Sent::Requests("/page"),
    },
    Kind { name: "Python function", tool: "own__show", arguments: |_, text| json!({"text": text}), sent: Sent::Seen },
    Kind {
        name: "component",
        tool: "mirror__run",
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Output,
    },
];
