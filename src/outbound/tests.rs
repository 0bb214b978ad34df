//! The client against real servers on loopback.

mod certified;
mod kept;
mod proxied;
mod reach;
mod sent;

use std::convert::Infallible;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use futures_util::future::join_all;
use futures_util::stream;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::test_server::serve;
use super::*;
use sekisho_core::call::SentFlag;
use sekisho_core::caller::Owner;
use sekisho_core::error::{Blame, ErrorCode};

/// The maximum duration of every test; nothing should come near it.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn loopback() -> OutboundConfig {
    OutboundConfig { allow_networks: vec!["127.0.0.1".into()], ..OutboundConfig::default() }
}

fn outbound() -> Outbound {
    Outbound::new(&loopback()).unwrap()
}

/// A client for which the names `*.test` resolve to `addresses`, one for each look-up.
fn outbound_resolving(config: &OutboundConfig, addresses: &'static [&'static str]) -> Outbound {
    let turn = AtomicUsize::new(0);
    let lookup: Lookup = Box::new(move |_| {
        let address: IpAddr = addresses[turn.fetch_add(1, Ordering::SeqCst) % addresses.len()].parse().unwrap();
        Box::pin(async move { Ok(vec![address]) })
    });
    Outbound::with(config, lookup, &client::tls(&[]).unwrap()).unwrap()
}

fn url(address: SocketAddr, path: &str) -> Url {
    Url::parse(&format!("http://{address}{path}")).unwrap()
}

fn named(host: &str, address: SocketAddr, path: &str) -> Url {
    Url::parse(&format!("http://{host}:{}{path}", address.port())).unwrap()
}

fn request(url: Url) -> OutboundRequest<'static> {
    OutboundRequest { max_redirects: 5, ..OutboundRequest::get(url, Deadline::after(TEST_TIMEOUT)) }
}

/// The request, sent for a call.
fn for_call(request: OutboundRequest<'static>) -> (OutboundRequest<'static>, SentFlag) {
    let call = OnBehalf {
        owner: Owner::of_address([192, 0, 2, 1].into()),
        sent: SentFlag::default(),
        queueing: Arc::default(),
    };
    let sent = call.sent.clone();
    (OutboundRequest { on_behalf: Some(call), ..request }, sent)
}

#[tokio::test]
async fn an_answer_comes_back_whole_from_the_address_that_was_checked() {
    let address = serve(Router::new().route(
        "/",
        get(|headers: HeaderMap| async move {
            assert_eq!(headers["user-agent"], concat!("sekisho/", env!("CARGO_PKG_VERSION")));
            assert_eq!(headers["traceparent"], "00-0102030405060708090a0b0c0d0e0f10-a1a2a3a4a5a6a7a8-01");
            assert_eq!(headers["tracestate"], "vendor=1");
            assert!(!headers.contains_key("referer"));
            "hello"
        }),
    ))
    .await;
    let trace = TraceParent {
        trace_id: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        span_id: [0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8],
        flags: 1,
        state: Some("vendor=1".into()),
    };
    let response = outbound().send(OutboundRequest { trace: Some(trace), ..request(url(address, "/")) }).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"hello"[..]));
    assert_eq!(response.remote_addr, Some(address));
    assert!(!response.cut);
}

#[tokio::test]
async fn what_a_server_may_send_is_what_can_be_read() {
    let reported = |headers: HeaderMap| async move {
        let of = |name: &str| {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(", ")
        };
        format!("{} | {}", of("accept"), of("accept-encoding"))
    };
    let address = serve(Router::new().route("/", get(reported))).await;
    for (header, expected) in [
        (None, "*/* | gzip,deflate,br"),
        (Some(("accept", "text/html")), "text/html | gzip,deflate,br"),
        (Some(("accept-encoding", "zstd")), "*/* | gzip,deflate,br"),
        // A part of something compressed cannot be decompressed.
        (Some(("range", "bytes=0-9")), "*/* | identity"),
    ] {
        let mut asked = request(url(address, "/"));
        if let Some((name, value)) = header {
            asked.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(outbound().send(asked).await.unwrap().body, expected);
    }
}

#[tokio::test]
async fn the_response_to_head_has_no_body_despite_its_content_length() {
    for encoding in ["identity", "gzip", "zstd"] {
        let answer = move || async move { ([("content-encoding", encoding)], [b'x'; 5_000]) };
        let address = serve(Router::new().route("/", get(answer))).await;
        let head = OutboundRequest { method: Method::HEAD, max_response_bytes: 10, ..request(url(address, "/")) };
        let answer = outbound().send(head).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0), "{encoding}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_shake_hands_is_given_up_before_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let outbound = Outbound::new(&OutboundConfig { connect_timeout_seconds: 0.1, ..loopback() }).unwrap();
    let asked = request(Url::parse(&format!("https://{address}/")).unwrap());
    let error = outbound.send(asked).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Network));
    assert_eq!(error.message(), "no connection to 127.0.0.1: it did not accept one in time");
    assert!(outbound.slots.idle());
}

/// A body that never ends, and sets a flag when it is dropped.
fn endless(gone: Arc<AtomicBool>) -> Body {
    struct Tell(Arc<AtomicBool>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    Body::from_stream(stream::unfold(Tell(gone), |tell| async move {
        tokio::task::yield_now().await;
        Some((Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 16_384])), tell))
    }))
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn an_endless_body_is_read_to_the_cap_and_no_further() {
    let gone = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&gone);
    let address = serve(Router::new().route("/", get(|| async move { endless(state) }))).await;
    let outbound = outbound();
    let capped = OutboundRequest { max_response_bytes: 100_000, ..request(url(address, "/")) };
    let error = outbound.send(capped.clone()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::OutputTooLarge, Blame::Call));
    until("the connection must be closed", || gone.load(Ordering::SeqCst)).await;
    let cut = outbound.send(OutboundRequest { too_long: TooLong::Cut, ..capped }).await.unwrap();
    assert_eq!((cut.body.len(), cut.cut), (100_000, true));
    assert!(outbound.slots.idle());
}

#[tokio::test]
async fn a_body_as_long_as_the_cap_is_whole() {
    let address = serve(Router::new().route("/", get(|| async { "12345" }))).await;
    for (cap, expected) in [(5, None), (4, Some(ErrorCode::OutputTooLarge))] {
        let capped = OutboundRequest { max_response_bytes: cap, ..request(url(address, "/")) };
        assert_eq!(outbound().send(capped).await.err().map(|error| error.code()), expected);
    }
}

#[tokio::test]
async fn a_compressed_bomb_stops_at_the_cap() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        bomb.write_all(&[0; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 100_000, "small on the wire");
    let address = serve(Router::new().route("/", get(|| async { ([("content-encoding", "gzip")], bomb) }))).await;
    let capped = OutboundRequest { max_response_bytes: 1 << 20, ..request(url(address, "/")) };
    let error = outbound().send(capped.clone()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutputTooLarge);
    let cut = outbound().send(OutboundRequest { too_long: TooLong::Cut, ..capped }).await.unwrap();
    assert_eq!(cut.body.len(), 1 << 20);
}

#[tokio::test]
async fn every_phase_of_a_slow_upstream_ends_at_the_deadline() {
    let slow_head = Router::new().route("/head", get(|| async { std::future::pending::<&str>().await }));
    let address = serve(slow_head.route(
        "/body",
        get(|| async {
            Body::from_stream(stream::once(async { std::future::pending::<Result<Bytes, Infallible>>().await }))
        }),
    ))
    .await;
    let outbound = outbound();
    for path in ["/head", "/body"] {
        let deadline = Deadline::after(Duration::from_millis(100));
        let error = outbound.send(OutboundRequest { deadline, ..request(url(address, path)) }).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (ErrorCode::Timeout, Blame::Network), "{path}");
        assert!(outbound.slots.idle(), "{path}");
    }
}

#[tokio::test]
async fn a_request_dropped_half_way_closes_its_connection_and_gives_its_slot_back() {
    let gone = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&gone);
    let address = serve(Router::new().route("/", get(|| async move { endless(state) }))).await;
    let outbound = outbound();
    let sending = outbound.send(OutboundRequest { max_response_bytes: usize::MAX, ..request(url(address, "/")) });
    assert!(tokio::time::timeout(Duration::from_millis(100), sending).await.is_err());
    until("the connection must be closed", || gone.load(Ordering::SeqCst)).await;
    assert!(outbound.slots.idle());
}

/// Counts the requests it holds at once.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<(usize, usize)>>);

impl Busy {
    fn router(&self) -> Router {
        async fn hold(State(busy): State<Busy>) -> &'static str {
            {
                let mut counts = busy.0.lock();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            busy.0.lock().0 -= 1;
            "done"
        }
        Router::new().route("/", get(hold)).with_state(self.clone())
    }

    fn most(&self) -> usize {
        self.0.lock().1
    }
}

#[tokio::test]
async fn no_more_than_ten_requests_to_an_origin_and_so_many_in_all_are_under_way() {
    let busy = Busy::default();
    let mut origins = Vec::new();
    for _ in 0..4 {
        origins.push(serve(busy.router()).await);
    }
    let outbound = Outbound::new(&OutboundConfig { max_connections: 25, ..loopback() }).unwrap();
    // Of as many callers: the last slot is for one that has none.
    let of_another = |turn: u8, origin| {
        let (request, _) = for_call(request(url(origin, "/")));
        let owner = Owner::of_address([192, 0, 2, turn].into());
        outbound
            .send(OutboundRequest { on_behalf: request.on_behalf.map(|call| OnBehalf { owner, ..call }), ..request })
    };
    let one = join_all((0..60).map(|turn| of_another(turn, origins[0]))).await;
    assert!(one.iter().all(Result::is_ok));
    assert_eq!(busy.most(), 10);
    let all = join_all((0..120).map(|turn| of_another(turn, origins[usize::from(turn % 4)]))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(busy.most(), 25);
    assert!(outbound.slots.idle());
}

#[tokio::test]
async fn waiting_for_a_slot_ends_at_the_deadline_too() {
    let address = serve(Router::new().route("/", get(|| async { std::future::pending::<&str>().await }))).await;
    let outbound = Outbound::new(&OutboundConfig { max_connections_per_origin: 1, ..loopback() }).unwrap();
    let deadline = Deadline::after(Duration::from_millis(100));
    let both =
        join_all([1, 2].map(|_| outbound.send(OutboundRequest { deadline, ..request(url(address, "/")) }))).await;
    let [upstream, waiting] = <[_; 2]>::try_from(both).unwrap().map(Result::unwrap_err);
    assert_eq!((upstream.code(), upstream.blame()), (ErrorCode::Timeout, Blame::Network));
    // It says nothing about the upstream.
    assert_eq!((waiting.code(), waiting.blame()), (ErrorCode::Overloaded, Blame::Call));
    assert!(outbound.slots.idle());
}

#[tokio::test]
async fn an_answer_that_is_read_as_it_arrives_holds_the_slot_of_its_call() {
    let address = serve(Router::new().route("/", get("fine"))).await;
    let outbound = Outbound::new(&OutboundConfig { max_connections_per_origin: 1, ..loopback() }).unwrap();
    let open = async |deadline| {
        let (request, _) = for_call(OutboundRequest { deadline, ..request(url(address, "/")) });
        outbound.open(request).await
    };
    let first = open(Deadline::after(TEST_TIMEOUT)).await.unwrap();
    let waiting = open(Deadline::after(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!((waiting.code(), waiting.blame()), (ErrorCode::Overloaded, Blame::Call));
    // Streams of no call have slots of their own.
    assert!(outbound.open(request(url(address, "/"))).await.is_ok());
    assert_eq!(first.whole().await.unwrap(), "fine");
    assert!(open(Deadline::after(TEST_TIMEOUT)).await.is_ok());
    assert!(outbound.slots.idle());
}

#[tokio::test]
async fn a_connection_that_fails_is_the_networks_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let broken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let half = broken.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = broken.accept().await.unwrap();
            let _ = socket.read(&mut [0; 1_024]).await;
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        }
    });
    let https = Url::parse(&format!("https://{half}/")).unwrap();
    for (target, message) in [
        (url(closed, "/"), "no connection to 127.0.0.1: it was refused; nothing listens at that port"),
        (https, "no connection to 127.0.0.1: the TLS handshake failed"),
        (url(half, "/?key=secret"), "the connection to 127.0.0.1 closed before the response was complete"),
    ] {
        let error = outbound().send(request(target)).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Network));
        assert_eq!(error.message(), message);
        let cause = error.cause().unwrap();
        assert!(!cause.contains("secret"), "{cause}");
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_decoded_is_the_upstreams_fault() {
    let address = serve(Router::new().route("/", get(|| async { ([("content-encoding", "gzip")], "no gzip") }))).await;
    let error = outbound().send(request(url(address, "/"))).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Upstream));
    assert_eq!(error.message(), "the response of 127.0.0.1 cannot be decoded");
}

#[tokio::test]
async fn an_answer_in_a_coding_that_was_not_asked_for_is_the_upstreams_fault() {
    for (sent, named) in [("zstd", "zstd"), ("gzip, gzip", "gzip, gzip")] {
        let answer = move || async move { ([("content-encoding", sent)], "(\u{b5}/\u{fd} ") };
        let address = serve(Router::new().route("/", get(answer))).await;
        let error = outbound().send(request(url(address, "/"))).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Upstream));
        let expected = format!("127.0.0.1 answered 200 in the content coding {named}, which was not asked for");
        assert_eq!(error.message(), expected);
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_the_networks_fault() {
    let lookup: Lookup = Box::new(|_| Box::pin(async { Err(std::io::Error::other("no such name")) }));
    let outbound = Outbound::with(&loopback(), lookup, &client::tls(&[]).unwrap()).unwrap();
    let error = outbound.send(request(Url::parse("http://missing.test/").unwrap())).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Network));
    assert_eq!(error.message(), "no connection to missing.test: its name cannot be resolved");
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    let network = OutboundConfig { allow_networks: vec!["lan".into()], ..OutboundConfig::default() };
    assert!(Outbound::new(&network).unwrap_err().to_string().contains("\"lan\" is not an address range"));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let timeout = OutboundConfig { connect_timeout_seconds: seconds, ..OutboundConfig::default() };
        assert!(Outbound::new(&timeout).unwrap_err().to_string().contains("connect_timeout_seconds"));
    }
}

#[test]
fn an_upstream_is_scheme_host_and_port() {
    for (url, expected) in [
        ("https://Example.com/a?b", "https://example.com:443"),
        ("http://example.com", "http://example.com:80"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ] {
        assert_eq!(&*upstream_of(&Url::parse(url).unwrap()).name, expected);
    }
}
