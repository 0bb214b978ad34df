//! When a request counts as sent: not before a connection begins to write it.

use axum::routing::any;
use tokio::time::timeout;

use super::*;

const A_MOMENT: Duration = Duration::from_millis(150);

/// Accepts connections and sends nothing.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut sockets = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            sockets.push(socket);
        }
    });
    address
}

#[tokio::test]
async fn what_is_refused_or_does_not_connect_was_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let list: &'static DomainList = Box::leak(Box::new(DomainList::parse(&["example.com".into()]).unwrap()));
    let never_resolved: Lookup = Box::new(|_| Box::pin(std::future::pending()));
    let lost = Outbound::with(&loopback(), never_resolved, &client::tls(&[]).unwrap()).unwrap();
    let silent = silent().await;
    let encrypted = Url::parse(&format!("https://{silent}/")).unwrap();
    for (what, outbound, asked) in [
        ("a guarded address", Outbound::new(&OutboundConfig::default()).unwrap(), request(url(silent, "/"))),
        (
            "a guarded name",
            outbound_resolving(&OutboundConfig::default(), &["127.0.0.1"]),
            request(named("a.test", silent, "/")),
        ),
        ("no allowed host", outbound(), OutboundRequest { allowed: list, ..request(url(silent, "/")) }),
        ("another scheme", outbound(), request(Url::parse("ftp://127.0.0.1/").unwrap())),
        ("a closed port", outbound(), request(url(closed, "/"))),
        ("a name that is being looked up", lost, request(named("b.test", silent, "/"))),
        ("a handshake that does not end", outbound(), request(encrypted)),
    ] {
        let (asked, sent) = for_call(asked);
        let outcome = timeout(A_MOMENT, outbound.send(asked.clone())).await;
        assert!(!matches!(outcome, Ok(Ok(_))), "{what}");
        assert!(!sent.is_set(), "{what}");
        let outcome = timeout(A_MOMENT, outbound.open(asked)).await;
        assert!(!matches!(outcome, Ok(Ok(_))), "{what}");
        assert!(!sent.is_set(), "{what}, opened");
    }
}

#[tokio::test]
async fn what_waits_for_a_slot_was_not_sent() {
    let address = silent().await;
    let outbound = Outbound::new(&OutboundConfig { max_connections_per_origin: 1, ..loopback() }).unwrap();
    let (first, (second, sent)) = (request(url(address, "/")), for_call(request(url(address, "/"))));
    let both = async { join_all([outbound.send(first), outbound.send(second)]).await };
    assert!(timeout(A_MOMENT, both).await.is_err());
    assert!(!sent.is_set());
}

#[tokio::test]
async fn a_written_request_is_marked_as_sent_after_any_failure() {
    let silent = silent().await;
    let answering = serve(Router::new().route("/", any(|| async { "done" }))).await;
    for method in [Method::GET, Method::POST, Method::DELETE] {
        for body in [None, Some(Bytes::from_static(b"body"))] {
            for address in [silent, answering] {
                let asked =
                    OutboundRequest { method: method.clone(), body: body.clone(), ..request(url(address, "/")) };
                let (asked, sent) = for_call(asked);
                let answer = timeout(A_MOMENT, outbound().send(asked)).await;
                assert_eq!(answer.is_ok(), address == answering);
                assert!(sent.is_set(), "{method} {body:?} {address}");
            }
        }
    }
}

/// The connection is there already, and the head may be taken and written in one go.
#[tokio::test]
async fn a_request_on_a_reused_connection_is_marked_as_sent() {
    let address = serve(Router::new().route("/", any(|| async { "done" }))).await;
    let outbound = outbound();
    for _ in 0..3 {
        let (asked, sent) = for_call(request(url(address, "/")));
        outbound.send(asked).await.unwrap();
        assert!(sent.is_set());
    }
}
