//! The key of a gateway with an embedded store, in its state directory. One process at a time has that directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::{KEY_BYTES, SealingError, from_hex};

pub(super) fn path_of(state_directory: &Path) -> PathBuf {
    state_directory.join("secrets.key")
}

/// Errors: the file cannot be read or written, or has another content.
pub(super) fn read_or_generate(path: &Path) -> Result<[u8; KEY_BYTES], SealingError> {
    /// Several parts of a process seal: the first one generates the key for all.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    let failed = |problem| SealingError::File { path: path.to_owned(), problem };
    match fs::read_to_string(path) {
        Ok(text) => from_hex(&text).ok_or_else(|| SealingError::NoKeyInFile { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => generate(path).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// The file is complete before it has its name, so that a crash leaves none or a whole one.
fn generate(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| io::Error::other("no random numbers"))?;
    let new = path.with_extension("key.new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(format!("{}\n", hex::encode(key)).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(key)
}
