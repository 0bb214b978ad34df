//! All MCP servers of a configuration: what they offer beside tools, and what changes there.
//!
//! Whatever the protocol gives is JSON as the protocol writes it (2025-11-25 and later), with the names and
//! URIs under their server's prefix.

use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::broadcast;

use crate::call::{CallContext, Caller};
use crate::error::CallError;

/// Changes that a listener may be behind before it is told only that it missed some.
const CHANGES_KEPT: usize = 256;

/// The servers, for as long as the gateway runs: a reload changes which they are.
#[derive(Debug)]
pub struct McpServers {
    changes: broadcast::Sender<Change>,
}

/// Something that clients may want to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Which tools there are, or what they say of themselves.
    Tools,
    Resources,
    Prompts,
    /// What a resource holds, by the URI it is read with here.
    Resource {
        uri: String,
    },
}

/// Why a server does not give what was asked for.
#[derive(Debug, Error)]
pub enum ServerFault {
    /// No server has it, or the caller may not use the server that does.
    #[error("there is no {0}")]
    Unknown(String),
    /// The server's own JSON-RPC error.
    #[error("{message}")]
    Refused { code: i32, message: String, data: Option<Value> },
    /// The server could not be asked.
    #[error(transparent)]
    Failed(#[from] CallError),
}

impl Default for McpServers {
    fn default() -> Self {
        Self { changes: broadcast::Sender::new(CHANGES_KEPT) }
    }
}

impl McpServers {
    /// What changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// `Resource` objects of the servers that `caller` may use, as last listed, in a fixed order.
    pub fn resources(&self, _caller: &Caller) -> Vec<Value> {
        Vec::new()
    }

    /// `ResourceTemplate` objects, as [`resources`](Self::resources).
    pub fn resource_templates(&self, _caller: &Caller) -> Vec<Value> {
        Vec::new()
    }

    /// `Prompt` objects, as [`resources`](Self::resources).
    pub fn prompts(&self, _caller: &Caller) -> Vec<Value> {
        Vec::new()
    }

    /// What the servers that `caller` may use say about how to use them.
    pub fn instructions(&self, _caller: &Caller) -> Option<String> {
        None
    }

    /// `ReadResourceResult` of a listed resource, or of one that a listed template covers.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn read_resource(&self, _call: &CallContext, uri: &str) -> Result<Value, ServerFault> {
        Err(ServerFault::Unknown(format!("resource {uri:?}")))
    }

    /// Asks to be told ([`Change::Resource`]) when the resource changes. Each subscription asks for one
    /// [`unsubscribe`](Self::unsubscribe).
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn subscribe(&self, _call: &CallContext, uri: &str) -> Result<(), ServerFault> {
        Err(ServerFault::Unknown(format!("resource {uri:?}")))
    }

    /// Ends one subscription.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn unsubscribe(&self, _call: &CallContext, uri: &str) -> Result<(), ServerFault> {
        Err(ServerFault::Unknown(format!("resource {uri:?}")))
    }

    /// `GetPromptResult` of a listed prompt.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn get_prompt(
        &self,
        _call: &CallContext,
        name: &str,
        _arguments: &Map<String, Value>,
    ) -> Result<Value, ServerFault> {
        Err(ServerFault::Unknown(format!("prompt {name:?}")))
    }

    /// `CompleteResult` for the `params` of `completion/complete`: `ref`, `argument`, `context`.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn complete(&self, _call: &CallContext, params: &Map<String, Value>) -> Result<Value, ServerFault> {
        let reference = params.get("ref").map(ToString::to_string).unwrap_or_default();
        Err(ServerFault::Unknown(format!("prompt or resource {reference}")))
    }
}
