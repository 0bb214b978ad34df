//! The caller of work that goes on without its client: who it was, as it is stored, and who that is now.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Authenticator, Credential, Refusal, SecretDigest, named_caller};
use sekisho_config::AnonymousAccess;
use sekisho_core::call::Caller;
use sekisho_core::caller::Owner;
use sekisho_core::error::CallError;

const GONE: Refusal = Refusal(
    "the credentials of the caller are no longer accepted, so that the work does not go on without it: send a request with \
     other ones",
);

/// The credentials with which work was begun. Sealed where it is stored: it may have a token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkIdentity {
    /// A key of the configuration: the caller's roles, and who used it.
    Key {
        roles: Vec<String>,
        person: Option<String>,
    },
    ManagedKey {
        id: String,
    },
    Token {
        text: String,
    },
    /// None, and the owner of its resources.
    Anonymous {
        owner: String,
    },
    /// Who can open the Unix socket named this caller.
    LocalUser {
        id: String,
        roles: Vec<String>,
    },
}

impl WorkIdentity {
    pub fn of(caller: &Caller, over_socket: bool) -> Self {
        match (caller.token.get(), &caller.key_id) {
            _ if caller.anonymous => Self::Anonymous { owner: caller.owner.caller.to_string() },
            _ if over_socket => Self::LocalUser { id: caller.id.to_string(), roles: caller.roles.clone() },
            (Some(token), _) => Self::Token { text: token.text.clone() },
            (None, Some(id)) => Self::ManagedKey { id: id.to_string() },
            (None, None) => {
                Self::Key { roles: caller.roles.clone(), person: caller.person.as_deref().map(str::to_owned) }
            }
        }
    }
}

impl Authenticator {
    /// The caller with this key whose work goes on, with the roles of now. A key of the configuration may have lost roles, and has no
    /// new ones: which of the keys of a caller was used is not known.
    /// Errors: `unauthenticated`: its key was revoked or removed or has other roles, its token has expired, or callers
    /// without credentials are no longer accepted. `overloaded`: that is not known.
    pub async fn caller_of_work(&self, key: &str, identity: &WorkIdentity) -> Result<Arc<Caller>, CallError> {
        let found = match identity {
            WorkIdentity::Key { roles, person } => self.keys.with_caller_key(key, person.as_deref(), roles),
            WorkIdentity::ManagedKey { id } => {
                self.managed.get(id).filter(|_| self.managed.is_active(id)).map(|known| Arc::clone(&known.caller))
            }
            WorkIdentity::Token { text } => {
                let credential = Credential { secret: text, bearer: true };
                let digest: SecretDigest = Sha256::digest(text).into();
                Some(self.recognize(&credential, &digest, Some(Owner::gateway())).await?)
            }
            WorkIdentity::Anonymous { owner } => {
                let owner = Owner { tenant: Arc::clone(&self.anonymous.tenant), caller: owner.as_str().into() };
                let is_open = self.anonymous_access != AnonymousAccess::Never;
                is_open.then(|| Arc::new(self.anonymous.owned_by(owner)))
            }
            WorkIdentity::LocalUser { id, roles } => Some(named_caller(id, roles.clone())?),
        };
        Ok(found.filter(|caller| *caller.key == *key).ok_or(GONE)?)
    }
}

impl fmt::Debug for WorkIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WorkIdentity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{ApiKeyConfig, AuthConfig, Secret};
    use sekisho_core::error::ErrorCode;

    fn key(id: &str, key: &str, role: &str) -> ApiKeyConfig {
        let (key, roles) = (Some(Secret::new(key)), vec![role.to_owned()]);
        ApiKeyConfig { id: id.into(), key, key_sha256: None, tenant: "default".into(), roles, person: None }
    }

    async fn with(api_keys: Vec<ApiKeyConfig>, anonymous: AnonymousAccess) -> Authenticator {
        Authenticator::new(&AuthConfig { api_keys, anonymous, ..AuthConfig::default() }, None).await.unwrap()
    }

    #[tokio::test]
    async fn work_goes_on_with_the_rights_of_now_and_not_without_credentials_that_are_accepted() {
        let before = Caller::new("ann", "default", vec!["admin".into(), "viewer".into()]);
        let identity = WorkIdentity::of(&before, false);
        let now = with(vec![key("ann", "k-1", "viewer"), key("bob", "k-2", "admin")], AnonymousAccess::Never).await;
        let found = now.caller_of_work(&before.key, &identity).await.unwrap();
        assert_eq!((&*found.id, &*found.roles), ("ann", &["viewer".to_owned()][..]));
        let other_role = with(vec![key("ann", "k-1", "operator")], AnonymousAccess::Never).await;
        let of_person = ApiKeyConfig { person: Some("Ann".into()), ..key("ann", "k-1", "viewer") };
        let other_person = with(vec![of_person], AnonymousAccess::Never).await;
        let none = with(Vec::new(), AnonymousAccess::Never).await;
        for authenticator in [&other_role, &other_person, &none] {
            let refused = authenticator.caller_of_work(&before.key, &identity).await.unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Unauthenticated);
        }
        let anonymous = Caller::anonymous();
        let identity = WorkIdentity::of(&anonymous, true);
        let open = with(Vec::new(), AnonymousAccess::Loopback).await;
        assert!(open.caller_of_work(&anonymous.key, &identity).await.unwrap().anonymous);
        assert!(open.caller_of_work(&before.key, &identity).await.is_err(), "the stored caller is another one");
        assert!(none.caller_of_work(&anonymous.key, &identity).await.is_err());
        let unknown = WorkIdentity::Token { text: "hunter2".into() };
        assert!(none.caller_of_work(&before.key, &unknown).await.is_err());
        assert!(!format!("{unknown:?}").contains("hunter2"));
    }
}
