use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

/// State of a caller between calls.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// A session unused for this long is deleted, with its workspace unless that is a conversation's.
    pub idle_seconds: u64,
    /// Maximum sessions of one caller. For a further one, the least recently used is deleted, with its workspace.
    pub max_per_caller: usize,
    /// How long a reply to a call with an `Idempotency-Key` is stored.
    pub idempotency_seconds: u64,
    /// Maximum number of such replies for each tenant. The caller with the most loses its least recently used one.
    pub max_idempotency_keys: usize,
    /// Record calls without an `Idempotency-Key`, too, before they are sent: calls of OpenAPI and MCP tools that neither only read nor
    /// are idempotent. One that is sent again before its client has the reply is not made twice.
    pub record_effects: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            idle_seconds: 86_400,
            max_per_caller: 1_000,
            idempotency_seconds: 86_400,
            max_idempotency_keys: 10_000,
            record_effects: false,
        }
    }
}

impl SessionConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.seconds("session.idle_seconds", self.idle_seconds);
        findings.above_zero("session.max_per_caller", self.max_per_caller);
        findings.seconds("session.idempotency_seconds", self.idempotency_seconds);
        findings.above_zero("session.max_idempotency_keys", self.max_idempotency_keys);
    }
}
