//! The tools of another gateway, over its HTTP API.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::images::find_images;
use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_outbound::remote_gateway::{RemoteGateway, RemoteRequest};
use sekisho_sandbox::PYTHON;

/// Timeout of listing the tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Large results are answered by a preview with a handle, which `read_result` reads.
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Header with the request id under which the gateway's budget counts a run's calls.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Calls go through the other gateway's pipeline, as the caller of the API key.
#[derive(Debug, Clone)]
pub struct OverHttp {
    gateway: RemoteGateway,
    session: Option<String>,
}

/// The fields of an execute reply that an agent needs.
#[derive(Deserialize)]
struct Reply {
    success: bool,
    #[serde(default)]
    output: Value,
    #[serde(default)]
    text: String,
    /// The content blocks of an MCP server's result, if it has more than text.
    #[serde(default)]
    content: Vec<Value>,
    error: Option<String>,
    error_info: Option<Value>,
}

impl OverHttp {
    pub fn new(gateway: RemoteGateway) -> Self {
        Self { gateway, session: None }
    }

    /// The same tools, for one run and one session.
    pub fn for_request(&self, request: Option<&str>, session: &str) -> Self {
        let gateway = self.gateway.clone().with_header(PREFER, HeaderValue::from_static("handle"));
        let gateway = match request.and_then(|id| HeaderValue::try_from(id).ok()) {
            Some(id) => gateway.with_header(REQUEST_ID, id),
            None => gateway,
        };
        Self { gateway, session: Some(session.to_owned()) }
    }

    async fn schemas(&self) -> Result<Vec<ToolDescription>, String> {
        let request = RemoteRequest {
            within: LIST_TIMEOUT,
            query: &[("usable", "true")],
            ..RemoteRequest::get(&["tools", "schemas"])
        };
        let answer = self.gateway.ask(request).await?.body;
        if let Some(refused) = answer["error"].as_str() {
            return Err(refused.to_owned());
        }
        serde_json::from_value(answer).map_err(|_| "the server is not a sekisho gateway".to_owned())
    }

    async fn reply(&self, call: &ToolboxCall) -> Result<Reply, String> {
        let mut body = json!({"arguments": call.arguments});
        if let Some(session) = &self.session {
            body["session_id"] = session.as_str().into();
        }
        let answer = self.gateway.ask(RemoteRequest::post(&["tools", &call.tool, "execute"], &body)).await?;
        serde_json::from_value(answer.body).map_err(|_| "the server is not a sekisho gateway".to_owned())
    }
}

impl Toolbox for OverHttp {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async {
            let listed = self.schemas().await;
            listed.map_err(|problem| {
                ToolboxUnreachable(format!("{} cannot be reached: {problem}", self.gateway.server()))
            })
        })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        if !may_run(&call) {
            let text = format!(
                "`{PYTHON}` is not run for this agent, since its programs could call the tools that its profile leaves \
                 out: the gateway of the tools does not know them; use other tools"
            );
            return Box::pin(async { ToolAnswer { success: false, text, error_info: None, images: Vec::new() } });
        }
        Box::pin(async move {
            match self.reply(&call).await {
                Ok(reply) => reply.into_answer(),
                Err(problem) => {
                    let text = format!("the gateway of the tools cannot be reached: {problem}");
                    ToolAnswer { success: false, text, error_info: None, images: Vec::new() }
                }
            }
        })
    }
}

/// Whether the other gateway can be asked to run the tool: it does not know which tools the tool may not call in turn.
fn may_run(call: &ToolboxCall) -> bool {
    call.tool != PYTHON || call.nested_scope.admits_all()
}

impl Reply {
    fn into_answer(self) -> ToolAnswer {
        if !self.success {
            let text = self.error.unwrap_or_else(|| "the tool failed without an error message".into());
            return ToolAnswer { success: false, text, error_info: self.error_info, images: Vec::new() };
        }
        let (images, text) = find_images(self.content.iter().chain([&self.output]), self.text);
        ToolAnswer { success: true, text, error_info: None, images }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::call::Arguments;

    #[test]
    fn programs_run_only_for_an_agent_that_may_call_all_tools() {
        for tool in [PYTHON, "echo"] {
            let call = ToolboxCall::new("a", tool, Arguments::new());
            assert!(may_run(&call), "{tool}");
            let nested_scope = call.nested_scope.clone().narrowed(&[], ["pay".to_owned()]);
            assert_eq!(may_run(&ToolboxCall { nested_scope, ..call }), tool != PYTHON, "{tool}");
        }
    }

    #[test]
    fn images_of_an_mcp_server_are_taken_from_its_blocks() {
        let block = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="});
        let reply = json!({
            "success": true, "output": "see\n[image image/png]", "text": "see\n[image image/png]", "error": null,
            "content": [{"type": "text", "text": "see"}, block], "execution_time_ms": 1,
        });
        let answer = serde_json::from_value::<Reply>(reply).unwrap().into_answer();
        assert_eq!((answer.success, answer.text.as_str()), (true, "see\n[image image/png]"));
        let images: Vec<_> = answer.images.iter().map(|image| image.base64.as_str()).collect();
        assert_eq!(images, ["iVBORw0KGgo="]);
    }
}
