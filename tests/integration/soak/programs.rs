//! Python in the sandbox, and agents whose model is a script.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::client::{Client, Outcome, SUCCESS};

/// What the script of the weather says at last.
const ANSWER: &str = "which is 70.7 °F.";

pub(super) async fn python(client: &mut Client) -> Outcome {
    let request = client.execute(&client.key(), "python_executor", &program(&json!({"code": "print(6*7)"})));
    client.run(request).await?.require("/output/stdout", &json!("42\n"))
}

pub(super) async fn python_that_fails(client: &mut Client) -> Outcome {
    let request = client.execute(&client.key(), "python_executor", &program(&json!({"code": "1/0"})));
    client.run(request).await.map(drop)
}

/// A session that is deleted after two calls.
pub(super) async fn session(client: &mut Client) -> Outcome {
    let name = format!("deleted-{}", client.lane);
    in_session(client, &name).await?;
    let request = client.request(Method::DELETE, &format!("/sessions/{name}")).bearer_auth(client.own_key());
    client.ask(request).await.map(drop)
}

/// A session that is left, stored when it is idle, and goes on when its name comes again.
pub(super) async fn session_kept(client: &mut Client) -> Outcome {
    let name = format!("kept-{}", client.lane);
    in_session(client, &name).await
}

/// The answer of an agent that calls the calculator once.
pub(super) async fn agent(client: &mut Client) -> Outcome {
    let answer = client.ask(chat(client, "weather", false)).await?;
    client.settle(SUCCESS);
    let text = answer.text_at("/choices/0/message/content")?;
    text.ends_with(ANSWER).then_some(()).ok_or_else(|| format!("another answer: {}", answer.shown()))
}

/// The same as a stream that is read to its end.
pub(super) async fn agent_streams(client: &mut Client) -> Outcome {
    let answer = client.ask(chat(client, "weather", true)).await?;
    client.settle(SUCCESS);
    let is_whole = answer.text.trim_end().ends_with("[DONE]");
    is_whole.then_some(()).ok_or_else(|| format!("not ended: {}", answer.shown()))
}

/// A stream that is dropped after its first chunk.
pub(super) async fn agent_dropped(client: &mut Client) -> Outcome {
    let mut response = client.open(chat(client, "chatty", true)).await?;
    let first = response.chunk().await.map_err(|error| format!("no chunk: {error:?}"))?;
    first.map(drop).ok_or_else(|| "the stream ended".to_owned())
}

/// Two calls of a session, of which the second one has what the first one set.
async fn in_session(client: &mut Client, name: &str) -> Outcome {
    let set = program(&json!({"session": name, "code": "x = 41"}));
    client.run(client.execute(&client.own_key(), "python_executor", &set)).await?;
    let get = program(&json!({"session": name, "code": "x + 1"}));
    let answer = client.run(client.execute(&client.own_key(), "python_executor", &get)).await?;
    answer.require("/output/result", &json!(42))
}

fn program(arguments: &Value) -> Value {
    json!({"arguments": arguments})
}

fn chat(client: &Client, model: &str, stream: bool) -> RequestBuilder {
    let messages = json!([{"role": "user", "content": "Is 21.5 °C warm?"}]);
    client.post(&client.key(), "/v1/chat/completions", &json!({"model": model, "stream": stream, "messages": messages}))
}
