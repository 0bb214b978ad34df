//! A server in a sandbox of its own, which must be served whatever the others do.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::super::common::running_with;
use super::outside::Outside;
use sekisho_process_sandbox::network::Supervisor;
use sekisho_process_sandbox::{Guard, Started, start};

/// For each line of its input it starts a process, writes a file, connects, and repeats the line.
const SCRIPT: &str = "
import os, socket, subprocess, sys
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
for line in sys.stdin:
    subprocess.run(['true'], check=True)
    open('/tmp/file', 'w').write(line)
    socket.create_connection(server.getsockname()).close()
    server.accept()[0].close()
    socket.create_connection(('127.0.0.1', int(os.environ['ALLOWED']))).close()
    print(line, end='', flush=True)
";

/// While others use all processors, an answer takes its time.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Neighbour {
    _child: Child,
    _supervisor: Supervisor,
    _guard: Guard,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    mark: String,
    /// Its own server.
    pub(super) port: u16,
}

impl Neighbour {
    pub(super) async fn start(outside: &Outside) -> Self {
        let Started { mut child, handover, guard, .. } = start(&outside.profile(SCRIPT, 0), true).await.unwrap();
        let supervisor = Supervisor::start(handover.unwrap(), Arc::clone(&outside.policy) as _, None).unwrap();
        let input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        let mark = outside.path("").to_str().unwrap().to_owned();
        Self { _child: child, _supervisor: supervisor, _guard: guard, input, lines, mark, port }
    }

    pub(super) fn processes(&self) -> Vec<String> {
        running_with(&self.mark)
    }

    /// Fails where it does not answer.
    pub(super) async fn ask(&mut self, beside: &str) {
        self.input.write_all(b"question\n").await.unwrap();
        let answer = tokio::time::timeout(TIMEOUT, self.lines.next_line()).await;
        assert!(answer.is_ok(), "the neighbour does not answer beside `{beside}`");
        assert_eq!(answer.unwrap().unwrap().as_deref(), Some("question"), "{beside}");
    }
}
