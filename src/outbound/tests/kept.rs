//! Connections that wait to be used again.

use super::*;

/// Node and uvicorn end a connection that was idle for five seconds. They may do so in the moment in which it is used
/// again; this server does it in that moment always.
#[tokio::test]
async fn a_connection_is_not_used_again_once_its_server_may_end_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&opened);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut answered = tokio::time::Instant::now();
                while socket.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0)
                    && answered.elapsed() < Duration::from_secs(5)
                {
                    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await.unwrap();
                    answered = tokio::time::Instant::now();
                }
            });
        }
    });
    let outbound = outbound();
    for (idle_seconds, connections) in [(0, 1), (3, 1), (5, 2), (3, 2)] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(idle_seconds)).await;
        tokio::time::resume();
        let answer = outbound.send(request(url(address, "/"))).await;
        assert_eq!(answer.unwrap().body, "done", "after {idle_seconds} s");
        assert_eq!(opened.load(Ordering::SeqCst), connections, "after {idle_seconds} s");
    }
}
