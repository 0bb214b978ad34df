//! Why a secret could not be sealed or opened. No message has a key or a secret in it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum SealingError {
    #[error("no key for secrets at rest is configured: set `secrets.key`, as from `openssl rand -hex 32`")]
    NoKey,
    #[error("the key {id} that sealed this record is not in force: set it as `secrets.previous_key`")]
    UnknownKey { id: String },
    #[error("the record is damaged, or was sealed for somebody else")]
    Damaged,
    #[error("the record could not be sealed")]
    NotSealed,
    #[error("{}: the key for secrets at rest cannot be read or written ({problem})", path.display())]
    File { path: PathBuf, problem: io::Error },
    #[error(
        "{}: this is not a key of 64 hexadecimal digits; restore the file, or remove it: what it sealed is lost then",
        path.display()
    )]
    NoKeyInFile { path: PathBuf },
}
