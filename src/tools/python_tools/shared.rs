//! Modules that the files of tools share: files that begin with `_`, and packages in folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::folder::{KnownTexts, text_of};

/// Files of all folders inside.
const MAX_FILES: usize = 500;

/// Maximum bytes of all of them: each file of tools is read with them.
const MAX_BYTES: usize = 2 << 20;

/// Folders within folders.
const MAX_DEPTH: usize = 8;

/// Entries of all folders, which are looked at each time.
const MAX_ENTRIES: usize = 10_000;

/// The modules that files may import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SharedModules {
    /// By their paths in the folder.
    sources: BTreeMap<String, Arc<str>>,
    problems: Vec<String>,
    /// Identifies the sources.
    sum: [u8; 32],
}

impl SharedModules {
    /// Reads all modules in a folder. Texts in `known` are not read again where their files are the same.
    pub(super) fn read(directory: &Path, known: &mut KnownTexts, now: SystemTime) -> Self {
        let mut found = Self::default();
        let whole = found.add(directory, "", known, &mut { MAX_ENTRIES }, now);
        if let Err(problem) = whole {
            found = Self { problems: vec![problem], ..Self::default() };
        }
        let mut hasher = Sha256::new();
        for part in found.sources.iter().flat_map(|(path, source)| [path.as_str(), &**source]) {
            // Lengths separate the parts.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        found.sum = hasher.finalize().into();
        found
    }

    /// Errors: there are too many, or a folder cannot be read.
    fn add(
        &mut self,
        folder: &Path,
        prefix: &str,
        known: &mut KnownTexts,
        entries_left: &mut usize,
        now: SystemTime,
    ) -> Result<(), String> {
        let unreadable = |error| format!("the folder {} cannot be read: {error}", folder.display());
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            *entries_left = entries_left.checked_sub(1).ok_or_else(|| {
                format!("the folders beside the files of tools have more than {MAX_ENTRIES} entries: move other files elsewhere")
            })?;
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let (is_folder, module) = (path.is_dir(), name.strip_suffix(".py"));
            if is_folder && is_identifier(&name) && name != "__pycache__" {
                if prefix.matches('/').count() == MAX_DEPTH {
                    return Err(format!("the folder {} is nested too deep: move it elsewhere", path.display()));
                }
                self.add(&path, &format!("{prefix}{name}/"), known, entries_left, now)?;
            } else if let Some(module) = module.filter(|_| !is_folder)
                && is_identifier(module)
                && (!prefix.is_empty() || module.starts_with('_'))
            {
                self.add_file(&path, &format!("{prefix}{module}"), known, now)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, name: &str, known: &mut KnownTexts, now: SystemTime) -> Result<(), String> {
        match text_of(path, name, known, now) {
            Ok(text) => drop(self.sources.insert(format!("{name}.py"), text)),
            Err(problem) => self.problems.push(problem),
        }
        let bytes: usize = self.sources.values().map(|source| source.len()).sum();
        match self.sources.len() > MAX_FILES || bytes > MAX_BYTES {
            true => Err(format!(
                "the folders of shared modules have more than {MAX_FILES} files or {} MiB, and none can be imported: move \
                 other files elsewhere, and packages of others to requirements.txt",
                MAX_BYTES >> 20
            )),
            false => Ok(()),
        }
    }

    /// Whether it is a known text of one of these files.
    pub(super) fn has(&self, name: &str) -> bool {
        self.sources.contains_key(&format!("{name}.py"))
    }

    pub(super) fn sum(&self) -> [u8; 32] {
        self.sum
    }

    /// Modules that cannot be imported.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// All sources, as the sandbox gets them.
    pub(super) fn all(&self) -> String {
        self.json(self.sources.keys())
    }

    /// The sources with these paths: JSON of an object.
    pub(super) fn json<'a>(&self, paths: impl IntoIterator<Item = &'a String>) -> String {
        let of = |path: &String| Some((path.clone(), Value::from(&**self.sources.get(path)?)));
        Value::from(paths.into_iter().filter_map(of).collect::<Map<_, _>>()).to_string()
    }
}

fn is_identifier(name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    name.chars().all(is_part) && name.starts_with(|character: char| !character.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &Path) -> SharedModules {
        SharedModules::read(folder, &mut KnownTexts::new(), SystemTime::now())
    }

    #[test]
    fn modules_and_packages_are_found_and_tools_and_other_files_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
        for inner in ["lib/inner", "lib/__pycache__", ".venv", "my-data"] {
            fs::create_dir_all(folder.path().join(inner)).unwrap();
        }
        for name in ["_shared.py", "weather.py", "lib/__init__.py", "lib/inner/models.py", "lib/a-b.py", "lib/data.csv"]
        {
            write(name, name.as_bytes());
        }
        for name in ["lib/__pycache__/a.py", ".venv/a.py", "my-data/a.py"] {
            write(name, b"");
        }
        let found = read(folder.path());
        assert_eq!(found.sources.keys().collect::<Vec<_>>(), ["_shared.py", "lib/__init__.py", "lib/inner/models.py"]);
        assert_eq!(found.json(&["_shared.py".to_owned(), "gone.py".to_owned()]), r#"{"_shared.py":"_shared.py"}"#);
        assert!(found.has("lib/inner/models") && !found.has("weather") && found.problems().is_empty());
        write("lib/__init__.py", b"changed");
        let changed = read(folder.path());
        assert!(changed.sum() != found.sum() && changed != found);
    }

    #[test]
    fn what_cannot_be_read_says_so_and_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("_latin.py"), b"x = '\xe9'").unwrap();
        fs::write(folder.path().join("_shared.py"), b"x = 1").unwrap();
        let found = read(folder.path());
        assert!(found.has("_shared") && found.problems()[0].contains("_latin.py:1: it is not UTF-8"), "{found:?}");
        for number in 0..9 {
            fs::write(folder.path().join(format!("_large{number}.py")), vec![b'#'; 250 << 10]).unwrap();
        }
        let found = read(folder.path());
        assert!(!found.has("_shared") && found.problems()[0].contains("2 MiB"), "{found:?}");
        let wide = tempfile::tempdir().unwrap();
        fs::create_dir(wide.path().join("data")).unwrap();
        for number in 0..MAX_ENTRIES {
            fs::write(wide.path().join(format!("data/{number}")), b"").unwrap();
        }
        assert!(read(wide.path()).problems()[0].contains("more than 10000 entries"));
        let deep = tempfile::tempdir().unwrap();
        fs::create_dir_all(deep.path().join("a/".repeat(10))).unwrap();
        assert!(read(deep.path()).problems()[0].contains("nested too deep"));
        assert!(read(&deep.path().join("nowhere")).problems()[0].contains("cannot be read"));
    }
}
