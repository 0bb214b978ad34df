//! Identity assertions (ID-JAG) for callers who signed in at the gateway: their provider gives them, and the authorization server of an
//! upstream takes them in place of a sign-in (draft-ietf-oauth-identity-assertion-authz-grant-04 §4.3).

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::error::CallError;

/// Gets assertions from the provider.
pub trait AssertionSource: Send + Sync {
    /// An assertion about the user of a session with the gateway.
    /// Errors: `sign_in_required`: the session has no ID token of the provider; `token_exchange_failed`: the provider gives none.
    fn assertion<'a>(
        &'a self,
        session: &'a str,
        upstream: AssertedUpstream<'a>,
    ) -> BoxFuture<'a, Result<String, CallError>>;
}

/// The upstream that an assertion is for.
#[derive(Debug, Clone, Copy)]
pub struct AssertedUpstream<'a> {
    /// The issuer of its authorization server.
    pub audience: &'a str,
    /// Its own identifier (RFC 9728).
    pub resource: Option<&'a str>,
    /// With a space between them.
    pub scopes: &'a str,
}

/// The session of a caller's token.
#[derive(Clone)]
pub struct SignInSession {
    pub id: String,
    pub source: Arc<dyn AssertionSource>,
}

crate::debug_fields!(SignInSession { id });
