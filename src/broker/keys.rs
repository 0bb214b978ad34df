//! The keys that sign the gateway's own tokens (Ed25519). They are in the store, sealed, so that all replicas sign with one of them.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use futures_util::future::BoxFuture;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use url::Url;

use super::upstream_assertion::assertion;
use sekisho_auth::{IdentityProvider, IssuerClient, IssuerError, IssuerRequest};
use sekisho_config::{AuthConfig, BrokerConfig, Config, JwtConfig, OneOrMany};
use sekisho_core::error::CallError;
use sekisho_core::identity_assertion::{AssertedUpstream, AssertionSource};
use sekisho_outbound::Outbound;
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{BrokerStore, StoredBrokerKey};

/// Where the keys are published, at the address of the gateway.
pub const JWKS: &str = "/oauth/jwks";

/// Seconds that the clocks of replicas may differ.
const LEEWAY_SECONDS: u64 = 30;

/// The keys, and the sealer of everything that the authorization server keeps.
#[derive(Debug)]
pub struct BrokerKeys {
    pub(crate) store: BrokerStore,
    sealer: Sealer,
}

/// The claims of an access token (RFC 9068).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessClaims {
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) sub: String,
    pub(crate) client_id: String,
    pub(crate) iat: i64,
    pub(crate) exp: i64,
    pub(crate) jti: String,
    pub(crate) sid: String,
    pub(crate) tenant: String,
    pub(crate) roles: Vec<String>,
    pub(crate) scope: String,
}

impl BrokerKeys {
    pub fn new(config: &Config, store: BrokerStore) -> Arc<Self> {
        Arc::new(Self { store, sealer: Sealer::new(config) })
    }

    /// The keys in force, as a JSON Web Key Set. The first one is made with it.
    /// Errors: `overloaded` when the store cannot be read; `internal` when no key can be sealed.
    pub async fn published(&self) -> Result<Value, CallError> {
        let mut keys = self.store.keys().await?;
        if keys.is_empty() {
            self.make().await?;
            keys = self.store.keys().await?;
        }
        let key = |key: &StoredBrokerKey| json!({"kty": "OKP", "crv": "Ed25519", "x": key.public_key, "kid": key.id, "alg": "EdDSA", "use": "sig"});
        Ok(json!({"keys": keys.iter().map(key).collect::<Vec<_>>()}))
    }

    pub(crate) fn seal(&self, whose: SealedFor<'_>, secret: &impl Serialize) -> Result<String, CallError> {
        let text = serde_json::to_vec(secret).map_err(CallError::internal)?;
        self.sealer.seal(whose, &text).map_err(CallError::internal)
    }

    /// `None` for a text that was sealed for something else, or was not sealed here.
    pub(crate) fn open<T: for<'a> Deserialize<'a>>(&self, whose: SealedFor<'_>, sealed: &str) -> Option<T> {
        let text = self.sealer.open(whose, sealed).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(crate) async fn sign(&self, claims: &AccessClaims) -> Result<String, CallError> {
        let (id, key) = match self.newest().await? {
            Some(found) => found,
            None => self.make().await?,
        };
        let header = Header { typ: Some("at+jwt".to_owned()), kid: Some(id), ..Header::new(Algorithm::EdDSA) };
        encode(&header, claims, &EncodingKey::from_ed_der(&key)).map_err(CallError::internal)
    }

    /// The claims of an access token of this issuer that has not expired.
    pub(crate) async fn verify(&self, token: &str, issuer: &str) -> Result<Option<AccessClaims>, CallError> {
        let Ok(header) = decode_header(token) else { return Ok(None) };
        let keys = self.store.keys().await?;
        let key = keys.iter().find(|key| header.kid.as_deref() == Some(&key.id));
        let Some(key) = key.and_then(|key| DecodingKey::from_ed_components(&key.public_key).ok()) else {
            return Ok(None);
        };
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[issuer]);
        validation.leeway = 0;
        Ok(decode::<AccessClaims>(token, &key, &validation).ok().map(|data| data.claims))
    }

    /// The newest key that opens: another one was sealed with a key of `secrets` that is not in force any more.
    async fn newest(&self) -> Result<Option<(String, Vec<u8>)>, CallError> {
        let opened = |key: StoredBrokerKey| {
            let text: String = self.open(sealed_for(&key.id), &key.sealed)?;
            Some((key.id, BASE64_STANDARD.decode(text).ok()?))
        };
        Ok(self.store.keys().await?.into_iter().find_map(opened))
    }

    async fn make(&self) -> Result<(String, Vec<u8>), CallError> {
        let failed = |_| CallError::internal("no key could be made");
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(failed)?;
        let bytes: &[u8] = key.as_ref();
        let pair = Ed25519KeyPair::from_pkcs8(bytes).map_err(CallError::internal)?;
        let id = hex::encode(rand::random::<[u8; 8]>());
        let sealed = self.seal(sealed_for(&id), &BASE64_STANDARD.encode(bytes))?;
        let public: &[u8] = pair.public_key().as_ref();
        let public_key = BASE64_URL_SAFE_NO_PAD.encode(public);
        self.store.add_key(&StoredBrokerKey { id: id.clone(), public_key, sealed }).await?;
        Ok((id, bytes.to_vec()))
    }
}

fn sealed_for(id: &str) -> SealedFor<'_> {
    SealedFor { tenant: "", owner: id, kind: "broker key" }
}

/// The issuers whose tokens are accepted, with the gateway itself as one of them, and the client that fetches their keys.
pub fn accepted_issuers(
    config: &Config,
    keys: &Arc<BrokerKeys>,
    outbound: &Outbound,
) -> (AuthConfig, Arc<dyn IssuerClient>) {
    let (mut auth, outbound) = (config.auth.clone(), outbound.clone());
    let issuer = config.server.public_address();
    let (Some(broker), Ok(jwks)) = (&config.auth.broker, Url::parse(&format!("{issuer}{JWKS}"))) else {
        return (auth, Arc::new(outbound));
    };
    auth.jwt.0.push(JwtConfig {
        audience: OneOrMany(vec![issuer.clone()]),
        issuer,
        jwks_url: Some(jwks.clone()),
        jwks_file: None,
        introspection: None,
        roles_claim: "roles".to_owned(),
        tenant_claim: "tenant".to_owned(),
        leeway_seconds: LEEWAY_SECONDS,
        subjects_of: Some(broker.issuer.clone()),
    });
    let (keys, config, provider) = (Arc::clone(keys), broker.clone(), OnceCell::new());
    (auth, Arc::new(OwnKeys { keys, jwks, config, provider, outbound }))
}

/// Answers for the gateway's own keys and sessions without a request to itself.
struct OwnKeys {
    keys: Arc<BrokerKeys>,
    jwks: Url,
    config: BrokerConfig,
    provider: OnceCell<IdentityProvider>,
    outbound: Outbound,
}

impl IssuerClient for OwnKeys {
    fn ask(&self, request: IssuerRequest) -> BoxFuture<'_, Result<Vec<u8>, IssuerError>> {
        if request.url != self.jwks {
            return self.outbound.ask(request);
        }
        Box::pin(async move { Ok(self.keys.published().await?.to_string().into_bytes()) })
    }

    fn has_session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, IssuerError>> {
        Box::pin(async move { Ok(self.keys.session(id, &self.config.issuer).await?.is_some()) })
    }

    fn assertions(self: Arc<Self>) -> Option<Arc<dyn AssertionSource>> {
        Some(self)
    }
}

impl AssertionSource for OwnKeys {
    fn assertion<'a>(
        &'a self,
        session: &'a str,
        upstream: AssertedUpstream<'a>,
    ) -> BoxFuture<'a, Result<String, CallError>> {
        Box::pin(async move {
            let made = || IdentityProvider::new(&self.config, Arc::new(self.outbound.clone()));
            let provider = self.provider.get_or_try_init(made).await?;
            assertion((&self.keys, &self.outbound), (&self.config, provider), session, upstream).await
        })
    }
}

impl std::fmt::Debug for OwnKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OwnKeys").field("jwks", &self.jwks.as_str()).finish_non_exhaustive()
    }
}

/// As in the claims of tokens.
pub(crate) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
