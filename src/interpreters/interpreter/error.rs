//! Errors of a manifest and of finding it.

use std::path::PathBuf;

use super::{InterpreterKind, Manifest};

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("`{0}` is not a plain file or profile name: use letters, digits, `.`, `_` and `-`")]
    Name(String),
    #[error("`{0}` leads out of the package: write a relative path without `..`")]
    Path(String),
    #[error("`{0}` is not an absolute path without `..` for the guest")]
    GuestPath(String),
    #[error("duplicate name `{0}`")]
    Twice(String),
    #[error("no entry of `files` is called `{0}`")]
    UnknownFile(String),
    #[error("the prelude `{0}` is missing beside the manifest")]
    UnknownPrelude(String),
    #[error("no profile: list at least one under `profiles`")]
    NoProfile,
    #[error("`{0}` has neither an `origin` nor a folder with its files")]
    NoOrigin(String),
    #[error("profile `{0}` has a prelude, but a command cannot be snapshotted: leave it out")]
    PreludeOfCommand(String),
    #[error("`heap` arranges snapshots, and a command has none: leave it out")]
    HeapOfCommand,
    #[error("no bundled interpreter `{0}`: choose one of {known}, or give the path of a folder with an interpreter.toml, with a `/` in it", known = known())]
    Unknown(String),
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, #[source] std::io::Error),
}

impl Manifest {
    /// Checks that the parts of a manifest are consistent, and that no name or path leaves its folder.
    pub(super) fn check(&self) -> Result<(), ManifestError> {
        self.check_names()?;
        self.check_paths()?;
        self.check_profiles()
    }

    fn check_names(&self) -> Result<(), ManifestError> {
        let files = self.files.iter().map(|file| file.name.as_str());
        let profiles = self.profiles.iter().map(|profile| profile.name.as_str());
        let preludes = self.profiles.iter().filter_map(|profile| profile.prelude.as_deref());
        let package = self.origin.iter().map(|origin| origin.package.as_str());
        let packages = self.packages.iter().flat_map(|package| [package.name.as_str(), package.version.as_str()]);
        let own = [self.name.as_str(), self.version.as_str()].into_iter().chain(package).chain(packages);
        if let Some(bad) = own.chain(files.clone()).chain(profiles.clone()).chain(preludes).find(|name| !is_name(name))
        {
            return Err(ManifestError::Name(bad.to_owned()));
        }
        for names in [files.collect::<Vec<_>>(), profiles.collect()] {
            if let Some(twice) = first_repeated(&names) {
                return Err(ManifestError::Twice(twice.to_owned()));
            }
        }
        let used = std::iter::once(&self.module).chain(self.archives.iter().map(|archive| &archive.file));
        for name in used {
            if !self.files.iter().any(|file| file.name == *name) {
                return Err(ManifestError::UnknownFile(name.clone()));
            }
        }
        if self.origin.is_none() && self.folder.is_none() {
            return Err(ManifestError::NoOrigin(self.name.clone()));
        }
        Ok(())
    }

    fn check_profiles(&self) -> Result<(), ManifestError> {
        let arrange = self.heap.iter().map(|heap| &heap.arrange);
        let mut preludes = self.profiles.iter().filter_map(|profile| profile.prelude.as_ref()).chain(arrange);
        if let Some(unknown) = preludes.find(|name| !self.preludes.contains_key(*name)) {
            return Err(ManifestError::UnknownPrelude(unknown.clone()));
        }
        if self.profiles.is_empty() {
            return Err(ManifestError::NoProfile);
        }
        match self.profiles.iter().find(|profile| profile.prelude.is_some()) {
            Some(profile) if self.kind == InterpreterKind::Command => {
                Err(ManifestError::PreludeOfCommand(profile.name.clone()))
            }
            None if self.kind == InterpreterKind::Command && self.heap.is_some() => Err(ManifestError::HeapOfCommand),
            _ => Ok(()),
        }
    }

    fn check_paths(&self) -> Result<(), ManifestError> {
        let inside = self.files.iter().map(|file| &file.path).chain(self.archives.iter().map(|archive| &archive.path));
        for path in inside.chain(self.packages.iter().filter_map(|package| package.only.as_ref())) {
            if !is_relative(path) {
                return Err(ManifestError::Path(path.clone()));
            }
        }
        let guest = self.files.iter().filter_map(|file| file.guest_path.as_ref());
        let guest = guest.chain(self.archives.iter().map(|archive| &archive.guest_path));
        for path in guest.chain(self.packages.iter().map(|package| &package.guest_path)) {
            if !path.strip_prefix('/').is_some_and(is_relative) {
                return Err(ManifestError::GuestPath(path.clone()));
            }
        }
        Ok(())
    }
}

/// One path component, without `..`.
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

fn known() -> String {
    Manifest::bundled_names().collect::<Vec<_>>().join(", ")
}
