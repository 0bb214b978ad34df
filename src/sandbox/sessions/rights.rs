//! The tools that the programs of a session may call.

use serde_json::json;
use sha2::{Digest, Sha256};

use sekisho_core::call::CallContext;

/// SHA-256 of the facts that decide, besides the caller, which tools the programs of a call may call. All calls of a
/// session have the same, also after it was stored: code that a program leaves behind runs in the next call, with the
/// rights of that call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rights(pub(super) [u8; 32]);

impl Rights {
    pub(super) fn of(call: &CallContext) -> Self {
        let caller = &call.caller;
        let mut roles = caller.roles.clone();
        roles.sort_unstable();
        let decisive = json!([roles, caller.tools, caller.scopes, call.nesting.scope]);
        Self(Sha256::digest(decisive.to_string()).into())
    }
}
