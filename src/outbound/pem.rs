//! Certificates and keys in PEM files.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// A file without the expected content. No content of the file is shown.
#[derive(Debug, Error)]
#[error("{file}: {problem}", file = .file.display())]
pub struct PemFileError {
    file: PathBuf,
    problem: String,
}

/// The certificates of a file, at least one.
/// Errors: a file that cannot be read, or has no certificate.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.and_then(|found| if found.is_empty() { Err(Error::NoItemsFound) } else { Ok(found) });
    found.map_err(|error| problem(file, &error, "certificate"))
}

/// The certificates of a file, each of which can be trusted as an authority.
/// Errors: as [`certificates`], and a certificate that cannot be parsed.
pub fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let (found, mut roots) = (certificates(file)?, RootCertStore::empty());
    for certificate in &found {
        roots
            .add(certificate.clone())
            .map_err(|error| PemFileError { file: file.to_owned(), problem: error.to_string() })?;
    }
    Ok(found)
}

/// The first private key of a file.
/// Errors: a file that cannot be read, or has no key; one with a password counts as none.
pub fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, PemFileError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| problem(file, &error, "private key without a password"))
}

fn problem(file: &Path, error: &Error, expected: &str) -> PemFileError {
    let problem = match error {
        Error::Io(error) => format!("it cannot be read: {error}"),
        Error::NoItemsFound => format!("it contains no {expected}; write it as PEM"),
        _ => "it is not valid PEM".to_owned(),
    };
    PemFileError { file: file.to_owned(), problem }
}
