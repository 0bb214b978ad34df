//! Requests of callers, with a changed field, and how each is sent on its way.

use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{Method, Response};
use serde_json::{Map, Value, json};

use super::fields::{Field, Place};
use super::ways::{Speaks, Way};
use crate::app::TestApp;
use crate::mcp::{NEWER, OLDER};

#[derive(Clone)]
pub(super) struct Request {
    headers: Vec<(String, String)>,
    pub(super) body: Value,
    /// Of a command, and of its environment.
    pub(super) options: Vec<(String, String)>,
    pub(super) variables: Vec<(String, String)>,
}

/// What a caller gets.
pub(super) enum Answer {
    /// The output of the tool, where the reply has it.
    Done(Value),
    /// Of an agent or a plan: what the model got is the output.
    DoneByModel,
    Refused(String),
}

impl Request {
    pub(super) fn new(way: &Way, tool: &str, arguments: &Value) -> Self {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let headers = [("authorization", "Bearer key-of-ann"), ("traceparent", trace), ("user-agent", "a client")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let variables = vec![("SEKISHO_API_KEY".to_owned(), "key-of-ann".to_owned())];
        Self { headers, body: (way.body)(tool, arguments), options: Vec::new(), variables }
    }

    pub(super) fn with(mut self, field: Field) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let value = field.value.replace("{n}", &NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        match field.place {
            Place::Header(name) => {
                self.headers.retain(|(header, _)| header != name);
                self.headers.push((name.to_owned(), value));
            }
            Place::Option(name) => self.options.push((name.to_owned(), value)),
            // The later one counts.
            Place::Variable(name) => self.variables.push((name.to_owned(), value)),
            Place::Body(pointer) => *member(&mut self.body, pointer) = serde_json::from_str(&value).unwrap(),
        }
        self
    }

    pub(super) async fn send(&self, app: &TestApp, way: &Way, tool: &str) -> Answer {
        let path = way.path.replace("TOOL", tool);
        match way.speaks {
            Speaks::Rest(output) => output_of(&self.post(app, &path, &self.body, &[]).await, output),
            Speaks::Mcp(output) => output_of(&self.call_over_mcp(app, &path, &self.body, NEWER, None).await, output),
            Speaks::McpInSession => self.call_in_session(app, &path).await,
            Speaks::Agent => done(&self.post(app, &path, &self.body, &[]).await),
            Speaks::Command => output_of(&self.call_by_command(app, tool).await, "/output"),
            Speaks::Stdio => output_of(&self.ask_at_stdio(app).await, "/result/structuredContent"),
            Speaks::Conversation => {
                let begun = self.post(app, &path, &json!({"agent": "plain"}), &[]).await;
                let Some(id) = begun.1["id"].as_str() else { return done(&begun) };
                done(&self.post(app, &format!("{path}/{id}/execute"), &self.body, &[]).await)
            }
            Speaks::Plan => {
                let begun = self.post(app, &path, &self.body, &[]).await;
                let Some(id) = begun.1["id"].as_str() else { return done(&begun) };
                // The events end with the plan.
                let followed =
                    self.request(app, Method::GET, &format!("{path}/{id}/events"), &[]).send().await.unwrap();
                followed.text().await.unwrap();
                done(&begun)
            }
        }
    }

    async fn call_in_session(&self, app: &TestApp, path: &str) -> Answer {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": self.body["initialize"]});
        let begun = self.over_mcp(app, path, &initialize, OLDER, None).await;
        let Some(session) = begun.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned()) else {
            return Answer::Refused(begun.text().await.unwrap());
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.over_mcp(app, path, &initialized, OLDER, Some(&session)).await;
        let called = self.call_over_mcp(app, path, &self.body["call"], OLDER, Some(&session)).await;
        let end = self.request(app, Method::DELETE, path, &[("mcp-session-id", &session)]);
        end.send().await.unwrap();
        output_of(&called, "/result/structuredContent")
    }

    async fn call_over_mcp(
        &self,
        app: &TestApp,
        path: &str,
        message: &Value,
        revision: &str,
        session: Option<&str>,
    ) -> (bool, Value) {
        let response = self.over_mcp(app, path, message, revision, session).await;
        let text = response.text().await.unwrap();
        let last =
            text.lines().rev().find_map(|line| line.strip_prefix("data:").filter(|data| !data.trim().is_empty()));
        let reply: Value = serde_json::from_str(last.unwrap_or(&text)).unwrap_or_else(|_| json!(text));
        (is_result(&reply), reply)
    }

    async fn over_mcp(
        &self,
        app: &TestApp,
        path: &str,
        message: &Value,
        revision: &str,
        session: Option<&str>,
    ) -> Response {
        let mut headers = vec![("accept", "application/json, text/event-stream"), ("mcp-protocol-version", revision)];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        if revision == NEWER {
            headers.push(("mcp-method", message["method"].as_str().unwrap()));
            let params = &message["params"];
            let name = ["name", "uri"].into_iter().find_map(|member| params.get(member)?.as_str());
            headers.extend(name.map(|name| ("mcp-name", name)));
        }
        self.request(app, Method::POST, path, &headers).json(message).send().await.unwrap()
    }

    async fn post(&self, app: &TestApp, path: &str, body: &Value, headers: &[(&str, &str)]) -> (bool, Value) {
        let response = self.request(app, Method::POST, path, headers).json(body).send().await.unwrap();
        let is_done = response.status().is_success();
        let text = response.text().await.unwrap();
        (is_done, serde_json::from_str(&text).unwrap_or_else(|_| json!(text)))
    }

    fn request(&self, app: &TestApp, method: Method, path: &str, more: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let mut request = app.client.request(method, format!("{}{path}", app.url));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        more.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }
}

/// Whether a message of MCP says that a call was done.
pub(super) fn is_result(reply: &Value) -> bool {
    reply["result"]["isError"] != true && reply.get("result").is_some()
}

fn output_of((is_done, reply): &(bool, Value), output: &str) -> Answer {
    let has_failed = reply["success"] == false || reply[0]["success"] == false;
    match *is_done && !has_failed {
        // Of a tool that gives a text alone there is none.
        true => Answer::Done(reply.pointer(output).cloned().unwrap_or_default()),
        false => Answer::Refused(reply.to_string()),
    }
}

fn done((is_done, reply): &(bool, Value)) -> Answer {
    if *is_done { Answer::DoneByModel } else { Answer::Refused(reply.to_string()) }
}

/// The member at a JSON pointer, which is made where it is missing.
fn member<'a>(value: &'a mut Value, pointer: &str) -> &'a mut Value {
    pointer.split('/').skip(1).fold(value, |value, name| match value {
        Value::Array(items) => &mut items[name.parse::<usize>().unwrap()],
        value => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            &mut value[name.replace("~1", "/")]
        }
    })
}
