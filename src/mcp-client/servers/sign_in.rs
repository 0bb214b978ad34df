//! A user's sign-in to one of the servers.

use std::sync::Arc;

use super::McpServers;
use crate::auth::{Callback, OwnAddresses, SignInError, Started};
use sekisho_core::administration::Ownership;
use sekisho_core::call::Caller;
use sekisho_user_tokens::{User, UserSource};

impl McpServers {
    /// Begins a user's sign-in to a server of this owner that requires one.
    pub async fn start_sign_in(
        &self,
        name: &str,
        owner: &Ownership,
        own: &OwnAddresses,
    ) -> Result<Started, SignInError> {
        let server = self.running.load().get(name).filter(|server| server.settings().owner == *owner).cloned();
        let server = server.ok_or_else(|| SignInError::NoServer(name.to_owned()))?;
        if server.settings().identity.is_kept() {
            return Err(SignInError::PerUser(name.to_owned()));
        }
        let sign_in = server.connector.sign_in().ok_or_else(|| SignInError::NotPossible(name.to_owned()))?;
        sign_in.start(own).await
    }

    /// Completes the sign-in when the user's browser is redirected back. Returns the server's name.
    pub async fn finish_sign_in(&self, callback: Callback) -> Result<String, SignInError> {
        let running = self.running.load_full();
        let awaiting = running.values().find_map(|server| {
            let sign_in = server.connector.sign_in().filter(|sign_in| sign_in.awaits(&callback))?;
            Some((server.name(), sign_in))
        });
        let (name, sign_in) = awaiting.ok_or(SignInError::NotPending)?;
        sign_in.finish(callback).await?;
        Ok(name.to_owned())
    }

    /// Where the callers of a server get their own tokens, if it is called as its callers.
    pub fn user_source(&self, name: &str) -> Option<Arc<UserSource>> {
        self.running.load().get(name)?.connector.user_source.clone()
    }

    /// Whether the server is shared or of the caller's tenant, and the caller has a role that it needs. Whoever signs in to
    /// it may be the one as whom its tools are listed.
    pub fn admits(&self, name: &str, caller: &Caller) -> bool {
        self.running.load().get(name).is_some_and(|server| server.admits(caller))
    }

    /// Tries the credential that a caller has stored for a server: connects, and lists the tools. `None`: there is no such server.
    pub async fn try_credential(&self, name: &str, user: User) -> Option<Result<(), String>> {
        let server = self.running.load().get(name).cloned()?;
        Some(server.try_as(user).await)
    }

    /// A caller has signed in to a server on its own.
    pub fn caller_signed_in(&self, name: &str) {
        if let Some(server) = self.running.load().get(name) {
            server.caller_signed_in();
        }
    }
}
