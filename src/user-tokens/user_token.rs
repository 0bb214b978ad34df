//! The token of one caller for one upstream, as requests use it.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::scope_challenge::missing_scope;
use super::{User, UserSource};
use crate::credentials::Token;
use sekisho_core::error::CallError;

#[derive(Debug, Clone)]
pub struct UserToken {
    source: Arc<UserSource>,
    user: User,
}

impl UserToken {
    pub fn new(source: &Arc<UserSource>, user: &User) -> Self {
        Self { source: Arc::clone(source), user: user.clone() }
    }

    /// The token to send.
    /// Errors: as [`UserSource::token`].
    pub async fn token(&self) -> Result<Token, CallError> {
        self.source.token(&self.user).await
    }

    /// Another token than the one that the upstream refused (401).
    /// Errors: as [`UserSource::token`].
    pub async fn another(&self, than: &Token, challenge: &HeaderMap) -> Result<Token, CallError> {
        self.source.provider.was_challenged(challenge);
        self.source.another(&self.user, than).await
    }

    /// Checks whether the response to the last attempt asks for a sign-in.
    /// Errors: `sign_in_required`, and errors of the store.
    pub async fn check(&self, status: StatusCode, headers: &HeaderMap, sent: &Token) -> Result<(), CallError> {
        match status {
            // A token that was renewed just now: a sign-in is needed.
            StatusCode::UNAUTHORIZED => Err(self.source.refused(&self.user, sent).await?),
            StatusCode::FORBIDDEN => match missing_scope(headers) {
                Some(scope) => Err(self.source.requires(&self.user, &scope).await?),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
