mod state_before;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wasmtime::{Engine, Module};

use self::state_before::{SparePieces, StateBefore};
use super::fibers::Run;
use crate::guest::{
    Ended, Entry, Guest, ModuleImage, Program, Remains, RestoreError, RestoringGuest, SessionGuest, StateImage,
    Template,
};
use crate::host_call::{HostCall, ToolLink, file_channel};
use crate::outcomes::not_placed;
use sekisho_core::owner_only_files;
use sekisho_core::reading::Reading;
use sekisho_guest_protocol::InterpreterKind;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_protocol::{
    DamagedImageError, GuestFile, ImageCursor, Job, JobLimits, Outcome, Pieces, SessionEntry, SessionId, SessionReply,
};
use sekisho_guest_protocol::{Mount, Prepared};
use sekisho_guest_system::files::{FileError, Files, Quota};
use sekisho_guest_system::mounts::Mounts;
use sekisho_guest_system::wasi::{Limits, Start, Wasi};
use sekisho_interpreters::python;

/// A loaded module, and an instance of it that waits for its program.
pub(super) struct Profile {
    template: Arc<Template>,
    ready: Option<Guest>,
    environment: Arc<GuestEnvironment>,
}

/// The environment of every program, in all profiles.
struct GuestEnvironment {
    kind: InterpreterKind,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    mounts: Arc<Mounts>,
    /// The mounts of modules, with their packages; or why there are none.
    module_mounts: Result<Arc<Mounts>, String>,
    /// Paths and contents.
    data_files: Vec<(String, Bytes)>,
    spare: SparePieces,
}

/// Loads every profile of an interpreter, by name.
/// Errors: the file that cannot be used, and the reason.
pub(super) async fn load_all(
    engine: &Engine,
    interpreter: &Prepared,
    data_files: Vec<GuestFile>,
    packages: &[Mount],
) -> Result<HashMap<String, Profile>, String> {
    let mounts = Mounts::open(&interpreter.mounts).map(Arc::new).map_err(|error| error.to_string())?;
    let module_mounts = match packages {
        [] => Ok(Arc::clone(&mounts)),
        // Programs run without them, and have the same files as ever: images of sessions name files by their numbers.
        _ => Mounts::open(&[&interpreter.mounts[..], packages].concat())
            .map(Arc::new)
            .map_err(|error| format!("the packages of tools cannot be mounted: {error}; run `sekisho tools lock`")),
    };
    let data_files = data_files.into_iter().map(|file| (file.path, file.content.into())).collect();
    let environment = interpreter.environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let (kind, mut arguments) = (interpreter.kind, interpreter.arguments.clone());
    if kind == InterpreterKind::Command {
        arguments.extend(["-c".to_owned(), python::command()]);
    }
    let spare = SparePieces::default();
    let environment = GuestEnvironment { kind, arguments, environment, mounts, module_mounts, data_files, spare };
    let environment = Arc::new(environment);
    let mut profiles = HashMap::new();
    for profile in &interpreter.profiles {
        let module = load(engine, &profile.compiled).and_then(|module| within(module, interpreter.table_elements));
        let template = match module {
            Ok(module) => {
                Template::new(engine, &module, environment.entry()).await.map_err(|error| format!("{error:#}"))
            }
            Err(reason) => Err(reason),
        };
        let template = template.map_err(|reason| format!("{}: {reason}", profile.compiled.display()))?;
        let template = Arc::new(template);
        profiles.insert(profile.name.clone(), Profile { template, ready: None, environment: Arc::clone(&environment) });
    }
    Ok(profiles)
}

/// Machine code runs as it is in the file: only our user may write it, and the opened file is the one that was
/// checked.
fn load(engine: &Engine, path: &Path) -> Result<Module, String> {
    let file = owner_only_files::open(path).map_err(|error| error.to_string())?;
    // Held as long as the module: the removal of unused files skips a locked one. Without the lock, the file could be
    // removed and compiled again.
    let _ = file.try_lock_shared();
    #[expect(unsafe_code, reason = "the only way to load compiled code")]
    // SAFETY: only our user can write the file and its folder, and we write nothing there but the output of an
    // engine; code of other settings, or of another version, is refused.
    unsafe { Module::deserialize_open_file(engine, file) }.map_err(|error| format!("{error:#}"))
}

fn within(module: Module, table_elements: u32) -> Result<Module, String> {
    match module.resources_required().max_initial_table_size {
        Some(elements) if elements > u64::from(table_elements) => Err(format!(
            "it has a table of {elements} elements, of at most {table_elements}: raise `table_elements` in its interpreter.toml"
        )),
        _ => Ok(module),
    }
}

impl Profile {
    pub(super) fn lacks_ready(&self) -> bool {
        self.ready.is_none()
    }

    pub(super) async fn make_ready(&mut self) -> Result<(), String> {
        self.ready = Some(self.template.guest().await.map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    /// A fresh instance that runs the job as soon as it is polled.
    /// Errors: the part of the job's request that is not available.
    pub(super) async fn begin(&mut self, mut job: Job, link: ToolLink) -> Result<Run, String> {
        if (job.session.is_some() || job.module.is_some()) && self.environment.kind == InterpreterKind::Command {
            return Err("this interpreter runs programs alone: it has no sessions and no modules".to_owned());
        }
        let guest = match (job.past.take(), self.ready.take()) {
            (None, Some(guest)) => Ok(guest),
            (None, None) => self.template.guest().await,
            // The one that is ready has read something else.
            (Some(past), ready) => {
                self.ready = ready;
                self.template.guest_reading(ReadRecorder::replaying(past)).await
            }
        };
        let guest = guest.map_err(|error| format!("{error:#}"))?;
        if job.session.is_some() || job.limits.tool_calls == 0 {
            guest.recorder.switch_off();
        }
        let link = ToolLink { recorder: Arc::clone(&guest.recorder), ..link };
        let last = job.reads_to_end.then(|| Arc::clone(&guest.recorder));
        let mounts = self.environment.mounts_of(&job)?;
        let program = self.environment.program(mounts, job, link);
        let program = program.map_err(|error| format!("the call's files cannot be placed: {error}"))?;
        Ok(with_last_readings(last, self.environment.counted(guest.run(program))))
    }

    /// A fresh instance that has the image of a module, and waits for its program. `past`: as in [`Job::past`].
    pub(super) async fn guest_with(&self, image: &ModuleImage, past: Option<Vec<Reading>>) -> Result<Guest, String> {
        self.template.guest_with(image, past.map_or_else(ReadRecorder::default, ReadRecorder::replaying)).await
    }

    /// The system that a call of the module's functions begins with.
    pub(super) fn system_with(&self, image: &ModuleImage, job: &Job) -> Result<Wasi, String> {
        let GuestEnvironment { arguments, environment, data_files, .. } = &*self.environment;
        let mounts = self.environment.mounts_of(job)?;
        let system = image.system(mounts, data_files, arguments.clone(), environment.clone());
        system.map_err(|error| error.to_string())
    }

    /// A run of a job in an instance that has the image of its module.
    pub(super) fn begin_with(&self, guest: Guest, system: Wasi, mut job: Job, link: ToolLink) -> Run {
        if job.limits.tool_calls == 0 {
            guest.recorder.switch_off();
        }
        let link = ToolLink { recorder: Arc::clone(&guest.recorder), ..link };
        let stdin = std::mem::take(&mut job.stdin).into();
        let mut wasi = system.continued(stdin, system_limits(&job.limits)).reading(&link.recorder);
        wasi.sleeper = Some(link.sleeper.clone());
        // The image has the results of the code.
        job.code = String::new();
        let last = job.reads_to_end.then(|| Arc::clone(&guest.recorder));
        with_last_readings(last, self.environment.counted(guest.run(self.environment.program_with(wasi, job, link))))
    }

    /// The instance of a session, which runs the job as soon as it is polled, and keeps the state before it where the job's
    /// limits allow that. Where the job's files cannot be placed, the session goes on.
    pub(super) fn go_on(&self, mut guest: Box<SessionGuest>, mut job: Job, link: ToolLink) -> Run {
        let (template, environment) = (Arc::clone(&self.template), Arc::clone(&self.environment));
        Box::pin(async move {
            let begun = Instant::now();
            // Before the files of the call, which are undone with it.
            let most = job.limits.state_bytes;
            let keeps_state = most > 0 && environment.session_bytes(&guest) <= most;
            let before = if keeps_state { StateBefore::of(&mut guest, &template, &environment).await } else { None };
            // To restore the state takes as long, and the call must be answered in its time.
            job.limits.total_time = job.limits.total_time.saturating_sub(begun.elapsed().saturating_mul(2));
            if let Err(reason) = replace_inputs(guest.files_mut(), &mut job) {
                return environment.not_begun(guest, reason);
            }
            let program = environment.next_program(&mut guest, job, link);
            let ended = environment.counted(guest.run(program)).await;
            match before {
                Some(before) => Box::pin(before.after(ended, &template, &environment)).await,
                None => ended,
            }
        })
    }

    /// A part of the image of a session.
    pub(super) fn read_image(&self, guest: &mut SessionGuest, from: ImageCursor) -> SessionReply {
        let read = guest.read_image(&self.template, &self.environment.data_files, from, Pieces::default());
        let part = read.and_then(|(part, next)| Ok(SessionReply::Part { part: part.encode()?, next }));
        part.unwrap_or_else(SessionReply::Failed)
    }

    /// A session of which the first part of its image is known.
    /// Errors: why it cannot be restored here.
    pub(super) async fn restore(&self, state: StateImage) -> Result<RestoringGuest, RestoreError> {
        self.template.restore(state, &self.environment.mounts, &self.environment.data_files).await
    }

    /// The session, of which all parts are known.
    /// Errors: one is missing.
    pub(super) fn restored(
        &self,
        guest: RestoringGuest,
        id: SessionId,
        is_copy: bool,
    ) -> Result<SessionGuest, DamagedImageError> {
        let GuestEnvironment { arguments, environment, .. } = &*self.environment;
        guest.finish(id, arguments.clone(), environment.clone(), is_copy)
    }

    /// The memory of a session until its next call.
    pub(super) fn session_bytes(&self, guest: &SessionGuest) -> u64 {
        self.environment.session_bytes(guest)
    }
}

impl GuestEnvironment {
    fn entry(&self) -> Entry {
        match self.kind {
            InterpreterKind::Reactor => Entry::Turn(python::TURN.to_owned()),
            InterpreterKind::Command => Entry::Start,
        }
    }

    fn mounts_of(&self, job: &Job) -> Result<&Mounts, String> {
        match &self.module_mounts {
            _ if job.module.is_none() => Ok(&self.mounts),
            Ok(mounts) => Ok(mounts),
            Err(reason) => Err(reason.clone()),
        }
    }

    fn program(&self, mounts: &Mounts, mut job: Job, link: ToolLink) -> Result<Program, FileError> {
        let (bytes, nodes) = (job.limits.file_bytes, job.limits.max_files);
        let (mut files, folders) = mounts.place(Quota { bytes, nodes })?;
        for (path, content) in &self.data_files {
            place_input(&mut files, path, content.clone())?;
        }
        for file in std::mem::take(&mut job.files) {
            place_input(&mut files, &file.path, file.content.into())?;
        }
        if self.kind == InterpreterKind::Command {
            file_channel::place(&mut files, &HostCall::new(job.code.clone(), job.limits.result_bytes, 0, 0))?;
        }
        let (arguments, stdin) = (self.arguments.clone(), std::mem::take(&mut job.stdin).into());
        let start = Start { arguments, environment: self.environment.clone(), stdin, folders };
        let mut wasi = Wasi::new(files, start, system_limits(&job.limits))?.reading(&link.recorder);
        wasi.sleeper = Some(link.sleeper.clone());
        Ok(self.program_with(wasi, job, link))
    }

    /// The next program of a session.
    fn next_program(&self, guest: &mut SessionGuest, mut job: Job, link: ToolLink) -> Program {
        let is_inspected = job.session.is_some_and(|session| session.entry == SessionEntry::Inspect);
        if is_inspected {
            // For our own code, beside the memory of the session.
            job.limits.memory_bytes = job.limits.memory_bytes.saturating_add(guest.memory_size());
        }
        // No journal has the readings of its programs.
        link.recorder.switch_off();
        let stdin = std::mem::take(&mut job.stdin).into();
        let mut wasi = guest.take_system().continued(stdin, system_limits(&job.limits));
        wasi.sleeper = Some(link.sleeper.clone());
        let program = self.program_with(wasi, job, link);
        if guest.is_copy && !is_inspected {
            return Program { host_call: program.host_call.reseeding(), ..program };
        }
        program
    }

    fn program_with(&self, wasi: Wasi, job: Job, link: ToolLink) -> Program {
        let limits = job.limits;
        let mut host_call =
            HostCall::new(job.code, limits.result_bytes, limits.image_bytes, limits.host_calls).with_module(job.module);
        if let Some(session) = job.session {
            host_call = host_call.in_session(session.entry);
        }
        if self.kind == InterpreterKind::Reactor && limits.tool_calls > 0 {
            host_call = host_call.with_tools(link.clone(), limits.tool_calls);
        }
        Program {
            wasi,
            host_call,
            wall_time: limits.wall_time,
            total_time: limits.total_time,
            waited: link.waited,
            memory_bytes: limits.memory_bytes,
            output_bytes: limits.file_bytes,
            session: job.session.map(|session| session.id),
        }
    }

    /// The end of a call whose files cannot be placed in its session.
    fn not_begun(&self, guest: Box<SessionGuest>, reason: String) -> Ended {
        let session_bytes = Some(self.session_bytes(&guest));
        let outcome = Outcome { session_bytes, ..Outcome::without_output(not_placed(reason)) };
        Ended { outcome, left: Remains::Session(guest) }
    }

    /// A run whose outcome has the bytes that its session holds afterwards.
    fn counted(self: &Arc<Self>, run: impl Future<Output = Ended> + 'static) -> Run {
        let environment = Arc::clone(self);
        Box::pin(async move {
            let mut ended = run.await;
            if let Remains::Session(guest) = &ended.left {
                ended.outcome.session_bytes = Some(environment.session_bytes(guest));
            }
            ended
        })
    }

    fn session_bytes(&self, guest: &SessionGuest) -> u64 {
        let of_operator = self.data_files.iter().map(|(_, content)| content);
        guest.own_memory_bytes().saturating_add(guest.files().held_bytes(of_operator))
    }
}

/// A run whose outcome has the readings since the last request.
fn with_last_readings(recorder: Option<Arc<ReadRecorder>>, run: Run) -> Run {
    let Some(recorder) = recorder else { return run };
    Box::pin(async move {
        let mut ended = run.await;
        ended.outcome.read = Some(recorder.take());
        ended
    })
}

fn system_limits(limits: &JobLimits) -> Limits {
    Limits {
        stream_bytes: limits.stream_bytes,
        max_open_files: limits.max_open_files,
        random_bytes: limits.random_bytes,
    }
}

/// Below `/input`, and in the working directory, where the program may change its copy.
fn place_input(files: &mut Files, path: &str, content: Bytes) -> Result<(), FileError> {
    files.place_file(&format!("/input/{path}"), content.clone(), true)?;
    files.place_file(&format!("/output/{path}"), content, false)?;
    Ok(())
}

/// Errors: which file of the job cannot be placed, and why.
fn replace_inputs(files: &mut Files, job: &mut Job) -> Result<(), String> {
    for GuestFile { path, content } in std::mem::take(&mut job.files) {
        replace_input(files, &path, content.into()).map_err(|error| format!("{path} cannot be placed: {error}"))?;
    }
    Ok(())
}

/// A file that is sent again with the same content leaves the program's copy as it is.
fn replace_input(files: &mut Files, path: &str, content: Bytes) -> Result<(), FileError> {
    let input = format!("/input/{path}");
    if files.has(&input, &content) {
        return Ok(());
    }
    files.replace_file(&input, content.clone(), true)?;
    files.replace_file(&format!("/output/{path}"), content, false)?;
    Ok(())
}
