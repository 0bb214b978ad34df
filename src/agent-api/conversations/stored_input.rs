//! The request for a run, as it is stored for a process that goes on with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::execute::ExecuteConversation;
use sekisho_agent::conversation::OnUnknown;
use sekisho_config::Secret;

/// Sealed where it is stored: it has the caller's tokens.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredInput {
    pub(crate) user_input: Option<String>,
    pub(crate) executor: Option<Value>,
    pub(crate) tokens: BTreeMap<String, String>,
    pub(crate) preferred_skills: Vec<String>,
    pub(crate) model: Option<String>,
    pub(crate) on_unknown: OnUnknown,
}

impl StoredInput {
    pub(crate) fn message(user_input: String, model: Option<String>) -> Self {
        Self::from(&ExecuteConversation::message(user_input, model))
    }
}

impl From<&ExecuteConversation> for StoredInput {
    fn from(request: &ExecuteConversation) -> Self {
        Self {
            user_input: request.user_input.clone(),
            executor: request.executor.clone(),
            tokens: request.tokens.iter().map(|(name, token)| (name.clone(), token.expose().to_owned())).collect(),
            preferred_skills: request.preferred_skills.clone(),
            model: request.model.clone(),
            on_unknown: request.on_unknown,
        }
    }
}

impl From<StoredInput> for ExecuteConversation {
    fn from(stored: StoredInput) -> Self {
        let StoredInput { user_input, executor, tokens, preferred_skills, model, on_unknown } = stored;
        let tokens = tokens.into_iter().map(|(name, token)| (name, Secret::new(token))).collect();
        let request = Self::message(String::new(), model);
        Self { user_input, executor, tokens, preferred_skills, on_unknown, ..request }
    }
}
