//! The contents of a file: a process of our own binary reads it, and compiles it once for each content. The compiled
//! form is in a folder that only our user can enter.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::Sandbox;
use crate::worker_handle::{Program, spawn};
use crate::worker_setup::program;
use sekisho_guest_protocol::{Examination, Examined, Frames, FromWorker, ToWorker, encode};
use sekisho_interpreters::compiled::CompiledFolder;
use sekisho_interpreters::prepare::default_folder;

/// The largest component of an interpreter of another language has some 50 MB, which take a minute on one core.
const MAX_TIME: Duration = Duration::from_secs(300);

/// Compiled files unused for this long are removed when new ones are written.
const UNUSED_FOR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The folder of compiled components, beside the folder of interpreters.
const FOLDER: &str = "components";

/// A file that is to be examined.
#[derive(Debug, Clone)]
pub struct FileToExamine {
    /// SHA-256 in hexadecimal.
    pub sum: String,
    pub wasm: Vec<u8>,
    /// The WIT beside it.
    pub wit: Option<String>,
    /// Whether it may take as long as compiling does.
    pub may_compile: bool,
}

/// The contents of a file.
#[derive(Debug, Clone)]
pub struct ExaminedFile {
    /// Without the compiled form.
    pub examined: Examined,
    pub compiled: PathBuf,
}

/// Why the contents of a file are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unexamined {
    /// It has to be changed.
    Broken(String),
    /// It is not compiled, and must not be compiled now.
    NotCompiled,
    /// Not because of the file.
    Failed(String),
}

pub(super) async fn examine(sandbox: &Sandbox, file: FileToExamine) -> Result<ExaminedFile, Unexamined> {
    let FileToExamine { sum, wasm, wit, may_compile } = file;
    let program = program(sandbox.config()).map_err(Unexamined::Failed)?;
    let fingerprint = sandbox.fingerprints().await.map_err(Unexamined::Failed)?.components;
    let known = sum.clone();
    let (folder, found) = in_background(move || {
        let folder = folder(&fingerprint)?;
        let found = folder.verify(&known).ok();
        Ok((folder, found))
    })
    .await?;
    if found.is_none() && !may_compile {
        return Err(Unexamined::NotCompiled);
    }
    let examination = Examination { wasm, wit, compiles: found.is_none() };
    let mut examined = in_process(&program, examination).await?;
    let compiled = match found {
        Some(compiled) => compiled,
        None => {
            let code = std::mem::take(&mut examined.compiled);
            in_background(move || store(&folder, &sum, &code)).await?
        }
    };
    Ok(ExaminedFile { examined, compiled })
}

/// Reads and hashes files.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Unexamined> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| Unexamined::Failed(panic.to_string()))?.map_err(Unexamined::Failed)
}

fn folder(fingerprint: &str) -> Result<CompiledFolder, String> {
    let no_folder = || "there is no cache folder: set HOME, or XDG_CACHE_HOME, to an absolute path".to_owned();
    let path = default_folder().ok_or_else(no_folder)?.with_file_name(FOLDER);
    CompiledFolder::open(&path, fingerprint).map_err(|error| format!("{}: {error}", path.display()))
}

fn store(folder: &CompiledFolder, sum: &str, code: &[u8]) -> Result<PathBuf, String> {
    let stored = folder.store(sum, code).map_err(|error| format!("the compiled form cannot be stored: {error}"))?;
    // A file that remains is removed some other day.
    let _ = folder.remove_unused(UNUSED_FOR);
    Ok(stored)
}

async fn in_process(program: &Program, examination: Examination) -> Result<Examined, Unexamined> {
    let failed = |error: std::io::Error| Unexamined::Failed(format!("the process that reads it: {error}"));
    let frame = encode(&ToWorker::Examine(Box::new(examination))).map_err(failed)?;
    // Dropped, it is killed.
    let (stream, _child) = spawn(program).map_err(failed)?;
    let (incoming, mut sending) = stream.into_split();
    let mut incoming = Frames::new(incoming);
    let answered = timeout(MAX_TIME, async {
        sending.write_all(&frame).await?;
        incoming.next().await
    });
    match answered.await {
        Ok(Ok(Some(FromWorker::Examined(examined)))) => examined.map_err(Unexamined::Broken),
        Ok(_) => {
            let problem = "the process that read it ended: it is malformed, or takes too much memory to be compiled";
            Err(Unexamined::Broken(problem.to_owned()))
        }
        Err(_) => {
            let limit = MAX_TIME.as_secs();
            Err(Unexamined::Broken(format!("it takes longer than {limit} s to be compiled: make it smaller")))
        }
    }
}
