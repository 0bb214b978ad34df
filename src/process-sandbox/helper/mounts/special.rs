//! `/dev`, `/proc` and the files of `/etc` that are made.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use rustix::process::{getgid, getuid};

use super::{Applied, Layer, Profile, bind, in_new, mount_memory, set_attributes_at, tree};
use crate::network;

/// Memory that processes share: Chromium and Python's `multiprocessing` use it.
const SHARED_BYTES: u64 = 512 << 20;

/// Semaphores of System V in a set, in all sets, and changes of a call; and sets. As Linux had it before 3.19.
const SEMAPHORES: &str = "250 32000 32 128";

/// Queues of messages of System V, each with 16 KiB.
const MESSAGE_QUEUES: &str = "128";

/// The least that the kernel takes as `pid_max`.
const MIN_PROCESSES: u64 = 301;

pub(super) fn make_devices() -> Result<(), String> {
    let dev = in_new(Path::new("/dev"));
    let failed = |error: io::Error| format!("/dev: {error}");
    for name in ["shm", "pts"] {
        fs::create_dir_all(dev.join(name)).map_err(failed)?;
    }
    for name in tree::DEVICES {
        bind(&Path::new("/old/dev").join(name), &dev.join(name), libc::MOUNT_ATTR_NOEXEC)?;
    }
    mount_memory(&dev.join("shm"), SHARED_BYTES, "1777")?;
    // Servers that run commands give them a terminal. Without it they use pipes.
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    _ = mount("devpts", dev.join("pts"), "devpts", flags, c"newinstance,ptmxmode=0666,mode=620");
    for (name, target) in tree::DEVICE_LINKS {
        symlink(target, dev.join(name)).map_err(failed)?;
    }
    Ok(())
}

/// A container may refuse a new `/proc`. Then the sandbox has the machine's: other processes can be listed, not read, as they
/// are in another user namespace.
pub(super) fn mount_proc(profile: &Profile, applied: &mut Applied) -> Result<(), String> {
    let proc = in_new(Path::new("/proc"));
    let failed = |error: io::Error| format!("/proc: {error}");
    fs::create_dir_all(&proc).map_err(failed)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let Err(error) = mount("proc", &proc, "proc", flags, c"hidepid=2") else {
        applied.record(Layer::Processes, Ok(()));
        applied.record(Layer::ProcessLimit, limit_processes(&proc, profile.limits.processes));
        limit_shared(&proc, profile.limits.memory_bytes);
        for name in tree::HIDDEN_IN_PROC {
            let at = proc.join(name);
            if at.exists() {
                bind(Path::new("/old/dev/null"), &at, libc::MOUNT_ATTR_RDONLY)?;
            }
        }
        // As root's user, a process could write `/proc/sys` of the machine without any capability.
        return set_attributes_at(&proc, libc::MOUNT_ATTR_RDONLY, true).map_err(failed);
    };
    bind(Path::new("/old/proc"), &proc, libc::MOUNT_ATTR_RDONLY)?;
    applied.record(Layer::Processes, Err(format!("it cannot be mounted: {error}")));
    applied.record(Layer::ProcessLimit, limit_of_user());
    Ok(())
}

/// By the namespace, since Linux 6.14; before, by `RLIMIT_NPROC`, which does not hold root. Before, the setting is the machine's, and root's
/// user may change it without a capability.
fn limit_processes(proc: &Path, most: u64) -> Result<(), String> {
    if !is_at_least(&rustix::system::uname().release().to_string_lossy(), (6, 14)) {
        return limit_of_user();
    }
    let file = proc.join("sys/kernel/pid_max");
    let most = most.max(MIN_PROCESSES).to_string();
    let limited = fs::write(&file, &most).and_then(|()| fs::read_to_string(&file));
    match limited {
        Ok(limit) if limit.trim() == most => Ok(()),
        _ => limit_of_user(),
    }
}

/// Limits of resources that all programs of one user share otherwise, where the kernel has the setting for a namespace.
fn limit_shared(proc: &Path, memory: u64) {
    // Of the IPC namespace: memory of the kernel, in which semaphores and messages are. Only root's user may change them.
    let of_ipc = [("shmall", &*(memory / 4_096).to_string()), ("sem", SEMAPHORES), ("msgmni", MESSAGE_QUEUES)];
    for (setting, most) in of_ipc {
        _ = fs::write(proc.join("sys/kernel").join(setting), most);
    }
    // In another user namespace these settings are the machine's.
    let map = fs::read_to_string(proc.join("self/uid_map")).unwrap_or_default();
    if map.split_whitespace().nth(2) == Some("1") {
        for (setting, most) in [("max_inotify_instances", "64"), ("max_user_namespaces", "0")] {
            _ = fs::write(proc.join("sys/user").join(setting), most);
        }
    }
}

fn is_at_least(release: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

fn limit_of_user() -> Result<(), String> {
    match getuid().is_root() {
        true => Err("RLIMIT_NPROC does not hold root, and Linux has a limit for a namespace since 6.14".to_owned()),
        false => Ok(()),
    }
}

/// The user's name is in the environment: the machine's database of users may be elsewhere.
pub(super) fn make_etc(profile: &Profile) -> io::Result<()> {
    let etc = in_new(Path::new("/etc"));
    fs::create_dir_all(&etc)?;
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let variable = |name: &str| profile.env.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let is_name =
        |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && !name.is_empty();
    let name = match user {
        0 => "root",
        _ => variable("USER").filter(is_name).unwrap_or("user"),
    };
    let home = profile.home.path.display();
    let mut passwd = format!("{name}:x:{user}:{group}::{home}:/bin/sh\n");
    let mut groups = format!("{name}:x:{group}:\n");
    if user != 65_534 {
        passwd.push_str("nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n");
    }
    if group != 65_534 {
        groups.push_str("nogroup:x:65534:\n");
    }
    write_missing(&etc.join("passwd"), &passwd)?;
    write_missing(&etc.join("group"), &groups)?;
    let resolver = match super::super::namespaces::has_own_network(profile) {
        true => format!("nameserver {}\n", network::RESOLVER),
        false => fs::read_to_string("/old/etc/resolv.conf").unwrap_or_default(),
    };
    write_missing(&etc.join("resolv.conf"), &resolver)
}

/// An entry may name the machine's file, which is there then and cannot be written.
fn write_missing(file: &Path, text: &str) -> io::Result<()> {
    if file.symlink_metadata().is_ok() { Ok(()) } else { fs::write(file, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, expected) in [
            ("6.14.0-1-generic", true),
            ("6.18.44-fc", true),
            ("7.0", true),
            ("6.9.1", false),
            ("5.15.0", false),
            ("unknown", false),
        ] {
            assert_eq!(is_at_least(release, (6, 14)), expected, "{release}");
        }
    }
}
