//! How much the packages of a folder of tools have together.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::requirements::Pin;

/// All packages together, unpacked. Each worker process mounts them: it reads their small files into its memory, and maps the
/// others. So they have as much as the data files of `sandbox.data_files`, and one wheel of the largest size fits.
const MAX_BYTES: u64 = 128 << 20;

/// Sizes of unpacked wheels by their sums. The content of a sum does not change, and is measured once.
pub type KnownSizes = BTreeMap<String, u64>;

/// The room for further packages.
#[derive(Debug)]
pub(super) struct Room<'a> {
    left: u64,
    known: &'a mut KnownSizes,
}

impl<'a> Room<'a> {
    pub(super) fn new(known: &'a mut KnownSizes) -> Self {
        Self { left: MAX_BYTES, known }
    }

    /// Takes the room of the package, which is unpacked in this folder.
    /// Errors: its name, and why there is no room for it.
    pub(super) fn take(&mut self, pin: &Pin, folder: &Path) -> Result<(), String> {
        let Pin { name, version, sha256, .. } = pin;
        let bytes = match self.known.get(sha256) {
            Some(bytes) => *bytes,
            None => bytes_in(folder).map_err(|error| format!("{name} {version} cannot be read: {error}"))?,
        };
        self.known.insert(sha256.clone(), bytes);
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            format!(
                "{name} {version} cannot be used: with it, the packages have more than {} MiB together when they are \
                 unpacked. Remove those that no function imports from requirements.txt, and run `sekisho tools lock`",
                MAX_BYTES >> 20
            )
        })?;
        Ok(())
    }
}

fn bytes_in(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        let more = if found.is_dir() { bytes_in(&entry.path())? } else { found.len() };
        bytes = bytes.saturating_add(more);
    }
    Ok(bytes)
}
