//! Packages that functions import besides the interpreter's own: wheels of pure Python, which `requirements.txt` in the
//! folder of tools names, and `requirements.lock` beside it pins. A command fetches and unpacks them once, beside the
//! interpreter's files ([`fetch`]). The gateway mounts the unpacked packages, only for modules, and never starts pip.

mod fetch;
mod requirements;
mod size;
#[cfg(test)]
mod tests;
mod unused;
mod wheel;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use self::fetch::{LockedPackages, WheelSource, lock_packages};
pub use self::size::KnownSizes;

use self::requirements::{Listed, Pin, Requirement};
use self::size::Room;
use self::unused::record_use;
use crate::prepare::default_folder;
use sekisho_core::owner_only_files;
use sekisho_guest_protocol::Mount;

/// Where modules see them, each in a folder of its own; also in `module_run.py`.
const GUEST_FOLDER: &str = "/usr/local/lib/tools";

/// The folder of unpacked wheels beside the interpreters: each is named by its SHA-256 sum.
const WHEELS: &str = "wheels";

/// The packages of a folder of tools, as far as they can be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packages {
    pub mounts: Vec<Mount>,
    names: Vec<String>,
    problems: Vec<String>,
}

impl Packages {
    /// The packages that are pinned, were fetched on this machine, and are not too large together. Sizes that are not
    /// known yet are added.
    pub fn find(tools: &Path, sizes: &mut KnownSizes) -> Self {
        Self::find_in(tools, wheels_folder().as_deref(), sizes)
    }

    fn find_in(tools: &Path, wheels: Option<&Path>, sizes: &mut KnownSizes) -> Self {
        let listed = match Listed::read(tools) {
            Ok(listed) => listed,
            Err(problem) => return Self { problems: vec![problem], ..Self::default() },
        };
        let (mut packages, mut room) = (Self::default(), Room::new(sizes));
        for requirement in &listed.requirements {
            let Some(pin) = listed.pin_of(requirement) else {
                packages.problems.push(not_pinned(requirement));
                continue;
            };
            let Pin { name, version, .. } = pin;
            match place_of(pin, wheels, &mut room) {
                Ok(host_path) => {
                    packages.names.push(format!("{name} {version}"));
                    packages.mounts.push(Mount { guest_path: format!("{GUEST_FOLDER}/{name}"), host_path });
                }
                Err(problem) => packages.problems.push(problem),
            }
        }
        packages
    }

    /// Names and versions of those that modules can import.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The packages that they cannot import, and the remedy.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Identifies the packages that modules can import; empty where there are none.
    pub fn sum(&self) -> String {
        if self.mounts.is_empty() {
            return String::new();
        }
        let mut hasher = Sha256::new();
        for Mount { guest_path, host_path } in &self.mounts {
            let sum = host_path.file_name().unwrap_or_default();
            hasher.update(format!("{guest_path} {}\n", sum.to_string_lossy()));
        }
        hex::encode(hasher.finalize())
    }
}

fn not_pinned(Requirement { line, text, .. }: &Requirement) -> String {
    format!("requirements.txt:{line}: `{text}` is not pinned in requirements.lock: run `sekisho tools lock`")
}

/// The folder of an unpacked wheel, which counts as used.
/// Errors: why it cannot be used, and the remedy.
fn place_of(pin: &Pin, wheels: Option<&Path>, room: &mut Room<'_>) -> Result<PathBuf, String> {
    let Pin { name, version, sha256, .. } = pin;
    let missing = |reason: &str| {
        format!("{name} {version} of requirements.lock is not on this machine ({reason}): run `sekisho tools lock`")
    };
    let folder = wheels.ok_or_else(|| missing("there is no cache folder; set HOME"))?.join(sha256);
    owner_only_files::check_folder(&folder).map_err(|error| missing(&error.to_string()))?;
    record_use(&folder);
    room.take(pin, &folder)?;
    Ok(folder)
}

/// `None` where there is no cache folder.
fn wheels_folder() -> Option<PathBuf> {
    default_folder().map(|folder| folder.join(WHEELS))
}
