//! What of a request is not compared, each with its reason. A text of the caller must not be there either, but for the state of a
//! trace.

use serde_json::Value;

/// Headers, and why.
pub(super) const HEADERS: [(&str, &str); 5] = [
    ("traceparent", "the place in the trace, which the caller begins"),
    ("tracestate", "the state of the trace that the caller begins (W3C Trace Context)"),
    ("mcp-session-id", "the server's own name of the gateway's session with it"),
    ("idempotency-key", "the gateway's own name of a step of a run, a digest"),
    ("content-length", "follows from the body, which is compared"),
];

/// Members of messages of MCP, and why.
pub(super) const MEMBERS: [(&str, &str); 6] = [
    ("/id", "the gateway's own number of the request"),
    (
        "/params/_meta/progressToken",
        "the gateway's own token; whether there is one says that the client wants progress",
    ),
    ("/params/_meta/traceparent", "the place in the trace, which the caller begins"),
    ("/params/_meta/tracestate", "the state of the trace that the caller begins"),
    (
        "/params/_meta/io.modelcontextprotocol~1logLevel",
        "one of the protocol's eight words: which messages the client wants",
    ),
    (
        "/params/_meta/io.modelcontextprotocol~1clientCapabilities",
        "which requests the client answers, in words of the gateway",
    ),
];

/// Fields whose text is passed on without being judged.
pub(super) const PASSED_ON: [&str; 1] = ["tracestate"];

/// Methods of MCP that are sent for no call: only texts of callers are looked for in them.
pub(super) fn is_of_connection(method: &str) -> bool {
    !matches!(method, "tools/call" | "resources/read" | "prompts/get" | "completion/complete")
}

/// A request over HTTP without what is not compared.
pub(super) fn compared(request: &str) -> String {
    let (head, body) = request.split_once("\n\n").unwrap();
    let is_left_out = |line: &&str| HEADERS.iter().any(|(name, _)| line.split(": ").next() == Some(name));
    let head: Vec<_> = head.lines().filter(|line| !is_left_out(line)).collect();
    format!("{}\n\n{}", head.join("\n"), compared_message(body))
}

/// A message of MCP without what is not compared; another text as it is.
pub(super) fn compared_message(text: &str) -> String {
    let message: Value = match serde_json::from_str(text) {
        Ok(message @ Value::Object(_)) => message,
        _ => return text.to_owned(),
    };
    if message["jsonrpc"] != "2.0" {
        return text.to_owned();
    }
    MEMBERS.iter().fold(text.to_owned(), |text, (pointer, _)| match message.pointer(pointer) {
        Some(value) => {
            let name = pointer.rsplit('/').next().unwrap().replace("~1", "/");
            let member = format!("\"{name}\":{value}");
            assert!(text.contains(&member), "{member} is not in {text}");
            without(&text, &member)
        }
        None => text,
    })
}

/// Without a member, and the comma before or after it.
fn without(text: &str, member: &str) -> String {
    let variants = [format!(",{member}"), format!("{member},"), member.to_owned()];
    let found = variants.iter().find(|variant| text.contains(&***variant)).unwrap();
    text.replacen(&**found, "", 1).replace("\"_meta\":{},", "").replace(",\"_meta\":{}", "")
}
