//! Tokens: which are accepted, which are refused, and when the issuer's keys are fetched.
//!
//! The key pairs in `tests/fixtures/auth` were made for these tests and open nothing.

mod asked;
mod issuer;
mod several;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::future::{BoxFuture, join_all};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::issuer_client::{IssuerError, IssuerFailure, IssuerRequest};
use sekisho_config::{JwtConfig, OneOrMany};

const ISSUER: &str = "https://issuer.example";

/// A key pair of the issuer: its id and its signing key.
struct Pair(&'static str, Algorithm, EncodingKey);

fn rsa(id: &'static str) -> Pair {
    let pem = include_bytes!("../../../tests/fixtures/auth/rsa.pem");
    Pair(id, Algorithm::RS256, EncodingKey::from_rsa_pem(pem).unwrap())
}

fn rotated(id: &'static str) -> Pair {
    let pem = include_bytes!("../../../tests/fixtures/auth/rsa-rotated.pem");
    Pair(id, Algorithm::RS256, EncodingKey::from_rsa_pem(pem).unwrap())
}

fn ec(id: &'static str) -> Pair {
    let pem = include_bytes!("../../../tests/fixtures/auth/ec.pem");
    Pair(id, Algorithm::ES256, EncodingKey::from_ec_pem(pem).unwrap())
}

fn ed(id: &'static str) -> Pair {
    let pem = include_bytes!("../../../tests/fixtures/auth/ed25519.pem");
    Pair(id, Algorithm::EdDSA, EncodingKey::from_ed_pem(pem).unwrap())
}

impl Pair {
    fn public(&self) -> Value {
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&self.2, self.1).unwrap()).unwrap();
        jwk["kid"] = self.0.into();
        jwk["use"] = "sig".into();
        jwk
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_as(&Header { kid: Some(self.0.into()), ..Header::new(self.1) }, claims)
    }

    fn sign_as(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.2).unwrap()
    }
}

/// An issuer whose answer can be changed, and that counts its fetches.
struct Issuer {
    answer: Mutex<Result<Vec<u8>, String>>,
    fetches: AtomicUsize,
    delay: Duration,
}

impl Issuer {
    fn publishing(keys: &[Value]) -> Arc<Self> {
        Arc::new(Self { answer: Mutex::new(Ok(key_set(keys))), fetches: AtomicUsize::new(0), delay: Duration::ZERO })
    }

    fn publish(&self, keys: &[Value]) {
        *self.answer.lock() = Ok(key_set(keys));
    }

    fn go_down(&self) {
        *self.answer.lock() = Err("connection refused".into());
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl IssuerClient for Issuer {
    fn ask(&self, _request: IssuerRequest) -> BoxFuture<'_, Result<Vec<u8>, IssuerError>> {
        Box::pin(async {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(self.delay).await;
            let answer = self.answer.lock().clone();
            answer.map_err(|cause| IssuerError { kind: IssuerFailure::NoConnection, cause })
        })
    }
}

fn key_set(keys: &[Value]) -> Vec<u8> {
    json!({"keys": keys}).to_string().into_bytes()
}

fn jwt_config() -> JwtConfig {
    JwtConfig {
        issuer: ISSUER.into(),
        audience: OneOrMany(vec!["sekisho".into()]),
        jwks_url: Some("https://issuer.example/keys".parse().unwrap()),
        jwks_file: None,
        introspection: None,
        roles_claim: "roles".into(),
        tenant_claim: "tenant".into(),
        leeway_seconds: 30,
        subjects_of: None,
    }
}

async fn trusting(issuer: &Arc<Issuer>) -> Authenticator {
    let config = AuthConfig { jwt: OneOrMany(vec![jwt_config()]), ..with_keys(AnonymousAccess::Always) };
    Authenticator::new(&config, Some(issuer.clone())).await.unwrap()
}

async fn present(authenticator: &Authenticator, token: &str) -> Result<Arc<Caller>, CallError> {
    let headers = headers(&[("authorization", &format!("Bearer {token}"))]);
    authenticator.authenticate(&headers, true, Owner::gateway()).await
}

fn seconds() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap()
}

/// The claims of a good token, with changes; `null` takes a claim away.
fn claims(changes: Value) -> Value {
    let mut claims =
        json!({"iss": ISSUER, "aud": "sekisho", "sub": "carol", "exp": seconds() + 300, "roles": ["operator"]});
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    for (name, value) in changes {
        claims[&name] = value;
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

#[tokio::test]
async fn a_token_identifies_the_caller_with_any_supported_key_pair() {
    let pairs = [rsa("r"), ec("e"), ed("d")];
    let authenticator = trusting(&Issuer::publishing(&pairs.each_ref().map(Pair::public))).await;
    for pair in &pairs {
        let caller = present(&authenticator, &pair.sign(&claims(json!({"tenant": "acme"})))).await.unwrap();
        assert_eq!((&*caller.id, &*caller.tenant, &caller.roles[..]), ("carol", "acme", &["operator".to_owned()][..]));
        assert!(!caller.anonymous);
    }
}

#[tokio::test]
async fn a_token_is_another_caller_than_the_api_key_of_its_name() {
    let pair = rsa("r");
    let authenticator = trusting(&Issuer::publishing(&[pair.public()])).await;
    let token = pair.sign(&claims(json!({"sub": "alice", "tenant": "acme"})));
    let token = present(&authenticator, &token).await.unwrap();
    let key = present(&authenticator, "first-key").await.unwrap();
    assert_eq!((&token.id, &token.tenant), (&key.id, &key.tenant), "what policies and the audit trail read");
    assert_ne!(token.key, key.key);
}

#[tokio::test]
async fn claims_are_read_in_their_usual_forms() {
    let pair = rsa("r");
    let authenticator = trusting(&Issuer::publishing(&[pair.public()])).await;
    for (changes, tenant, roles) in [
        (json!({"roles": null}), "default", &[][..]),
        (json!({"roles": []}), "default", &[]),
        (json!({"roles": "operator admin"}), "default", &["operator", "admin"]),
        (json!({"roles": ["a b"]}), "default", &["a b"]),
        (json!({"aud": ["other", "sekisho"]}), "default", &["operator"]),
        (json!({"exp": seconds() as f64 + 300.5}), "default", &["operator"]),
        (json!({"exp": seconds() - 10}), "default", &["operator"]),
        (json!({"nbf": seconds() + 10}), "default", &["operator"]),
        (json!({"tenant": "t"}), "t", &["operator"]),
    ] {
        let caller = present(&authenticator, &pair.sign(&claims(changes.clone()))).await.unwrap();
        assert_eq!(
            (&*caller.tenant, &caller.roles[..]),
            (tenant, &roles.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
            "{changes}"
        );
    }
}

#[tokio::test]
async fn a_token_with_wrong_claims_is_refused_with_the_reason() {
    let pair = rsa("r");
    let authenticator = trusting(&Issuer::publishing(&[pair.public()])).await;
    for (changes, why) in [
        (json!({"exp": seconds() - 31}), "expired"),
        (json!({"exp": 0}), "expired"),
        (json!({"exp": null}), "lacks"),
        (json!({"exp": "tomorrow"}), "lacks"),
        (json!({"nbf": seconds() + 120}), "not valid yet"),
        (json!({"nbf": "soon"}), "well-formed"),
        (json!({"iss": "https://evil.example"}), "issuer"),
        (json!({"iss": format!("{ISSUER}/")}), "issuer"),
        (json!({"iss": ["https://evil.example", ISSUER]}), "issuer"),
        (json!({"iss": null}), "lacks"),
        (json!({"aud": "other"}), "audience"),
        (json!({"aud": []}), "audience"),
        (json!({"aud": ["other"]}), "audience"),
        (json!({"aud": {"sekisho": true}}), "lacks"),
        (json!({"aud": null}), "lacks"),
        (json!({"sub": null}), "lacks"),
        (json!({"sub": 7}), "lacks"),
        (json!({"sub": ""}), "id"),
        (json!({"sub": "a\u{1f}b"}), "control characters"),
        (json!({"sub": "a".repeat(257)}), "longer"),
        (json!({"sub": "anonymous", "tenant": "public"}), "without credentials"),
        (json!({"tenant": "a\u{0}b"}), "control characters"),
        (json!({"tenant": 1}), "tenant"),
        (json!({"tenant": ""}), "tenant"),
        (json!({"roles": {"admin": true}}), "roles"),
        (json!({"roles": ["operator", 1]}), "roles"),
        (json!({"roles": ["oper\nator"]}), "roles"),
    ] {
        for _ in 0..2 {
            let error = present(&authenticator, &pair.sign(&claims(changes.clone()))).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unauthenticated);
            assert!(error.message().contains(why), "{changes}: {error}");
        }
    }
}

#[tokio::test]
async fn an_id_token_counts_for_its_client_and_its_sign_in_alone() {
    let pair = rsa("r");
    let authenticator = trusting(&Issuer::publishing(&[pair.public()])).await;
    for (changes, why) in [
        (json!({}), None),
        (json!({"azp": "console"}), None),
        (json!({"aud": ["console", "other"], "azp": "console"}), None),
        (json!({"aud": ["console", "other"]}), Some("azp")),
        (json!({"azp": "other"}), Some("azp")),
        (json!({"nonce": "m"}), Some("another sign-in")),
        (json!({"nonce": null}), Some("another sign-in")),
        (json!({"nonce": 7}), Some("another sign-in")),
        // A token for the API is none for the console.
        (json!({"aud": "sekisho"}), Some("audience")),
        (json!({"iss": "https://evil.example"}), Some("issuer")),
        (json!({"exp": seconds() - 31}), Some("expired")),
    ] {
        let mut of_client = json!({"aud": "console", "nonce": "n"});
        changes.as_object().unwrap().iter().for_each(|(name, value)| of_client[name] = value.clone());
        let token = pair.sign(&claims(of_client));
        let result = authenticator.sign_in_with_id_token(&token, "console", "n").await;
        match (result, why) {
            (Ok(signed_in), None) => {
                assert_eq!(&*signed_in.caller().id, "carol");
                assert!(authenticator.still_signed_in(&signed_in).is_some_and(|caller| caller.has_role("operator")));
            }
            (Err(error), Some(why)) => assert!(error.message().contains(why), "{changes}: {error}"),
            (result, _) => panic!("{changes}: {result:?}"),
        }
        // It opens the console, not the API.
        assert!(changes["aud"] == "sekisho" || present(&authenticator, &token).await.is_err(), "{changes}");
    }
}

#[tokio::test]
async fn a_token_of_another_kind_is_no_access_token() {
    let pair = rsa("r");
    let authenticator = trusting(&Issuer::publishing(&[pair.public()])).await;
    let of_type = |typ: Option<&str>| Header {
        kid: Some("r".into()),
        typ: typ.map(str::to_owned),
        ..Header::new(Algorithm::RS256)
    };
    let logout = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
    for (typ, changes, why) in [
        (None, json!({}), None),
        (Some("at+jwt"), json!({"nonce": "n"}), None),
        (Some("JWT"), json!({"typ": "Bearer", "nonce": "n"}), None),
        (Some("logout+jwt"), json!({}), Some("its type (`typ`)")),
        (Some("dpop+jwt"), json!({}), Some("its type (`typ`)")),
        (Some("JWT"), json!({"nonce": "n"}), Some("is an ID token")),
        (Some("JWT"), json!({"at_hash": "h"}), Some("is an ID token")),
        (Some("JWT"), json!({"typ": "ID"}), Some("its claim `typ`")),
        (Some("JWT"), json!({"events": logout}), Some("`events`")),
    ] {
        let token = pair.sign_as(&of_type(typ), &claims(changes.clone()));
        for _ in 0..2 {
            match (present(&authenticator, &token).await, why) {
                (Ok(caller), None) => assert_eq!(&*caller.id, "carol"),
                (Err(error), Some(why)) => {
                    assert_eq!(error.code(), ErrorCode::Unauthenticated);
                    assert!(error.message().contains(why), "{typ:?} {changes}: {error}");
                }
                (result, _) => panic!("{typ:?} {changes}: {result:?}"),
            }
        }
        assert_eq!(
            authenticator.sign_in(&token, Owner::gateway()).await.is_ok(),
            why.is_none(),
            "{typ:?} {changes}: in the console"
        );
    }
}

#[tokio::test]
async fn a_forged_token_is_refused() {
    let pair = rsa("r");
    let authenticator = trusting(&Issuer::publishing(&[pair.public()])).await;
    let good = pair.sign(&claims(json!({})));
    let parts: Vec<&str> = good.split('.').collect();
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let admin = part(claims(json!({"roles": ["admin"]})));
    let (header, payload, signature) = (parts[0], parts[1], parts[2]);
    let public_n = pair.public()["n"].as_str().unwrap().to_owned();
    let by_public_key =
        |header: Header| encode(&header, &claims(json!({})), &EncodingKey::from_secret(public_n.as_bytes()));
    let known_id = |algorithm| Header { kid: Some("r".into()), ..Header::new(algorithm) };
    for token in [
        format!("{header}.{admin}.{signature}"),
        format!("{header}.{payload}."),
        format!("{header}.{payload}.{}", &signature[..signature.len() - 4]),
        format!("{}.{payload}.", part(json!({"alg": "none", "kid": "r"}))),
        format!("{}.{payload}.{signature}", part(json!({"alg": "None", "kid": "r"}))),
        format!("{}.{payload}.{signature}", part(json!({"alg": "PS256", "kid": "r"}))),
        format!("{}.{payload}.{signature}", part(json!({"alg": "ES256", "kid": "r"}))),
        format!("{}.{payload}.{signature}", part(json!({"kid": "r"}))),
        // Algorithm confusion: the public key taken for a shared secret.
        by_public_key(known_id(Algorithm::HS256)).unwrap(),
        by_public_key(Header::new(Algorithm::HS512)).unwrap(),
        // Signed by a key of the forger, which the token itself contains.
        rotated("r").sign(&claims(json!({}))),
        rotated("r").sign_as(
            &Header { jwk: Some(serde_json::from_value(rotated("r").public()).unwrap()), ..known_id(Algorithm::RS256) },
            &claims(json!({})),
        ),
        pair.sign_as(&Header { crit: Some(vec!["b64".into()]), ..known_id(Algorithm::RS256) }, &claims(json!({}))),
        "a.b.c".into(),
        "..".into(),
        format!("{good}.{signature}"),
        format!("{header}.{payload}"),
    ] {
        let error = present(&authenticator, &token).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthenticated, "{token}");
    }
    // A token only counts as a bearer.
    assert!(authenticator.authenticate(&headers(&[("x-api-key", &good)]), true, Owner::gateway()).await.is_err());
    assert!(present(&authenticator, &good).await.is_ok());
}

#[tokio::test]
async fn keys_for_something_else_do_not_sign_tokens() {
    let pair = rsa("r");
    let changed = |name: &str, value: Value| {
        let mut key = pair.public();
        key[name] = value;
        key
    };
    let symmetric = json!({"kty": "oct", "kid": "r", "k": "c2VjcmV0", "alg": "HS256"});
    for key in [
        changed("use", "enc".into()),
        changed("key_ops", json!(["encrypt"])),
        changed("alg", "RS512".into()),
        changed("alg", "RSA-OAEP".into()),
        changed("kid", "other".into()),
        changed("kid", Value::Null),
        symmetric,
        json!({"kty": "EC", "crv": "secp256k1", "kid": "r", "x": "AA", "y": "AA"}),
        json!("no key at all"),
    ] {
        let authenticator = trusting(&Issuer::publishing(std::slice::from_ref(&key))).await;
        assert!(present(&authenticator, &pair.sign(&claims(json!({})))).await.is_err(), "{key}");
        let both = trusting(&Issuer::publishing(&[key.clone(), pair.public()])).await;
        assert!(present(&both, &pair.sign(&claims(json!({})))).await.is_ok(), "{key} beside a good one");
    }
}

#[tokio::test]
async fn a_token_without_a_key_id_is_only_taken_when_there_is_no_choice() {
    let pair = rsa("r");
    let token = pair.sign_as(&Header::new(Algorithm::RS256), &claims(json!({})));
    let one = trusting(&Issuer::publishing(&[pair.public(), ec("e").public()])).await;
    assert!(present(&one, &token).await.is_ok());
    let two = trusting(&Issuer::publishing(&[pair.public(), rotated("s").public()])).await;
    assert!(present(&two, &token).await.is_err());
}

#[tokio::test]
async fn a_token_configuration_that_cannot_work_is_refused() {
    let good = jwt_config;
    for (jwt, place) in [
        (JwtConfig { issuer: String::new(), ..good() }, "auth.jwt.issuer"),
        (JwtConfig { issuer: "https://a\u{1f}b".into(), ..good() }, "auth.jwt.issuer"),
        (JwtConfig { audience: OneOrMany(vec![String::new()]), ..good() }, "auth.jwt.audience"),
        (JwtConfig { audience: OneOrMany::default(), ..good() }, "auth.jwt.audience"),
        (JwtConfig { leeway_seconds: u64::MAX, ..good() }, "auth.jwt.leeway_seconds"),
        (JwtConfig { jwks_url: None, issuer: "issuer".into(), ..good() }, "auth.jwt"),
        (JwtConfig { jwks_url: None, issuer: "http://issuer.example".into(), ..good() }, "auth.jwt"),
        (JwtConfig { jwks_file: Some("keys.json".into()), ..good() }, "auth.jwt"),
    ] {
        let config = AuthConfig { jwt: OneOrMany(vec![jwt]), ..AuthConfig::default() };
        let client: Arc<dyn IssuerClient> = Issuer::publishing(&[]);
        let errors = Authenticator::new(&config, Some(client)).await.unwrap_err();
        assert_eq!(errors.iter().map(|error| &*error.place).collect::<Vec<_>>(), [place]);
    }
    let config = AuthConfig { jwt: OneOrMany(vec![good()]), ..AuthConfig::default() };
    assert_eq!(Authenticator::new(&config, None).await.unwrap_err()[0].place, "auth.jwt.jwks_url");
    let other = JwtConfig { issuer: "https://other.example".into(), jwks_url: None, ..good() };
    let config = AuthConfig { jwt: OneOrMany(vec![good(), other]), ..AuthConfig::default() };
    let errors = Authenticator::new(&config, None).await.unwrap_err();
    let places: Vec<_> = errors.iter().map(|error| &*error.place).collect();
    assert_eq!(places, ["auth.jwt[0].jwks_url", "auth.jwt[1]"], "nothing is fetched without a client");
}
