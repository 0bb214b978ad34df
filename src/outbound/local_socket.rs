//! The Unix socket in the state directory, at which a gateway serves the commands of its own user.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};

const FILE: &str = "gateway.sock";

/// Maximum bytes of a socket's path: systems allow 104 (macOS) to 108 (Linux), with the zero at the end.
const MAX_PATH_BYTES: usize = 100;

/// The path of the socket cannot be used, and there is no other folder for it.
#[derive(Debug, Error)]
#[error(
    "the path of the Unix socket {} is longer than {MAX_PATH_BYTES} bytes; set XDG_RUNTIME_DIR, or a state directory with \
     a shorter path",
    .0.display()
)]
pub struct SocketPathError(PathBuf);

/// A bound socket. Dropping it removes the file.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

/// The socket of the gateway that uses this state directory: in it, or in `$XDG_RUNTIME_DIR` if the path is too long.
/// Errors: the path is too long and the variable is not set.
pub fn path_of(state_directory: &Path) -> Result<PathBuf, SocketPathError> {
    path_in(state_directory, std::env::var_os("XDG_RUNTIME_DIR"))
}

fn path_in(state_directory: &Path, runtime_directory: Option<OsString>) -> Result<PathBuf, SocketPathError> {
    // All processes name the directory alike, whatever their working directories.
    let directory = std::path::absolute(state_directory).unwrap_or_else(|_| state_directory.to_owned());
    let path = directory.join(FILE);
    if path.as_os_str().len() <= MAX_PATH_BYTES {
        return Ok(path);
    }
    let digest = hex::encode(&Sha256::digest(directory.as_os_str().as_bytes())[..12]);
    let folder = runtime_directory.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let short = folder.map(|folder| folder.join(format!("sekisho-{digest}.sock")));
    short.filter(|short| short.as_os_str().len() <= MAX_PATH_BYTES).ok_or(SocketPathError(path))
}

impl LocalSocket {
    /// Binds the socket, in place of one that an earlier process left. The state directory's lock must be held.
    /// Errors: the folder cannot be written to.
    pub fn bind(path: PathBuf) -> io::Result<Self> {
        // Nobody can open the socket by its name before it is restricted to this user.
        let unfinished = path.with_extension("new");
        remove(&unfinished)?;
        let listener = UnixListener::bind(&unfinished)?;
        std::fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
        std::fs::rename(&unfinished, &path)?;
        Ok(Self { listener, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection of this user; connections of other users are closed.
    /// Errors: a connection could not be accepted.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            if is_trusted(user, geteuid().as_raw()) {
                return Ok(stream);
            }
            tracing::warn!(user, "a connection of another user to the Unix socket was closed");
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, "the Unix socket could not be removed");
        }
    }
}

/// File permissions already keep other users out; this holds where a folder was opened to them by mistake. The
/// superuser can do everything anyway.
fn is_trusted(user: u32, own: u32) -> bool {
    user == own || user == 0
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_moves_to_the_runtime_directory() {
        let runtime = || Some(OsString::from("/run/user/1000"));
        assert_eq!(path_in(Path::new("/srv/state"), runtime()).unwrap(), Path::new("/srv/state/gateway.sock"));
        let long = PathBuf::from(format!("/srv/{}", "x".repeat(100)));
        let moved = path_in(&long, runtime()).unwrap();
        assert!(
            moved.starts_with("/run/user/1000") && moved.extension().is_some_and(|name| name == "sock"),
            "{moved:?}"
        );
        assert_eq!(path_in(&long, runtime()).unwrap(), moved);
        assert_ne!(path_in(&long.join("other"), runtime()).unwrap(), moved);
        for unusable in [None, Some(OsString::new()), Some(OsString::from(format!("/{}", "y".repeat(100))))] {
            let refused = path_in(&long, unusable).unwrap_err().to_string();
            assert!(refused.contains("XDG_RUNTIME_DIR"), "{refused}");
        }
    }

    #[test]
    fn only_this_user_and_the_superuser_are_trusted() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
    }

    #[tokio::test]
    async fn the_socket_replaces_a_stale_one_is_private_and_goes_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        std::mem::forget(LocalSocket::bind(path.clone()).unwrap());
        let socket = LocalSocket::bind(path.clone()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (accepted, connected) = tokio::join!(socket.accept(), UnixStream::connect(&path));
        accepted.unwrap();
        connected.unwrap();
        drop(socket);
        assert!(!path.exists());
    }
}
