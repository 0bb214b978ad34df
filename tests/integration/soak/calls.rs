//! Calls of tools over REST, and what else callers ask.

use serde_json::{Value, json};

use super::client::{Answer, Client, Outcome, calculation};
use super::gateway::key_of;

/// Callers who open sessions: so few that each has more than it may have at once.
const CALLERS_WITH_SESSIONS: usize = 8;

/// Rows of a large result, and the first one of those that are read back.
const ROWS: usize = 400;
const READ_FROM: usize = ROWS - 2;

/// One call, of the caller whose turn it is.
pub(super) async fn one(client: &mut Client, tool: &str, arguments: Value) -> Outcome {
    let request = client.execute(&client.key(), tool, &json!({"arguments": arguments}));
    client.run(request).await.map(drop)
}

pub(super) async fn success(client: &mut Client) -> Outcome {
    let request = client.execute(&client.key(), "calculator", &calculation());
    client.run(request).await?.require("/output", &json!(42))
}

pub(super) async fn dry_run(client: &mut Client) -> Outcome {
    let body = json!({"arguments": {"expression": "6*7"}, "dry_run": true});
    let request = client.execute(&client.key(), "calculator", &body);
    client.run(request).await.map(drop)
}

/// Of the one caller whose rate is used up.
pub(super) async fn beyond_the_rate(client: &mut Client) -> Outcome {
    let request = client.execute(&key_of("limited"), "shared__pid", &json!({"arguments": {}}));
    client.run(request).await.map(drop)
}

/// Names, or objects.
pub(super) async fn list(client: &mut Client) -> Outcome {
    let path = if client.number.is_multiple_of(2) { "/tools/list" } else { "/tools/list?detail=full" };
    client.ask(client.get(&client.key(), path)).await.map(drop)
}

pub(super) async fn metrics(client: &mut Client) -> Outcome {
    let answer = client.ask(client.get(&client.key(), "/metrics")).await?;
    let has_tasks = answer.text.contains("\nshannon_runtime_tasks ");
    has_tasks.then_some(()).ok_or_else(|| format!("no metric of tasks: {}", answer.shown()))
}

/// A request, an agent and a task that were not heard of before.
pub(super) async fn scopes(client: &mut Client) -> Outcome {
    let id = client.number.to_string();
    let request = client.execute(&client.key(), "calculator", &calculation());
    let request = request.header("x-request-id", &id).header("x-agent-id", &id).header("x-task-id", &id);
    client.run(request).await.map(drop)
}

/// Two calls of a session that no other call names.
pub(super) async fn session(client: &mut Client) -> Outcome {
    let caller = key_of(&format!("caller-{}", client.number / 7 % CALLERS_WITH_SESSIONS));
    let body = json!({"arguments": {"expression": "6*7"}, "session_id": format!("session-{}", client.number)});
    for _ in 0..2 {
        client.run(client.execute(&caller, "calculator", &body)).await?;
    }
    Ok(())
}

/// A file of a session, which goes with its folder when the session does.
pub(super) async fn workspace(client: &mut Client) -> Outcome {
    let (writer, session) = (key_of("writer"), format!("workspace-{}", client.number));
    let write = json!({"arguments": {"path": "a.txt", "content": "hello"}, "session_id": session});
    client.run(client.execute(&writer, "file_write", &write)).await?;
    let read = json!({"arguments": {"path": "a.txt"}, "session_id": session});
    client.run(client.execute(&writer, "file_read", &read)).await.map(drop)
}

/// The same call with a key twice, of which the second one gets the reply of the first one.
pub(super) async fn repeated(client: &mut Client) -> Outcome {
    let (caller, key) = (client.own_key(), format!("key-{}", client.number));
    let mut replayed = false;
    for _ in 0..2 {
        let request = client.execute(&caller, "calculator", &calculation()).header("idempotency-key", &key);
        replayed = client.run(request).await?.headers.contains_key("idempotency-replayed");
    }
    replayed.then_some(()).ok_or_else(|| "the second call ran again".to_owned())
}

/// A result that is stored, and a part of it that is read by its handle.
pub(super) async fn large_result(client: &mut Client) -> Outcome {
    let answer = store_result(client).await?;
    let handle = answer.text_at("/output/result_handle")?;
    let path = format!("/results/{handle}?offset={READ_FROM}&limit=5");
    let page = client.run(client.get(&client.key(), &path)).await?;
    page.require("/output/items/1/id", &json!(ROWS - 1))
}

/// A call whose result is large enough to be stored.
pub(super) async fn store_result(client: &mut Client) -> Result<Answer, String> {
    let data: Vec<_> = (0..ROWS).collect();
    let body = json!({"arguments": {"query": "[].{id: @, text: 'a row of many'}", "data": data}});
    let request = client.execute(&client.key(), "json_query", &body).header("prefer", "handle");
    client.run(request).await
}
