//! Sign-ins at services of this process.

use std::collections::HashMap;

use axum::Router;
use axum::response::{IntoResponse, Response};
use jsonwebtoken::Algorithm;
use sekisho_config::{OutboundConfig, Secret};
use sekisho_core::checkout::checkout;
use sekisho_outbound::test_server;
use serde_json::json;

use super::*;

type Forms = Arc<parking_lot::Mutex<Vec<HashMap<String, String>>>>;

/// A token service, and the forms that it got. Its tokens have a number.
async fn service(lifetime: u64) -> (Url, Forms) {
    let forms = Forms::default();
    let seen = Arc::clone(&forms);
    let respond = move |body: Bytes| async move {
        let form: HashMap<_, _> = form_urlencoded::parse(&body).into_owned().collect();
        let mut seen = seen.lock();
        let is_known = form.get("client_secret").is_none_or(|secret| secret == "s3cret-of-the-client");
        seen.push(form);
        respond_with(is_known.then_some((seen.len(), lifetime)))
    };
    let address = test_server::serve(Router::new().fallback(respond)).await;
    (Url::parse(&format!("http://{address}/token")).unwrap(), forms)
}

fn respond_with(granted: Option<(usize, u64)>) -> Response {
    match granted {
        Some((number, lifetime)) => {
            json!({"access_token": format!("token-{number}"), "expires_in": lifetime}).to_string().into_response()
        }
        None => {
            let body = json!({"error": "invalid_client", "error_description": "wrong: no-secret-at-all"});
            (http::StatusCode::UNAUTHORIZED, body.to_string()).into_response()
        }
    }
}

fn client(token_url: &Url, secret: &str) -> SignIn {
    SignIn(SignInConfig {
        token_url: Some(token_url.clone()),
        client_id: Some("gateway".into()),
        client_secret: Some(Secret::new(secret)),
        scopes: vec!["a".into(), "b".into()],
        ..SignInConfig::default()
    })
}

#[tokio::test]
async fn a_token_of_client_credentials_is_kept_until_it_expires() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    for (lifetime, expected) in [(3_600, ["token-1", "token-1"]), (60, ["token-1", "token-2"])] {
        let (url, forms) = service(lifetime).await;
        let sign_in = client(&url, "s3cret-of-the-client");
        let tokens = [sign_in.token(&outbound).await.unwrap(), sign_in.token(&outbound).await.unwrap()];
        assert_eq!(tokens, expected, "{lifetime}");
        let form = forms.lock()[0].clone();
        assert_eq!((&*form["grant_type"], &*form["client_id"]), ("client_credentials", "gateway"));
        assert_eq!(form["scope"], "a b");
    }
    let (url, _) = service(3_600).await;
    let refused = client(&url, "no-secret-at-all").token(&outbound).await.unwrap_err();
    let expected = "the access token: HTTP 401: invalid_client wrong: [redacted]";
    assert_eq!(refused, ModelError::Refused(expected.into()));
}

#[tokio::test]
async fn the_reason_of_a_service_of_google_is_said() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let refuse = || async {
        let error = json!({"code": 403, "message": "It is not allowed.", "status": "PERMISSION_DENIED"});
        (http::StatusCode::FORBIDDEN, json!({"error": error}).to_string())
    };
    let address = test_server::serve(Router::new().fallback(refuse)).await;
    let url = Url::parse(&format!("http://{address}/token")).unwrap();
    let refused = client(&url, "s3cret-of-the-client").token(&outbound).await.unwrap_err();
    let expected = "the access token: HTTP 403: PERMISSION_DENIED It is not allowed.";
    assert_eq!(refused, ModelError::Refused(expected.into()));
}

#[test]
fn the_lifetime_of_a_token_is_a_number_or_a_text() {
    for (seconds, expected) in [(json!(3_600), 3_600), (json!("3599"), 3_599), (json!("soon"), 300), (json!(null), 300)]
    {
        let granted: Granted = serde_json::from_value(json!({"access_token": "t", "expires_in": seconds})).unwrap();
        assert_eq!(granted.lifetime().as_secs(), expected, "{seconds}");
    }
}

#[tokio::test]
async fn a_service_account_signs_an_assertion_with_its_key() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let (url, forms) = service(3_600).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("account.json");
    let sign_in = SignIn(SignInConfig { service_account_file: Some(file.clone()), ..SignInConfig::default() });
    assert!(matches!(sign_in.token(&outbound).await, Err(ModelError::Refused(_))), "no file");
    let key = std::fs::read_to_string(checkout().join("tests/fixtures/auth/rsa.pem")).unwrap();
    let account = json!({"type": "service_account", "client_email": "a@b.example", "private_key": key,
        "private_key_id": "k1", "token_uri": url});
    std::fs::write(&file, account.to_string()).unwrap();
    assert_eq!(sign_in.token(&outbound).await.unwrap(), "token-1");
    let form = forms.lock()[0].clone();
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let header = jsonwebtoken::decode_header(&form["assertion"]).unwrap();
    assert_eq!((header.alg, header.kid.as_deref()), (Algorithm::RS256, Some("k1")));
}

/// The platform renews the token in its file: each request to the service has the one of then.
#[tokio::test]
async fn a_workload_of_azure_shows_the_token_of_its_file_in_place_of_a_secret() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let (url, forms) = service(60).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("azure-identity-token");
    let config = SignInConfig { client_secret: None, client_assertion_file: Some(file.clone()), ..client(&url, "").0 };
    let sign_in = SignIn(config);
    for part in ["azure-identity-token", "empty"] {
        let refused = sign_in.token(&outbound).await.unwrap_err();
        assert!(matches!(&refused, ModelError::Refused(said) if said.contains(part)), "{refused}");
        std::fs::write(&file, "\n").unwrap();
    }
    for (number, token) in ["eyJ.one.s", "eyJ.two.s"].into_iter().enumerate() {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        assert_eq!(sign_in.token(&outbound).await.unwrap(), format!("token-{}", number + 1));
        let form = forms.lock()[number].clone();
        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        assert_eq!((&*form["client_assertion"], &*form["client_assertion_type"]), (token, kind));
        assert!(form["grant_type"] == "client_credentials" && !form.contains_key("client_secret"), "{form:?}");
    }
}

/// As Google's tools write the file: for only the pool, and for a service account.
#[tokio::test]
async fn a_workload_of_another_platform_exchanges_its_token_at_google() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let (url, forms) = service(3_600).await;
    let impersonated = Arc::<parking_lot::Mutex<Vec<(String, Value)>>>::default();
    let seen = Arc::clone(&impersonated);
    let generate = move |headers: http::HeaderMap, body: Bytes| async move {
        let bearer = headers["authorization"].to_str().unwrap().to_owned();
        seen.lock().push((bearer, serde_json::from_slice(&body).unwrap()));
        json!({"accessToken": "of-the-account", "expireTime": "2999-01-01T00:00:00Z"}).to_string()
    };
    let account = test_server::serve(Router::new().fallback(generate)).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, token) = (folder.path().join("google.json"), folder.path().join("token"));
    let audience = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k";
    for (number, (text, source, impersonates, expected)) in [
        ("eyJ.sub.s\n", json!({"file": token}), false, Ok("token-1")),
        (
            r#"{"t": "eyJ.sub.s"}"#,
            json!({"file": token, "format": {"type": "json", "subject_token_field_name": "t"}}),
            true,
            Ok("of-the-account"),
        ),
        (
            "{}",
            json!({"file": token, "format": {"type": "json", "subject_token_field_name": "t"}}),
            false,
            Err("no member"),
        ),
        ("", json!({"url": "http://169.254.169.254/token"}), false, Err("only tokens in files")),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(&token, text).unwrap();
        let mut credentials = json!({"type": "external_account", "audience": audience, "token_url": url,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": source});
        if impersonates {
            credentials["service_account_impersonation_url"] = format!("http://{account}/a:generateAccessToken").into();
        }
        std::fs::write(&file, credentials.to_string()).unwrap();
        // Another key of the kept tokens for each.
        let scopes = vec![format!("scope-{number}")];
        let config = SignInConfig {
            service_account_file: Some(file.clone()),
            scopes: scopes.clone(),
            ..SignInConfig::default()
        };
        match (SignIn(config).token(&outbound).await, expected) {
            (Ok(token), Ok(expected)) => assert_eq!(token, expected),
            (Err(ModelError::Refused(said)), Err(part)) => assert!(said.contains(part), "{said}"),
            (found, _) => panic!("{number}: {found:?}"),
        }
        let Some(form) = forms.lock().get(number).cloned() else { continue };
        assert_eq!(
            (&*form["grant_type"], &*form["subject_token"]),
            ("urn:ietf:params:oauth:grant-type:token-exchange", "eyJ.sub.s")
        );
        assert_eq!(form["audience"], audience);
        let scope = if impersonates { "https://www.googleapis.com/auth/cloud-platform" } else { scopes[0].as_str() };
        assert_eq!(form["scope"], scope);
    }
    let expected = ("Bearer token-2".to_owned(), json!({"scope": ["scope-1"], "lifetime": "3600s"}));
    assert_eq!(*impersonated.lock(), [expected]);
}
