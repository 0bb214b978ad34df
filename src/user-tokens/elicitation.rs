//! A client of MCP that opens pages for its user (URL elicitation) is shown where to sign in, and its call waits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{User, UserSource};
use crate::credentials::Token;
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::peer::{ClientPeer, Question, QuestionMethod, Questions};

/// How long a call waits for the sign-in once its client has opened the page. It holds its slot meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// How often it looks whether the sign-in ended at another replica.
const POLL: Duration = Duration::from_secs(1);

/// The key of the question.
const KEY: &str = "sign_in";

impl UserSource {
    /// The token to send for the caller of a call, after its sign-in if the call's client can show the page for that.
    /// Errors: as [`token`](Self::token).
    pub async fn token_for(self: &Arc<Self>, call: &CallContext, user: &User) -> Result<Token, CallError> {
        let refused = match self.token(user).await {
            Err(error) if error.code() == ErrorCode::SignInRequired => error,
            outcome => return outcome,
        };
        match call.client.peer.as_ref().filter(|peer| opens_pages(peer.capabilities())) {
            // Boxed, because it is rare.
            Some(peer) => Box::pin(self.after_sign_in(call, peer, user, refused)).await,
            None => Err(refused),
        }
    }

    async fn after_sign_in(
        self: &Arc<Self>,
        call: &CallContext,
        peer: &Arc<dyn ClientPeer>,
        user: &User,
        refused: CallError,
    ) -> Result<Token, CallError> {
        let Some(question) = self.question(&refused) else { return Err(refused) };
        match peer.ask(Questions::from([(KEY.to_owned(), question)])).await {
            Ok(answers) if answers.get(KEY).is_some_and(|answer| answer["action"] == "accept") => {}
            // Its user does not want to, or did not answer.
            _ => return Err(refused),
        }
        // The user's time is not the tool's.
        let _waiting = call.progress.starting.open();
        let deadline = Instant::now() + MAX_WAIT;
        while Instant::now() < deadline {
            let signed_in = self.tokens.signed_in.notified();
            if let Some((_, grant)) = self.find(user).await?
                && let Some(token) = grant.token()
            {
                return Ok(token);
            }
            // Of the two ends, either is one to look again at.
            let _ = timeout_at(deadline.min(Instant::now() + POLL), signed_in).await;
        }
        Err(refused)
    }

    fn question(&self, refused: &CallError) -> Option<Question> {
        let needed = refused.sign_in()?;
        let what = if self.credential_header().is_some() { "Store your credential for" } else { "Sign in to" };
        let message = format!(
            "{what} {} on this page. If the page asks for a one-time code, it is {}; give it to nobody else.",
            self.name, needed.code
        );
        let id = needed.url.rsplit('/').next().unwrap_or_default();
        let params = json!({"mode": "url", "message": message, "url": needed.url, "elicitationId": id});
        Some(Question { method: QuestionMethod::Elicitation, params })
    }
}

fn opens_pages(capabilities: &Value) -> bool {
    capabilities.pointer("/elicitation/url").is_some_and(Value::is_object)
}
