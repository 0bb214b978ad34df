//! Clients that send malformed HTTP, or none.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::app::TestApp;

async fn connect(app: &TestApp) -> TcpStream {
    TcpStream::connect(app.url.trim_start_matches("http://")).await.unwrap()
}

/// Everything the server sends until it closes the connection.
async fn exchange(app: &TestApp, sent: &[u8]) -> String {
    let mut stream = connect(app).await;
    stream.write_all(sent).await.unwrap();
    let mut answer = Vec::new();
    let closed = timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    // What was sent and never read makes the end a reset.
    assert!(closed.is_ok(), "still open: {answer:?}");
    answer
}

#[tokio::test]
async fn a_malformed_http_request_gets_an_error() {
    let app = TestApp::start().await;
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(600_000));
    let cases = [
        ("GET / HTTP/9.9\r\nhost: localhost\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: localhost\r\nx : y\r\n\r\n", "HTTP/1.1 400"),
        (long.as_str(), "HTTP/1.1 431"),
        (
            "POST /tools/echo/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 3\r\nconnection: close\r\n\r\n{}{trailing",
            "HTTP/1.1 400",
        ),
    ];
    for (sent, expected) in cases {
        let answer = exchange(&app, sent.as_bytes()).await;
        assert!(answer.starts_with(expected), "{sent:.60}: {answer:?}");
    }
}

#[tokio::test]
async fn a_silent_or_slow_client_is_disconnected() {
    let app = TestApp::with("server: {read_timeout_seconds: 1}").await;
    for sent in ["", "PRI * HTTP", "GET", "GET / HTTP/1.1\r\nhost: local"] {
        exchange(&app, sent.as_bytes()).await;
    }
}

#[tokio::test]
async fn duplicates_of_security_relevant_headers_are_refused() {
    let app = TestApp::start().await;
    for twice in ["host: localhost\r\nhost: evil.test", "host: localhost\r\nidempotency-key: a\r\nidempotency-key: b"] {
        let sent = format!(
            "POST /tools/echo/execute HTTP/1.1\r\n{twice}\r\ncontent-type: application/json\r\n\
             content-length: 2\r\nconnection: close\r\n\r\n{{}}"
        );
        let answer = exchange(&app, sent.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("duplicate `"), "{twice}: {answer}");
    }
}
