//! Credentials that callers store themselves, for upstreams without an authorization server (`identity: stored`).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};

use super::sign_in::not_pending;
use super::{Authorization, Grant, Origin, OwnAddresses, Provider, TOKEN_KIND, User, UserSource};
use crate::credentials::{basic, bearer, sensitive};
use sekisho_config::Secret;
use sekisho_core::error::CallError;
use sekisho_store::{NewUserToken, StoredSignIn};

/// Most bytes of a secret, and of a user name: with Base64 both fit in a header.
const MAX_BYTES: usize = 4_096;

/// How a credential is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// As `Bearer`, or as it is in another header than `Authorization`.
    Key,
    /// As user name and password (RFC 7617).
    Basic,
    /// As the whole value of the header.
    Header,
}

/// A credential as its caller writes it.
#[derive(Debug, Clone)]
pub struct NewCredential {
    pub kind: CredentialKind,
    /// With [`CredentialKind::Basic`].
    pub username: Option<String>,
    pub secret: Secret,
    /// How long it is sent; `None`: until it is replaced, removed or refused.
    pub lifetime: Option<Duration>,
}

/// The header of an upstream in which the credentials of its callers are sent.
#[derive(Debug)]
pub struct CredentialHeader(pub HeaderName);

impl Provider for CredentialHeader {
    fn begin<'a>(
        &'a self,
        _own: &'a OwnAddresses,
        _scopes: &'a [String],
    ) -> BoxFuture<'a, Result<Authorization, String>> {
        async { Err("it has no authorization server: its callers store a credential".to_owned()) }.boxed()
    }

    fn secret_of(&self, _client_id: &str) -> Option<&Secret> {
        None
    }

    fn credential_header(&self) -> Option<&HeaderName> {
        Some(&self.0)
    }
}

impl CredentialKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Basic => "basic",
            Self::Header => "header",
        }
    }
}

impl NewCredential {
    /// The value of the header. No error repeats a part of it.
    fn value(&self, name: &HeaderName) -> Result<HeaderValue, CallError> {
        let (secret, username) = (self.secret.expose(), self.username.as_deref().unwrap_or_default());
        let is_authorization = *name == header::AUTHORIZATION;
        if secret.is_empty() || secret.len() > MAX_BYTES || username.len() > MAX_BYTES {
            return Err(CallError::invalid(format!(
                "`secret` has 1 to {MAX_BYTES} bytes, and `username` at most as many"
            )));
        }
        // RFC 7617 §2: the first colon ends the user name.
        if username.contains(':') || [username, secret].iter().any(|text| text.chars().any(char::is_control)) {
            return Err(CallError::invalid(
                "`username` has no `:`, and neither it nor `secret` has control characters or line breaks",
            ));
        }
        if username.is_empty() == (self.kind == CredentialKind::Basic) {
            return Err(CallError::invalid("`username` is required with the kind `basic`, and only there"));
        }
        let value = match self.kind {
            CredentialKind::Key if is_authorization => bearer(secret),
            CredentialKind::Key | CredentialKind::Header => sensitive(name.as_str(), secret).map(|(_, value)| value),
            CredentialKind::Basic if !is_authorization => {
                let problem =
                    format!("this upstream takes its credential in the header `{name}`: write the kind `key`");
                return Err(CallError::invalid(problem));
            }
            CredentialKind::Basic => Some(basic(username, secret)),
        };
        let value = value.filter(|value| value.to_str().is_ok_and(|text| text.trim() == text));
        value.ok_or_else(|| {
            CallError::invalid("`secret` has characters that a header cannot contain, or spaces around it")
        })
    }
}

impl UserSource {
    /// The header of the credentials that callers store, where they do not sign in.
    pub fn credential_header(&self) -> Option<&HeaderName> {
        self.provider.credential_header()
    }

    /// Stores the credential of a caller in place of an earlier one.
    /// Errors: `invalid_request` for what cannot be sent, or if callers sign in to this upstream; `overloaded` when the
    /// store cannot be written, or nothing can be sealed.
    pub async fn store(&self, user: &User, new: &NewCredential) -> Result<(), CallError> {
        let grant = self.grant_of(new)?;
        self.keep_credential(user, new, &grant).await
    }

    /// As [`store`](Self::store), at the page of a sign-in, which is used up by it.
    /// Errors: as [`store`](Self::store); `not_found`, if the sign-in has ended; `upstream_error`, if the upstream has
    /// another address now.
    pub async fn store_at_page(&self, sign_in: &StoredSignIn, new: &NewCredential) -> Result<(), CallError> {
        let grant = self.grant_of(new)?;
        if self.tokens.opened(sign_in)?.upstream != self.upstream {
            return Err(self.failed("the address of the upstream has changed since it began; make the call again"));
        }
        let once = hex::encode(rand::random::<[u8; 32]>());
        let store = &self.tokens.store;
        let is_begun = store.begin_sign_in(&sign_in.id, &once, &once, &sign_in.sealed).await?;
        if !is_begun || store.take_sign_in(&once, &once).await?.is_none() {
            return Err(not_pending());
        }
        self.keep_credential(&User::of_sign_in(sign_in), new, &grant).await
    }

    fn grant_of(&self, new: &NewCredential) -> Result<Grant, CallError> {
        let header = self.credential_header().ok_or_else(|| {
            CallError::invalid(format!(
                "callers sign in to {name}, and store no credential: POST /sign-ins/{name}",
                name = self.name
            ))
        })?;
        let value = new.value(header)?;
        let access_token = value.to_str().map_err(CallError::internal)?.to_owned();
        let (origin, upstream) = (Origin::Header(header.to_string()), self.upstream.clone());
        Ok(Grant { access_token, refresh_token: None, origin, upstream })
    }

    async fn keep_credential(&self, user: &User, new: &NewCredential, grant: &Grant) -> Result<(), CallError> {
        let owner = self.owner(user);
        let sealed = self.tokens.seal(TOKEN_KIND, owner, grant)?;
        let (kind, lifetime) = (Some(new.kind.as_str()), new.lifetime);
        self.tokens.store.keep(owner, NewUserToken { kind, sealed: &sealed, scopes: "", lifetime }).await?;
        self.tokens.signed_in.notify_waiters();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::UserTokens;
    use crate::tests::{offered, sent, source_of, tokens, user};
    use sekisho_core::error::ErrorCode;

    fn new(kind: CredentialKind, username: &str, secret: &str) -> NewCredential {
        let username = Some(username.to_owned()).filter(|name| !name.is_empty());
        NewCredential { kind, username, secret: Secret::new(secret), lifetime: None }
    }

    fn source(header: &HeaderName, upstream: &str, tokens: &Arc<UserTokens>) -> Arc<UserSource> {
        source_of(Box::new(CredentialHeader(header.clone())), upstream, tokens)
    }

    #[test]
    fn a_credential_is_the_value_of_its_header_or_refused_without_being_repeated() {
        use CredentialKind::{Basic, Header, Key};
        let (authorization, own) = (header::AUTHORIZATION, HeaderName::from_static("x-api-key"));
        for (header, kind, username, secret, value) in [
            (&authorization, Key, "", "s3cret", Some("Bearer s3cret")),
            (&own, Key, "", "s3cret", Some("s3cret")),
            (&authorization, Header, "", "Token s3cret", Some("Token s3cret")),
            (&own, Header, "", "v1 s3cret", Some("v1 s3cret")),
            (&authorization, Basic, "ann", "s3cret", Some("Basic YW5uOnMzY3JldA==")),
            (&own, Basic, "ann", "s3cret", None),
            (&authorization, Basic, "", "s3cret", None),
            (&authorization, Basic, "a:n", "s3cret", None),
            (&authorization, Basic, "ann", "s3cret\n", None),
            (&authorization, Key, "ann", "s3cret", None),
            (&authorization, Key, "", "s3cret\r\nX-Admin: 1", None),
            (&own, Key, "", " s3cret", None),
            (&own, Key, "", "", None),
        ] {
            let found = new(kind, username, secret).value(header);
            assert_eq!(found.as_ref().ok().map(|found| found.to_str().unwrap()), value, "{header} {kind:?} {username}");
            assert!(found.is_ok_and(|found| found.is_sensitive()) || value.is_none());
        }
        let long = "s3cret".repeat(MAX_BYTES);
        for secret in ["s3cret\0", &long] {
            let refused = new(Key, "", secret).value(&own).unwrap_err();
            assert!(!refused.message().contains("s3cret") && refused.code() == ErrorCode::InvalidRequest);
        }
    }

    #[tokio::test]
    async fn a_credential_is_sent_for_its_caller_until_it_ends_or_is_refused() {
        let (_folder, tokens) = tokens().await;
        let name = HeaderName::from_static("x-api-key");
        let source = source(&name, "https://crm.example/mcp", &tokens);
        let (ann, bob) = (user("ann"), user("bob"));
        source.store(&ann, &new(CredentialKind::Key, "", "first")).await.unwrap();
        source.store(&ann, &new(CredentialKind::Key, "", "second")).await.unwrap();
        let token = source.token(&ann).await.unwrap();
        assert_eq!((&token.name, &*sent(&token)), (&name, "second"));
        assert!(source.token(&ann).await.is_ok(), "it is not renewed");
        let refused = source.token(&bob).await.err().unwrap();
        assert_eq!((refused.code(), &*refused.sign_in().unwrap().source), (ErrorCode::SignInRequired, "mcp:crm"));
        let used = tokens.list(sekisho_store::UserTokenFilter { max: 10, ..Default::default() }).await.unwrap();
        assert!(used.len() == 1 && used[0].used.is_some() && !used[0].sealed.contains("second"));
        // Neither for another upstream of that name, nor in another header.
        for other in [
            source_of(Box::new(CredentialHeader(name.clone())), "https://other.example/mcp", &tokens),
            source_of(Box::new(CredentialHeader(header::AUTHORIZATION)), "https://crm.example/mcp", &tokens),
        ] {
            assert_eq!(other.token(&ann).await.err().unwrap().code(), ErrorCode::SignInRequired);
        }
        let another = source.another(&ann, &token).await.err().unwrap();
        assert_eq!(another.code(), ErrorCode::SignInRequired);
        assert_eq!(source.token(&ann).await.err().unwrap().code(), ErrorCode::SignInRequired, "it was refused");
        let ended = NewCredential { lifetime: Some(Duration::ZERO), ..new(CredentialKind::Key, "", "third") };
        source.store(&ann, &ended).await.unwrap();
        assert_eq!(source.token(&ann).await.err().unwrap().code(), ErrorCode::SignInRequired, "it has ended");
        let left = tokens.list(sekisho_store::UserTokenFilter { max: 10, ..Default::default() }).await.unwrap();
        assert!(left.is_empty(), "it is forgotten");
    }

    #[tokio::test]
    async fn the_page_of_a_sign_in_stores_one_credential() {
        let (_folder, tokens) = tokens().await;
        let source = source(&header::AUTHORIZATION, "https://crm.example/mcp", &tokens);
        let ann = user("ann");
        let sign_in = offered(&source, &ann).await;
        let credential = new(CredentialKind::Key, "", "s3cret");
        assert!(source.store_at_page(&sign_in, &new(CredentialKind::Key, "", "")).await.is_err());
        source.store_at_page(&sign_in, &credential).await.unwrap();
        assert_eq!(sent(&source.token(&ann).await.unwrap()), "Bearer s3cret");
        let again = source.store_at_page(&sign_in, &credential).await.err().unwrap();
        assert_eq!(again.code(), ErrorCode::NotFound);
    }
}
