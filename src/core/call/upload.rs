//! The body of a request that is a file.

use std::fs::File;

use crate::share::Lease;

/// A file that came as a request's body, for the tool that stores it. The file has no name in the file system: it is
/// gone with the last call that has it.
#[derive(Debug)]
pub struct Upload {
    pub file: File,
    pub bytes: u64,
    /// SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
    /// Its share of the disk space for all uploads.
    pub space: Option<Lease>,
}
