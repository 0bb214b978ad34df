use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{Method, StatusCode, Uri};
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;
use crate::message::Message;
use crate::models::{ModelChunk, ModelRequest, open};
use sekisho_config::{OutboundConfig, Provider, Secret};
use sekisho_observe::metrics::Metrics;
use sekisho_outbound::test_server;

const ID: &str = "AKIDEXAMPLE";
const KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// From AWS's signature test suite (`get-vanilla`, `post-vanilla`, `get-vanilla-with-session-token`).
#[test]
fn signatures_are_those_of_the_published_test_vectors() {
    let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
    let time: Timestamp = "2015-08-30T12:36:00Z".parse().unwrap();
    let scope = signature::Scope { region: "us-east-1", service: "service", time: time.into() };
    for (method, token, signed, expected) in [
        ("GET", None, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", None, "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            Some(token.to_owned()),
            "host;x-amz-date;x-amz-security-token",
            "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
        ),
    ] {
        let credentials = Credentials::new(ID, KEY, token, None, "test");
        let (url, mut headers) = (Url::parse("https://example.amazonaws.com/").unwrap(), HeaderMap::new());
        signature::add(method, &url, &mut headers, b"", (&credentials, &scope)).unwrap();
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential={ID}/20150830/us-east-1/service/aws4_request, SignedHeaders={signed}, \
             Signature={expected}"
        );
        assert_eq!(headers["authorization"], expected);
        assert!(headers["authorization"].is_sensitive());
    }
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::digest([&block.map(|byte| byte ^ 0x36)[..], data].concat());
    Sha256::digest([&block.map(|byte| byte ^ 0x5c)[..], &inner[..]].concat()).to_vec()
}

/// The signature that AWS expects of a request, computed as its documentation says; `None` if none was sent.
fn expected_signature(uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Option<(String, String)> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let authorization = text("authorization")?.strip_prefix("AWS4-HMAC-SHA256 ")?;
    let parts: BTreeMap<_, _> = authorization.split(", ").filter_map(|part| part.split_once('=')).collect();
    let scope = parts["Credential"].split_once('/')?.1;
    let signed = parts["SignedHeaders"];
    let sent: String = signed.split(';').map(|name| format!("{name}:{}\n", text(name).unwrap().trim())).collect();
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let encode = |byte: u8| if unreserved(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
    let path: String = uri.path().bytes().map(encode).collect();
    let hash = |data: &[u8]| hex::encode(Sha256::digest(data));
    let canonical = format!("POST\n{path}\n\n{sent}\n{signed}\n{}", hash(body));
    let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", text("x-amz-date")?, hash(canonical.as_bytes()));
    let start = format!("AWS4{KEY}").into_bytes();
    let key = scope.split('/').fold(start, |key, part| hmac(&key, part.as_bytes()));
    Some((parts["Signature"].to_owned(), hex::encode(hmac(&key, to_sign.as_bytes()))))
}

/// A Bedrock that refuses requests that are not signed with [`KEY`], for a region and with a session token; a token
/// service that gives that key for the token `identity`.
async fn amazon(region: &'static str, session_token: Option<&'static str>) -> (Url, Arc<AtomicUsize>) {
    let assumed = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&assumed);
    let respond = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
        assert_eq!(method, Method::POST);
        if uri.path() == "/sts/" {
            counted.fetch_add(1, Ordering::SeqCst);
            return token_service(&String::from_utf8_lossy(&body));
        }
        let problem = match expected_signature(&uri, &headers, &body) {
            None => Some("Missing Authentication Token".to_owned()),
            Some((sent, expected)) if sent != expected => Some("The signature does not match".to_owned()),
            Some(_) if headers.get("x-amz-security-token").map(|token| token.to_str().unwrap()) != session_token => {
                Some(format!("The security token {:?} is invalid", headers.get("x-amz-security-token")))
            }
            Some(_) => None,
        };
        let scope = format!("/{region}/bedrock/aws4_request");
        assert!(problem.is_some() || headers["authorization"].to_str().unwrap().contains(&scope), "{headers:?}");
        match problem {
            Some(message) => (StatusCode::FORBIDDEN, json!({"message": message}).to_string()).into_response(),
            None => {
                let event = crate::models::remote::aws_event;
                let events = [
                    event("contentBlockDelta", r#"{"contentBlockIndex": 0, "delta": {"text": "hello"}}"#),
                    event("messageStop", r#"{"stopReason": "end_turn"}"#),
                    event("metadata", r#"{"usage": {"inputTokens": 1, "outputTokens": 1}}"#),
                ];
                ([("content-type", "application/vnd.amazon.eventstream")], events.concat()).into_response()
            }
        }
    };
    let address = test_server::serve(Router::new().fallback(respond)).await;
    (Url::parse(&format!("http://{address}")).unwrap(), assumed)
}

fn token_service(form: &str) -> Response {
    assert!(form.starts_with("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam"), "{form}");
    if !form.ends_with("&RoleSessionName=sekisho&WebIdentityToken=identity") {
        let error = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to \
                     perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>";
        return (StatusCode::FORBIDDEN, error).into_response();
    }
    let expires = Timestamp::now() + Duration::from_secs(3_600);
    format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><SessionToken>of the role \
         &amp; more</SessionToken><SecretAccessKey>{KEY}</SecretAccessKey><Expiration>{expires}</Expiration>\
         <AccessKeyId>{ID}</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>"
    )
    .into_response()
}

/// The text of the model's answer, or the error.
async fn ask(base_url: &Url, aws: AwsConfig) -> Result<String, String> {
    let profile = AgentProfile {
        provider: Some(Provider::Bedrock),
        model: Some("eu.anthropic.claude-sonnet-4-5-20250929-v1:0".into()),
        base_url: Some(base_url.clone()),
        aws,
        ..AgentProfile::default()
    };
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let metrics = Arc::new(Metrics::new("ns").unwrap());
    let model = open(&profile, &outbound, &metrics).map_err(|error| error.to_string())?;
    let messages = vec![Message::User("hello".into())];
    let request = Arc::new(ModelRequest { messages, max_tokens: 10, ..ModelRequest::default() });
    let mut text = String::new();
    for piece in model.stream(request).collect::<Vec<_>>().await {
        if let ModelChunk::Text(more) = piece.map_err(|error| error.to_string())? {
            text.push_str(&more);
        }
    }
    Ok(text)
}

fn keys(secret: &str, token: Option<&str>) -> AwsConfig {
    AwsConfig {
        region: Some("eu-west-1".into()),
        access_key_id: Some(ID.into()),
        secret_access_key: Some(Secret::new(secret)),
        session_token: token.map(Secret::new),
        ..AwsConfig::default()
    }
}

#[tokio::test]
async fn requests_are_signed_with_the_keys_of_the_profile() {
    let (url, _) = amazon("eu-west-1", None).await;
    assert_eq!(ask(&url, keys(KEY, None)).await, Ok("hello".into()));
    let refused = ask(&url, keys("another", None)).await.unwrap_err();
    assert!(refused.contains("The signature does not match"), "{refused}");
    let (url, _) = amazon("eu-west-1", Some("of-a-session")).await;
    assert_eq!(ask(&url, keys(KEY, Some("of-a-session"))).await, Ok("hello".into()));
    let refused = ask(&url, keys(KEY, Some("of-another-session"))).await.unwrap_err();
    assert!(refused.contains("The security token") && !refused.contains("of-another-session"), "{refused}");
}

#[tokio::test]
async fn keys_of_a_role_are_had_for_an_identity_token_and_kept() {
    let (url, assumed) = amazon("eu-west-1", Some("of the role & more")).await;
    let folder = tempfile::tempdir().unwrap();
    let aws = |name: &str, token: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, token).unwrap();
        AwsConfig {
            region: Some("eu-west-1".into()),
            role_arn: Some("arn:aws:iam::1:role/r".into()),
            web_identity_token_file: Some(file),
            sts_url: url.join("/sts/").ok(),
            ..AwsConfig::default()
        }
    };
    assert_eq!(ask(&url, aws("good", "identity\n")).await, Ok("hello".into()));
    assert_eq!(ask(&url, aws("good", "changed")).await, Ok("hello".into()));
    assert_eq!(assumed.load(Ordering::SeqCst), 1, "the keys are valid for an hour");
    let refused = ask(&url, aws("bad", "another")).await.unwrap_err();
    assert!(refused.contains("HTTP 403: Not authorized to perform") && refused.contains("AccessDenied"), "{refused}");
    let missing = AwsConfig { web_identity_token_file: Some(folder.path().join("none")), ..aws("good", "identity") };
    let refused = ask(&url, missing).await.unwrap_err();
    assert!(refused.contains("none cannot be read"), "{refused}");
}

/// The credentials file, the config file, the profile that is named → the region and the source, or the error.
#[test]
fn profiles_are_read_from_the_shared_files() {
    let folder = tempfile::tempdir().unwrap();
    let (credentials_file, config_file) = (folder.path().join("credentials"), folder.path().join("config"));
    let plain = "[default]\naws_access_key_id = A\naws_secret_access_key = B # mine\n\n[other]\naws_access_key_id=C\n\
                 aws_secret_access_key=D/=\naws_session_token=E\n";
    let config = "# of AWS\n[default]\nregion = eu-west-1\n[profile other]\nregion=ap-northeast-1\ns3 =\n  region = no\n\
                  [profile role]\nrole_arn = arn:aws:iam::1:role/r\nweb_identity_token_file = /token\n\
                  [profile sso]\nsso_session = s\n";
    for (credentials, config, named, expected) in [
        (plain, config, None, Ok("eu-west-1 A B -")),
        (plain, "", None, Ok("us-east-1 A B -")),
        (plain, config, Some("other"), Ok("ap-northeast-1 C D/= E")),
        ("", config, Some("role"), Ok("us-east-1 arn:aws:iam::1:role/r")),
        ("", config, None, Ok("none")),
        ("", "", None, Ok("none")),
        (plain, config, Some("sso"), Err("`source_profile`) are not supported")),
        (plain, config, Some("nobody"), Err("there is no AWS profile `nobody` in ")),
    ] {
        std::fs::write(&credentials_file, credentials).unwrap();
        std::fs::write(&config_file, config).unwrap();
        let aws = AwsConfig {
            profile: named.map(str::to_owned),
            credentials_file: Some(credentials_file.clone()),
            config_file: Some(config_file.clone()),
            ..AwsConfig::default()
        };
        let signer = Signer::of(&AgentProfile { aws, ..AgentProfile::default() });
        let found = signer.map(|signer| match signer {
            None => "none".to_owned(),
            Some(Signer { region, source: Source::Keys(keys) }) => {
                let token = keys.session_token().unwrap_or("-");
                format!("{region} {} {} {token}", keys.access_key_id(), keys.secret_access_key())
            }
            Some(Signer { region, source: Source::WebIdentity(identity) }) => {
                format!("{region} {}", identity.role_arn())
            }
        });
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn the_region_is_in_the_host_name_of_bedrock() {
    for (host, expected) in [
        ("bedrock-runtime.eu-west-1.amazonaws.com", Some("eu-west-1")),
        ("bedrock-runtime-fips.us-east-1.amazonaws.com", Some("us-east-1")),
        ("vpce-1-a.bedrock-runtime.us-west-2.vpce.amazonaws.com", Some("us-west-2")),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
        ("bedrock-runtime.internal.example", None),
        ("127.0.0.1", None),
    ] {
        assert_eq!(region_in(host), expected, "{host}");
    }
    let aws = AwsConfig { region: Some("eu-north-1".into()), ..AwsConfig::default() };
    let profile = AgentProfile { aws, ..AgentProfile::default() };
    assert_eq!(bedrock_url(&profile).unwrap().as_str(), "https://bedrock-runtime.eu-north-1.amazonaws.com/");
    assert!(!format!("{:?}", Signer::of(&AgentProfile { aws: keys(KEY, None), ..profile })).contains(KEY));
}
