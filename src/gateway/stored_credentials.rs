//! Credentials that callers store for upstreams (`identity: stored`), for the API and the console.

use super::SignIns;
use super::sign_ins::{MAX_LISTED, no_source};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{StoredSignIn, StoredUserToken, UserTokenFilter};
use sekisho_user_tokens::User;
pub use sekisho_user_tokens::{CredentialKind, NewCredential};

/// A credential that was stored just now.
#[derive(Debug)]
pub struct KeptCredential {
    pub stored: StoredUserToken,
    /// How the test call ended; `None` for an upstream without one.
    pub test: Option<Result<(), String>>,
}

impl SignIns {
    /// The credentials that the caller has stored, the latest first.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn credentials(&self, caller: &Caller) -> Result<Vec<StoredUserToken>, CallError> {
        let (tenant, caller_key) = (Some(&*caller.tenant), Some(&*caller.key));
        let filter = UserTokenFilter { tenant, caller_key, max: MAX_LISTED, ..UserTokenFilter::default() };
        let mut found = self.users.list(filter).await?;
        found.retain(|stored| stored.kind.is_some());
        Ok(found)
    }

    /// The credential that the caller has stored for an upstream.
    /// Errors: as [`credentials`](Self::credentials).
    pub async fn credential(&self, caller: &Caller, source: &str) -> Result<Option<StoredUserToken>, CallError> {
        Ok(self.credentials(caller).await?.into_iter().find(|stored| stored.source == source))
    }

    /// Stores a credential of the caller in place of an earlier one, and tries it if its upstream is an MCP server.
    /// Errors: `not_found` for an upstream that the caller may not use; `invalid_request` for a credential that cannot
    /// be sent, and for one that the upstream refuses (401), which is not kept; `unauthenticated` for a caller without
    /// credentials; `overloaded`.
    pub async fn store_credential(
        &self,
        caller: &Caller,
        source: &str,
        new: &NewCredential,
    ) -> Result<KeptCredential, CallError> {
        let user = User::of(caller)?;
        self.source_for(caller, source)?.store(&user, new).await?;
        let test = match source.strip_prefix("mcp:") {
            Some(server) => {
                let test = Box::pin(self.mcp_servers.try_credential(server, user)).await;
                self.mcp_servers.caller_signed_in(server);
                test
            }
            None => None,
        };
        match self.credential(caller, source).await? {
            Some(stored) => Ok(KeptCredential { stored, test }),
            None => {
                let message = format!("{source} refuses this credential, which is not kept; store another one");
                Err(CallError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }

    /// Forgets the credential that the caller has stored for an upstream, which may have been removed.
    /// Errors: `not_found`; `overloaded` when the store cannot be written.
    pub async fn remove_credential(&self, caller: &Caller, source: &str) -> Result<(), CallError> {
        // One that is replaced meanwhile is another one.
        while let Some(found) = self.credential(caller, source).await? {
            if self.users.forget(&found).await? {
                return Ok(());
            }
        }
        Err(CallError::new(ErrorCode::NotFound, format!("you have stored no credential for {source}")))
    }

    /// Whether the page of a sign-in to this upstream asks for a credential.
    pub fn asks_for_credential(&self, source: &str) -> bool {
        self.user_source(source).is_some_and(|source| source.credential_header().is_some())
    }

    /// Stores the credential that was written at the page of a sign-in, with a line in the audit trail.
    /// Errors: `not_found`: the sign-in was used; `invalid_request` for a credential that cannot be sent; `overloaded`
    /// when the trail cannot take the line.
    pub async fn store_at_page(
        &self,
        sign_in: &StoredSignIn,
        new: &NewCredential,
        event: AuditEvent,
    ) -> Result<(), CallError> {
        let slot = self.pipeline.settlement.audit.reserve()?;
        let source = self.user_source(&sign_in.source).ok_or_else(|| no_source(&sign_in.source))?;
        let stored = source.store_at_page(sign_in, new).await;
        let who = format!("{} of the tenant {}: {}", sign_in.caller_id, sign_in.tenant, new.kind.as_str());
        let detail = stored.as_ref().err().map_or_else(|| who.clone(), |error| format!("{who}: {}", error.message()));
        _ = slot.write_event(AuditEvent {
            kind: EventKind::CredentialStored,
            subject: Some(sign_in.source.clone()),
            detail: Some(detail),
            success: stored.is_ok(),
            ..event
        });
        stored?;
        if let Some(server) = sign_in.source.strip_prefix("mcp:") {
            self.mcp_servers.caller_signed_in(server);
        }
        Ok(())
    }
}
