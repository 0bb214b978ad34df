//! The key of a trail (`<file>.key`, mode 0600), which is generated when it is first used, and the public halves of
//! all its keys so far (`<file>.pub`), the newest first.

use std::fs;
use std::io;
use std::path::Path;

use super::note::{SigningKey, VerifierKey};
use crate::AuditError;
use crate::disk::replace;
use crate::segments::{key_path, public_keys_path};
use crate::upload::trail_id;

/// The key that signs.
pub(super) fn open(file: &Path) -> io::Result<SigningKey> {
    let path = key_path(file);
    let key = match fs::read_to_string(&path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return generate(file),
        text => SigningKey::read(&text?),
    };
    let key = key.ok_or_else(|| {
        io::Error::other(format!("{} is no key; put the key back, or remove the file for a new one", path.display()))
    })?;
    publish(file, key.public())?;
    Ok(key)
}

fn generate(file: &Path) -> io::Result<SigningKey> {
    let name = format!("sekisho/audit/{}", trail_id(file).map_err(io::Error::other)?);
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed).map_err(|_| io::Error::other("no random numbers"))?;
    let key = SigningKey::new(&name, seed).ok_or_else(|| io::Error::other("the key cannot be generated"))?;
    // Its public half first: nothing is signed by a key that nobody can know.
    publish(file, key.public())?;
    replace(&key_path(file), key.text_of(&seed).as_bytes())?;
    Ok(key)
}

fn publish(file: &Path, key: &VerifierKey) -> io::Result<()> {
    let known = read(file)?;
    if known.contains(key) {
        return Ok(());
    }
    let all: String = [key].into_iter().chain(&known).map(|key| format!("{key}\n")).collect();
    replace(&public_keys_path(file), all.as_bytes())
}

fn read(file: &Path) -> io::Result<Vec<VerifierKey>> {
    let path = public_keys_path(file);
    match fs::read_to_string(&path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => {
            let text = text?;
            let keys = text.lines().map(str::parse::<VerifierKey>).collect::<Result<Vec<_>, _>>();
            keys.map_err(|problem| io::Error::other(format!("{}: {problem}", path.display())))
        }
    }
}

/// The public keys of a trail, the newest first; empty before anything was signed.
/// Errors: the file cannot be read.
pub fn public_keys(file: &Path) -> Result<Vec<VerifierKey>, AuditError> {
    read(file).map_err(AuditError::unusable(&public_keys_path(file)))
}

/// Generates another key for a trail. A running gateway signs with it from its next segment on, or its next start.
/// Errors: a file cannot be read or written.
pub fn rotate_key(file: &Path) -> Result<VerifierKey, AuditError> {
    generate(file).map(|key| key.public().clone()).map_err(AuditError::unusable(&key_path(file)))
}
