//! Answers the calls of one program, on a thread of its own: the copy of an address from the program's memory can take as
//! long as the slowest file system from which it maps memory, and that thread serves nobody else.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit};
use tokio::task::AbortHandle;

use super::calls::{Calls, Connecting, Handled};
use super::helper::Helper;
use super::notification::{Answer, Listener};
use super::{Connections, Files, Handover, resolver, socket_options};

/// Calls of a program that wait for their connection at once. A program beyond it is told to try again.
const MAX_CONNECTING: u64 = 1_024;

/// The part of the gateway's descriptors that the waiting calls of one program may have.
const DESCRIPTORS_SHARE: u64 = 16;

/// For an answer of the helper in the sandbox, which takes microseconds.
const HELPER_TIMEOUT: Duration = Duration::from_secs(5);

/// After this time, the calls of threads that ended are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// Makes the connections of one program. Ends with the program, or when it is dropped.
#[derive(Debug)]
pub struct Supervisor {
    stop: OwnedFd,
    resolver: AbortHandle,
}

impl Supervisor {
    /// Begins, within a runtime of tokio. `files` hears of those that an observed program uses.
    /// Errors: when there are too many threads or descriptors, or the kernel is older than 5.14.
    pub fn start(
        handover: Handover,
        connections: Arc<dyn Connections>,
        files: Option<Arc<dyn Files>>,
    ) -> io::Result<Self> {
        let Handover { listener, resolver, sockets, tcp_forbidden } = handover;
        let own = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let outside = socket_options::namespace(own.as_fd())?;
        // The first process of a sandbox that ended within a request keeps its end open.
        set_socket_timeout(&sockets, Timeout::Recv, Some(HELPER_TIMEOUT))?;
        let calls = Calls {
            listener: Listener(listener),
            helper: Helper::new(sockets),
            tcp_forbidden,
            outside,
            connections: Arc::clone(&connections),
            files,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut service = Service::new(calls, stop.try_clone()?)?;
        let resolver = resolver::start(resolver, connections)?;
        let names = resolver.clone();
        let run = move || {
            if let Err(error) = service.run() {
                tracing::warn!(%error, "the connections of a program are no longer answered");
            }
            names.abort();
        };
        let started = thread::Builder::new().name("program-network".to_owned()).spawn(run);
        if let Err(error) = started {
            resolver.abort();
            return Err(error);
        }
        Ok(Self { stop, resolver })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.resolver.abort();
        // It counts to more than one.
        _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

const CALLS: u64 = 0;
const STOP: u64 = 1;

fn max_connecting() -> usize {
    let share =
        getrlimit(Resource::Nofile).maximum.map_or(MAX_CONNECTING, |descriptors| descriptors / DESCRIPTORS_SHARE);
    share.min(MAX_CONNECTING).try_into().unwrap_or(usize::MAX)
}

struct Service {
    calls: Calls,
    /// Open until the end: epoll forgets closed descriptors.
    _stop: OwnedFd,
    epoll: OwnedFd,
    connecting: HashMap<u64, Connecting>,
    max_connecting: usize,
    /// The key of the next one in `connecting`.
    next: u64,
    swept: Instant,
}

impl Service {
    fn new(calls: Calls, stop: OwnedFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &calls.listener, EventData::new_u64(CALLS), EventFlags::IN)?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let (connecting, max_connecting, swept) = (HashMap::new(), max_connecting(), Instant::now());
        Ok(Self { calls, _stop: stop, epoll, connecting, max_connecting, next: STOP + 1, swept })
    }

    fn run(&mut self) -> io::Result<()> {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut events: Vec<Event> = Vec::with_capacity(64);
        loop {
            let timeout = (!self.connecting.is_empty()).then_some(&second);
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            for event in &events {
                let (key, flags) = (event.data.u64(), event.flags);
                match key {
                    STOP => return Ok(()),
                    // The last process of the program ended.
                    CALLS if !flags.contains(EventFlags::IN) => return Ok(()),
                    CALLS => self.take()?,
                    key => self.finish(key),
                }
            }
            self.sweep();
        }
    }

    fn take(&mut self) -> io::Result<()> {
        let call = match self.calls.listener.receive() {
            // Its thread ended, or a signal came.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => return Ok(()),
            call => call?,
        };
        match self.calls.handle(&call) {
            Handled::Answered => (),
            Handled::Answer(answer) => self.calls.listener.answer(call.id, answer),
            Handled::Waits(connecting) => {
                if let Err(error) = self.wait_for(connecting) {
                    self.calls.listener.answer(call.id, Answer::Failed(error));
                }
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, connecting: Connecting) -> Result<(), Errno> {
        if self.connecting.len() >= self.max_connecting {
            return Err(Errno::AGAIN);
        }
        let key = self.next;
        self.next += 1;
        epoll::add(&self.epoll, &connecting.socket, EventData::new_u64(key), EventFlags::OUT)?;
        self.connecting.insert(key, connecting);
        Ok(())
    }

    fn finish(&mut self, key: u64) {
        if let Some(answer) = self.connecting.get(&key).and_then(Connecting::result) {
            self.end(key, Some(answer));
        }
    }

    /// Ends the waits that the program limited, and forgets the calls of threads that ended.
    fn sweep(&mut self) {
        let now = Instant::now();
        if self.connecting.is_empty() || now < self.swept + SWEEP {
            return;
        }
        self.swept = now;
        let ended = |(key, connecting): (&u64, &Connecting)| {
            if !self.calls.listener.waits(connecting.id) {
                return Some((*key, None));
            }
            let late = connecting.until.is_some_and(|until| until <= now);
            late.then_some((*key, Some(Answer::Failed(Errno::INPROGRESS))))
        };
        let ended: Vec<_> = self.connecting.iter().filter_map(ended).collect();
        ended.into_iter().for_each(|(key, answer)| self.end(key, answer));
    }

    fn end(&mut self, key: u64, answer: Option<Answer>) {
        let Some(connecting) = self.connecting.remove(&key) else { return };
        // The program's descriptor keeps the socket open, and so its registration.
        _ = epoll::delete(&self.epoll, &connecting.socket);
        if let Some(answer) = answer {
            self.calls.listener.answer(connecting.id, answer);
        }
    }
}
