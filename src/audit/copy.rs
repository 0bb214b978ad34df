//! A copy of a trail that may be written meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;

use super::error::AuditError;
use super::segments::{self, checkpoint_path, first_line_of, head_path, public_keys_path};
use super::verify::walk;

/// The files of a trail up to the last complete line with their checkpoints and the public keys, and the head for them.
#[derive(Debug)]
pub struct TrailCopy {
    pub files: Vec<CopiedFile>,
    /// The name of the head's file and its content.
    pub head: (String, Vec<u8>),
    /// Lines of all files.
    pub lines: u64,
}

/// The first `bytes` of a file of the trail.
#[derive(Debug)]
pub struct CopiedFile {
    pub name: String,
    pub file: File,
    pub bytes: u64,
}

/// Opens the files of a trail for a copy. They are verified as [`verify`](super::verify()) does.
/// Errors: the first error; there is no trail.
pub fn copy(file: &Path) -> Result<TrailCopy, AuditError> {
    let walked = walk(file)?;
    let mut files = Vec::new();
    for (path, opened) in walked.files {
        let bytes = match path == file {
            true => walked.end.bytes,
            false => opened.metadata().map_err(AuditError::unusable(&path))?.len(),
        };
        // The segment that is written is signed again where the copy goes on.
        let first = if path == file { None } else { first_line_of(&opened).map_err(AuditError::unusable(&path))? };
        files.push(CopiedFile { name: name_of(&path), file: opened, bytes });
        if let Some(first) = first {
            files.extend(existing(&checkpoint_path(file, first.number()))?);
        }
    }
    // The key that signs stays where it is.
    files.extend(existing(&public_keys_path(file))?);
    let head = serde_json::to_vec(&walked.end).map_err(|error| AuditError::unusable(file)(error.into()))?;
    Ok(TrailCopy { files, head: (name_of(&head_path(file)), head), lines: walked.verified.lines })
}

/// A file that need not be there.
fn existing(path: &Path) -> Result<Option<CopiedFile>, AuditError> {
    let unusable = AuditError::unusable(path);
    match File::open(path) {
        Ok(file) => {
            let bytes = file.metadata().map_err(unusable)?.len();
            Ok(Some(CopiedFile { name: name_of(path), file, bytes }))
        }
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(unusable(problem)),
    }
}

/// Whether there is a file of a trail, also a closed one.
/// Errors: the folder cannot be read.
pub fn exists(file: &Path) -> Result<bool, AuditError> {
    let has_folder = segments::folder(file).is_dir();
    Ok(file.exists() || head_path(file).exists() || has_folder && !segments::closed(file)?.is_empty())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
