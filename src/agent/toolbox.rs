//! The agent's interface to tools: listing and calling them.

mod code_mode;
mod filtered;
mod frozen;
mod images;
mod in_process;
mod layer;
mod of_tenant;
mod over_http;
mod shortlist;
mod values;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::message::Image;
use sekisho_calls::budget::ChargesOfCall;
use sekisho_calls::tool::Tool;
use sekisho_core::call::Arguments;
use sekisho_core::coercion::Coercion;
use sekisho_core::error::{ErrorCode, NeededApproval};
use sekisho_core::tool_scope::NestedScope;

pub use self::code_mode::CodeMode;
pub use self::filtered::Filtered;
pub use self::frozen::Frozen;
pub(crate) use self::frozen::{call_tool, called, wait};
pub use self::in_process::InProcess;
pub use self::layer::ToolboxLayer;
pub use self::of_tenant::OfTenant;
pub use self::over_http::OverHttp;
pub use self::shortlist::{Shortlist, shortlist, with_deferred};

/// Tools as an agent sees them.
pub trait Toolbox: Send + Sync {
    /// The tools that the run may use now, in a fixed order.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>>;

    /// Runs one tool. Dropping the future cancels the call.
    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer>;
}

/// The description of a tool for a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDescription {
    pub name: String,
    pub description: String,
    /// Shared by all runs that are offered the tool.
    pub parameters: Arc<Value>,
    /// Not shown to the model until it searches for it, by the tool search of its provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deferred: bool,
}

impl ToolDescription {
    /// Whether both describe the same, shown or not.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { name, description, parameters, .. } = self;
        *name == other.name && *description == other.description && *parameters == other.parameters
    }
}

impl From<&Tool> for ToolDescription {
    fn from(tool: &Tool) -> Self {
        Self {
            name: tool.name().to_owned(),
            description: tool.metadata.description.clone(),
            parameters: tool.input.shared_document(),
            is_deferred: false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct ToolboxCall {
    /// The call's id in its run.
    pub id: String,
    pub tool: String,
    pub arguments: Arguments,
    /// The corrections of the model's call, for its receipt.
    pub corrections: Vec<Coercion>,
    /// Bytes of a result that the model reads at once.
    pub max_result_bytes: usize,
    pub on_approval: OnApproval,
    pub record: RecordedCall,
    /// The tools that the tool may call in turn.
    pub nested_scope: NestedScope,
}

/// The treatment of a call that a person must approve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OnApproval {
    /// It waits for the decision, for a time.
    #[default]
    Wait,
    /// It ends, and its run pauses.
    Pause,
    /// Its run paused for this approval, and goes on if that is decided.
    Resume(Arc<str>),
}

impl OnApproval {
    /// The approval for which the run of a call pauses that is answered so.
    pub(super) fn pause(&self, answer: &ToolAnswer) -> Option<NeededApproval> {
        let needed = answer.needed_approval()?;
        match self {
            Self::Wait => None,
            Self::Pause => Some(needed),
            // Another approval is needed by now: the model learns it, and asks for it if it makes the call again.
            Self::Resume(id) => Some(needed).filter(|needed| needed.id == *id),
        }
    }
}

/// The journal's additions to a call that it records.
#[derive(Debug, Clone, Default)]
pub struct RecordedCall {
    /// The `Idempotency-Key` for the API behind the tool: the same one when the call is sent again.
    pub key: Option<Arc<str>>,
    /// Who stores its charge with its answer.
    pub charges: Option<Arc<ChargesOfCall>>,
}

impl RecordedCall {
    /// The key of a call of a run.
    pub(super) fn key_of(run: &str, call: &str) -> Arc<str> {
        let digest = Sha256::new().chain_update(run).chain_update([0]).chain_update(call).finalize();
        hex::encode(&digest[..16]).into()
    }
}

impl ToolboxCall {
    /// A call that no journal knows.
    pub fn new(id: impl Into<String>, tool: impl Into<String>, arguments: Arguments) -> Self {
        let (id, tool) = (id.into(), tool.into());
        let (corrections, on_approval, record) = (Vec::new(), OnApproval::default(), RecordedCall::default());
        let (max_result_bytes, nested_scope) = (usize::MAX, NestedScope::default());
        Self { id, tool, arguments, corrections, max_result_bytes, on_approval, record, nested_scope }
    }
}

/// A tool's result, for the model to read.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    pub success: bool,
    /// The text form of the output, or the error's message.
    pub text: String,
    /// The typed error of a refusal or failure, as in replies.
    pub error_info: Option<Value>,
    /// PNG or JPEG, as data URLs or base64 blocks of the output.
    pub images: Vec<Image>,
}

impl ToolAnswer {
    /// The wait after which the same call may succeed, if the refusal names one.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let info = self.error_info.as_ref().filter(|info| info["retryable"] == true)?;
        info["retry_after_ms"].as_u64().map(Duration::from_millis)
    }

    /// The approval that a refused call needs.
    fn needed_approval(&self) -> Option<NeededApproval> {
        let code = ErrorCode::ApprovalRequired.as_str();
        let info = self.error_info.as_ref().filter(|info| info["code"] == code)?;
        serde_json::from_value(info["approval"].clone()).ok()
    }
}

/// The other gateway cannot be reached; the run continues without tools (A68).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the tools cannot be listed: {0}")]
pub struct ToolboxUnreachable(pub String);
