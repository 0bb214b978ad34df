//! The sealed meanings of codes and sessions.

use serde::{Deserialize, Serialize};

use crate::authorization::AuthorizationRequest;
use crate::keys::BrokerKeys;
use crate::user::User;
use sekisho_core::error::CallError;
use sekisho_store::BrokerSession;
use sekisho_store::sealing::SealedFor;

/// The meaning of a code. It holds the refresh token of the provider.
#[derive(Serialize, Deserialize)]
pub(crate) struct CodeGrant {
    pub(crate) request: AuthorizationRequest,
    pub(crate) user: User,
    pub(crate) refresh_token: Option<String>,
    #[serde(default)]
    pub(crate) id_token: Option<String>,
}

/// The sealed part of a session.
#[derive(Serialize, Deserialize)]
pub(super) struct SessionGrant {
    pub(super) user: User,
    pub(super) scope: String,
    /// Of the provider. Without one the user signs in anew when the access token expires: nobody else would say that it still may.
    pub(super) refresh_token: Option<String>,
    /// The newest one, by which the provider gives assertions for upstreams.
    #[serde(default)]
    pub(super) id_token: Option<String>,
}

impl BrokerKeys {
    /// A session that goes on, of a user who signed in at this provider: another one may have a user with the same subject.
    pub(crate) async fn session(&self, id: &str, provider: &str) -> Result<Option<BrokerSession>, CallError> {
        Ok(self.session_and_grant(id, provider).await?.map(|(session, _)| session))
    }

    /// The ID token of a session.
    pub(crate) async fn id_token(&self, session: &str, provider: &str) -> Result<Option<String>, CallError> {
        Ok(self.session_and_grant(session, provider).await?.and_then(|(_, grant)| grant.id_token))
    }

    async fn session_and_grant(
        &self,
        id: &str,
        provider: &str,
    ) -> Result<Option<(BrokerSession, SessionGrant)>, CallError> {
        let Some(session) = self.store.session(id).await? else { return Ok(None) };
        let grant: Option<SessionGrant> =
            self.open(of_session(&session.tenant, &owner_of(id, provider)), &session.sealed);
        Ok(grant.map(|grant| (session, grant)))
    }
}

/// A code or session of one provider: at another one its subject is somebody else, and its refresh token a stranger's.
pub(super) fn owner_of(id: &str, provider: &str) -> String {
    format!("{id} {provider}")
}

pub(super) fn of_code(owner: &str) -> SealedFor<'_> {
    SealedFor { tenant: "", owner, kind: "broker code" }
}

pub(super) fn of_session<'a>(tenant: &'a str, owner: &'a str) -> SealedFor<'a> {
    SealedFor { tenant, owner, kind: "broker session" }
}
