//! The tools of this process's own gateway, called as one caller.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{ToolAnswer, ToolDescription, ToolImage, Toolbox, ToolboxCall, ToolboxUnreachable};
use crate::call::{BudgetScopes, CallContext, Caller, TraceParent, Via};
use crate::gateway::Gateway;
use crate::pipeline::{ErrorInfo, Reply};
use crate::session::Session;

/// Every call goes through the pipeline, as the caller's own.
pub struct InProcess {
    pub gateway: Arc<Gateway>,
    pub caller: Arc<Caller>,
    pub scopes: BudgetScopes,
    pub session: Option<Arc<Session>>,
    pub claimed_user: Option<String>,
    pub trace: Option<TraceParent>,
    /// Tools that are off for the caller's session (A53): neither listed nor run.
    pub off: BTreeSet<String>,
}

/// More images of one answer are left out: each costs a model about a thousand tokens.
const MOST_IMAGES: usize = 8;

impl InProcess {
    pub fn new(gateway: Arc<Gateway>, caller: Arc<Caller>) -> Self {
        Self {
            gateway,
            caller,
            scopes: BudgetScopes::default(),
            session: None,
            claimed_user: None,
            trace: None,
            off: BTreeSet::new(),
        }
    }

    fn context(&self, tool: String) -> CallContext {
        CallContext {
            scopes: self.scopes.clone(),
            session: self.session.clone(),
            claimed_user: self.claimed_user.clone(),
            trace: self.trace.clone(),
            ..CallContext::new(tool, Arc::clone(&self.caller), Via::Agent)
        }
    }
}

impl Toolbox for InProcess {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        let snapshot = self.gateway.pipeline.registry.snapshot();
        let on = snapshot.tools().iter().filter(|tool| !self.off.contains(tool.name()));
        let tools = on.map(|tool| ToolDescription {
            name: tool.name().to_owned(),
            description: tool.metadata.description.clone(),
            parameters: tool.input.document().clone(),
        });
        let tools = Ok(tools.collect());
        Box::pin(async { tools })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            if self.off.contains(&call.tool) {
                let text = format!("the tool `{}` is switched off for this session; use another", call.tool);
                return ToolAnswer { success: false, text, error_info: None, images: Vec::new() };
            }
            let answered = self.gateway.pipeline.call(self.context(call.tool), call.arguments).await;
            ToolAnswer::from(&*answered.reply)
        })
    }
}

impl From<&Reply> for ToolAnswer {
    fn from(reply: &Reply) -> Self {
        match &reply.outcome {
            Ok(answer) => {
                let mut images = Vec::new();
                find_images(&answer.output, &mut images);
                let text =
                    images.iter().fold(answer.text.clone(), |text, image| text.replace(&image.base64, "[image]"));
                Self { success: true, text, error_info: None, images }
            }
            Err(error) => Self {
                success: false,
                text: error.message().to_owned(),
                error_info: serde_json::to_value(ErrorInfo::from(error)).ok(),
                images: Vec::new(),
            },
        }
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("InProcess")
            .field("caller", &self.caller)
            .field("off", &self.off)
            .finish_non_exhaustive()
    }
}

/// Data URLs (RFC 2397) and image blocks of the Model Context Protocol, in the order they stand in the output.
fn find_images(value: &Value, found: &mut Vec<ToolImage>) {
    match value {
        _ if found.len() >= MOST_IMAGES => {}
        Value::String(text) => found.extend(data_url(text)),
        Value::Array(items) => items.iter().for_each(|item| find_images(item, found)),
        Value::Object(members) => match image_block(value) {
            Some(image) => found.push(image),
            None => members.values().for_each(|member| find_images(member, found)),
        },
        _ => {}
    }
}

fn data_url(text: &str) -> Option<ToolImage> {
    let (media_type, base64) = text.strip_prefix("data:")?.split_once(";base64,")?;
    image(media_type, base64)
}

fn image_block(block: &Value) -> Option<ToolImage> {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    image(text("mimeType").filter(|_| text("type") == Some("image"))?, text("data")?)
}

fn image(media_type: &str, base64: &str) -> Option<ToolImage> {
    let is_seen = matches!(media_type, "image/png" | "image/jpeg") && !base64.is_empty();
    is_seen.then(|| ToolImage { media_type: media_type.to_owned(), base64: base64.to_owned() })
}

#[cfg(test)]
mod tests;
