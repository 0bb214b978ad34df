//! The tools of another gateway, over its HTTP face.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::images::find_images;
use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use crate::call::Deadline;
use crate::outbound::{Outbound, OutboundRequest, Trust};
use crate::telemetry;

/// The longest a call may take; the gateway's own limits are shorter.
const WITHIN: Duration = Duration::from_secs(600);

/// The longest wait for the list of tools.
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// The largest answer read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The request that the gateway's budget counts the calls of a run to.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Calls go through the other gateway's checkpoint, as the caller of the key that is sent.
#[derive(Clone)]
pub struct OverHttp {
    server: Url,
    /// The key among them.
    headers: HeaderMap,
    outbound: Outbound,
    session: Option<String>,
}

/// What an execute route answers, as far as an agent needs it.
#[derive(Deserialize)]
struct Reply {
    success: bool,
    #[serde(default)]
    output: Value,
    #[serde(default)]
    text: String,
    error: Option<String>,
    error_info: Option<Value>,
}

impl OverHttp {
    /// `headers` go with every request.
    pub fn new(server: Url, headers: HeaderMap, outbound: Outbound) -> Self {
        Self { server, headers, outbound, session: None }
    }

    /// The same tools, for one run and one session.
    pub fn for_request(&self, request: Option<&str>, session: &str) -> Self {
        let mut toolbox = Self { session: Some(session.to_owned()), ..self.clone() };
        if let Some(id) = request.and_then(|id| HeaderValue::try_from(id).ok()) {
            toolbox.headers.insert(REQUEST_ID, id);
        }
        toolbox
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<Value>,
        within: Duration,
    ) -> Result<Value, String> {
        let mut url = self.server.clone();
        url.path_segments_mut().map_err(|()| "write it as http://HOST:PORT".to_owned())?.pop_if_empty().extend(path);
        let request = OutboundRequest {
            method,
            headers: self.headers.clone(),
            body: body.map(|body| body.to_string().into()),
            max_response_bytes: MAX_ANSWER_BYTES,
            trust: Trust::Operator,
            trace: telemetry::current(),
            ..OutboundRequest::get(url, Deadline::after(within))
        };
        let answer = self.outbound.send(request).await.map_err(|error| error.message().to_owned())?;
        serde_json::from_slice(&answer.body).map_err(|_| "what answers there is no sekisho".to_owned())
    }

    async fn schemas(&self) -> Result<Vec<ToolDescription>, String> {
        let answer = self.send(Method::GET, &["tools", "schemas"], None, LIST_WITHIN).await?;
        if let Some(refused) = answer["error"].as_str() {
            return Err(refused.to_owned());
        }
        serde_json::from_value(answer).map_err(|_| "what answers there is no sekisho".to_owned())
    }
}

impl Toolbox for OverHttp {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async {
            let listed = self.schemas().await;
            listed.map_err(|problem| ToolboxUnreachable(format!("{} does not answer: {problem}", self.server)))
        })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            let mut body = json!({"arguments": call.arguments});
            if let Some(session) = &self.session {
                body["session_id"] = session.as_str().into();
            }
            let answer = self.send(Method::POST, &["tools", &call.tool, "execute"], Some(body), WITHIN).await;
            let reply = answer.and_then(|answer| {
                serde_json::from_value::<Reply>(answer).map_err(|_| "what answers there is no sekisho".to_owned())
            });
            match reply {
                Ok(reply) => reply.into_answer(),
                Err(problem) => {
                    let text = format!("the gateway of the tools does not answer: {problem}");
                    ToolAnswer { success: false, text, error_info: None, images: Vec::new() }
                }
            }
        })
    }
}

impl Reply {
    fn into_answer(self) -> ToolAnswer {
        if !self.success {
            let text = self.error.unwrap_or_else(|| "the tool failed without saying why".into());
            return ToolAnswer { success: false, text, error_info: self.error_info, images: Vec::new() };
        }
        let (images, text) = find_images([&self.output], self.text);
        ToolAnswer { success: true, text, error_info: None, images }
    }
}

impl fmt::Debug for OverHttp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OverHttp").field("server", &self.server.as_str()).finish_non_exhaustive()
    }
}
