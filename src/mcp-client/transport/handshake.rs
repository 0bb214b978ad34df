//! The two handshakes: `initialize`, which begins a session, and `server/discover` of the revisions without sessions.

use std::sync::Arc;

use http::HeaderValue;
use rmcp::model::{
    ClientCapabilities, ClientConfig, DiscoverResult, ErrorCode, ErrorData, Implementation, InitializeResult,
    ProtocolVersion, RequestMetaObject, ServerPeerInfo, TASKS_EXTENSION_ID,
};
use serde_json::{Map, Value, json};

use super::connection::{Answering, Channel, Connection};
use super::http::{Heading, HttpChannel, Refusal, session_of};
use super::message::{self, Failure};
use super::request::Outgoing;

pub(super) const DISCOVER: &str = "server/discover";
const INITIALIZE: &str = "initialize";
/// The extension for apps of tools.
const APPS: &str = "io.modelcontextprotocol/ui";
const INITIALIZED: &str = "notifications/initialized";

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    Failed(Failure),
    /// Client and server have no revision of the protocol in common.
    NoCommonRevision,
    OtherRevision {
        spoken: ProtocolVersion,
        pinned: ProtocolVersion,
    },
}

/// The parameters of `initialize`.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) revision: ProtocolVersion,
    /// The `ClientCapabilities` of the only client behind the connection, if there is one.
    pub(crate) client_capabilities: Option<Value>,
}

impl From<Failure> for HandshakeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl HandshakeError {
    /// Whether it is the answer of a server that does not know discovery, and not one to the offered revision.
    pub(crate) fn is_of_older_server(&self) -> bool {
        let is_newer = |error: &ErrorData| {
            matches!(error.code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH)
        };
        matches!(self, Self::Failed(Failure::Refused(error)) if !is_newer(error))
    }
}

impl Connection {
    /// Begins a session.
    pub(crate) async fn initialize(self: &Arc<Self>, introduction: Introduction) -> Result<(), HandshakeError> {
        let introduction = self.introduction.get_or_init(|| introduction.into());
        let info = match &self.channel {
            Channel::Http(http) => self.begin_session(http).await?,
            Channel::Stdio(_) | Channel::Sse(_) => {
                let answer = self.request(Outgoing::of(INITIALIZE, introduction)).await?;
                let info = initialized(answer)?;
                self.write(message::notification(INITIALIZED, None)).await?;
                info
            }
        };
        // A server may agree on a revision that has no handshake.
        let meta = match info.protocol_version.has_initialize() {
            true => Map::new(),
            false => client_meta(&info.protocol_version),
        };
        self.agree(info, meta);
        Ok(())
    }

    /// Discovers a server of a revision without sessions.
    pub(crate) async fn discover(self: &Arc<Self>) -> Result<(), HandshakeError> {
        let revision = ProtocolVersion::LATEST;
        if let Channel::Http(http) = &self.channel {
            http.agree(Heading::of(None, &revision));
        }
        let mut answer = self.request_discovery(&revision).await;
        if let Err(Failure::Refused(error)) = &answer
            && error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        {
            if !supports(error, &revision) {
                return Err(HandshakeError::NoCommonRevision);
            }
            answer = self.request_discovery(&revision).await;
        }
        let found: DiscoverResult = serde_json::from_value(answer?).map_err(|_| Failure::Invalid)?;
        if !found.supported_versions.contains(&revision) {
            return Err(HandshakeError::NoCommonRevision);
        }
        let meta = client_meta(&revision);
        let mut info = ServerPeerInfo::new(revision, found.capabilities);
        info.instructions = found.instructions;
        self.agree(info, meta);
        Ok(())
    }

    async fn request_discovery(self: &Arc<Self>, revision: &ProtocolVersion) -> Result<Value, Failure> {
        let params = Map::new();
        self.request(Outgoing { meta: client_meta(revision), ..Outgoing::of(DISCOVER, &params) }).await
    }

    /// Begins a session over streamable HTTP; later messages belong to it.
    pub(super) async fn begin_session(&self, http: &HttpChannel) -> Result<ServerPeerInfo, Failure> {
        let id = self.next_id();
        let introduction = self.introduction.get_or_init(|| Introduction::of_gateway().into());
        let body = message::request(id, INITIALIZE, introduction, Map::new());
        let answer = http.post(Heading::first().headers, body.into(), None).await.map_err(Failure::Call)?;
        let session = session_of(&answer);
        let info = initialized(self.read(http, answer, Answering { id, peer: None }).await?)?;
        let heading = Heading::of(session, &info.protocol_version);
        let mut headers = heading.headers.clone();
        if heading.is_repetitive {
            headers.insert("mcp-method", HeaderValue::from_static(INITIALIZED));
        }
        let body = message::notification(INITIALIZED, None);
        let accepted = http.post(headers, body.into(), None).await.map_err(Failure::Call)?;
        if !accepted.status.is_success()
            && let Refusal::Status(error) = http.refusal(accepted).await
        {
            return Err(Failure::Call(error));
        }
        http.agree(heading);
        Ok(info)
    }

    /// Sends a notification that must arrive.
    async fn write(&self, body: Vec<u8>) -> Result<(), Failure> {
        let written = match &self.channel {
            Channel::Http(_) => Ok(()),
            Channel::Stdio(input) => input.write(body, None).await,
            Channel::Sse(input) => input.write(body, None).await,
        };
        written.map_err(Failure::Call)
    }
}

fn initialized(answer: Value) -> Result<ServerPeerInfo, Failure> {
    let result: InitializeResult = serde_json::from_value(answer).map_err(|_| Failure::Invalid)?;
    Ok(result.into())
}

fn supports(refusal: &ErrorData, revision: &ProtocolVersion) -> bool {
    let supported = refusal.data.as_ref().and_then(|data| data.get("supported"));
    supported.and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == revision.as_str()))
}

impl Introduction {
    fn of_gateway() -> Self {
        Self { revision: ProtocolVersion::LATEST_WITH_INITIALIZE, client_capabilities: None }
    }
}

/// The parameters of `initialize`.
impl From<Introduction> for Map<String, Value> {
    fn from(introduction: Introduction) -> Self {
        let capabilities = introduction.client_capabilities.map_or_else(capabilities, |client| answerable(&client));
        let config = ClientConfig::new(capabilities, implementation()).with_protocol_version(introduction.revision);
        match serde_json::to_value(config) {
            Ok(Value::Object(params)) => params,
            _ => Self::new(),
        }
    }
}

/// A connection may serve many clients: a capability that one of them does not have is refused when a server asks for
/// it. A server names the apps of its tools only for clients that can show them.
fn capabilities() -> ClientCapabilities {
    let capabilities = json!({
        "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {},
        "extensions": apps(),
    });
    serde_json::from_value(capabilities).unwrap_or_default()
}

/// The part of a client's capabilities that a server gets: the requests that are passed on to the client, and the
/// showing of apps. Only names that the protocol defines are passed on, with the gateway's own settings: whatever else
/// a client writes there, no policy has seen.
pub(crate) fn answerable(client: &Value) -> ClientCapabilities {
    let mut passed_on = Map::new();
    for (name, parts) in [("elicitation", &["form", "url"][..]), ("sampling", &["tools", "context"]), ("roots", &[])] {
        // Changes of the roots are not passed on.
        if let Some(declared) = client.get(name).filter(|declared| declared.is_object()) {
            let parts = parts.iter().filter(|part| declared.get(**part).is_some_and(Value::is_object));
            let parts: Map<_, _> = parts.map(|part| ((*part).to_owned(), json!({}))).collect();
            passed_on.insert(name.to_owned(), parts.into());
        }
    }
    if client.get("extensions").and_then(|extensions| extensions.get(APPS)).is_some_and(Value::is_object) {
        passed_on.insert("extensions".to_owned(), apps());
    }
    serde_json::from_value(Value::Object(passed_on)).unwrap_or_default()
}

/// The extension by which a server names the apps of its tools.
fn apps() -> Value {
    json!({APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}})
}

/// Adds that the client can poll tasks: the gateway does so itself.
pub(crate) fn with_tasks(mut capabilities: ClientCapabilities) -> ClientCapabilities {
    capabilities.extensions.get_or_insert_default().insert(TASKS_EXTENSION_ID.to_owned(), Map::new());
    capabilities
}

fn implementation() -> Implementation {
    Implementation::new("sekisho", env!("CARGO_PKG_VERSION"))
}

/// The metadata of every request in revisions without sessions.
fn client_meta(revision: &ProtocolVersion) -> Map<String, Value> {
    RequestMetaObject::with_client_context(revision.clone(), implementation(), with_tasks(capabilities())).0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_what_its_only_client_can_answer() {
        let told = |client_capabilities: Option<Value>| {
            let revision = ProtocolVersion::V_2025_06_18;
            let params = Map::from(Introduction { revision, client_capabilities });
            assert_eq!(params["protocolVersion"], "2025-06-18");
            params["capabilities"].clone()
        };
        let client = json!({"elicitation": {"form": {}}, "roots": {"listChanged": true}, "experimental": {"x": {}}});
        assert_eq!(told(Some(client)), json!({"elicitation": {"form": {}}, "roots": {}}));
        let client = json!({
            "elicitation": {"url": {"a": "text"}, "a": "text"}, "sampling": {"tools": {"a": "text"}, "context": "text"}, "roots": 1,
            "extensions": {APPS: {"mimeTypes": ["a text"], "a": "text"}, "example.com/a": {"a": "text"}},
        });
        let expected = json!({"elicitation": {"url": {}}, "sampling": {"tools": {}}, "extensions": apps()});
        assert_eq!(told(Some(client)), expected, "no text of the client");
        assert_eq!(told(Some(json!({}))), json!({}));
        let of_several = told(None);
        assert!(of_several.pointer("/elicitation/url").is_some() && of_several.pointer("/sampling/tools").is_some());
    }
}
