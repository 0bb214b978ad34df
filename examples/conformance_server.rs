//! An MCP server with the tools, prompts and resources that the scenarios of the official conformance suite name
//! (`@modelcontextprotocol/conformance`, `conformance list`). It stands behind sekisho in `scripts/test mcp-conformance`.
//!
//! `conformance_server [ADDR:PORT] [all|2025-11-25|2026-07-28]`: where to listen, and which revision to speak.

#![expect(deprecated, reason = "the older revisions have sampling, roots and logging, which the newest deprecates")]
#![expect(clippy::unwrap_used, reason = "the values are written below")]
#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientResult, CompleteRequestParams, CompleteResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation, InputRequests, InputRequiredResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, RequestStateCodec, ServerCapabilities, ServerConfig,
    ServerRequest, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, ServiceError, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// A red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/// A wave file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

#[derive(Clone)]
struct Fixture {
    revisions: Cow<'static, [ProtocolVersion]>,
    tools_changed: Arc<watch::Sender<bool>>,
    prompts_changed: Arc<watch::Sender<bool>>,
    codec: RequestStateCodec,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8931".into());
    let revisions = match arguments.next().as_deref() {
        Some("2025-11-25") => Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)),
        Some("2026-07-28") => Cow::Owned(vec![ProtocolVersion::V_2026_07_28]),
        _ => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
    };
    let fixture = Fixture {
        revisions,
        tools_changed: Arc::new(watch::Sender::new(false)),
        prompts_changed: Arc::new(watch::Sender::new(false)),
        codec: RequestStateCodec::new_unchecked(b"only for tests, and there only to find what was altered".to_vec()),
    };
    let own_pages = ["http://localhost:*", "http://127.0.0.1:*"];
    let config = StreamableHttpServerConfig::default().with_allowed_origins(own_pages).enforce_origin_validation();
    let service =
        StreamableHttpService::new(move || Ok(fixture.clone()), Arc::<LocalSessionManager>::default(), config);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await
}

/// How a tool goes on: it has all it asked for, or must wait for the client.
enum Asked {
    Answers(Map<String, Value>),
    Wait(InputRequiredResult),
}

impl Fixture {
    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.clone().unwrap_or_default();
        let content = match &*request.name {
            "test_simple_text" => json!([text("This is a simple text response for testing.")]),
            "test_image_content" => json!([image()]),
            "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
            "test_embedded_resource" => {
                json!([embedded("test://embedded-resource", "This is an embedded resource content.")])
            }
            "test_multiple_content_types" => json!([
                text("Multiple content types test:"),
                image(),
                {"type": "resource", "resource": {
                    "uri": "test://mixed-content-resource", "mimeType": "application/json",
                    "text": "{\"test\":\"data\",\"value\":123}",
                }},
            ]),
            "test_error_handling" => {
                let content = typed(json!([text("This tool intentionally returns an error for testing")]));
                return Ok(CallToolResult::error(content).into());
            }
            "test_tool_with_logging" | "test_logging_tool" => {
                for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    log(context, message).await;
                    pause().await;
                }
                json!([text("logged")])
            }
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let mut told = ProgressNotificationParam::new(token, progress);
                        told.total = Some(100.0);
                        _ = context.peer.notify_progress(told).await;
                    }
                    pause().await;
                }
                json!([text("done")])
            }
            // To an older client the question itself is put, and not only its capabilities looked at.
            "test_missing_capability" if is_older(context) => {
                let question = json!({"answer": sampling("Is anybody there?", 10)});
                return match self.ask(question, Map::new(), None, None, context).await? {
                    Asked::Wait(result) => Ok(result.into()),
                    Asked::Answers(_) => Ok(CallToolResult::success(typed(json!([text("asked")]))).into()),
                };
            }
            "test_missing_capability" => {
                let declared =
                    context.client_capabilities().is_some_and(|capabilities| capabilities.sampling.is_some());
                if !declared {
                    let required = typed(json!({"sampling": {}}));
                    return Err(ErrorData::missing_required_client_capability(required));
                }
                json!([text("the client declares sampling")])
            }
            // No scenario: what clients take back.
            "test_slow" => {
                tokio::select! {
                    () = context.ct.cancelled() => println!("test_slow was taken back"),
                    () = tokio::time::sleep(Duration::from_secs(60)) => {}
                }
                json!([text("slept")])
            }
            "test_trigger_tool_change" => {
                self.tools_changed.send_modify(|extra| *extra = !*extra);
                json!([text("the tools changed")])
            }
            "test_trigger_prompt_change" => {
                self.prompts_changed.send_modify(|extra| *extra = !*extra);
                json!([text("the prompts changed")])
            }
            "json_schema_2020_12_tool" | "test_custom_headers" => json!([text(&json!(arguments).to_string())]),
            name => return self.ask_and_tell(name, &arguments, &request, context).await,
        };
        Ok(CallToolResult::success(typed(content)).into())
    }

    /// The tools that put questions to the client.
    async fn ask_and_tell(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let given = request.input_responses.clone().unwrap_or_default().into_iter().collect::<Map<_, _>>();
        let state = request.request_state.as_deref();
        let (questions, keeps_state) = match name {
            "test_sampling" => (json!({"answer": sampling(argument("prompt"), 100)}), false),
            "test_elicitation" => (
                json!({"answer": elicitation(argument("message"), &json!({
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            }), &["username", "email"])}),
                false,
            ),
            "test_elicitation_sep1034_defaults" => {
                (json!({"answer": elicitation("Defaults", &defaults(), &[])}), false)
            }
            "test_elicitation_sep1330_enums" => (json!({"answer": elicitation("Choices", &choices(), &[])}), false),
            "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
                (json!({"user_name": ask_name()}), false)
            }
            "test_input_required_result_sampling" => {
                (json!({"capital_question": sampling("What is the capital of France?", 100)}), false)
            }
            "test_input_required_result_list_roots" => (json!({"client_roots": roots()}), false),
            "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
                let schema = json!({"ok": {"type": "boolean"}});
                (json!({"confirm": elicitation("Please confirm", &schema, &["ok"])}), true)
            }
            "test_input_required_result_multiple_inputs" => (
                json!({
                    "user_name": ask_name(), "greeting": sampling("Generate a greeting", 50), "client_roots": roots(),
                }),
                true,
            ),
            "test_input_required_result_capabilities" => {
                let capabilities = context.client_capabilities().unwrap_or_default();
                let mut questions = Map::new();
                if capabilities.elicitation.is_some() {
                    questions.insert("user_name".into(), ask_name());
                }
                if capabilities.sampling.is_some() {
                    questions.insert("greeting".into(), sampling("Generate a greeting", 50));
                }
                (Value::Object(questions), false)
            }
            "test_input_required_result_multi_round" => return self.two_rounds(given, state, context).await,
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        };
        match self.ask(questions, given, state, keeps_state.then_some("round 1"), context).await? {
            Asked::Wait(result) => Ok(result.into()),
            Asked::Answers(answers) => Ok(CallToolResult::success(typed(json!([text(&told(&answers))]))).into()),
        }
    }

    async fn two_rounds(
        &self,
        given: Map<String, Value>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let step1 = json!({"step1": elicitation("Step 1: What is your name?", &json!({"name": {"type": "string"}}), &["name"])});
        let step2 = json!({"step2": elicitation("Step 2: What is your favorite color?", &json!({"color": {"type": "string"}}), &["color"])});
        let round = state.map(|state| self.codec.open(state)).transpose().map_err(altered)?;
        let (given, state) = if round.as_deref() == Some(b"round 2") {
            (given, state)
        } else {
            match self.ask(step1, given, state, Some("round 1"), context).await? {
                Asked::Wait(result) => return Ok(result.into()),
                Asked::Answers(_) => (Map::new(), None),
            }
        };
        match self.ask(step2, given, state, Some("round 2"), context).await? {
            Asked::Wait(result) => Ok(result.into()),
            Asked::Answers(answers) => Ok(CallToolResult::success(typed(json!([text(&told(&answers))]))).into()),
        }
    }

    /// By further requests where the client speaks 2026-07-28, by requests of ours where it is older.
    async fn ask(
        &self,
        questions: Value,
        mut given: Map<String, Value>,
        state: Option<&str>,
        new_state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Asked, ErrorData> {
        if let Some(state) = state {
            self.codec.open(state).map_err(altered)?;
        }
        let questions: Map<String, Value> = typed(questions);
        if is_older(context) {
            return ask_older(questions, context).await.map(Asked::Answers);
        }
        if let Some(key) = questions.keys().find(|key| given.get(*key).is_some_and(|answer| !answer.is_object())) {
            return Err(ErrorData::invalid_params(format!("the answer to {key} is no object"), None));
        }
        if questions.keys().all(|key| given.contains_key(key)) {
            given.retain(|key, _| questions.contains_key(key));
            return Ok(Asked::Answers(given));
        }
        let state = new_state.map(|state| self.codec.seal(state.as_bytes()));
        Ok(Asked::Wait(InputRequiredResult::new(Some(typed::<InputRequests>(json!(questions))), state)))
    }
}

/// Puts all questions side by side. Those the client refuses have no answer, but one must have.
async fn ask_older(
    questions: Map<String, Value>,
    context: &RequestContext<RoleServer>,
) -> Result<Map<String, Value>, ErrorData> {
    let asking = questions.into_iter().map(async |(key, mut question)| {
        question["params"]["_meta"] = json!({"sekisho/key": key});
        let request = match question["method"].as_str() {
            Some("elicitation/create") => ServerRequest::ElicitRequest(typed(question)),
            Some("sampling/createMessage") => ServerRequest::CreateMessageRequest(typed(question)),
            _ => ServerRequest::ListRootsRequest(typed(question)),
        };
        let answer = match context.peer.send_request(request).await? {
            ClientResult::CreateMessageResult(result) => json!(result),
            ClientResult::ListRootsResult(result) => json!(result),
            ClientResult::ElicitResult(result) => json!(result),
            other => json!(other),
        };
        Ok::<_, ServiceError>((key, answer))
    });
    let (answers, refusals): (Vec<_>, Vec<_>) =
        futures_util::future::join_all(asking).await.into_iter().partition(Result::is_ok);
    match refusals.into_iter().find_map(Result::err) {
        Some(refusal) if answers.is_empty() => Err(ErrorData::internal_error(refusal.to_string(), None)),
        _ => Ok(answers.into_iter().flatten().collect()),
    }
}

fn is_older(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("conformance", "1.0.0"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.revisions.clone()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = tools();
        if *self.tools_changed.borrow() {
            tools.push(tool("test_extra_tool", "Comes and goes.", &json!({})));
        }
        Ok(ListToolsResult::with_all_items(typed(json!(tools))))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, &context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(typed(json!([
            {"uri": "test://static-text", "name": "static-text", "description": "A text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "static-binary", "description": "An image", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "watched-resource", "description": "A watched text", "mimeType": "text/plain"},
        ]))))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(typed(json!([
            {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data by id", "mimeType": "application/json"},
        ]))))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &request.uri;
        let templated = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri.as_str(), templated) {
            ("test://static-text", _) => {
                json!({"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."})
            }
            ("test://static-binary", _) => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
            ("test://watched-resource", _) => json!({"uri": uri, "mimeType": "text/plain", "text": "watched"}),
            (_, Some(id)) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            _ => return Err(ErrorData::resource_not_found("Resource not found", Some(json!({"uri": uri})))),
        };
        Ok(rmcp::model::ReadResourceResult::new(typed(json!([contents]))).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument = |name: &str| json!({"name": name, "description": format!("The {name}."), "required": true});
        let mut prompts = vec![
            json!({"name": "test_simple_prompt", "description": "A simple prompt"}),
            json!({"name": "test_prompt_with_arguments", "description": "With arguments", "arguments": [argument("arg1"), argument("arg2")]}),
            json!({"name": "test_prompt_with_embedded_resource", "description": "With a resource", "arguments": [argument("resourceUri")]}),
            json!({"name": "test_prompt_with_image", "description": "With an image"}),
            json!({"name": "test_input_required_result_prompt", "description": "Asks for its context"}),
        ];
        if *self.prompts_changed.borrow() {
            prompts.push(json!({"name": "test_extra_prompt", "description": "Comes and goes"}));
        }
        Ok(ListPromptsResult::with_all_items(typed(json!(prompts))))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let blocks = match request.name.as_str() {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                vec![text(&format!("Prompt with arguments: arg1='{}', arg2='{}'", argument("arg1"), argument("arg2")))]
            }
            "test_prompt_with_embedded_resource" => vec![
                embedded(&argument("resourceUri"), "Embedded resource content for testing."),
                text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
            "test_input_required_result_prompt" => {
                let schema = json!({"context": {"type": "string"}});
                let question = elicitation("What context should the prompt use?", &schema, &["context"]);
                let given = request.input_responses.unwrap_or_default().into_iter().collect();
                let state = request.request_state.as_deref();
                match self.ask(json!({"user_context": question}), given, state, None, &context).await? {
                    Asked::Wait(result) => return Ok(result.into()),
                    Asked::Answers(answers) => vec![text(&told(&answers))],
                }
            }
            other => return Err(ErrorData::invalid_params(format!("there is no prompt {other}"), None)),
        };
        let messages: Vec<_> = blocks.into_iter().map(|block| json!({"role": "user", "content": block})).collect();
        Ok(rmcp::model::GetPromptResult::new(typed(json!(messages))).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = json!(request)["argument"]["value"].as_str().unwrap_or_default().to_owned();
        let values: Vec<_> =
            ["paris", "park", "party", "test"].into_iter().filter(|word| word.starts_with(&begun)).collect();
        Ok(typed(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}})))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let (mut tools, mut prompts) = (self.tools_changed.subscribe(), self.prompts_changed.subscribe());
        tokio::spawn(async move {
            loop {
                let told = tokio::select! {
                    changed = tools.changed() => match changed { Ok(()) => context.peer.notify_tool_list_changed().await, Err(_) => return },
                    changed = prompts.changed() => match changed { Ok(()) => context.peer.notify_prompt_list_changed().await, Err(_) => return },
                };
                if told.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let (mut tools, mut prompts) = (self.tools_changed.subscribe(), self.prompts_changed.subscribe());
        loop {
            // What was not asked for is refused by the sink.
            _ = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                _ = tools.changed() => subscription.sink().notify_tool_list_changed().await,
                _ = prompts.changed() => subscription.sink().notify_prompt_list_changed().await,
            };
        }
    }
}

fn tools() -> Vec<Value> {
    let plain = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_tool_with_logging",
        "test_logging_tool",
        "test_tool_with_progress",
        "test_missing_capability",
        "test_slow",
        "test_streaming_elicitation",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_trigger_tool_change",
        "test_trigger_prompt_change",
        "test_input_required_result_elicitation",
        "test_input_required_result_sampling",
        "test_input_required_result_list_roots",
        "test_input_required_result_request_state",
        "test_input_required_result_tampered_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
        "test_input_required_result_capabilities",
    ];
    let plain = plain.into_iter().map(|name| tool(name, "Behaves as its scenario says.", &json!({})));
    let string = json!({"type": "string"});
    let others = [
        tool("test_sampling", "Asks the client's model.", &json!({"prompt": string})),
        tool("test_elicitation", "Asks the user.", &json!({"message": string})),
        json!({"name": "test_custom_headers", "description": "Its region is told in a header too", "inputSchema": {
            "type": "object", "required": ["region"],
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }}),
        json!({"name": "json_schema_2020_12_tool", "description": "Tool with JSON Schema 2020-12 features", "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {"$anchor": "addressDef", "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
            "properties": {
                "name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"}, "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]}, "else": {"required": ["email"]},
            "additionalProperties": false,
        }}),
    ];
    plain.chain(others).collect()
}

fn tool(name: &str, description: &str, properties: &Value) -> Value {
    let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn embedded(uri: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": text}})
}

fn elicitation(message: &str, properties: &Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn ask_name() -> Value {
    elicitation("What is your name?", &json!({"name": {"type": "string"}}), &["name"])
}

fn sampling(prompt: &str, most_tokens: u32) -> Value {
    let message = json!({"role": "user", "content": text(prompt)});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": most_tokens}})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

fn defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn choices() -> Value {
    let titled = |name: &str| {
        json!([
            {"const": "value1", "title": format!("First {name}")},
            {"const": "value2", "title": format!("Second {name}")},
            {"const": "value3", "title": format!("Third {name}")},
        ])
    };
    json!({
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    })
}

/// What the scenarios look for in the answer to a question.
fn told(answers: &Map<String, Value>) -> String {
    let told = answers.values().map(|answer| {
        if let Some(action) = answer["action"].as_str() {
            let content = &answer["content"];
            match content["name"].as_str() {
                Some(name) => format!("Hello, {name}! (action={action}, content={content})"),
                None => format!("Elicitation completed: action={action}, content={content}; state-ok"),
            }
        } else if let Some(said) = answer["content"]["text"].as_str() {
            format!("LLM response: {said}")
        } else {
            answer.to_string()
        }
    });
    told.collect::<Vec<_>>().join("\n")
}

async fn log(context: &RequestContext<RoleServer>, message: &str) {
    if !is_older(context) && context.meta.log_level().is_none() {
        return;
    }
    let told = LoggingMessageNotificationParam::new(rmcp::model::LoggingLevel::Info, json!(message));
    _ = context.peer.notify_logging_message(told).await;
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn altered(_: rmcp::model::RequestStateError) -> ErrorData {
    ErrorData::invalid_params("the requestState was altered", None)
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
