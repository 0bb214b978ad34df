//! Which files make up a set.

use std::fs;
use std::path::{Path, PathBuf};

use super::PolicyError;

#[derive(Debug)]
pub(super) struct SourceFile {
    /// For messages: the path as it can be opened.
    pub(super) name: String,
    /// Within the set, so that a moved folder keeps its version.
    pub(super) short_name: String,
    pub(super) text: String,
}

/// The folder of test cases inside a policy folder.
pub(in crate::policy) const CASES: &str = "cases";

const LIBRARY: &str = "lib.rego";
const LIBRARY_TEXT: &str = include_str!("../../../policies/lib.rego");
const DEFAULT_TEXT: &str = include_str!("../../../policies/tools.rego");

/// All `.rego` files of a folder and its subfolders, in the order of their paths, with the shipped
/// `lib.rego` unless the folder has its own; the default set without a folder.
///
/// # Errors
/// What cannot be read, and a folder without policies.
pub(super) fn read(directory: Option<&Path>) -> Result<Vec<SourceFile>, Vec<PolicyError>> {
    let Some(directory) = directory else {
        return Ok(vec![shipped(LIBRARY, LIBRARY_TEXT), shipped("tools.rego", DEFAULT_TEXT)]);
    };
    let (mut paths, mut faults) = (Vec::new(), Vec::new());
    collect(directory, true, &mut paths, &mut faults);
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        match fs::read_to_string(&path) {
            Ok(text) => files.push(SourceFile {
                name: path.display().to_string(),
                short_name: path.strip_prefix(directory).unwrap_or(&path).display().to_string(),
                text,
            }),
            Err(error) => faults.push(unreadable(&path, &error)),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    if files.is_empty() {
        let message = "there is no .rego file here; leave `policy.directory` out for the default policies";
        return Err(vec![PolicyError::new(directory.display().to_string(), None, message)]);
    }
    if files.iter().all(|file| file.short_name != LIBRARY) {
        files.insert(0, shipped(LIBRARY, LIBRARY_TEXT));
    }
    Ok(files)
}

/// The name of the shipped library in messages.
pub(super) fn shipped_library() -> String {
    shipped_name(LIBRARY)
}

fn shipped(file: &str, text: &str) -> SourceFile {
    SourceFile { name: shipped_name(file), short_name: file.to_owned(), text: text.to_owned() }
}

fn shipped_name(file: &str) -> String {
    format!("(shipped) {file}")
}

fn collect(directory: &Path, top: bool, paths: &mut Vec<PathBuf>, faults: &mut Vec<PolicyError>) {
    let entries = match fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => return faults.push(unreadable(directory, &error)),
    };
    for entry in entries {
        let path = entry.path();
        // Hidden names are editors' and Kubernetes' own (`..data`), not policies. Linked files are read;
        // linked folders could form a loop.
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if hidden || (top && is_folder && entry.file_name() == CASES) {
            continue;
        }
        if !is_folder && path.is_dir() {
            let problem = "is a link to a folder, whose policies would not be read; put the folder itself here";
            faults.push(PolicyError::new(path.display().to_string(), None, problem));
        } else if is_folder {
            collect(&path, false, paths, faults);
        } else if path.extension().is_some_and(|extension| extension == "rego") {
            paths.push(path);
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> PolicyError {
    PolicyError::new(path.display().to_string(), None, format!("cannot be read: {error}"))
}
