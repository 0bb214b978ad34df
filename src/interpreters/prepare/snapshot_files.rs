//! Snapshots of the folder of interpreters: each is kept until it is compiled, and its sum as long as the folder.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::error::{PrepareError, doing};
use super::snapshot::{Snapshots, with_exported_state};
use super::{Interpreters, Progress};
use crate::interpreter::{Manifest, Profile};
use sekisho_core::owner_only_files;
use sekisho_guest_protocol::Prepared;

/// The folder with a sum of each snapshot whose state is exported.
pub(super) const SNAPSHOT_SUMS: &str = "snapshot_sums";

/// Of a SHA-256 sum in hexadecimal.
const SUM_LENGTH: u64 = 64;

impl Interpreters {
    /// The module is instrumented once for all profiles, which takes a minute and 2 GB. A snapshot is kept until it is
    /// compiled, so that an interrupted preparation need not take it again.
    pub(super) fn take_snapshot<'m>(
        &self,
        manifest: &Manifest,
        profile: &Profile,
        (module, guest): (&'m [u8], &'m Prepared),
        snapshots: &mut Option<Snapshots<'m>>,
        progress: &Progress,
    ) -> Result<(), PrepareError> {
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
            write(&self.snapshot_sum_path(&sum), hex::encode(digest).as_bytes())?;
        }
        write(&self.snapshot_path(&sum), &taken)?;
        step.done();
        Ok(())
    }

    /// Of a profile's snapshot, if its state is exported.
    pub(super) fn snapshot_sum(&self, sum: &str) -> Option<String> {
        let file = owner_only_files::open(&self.snapshot_sum_path(sum)).ok()?;
        let mut text = String::new();
        file.take(SUM_LENGTH + 1).read_to_string(&mut text).ok()?;
        (text.len() as u64 == SUM_LENGTH).then_some(text)
    }

    /// Name of a snapshot that is not compiled yet.
    pub(super) fn snapshot_path(&self, sum: &str) -> PathBuf {
        self.path.join("snapshots").join(sum)
    }

    fn snapshot_sum_path(&self, sum: &str) -> PathBuf {
        self.path.join(SNAPSHOT_SUMS).join(sum)
    }
}
