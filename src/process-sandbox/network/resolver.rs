//! The resolver of a program: takes its look-ups of names and asks the gateway's policy.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::dns::{Code, Question};
use super::{Connections, Resolved};

/// Look-ups at once. Those beyond it get no answer, and are asked again by the program's resolver.
const MAX_LOOKUPS: usize = 64;

/// Look-ups in a second: a name carries data to whoever answers for its domain.
const RATE: u32 = 50;

/// Look-ups at once after a pause.
const BURST: u32 = 500;

/// After an error of the socket.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers look-ups until it is aborted.
pub(super) fn start(socket: OwnedFd, connections: Arc<dyn Connections>) -> io::Result<AbortHandle> {
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    let socket = Arc::new(UdpSocket::from_std(socket)?);
    Ok(tokio::spawn(serve(socket, connections)).abort_handle())
}

async fn serve(socket: Arc<UdpSocket>, connections: Arc<dyn Connections>) {
    let mut lookups = JoinSet::new();
    let mut allowance = Allowance::new();
    let mut message = [0; 1_500];
    loop {
        let received = socket.recv_from(&mut message).await;
        while lookups.try_join_next().is_some() {}
        let Ok((length, asker)) = received else {
            // None is expected, and the next call would have it at once.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(question) = message.get(..length).and_then(Question::parse) else { continue };
        if lookups.len() < MAX_LOOKUPS {
            let may_ask = allowance.take();
            lookups.spawn(answer(Arc::clone(&socket), Arc::clone(&connections), question, asker, may_ask));
        }
    }
}

async fn answer(
    socket: Arc<UdpSocket>,
    connections: Arc<dyn Connections>,
    question: Question,
    asker: SocketAddr,
    may_ask: bool,
) {
    let (code, addresses) = match &question.host {
        None => (Code::NoSuchName, Vec::new()),
        Some(_) if !question.is_for_addresses() => (Code::Success, Vec::new()),
        Some(host) if host == "localhost" || host.ends_with(".localhost") => {
            (Code::Success, vec![IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()])
        }
        Some(_) if !may_ask => (Code::Failure, Vec::new()),
        Some(host) => match connections.resolve(host).await {
            Resolved::Addresses(addresses) => (Code::Success, addresses),
            Resolved::NoSuchName => (Code::NoSuchName, Vec::new()),
            Resolved::Failed => (Code::Failure, Vec::new()),
        },
    };
    _ = socket.send_to(&question.answer(code, &addresses), asker).await;
}

/// The look-ups that a program may make now.
struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowance {
    fn new() -> Self {
        Self { left: BURST.into(), at: Instant::now() }
    }

    fn take(&mut self) -> bool {
        let since: Duration = self.at.elapsed();
        self.at += since;
        self.left = (self.left + since.as_secs_f64() * f64::from(RATE)).min(BURST.into());
        let takes = self.left >= 1.0;
        if takes {
            self.left -= 1.0;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn look_ups_are_limited_to_a_rate() {
        let mut allowance = Allowance::new();
        let mut taken = || (0..10_000).take_while(|_| allowance.take()).count();
        assert_eq!(taken(), 500);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(taken(), 100);
    }
}
