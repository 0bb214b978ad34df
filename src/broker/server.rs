//! The server with its configuration: its metadata, and its clients.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::authorization::random;
use super::client::{Client, document_address};
use super::error::{OAuthError, OAuthErrorCode};
use super::keys::{BrokerKeys, JWKS};
use super::tokens::assertion::{JWT_BEARER, PROFILE};
use sekisho_auth::IdentityProvider;
use sekisho_config::{BrokerConfig, Config, ExchangeGrant};
use sekisho_core::call::Deadline;
use sekisho_core::caller::Owner;
use sekisho_core::error::CallError;
use sekisho_core::json::parse_as;
use sekisho_core::share::Share;
use sekisho_outbound::{Outbound, OutboundRequest, check_status};
use sekisho_store::BrokerSession;

/// A client's own document of this age is fetched again.
const OLD_DOCUMENT: Duration = Duration::from_secs(3_600);
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest metadata of a client: of a registration, or of its own document.
pub const MAX_METADATA_BYTES: usize = 16 << 10;

/// Longest ID token that is kept: one of a user in hundreds of groups is longer.
const MAX_ID_TOKEN: usize = 8 << 10;

/// Documents that are fetched at the same time, in turns of networks: a slow server of one keeps no other waiting.
const MAX_FETCHES: u64 = 8;

/// Requests that wait for their turn.
const MAX_WAITING_FETCHES: usize = 64;

/// The authorization server, whatever its configuration.
#[derive(Debug)]
pub struct Broker {
    pub(crate) keys: Arc<BrokerKeys>,
    pub(crate) outbound: Outbound,
    /// The provider of a configuration, with its metadata and keys.
    provider: Mutex<Option<(BrokerConfig, Arc<IdentityProvider>)>>,
    fetches: Arc<Share>,
}

/// The authorization server of one configuration.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizationServer<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) config: &'a BrokerConfig,
    settings: &'a Config,
}

impl Broker {
    pub fn new(keys: Arc<BrokerKeys>, outbound: Outbound) -> Self {
        Self { keys, outbound, provider: Mutex::default(), fetches: Share::new(MAX_FETCHES) }
    }

    /// `None` where it is off.
    pub fn server<'a>(&'a self, settings: &'a Config) -> Option<AuthorizationServer<'a>> {
        let config = settings.auth.broker.as_ref()?;
        Some(AuthorizationServer { broker: self, config, settings })
    }

    /// The keys of its tokens.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn published_keys(&self) -> Result<Value, CallError> {
        self.keys.published().await
    }

    /// The sessions of a tenant, or of all, after the one with this id, in the order of their ids.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn sessions(
        &self,
        tenant: Option<&str>,
        after: &str,
        max: usize,
    ) -> Result<Vec<BrokerSession>, CallError> {
        Ok(self.keys.store.sessions(tenant, after, max).await?)
    }

    /// Ends a session, with a tenant one of it: its refresh token counts no more, and its access tokens for seconds. `None`: there is none.
    /// Errors: `overloaded` when the store cannot be written.
    pub async fn end_session(&self, id: &str, tenant: Option<&str>) -> Result<Option<BrokerSession>, CallError> {
        Ok(self.keys.store.end_session(id, tenant).await?)
    }

    /// The provider of this configuration.
    pub(crate) async fn provider(&self, config: &BrokerConfig) -> Result<Arc<IdentityProvider>, CallError> {
        let mut known = self.provider.lock().await;
        if let Some((of, provider)) = &*known
            && of == config
        {
            return Ok(Arc::clone(provider));
        }
        let provider = Arc::new(IdentityProvider::new(config, Arc::new(self.outbound.clone())).await?);
        *known = Some((config.clone(), Arc::clone(&provider)));
        Ok(provider)
    }
}

impl AuthorizationServer<'_> {
    /// Its issuer: the address of the gateway, without a slash at its end.
    pub fn issuer(&self) -> String {
        self.settings.server.public_address()
    }

    /// Its metadata (RFC 8414).
    pub fn metadata(&self) -> Value {
        let issuer = self.issuer();
        let at = |path: &str| format!("{issuer}{path}");
        let mut metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": at("/oauth/authorize"),
            "token_endpoint": at("/oauth/token"),
            "registration_endpoint": at("/oauth/register"),
            "revocation_endpoint": at("/oauth/revoke"),
            "introspection_endpoint": at("/oauth/introspect"),
            "jwks_uri": at(JWKS),
            "scopes_supported": self.scopes().collect::<Vec<_>>(),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": true,
            "client_id_metadata_document_supported": true,
        });
        if self.takes_assertions() {
            metadata["grant_types_supported"] = json!(["authorization_code", "refresh_token", JWT_BEARER]);
            metadata["authorization_grant_profiles_supported"] = json!([PROFILE]);
            metadata["token_endpoint_auth_methods_supported"] =
                json!(["none", "client_secret_basic", "client_secret_post"]);
        }
        metadata
    }

    /// Whether a client may present identity assertions of the provider.
    pub(crate) fn takes_assertions(&self) -> bool {
        !self.config.assertion_clients.is_empty()
    }

    /// An ID token, where upstreams are called with assertions that the provider gives for it.
    pub(crate) fn kept(&self, id_token: String) -> Option<String> {
        let of_servers = self.settings.mcp.servers.values().map(|server| &server.exchange);
        let of_collections = self.settings.openapi.collections.values().map(|collection| &collection.exchange);
        let is_used = of_servers.chain(of_collections).any(|exchange| exchange.grant == ExchangeGrant::IdJag);
        Some(id_token).filter(|token| is_used && token.len() <= MAX_ID_TOKEN)
    }

    /// The scopes that tools need.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &String> {
        self.settings.auth.scopes.keys()
    }

    /// Registers a client (RFC 7591). `source`: the network of its request.
    /// Errors: `invalid_client_metadata`, `invalid_redirect_uri`; `temporarily_unavailable` when too many register.
    pub async fn register(&self, metadata: Value, source: &str) -> Result<Value, OAuthError> {
        let client = Client::read(metadata, &self.config.redirects)?;
        let id = random();
        self.store_client(&id, &client, source).await?;
        Ok(client.registered(&id, self.broker.keys.store.now().as_second()))
    }

    async fn store_client(&self, id: &str, client: &Client, source: &str) -> Result<(), OAuthError> {
        let text = serde_json::to_string(client).map_err(CallError::internal)?;
        match self.broker.keys.store.put_client(id, &text, source).await? {
            true => Ok(()),
            false => Err(OAuthError::too_often("too many clients were registered; try again in an hour", 3_600)),
        }
    }

    /// A registered client, or one whose id is the address of its document.
    /// Errors: `invalid_client`; `temporarily_unavailable` when its document cannot be fetched now.
    pub(crate) async fn client(&self, id: &str, source: &str) -> Result<Client, OAuthError> {
        let stored = self.broker.keys.store.client(id).await?;
        let read = |text: &str| serde_json::from_str::<Client>(text).map_err(CallError::internal);
        let address = document_address(id);
        match (stored, address) {
            (Some((text, _)), None) => Ok(read(&text)?),
            (Some((text, age)), Some(_)) if age < OLD_DOCUMENT => Ok(read(&text)?),
            (_, Some(address)) => {
                let client = Client::read_document(id, self.document(address, source).await?, &self.config.redirects)?;
                self.store_client(id, &client, source).await?;
                Ok(client)
            }
            (None, None) => {
                let why = "the client is unknown, or nobody signed in with it for 90 days: remove this server from the client and add \
                           it again, so that the client registers";
                Err(OAuthError::new(OAuthErrorCode::InvalidClient, why))
            }
        }
    }

    /// The document at a client's address, which anybody may have chosen.
    async fn document(&self, address: Url, source: &str) -> Result<Value, OAuthError> {
        let busy = "too many documents of clients are fetched; try again in a moment";
        let (owner, until) = (Owner { tenant: "".into(), caller: source.into() }, Instant::now() + DOCUMENT_TIMEOUT);
        let turn = self.broker.fetches.acquire(&owner, 1, MAX_WAITING_FETCHES, until).await;
        let _turn = turn.map_err(|_| OAuthError::unavailable(busy))?;
        let request = OutboundRequest {
            max_response_bytes: MAX_METADATA_BYTES,
            ..OutboundRequest::get(address, Deadline::after(DOCUMENT_TIMEOUT))
        };
        let answer = self.broker.outbound.send(request).await;
        let answer = answer.and_then(|answer| check_status(&answer).map(|()| answer));
        let refused = |cause: String| {
            tracing::info!(cause, "the document of a client cannot be used");
            let why = "the document at the client's address cannot be fetched, or is no JSON: it must be public, at most 16 KiB long and \
                       at the address itself";
            OAuthError::new(OAuthErrorCode::InvalidClient, why)
        };
        let answer = answer.map_err(|error| refused(error.message().to_owned()))?;
        parse_as(&answer.body).map_err(|error| refused(error.to_string()))
    }
}
