//! Refresh tokens: rotation, reuse, and the question to the provider; revocation and introspection.

use super::*;

/// The tokens of a session, and its client.
async fn signed_in(fixture: &Fixture) -> (String, Value) {
    let client = fixture.client().await;
    let tokens = fixture.exchange(&client, &fixture.code(&client).await, &[]).await.unwrap();
    (client, tokens)
}

#[tokio::test]
async fn a_refresh_token_is_used_once_and_its_reuse_ends_the_family() {
    let fixture = Fixture::new().await;
    let (client, first) = signed_in(&fixture).await;
    let (_, of_other) = signed_in(&fixture).await;
    let second = fixture.refresh(&client, text(&first, "refresh_token")).await.unwrap();
    let third = fixture.refresh(&client, text(&second, "refresh_token")).await.unwrap();
    assert!(fixture.caller(text(&third, "access_token")).await.is_ok());
    assert_ne!(text(&second, "refresh_token"), text(&first, "refresh_token"));
    let reused = fixture.refresh(&client, text(&first, "refresh_token")).await.unwrap_err();
    assert_eq!(reused.error.code, OAuthErrorCode::InvalidGrant);
    assert!(reused.event.unwrap().detail.contains("used twice"));
    assert!(fixture.refresh(&client, text(&third, "refresh_token")).await.is_err(), "the newest one too");
    let sessions = fixture.broker.sessions(None, "", 10).await.unwrap();
    assert_eq!(sessions.len(), 1, "another session goes on");
    assert_ne!(sessions[0].client, client);
    assert_ne!(text(&of_other, "refresh_token"), "");
}

#[tokio::test]
async fn a_refresh_token_is_of_its_client_and_a_guess_ends_no_session() {
    let fixture = Fixture::new().await;
    let (client, tokens) = signed_in(&fixture).await;
    let (other, token) = (fixture.client().await, text(&tokens, "refresh_token"));
    assert!(fixture.refresh(&other, token).await.is_err());
    let session = fixture.broker.sessions(None, "", 10).await.unwrap()[0].id.clone();
    for guess in ["", ".", "x", &format!("{session}.x"), &format!("x.{}", token.split_once('.').unwrap().1)] {
        assert!(fixture.refresh(&client, guess).await.is_err(), "{guess}");
    }
    assert!(fixture.refresh(&client, token).await.is_ok());
}

#[tokio::test]
async fn a_refresh_asks_the_provider_and_takes_over_its_answer() {
    let fixture = Fixture::new().await;
    let (client, first) = signed_in(&fixture).await;
    fixture.provider.change(|provider| provider.groups = Vec::new());
    let second = fixture.refresh(&client, text(&first, "refresh_token")).await.unwrap();
    let asked = fixture.provider.forms();
    assert_eq!(asked[1]["refresh_token"], "provider-refresh-1");
    let caller = fixture.caller(text(&second, "access_token")).await.unwrap();
    assert!(caller.has_role("user") && !caller.has_role("developer"), "the roles of now");
    // While the provider does not answer, the client tries again with the same token.
    fixture.provider.change(|provider| provider.failure = Some((503, "")));
    for _ in 0..2 {
        let refused = fixture.refresh(&client, text(&second, "refresh_token")).await.unwrap_err();
        assert_eq!((refused.error.code, refused.event), (OAuthErrorCode::TemporarilyUnavailable, None));
    }
    fixture.provider.change(|provider| provider.failure = Some((401, "invalid_client")));
    let refused = fixture.refresh(&client, text(&second, "refresh_token")).await.unwrap_err();
    assert_eq!(refused.error.code, OAuthErrorCode::TemporarilyUnavailable, "the gateway's own secret is wrong");
    fixture.provider.change(|provider| provider.failure = None);
    let third = fixture.refresh(&client, text(&second, "refresh_token")).await.unwrap();
    assert_eq!(fixture.provider.forms().last().unwrap()["refresh_token"], "provider-refresh-2");
    // A user who was removed there.
    fixture.provider.change(|provider| provider.failure = Some((400, "invalid_grant")));
    let refused = fixture.refresh(&client, text(&third, "refresh_token")).await.unwrap_err();
    assert_eq!(refused.error.code, OAuthErrorCode::InvalidGrant);
    assert!(refused.event.unwrap().detail.contains("refused its user"));
    assert_eq!(fixture.broker.sessions(None, "", 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_session_stays_with_its_user() {
    let fixture = Fixture::new().await;
    let (client, tokens) = signed_in(&fixture).await;
    fixture.provider.change(|provider| provider.subject = "bob".to_owned());
    let refused = fixture.refresh(&client, text(&tokens, "refresh_token")).await.unwrap_err();
    assert_eq!(refused.error.code, OAuthErrorCode::InvalidGrant);
}

#[tokio::test]
async fn a_token_is_revoked_by_its_client_and_shown_to_its_tenant() {
    let fixture = Fixture::new().await;
    let (client, tokens) = signed_in(&fixture).await;
    let server = fixture.server();
    let state =
        async |token: &str, tenant: Option<&str>| server.introspect(pairs(&[("token", token)]), tenant).await.unwrap();
    for name in ["access_token", "refresh_token"] {
        let token = text(&tokens, name);
        let active = state(token, Some("acme")).await;
        assert_eq!(
            (&active["active"], text(&active, "client_id"), text(&active, "sub")),
            (&json!(true), &*client, "ann")
        );
        assert_eq!(state(token, Some("other")).await, json!({"active": false}), "{name}: of another tenant");
        assert_eq!(state(&format!("{token}x"), None).await, json!({"active": false}));
    }
    let (access, refresh) = (text(&tokens, "access_token"), text(&tokens, "refresh_token"));
    let by_other = server.revoke(pairs(&[("token", refresh), ("client_id", "other")])).await.unwrap();
    assert_eq!(by_other, None);
    assert!(server.revoke(pairs(&[("token", refresh)])).await.is_err(), "a public client names itself");
    assert!(fixture.caller(access).await.is_ok());
    let own = [("token", refresh), ("client_id", &*client)];
    assert!(server.revoke(pairs(&own)).await.unwrap().is_some());
    assert_eq!(server.revoke(pairs(&own)).await.unwrap(), None, "an unknown token is no error");
    assert_eq!(state(access, None).await, json!({"active": false}), "with its session");
    assert!(fixture.caller(access).await.is_err());
    assert!(fixture.refresh(&client, refresh).await.is_err());
}

#[tokio::test]
async fn an_administrator_ends_a_session_of_the_own_tenant() {
    let fixture = Fixture::new().await;
    let (client, tokens) = signed_in(&fixture).await;
    let id = fixture.broker.sessions(None, "", 10).await.unwrap()[0].id.clone();
    assert_eq!(fixture.broker.end_session(&id, Some("other")).await.unwrap(), None);
    assert!(fixture.broker.end_session(&id, Some("acme")).await.unwrap().is_some());
    assert!(fixture.refresh(&client, text(&tokens, "refresh_token")).await.is_err());
    assert!(fixture.caller(text(&tokens, "access_token")).await.is_err());
}

#[tokio::test]
async fn a_refresh_is_for_this_gateway() {
    let fixture = Fixture::new().await;
    let (client, tokens) = signed_in(&fixture).await;
    let token = text(&tokens, "refresh_token");
    let fields = [("grant_type", "refresh_token"), ("client_id", &*client), ("refresh_token", token)];
    let with = |resource| [&fields[..], &[("resource", resource)]].concat();
    let refused = fixture.tokens(&with("https://other.example/mcp")).await.unwrap_err();
    assert_eq!((refused.error.code, refused.event), (OAuthErrorCode::InvalidTarget, None));
    assert!(fixture.tokens(&with("https://gateway.example/mcp")).await.is_ok(), "the token was not used up");
}

#[tokio::test]
async fn a_session_is_of_the_provider_where_its_user_signed_in() {
    let (mut fixture, other) = (Fixture::new().await, FakeProvider::start().await);
    let (client, tokens) = signed_in(&fixture).await;
    fixture.config.auth.broker.as_mut().unwrap().issuer = other.issuer();
    assert!(fixture.caller(text(&tokens, "access_token")).await.is_err(), "its subject is somebody else there");
    let refused = fixture.refresh(&client, text(&tokens, "refresh_token")).await.unwrap_err();
    assert_eq!(refused.error.code, OAuthErrorCode::InvalidGrant);
    assert!(other.forms().is_empty(), "it does not get the refresh token of the first");
}
