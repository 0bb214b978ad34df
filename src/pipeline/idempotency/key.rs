//! The identifier of a record and the digest of its request. Both are hashes, so that no key or argument is stored.

use sha2::{Digest, Sha256};

use crate::core::call::{Arguments, CallContext, Caller};
use crate::core::error::{CallError, ErrorCode};
use crate::core::json;

/// Longest key, in characters.
pub(super) const MAX_KEY_LENGTH: usize = 255;

/// The hash of caller, tool and key, which identifies a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RecordId(pub(super) String);

/// The hash of a call's arguments and of everything else that determines its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestDigest(pub(super) String);

impl RecordId {
    /// # Errors
    /// `invalid_request` unless the key is 1 to 255 visible ASCII characters.
    pub(super) fn new(caller: &Caller, tool: &str, key: &str) -> Result<Self, CallError> {
        if key.is_empty() || key.len() > MAX_KEY_LENGTH || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message =
                format!("an Idempotency-Key must be 1 to {MAX_KEY_LENGTH} visible ASCII characters without spaces");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        let mut hash = Sha256::new();
        for part in [&*caller.key, tool, key] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Ok(Self(hex::encode(hash.finalize())))
    }
}

impl RequestDigest {
    /// The same arguments in another session, or as a dry run, are a different request.
    pub(super) fn new(call: &CallContext, arguments: &Arguments) -> Self {
        let session = call.session.as_ref().map_or("", |session| &session.id);
        let digest = Sha256::new()
            .chain_update(json::digest(arguments))
            .chain_update(json::digest(&call.prompt_params))
            .chain_update(json::digest(&call.tool_parameters))
            .chain_update([u8::from(call.dry_run)])
            .chain_update(session)
            .finalize();
        Self(hex::encode(digest))
    }
}
