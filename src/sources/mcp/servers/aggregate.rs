//! Resources, prompts and completion of all servers as if they were one's.
//!
//! Whatever the protocol gives is JSON as the protocol writes it (2025-11-25 and later), with the names and
//! URIs under their server's prefix.

use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;

use super::McpServers;
use crate::call::{CallContext, Caller};
use crate::error::{CallError, ErrorCode};
use crate::redaction::SentSecrets;
use crate::sources::mcp::server::Server;

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

impl ServerFault {
    /// Without what the server repeated of the credentials it was sent.
    pub(in crate::sources::mcp) fn redacted(self, secrets: &SentSecrets) -> Self {
        match self {
            Self::Unknown(what) => Self::Unknown(what),
            Self::Refused { code, message, mut data } => {
                data.iter_mut().for_each(|data| secrets.strike_value(data));
                Self::Refused { code, message: secrets.strike(&message).into_owned(), data }
            }
            Self::Failed(error) => Self::Failed(error.redacted(secrets)),
        }
    }
}

impl McpServers {
    /// `Resource` objects of the servers that `caller` may use, as last listed, in a fixed order.
    pub fn resources(&self, caller: &Caller) -> Vec<Value> {
        self.each_for(caller, |server| server.catalogue.load().resources.clone())
    }

    /// `ResourceTemplate` objects, as [`resources`](Self::resources).
    pub fn resource_templates(&self, caller: &Caller) -> Vec<Value> {
        self.each_for(caller, |server| server.catalogue.load().templates.clone())
    }

    /// `Prompt` objects, as [`resources`](Self::resources). Of two with one name the first server's is meant.
    pub fn prompts(&self, caller: &Caller) -> Vec<Value> {
        let mut names = std::collections::HashSet::new();
        let mut prompts = self.each_for(caller, |server| match server.objection() {
            None => server.catalogue.load().prompts.clone(),
            Some(_) => Vec::new(),
        });
        prompts.retain(|prompt| names.insert(prompt["name"].to_string()));
        prompts
    }

    /// What the servers that `caller` may use say about how to use them.
    pub fn instructions(&self, caller: &Caller) -> Option<String> {
        let said = self.each_for(caller, |server| {
            let said = server.catalogue.load().instructions.clone().filter(|_| server.objection().is_none());
            said.map(|said| format!("{}: {said}", server.name())).into_iter().collect()
        });
        (!said.is_empty()).then(|| said.join("\n\n"))
    }

    /// `ReadResourceResult` of a resource of a server that the caller may use.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn read_resource(&self, call: &CallContext, uri: &str) -> Result<Value, ServerFault> {
        let (server, own) = self.of_resource(&call.caller, uri)?;
        let params = Map::from_iter([("uri".to_owned(), Value::String(own))]);
        let mut result = server.ask(call, "resources/read", params).await?;
        for content in result.get_mut("contents").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(Value::String(uri)) = content.get_mut("uri") {
                *uri = server.names().uri(uri);
            }
        }
        Ok(result)
    }

    /// Asks to be told ([`Change::Resource`](crate::sources::mcp::Change::Resource)) when the resource changes. Each subscription asks for one
    /// [`unsubscribe`](Self::unsubscribe).
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn subscribe(&self, call: &CallContext, uri: &str) -> Result<(), ServerFault> {
        let (server, own) = self.of_resource(&call.caller, uri)?;
        server.subscribe(call, &own).await
    }

    /// Ends one subscription.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn unsubscribe(&self, call: &CallContext, uri: &str) -> Result<(), ServerFault> {
        let (server, own) = self.of_resource(&call.caller, uri)?;
        server.unsubscribe(call, &own).await
    }

    /// `GetPromptResult` of a listed prompt.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn get_prompt(
        &self,
        call: &CallContext,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, ServerFault> {
        let (server, own) = self.of_prompt(&call.caller, name)?;
        let mut params = Map::from_iter([("name".to_owned(), Value::String(own))]);
        if !arguments.is_empty() {
            params.insert("arguments".to_owned(), Value::Object(arguments.clone()));
        }
        let mut result = server.ask(call, "prompts/get", params).await?;
        for message in result.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(content) = message.get_mut("content") {
                server.names().adopt(content);
            }
        }
        Ok(result)
    }

    /// `CompleteResult` for the `params` of `completion/complete`: `ref`, `argument`, `context`.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn complete(&self, call: &CallContext, params: &Map<String, Value>) -> Result<Value, ServerFault> {
        let reference = params.get("ref").unwrap_or(&Value::Null);
        let field = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut params = params.clone();
        params.shift_remove("_meta");
        let (server, member, own) = if field("type") == "ref/prompt" {
            let (server, own) = self.of_prompt(&call.caller, field("name"))?;
            (server, "name", own)
        } else {
            let (server, own) = self.of_resource(&call.caller, field("uri"))?;
            (server, "uri", own)
        };
        if let Some(reference) = params.get_mut("ref") {
            reference[member] = own.into();
        }
        server.ask(call, "completion/complete", params).await
    }

    fn each_for<T>(&self, caller: &Caller, of: impl Fn(&Server) -> Vec<T>) -> Vec<T> {
        self.running.load().values().filter(|server| server.may_use(caller)).flat_map(|server| of(server)).collect()
    }

    /// The server that a URI belongs to, and its own URI. Of several without a prefix the one that lists it.
    fn of_resource(&self, caller: &Caller, uri: &str) -> Result<(Arc<Server>, String), ServerFault> {
        let running = self.running.load();
        let mut candidates = running.values().filter(|server| server.may_use(caller)).filter_map(|server| {
            let own = server.names().own_uri(uri)?;
            Some((Arc::clone(server), own.to_owned(), server.lists(uri), server.names().is_prefixed()))
        });
        let mut best = None;
        let unknown = || ServerFault::Unknown(format!("resource {uri:?}"));
        for (server, own, lists, prefixed) in &mut candidates {
            let rank = (prefixed, lists);
            if best.as_ref().is_none_or(|(_, _, before)| rank > *before) {
                best = Some((server, own, rank));
            }
        }
        let (server, own, _) = best.ok_or_else(unknown)?;
        Ok((server, own))
    }

    fn of_prompt(&self, caller: &Caller, name: &str) -> Result<(Arc<Server>, String), ServerFault> {
        let running = self.running.load();
        let found = running.values().filter(|server| server.may_use(caller)).find_map(|server| {
            let own = server.catalogue.load().prompt_names.get(name).cloned()?;
            Some((Arc::clone(server), own))
        });
        let (server, own) = found.ok_or_else(|| ServerFault::Unknown(format!("prompt {name:?}")))?;
        if let Some(objection) = server.objection() {
            let what = format!("what the MCP server {} says beside its tools", server.name());
            let message = format!("{what} is quarantined: {objection}; an operator can look with `sekisho lock diff`");
            return Err(CallError::new(ErrorCode::ToolChanged, message).into());
        }
        Ok((server, own))
    }
}
