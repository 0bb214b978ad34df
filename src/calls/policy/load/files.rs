//! Finds the files of a policy set.

use std::fs;
use std::path::{Path, PathBuf};

use super::PolicyError;

#[derive(Debug)]
pub(super) struct SourceFile {
    /// The path that can be opened, for messages.
    pub(super) name: String,
    /// The path within the set, so that a moved folder keeps its version.
    pub(super) short_name: String,
    pub(super) text: String,
}

/// The folder of test cases inside a policy folder.
pub(in crate::policy) const CASES: &str = "cases";

const LIBRARY: &str = "lib.rego";
const LIBRARY_TEXT: &str = include_str!("../../../../policies/lib.rego");
const DEFAULT_TEXT: &str = include_str!("../../../../policies/tools.rego");

/// All `.rego` files of a folder and its subfolders, sorted by path, with the built-in `lib.rego` unless
/// the folder has its own. Without a folder, the default set.
/// Errors: files that cannot be read, or a folder without policies.
pub(super) fn read(directory: Option<&Path>) -> Result<Vec<SourceFile>, Vec<PolicyError>> {
    let Some(directory) = directory else {
        return Ok(vec![shipped(LIBRARY, LIBRARY_TEXT), shipped("tools.rego", DEFAULT_TEXT)]);
    };
    let (mut paths, mut errors) = (Vec::new(), Vec::new());
    collect(directory, true, &mut paths, &mut errors);
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        match fs::read_to_string(&path) {
            Ok(text) => files.push(SourceFile {
                name: path.display().to_string(),
                short_name: path.strip_prefix(directory).unwrap_or(&path).display().to_string(),
                text,
            }),
            Err(error) => errors.push(unreadable(&path, &error)),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if files.is_empty() {
        let message = "there is no .rego file here; remove `policy.directory` to use the default policies";
        return Err(vec![PolicyError::new(directory.display().to_string(), None, message)]);
    }
    if files.iter().all(|file| file.short_name != LIBRARY) {
        files.insert(0, shipped(LIBRARY, LIBRARY_TEXT));
    }
    Ok(files)
}

/// The name of the built-in library in messages.
pub(super) fn shipped_library() -> String {
    shipped_name(LIBRARY)
}

fn shipped(file: &str, text: &str) -> SourceFile {
    SourceFile { name: shipped_name(file), short_name: file.to_owned(), text: text.to_owned() }
}

fn shipped_name(file: &str) -> String {
    format!("(shipped) {file}")
}

fn collect(directory: &Path, top: bool, paths: &mut Vec<PathBuf>, errors: &mut Vec<PolicyError>) {
    let entries = match fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => return errors.push(unreadable(directory, &error)),
    };
    for entry in entries {
        let path = entry.path();
        // Hidden files belong to editors and Kubernetes (`..data`). Linked files are read; linked folders are
        // refused, because they could form a loop.
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if hidden || (top && is_folder && entry.file_name() == CASES) {
            continue;
        }
        if !is_folder && path.is_dir() {
            let problem = "is a link to a folder, which is not followed; put the folder itself here";
            errors.push(PolicyError::new(path.display().to_string(), None, problem));
        } else if is_folder {
            collect(&path, false, paths, errors);
        } else if path.extension().is_some_and(|extension| extension == "rego") {
            paths.push(path);
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> PolicyError {
    PolicyError::new(
        path.display().to_string(),
        None,
        format!("cannot be read: {error}; check the path and its permissions"),
    )
}
