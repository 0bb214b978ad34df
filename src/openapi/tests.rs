//! Operations called against a real server on loopback, which records its requests.

mod adapted;
mod calls;
mod hostile;
mod paged;
mod public;
mod schemes;
mod secured;
mod sent;
mod uploads;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response as Answer};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use url::Url;

use super::read::operation::{
    Api, Location, MediaType, Operation, Parameter, ParameterEncoding, RequestBody, Response, Server, StatusRange,
    Style,
};
use super::read::report::Report;
use super::{Access, Collection, CollectionError, Loader, definitions};
use sekisho_calls::tool::{Attempt, ToolDefinition};
use sekisho_config::{CollectionSettings, OpenApiConfig, OutboundConfig, PaginationSettings};
use sekisho_core::call::{CallContext, Caller, Deadline, ToolOutput, Via};
use sekisho_core::checkout::checkout;
use sekisho_core::error::CallError;
use sekisho_outbound::{DomainList, Outbound, test_server};

/// A request that the server received.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Status, one header and body of an answer.
type Scripted = (StatusCode, [(HeaderName, &'static str); 1], String);

/// An API on loopback.
#[derive(Clone)]
struct Upstream {
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// One after the other; `200` with `{}` when there are no more.
    answers: Arc<Mutex<VecDeque<Scripted>>>,
    url: Url,
}

impl Upstream {
    async fn start() -> Self {
        async fn take(
            State((requests, answers)): State<Shared>,
            method: Method,
            uri: Uri,
            headers: HeaderMap,
            body: Bytes,
        ) -> Answer {
            requests.lock().push(ReceivedRequest { method, uri, headers, body });
            let answer = answers.lock().pop_front();
            let of_json = (header::CONTENT_TYPE, "application/json");
            answer.unwrap_or_else(|| (StatusCode::OK, [of_json], "{}".to_owned())).into_response()
        }
        type Shared = (Arc<Mutex<Vec<ReceivedRequest>>>, Arc<Mutex<VecDeque<Scripted>>>);
        let shared: Shared = Shared::default();
        let (requests, answers) = shared.clone();
        let address = test_server::serve(Router::new().fallback(take).with_state(shared)).await;
        Self { requests, answers, url: Url::parse(&format!("http://{address}/v1/")).unwrap() }
    }

    fn answers(&self, status: u16, media_type: &'static str, body: &(impl ToString + ?Sized)) {
        let status = StatusCode::from_u16(status).unwrap();
        let header = [(header::CONTENT_TYPE, media_type)];
        self.answers.lock().push_back((status, header, body.to_string()));
    }

    fn challenges(&self, challenge: &'static str) {
        let header = [(header::WWW_AUTHENTICATE, challenge)];
        self.answers.lock().push_back((StatusCode::UNAUTHORIZED, header, String::new()));
    }

    fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    fn last(&self) -> ReceivedRequest {
        self.requests().pop().expect("the server received a request")
    }

    fn api(&self, operations: Vec<Operation>) -> Api {
        api(self.url.as_str(), operations)
    }
}

fn api(server: &str, operations: Vec<Operation>) -> Api {
    Api {
        title: "Pets".into(),
        version: "1".into(),
        description: String::new(),
        servers: vec![Server { url: Url::parse(server).unwrap(), description: String::new() }],
        security_schemes: BTreeMap::new(),
        security: Vec::new(),
        operations,
        definitions: Arc::default(),
        report: Report::default(),
    }
}

fn read_api(document: &Value) -> Api {
    super::read::read(document, None).unwrap()
}

fn operation(id: &str, method: Method, path: &str) -> Operation {
    Operation {
        id: Some(id.into()),
        method,
        path: path.into(),
        summary: format!("Does {id}"),
        description: String::new(),
        tags: Vec::new(),
        deprecated: false,
        parameters: Vec::new(),
        body: None,
        responses: vec![Response {
            status: StatusRange::Exactly(200),
            description: String::new(),
            content: vec![media_type("application/json", json!({}))],
        }],
        servers: Vec::new(),
        security: None,
        extensions: Map::new(),
    }
}

fn parameter(name: &str, location: Location, schema: Value) -> Parameter {
    let style = match location {
        Location::Path | Location::Header => Style::Simple,
        _ => Style::Form,
    };
    Parameter {
        name: name.into(),
        location,
        required: false,
        deprecated: false,
        description: String::new(),
        schema,
        encoding: ParameterEncoding::Styled {
            style,
            explode: style == Style::Form,
            allow_reserved: false,
            allow_empty: false,
        },
        item_separator: None,
    }
}

fn media_type(name: &str, schema: Value) -> MediaType {
    MediaType { name: name.into(), schema, encoding: BTreeMap::new() }
}

fn body(media_type_name: &str, schema: Value) -> Option<RequestBody> {
    Some(RequestBody { required: true, description: String::new(), content: vec![media_type(media_type_name, schema)] })
}

/// The text of a file below `tests/openapi`.
pub(super) fn public_document(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(checkout().join("tests/openapi").join(name)).unwrap();
    if !name.ends_with(".gz") {
        return bytes;
    }
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut text).unwrap();
    text
}

/// The collection `a` of a document; nothing may be fetched.
async fn load(text: impl Into<String>) -> Result<Collection, CollectionError> {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let loader = Loader::new(outbound, DomainList::parse(&[]).unwrap());
    let settings = CollectionSettings { spec_inline: Some(text.into()), ..CollectionSettings::default() };
    loader.load("a", settings, &OpenApiConfig::default()).await
}

/// Loopback may be reached: the guard has tests of its own.
fn access() -> Arc<Access> {
    let config = OutboundConfig { allow_networks: vec!["127.0.0.0/8".into()], ..OutboundConfig::default() };
    Arc::new(Access {
        outbound: Outbound::new(&config).unwrap(),
        allowed: Arc::new(DomainList::any().clone()),
        adapter: None,
        max_response_bytes: 1 << 20,
        pagination: PaginationSettings::default(),
        user: None,
        exchange: None,
    })
}

fn tools(api: &Api, settings: &CollectionSettings) -> Vec<ToolDefinition> {
    definitions("pets", api, settings, &access()).unwrap().0
}

fn tool(api: &Api) -> ToolDefinition {
    tools(api, &CollectionSettings::default()).pop().expect("one tool")
}

fn settings(value: Value) -> CollectionSettings {
    serde_json::from_value(value).unwrap()
}

fn fits(tool: &ToolDefinition, arguments: &Value) -> bool {
    jsonschema::validator_for(tool.parameters.document()).unwrap().is_valid(arguments)
}

/// Runs a tool with arguments that fit its own schema.
async fn call(tool: &ToolDefinition, arguments: Value) -> Result<ToolOutput, CallError> {
    let context = CallContext::new("pets", Arc::new(Caller::anonymous()), Via::Rest);
    call_as(tool, &context, arguments).await
}

async fn call_as(tool: &ToolDefinition, context: &CallContext, arguments: Value) -> Result<ToolOutput, CallError> {
    assert!(fits(tool, &arguments), "{arguments} does not fit {:#}", tool.parameters.document());
    let attempt = Attempt {
        call: context,
        deadline: Deadline::after(Duration::from_secs(20)),
        memory_limit_bytes: 128 << 20,
        max_output_bytes: 1 << 20,
    };
    let mut arguments = arguments.as_object().cloned().unwrap();
    if let Some(form) = tool.executor.sent_form() {
        let filled = form.fill_in(&mut arguments, &context.origin.prompt_params);
        arguments = form.sent(&arguments, &filled.further);
    }
    tool.executor.execute(attempt, &arguments).await
}
