use std::future::ready;

use axum::Router;
use axum::routing::get;
use http_body_util::Empty;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;
use crate::body::BodyMemory;
use crate::client_address::PublicAddress;
use sekisho_config::ServerConfig;

fn routes() -> RequestGuard {
    let slow = async || {
        sleep(Duration::from_secs(600)).await;
        "slow"
    };
    let config = ServerConfig {
        listen: "192.0.2.200:80".parse().expect("an address"),
        trusted_proxies: vec!["192.0.2.100".into()],
        ..ServerConfig::default()
    };
    let memory = Arc::new(BodyMemory::new(&config));
    let address = PublicAddress::new(&config, config.listen);
    RequestGuard::new(Router::new().route("/healthz", get("ok")).route("/slow", get(slow)), address, memory)
}

fn peer(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), 5_000)
}

fn connections(max: u64) -> Connections {
    Connections::new(max, Duration::from_secs(15), CancellationToken::new())
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://gateway.test{path}")).body(Empty::new()).expect("a request")
}

/// The status of one request over a new connection; `None` if it was closed.
pub async fn status(connections: &Connections, peer: SocketAddr, path: &str) -> Option<StatusCode> {
    let (client, server) = duplex(1 << 16);
    connections.serve(ready(Ok(server)), peer, &routes());
    let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "gateway.test").body(Empty::<Bytes>::new()).expect("a request");
    Some(sender.send_request(request).await.ok()?.status())
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_only_answers_pings_ends() {
    let connections = connections(1);
    let (client, server) = duplex(1 << 16);
    connections.serve(ready(Ok(server)), peer("192.0.2.1"), &routes());
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(10)).keep_alive_while_idle(true);
    let (mut sender, connection) = http.handshake(TokioIo::new(client)).await.expect("a connection");
    let connection = tokio::spawn(connection);
    let began = Instant::now();
    // Its request takes longer than it may be idle.
    let answer = sender.send_request(request("/slow")).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(began.elapsed().as_secs(), 600);
    drop(answer);
    connection.await.expect("no panic").expect("ended in order");
    let idle = began.elapsed() - Duration::from_secs(600);
    assert!(IDLE_TIMEOUT <= idle && idle <= 2 * IDLE_TIMEOUT, "{idle:?}");
    connections.tasks.close();
    connections.tasks.wait().await;
    assert_eq!(connections.slots.used(), 0);
}

/// A frame of HTTP/2 of the first stream.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short one");
    [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
}

/// A head may come in any number of frames, which hyper waits for without a limit.
#[tokio::test(start_paused = true)]
async fn a_head_over_http_2_that_does_not_end_closes_the_connection() {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let second = Duration::from_secs(1);
    for further_frames in [false, true] {
        let connections = connections(1);
        let (mut client, server) = duplex(1 << 16);
        connections.serve(ready(Ok(server)), peer("192.0.2.1"), &routes());
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("open");
        client.write_all(&SETTINGS).await.expect("open");
        sleep(second * 10).await;
        let began = Instant::now();
        // The method, `GET`; the flags lack the end of the head.
        client.write_all(&frame(1, 1, &[0x82])).await.expect("open");
        if further_frames {
            sleep(second * 10).await;
            client.write_all(&frame(9, 0, &[0x86])).await.expect("open");
        }
        client.read_to_end(&mut Vec::new()).await.expect("closed in order");
        let (open, least) = (began.elapsed(), second * 15);
        assert!(least <= open && open < least + second, "{open:?}");
        assert_eq!(connections.slots.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_cannot_take_all_connections_nor_hide_the_probes() {
    let connections = connections(8);
    let (flood, other) = (peer("2001:db8::1"), peer("192.0.2.1"));
    assert_eq!(status(&connections, other, "/healthz").await, Some(StatusCode::OK));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.slots.used(), 0);
    let mut clients = Vec::new();
    for n in 0_u32..8 {
        let (client, server) = duplex(1 << 10);
        // Addresses of one network are one peer.
        connections.serve(ready(Ok(server)), peer(&format!("2001:db8::{n}")), &routes());
        clients.push(client);
    }
    assert_eq!((connections.slots.used(), connections.probes.used()), (6, 2));
    assert_eq!(status(&connections, flood, "/slow").await, Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(status(&connections, flood, "/healthz").await, Some(StatusCode::OK));
    assert_eq!(status(&connections, other, "/slow").await, Some(StatusCode::OK));
    // Probes end by themselves.
    sleep(PROBE_TIMEOUT + CLOSE_TIMEOUT).await;
    assert_eq!(connections.probes.used(), 0);
}

/// Its connections carry the requests of many clients.
#[tokio::test(start_paused = true)]
async fn a_trusted_proxy_is_given_more_than_the_share_of_one_peer() {
    let connections = connections(8);
    assert_eq!(status(&connections, peer("192.0.2.1"), "/healthz").await, Some(StatusCode::OK));
    sleep(Duration::from_secs(1)).await;
    let mut clients = Vec::new();
    for port in 0..8 {
        let (client, server) = duplex(1 << 10);
        connections.serve(ready(Ok(server)), SocketAddr::from(([192, 0, 2, 100], port)), &routes());
        clients.push(client);
    }
    assert_eq!((connections.slots.used(), connections.probes.used()), (8, 0));
}

/// The status of a request over HTTP/1.1, and the answer's header about the connection.
async fn asked(sender: &mut http1::SendRequest<Empty<Bytes>>) -> (StatusCode, Option<HeaderValue>) {
    let request = Request::get("/healthz").header("host", "gateway.test").body(Empty::new()).expect("a request");
    sender.ready().await.expect("the connection is open");
    let (head, body) = sender.send_request(request).await.expect("an answer").into_parts();
    body.collect().await.expect("the whole answer");
    (head.status, head.headers.get(CONNECTION).cloned())
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_gateway_that_leaves_are_answered_and_open_other_connections() {
    let connections = connections(8);
    let open = || {
        let (client, server) = duplex(1 << 16);
        connections.serve(ready(Ok(server)), peer("192.0.2.1"), &routes());
        TokioIo::new(client)
    };
    let (mut older, connection) = http1::handshake(open()).await.expect("a connection");
    let older_ended = tokio::spawn(connection);
    let (mut newer, connection) = http2::handshake(TokioExecutor::new(), open()).await.expect("a connection");
    let newer_ended = tokio::spawn(connection);
    assert_eq!(asked(&mut older).await, (StatusCode::OK, None));
    let running = tokio::spawn(newer.send_request(request("/slow")));
    sleep(Duration::from_secs(1)).await;
    connections.leaving.cancel();
    sleep(Duration::from_secs(1)).await;
    let close = Some(HeaderValue::from_static("close"));
    assert_eq!(asked(&mut older).await, (StatusCode::OK, close.clone()));
    older_ended.await.expect("no panic").expect("closed after the answer");
    assert_eq!(running.await.expect("no panic").expect("an answer").status(), StatusCode::OK);
    newer_ended.await.expect("no panic").expect("closed in order");
    let (mut later, connection) = http1::handshake(open()).await.expect("it still listens");
    tokio::spawn(connection);
    assert_eq!(asked(&mut later).await, (StatusCode::OK, close));
}

#[tokio::test(start_paused = true)]
async fn on_shutdown_requests_are_finished_until_the_end_of_the_grace_period() {
    for (grace, is_finished) in [(900, true), (60, false)] {
        let connections = connections(8);
        let (client, server) = duplex(1 << 16);
        connections.serve(ready(Ok(server)), peer("192.0.2.1"), &routes());
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.expect("a connection");
        tokio::spawn(connection);
        let answer = tokio::spawn(sender.send_request(request("/slow")));
        sleep(Duration::from_secs(1)).await;
        connections.finish(Instant::now() + Duration::from_secs(grace)).await;
        assert_eq!(answer.await.expect("no panic").is_ok(), is_finished, "{grace} s");
    }
}
