use tokio::time::Instant;

use super::*;
use sekisho_config::OutboundConfig;

fn sign_in(server: &str) -> Arc<SignIn> {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let url = Url::parse(server).unwrap();
    SignIn::new("far".into(), url, McpSignIn::default(), outbound, Arc::new(DomainList::parse(&[]).unwrap()))
}

fn callback(state: &str) -> Callback {
    Callback { state: state.to_owned(), issuer: None, outcome: Err("access_denied".to_owned()) }
}

#[test]
fn nothing_of_a_sign_in_is_less_safe_than_the_server() {
    for (server, address, permitted) in [
        ("https://mcp.example.com/mcp", "https://login.example.com/token", true),
        ("https://mcp.example.com/mcp", "http://login.example.com/token", false),
        ("http://localhost:1/mcp", "http://localhost:2/token", true),
        ("http://localhost:1/mcp", "https://login.example.com/token", true),
        ("http://localhost:1/mcp", "file:///etc/passwd", false),
        ("https://mcp.example.com/mcp", "javascript:alert(1)", false),
    ] {
        let address = Url::parse(address).unwrap();
        assert_eq!(sign_in(server).client.permits(&address), permitted, "{server} {address}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_has_ten_minutes() {
    let sign_in = sign_in("https://mcp.example.com/mcp");
    for (after, awaited) in [(599, true), (601, false)] {
        let client: Arc<dyn rmcp::transport::auth::OAuthHttpClient> = Arc::clone(&sign_in.client) as _;
        let manager = AuthorizationManager::new_with_oauth_http_client(sign_in.url.as_str(), client).await.unwrap();
        sign_in.state.lock().pending = Some(Pending::new(Arc::new(manager), "the-state", Instant::now()));
        tokio::time::advance(Duration::from_secs(after)).await;
        assert!(matches!(sign_in.finish(callback("another")).await, Err(SignInError::NotPending)));
        let ended = sign_in.finish(callback("the-state")).await.unwrap_err();
        assert_eq!(matches!(ended, SignInError::Failed { .. }), awaited, "{ended}");
        assert!(matches!(sign_in.finish(callback("the-state")).await, Err(SignInError::NotPending)), "once");
    }
}

#[test]
fn a_requirement_during_connect_is_dropped_once_connected() {
    let sign_in = sign_in("https://mcp.example.com/mcp");
    let refuse = || sign_in.handle(&Method::POST, StatusCode::UNAUTHORIZED, &HeaderMap::new(), None).unwrap_err();
    sign_in.connects();
    assert!(sign_in.requirement_since_connecting().is_none());
    assert_eq!(
        (refuse().code(), sign_in.requirement_since_connecting()),
        (ErrorCode::ToolError, sign_in.unmet_requirement())
    );
    sign_in.is_authorized();
    assert_eq!(sign_in.unmet_requirement(), None);
    // The refusal of a call stays: the server accepts other requests without a sign-in.
    refuse();
    sign_in.connects();
    sign_in.is_authorized();
    assert!(sign_in.unmet_requirement().is_some());
    // Not each refusal is about a sign-in.
    for (method, status) in [(Method::POST, StatusCode::FORBIDDEN), (Method::GET, StatusCode::NOT_FOUND)] {
        assert!(sign_in.handle(&method, status, &HeaderMap::new(), None).is_ok());
    }
}
