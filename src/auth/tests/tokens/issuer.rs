//! Keys of an issuer: fetched, withdrawn, out of reach, or read from a file.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_unknown_key_causes_one_fetch_every_ten_seconds_for_all_callers() {
    let (old, new) = (rsa("old"), rotated("new"));
    let issuer = Issuer::publishing(&[old.public()]);
    let authenticator = trusting(&issuer).await;
    assert_eq!(issuer.fetches(), 0, "nothing is fetched before it is needed");
    assert!(present(&authenticator, &old.sign(&claims(json!({})))).await.is_ok());
    issuer.publish(&[new.public()]);
    let token = new.sign(&claims(json!({})));
    assert!(present(&authenticator, &token).await.is_err(), "fetched a moment ago");
    assert_eq!(issuer.fetches(), 1);

    tokio::time::advance(Duration::from_secs(11)).await;
    let results = join_all((0..20).map(|_| present(&authenticator, &token))).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(issuer.fetches(), 2);
    assert!(
        present(&authenticator, &old.sign(&claims(json!({})))).await.is_err(),
        "the old key is gone, its tokens with it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_disconnects_does_not_cancel_the_fetch() {
    let pair = rsa("r");
    let issuer = Arc::new(Issuer {
        answer: Mutex::new(Ok(key_set(&[pair.public()]))),
        fetches: AtomicUsize::new(0),
        delay: Duration::from_secs(1),
    });
    let authenticator = trusting(&issuer).await;
    let token = pair.sign(&claims(json!({})));
    let hung_up = tokio::time::timeout(Duration::from_millis(10), present(&authenticator, &token)).await;
    assert!(hung_up.is_err());
    assert!(present(&authenticator, &token).await.is_ok());
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_down_or_talks_nonsense_changes_nothing() {
    let pair = rsa("r");
    let issuer = Issuer::publishing(&[pair.public()]);
    let authenticator = trusting(&issuer).await;
    assert!(present(&authenticator, &pair.sign(&claims(json!({})))).await.is_ok());
    for nonsense in [&b""[..], b"<html>", b"{}", b"{\"keys\": 1}", b"\xff", &vec![b' '; 2 << 20]] {
        *issuer.answer.lock() = Ok(nonsense.to_vec());
        tokio::time::advance(Duration::from_secs(3_600)).await;
        let unknown = rotated("unknown").sign(&claims(json!({})));
        assert!(present(&authenticator, &unknown).await.is_err());
    }
    issuer.go_down();
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(present(&authenticator, &rotated("unknown").sign(&claims(json!({})))).await.is_err());
    assert_eq!(issuer.fetches(), 8);
    assert!(present(&authenticator, &pair.sign(&claims(json!({"sub": "dave"})))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failed_fetch_is_retried_after_a_second_with_increasing_pauses() {
    let pair = rsa("r");
    let issuer = Issuer::publishing(&[]);
    issuer.go_down();
    let authenticator = trusting(&issuer).await;
    let token = pair.sign(&claims(json!({})));
    let mut asked_at = Vec::new();
    for second in 0..100_u32 {
        let before = issuer.fetches();
        for _ in 0..5 {
            let error = present(&authenticator, &token).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unauthenticated);
            let says = "the keys of the token's issuer could not be fetched: connection failed";
            assert!(error.message().starts_with(says), "{error}");
        }
        if issuer.fetches() > before {
            assert_eq!(issuer.fetches(), before + 1, "once for all");
            asked_at.push(second);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(asked_at, [0, 1, 3, 7, 15, 31, 61, 91]);
    issuer.publish(&[pair.public()]);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(present(&authenticator, &token).await.is_ok());
    // It counts from the beginning again.
    issuer.go_down();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(present(&authenticator, &rotated("new").sign(&claims(json!({})))).await.is_err());
    issuer.publish(&[pair.public(), rotated("new").public()]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(present(&authenticator, &rotated("new").sign(&claims(json!({})))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_hiccup_of_the_issuer_at_the_first_token_is_over_after_a_second() {
    let pair = rsa("r");
    let issuer = Issuer::publishing(&[]);
    *issuer.answer.lock() = Ok(b"<html>500</html>".to_vec());
    let authenticator = trusting(&issuer).await;
    let token = pair.sign(&claims(json!({})));
    let error = present(&authenticator, &token).await.unwrap_err();
    assert!(error.message().contains("the response is not a key set"), "{error}");
    issuer.publish(&[pair.public()]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(present(&authenticator, &token).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_keys_of_an_issuer_that_is_down() {
    let pair = rsa("r");
    let issuer = Issuer::publishing(&[pair.public()]);
    let before = trusting(&issuer).await;
    let token = pair.sign(&claims(json!({})));
    assert!(present(&before, &token).await.is_ok());
    issuer.go_down();
    let mut after = trusting(&issuer).await;
    after.keep_keys_of(&before);
    assert!(present(&after, &token).await.is_ok());
    let elsewhere = JwtConfig { jwks_url: Some("https://other.example/keys".parse().unwrap()), ..jwt_config() };
    let config = AuthConfig { jwt: OneOrMany(vec![elsewhere]), ..with_keys(AnonymousAccess::Always) };
    let mut other = Authenticator::new(&config, Some(issuer.clone())).await.unwrap();
    other.keep_keys_of(&before);
    assert!(present(&other, &token).await.is_err(), "keys of another address");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_key_ends_also_for_tokens_seen_before() {
    let pair = rsa("r");
    let issuer = Issuer::publishing(&[pair.public()]);
    let authenticator = trusting(&issuer).await;
    let token = pair.sign(&claims(json!({})));
    let (first, again) =
        (present(&authenticator, &token).await.unwrap(), present(&authenticator, &token).await.unwrap());
    assert!(Arc::ptr_eq(&first, &again), "remembered");

    issuer.publish(&[rotated("other").public()]);
    tokio::time::advance(Duration::from_secs(16 * 60)).await;
    assert!(present(&authenticator, &token).await.is_ok(), "fetched in the background");
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(present(&authenticator, &token).await.is_err());
    assert_eq!(issuer.fetches(), 2);
}

#[tokio::test]
async fn a_key_file_is_read_at_once() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("keys.json");
    let pair = ec("e");
    let config = || {
        let jwt = JwtConfig { jwks_url: None, jwks_file: Some(file.clone()), ..jwt_config() };
        AuthConfig { jwt: OneOrMany(vec![jwt]), ..AuthConfig::default() }
    };
    for text in [None, Some("{"), Some("{\"keys\": []}"), Some("{\"keys\": [{\"kty\": \"oct\", \"k\": \"AA\"}]}")] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let errors = Authenticator::new(&config(), None).await.unwrap_err();
        assert_eq!(errors[0].place, "auth.jwt.jwks_file", "{text:?}");
    }
    std::fs::write(&file, key_set(&[pair.public()])).unwrap();
    let authenticator = Authenticator::new(&config(), None).await.unwrap();
    assert!(present(&authenticator, &pair.sign(&claims(json!({})))).await.is_ok());
    assert!(present(&authenticator, "some-api-key").await.is_err());
}
