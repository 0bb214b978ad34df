//! Sessions: state keyed by tenant, caller and id.
use crate::call::Caller;
use crate::config::SessionConfig;
use crate::error::CallError;
use rust_decimal::Decimal;
use std::sync::Arc;

#[derive(Debug)]
pub struct Sessions;

#[derive(Debug)]
pub struct Session {
    pub id: Arc<str>,
}

impl Session {
    pub fn labels(&self) -> Vec<String> {
        Vec::new()
    }
    /// Calls settled in this session, and what they cost.
    pub fn calls(&self) -> u64 {
        0
    }
    pub fn cost_usd(&self) -> Decimal {
        Decimal::ZERO
    }
    pub fn settle(&self, _cost_usd: Decimal) {}
    /// SHA-256 (hex) over tenant, caller and id: names the workspace folder.
    pub fn workspace_name(&self) -> &str {
        ""
    }
}

impl Sessions {
    pub fn new(_config: &SessionConfig) -> Self {
        Self
    }
    pub fn reconfigure(&self, _config: &SessionConfig) {}
    /// For execute: makes the session when this caller has none of that id.
    pub fn open(&self, _caller: &Caller, _id: &str) -> Result<Arc<Session>, CallError> {
        todo!()
    }
    /// Elsewhere: `unknown_session` when this caller never used the id.
    pub fn find(&self, _caller: &Caller, _id: &str) -> Result<Arc<Session>, CallError> {
        todo!()
    }
    /// Forgets idle sessions and names their workspaces, to be deleted.
    pub fn evict_idle(&self) -> Vec<String> {
        Vec::new()
    }
    pub fn len(&self) -> usize {
        0
    }
    pub fn is_empty(&self) -> bool {
        true
    }
}
