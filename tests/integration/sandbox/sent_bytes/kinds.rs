//! Every kind of source, with a tool of it, and how its test knows what was sent.

use serde_json::{Value, json};

/// A source and its tool, or another operation of an MCP server.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// As policies name it.
    pub(super) tool: &'static str,
    pub(super) calls: Calls,
    /// Arguments with a text, for upstreams at an address.
    pub(super) arguments: fn(&str, &str) -> Value,
    pub(super) sent: Sent,
}

/// The ways by which a kind is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// All ways of tools.
    Tool,
    /// All but those by which a program calls it: it is one itself.
    Program,
    /// Those of this method of MCP.
    Method(&'static str),
}

impl Kind {
    /// The tools that a program may call.
    pub(super) fn tools_of_programs() -> impl Iterator<Item = &'static str> {
        KINDS.iter().filter(|kind| kind.calls == Calls::Tool).map(|kind| kind.tool)
    }

    /// All that are listed as tools.
    pub(super) fn tools() -> impl Iterator<Item = &'static str> {
        KINDS.iter().filter(|kind| !matches!(kind.calls, Calls::Method(_))).map(|kind| kind.tool)
    }
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

pub(super) const KINDS: [Kind; 17] = [
    Kind {
        name: "OpenAPI collection with a vendor adapter",
        tool: "api__query",
        calls: Calls::Tool,
        arguments: |_, text| json!({"id": "a", "q": text, "X-Kind": "k", "place": "p", "from": "x", "metrics": "users", "more": {"a": 1}}),
        sent: Sent::Requests("/query"),
    },
    Kind {
        name: "MCP server over HTTP, with sessions",
        tool: "far__note",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Requests("/sessions/mcp"),
    },
    Kind {
        name: "MCP server over HTTP, without sessions",
        tool: "near__note",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Requests("/stateless/mcp"),
    },
    Kind {
        name: "MCP server that is a program",
        tool: "program__echo",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Lines,
    },
    Kind {
        name: "registered function",
        tool: "function",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Requests("/function"),
    },
    Kind {
        name: "built-in tool that sends",
        tool: "web_fetch",
        calls: Calls::Tool,
        arguments: |url, text| json!({"url": format!("{url}/page?text={text}"), "format": "text"}),
        sent: Sent::Requests("/page"),
    },
    Kind {
        name: "built-in tool that asks a search engine",
        tool: "web_search",
        calls: Calls::Tool,
        arguments: |_, text| json!({"query": text, "max_results": 3}),
        sent: Sent::Requests("/search"),
    },
    Kind {
        name: "Python function",
        tool: "own__show",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text}),
        sent: Sent::Seen,
    },
    Kind {
        name: "program",
        tool: "python_executor",
        calls: Calls::Program,
        arguments: |_, text| json!({"code": SHOW.replace("TEXT", text), "stdin": "typed"}),
        sent: Sent::Seen,
    },
    Kind {
        name: "component",
        tool: "mirror__run",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text, "n": 1}),
        sent: Sent::Output,
    },
    Kind {
        name: "component that sends",
        tool: "fetcher__ask",
        calls: Calls::Tool,
        arguments: |_, text| json!({"text": text}),
        sent: Sent::Requests("/component"),
    },
    Kind {
        name: "resource of an MCP server with sessions",
        tool: "far__resources_read",
        calls: Calls::Method("resources/read"),
        arguments: |_, text| json!({"uri": format!("far+note://notes/{text}")}),
        sent: Sent::Requests("/sessions/mcp"),
    },
    Kind {
        name: "prompt of an MCP server with sessions",
        tool: "far__prompts_get",
        calls: Calls::Method("prompts/get"),
        arguments: |_, text| json!({"name": "far__ask", "arguments": {"about": text}}),
        sent: Sent::Requests("/sessions/mcp"),
    },
    Kind {
        name: "completion of an MCP server with sessions",
        tool: "far__complete",
        calls: Calls::Method("completion/complete"),
        arguments: |_, text| {
            let of = json!({"type": "ref/prompt", "name": "far__ask"});
            json!({"ref": of, "argument": {"name": "about", "value": text}, "context": {"arguments": {"more": "a"}}})
        },
        sent: Sent::Requests("/sessions/mcp"),
    },
    Kind {
        name: "resource of an MCP server without sessions",
        tool: "near__resources_read",
        calls: Calls::Method("resources/read"),
        arguments: |_, text| json!({"uri": format!("near+note://notes/{text}")}),
        sent: Sent::Requests("/stateless/mcp"),
    },
    Kind {
        name: "prompt of an MCP server without sessions",
        tool: "near__prompts_get",
        calls: Calls::Method("prompts/get"),
        arguments: |_, text| json!({"name": "near__ask", "arguments": {"about": text}}),
        sent: Sent::Requests("/stateless/mcp"),
    },
    Kind {
        name: "completion of an MCP server without sessions",
        tool: "near__complete",
        calls: Calls::Method("completion/complete"),
        arguments: |_, text| {
            let of = json!({"type": "ref/prompt", "name": "near__ask"});
            json!({"ref": of, "argument": {"name": "about", "value": text}, "context": {"arguments": {"more": "a"}}})
        },
        sent: Sent::Requests("/stateless/mcp"),
    },
];

/// A program that passes on all that it sees.
const SHOW: &str = "
import os
import sys
from host import tools

tools.seen(text='TEXT', argv=list(sys.argv), environment=dict(os.environ), typed=sys.stdin.read(), folder=sorted(os.listdir('.')))
";
