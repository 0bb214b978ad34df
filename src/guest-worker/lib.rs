//! The worker process: many programs as fibers on one thread of a hardened process, each in an instance of its own.
//!
//! Messages take precedence over programs: a job is cancelled, or started, after the current time slice. Programs
//! take turns, since each yields the thread after a slice ([`ticker`]). The work that an instance needs before its
//! program arrives is done while the worker is idle; a used instance is reset after its outcome is sent.

mod components;
mod fibers;
pub mod guest;
pub(crate) mod hardening;
pub mod host_call;
mod images;
mod module_images;
mod outcomes;
mod profile;
mod ticker;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::{Notify, mpsc};

use self::components::Components;
use self::fibers::{Fibers, Run};
use self::guest::{Remains, RestoringGuest, SessionGuest, Teardown};
use self::host_call::ToolLink;
use self::module_images::{MAX_READY_IMAGES, ModuleImages};
use self::outcomes::done_frame;
use self::profile::Profile;
use self::ticker::Ticker;
use sekisho_guest_protocol::{
    End, EngineFingerprints, Frames, FromWorker, Greeting, Job, JobId, Load, Outcome, SessionEntry, SessionId,
    ToWorker, encode,
};
use sekisho_guest_system::engine::{InstancePool, can_scan_pages, component_engine, engine, fingerprint};
use sekisho_guest_system::wasi::Sleeper;

/// All that 32-bit WebAssembly can address: the limit of a run is separate.
const MEMORY_BYTES: usize = 4 << 30;

/// Why a worker exits early. The gateway logs it.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("standard input is not a socket: workers are started by `sekisho serve`")]
    NoGateway,
    #[error("the worker cannot be set up: {0}")]
    SetUp(#[source] io::Error),
    #[error("the first message does not say what to load")]
    NothingToLoad,
    #[error("the interpreter cannot be loaded: {0}")]
    Load(String),
    #[error("the connection to the gateway is broken: {0}")]
    Gateway(#[source] io::Error),
}

/// How much nicer workers of the second class are, and processes that examine components: the kernel gives them a tenth of the
/// time while others need it.
const NICER: i32 = 10;

/// Serves the gateway at the other end of standard input until it disconnects. `in_background` makes it a worker of the
/// second class, which yields the processor to workers of the first.
/// Errors: when there is no gateway, the interpreter cannot be loaded, or a message is invalid.
pub fn main(in_background: bool) -> Result<(), WorkerError> {
    if in_background {
        // Before other threads start, which inherit it.
        rustix::process::nice(NICER).map_err(|error| WorkerError::SetUp(error.into()))?;
    }
    let gateway = std::io::stdin().as_fd().try_clone_to_owned().map(std::os::unix::net::UnixStream::from);
    let gateway = gateway.map_err(WorkerError::SetUp)?;
    if gateway.peer_addr().is_err() {
        return Err(WorkerError::NoGateway);
    }
    drop(gateway);
    // A kernel without support has passed on no descriptors either: the parent opens its own with close-on-exec.
    let closed = hardening::close_inherited();
    let capabilities = hardening::drop_capabilities();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(WorkerError::SetUp)?;
    runtime.block_on(async {
        let mut gateway = connect().map_err(WorkerError::SetUp)?;
        let (incoming, outgoing) = gateway.split();
        let mut messages = Frames::new(incoming);
        let worker = match messages.next().await.map_err(WorkerError::Gateway)? {
            Some(ToWorker::Load(load)) => Worker::load(*load).await,
            Some(ToWorker::LoadComponents(load)) => Worker::load_components(*load).await,
            Some(ToWorker::Examine(examination)) => return components::answer(&examination, outgoing).await,
            Some(_) => return Err(WorkerError::NothingToLoad),
            None => return Ok(()),
        };
        let mut worker = worker.map_err(WorkerError::Load)?;
        let mut missing_protections = hardening::apply();
        missing_protections.extend(capabilities.err().map(|error| format!("capabilities: {error}")));
        missing_protections.extend(closed.err().map(|error| format!("closed_descriptors: {error}")));
        if !can_scan_pages() {
            missing_protections.push("pagemap_scan: not before Linux 6.7; runs take longer without".to_owned());
        }
        let greeting = Greeting { missing_protections, unloadable: worker.components.unloadable() };
        worker.send(&FromWorker::Ready(Box::new(greeting)))?;
        worker.serve(messages, outgoing).await
    })
}

/// The fingerprints of the engines of this program.
/// Errors: WebAssembly cannot run on this machine.
pub fn fingerprints() -> Result<EngineFingerprints, String> {
    let failed = |error: wasmtime::Error| format!("WebAssembly cannot run here: {error:#}");
    let interpreter = fingerprint(&engine(InstancePool::default()).map_err(failed)?);
    let components = fingerprint(&component_engine(1).map_err(failed)?);
    Ok(EngineFingerprints { interpreter, components })
}

fn connect() -> io::Result<UnixStream> {
    let gateway = std::os::unix::net::UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    gateway.set_nonblocking(true)?;
    UnixStream::from_std(gateway)
}

/// The loaded programs, and the runs under way: of the interpreter, or of components.
struct Worker {
    profiles: HashMap<String, Profile>,
    components: Components,
    fibers: Fibers,
    ticker: Ticker,
    /// Messages not sent to the gateway yet.
    outbox: BytesMut,
    /// Messages of programs that sleep, or ask something of tools.
    of_programs: mpsc::UnboundedReceiver<FromWorker>,
    to_gateway: mpsc::UnboundedSender<FromWorker>,
    /// The rest of the run that ended last, after its outcome was sent.
    teardown: Option<Teardown>,
    /// Between their calls.
    sessions: HashMap<SessionId, Box<SessionGuest>>,
    /// The sessions that wait for parts of their images.
    restoring: HashMap<SessionId, Box<RestoringGuest>>,
    module_images: ModuleImages,
}

impl Worker {
    async fn load(load: Load) -> Result<Self, String> {
        let Load { interpreter, instances, data_files, packages } = load;
        // Two more instances per profile: one that waits for its program, one that is never entered. Also the instances
        // that wait with an image of a module, and as many that rest while the image of their module is read. And one
        // that is being reset.
        let more = interpreter.profiles.len() * 2 + MAX_READY_IMAGES * 2 + 1;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let pool = InstancePool { instances: instances.saturating_add(more), memory_bytes: MEMORY_BYTES };
        let engine = engine(pool).map_err(|error| format!("{error:#}"))?;
        let ticker = Ticker::start(engine.clone()).map_err(|error| error.to_string())?;
        let profiles = profile::load_all(&engine, &interpreter, data_files, &packages).await?;
        let mut worker = Self::with(profiles, Components::default(), ticker);
        // The first instance of a process makes system calls that are forbidden after hardening.
        while worker.make_one_ready().await? {}
        Ok(worker)
    }

    fn with(profiles: HashMap<String, Profile>, components: Components, ticker: Ticker) -> Self {
        #[expect(clippy::disallowed_methods, reason = "open calls of programs send, which are bounded")]
        let (to_gateway, of_programs) = mpsc::unbounded_channel();
        Self {
            profiles,
            components,
            fibers: Fibers::default(),
            ticker,
            outbox: BytesMut::new(),
            of_programs,
            to_gateway,
            teardown: None,
            sessions: HashMap::new(),
            restoring: HashMap::new(),
            module_images: ModuleImages::default(),
        }
    }

    async fn serve<'g>(
        &mut self,
        mut messages: Frames<impl tokio::io::AsyncRead + Unpin + 'g>,
        mut gateway: impl tokio::io::AsyncWrite + Unpin + 'g,
    ) -> Result<(), WorkerError> {
        loop {
            tokio::select! {
                biased;
                sent = gateway.write(&self.outbox), if !self.outbox.is_empty() => {
                    self.outbox.advance(sent.map_err(WorkerError::Gateway)?);
                }
                () = std::future::ready(()), if self.teardown.is_some() => self.teardown = None,
                message = messages.next() => match message.map_err(WorkerError::Gateway)? {
                    Some(message) => self.handle(message).await?,
                    None => return Ok(()),
                },
                Some(message) = self.of_programs.recv() => self.send(&message)?,
                Some((id, ended)) = self.fibers.next() => {
                    self.report(id, ended.outcome)?;
                    match ended.left {
                        Remains::Used(teardown) => self.teardown = Some(teardown),
                        Remains::Session(guest) => drop(self.sessions.insert(guest.id, guest)),
                    }
                }
                () = std::future::ready(()), if self.fibers.is_empty() && self.lacks_ready() => {
                    self.make_one_ready().await.map_err(WorkerError::Load)?;
                }
            }
            self.ticker.run(!self.fibers.is_empty());
        }
    }

    async fn handle(&mut self, message: ToWorker) -> Result<(), WorkerError> {
        match message {
            ToWorker::Run(job) => self.begin(*job).await,
            ToWorker::Call(call) => self.begin_call(*call),
            // A job that has ended already was answered.
            ToWorker::Cancel(id) if self.fibers.cancel(id) => {
                self.send(&FromWorker::Done(id, Box::new(Outcome::without_output(End::Cancelled))))
            }
            ToWorker::Cancel(_) => Ok(()),
            ToWorker::Continue(id) => {
                self.fibers.wake(id);
                Ok(())
            }
            ToWorker::Answer(id, reply) => {
                self.fibers.deliver(id, *reply);
                Ok(())
            }
            ToWorker::EndSession(id) => {
                if let Some(guest) = self.sessions.remove(&id) {
                    self.teardown = Some(guest.end());
                }
                if let Some(guest) = self.restoring.remove(&id) {
                    self.teardown = Some(guest.end());
                }
                Ok(())
            }
            ToWorker::Session(id, request) => {
                let reply = self.answer_about_session(*request).await;
                self.send(&FromWorker::Session(id, Box::new(reply)))
            }
            ToWorker::ModuleImage(message) => {
                self.module_images.apply(*message);
                Ok(())
            }
            ToWorker::Load(_) | ToWorker::LoadComponents(_) | ToWorker::Examine(_) => Err(WorkerError::NothingToLoad),
        }
    }

    async fn begin(&mut self, job: Job) -> Result<(), WorkerError> {
        let id = job.id;
        let link = self.link(id);
        match self.run_of(job, link.clone()).await {
            Ok(run) => {
                self.fibers.add(id, run, link);
                Ok(())
            }
            Err(reason) => self.send(&FromWorker::Done(id, Box::new(Outcome::without_output(End::Trap(reason))))),
        }
    }

    fn link(&self, job: JobId) -> ToolLink {
        let sleeper = Sleeper { job, gateway: self.to_gateway.clone(), may_continue: Arc::new(Notify::new()) };
        ToolLink { sleeper, inbox: Arc::default(), waited: Arc::default(), recorder: Arc::default() }
    }

    /// Errors: why the job cannot run.
    async fn run_of(&mut self, job: Job, link: ToolLink) -> Result<Run, String> {
        let (job, link) = match self.begin_with_image(job, link).await {
            Ok(run) => return Ok(run),
            Err(without_image) => *without_image,
        };
        let Some(profile) = self.profiles.get_mut(&job.profile) else {
            return Err(format!("there is no profile `{}`", job.profile));
        };
        match job.session.filter(|session| session.entry != SessionEntry::Begin) {
            None => profile.begin(job, link).await,
            Some(session) => match self.sessions.remove(&session.id) {
                Some(guest) => Ok(profile.go_on(guest, job, link)),
                None => Err(format!("this worker has no session {}", session.id)),
            },
        }
    }

    fn lacks_ready(&self) -> bool {
        self.profiles.values().any(Profile::lacks_ready) || self.module_images.lacks_ready()
    }

    /// Makes an instance for a profile, or an image, without a waiting one; false when each has one.
    async fn make_one_ready(&mut self) -> Result<bool, String> {
        match self.profiles.values_mut().find(|profile| profile.lacks_ready()) {
            Some(profile) => profile.make_ready().await.map(|()| true),
            None => Ok(self.make_module_ready().await),
        }
    }

    fn report(&mut self, id: JobId, outcome: Outcome) -> Result<(), WorkerError> {
        let frame = done_frame(id, outcome).map_err(WorkerError::Gateway)?;
        self.outbox.extend_from_slice(&frame);
        Ok(())
    }

    fn send(&mut self, message: &FromWorker) -> Result<(), WorkerError> {
        let frame = encode(message).map_err(WorkerError::Gateway)?;
        self.outbox.extend_from_slice(&frame);
        Ok(())
    }
}
