//! Conversations that begin with a request of another API, whose name is their label.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::{MAX_CONVERSATIONS, too_many};
use sekisho_agent::AgentService;
use sekisho_agent::conversation::first_line;
use sekisho_core::call::Caller;
use sekisho_core::error::CallError;
use sekisho_store::{Conversation, ConversationStatus, Store};

/// Errors: `invalid_request`: the caller's tenant has no such model.
pub(crate) async fn new(
    (caller, api): (&Caller, &str),
    agents: &AgentService,
    model: Option<&str>,
    message: &str,
) -> Result<Conversation, CallError> {
    let agent = agents.catalog().model(&caller.tenant, model).await?.name.to_string();
    let now = agents.gateway().store().now();
    Ok(Conversation {
        id: Uuid::now_v7().to_string(),
        caller_key: Arc::clone(&caller.key),
        title: first_line(message),
        status: ConversationStatus::Active,
        agent,
        session_id: None,
        workspace: true,
        labels: BTreeMap::from([("api".to_owned(), api.to_owned())]),
        created: now,
        changed: now,
        branch: None,
    })
}

/// Stores a new conversation. If its caller has too many, the one of the same API that was used the longest ago is deleted.
/// Errors: `denied`: the caller has too many, and none of the API.
pub(crate) async fn keep(store: &Store, conversation: &Conversation) -> Result<(), CallError> {
    if store.conversations().add(conversation, MAX_CONVERSATIONS).await.map_err(CallError::from)? {
        return Ok(());
    }
    let oldest = store.conversations().oldest(&conversation.caller_key, &conversation.labels).await;
    if let Some(oldest) = oldest.map_err(CallError::from)? {
        store.conversations().delete(&oldest).await.map_err(CallError::from)?;
    }
    match store.conversations().add(conversation, MAX_CONVERSATIONS).await.map_err(CallError::from)? {
        true => Ok(()),
        false => Err(too_many()),
    }
}
