//! Finds the authorization server of an MCP server for a caller who signs in on its own.
//!
//! The protocol's library discovers and registers, as for a sign-in that all callers share. The results are kept with
//! the sign-in, so that any replica can end it, also after a restart.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use parking_lot::Mutex;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataResolution, OAuthClientConfig,
    OAuthHttpClient,
};
use serde_json::Value;
use url::Url;

use super::challenge::Challenge;
use super::client::Guarded;
use super::described;
use super::flow::{CLIENT_NAME, LatestState, START_TIMEOUT, check_issuer};
use sekisho_config::{McpSignIn, Secret};
use sekisho_outbound::{DomainList, Outbound};
use sekisho_user_tokens::{Authorization, Begun, OwnAddresses, Provider, TokenClient};

/// The scope by which many authorization servers give refresh tokens (OpenID Connect Core 1.0 §11).
const OFFLINE_ACCESS: &str = "offline_access";

/// The authorization server of one MCP server.
#[derive(Debug)]
pub(crate) struct McpProvider {
    url: Url,
    settings: McpSignIn,
    outbound: Outbound,
    allowed: Arc<DomainList>,
    /// The last challenge of the server, with which discovery starts.
    challenge: Mutex<Option<String>>,
    /// The client that registered itself: one for all callers.
    registered: Mutex<Option<RegisteredClient>>,
}

#[derive(Clone)]
struct RegisteredClient {
    endpoint: String,
    redirect: Url,
    config: OAuthClientConfig,
}

sekisho_core::debug_fields!(RegisteredClient { endpoint });

impl McpProvider {
    pub fn new(url: Url, settings: McpSignIn, outbound: Outbound, allowed: Arc<DomainList>) -> Self {
        Self { url, settings, outbound, allowed, challenge: Mutex::default(), registered: Mutex::default() }
    }

    async fn authorization(&self, own: &OwnAddresses, scopes: &[String]) -> Result<Authorization, String> {
        let guarded = Arc::new(Guarded::new(self.outbound.clone(), Arc::clone(&self.allowed), &self.url));
        guarded.begin();
        let client: Arc<dyn OAuthHttpClient> = Arc::clone(&guarded) as _;
        let described = |error| described(&error, &guarded);
        let manager = AuthorizationManager::new_with_oauth_http_client(self.url.as_str(), client).await;
        let mut manager = manager.map_err(described)?;
        let states = LatestState::default();
        manager.set_state_store(states.clone());
        let challenge = self.challenge.lock().clone();
        let resolved = manager.resolve_metadata_from_challenge(challenge.as_deref()).await;
        let AuthorizationMetadataResolution { metadata, .. } = resolved.map_err(described)?;
        check_issuer(&self.settings, metadata.issuer.as_deref())?;
        manager.set_metadata(metadata.clone());
        let scopes = self.scopes(&manager, &metadata, scopes).await;
        let config = self.client(&mut manager, &metadata, own, &scopes).await.map_err(described)?;
        manager.configure_client(config.clone()).map_err(described)?;
        let scope_texts: Vec<_> = scopes.iter().map(String::as_str).collect();
        let url = manager.get_authorization_url(&scope_texts).await.map_err(described)?;
        let url = Url::parse(&url).map_err(|_| "the authorization URL is not a URL".to_owned())?;
        let state = states.take().ok_or("the authorization URL has no `state`")?;
        let begun = Begun {
            client: token_client(&metadata, &self.settings, config, &url)?,
            issuer: state.expected_issuer,
            names_issuer: state.require_issuer,
            verifier: state.pkce_verifier,
            redirect: own.callback.clone(),
            scopes,
            origin: url.origin().ascii_serialization(),
        };
        Ok(Authorization { url, state: state.csrf_token, begun })
    }

    /// The configured scopes, otherwise those that the server requires, and those that a call needed.
    async fn scopes(
        &self,
        manager: &AuthorizationManager,
        metadata: &AuthorizationMetadata,
        needed: &[String],
    ) -> Vec<String> {
        let mut scopes = match self.settings.scopes.is_empty() {
            true => manager.select_initial_scopes(&[]).await,
            false => self.settings.scopes.clone(),
        };
        let supported = metadata.scopes_supported.iter().flatten();
        let offline = supported.filter(|scope| *scope == OFFLINE_ACCESS && !scopes.is_empty()).cloned();
        let further: Vec<_> = needed.iter().cloned().chain(offline.take(1)).collect();
        for scope in further {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// The client of the configuration, otherwise our client metadata document where the server takes one, otherwise a
    /// registered one.
    async fn client(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        own: &OwnAddresses,
        scopes: &[String],
    ) -> Result<OAuthClientConfig, AuthError> {
        let redirect = own.callback.as_str();
        // RFC 8252: a client with a loopback callback is an application, not a web site.
        let kind = if own.callback.scheme() == "http" { "native" } else { "web" };
        let named = |id: &str| OAuthClientConfig::new(id, redirect).with_application_type(kind);
        if let Some(id) = &self.settings.client_id {
            let config = named(id);
            return Ok(match &self.settings.client_secret {
                Some(secret) => config.with_client_secret(secret.expose()),
                None => config,
            });
        }
        let takes_documents = is_true(metadata, "client_id_metadata_document_supported");
        let document = self.settings.client_metadata_url.as_ref().or(own.client_metadata.as_ref());
        if let Some(document) = document.filter(|_| takes_documents) {
            return Ok(named(document.as_str()));
        }
        let endpoint = metadata.registration_endpoint.clone().unwrap_or_default();
        let known = self.registered.lock().clone();
        if let Some(known) = known.filter(|known| known.endpoint == endpoint && known.redirect == own.callback) {
            return Ok(known.config);
        }
        // The library takes the kind of a client that is to be registered from the one before.
        manager.configure_client(named("unregistered"))?;
        let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
        let config = manager.register_client(CLIENT_NAME, redirect, &scopes).await?;
        let registered = RegisteredClient { endpoint, redirect: own.callback.clone(), config: config.clone() };
        *self.registered.lock() = Some(registered);
        Ok(config)
    }
}

impl Provider for McpProvider {
    fn begin<'a>(
        &'a self,
        own: &'a OwnAddresses,
        scopes: &'a [String],
    ) -> BoxFuture<'a, Result<Authorization, String>> {
        async {
            let begun = tokio::time::timeout(START_TIMEOUT, self.authorization(own, scopes)).await;
            begun.unwrap_or_else(|_| Err("the servers did not respond in time".to_owned()))
        }
        .boxed()
    }

    fn secret_of(&self, client_id: &str) -> Option<&Secret> {
        let is_configured = self.settings.client_id.as_deref() == Some(client_id);
        self.settings.client_secret.as_ref().filter(|_| is_configured)
    }

    fn was_challenged(&self, headers: &HeaderMap) {
        if let Some(header) = Challenge::of(headers, &self.url).header {
            *self.challenge.lock() = Some(header);
        }
    }
}

fn token_client(
    metadata: &AuthorizationMetadata,
    settings: &McpSignIn,
    config: OAuthClientConfig,
    authorization_url: &Url,
) -> Result<TokenClient, String> {
    let token_endpoint =
        Url::parse(&metadata.token_endpoint).map_err(|_| "the token endpoint is not a URL".to_owned())?;
    let further = |name: &str| metadata.additional_fields.get(name);
    let revocation = further("revocation_endpoint").and_then(|url| Url::parse(url.as_str()?).ok());
    let methods = further("token_endpoint_auth_methods_supported").and_then(Value::as_array);
    let takes = |method: &str| methods.is_some_and(|methods| methods.iter().any(|known| known == method));
    let resource = authorization_url.query_pairs().find(|(name, _)| name == "resource");
    let is_configured = settings.client_id.as_deref() == Some(config.client_id.as_str());
    Ok(TokenClient {
        token_endpoint,
        revocation_endpoint: revocation,
        client_id: config.client_id,
        client_secret: config.client_secret.filter(|_| !is_configured),
        secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
        resource: resource.map(|(_, resource)| resource.into_owned()),
    })
}

fn is_true(metadata: &AuthorizationMetadata, name: &str) -> bool {
    metadata.additional_fields.get(name).and_then(Value::as_bool) == Some(true)
}
