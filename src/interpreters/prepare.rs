//! The private folder of interpreters: its contents, and missing files. Nothing here runs or compiles WebAssembly.

mod error;
mod progress;
pub mod unpack;

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

pub use self::error::{PrepareError, doing};
pub use self::progress::{Progress, Step};
use crate::compiled::CompiledFolder;
use crate::interpreter::{Digest, Manifest, SourcePackage};
use sekisho_core::owner_only_files;
use sekisho_core::owner_only_files::Unusable;
use sekisho_guest_protocol::{Mount, Prepared, PreparedProfile};

/// The folder with a sum of each snapshot whose state is exported.
const SNAPSHOT_SUMS: &str = "snapshot_sums";

/// The length of a SHA-256 sum in hexadecimal.
const SUM_LENGTH: u64 = 64;

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
/// Errors: it cannot be unpacked, or is too large; no part of it remains under the name.
pub(crate) fn unpack_wheel(path: &Path, content: &[u8], target: &Path) -> Result<(), PrepareError> {
    unpack::wheel(path, content, target)
}

impl Interpreters {
    /// Creates the folder if it is missing. `fingerprint`: the engine for which modules are compiled.
    /// Errors: when it cannot be created, or is open to other users.
    pub fn open(path: &Path, fingerprint: &str) -> Result<Self, PrepareError> {
        let inner = ["files", "archives", "snapshots", SNAPSHOT_SUMS].map(|name| path.join(name));
        for folder in [path.to_owned()].into_iter().chain(inner) {
            owner_only_files::make_folder(&folder).map_err(doing("make the folder", &folder))?;
        }
        let compiled = path.join("compiled");
        let folder = CompiledFolder::open(&compiled, fingerprint);
        Ok(Self { path: path.to_owned(), compiled: folder.map_err(doing("make the folder", &compiled))? })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The compiled profiles, by [`Manifest::sum_of_profile`].
    pub fn compiled(&self) -> &CompiledFolder {
        &self.compiled
    }

    /// Whether another process prepares an interpreter now.
    pub fn are_being_prepared(&self) -> bool {
        let lock = File::open(self.path.join("lock"));
        lock.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The complete interpreter, by names, owners and modes of its files.
    /// Errors: the first part that is missing or not owned by us.
    pub fn find(&self, manifest: &Manifest) -> Result<Prepared, Unusable> {
        match self.find_usable(manifest)? {
            (prepared, None) => Ok(prepared),
            (_, Some(missing)) => Err(missing),
        }
    }

    /// The interpreter with its compiled profiles up to the first that is missing, and the reason for that one.
    /// Profiles are compiled in order, so that programs can run while the richer ones are compiled.
    /// Errors: the first part that is missing or not owned by us, when not even the lightest profile can run.
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
    /// Errors: the first part that is missing, not owned by us, or changed.
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

    /// Errors: it is not unpacked, or not owned by us.
    pub fn check_package(&self, package: &SourcePackage) -> Result<(), Unusable> {
        owner_only_files::check_folder(&self.archive_path(&package.sha256))
    }

    /// Errors: the first that is missing or not owned by us.
    pub fn find_files(&self, manifest: &Manifest) -> Result<(), Unusable> {
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

    /// With these profiles.
    pub fn as_prepared(&self, manifest: &Manifest, profiles: Vec<PreparedProfile>) -> Prepared {
        Prepared {
            kind: manifest.kind,
            arguments: manifest.arguments.clone(),
            environment: manifest.environment.clone(),
            mounts: self.mounts(manifest),
            table_elements: manifest.table_elements,
            profiles,
        }
    }

    /// The lock of the one process that prepares. Held until it is dropped.
    /// Errors: the folder cannot be written to.
    pub fn lock(&self, progress: &Progress) -> Result<File, PrepareError> {
        let path = self.path.join("lock");
        let waits = || progress.report("another process prepares an interpreter: waiting for it");
        owner_only_files::lock(&path, waits).map_err(doing("lock", &path))
    }

    pub fn file_path(&self, digest: &Digest) -> PathBuf {
        self.path.join("files").join(digest.as_str())
    }

    pub fn archive_path(&self, digest: &Digest) -> PathBuf {
        self.path.join("archives").join(digest.as_str())
    }

    /// The sum of a profile's snapshot, if its state is exported.
    pub fn snapshot_sum(&self, sum: &str) -> Option<String> {
        let file = owner_only_files::open(&self.snapshot_sum_path(sum)).ok()?;
        let mut text = String::new();
        file.take(SUM_LENGTH + 1).read_to_string(&mut text).ok()?;
        (text.len() as u64 == SUM_LENGTH).then_some(text)
    }

    /// Where a snapshot is that is not compiled yet.
    pub fn snapshot_path(&self, sum: &str) -> PathBuf {
        self.path.join("snapshots").join(sum)
    }

    /// Where its sum is, if its state is exported.
    pub fn snapshot_sum_path(&self, sum: &str) -> PathBuf {
        self.path.join(SNAPSHOT_SUMS).join(sum)
    }
}
