//! Clients of `/mcp`: with sessions that end or are left, and without; and streams that are opened and dropped.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::client::{Answer, Client, Outcome, SUCCESS};
use crate::mcp::{NEWER, OLDER};

const BOTH: &str = "application/json, text/event-stream";

/// A session with two calls, which its client ends.
pub(super) async fn session(client: &mut Client) -> Outcome {
    let session = begin(client).await?;
    for _ in 0..2 {
        calculate(client, &session).await?;
    }
    end(client, &session).await
}

/// A session that its client forgets, and that ends when it is idle.
pub(super) async fn session_left(client: &mut Client) -> Outcome {
    let session = begin(client).await?;
    calculate(client, &session).await
}

/// The standing stream of a session, of which nothing is read.
pub(super) async fn standing_stream(client: &mut Client) -> Outcome {
    let session = begin(client).await?;
    let request = client.get(&client.key(), "/mcp").header("accept", "text/event-stream");
    drop(client.open(in_session(request, &session)).await?);
    end(client, &session).await
}

/// A call of a client whose revision has no sessions.
pub(super) async fn without_session(client: &mut Client) -> Outcome {
    let params = json!({"name": "calculator", "arguments": {"expression": "6*7"}});
    let request = newer(client, "tools/call", params).header("mcp-name", "calculator");
    let answer = client.ask(request).await?;
    settle(client, &answer)
}

/// A stream of notifications, dropped when it is acknowledged.
pub(super) async fn subscription(client: &mut Client) -> Outcome {
    let request = newer(client, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut response = client.open(request).await?;
    let first = response.chunk().await.map_err(|error| format!("no event: {error:?}"))?;
    first.map(drop).ok_or_else(|| "the stream ended".to_owned())
}

/// Begins a session, and gives its id.
async fn begin(client: &mut Client) -> Result<String, String> {
    let introduction = json!({
        "protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": introduction});
    let request = client.post(&client.key(), "/mcp", &message).header("accept", BOTH);
    let answer = client.ask(request.header("mcp-protocol-version", OLDER)).await?;
    let session = answer.header("mcp-session-id")?.to_owned();
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let request = client.post(&client.key(), "/mcp", &initialized).header("accept", BOTH);
    client.ask(in_session(request, &session)).await?;
    Ok(session)
}

async fn calculate(client: &mut Client, session: &str) -> Outcome {
    let params = json!({"name": "calculator", "arguments": {"expression": "6*7"}});
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let request = client.post(&client.key(), "/mcp", &message).header("accept", BOTH);
    let answer = client.ask(in_session(request, session)).await?;
    settle(client, &answer)
}

async fn end(client: &mut Client, session: &str) -> Outcome {
    let request = client.request(Method::DELETE, "/mcp").bearer_auth(client.key());
    client.ask(in_session(request, session)).await.map(drop)
}

fn in_session(request: RequestBuilder, session: &str) -> RequestBuilder {
    request.header("mcp-session-id", session).header("mcp-protocol-version", OLDER)
}

/// A request of the revision without sessions.
fn newer(client: &Client, method: &str, mut params: Value) -> RequestBuilder {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({"jsonrpc": "2.0", "id": client.number, "method": method, "params": params});
    let request = client.post(&client.key(), "/mcp", &message).header("accept", BOTH);
    request.header("mcp-protocol-version", NEWER).header("mcp-method", method)
}

/// Takes in the answer to a call of the calculator: JSON, or the last event of a stream.
fn settle(client: &mut Client, answer: &Answer) -> Outcome {
    let mut events = answer.text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let last = events.rfind(|data| !data.is_empty()).and_then(|data| serde_json::from_str(data).ok());
    let message: Value = last.unwrap_or_else(|| answer.body.clone());
    let result = &message["result"];
    client.settle(result["structuredContent"]["error_info"]["code"].as_str().unwrap_or(SUCCESS));
    let is_right = result["content"][0]["text"] == "42";
    is_right.then_some(()).ok_or_else(|| format!("not 42: {}", answer.shown()))
}
