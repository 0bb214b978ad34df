//! The command line of a worker, and the frame with its interpreter and files. Both are found in the files of this
//! machine; an error names the missing part and how to provide it.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::worker_handle::Program;
use sekisho_config::SandboxConfig;
use sekisho_core::owner_only_files::Unusable;
use sekisho_guest_protocol::{GuestFile, Load, ToWorker, encode};
use sekisho_guest_protocol::{Mount, Prepared};
use sekisho_interpreters::interpreter::Manifest;
use sekisho_interpreters::packages::Packages;
use sekisho_interpreters::prepare::{Interpreters, default_folder};

/// All that a pool needs to start workers.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) program: Program,
    /// A [`ToWorker::Load`], encoded.
    pub(crate) load: Vec<u8>,
    /// The profiles that are compiled, from the lightest on.
    pub(crate) profiles: Vec<ReadyProfile>,
    /// Why there are no more; `None` once all are compiled.
    pub(crate) incomplete: Option<Lacking>,
    /// Identifies the packages that modules can import.
    pub(crate) packages: String,
}

/// A profile that can run programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadyProfile {
    pub(crate) name: String,
    /// A sum of the initial state of its instances, where sessions of it can be stored.
    pub(crate) snapshot: Option<String>,
    /// The same for modules: with all that they see while they are executed.
    pub(crate) module_base: Option<String>,
}

/// The part that is not set up.
#[derive(Debug)]
pub(crate) struct Lacking {
    /// Its name and how to provide it, for `/readyz`.
    pub(crate) reason: String,
    /// Whether a process sets it up now, so that waiting helps.
    pub(crate) is_being_set_up: bool,
}

impl From<String> for Lacking {
    /// Only the operator can mend it.
    fn from(reason: String) -> Self {
        Self { reason, is_being_set_up: false }
    }
}

/// All data files together: every worker holds them in memory.
const MAX_DATA_BYTES: u64 = 128 << 20;

/// Finds the prepared interpreter and reads the data files. `fingerprint`: the engine that runs it. Blocks for some
/// milliseconds.
/// Errors: the missing part.
pub(crate) fn locate(
    config: &SandboxConfig,
    interpreter: &Manifest,
    packages: &Packages,
    fingerprint: &str,
) -> Result<Setup, Lacking> {
    let no_folder = || "there is no cache folder: set HOME, or XDG_CACHE_HOME, to an absolute path".to_owned();
    let folder = default_folder().ok_or_else(no_folder)?;
    let interpreters = Interpreters::open(&folder, fingerprint).map_err(|error| error.to_string())?;
    let (prepared, error) = interpreters
        .find_usable(interpreter)
        .map_err(|error| missing(&interpreters, "the Python interpreter is", &error))?;
    let data_files = data_files(config)?;
    let seen = Seen { interpreter: &prepared, packages: &packages.mounts, data_files: &data_files }.sum();
    let ready = prepared.profiles.iter().map(|profile| {
        let (name, snapshot) = (profile.name.clone(), profile.snapshot.clone());
        let module_base = snapshot.as_ref().map(|snapshot| format!("{snapshot} {seen}"));
        ReadyProfile { name, snapshot, module_base }
    });
    let profiles: Vec<_> = ready.collect();
    let incomplete = error.map(|error| {
        let rest: Vec<_> = interpreter.profiles.iter().skip(profiles.len()).map(|one| one.name.as_str()).collect();
        missing(&interpreters, &format!("the profiles {} of the Python interpreter are", rest.join(", ")), &error)
    });
    let instances = config.max_instances.saturating_add(config.sessions.max);
    let load = Load { interpreter: prepared, instances, data_files, packages: packages.mounts.clone() };
    let load = encode(&ToWorker::Load(Box::new(load))).map_err(|error| error.to_string())?;
    Ok(Setup { program: program(config)?, load, profiles, incomplete, packages: packages.sum() })
}

/// The files that modules see while they are executed, besides the snapshot of their profile.
struct Seen<'a> {
    interpreter: &'a Prepared,
    packages: &'a [Mount],
    data_files: &'a [GuestFile],
}

/// The form of images of modules: another form has none of the images before.
const MODULE_IMAGE_FORM: u32 = 1;

impl Seen<'_> {
    fn sum(&self) -> String {
        let Prepared { arguments, environment, mounts, .. } = self.interpreter;
        let mut hasher = Sha256::new();
        hasher.update(format!("{MODULE_IMAGE_FORM} {} {arguments:?} {environment:?}", env!("CARGO_PKG_VERSION")));
        hasher.update(format!("{mounts:?} {:?}", self.packages));
        for GuestFile { path, content } in self.data_files {
            hasher.update(format!("{path:?} {} ", content.len()));
            hasher.update(content);
        }
        hex::encode(hasher.finalize())
    }
}

fn missing(interpreters: &Interpreters, what: &str, error: &Unusable) -> Lacking {
    if interpreters.are_being_prepared() {
        let reason = format!("{what} being set up, which takes some minutes ({error})");
        return Lacking { reason, is_being_set_up: true };
    }
    format!("{what} not set up ({error}): run `sekisho sandbox prepare`").into()
}

/// Our own binary, as a worker.
pub(crate) fn program(config: &SandboxConfig) -> Result<Program, String> {
    let file = match &config.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|error| format!("the running program cannot be found: {error}"))?,
    };
    // `sekisho sandbox worker` calls `main` of the crate `guest-worker`.
    Ok(Program { file, arguments: ["sandbox", "worker"].map(Into::into).to_vec() })
}

fn data_files(config: &SandboxConfig) -> Result<Vec<GuestFile>, String> {
    let mut left = MAX_DATA_BYTES;
    let mut read = |path: &Path| {
        let in_file = |error: std::io::Error| format!("sandbox.data_files: {}: {error}", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let length = fs::metadata(path).map_err(in_file)?.len();
        left = left.checked_sub(length).ok_or_else(|| {
            format!("sandbox.data_files: the files are larger than {} MiB together; remove some", MAX_DATA_BYTES >> 20)
        })?;
        Ok(GuestFile { path: name.to_owned(), content: fs::read(path).map_err(in_file)? })
    };
    config.data_files.iter().map(|path| read(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_are_found_by_name_and_have_a_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("table.csv"), "a,b").unwrap();
        let config = |names: &[&str]| SandboxConfig {
            data_files: names.iter().map(|name| path(name)).collect(),
            ..SandboxConfig::default()
        };
        let found = data_files(&config(&["table.csv"])).unwrap();
        assert_eq!(found, [GuestFile { path: "table.csv".into(), content: b"a,b".to_vec() }]);
        assert!(data_files(&config(&["missing"])).unwrap_err().contains("missing"));
        fs::File::create(path("large")).unwrap().set_len(MAX_DATA_BYTES).unwrap();
        assert!(data_files(&config(&["table.csv", "large"])).unwrap_err().contains("remove some"));
    }

    #[test]
    fn an_interpreter_being_set_up_is_distinguished_from_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("interpreters");
        let interpreters = Interpreters::open(&path, "engine").unwrap();
        let error = Unusable::Missing("python.wasm".into());
        let missing = || missing(&interpreters, "the Python interpreter is", &error);
        let reason = missing().reason;
        assert!(reason.contains("is not set up (") && reason.contains("run `sekisho sandbox prepare`"), "{reason}");
        let lock = fs::File::create(path.join("lock")).unwrap();
        assert!(!missing().is_being_set_up);
        lock.lock().unwrap();
        assert!(missing().is_being_set_up && missing().reason.contains("is being set up"));
    }
}
