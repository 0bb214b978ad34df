//! The token of a sign-in: sent, renewed, forgotten.

use std::sync::Arc;

use oauth2::TokenResponse;
use oauth2::basic::BasicTokenType;
use rmcp::transport::auth::{AuthError, AuthorizationManager, OAuthTokenResponse};

use super::{SignIn, TOKEN_TIMEOUT};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_user_tokens::credentials::Token;

/// A completed sign-in.
pub(super) struct SignedIn {
    /// Has the refresh token and the token server's address.
    pub(super) manager: Arc<AuthorizationManager>,
    pub(super) token: Token,
    /// Whether there is a refresh token.
    renewable: bool,
    /// How often further scopes were granted.
    pub(super) steps: u32,
}

impl SignIn {
    /// The token to send; `None` without a sign-in.
    /// Errors: `upstream_error` when it has expired and the token server does not renew it now.
    pub(crate) async fn token(self: &Arc<Self>) -> Result<Option<Token>, CallError> {
        let (token, renewable) = match &self.state.lock().signed_in {
            None => return Ok(None),
            Some(signed_in) => (signed_in.token.clone(), signed_in.renewable),
        };
        // A token that cannot be renewed is sent until the server refuses it.
        if token.is_fresh() || !renewable {
            return Ok(Some(token));
        }
        self.another(token).await
    }

    /// Replaces a token that expired or was refused; `None` where that needs a user's sign-in.
    /// Errors: as [`token`](Self::token).
    pub(crate) async fn another(self: &Arc<Self>, than: Token) -> Result<Option<Token>, CallError> {
        let this = Arc::clone(self);
        // In a separate task: a caller that disconnects must not lose a new refresh token.
        let renewing = tokio::spawn(async move { this.renew(&than).await });
        renewing.await.unwrap_or_else(|error| Err(CallError::internal(error)))
    }

    async fn renew(&self, old: &Token) -> Result<Option<Token>, CallError> {
        let _alone = self.renewing.lock().await;
        let manager = match &self.state.lock().signed_in {
            None => return Ok(None),
            // Another task has renewed it meanwhile.
            Some(signed_in) if signed_in.token != *old => return Ok(Some(signed_in.token.clone())),
            Some(signed_in) if !signed_in.renewable => return Ok(None),
            Some(signed_in) => Arc::clone(&signed_in.manager),
        };
        self.client.begin();
        match tokio::time::timeout(TOKEN_TIMEOUT, manager.refresh_token()).await {
            Ok(Ok(answer)) => {
                let token = token_of(&answer).ok_or_else(|| self.not_renewed("it is not a bearer token"))?;
                let granted = manager.get_current_scopes().await;
                let mut state = self.state.lock();
                if let Some(signed_in) = &mut state.signed_in {
                    signed_in.token = token.clone();
                }
                state.granted = granted;
                Ok(Some(token))
            }
            Ok(Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_))) => {
                self.forget(old);
                Ok(None)
            }
            Ok(Err(error)) => Err(self.not_renewed(&self.described(&error))),
            Err(_) => Err(self.not_renewed("the token server did not respond in time")),
        }
    }

    /// Stores the tokens of a completed sign-in, replacing earlier ones.
    /// Errors: it is not a bearer token.
    pub(super) fn keep(
        &self,
        manager: Arc<AuthorizationManager>,
        answer: &OAuthTokenResponse,
        granted: Vec<String>,
    ) -> Result<(), String> {
        let token = token_of(answer).ok_or("the token server gave something that is not a bearer token")?;
        let mut state = self.state.lock();
        let steps = match &state.signed_in {
            Some(before) if Arc::ptr_eq(&before.manager, &manager) => before.steps + 1,
            _ => 0,
        };
        let renewable = answer.refresh_token().is_some();
        state.signed_in = Some(SignedIn { manager, token, renewable, steps });
        state.granted = granted;
        state.requirement = None;
        self.done.notify_one();
        Ok(())
    }

    /// Drops a token that the server has refused, unless it was replaced.
    pub(super) fn forget(&self, refused: &Token) {
        let mut state = self.state.lock();
        if state.signed_in.as_ref().is_some_and(|signed_in| signed_in.token == *refused) {
            state.signed_in = None;
        }
    }

    fn not_renewed(&self, why: &str) -> CallError {
        let problem = format!("the sign-in to the MCP server {} cannot be renewed now: {why}", self.server);
        CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network)
    }
}

fn token_of(answer: &OAuthTokenResponse) -> Option<Token> {
    // RFC 6749 §7.1: a token of an unsupported type must not be used.
    let is_bearer = matches!(answer.token_type(), BasicTokenType::Bearer);
    is_bearer.then(|| Token::new(answer.access_token().secret(), answer.expires_in())).flatten()
}
