//! Namespaces: of users, files, processes, IPC, host name, control groups, and network.

use std::fs;
use std::io;

use rustix::process::{getgid, getuid};

use crate::profile::{Network, Profile};

/// All but the network's.
const ALWAYS: i32 =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;

/// A network of its own has no address but its loopback: it needs a gateway that makes its connections.
pub(super) fn has_own_network(profile: &Profile) -> bool {
    profile.network == Network::None || profile.supervised
}

/// Moves this process into new namespaces; into the PID namespace only its children.
///
/// Root gets a user namespace, too: its capabilities, until they are dropped, are worth nothing outside. The user is the same inside,
/// so that the granted files are as readable as without a sandbox.
pub(super) fn enter(profile: &Profile) -> Result<(), String> {
    let (user, group) = (getuid(), getgid());
    let network = if has_own_network(profile) { libc::CLONE_NEWNET } else { 0 };
    match unshare(ALWAYS | network | libc::CLONE_NEWUSER) {
        Ok(()) => {
            let write = |file: &str, text: String| fs::write(file, text).map_err(|error| format!("{file}: {error}"));
            let (user, group) = (user.as_raw(), group.as_raw());
            write("/proc/self/setgroups", "deny".to_owned())?;
            write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            write("/proc/self/gid_map", format!("{group} {group} 1"))
        }
        // Some machines forbid user namespaces; root needs none.
        Err(error) => unshare(ALWAYS | network).map_err(|_| format!("unshare: {error}")),
    }
}

fn unshare(flags: i32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "there is no safe way to leave namespaces")]
    // SAFETY: this process has one thread, and no other process shares its memory.
    let answer = unsafe { libc::unshare(flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
