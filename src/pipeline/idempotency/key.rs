//! The identifier of a record and the digest of its request. Both are hashes, so that no key or argument is stored.
//!
//! A call that a person approved has a record by its approval, as if that were its key.

use sha2::{Digest, Sha256};

use crate::approval::Binding;
use crate::core::call::{Arguments, CallContext, Caller};
use crate::core::error::{CallError, ErrorCode};
use crate::core::json;

/// Longest key, in characters.
pub(super) const MAX_KEY_LENGTH: usize = 255;

/// The hash of caller, tool and key, which identifies a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RecordId {
    pub(super) hash: String,
    pub(super) kind: RecordKind,
}

/// What a caller sends again with the same call, to get its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RecordKind {
    IdempotencyKey,
    Approval,
}

/// The hash of a call's arguments and of everything else that determines its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestDigest(pub(super) String);

impl RecordId {
    /// # Errors
    /// `invalid_request` unless the key is 1 to 255 visible ASCII characters.
    pub(super) fn new(caller: &Caller, tool: &str, key: &str) -> Result<Self, CallError> {
        check(key)?;
        Ok(Self { hash: hash_of(&[&caller.key, tool, key]), kind: RecordKind::IdempotencyKey })
    }

    /// Of a turn of an agent at a route. It has two parts more.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn of_turn(caller: &Caller, route: &str, key: &str) -> Result<Self, CallError> {
        check(key)?;
        Ok(Self { hash: hash_of(&[&caller.key, "", "turn", route, key]), kind: RecordKind::IdempotencyKey })
    }

    /// Of the call of an approval. It has a part more, so that no key has the same hash.
    pub(super) fn of_approval(caller: &Caller, tool: &str, approval: &str) -> Self {
        Self { hash: hash_of(&[&caller.key, tool, "approval", approval]), kind: RecordKind::Approval }
    }
}

fn check(key: &str) -> Result<(), CallError> {
    if !key.is_empty() && key.len() <= MAX_KEY_LENGTH && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let message = format!("an Idempotency-Key must be 1 to {MAX_KEY_LENGTH} visible ASCII characters without spaces");
    Err(CallError::new(ErrorCode::InvalidRequest, message))
}

fn hash_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

impl RecordKind {
    /// The header that names the record.
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "Idempotency-Key",
            Self::Approval => "X-Approval-Id",
        }
    }

    /// How the same call is made once more.
    pub(super) fn how_to_run_again(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "send a new Idempotency-Key to run it again",
            Self::Approval => "send it without X-Approval-Id to ask again",
        }
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

    /// The same body with another key of the same person, which may have fewer rights, is a different request.
    pub(super) fn of_turn(caller: &Caller, body: &str) -> Self {
        // Never fails: none of them has a map.
        let rights = serde_json::to_string(&(&caller.key_id, &caller.roles, &caller.tools, &caller.scopes));
        Self(hash_of(&[body, &rights.unwrap_or_default()]))
    }

    /// What an approval binds.
    pub(super) fn of_approval(binding: &Binding) -> Self {
        Self(binding.call_digest().to_owned())
    }
}
