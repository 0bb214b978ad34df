//! The identifier of a record and the digest of its request. Both are hashes, so that no key or argument is stored.
//!
//! A call that a person approved has a record by its approval, as if that were its key.

use sha2::{Digest, Sha256};

use crate::approval::Binding;
use crate::tool::{Tool, ValidArguments};
use sekisho_core::call::{Arguments, CallContext, Caller};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;

/// Longest key, in characters.
pub(super) const MAX_KEY_LENGTH: usize = 255;

/// The hash of caller, tool and key, which identifies a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RecordId {
    pub(super) hash: String,
    pub(super) kind: RecordKind,
}

/// The kind of the id that a caller sends again with the same call, to get its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::pipeline) enum RecordKind {
    IdempotencyKey,
    Approval,
    /// A call without either, which is recorded for its effect: each has a record of its own.
    Effect,
}

/// The hash of a call as it is sent and of everything else that determines its effect.
#[derive(Debug, Clone)]
pub(in crate::pipeline) struct RequestDigest {
    digest: String,
    /// The digest of the version before, which is of the arguments as they came: a call that was made before an update
    /// is answered after it, too.
    earlier: Option<String>,
}

/// Begins the digest of a call as it is sent, so that it is no digest of the version before.
const OF_SENT_CALL: &str = "sent:";

/// Begins the digest of a call that is recorded for its effect: by it, equal calls are found.
const OF_EFFECT: &str = "effect:";

impl RecordId {
    /// Errors: `invalid_request` unless the key is 1 to 255 visible ASCII characters.
    pub(super) fn new(caller: &Caller, tool: &str, key: &str) -> Result<Self, CallError> {
        check(key)?;
        Ok(Self { hash: hash_of(&[&caller.key, tool, key]), kind: RecordKind::IdempotencyKey })
    }

    /// The id for a turn of an agent at a route. It has two parts more.
    /// Errors: as [`new`](Self::new).
    pub(super) fn of_turn(caller: &Caller, route: &str, key: &str) -> Result<Self, CallError> {
        check(key)?;
        Ok(Self { hash: hash_of(&[&caller.key, "", "turn", route, key]), kind: RecordKind::IdempotencyKey })
    }

    /// The id for a call that is recorded for its effect.
    pub(super) fn of_effect(call: &CallContext) -> Self {
        Self {
            hash: hash_of(&[&call.caller.key, &call.tool, "effect", &call.id.to_string(), ""]),
            kind: RecordKind::Effect,
        }
    }

    /// The id for the call of an approval. It has a part more, so that no key has the same hash.
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
    /// The kind of the record that a call has, if it has one.
    pub(in crate::pipeline) fn of(call: &CallContext) -> Self {
        match (&call.resumption.idempotency_key, &call.resumption.approval) {
            (Some(_), _) => Self::IdempotencyKey,
            (None, Some(_)) => Self::Approval,
            (None, None) => Self::Effect,
        }
    }

    /// The header that names the record.
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "Idempotency-Key",
            Self::Approval => "X-Approval-Id",
            Self::Effect => "request",
        }
    }

    /// How the same call is made once more.
    pub(super) fn how_to_run_again(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "send a new Idempotency-Key to run it again",
            Self::Approval => "send it without X-Approval-Id to ask again",
            Self::Effect => "say so at POST /effects/{id}/resolve, or with `sekisho effects resolve`",
        }
    }
}

impl RequestDigest {
    /// The same call in another session, or as a dry run, is a different request. Where the arguments are not `valid`, the
    /// digest is of the arguments as they came: such a call is never recorded.
    pub(in crate::pipeline) fn new(
        call: &CallContext,
        tool: &Tool,
        arguments: &Arguments,
        valid: Option<&ValidArguments>,
    ) -> Self {
        let earlier = digest_of_request(call, &json::digest(arguments));
        let digest = match valid {
            Some(valid) => {
                let sent = tool.sent_call(call, valid.sent()).digest(tool);
                format!("{OF_SENT_CALL}{}", digest_of_request(call, sent.as_bytes()))
            }
            None => earlier.clone(),
        };
        Self { digest, earlier: Some(earlier) }
    }

    /// Of a call that is recorded for its effect.
    pub(super) fn of_effect(self) -> Self {
        Self { digest: format!("{OF_EFFECT}{}", self.digest), earlier: None }
    }

    /// The same body with another key of the same person, which may have fewer rights, is a different request.
    pub(super) fn of_turn(caller: &Caller, body: &str) -> Self {
        // Never fails: none of them has a map.
        let rights = serde_json::to_string(&(&caller.key_id, &caller.roles, &caller.tools, &caller.scopes));
        Self { digest: hash_of(&[body, &rights.unwrap_or_default()]), earlier: None }
    }

    /// The digest of the call that an approval binds.
    pub(super) fn of_approval(binding: &Binding) -> Self {
        Self { digest: binding.call_digest().to_owned(), earlier: None }
    }

    /// As it is recorded.
    pub(super) fn as_str(&self) -> &str {
        &self.digest
    }

    pub(super) fn is_recorded_as(&self, recorded: &str) -> bool {
        self.digest == recorded || self.earlier.as_deref() == Some(recorded)
    }
}

impl PartialEq for RequestDigest {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// `sent`: the digest of the sent form.
fn digest_of_request(call: &CallContext, sent: &[u8]) -> String {
    let session = call.origin.session.as_ref().map_or("", |session| &session.id);
    let digest = Sha256::new()
        .chain_update(sent)
        .chain_update(json::digest(&call.origin.prompt_params))
        .chain_update(json::digest(&call.origin.tool_parameters))
        .chain_update([u8::from(call.dry_run)])
        .chain_update(session)
        .finalize();
    hex::encode(digest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tool::Metadata;
    use crate::tool::tests::tool_with;
    use sekisho_core::call::Via;

    fn digest(description: &str, arguments: &serde_json::Value) -> RequestDigest {
        let call = CallContext::new("pay", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
        let metadata = Metadata { name: "pay".into(), description: description.into(), ..Metadata::default() };
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let (tool, arguments) = (tool_with(metadata, schema, None), arguments.as_object().unwrap());
        let valid = tool.valid_arguments(arguments.clone(), &call.origin.prompt_params).ok();
        RequestDigest::new(&call, &tool, arguments, valid.as_ref())
    }

    #[test]
    fn a_request_is_the_same_where_the_same_is_sent() {
        let first = digest("Pays", &json!({"n": 1}));
        assert_eq!(digest("Pays", &json!({"n": "1"})), first, "it is sent alike");
        assert_ne!(digest("Pays", &json!({"n": 2})), first);
        assert_ne!(digest("Pays twice", &json!({"n": 1})), first, "another tool");
        assert_ne!(digest("Pays", &json!({"n": []})), first, "not valid");
    }

    #[test]
    fn a_record_of_the_version_before_is_known() {
        let call = CallContext::new("pay", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
        let arguments = json!({"n": 1});
        let before = digest_of_request(&call, &json::digest(arguments.as_object().unwrap()));
        let now = digest("Pays", &arguments);
        assert!(now.is_recorded_as(&before) && now.is_recorded_as(now.as_str()) && now.as_str() != before);
        assert!(!digest("Pays", &json!({"n": 2})).is_recorded_as(&before));
    }
}
