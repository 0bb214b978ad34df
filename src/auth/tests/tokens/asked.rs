//! Tokens that only the issuer can read: it is asked about them (RFC 7662).

use futures_util::FutureExt;

use super::*;
use sekisho_config::IntrospectionConfig;

/// An issuer that is asked, with its answer about each token.
struct Asked {
    answer: Mutex<Result<Value, IssuerFailure>>,
    forms: Mutex<Vec<String>>,
    delay: Duration,
}

impl Asked {
    fn saying(answer: Value) -> Arc<Self> {
        Arc::new(Self { answer: Mutex::new(Ok(answer)), forms: Mutex::default(), delay: Duration::ZERO })
    }

    /// How often it was asked.
    fn times(&self) -> usize {
        self.forms.lock().len()
    }
}

impl IssuerClient for Asked {
    fn ask(&self, request: IssuerRequest) -> BoxFuture<'_, Result<Vec<u8>, IssuerError>> {
        async move {
            let Some(question) = &request.question else {
                let metadata = json!({"issuer": ISSUER, "jwks_uri": "https://issuer.example/keys",
                    "introspection_endpoint": "https://issuer.example/introspect"});
                let keys = json!({"keys": [rsa("r").public()]});
                let page = if request.url.path() == "/keys" { keys } else { metadata };
                return Ok(page.to_string().into_bytes());
            };
            assert_eq!(request.url.as_str(), "https://issuer.example/introspect");
            self.forms.lock().push(question.form().to_owned());
            tokio::time::sleep(self.delay).await;
            match &*self.answer.lock() {
                Ok(answer) => Ok(answer.to_string().into_bytes()),
                Err(kind) => Err(IssuerError { kind: *kind, cause: "down".into() }),
            }
        }
        .boxed()
    }
}

async fn asking(issuer: &Arc<Asked>) -> Authenticator {
    let client = IntrospectionConfig { client_id: "gateway".into(), client_secret: Secret::new("s3cret"), url: None };
    let jwt = JwtConfig { jwks_url: None, introspection: Some(client), ..jwt_config() };
    let config = AuthConfig { jwt: OneOrMany(vec![jwt]), ..with_keys(AnonymousAccess::Never) };
    Authenticator::new(&config, Some(issuer.clone())).await.unwrap()
}

/// The issuer's answer about a good token, with changes; `null` takes a member away.
fn active(changes: Value) -> Value {
    let mut answer = claims(changes);
    answer["active"] = true.into();
    answer
}

#[tokio::test]
async fn an_active_token_is_a_caller_with_its_claims() {
    let issuer = Asked::saying(active(json!({"tenant": "acme", "scope": "read", "token_type": "Bearer"})));
    let authenticator = asking(&issuer).await;
    let caller = present(&authenticator, "opaque+token").await.unwrap();
    assert_eq!((&*caller.id, &*caller.tenant), ("carol", "acme"));
    assert!(caller.has_role("operator") && caller.key.ends_with("https://issuer.example#carol"));
    let token = caller.token.get().unwrap();
    assert_eq!((&*token.text, &*token.audiences), ("opaque+token", &["sekisho".to_owned()][..]));
    assert_eq!(*issuer.forms.lock(), ["token=opaque%2Btoken&token_type_hint=access_token"]);
    assert!(!format!("{authenticator:?}").contains("s3cret"));
}

#[tokio::test]
async fn only_what_nobody_else_can_check_is_asked_about() {
    let issuer = Asked::saying(json!({"active": false}));
    let authenticator = asking(&issuer).await;
    let (managed, _) = new_token("0123456789abcdef");
    for secret in ["first-key", managed.expose()] {
        let _ = present(&authenticator, secret).await;
    }
    assert!(present(&authenticator, &rsa("r").sign(&claims(json!({})))).await.is_ok(), "by its signature");
    assert!(present(&authenticator, &rsa("r").sign(&claims(json!({"exp": 1})))).await.is_err());
    let key = headers(&[("x-api-key", "opaque")]);
    assert!(authenticator.authenticate(&key, true, Owner::gateway()).await.is_err());
    assert!(authenticator.sign_in("opaque", Owner::gateway()).await.is_err(), "no session begins with it");
    assert_eq!(issuer.times(), 0);
    for opaque in ["opaque", "a.b.c", "a.b.c.d.e"] {
        assert!(present(&authenticator, opaque).await.is_err());
    }
    assert_eq!(issuer.times(), 3);
}

#[tokio::test]
async fn no_session_begins_with_an_answer_that_is_remembered() {
    let authenticator = asking(&Asked::saying(active(json!({})))).await;
    for opaque in ["opaque", "a.b.c"] {
        assert!(present(&authenticator, opaque).await.is_ok(), "{opaque}");
        assert!(authenticator.sign_in(opaque, Owner::gateway()).await.is_err(), "{opaque}");
    }
}

#[tokio::test]
async fn what_the_issuer_does_not_confirm_is_refused() {
    for (answer, why) in [
        (json!({"active": false}), "not active"),
        (active(json!({"iss": "https://evil.example"})), "issuer"),
        (active(json!({"aud": "other"})), "audience"),
        (active(json!({"aud": null})), "audience"),
        (active(json!({"sub": null})), "`sub`"),
        (active(json!({"sub": "a\u{1f}b"})), "control characters"),
        (active(json!({"exp": seconds() - 31})), "expired"),
        (active(json!({"exp": "tomorrow"})), "expired"),
        (active(json!({"nbf": seconds() + 120})), "not valid yet"),
        (active(json!({"token_type": "DPoP"})), "bearer token"),
        (json!({"active": "true", "sub": "carol", "aud": "sekisho"}), "says nothing"),
        (json!({"error": "invalid_client"}), "says nothing"),
        (json!([true]), "says nothing"),
    ] {
        let authenticator = asking(&Asked::saying(answer.clone())).await;
        let error = present(&authenticator, "opaque").await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthenticated);
        assert!(error.message().contains(why), "{answer}: {error}");
    }
    // Members that are no claims of a JSON Web Token are optional.
    for lenient in [json!({"iss": null}), json!({"exp": null}), json!({"nbf": null}), json!({"token_type": "bearer"})] {
        let authenticator = asking(&Asked::saying(active(lenient.clone()))).await;
        assert!(present(&authenticator, "opaque").await.is_ok(), "{lenient}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_half_a_minute() {
    let issuer = Asked::saying(active(json!({})));
    let authenticator = asking(&issuer).await;
    for _ in 0..3 {
        assert!(present(&authenticator, "opaque").await.is_ok());
    }
    assert_eq!(issuer.times(), 1);
    tokio::time::advance(Duration::from_secs(29)).await;
    assert!(present(&authenticator, "opaque").await.is_ok());
    assert_eq!(issuer.times(), 1);
    *issuer.answer.lock() = Ok(json!({"active": false}));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(present(&authenticator, "opaque").await.is_err(), "it was revoked");
    assert!(present(&authenticator, "opaque").await.is_err(), "and what is not active is asked about each time");
    assert_eq!(issuer.times(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_does_not_answer_lets_nobody_in() {
    for (failure, why) in [
        (IssuerFailure::NoConnection, "connection failed"),
        (IssuerFailure::NoAnswer, "no response in time"),
        (IssuerFailure::WrongAnswer, "says nothing"),
    ] {
        let issuer = Asked::saying(Value::Null);
        *issuer.answer.lock() = Err(failure);
        let authenticator = asking(&issuer).await;
        let error = present(&authenticator, "opaque").await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthenticated);
        assert!(error.message().contains(why) && error.message().contains("was not checked"), "{error}");
        *issuer.answer.lock() = Ok(active(json!({})));
        assert!(present(&authenticator, "opaque").await.is_ok(), "the next token is asked about again");
    }
    let slow = Asked { delay: Duration::from_secs(60), ..Arc::into_inner(Asked::saying(active(json!({})))).unwrap() };
    let authenticator = asking(&Arc::new(slow)).await;
    let error = present(&authenticator, "opaque").await.unwrap_err();
    assert!(error.message().contains("no response in time"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_answer_serves_the_requests_that_wait_and_a_flood_delays_its_sender_alone() {
    let issuer = Asked::saying(active(json!({})));
    let issuer = Arc::new(Asked { delay: Duration::from_secs(1), ..Arc::into_inner(issuer).unwrap() });
    let authenticator = asking(&issuer).await;
    let results = join_all((0..100).map(|_| present(&authenticator, "opaque"))).await;
    assert!(results.iter().all(Result::is_ok));
    assert!(issuer.times() <= 16, "those that waited for their turn need not ask: {}", issuer.times());

    let of = |address: &str| Owner::of_address(address.parse().unwrap());
    let (flood, other) = (of("192.0.2.1"), of("192.0.2.2"));
    let ask = async |token: String, owner: &Owner| {
        let headers = headers(&[("authorization", &format!("Bearer {token}"))]);
        authenticator.authenticate(&headers, false, owner).await
    };
    let flooding = join_all((0..200).map(|number| ask(format!("made-up-{number}"), &flood)));
    let waiting = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let started = tokio::time::Instant::now();
        assert!(ask("of-other".to_owned(), &other).await.is_ok());
        started.elapsed()
    };
    let (_, waited) = tokio::join!(flooding, waiting);
    assert!(waited < Duration::from_millis(2_100), "it waited for one question of the flood: {waited:?}");
}
