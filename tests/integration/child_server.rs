//! Servers that are other people's programs, each on a free port of loopback.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

/// Killed when it is dropped.
pub(crate) struct ChildServer {
    _child: Child,
    pub(crate) url: String,
}

impl ChildServer {
    /// Starts the program with these arguments, in which `PORT` is replaced by the port, and waits until it listens.
    pub(crate) async fn start(program: &str, arguments: &[&str], within: Duration) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = arguments.iter().map(|argument| argument.replace("PORT", &port.to_string()));
        let mut child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let listens = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none(), "{program} ended: {ended:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(within, listens).await.unwrap_or_else(|_| panic!("{program} does not listen"));
        Self { _child: child, url: format!("http://127.0.0.1:{port}") }
    }
}
