//! A small MCP client that shows every message as it came, and checks it against the protocol's schema.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{NEWER, OLDER};
use crate::app::TestApp;
use crate::mcp_schema::violations;

#[derive(Clone)]
pub(crate) struct McpClient {
    http: Client,
    url: String,
    revision: &'static str,
    headers: Vec<(String, String)>,
    pub(crate) session: Option<String>,
    capabilities: Value,
    ids: Arc<AtomicU64>,
}

/// Messages of an event stream, as they come.
pub(crate) struct News {
    response: Response,
    buffer: String,
}

pub(crate) fn initialize(revision: &str) -> Value {
    json!({
        "protocolVersion": revision,
        "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
        "clientInfo": {"name": "test", "version": "1"},
    })
}

impl McpClient {
    pub(crate) fn new(app: &TestApp, revision: &'static str, key: Option<&str>) -> Self {
        let headers = key.map(|key| ("x-api-key".to_owned(), key.to_owned())).into_iter().collect();
        Self {
            http: app.client.clone(),
            url: format!("{}/mcp", app.url),
            revision,
            headers,
            session: None,
            capabilities: json!({"elicitation": {}, "sampling": {}, "roots": {}}),
            ids: Arc::default(),
        }
    }

    pub(crate) async fn connect(app: &TestApp, revision: &'static str) -> Self {
        Self::connect_as(app, revision, None).await
    }

    /// Older revisions begin with a handshake.
    pub(crate) async fn connect_as(app: &TestApp, revision: &'static str, key: Option<&str>) -> Self {
        Self::new(app, revision, key).connected().await
    }

    /// With these capabilities beside those of [`McpClient::new`].
    pub(crate) async fn connect_with(app: &TestApp, revision: &'static str, more: Value) -> Self {
        let mut client = Self::new(app, revision, None);
        for (name, settings) in more.as_object().unwrap() {
            client.capabilities[name] = settings.clone();
        }
        client.connected().await
    }

    async fn connected(mut self) -> Self {
        if self.revision == OLDER {
            self.introduce().await;
            self.notify("notifications/initialized", json!({})).await;
        } else {
            self.result("server/discover", json!({}), "DiscoverResult").await;
        }
        self
    }

    /// A client of an older revision that has not sent `initialized` yet.
    pub(crate) async fn begin(app: &TestApp, revision: &'static str) -> Self {
        let mut client = Self::new(app, revision, None);
        client.introduce().await;
        client
    }

    /// After the handshake of an older revision.
    pub(crate) async fn introduced(mut self) -> Self {
        self.introduce().await;
        self
    }

    async fn introduce(&mut self) {
        let mut params = initialize(self.revision);
        params["capabilities"] = self.capabilities.clone();
        let response = self.post("initialize", params, &[]).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        self.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        let reply = messages(response).await.pop().unwrap();
        assert_eq!(reply["result"]["protocolVersion"], self.revision);
        self.check("InitializeResult", &reply["result"]);
    }

    pub(crate) fn with_key(&self, key: &str) -> Self {
        let mut other = self.clone();
        other.headers = vec![("x-api-key".to_owned(), key.to_owned())];
        other
    }

    /// The same client, whose user has another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        let mut other = self.clone();
        other.headers = vec![("authorization".to_owned(), format!("Bearer {token}"))];
        other
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    pub(crate) fn without_capabilities(mut self) -> Self {
        self.capabilities = json!({});
        self
    }

    /// The result of a request that succeeds, which fits the schema's definition of that name.
    pub(crate) async fn result(&self, method: &str, params: Value, definition: &str) -> Value {
        let reply = self.reply(method, params).await;
        let result = reply.get("result").unwrap_or_else(|| panic!("{method}: {reply}")).clone();
        self.check(definition, &result);
        result
    }

    /// The HTTP response.
    pub(crate) async fn response(&self, method: &str, params: Value) -> Response {
        self.post(method, params, &[]).send().await.unwrap()
    }

    /// The JSON-RPC response with any HTTP status.
    pub(crate) async fn reply(&self, method: &str, params: Value) -> Value {
        self.send(method, params).await.1
    }

    pub(crate) async fn send(&self, method: &str, params: Value) -> (StatusCode, Value) {
        self.send_with(method, params, &[]).await
    }

    pub(crate) async fn send_with(&self, method: &str, params: Value, changed: &[(&str, &str)]) -> (StatusCode, Value) {
        let response = self.post(method, params, changed).send().await.unwrap();
        let status = response.status();
        let reply = messages(response).await.pop().unwrap_or_default();
        if reply["jsonrpc"] == "2.0" {
            self.check_message(&reply);
        }
        (status, reply)
    }

    /// As [`McpClient::reply`] to a request that is answered with 200, with the media type it came as.
    pub(crate) async fn reported(&self, method: &str, params: Value, changed: &[(&str, &str)]) -> (String, Value) {
        let response = self.post(method, params, changed).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let reply = messages(response).await.pop().unwrap_or_default();
        self.check_message(&reply);
        (kind, reply)
    }

    pub(crate) async fn send_raw(&self, body: String, changed: &[(&str, &str)]) -> (StatusCode, Value) {
        let response = self.request("tools/list", None, changed).body(body).send().await.unwrap();
        (response.status(), messages(response).await.pop().unwrap_or_default())
    }

    pub(crate) async fn send_bytes(&self, body: Vec<u8>) -> (StatusCode, Value) {
        let response = self.request("tools/list", None, &[]).body(body).send().await.unwrap();
        (response.status(), messages(response).await.pop().unwrap_or_default())
    }

    /// The same client, asking elsewhere.
    pub(crate) fn at(mut self, url: &str) -> Self {
        self.url = format!("{url}/mcp");
        self
    }

    /// The same client at a virtual server.
    pub(crate) fn at_endpoint(mut self, name: &str) -> Self {
        self.url = format!("{}/{name}", self.url);
        self
    }

    /// Sends a request, and breaks the connection at the first event.
    pub(crate) async fn first_event_id(&self, method: &str, params: Value) -> String {
        let mut response = self.post(method, params, &[]).send().await.unwrap();
        let chunk = response.chunk().await.unwrap().expect("an event");
        let event = std::str::from_utf8(&chunk).unwrap();
        let id = event.lines().find_map(|line| line.strip_prefix("id:"));
        id.unwrap_or_else(|| panic!("an event with an id: {event:?}")).trim().to_owned()
    }

    /// All messages that came after an event, to the end of its stream.
    pub(crate) async fn resume(&self, last_event: &str) -> Vec<Value> {
        let request = self.http.get(&self.url).header("accept", "text/event-stream");
        let request = self.headed(request, &[("last-event-id", last_event), ("mcp-protocol-version", self.revision)]);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        tokio::time::timeout(Duration::from_secs(10), messages(response)).await.expect("the stream ends")
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let response = self.request(method, None, &[]).json(&message).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::ACCEPTED);
    }

    pub(crate) fn last_id(&self) -> u64 {
        self.ids.load(Ordering::SeqCst)
    }

    /// Sends a request and answers the server's questions meanwhile; returns all messages of its stream.
    pub(crate) async fn converse(&self, method: &str, params: Value, answer: impl Fn(&Value) -> Value) -> Vec<Value> {
        let response = self.post(method, params, &[]).send().await.unwrap();
        let mut news = News { response, buffer: String::new() };
        let mut seen = Vec::new();
        while let Some(message) = news.next().await {
            self.check_message(&message);
            let is_end = message.get("result").is_some() || message.get("error").is_some();
            if message.get("id").is_some() && message.get("method").is_some() {
                self.answer(&message, answer(&message)).await;
            }
            seen.push(message);
            if is_end {
                break;
            }
        }
        seen
    }

    /// Answers a question that came on a stream.
    pub(crate) async fn answer(&self, question: &Value, result: Value) {
        let answered = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        let accepted = self.request("", None, &[]).json(&answered).send().await.unwrap();
        assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    }

    /// Ends the session.
    pub(crate) async fn end(&self) {
        let ended = self.headed(self.http.delete(&self.url), &[]).send().await.unwrap();
        assert_eq!(ended.status(), StatusCode::NO_CONTENT);
    }

    /// Opens the stream of the server's notifications.
    pub(crate) async fn listen(&self, notifications: Value) -> News {
        self.listen_to(notifications).await.0
    }

    /// As [`listen`](Self::listen), with the acknowledgement if the revision has one.
    pub(crate) async fn listen_to(&self, notifications: Value) -> (News, Value) {
        let request = match self.revision {
            NEWER => self.post("subscriptions/listen", json!({"notifications": notifications}), &[]),
            _ => self.headed(self.http.get(&self.url).header("accept", "text/event-stream"), &[]),
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut news = News { response, buffer: String::new() };
        let acknowledged = match self.revision {
            NEWER => news.next_of("notifications/subscriptions/acknowledged").await,
            _ => Value::Null,
        };
        (news, acknowledged)
    }

    pub(crate) fn check(&self, definition: &str, message: &Value) {
        check(self.revision, definition, message);
    }

    /// As a message, and as what the server may say by itself.
    pub(crate) fn check_message(&self, message: &Value) {
        self.check("JSONRPCMessage", message);
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) => self.check("ServerRequest", message),
            (Some(_), None) => self.check("ServerNotification", message),
            _ => {}
        }
    }

    fn post(&self, method: &str, mut params: Value, changed: &[(&str, &str)]) -> RequestBuilder {
        let id = self.ids.fetch_add(1, Ordering::SeqCst) + 1;
        if self.revision == NEWER {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": NEWER,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            });
            let own = params["_meta"].as_object().cloned().unwrap_or_else(Map::new);
            params["_meta"] = meta.as_object().cloned().unwrap().into_iter().chain(own).collect();
        }
        let name = ["name", "uri", "taskId"].into_iter().find_map(|member| params.get(member)?.as_str());
        let name = name.map(str::to_owned);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.request(method, name.as_deref(), changed).json(&message)
    }

    fn request(&self, method: &str, name: Option<&str>, changed: &[(&str, &str)]) -> RequestBuilder {
        let mut headers =
            HashMap::from([("accept", "application/json, text/event-stream"), ("content-type", "application/json")]);
        if self.revision == NEWER {
            headers.insert("mcp-method", method);
            headers.extend(name.map(|name| ("mcp-name", name)));
        }
        headers.insert("mcp-protocol-version", self.revision);
        headers.extend(changed.iter().copied());
        let headers: Vec<_> = headers.into_iter().collect();
        self.headed(self.http.post(&self.url), &headers)
    }

    fn headed(&self, mut request: RequestBuilder, headers: &[(&str, &str)]) -> RequestBuilder {
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    }
}

impl News {
    pub(crate) async fn next_of(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("the stream ended before {method}"));
            if message["method"] == method {
                return message;
            }
        }
    }

    /// Whether the stream ends or breaks off, without a further message.
    pub(crate) async fn end(&mut self) -> bool {
        let ended = async {
            loop {
                match self.response.chunk().await {
                    Ok(Some(chunk)) if chunk.starts_with(b"data:") => return false,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return true,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap_or(false)
    }

    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let message = data(event);
                self.buffer = rest.to_owned();
                if message.is_some() {
                    return message;
                }
                continue;
            }
            let chunk = tokio::time::timeout(Duration::from_secs(10), self.response.chunk()).await;
            match chunk.expect("a message within ten seconds").unwrap() {
                Some(chunk) => self.buffer.push_str(std::str::from_utf8(&chunk).unwrap()),
                // An answer that nothing came before is no stream.
                None => return serde_json::from_str(&std::mem::take(&mut self.buffer)).ok(),
            }
        }
    }
}

/// What a response holds: one message of JSON, or those of an event stream.
async fn messages(response: Response) -> Vec<Value> {
    let text = response.text().await.unwrap();
    match serde_json::from_str(&text) {
        Ok(message) => vec![message],
        Err(_) => text.split("\n\n").filter_map(data).collect(),
    }
}

fn data(event: &str) -> Option<Value> {
    let data = event.lines().find_map(|line| line.strip_prefix("data:"))?.trim();
    (!data.is_empty()).then(|| serde_json::from_str(data).unwrap_or_else(|_| panic!("not JSON: {data}")))
}

/// Holds a message against the protocol's own schema.
pub(crate) fn check(revision: &str, definition: &str, message: &Value) {
    let violations = violations(revision, definition, message);
    assert!(violations.is_empty(), "not a {definition} of {revision}: {violations:?}\n{message:#}");
}
