//! The attacks on proxies of OAuth that were reported in 2025, and attacks of RFC 9700, each as a row that is refused.

use super::*;

#[tokio::test]
async fn a_request_with_a_wrong_client_or_address_shows_a_page_and_sends_nobody_anywhere() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    for (attack, changes) in [
        ("unknown client", &[("client_id", "other")][..]),
        ("redirect swap", &[("redirect_uri", "https://evil.example/cb")]),
        ("another path", &[("redirect_uri", "http://127.0.0.1:33418/cb/../evil")]),
        ("another host behind loopback", &[("redirect_uri", "http://127.0.0.1.evil.example:33418/cb")]),
        ("a script", &[("redirect_uri", "javascript:alert(1)")]),
        ("no address", &[("redirect_uri", "")]),
        ("a document in this network", &[("client_id", "https://127.0.0.1/client.json")]),
        ("a document of the cloud", &[("client_id", "https://169.254.169.254/latest/meta-data")]),
        ("a document at a name of this machine", &[("client_id", "https://localhost/client.json")]),
    ] {
        let refused = fixture.asked(&client, changes).await;
        assert!(matches!(refused, Err(AuthorizeRefusal::Page(_))), "{attack}: {refused:?}");
    }
}

#[tokio::test]
async fn a_wrong_request_of_a_known_client_is_told_to_it_without_a_code() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    for (attack, changes, code) in [
        ("PKCE downgrade", &[("code_challenge_method", "plain")][..], "invalid_request"),
        ("PKCE left out", &[("code_challenge", ""), ("code_challenge_method", "")], "invalid_request"),
        ("implicit flow", &[("response_type", "token")], "unsupported_response_type"),
        ("token for another server", &[("resource", "https://other.example/mcp")], "invalid_target"),
    ] {
        let Err(AuthorizeRefusal::Client(url)) = fixture.asked(&client, changes).await else { panic!("{attack}") };
        let answer = query(&url);
        assert_eq!((&*answer["error"], &*answer["iss"], answer.get("code")), (code, ISSUER, None), "{attack}");
        assert!(url.as_str().starts_with(REDIRECT), "{attack}: {url}");
    }
}

#[tokio::test]
async fn a_wrong_request_leads_to_no_server_that_a_client_has_registered() {
    let fixture = Fixture::new().await;
    let address = ("redirect_uri", "https://evil.example/cb");
    let client = fixture.server().register(json!({"redirect_uris": [address.1]}), "a network").await.unwrap();
    let client = text(&client, "client_id");
    for wrong in [("response_type", "nonsense"), ("code_challenge", ""), ("resource", "https://other.example/mcp")] {
        let refused = fixture.asked(client, &[address, wrong]).await;
        assert!(matches!(refused, Err(AuthorizeRefusal::Page(_))), "{wrong:?}: {refused:?}");
    }
    assert!(fixture.asked(client, &[address]).await.is_ok(), "the page of consent");
}

#[tokio::test]
async fn consent_is_given_once_for_a_request_by_the_browser_that_was_asked() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let asked = fixture.asked(&client, &[]).await.unwrap();
    let other = fixture.asked(&client, &[]).await.unwrap();
    let (own, server) = (asked.cookie.clone(), fixture.server());
    // Another browser, which has its own page, answers the page of the first: the form was sent by another site, or by who was asked elsewhere.
    let of_other = |id: &str| (id == other.cookie.id).then(|| other.cookie.text.clone());
    assert!(server.consent(&asked.form, true, of_other).await.is_err(), "consent skip: no cookie of this request");
    let mixed = |_: &str| Some(other.cookie.text.clone());
    assert!(server.consent(&asked.form, true, mixed).await.is_err(), "consent skip: the cookie of another request");
    for forged in ["", "x", &asked.form[1..], &format!("{}A", asked.form)] {
        assert!(server.consent(forged, true, |_| Some(own.text.clone())).await.is_err(), "{forged}");
    }
    let denied = server.consent(&asked.form, false, |_| Some(own.text.clone())).await.unwrap();
    assert_eq!(query(&denied.url)["error"], "access_denied");
    assert!(denied.url.as_str().starts_with(REDIRECT), "{}", denied.url);
    // A page of consent is not the proof of a sign-in at the provider.
    let reply = ProviderReply {
        state: format!("sekisho-broker.{}.x", own.id),
        code: Some(Secret::new("c")),
        ..ProviderReply::default()
    };
    assert!(server.finish(reply, |_| Some(asked.form.clone())).await.is_err());
}

#[tokio::test]
async fn a_sign_in_ends_in_its_browser_with_its_state_and_its_provider() {
    let fixture = Fixture::new().await;
    let (client, server) = (fixture.client().await, fixture.server());
    let (browser, url) = fixture.at_provider(&client).await;
    let (elsewhere, of_elsewhere) = fixture.at_provider(&client).await;
    let nobody = |_: &str| None;
    // The address at the provider was sent to somebody who is signed in there.
    assert!(server.finish(fixture.reply(&url), nobody).await.is_err(), "no cookie");
    assert!(server.finish(fixture.reply(&url), |id| elsewhere.cookie(id)).await.is_err(), "another browser");
    let reply = ProviderReply { state: query(&of_elsewhere)["state"].clone(), ..fixture.reply(&url) };
    assert!(server.finish(reply, |id| browser.cookie(id)).await.is_err(), "the state of another sign-in");
    for (attack, reply) in [
        ("mix-up", ProviderReply { iss: Some("https://evil.example".into()), ..fixture.reply(&url) }),
        ("mix-up without a name", ProviderReply { iss: None, ..fixture.reply(&url) }),
        ("code injection", ProviderReply { code: Some(Secret::new("of another sign-in")), ..fixture.reply(&url) }),
        ("no code", ProviderReply { code: None, ..fixture.reply(&url) }),
        ("refused", ProviderReply { error: Some("access_denied".into()), ..fixture.reply(&url) }),
    ] {
        let sent = server.finish(reply, |id| browser.cookie(id)).await.unwrap();
        let answer = query(&sent.url);
        assert_eq!((&*answer["error"], answer.get("code")), ("access_denied", None), "{attack}");
    }
    assert_eq!(fixture.broker.sessions(None, "", 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_code_is_of_one_client_one_address_one_verifier_and_one_use() {
    let fixture = Fixture::new().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for (attack, changes) in [
        ("the code of another client", &[("client_id", &*other)][..]),
        ("another address", &[("redirect_uri", "http://127.0.0.1:33418/other")]),
        ("another verifier", &[("code_verifier", "aBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")]),
        ("another resource", &[("resource", "https://gateway.example/mcp/finance")]),
        ("a resource elsewhere", &[("resource", "https://evil.example/mcp")]),
        ("a guessed code", &[("code", "AAAA")]),
    ] {
        let code = fixture.code(&client).await;
        let refused = fixture.exchange(&client, &code, changes).await.unwrap_err().error;
        let codes = [OAuthErrorCode::InvalidGrant, OAuthErrorCode::InvalidTarget];
        assert!(codes.contains(&refused.code), "{attack}: {refused:?}");
        let again = fixture.exchange(&client, &code, &[]).await;
        let was_presented = attack != "a guessed code";
        assert_eq!(again.is_err(), was_presented, "{attack}: it counts no more");
    }
    let code = fixture.code(&client).await;
    let tokens = fixture.exchange(&client, &code, &[("resource", "https://gateway.example/mcp")]).await.unwrap();
    let replayed = fixture.exchange(&client, &code, &[]).await.unwrap_err();
    assert!(replayed.event.is_some_and(|event| !event.is_start), "the session of a replayed code ends");
    assert!(fixture.refresh(&client, text(&tokens, "refresh_token")).await.is_err());
}

#[tokio::test]
async fn one_network_does_not_register_without_end() {
    let fixture = Fixture::new().await;
    let metadata = json!({"redirect_uris": [REDIRECT]});
    for _ in 0..100 {
        fixture.server().register(metadata.clone(), "flood").await.unwrap();
    }
    let refused = fixture.server().register(metadata.clone(), "flood").await.unwrap_err();
    assert_eq!((refused.code, refused.retry_after), (OAuthErrorCode::TemporarilyUnavailable, Some(3_600)));
    assert!(fixture.server().register(metadata, "another network").await.is_ok());
}
