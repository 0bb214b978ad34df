//! Key or token → Caller.
use crate::call::Caller;
use crate::config::AuthConfig;
use crate::error::CallError;
use std::sync::Arc;

#[derive(Debug)]
pub struct Authenticator;

impl Authenticator {
    pub async fn new(_config: &AuthConfig, _on_loopback: bool) -> Result<Self, String> {
        Ok(Self)
    }
    /// From the request's headers (`Authorization: Bearer …`, `X-API-Key`).
    pub async fn authenticate(&self, _headers: &http::HeaderMap) -> Result<Arc<Caller>, CallError> {
        Ok(Arc::new(Caller::anonymous()))
    }
}
