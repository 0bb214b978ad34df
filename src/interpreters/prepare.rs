//! Sets an interpreter up once: fetch, verify, unpack and compile, step by step. Every step stores its result
//! atomically, under a name derived from its inputs. So an interrupted preparation continues where it stopped, a
//! finished one is recognised in milliseconds, and a new version of any input gets a new name.

mod error;
mod fetch;
mod heap;
mod progress;
mod snapshot;
mod snapshot_files;
#[cfg(test)]
mod tests;
mod unpack;

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use wasmtime::Engine;

pub use self::error::PrepareError;
use self::error::doing;
pub use self::progress::Progress;
use self::snapshot_files::SNAPSHOT_SUMS;
use crate::compiled::CompiledFolder;
use crate::interpreter::{Digest, Manifest, Profile, SourcePackage};
use sekisho_core::owner_only_files;
use sekisho_core::owner_only_files::Unusable;
use sekisho_guest_protocol::{Kind, Mount, Prepared, PreparedProfile};
use sekisho_guest_system::engine::fingerprint;

/// The source of the package, for a manifest with an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Downloaded by pip; the command that starts Python, such as `python3`.
    Pip(Vec<OsString>),
    /// A wheel downloaded before.
    Wheel(PathBuf),
}

impl Default for Source {
    fn default() -> Self {
        Self::Pip(vec!["python3".into()])
    }
}

/// Compiled files unused for this long are removed when new ones are written.
const UNUSED_FOR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The private folder in which interpreters are set up.
#[derive(Debug, Clone)]
pub struct Interpreters {
    path: PathBuf,
    compiled: CompiledFolder,
}

/// The default folder of interpreters: `$XDG_CACHE_HOME/sekisho/interpreters`, otherwise
/// `~/.cache/sekisho/interpreters`. `None` where neither variable is an absolute path.
pub fn default_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("sekisho").join("interpreters"))
}

/// Unpacks a wheel, whose content this is and was verified, into the folder of that name. Whoever calls this has the folder
/// around it to itself.
///
/// # Errors
/// It cannot be unpacked, or is too large; no part of it remains under the name.
pub(crate) fn unpack_wheel(path: &Path, content: &[u8], target: &Path) -> Result<(), PrepareError> {
    unpack::wheel(path, content, target)
}

impl Interpreters {
    /// Creates the folder if it is missing. Modules are compiled for engines with this one's settings.
    ///
    /// # Errors
    /// When it cannot be created, or is open to other users.
    pub fn open(path: &Path, engine: &Engine) -> Result<Self, PrepareError> {
        let inner = ["files", "archives", "snapshots", SNAPSHOT_SUMS].map(|name| path.join(name));
        for folder in [path.to_owned()].into_iter().chain(inner) {
            owner_only_files::make_folder(&folder).map_err(doing("make the folder", &folder))?;
        }
        let compiled = path.join("compiled");
        let folder = CompiledFolder::open(&compiled, &fingerprint(engine));
        Ok(Self { path: path.to_owned(), compiled: folder.map_err(doing("make the folder", &compiled))? })
    }

    /// Does the remaining steps, and waits while another process prepares. Do not call it inside a runtime: it blocks
    /// for minutes and has its own.
    ///
    /// # Errors
    /// The reason and the remedy; finished steps are kept.
    pub fn prepare(
        &self,
        manifest: &Manifest,
        engine: &Engine,
        source: &Source,
        progress: &Progress,
    ) -> Result<Prepared, PrepareError> {
        if let Ok(prepared) = self.find(manifest) {
            return Ok(prepared);
        }
        let _one_at_a_time = self.lock(progress)?;
        if self.find_files(manifest).is_err() {
            let package = fetch::package(&self.path, manifest, source, progress)?;
            unpack::files(self, manifest, package.path(), progress)?;
        }
        unpack::archives(self, manifest, progress)?;
        let missing: Vec<_> = manifest.packages.iter().filter(|one| self.check_package(one).is_err()).collect();
        if !missing.is_empty() {
            let wheels = fetch::wheels(&self.path, &missing, source, progress)?;
            unpack::packages(self, &missing, wheels.path(), progress)?;
        }
        self.compile(manifest, engine, progress)?;
        let removed = self.compiled.remove_unused(UNUSED_FOR).map_err(doing("tidy", &self.path))?;
        if removed > 0 {
            progress.report(&format!("removed {removed} compiled files that were unused for weeks"));
        }
        Ok(self.find(manifest)?)
    }

    /// Whether another process prepares an interpreter now.
    pub fn are_being_prepared(&self) -> bool {
        let lock = File::open(self.path.join("lock"));
        lock.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The complete interpreter, by names, owners and modes of its files.
    ///
    /// # Errors
    /// The first part that is missing or not owned by us.
    pub fn find(&self, manifest: &Manifest) -> Result<Prepared, Unusable> {
        match self.find_usable(manifest)? {
            (prepared, None) => Ok(prepared),
            (_, Some(missing)) => Err(missing),
        }
    }

    /// The interpreter with its compiled profiles up to the first that is missing, and the reason for that one.
    /// Profiles are compiled in order, so that programs can run while the richer ones are compiled.
    ///
    /// # Errors
    /// The first part that is missing or not owned by us, when not even the lightest profile can run.
    pub fn find_usable(&self, manifest: &Manifest) -> Result<(Prepared, Option<Unusable>), Unusable> {
        self.find_files(manifest)?;
        for archive in &manifest.archives {
            owner_only_files::check_folder(&self.archive_path(&archive.sha256))?;
        }
        manifest.packages.iter().try_for_each(|package| self.check_package(package))?;
        let mut profiles = Vec::new();
        let mut missing = None;
        for profile in &manifest.profiles {
            let sum = manifest.sum_of_profile(profile);
            match self.compiled.find(&sum) {
                Ok(compiled) => {
                    let snapshot = self.snapshot_sum(&sum);
                    profiles.push(PreparedProfile { name: profile.name.clone(), compiled, snapshot });
                }
                Err(error) if profiles.is_empty() => return Err(error),
                Err(error) => {
                    missing = Some(error);
                    break;
                }
            }
        }
        Ok((self.as_prepared(manifest, profiles), missing))
    }

    /// The complete interpreter, each file verified by its hash. A changed file is removed, so that the next
    /// preparation creates it again.
    ///
    /// # Errors
    /// The first part that is missing, not owned by us, or changed.
    pub fn verify(&self, manifest: &Manifest) -> Result<Prepared, Unusable> {
        let compared = self.compare(manifest);
        if let Err(Unusable::Changed(path)) = &compared {
            fs::remove_file(path).map_err(|error| Unusable::Unreadable(path.clone(), error))?;
        }
        compared?;
        self.find(manifest)
    }

    fn compare(&self, manifest: &Manifest) -> Result<(), Unusable> {
        for file in &manifest.files {
            owner_only_files::verify(&self.file_path(&file.sha256), file.sha256.as_str())?;
        }
        for profile in &manifest.profiles {
            self.compiled.verify(&manifest.sum_of_profile(profile))?;
        }
        Ok(())
    }

    fn check_package(&self, package: &SourcePackage) -> Result<(), Unusable> {
        owner_only_files::check_folder(&self.archive_path(&package.sha256))
    }

    fn find_files(&self, manifest: &Manifest) -> Result<(), Unusable> {
        manifest.files.iter().try_for_each(|file| owner_only_files::open(&self.file_path(&file.sha256)).map(drop))
    }

    fn mounts(&self, manifest: &Manifest) -> Vec<Mount> {
        let files = manifest.files.iter().filter_map(|file| {
            Some(Mount { guest_path: file.guest_path.clone()?, host_path: self.file_path(&file.sha256) })
        });
        let archives = manifest.archives.iter().map(|archive| Mount {
            guest_path: archive.guest_path.clone(),
            host_path: self.archive_path(&archive.sha256),
        });
        let packages = manifest.packages.iter().map(|package| Mount {
            guest_path: package.guest_path.clone(),
            host_path: self.archive_path(&package.sha256),
        });
        files.chain(archives).chain(packages).collect()
    }

    /// One profile after the other, so that each can be used as soon as it is compiled.
    fn compile(&self, manifest: &Manifest, engine: &Engine, progress: &Progress) -> Result<(), PrepareError> {
        let is_missing = |profile: &&Profile| self.compiled.find(&manifest.sum_of_profile(profile)).is_err();
        let missing: Vec<_> = manifest.profiles.iter().filter(is_missing).collect();
        let Some(file) = manifest.module_file().filter(|_| !missing.is_empty()) else { return Ok(()) };
        let path = self.file_path(&file.sha256);
        let mut module = fs::read(&path).map_err(doing("read", &path))?;
        for patch in &manifest.patches {
            let broken = |reason| PrepareError::Patch { interpreter: manifest.name.clone(), reason };
            patch.apply(&mut module).map_err(broken)?;
        }
        let guest = self.as_prepared(manifest, Vec::new());
        let mut snapshots = None;
        for profile in missing {
            if manifest.kind == Kind::Command {
                self.compile_profile(manifest, profile, engine, &path, progress)?;
                continue;
            }
            let snapshot = self.snapshot_path(&manifest.sum_of_profile(profile));
            if owner_only_files::open(&snapshot).is_err() {
                self.take_snapshot(manifest, profile, (&module, &guest), &mut snapshots, progress)?;
            }
            self.compile_profile(manifest, profile, engine, &snapshot, progress)?;
            fs::remove_file(&snapshot).map_err(doing("remove", &snapshot))?;
        }
        Ok(())
    }

    fn compile_profile(
        &self,
        manifest: &Manifest,
        profile: &Profile,
        engine: &Engine,
        path: &Path,
        progress: &Progress,
    ) -> Result<(), PrepareError> {
        let step = progress.step(&format!("compiling {} {}", manifest.name, profile.name), None);
        let module = fs::read(path).map_err(doing("read", path))?;
        let broken = |error| PrepareError::Compile { profile: profile.name.clone(), reason: format!("{error:#}") };
        let compiled = engine.precompile_module(&module).map_err(broken)?;
        let sum = manifest.sum_of_profile(profile);
        self.compiled.store(&sum, &compiled).map_err(doing("write", &self.compiled.path_of(&sum)))?;
        step.done();
        Ok(())
    }

    fn as_prepared(&self, manifest: &Manifest, profiles: Vec<PreparedProfile>) -> Prepared {
        Prepared {
            kind: manifest.kind,
            arguments: manifest.arguments.clone(),
            environment: manifest.environment.clone(),
            mounts: self.mounts(manifest),
            profiles,
        }
    }

    /// Held until it is dropped.
    fn lock(&self, progress: &Progress) -> Result<File, PrepareError> {
        let path = self.path.join("lock");
        let waits = || progress.report("another process prepares an interpreter: waiting for it");
        owner_only_files::lock(&path, waits).map_err(doing("lock", &path))
    }

    fn file_path(&self, digest: &Digest) -> PathBuf {
        self.path.join("files").join(digest.as_str())
    }

    fn archive_path(&self, digest: &Digest) -> PathBuf {
        self.path.join("archives").join(digest.as_str())
    }
}
