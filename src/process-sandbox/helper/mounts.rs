//! The files of a sandbox: a new root in memory, in which folders of the machine are mounted.

mod plan;
mod point;
mod special;

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, move_mount,
    open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

use self::plan::Plan;
use super::{Report, tree};
use crate::applied::{Applied, Layer};
use crate::links::resolve;
use crate::profile::Profile;

/// The roots while the sandbox is built: the machine's, and the new one.
const OLD: &str = "/old";
const NEW: &str = "/new";

/// Folders that may be on a machine. The new root is made above one of them.
const BASES: [&str; 4] = ["/tmp", "/run", "/mnt", "/proc"];

/// Memory of the root itself, which has made files and mount points.
const ROOT_BYTES: u64 = 16 << 20;

/// Replaces the root of this namespace.
/// Errors: what could not be mounted. The process cannot go on then. Only a machine that refuses mounts has the gateway
/// try again without them: what the program can bring about, such as a file where a folder is to be mounted, must not
/// give it a weaker sandbox.
pub(super) fn build(profile: &Profile, applied: &mut Applied) -> Result<(), Report> {
    enter_base().map_err(Report::NoNamespaces)?;
    special::make_devices().map_err(Report::NoNamespaces)?;
    special::mount_proc(profile, applied).map_err(Report::NoNamespaces)?;
    mount_files(profile).map_err(Report::Failed)?;
    leave_base().map_err(Report::Failed)
}

fn mount_files(profile: &Profile) -> Result<(), String> {
    let plan = Plan::of(profile)?;
    plan.mount()?;
    special::make_etc(profile).map_err(|error| format!("/etc: {error}"))?;
    plan.make_links()?;
    let cwd = in_new(&profile.cwd);
    if !cwd.is_dir() {
        point::make(&cwd, true).map_err(|error| format!("{}: {error}", profile.cwd.display()))?;
    }
    hide(&profile.private)
}

/// From then on the files of the machine are below [`OLD`].
fn enter_base() -> Result<(), String> {
    let base = BASES.iter().map(Path::new).find(|base| base.is_dir()).ok_or("no folder to mount on")?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|error| format!("mounts cannot be made private: {error}"))?;
    mount_memory(base, ROOT_BYTES, "0755")?;
    let (old, new) = (base.join("old"), base.join("new"));
    let made = fs::create_dir(&old).and_then(|()| fs::create_dir(&new));
    made.map_err(|error| format!("{}: {error}", base.display()))?;
    mount_memory(&new, ROOT_BYTES, "0755")?;
    pivot_root(base, &old).map_err(|error| format!("pivot_root: {error}"))?;
    chdir("/").map_err(|error| format!("chdir: {error}"))
}

/// After it, of the machine only the mounted folders can be reached. The root itself is read-only: it is in memory, without quota.
fn leave_base() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| format!("the new root: {error}");
    mount_change(OLD, MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).map_err(failed)?;
    unmount(OLD, UnmountFlags::DETACH).map_err(failed)?;
    chdir(NEW).map_err(failed)?;
    pivot_root(".", ".").map_err(failed)?;
    unmount(".", UnmountFlags::DETACH).map_err(failed)?;
    chdir("/").map_err(failed)?;
    set_attributes_at(Path::new("/"), libc::MOUNT_ATTR_RDONLY, false).map_err(|error| format!("the new root: {error}"))
}

/// Covers what must not be seen and is in a folder that is.
fn hide(private: &[PathBuf]) -> Result<(), String> {
    // Only the file itself is hidden: a link to it leads there.
    for path in private.iter().filter_map(|path| resolve(Path::new(OLD), path, |_, _| ()).ok()) {
        let at = in_new(&path);
        let covered = match at.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => mount_memory(&at, 0, "0000"),
            Ok(metadata) if metadata.is_file() => bind(Path::new("/old/dev/null"), &at, libc::MOUNT_ATTR_RDONLY),
            _ => Ok(()),
        };
        covered?;
    }
    Ok(())
}

fn in_old(path: &Path) -> PathBuf {
    below(OLD, path)
}

fn in_new(path: &Path) -> PathBuf {
    below(NEW, path)
}

fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

/// `size` 0 is a folder in which nothing can be written.
fn mount_memory(at: &Path, size: u64, mode: &str) -> Result<(), String> {
    let flags =
        MountFlags::NOSUID | MountFlags::NODEV | if size == 0 { MountFlags::RDONLY } else { MountFlags::empty() };
    // Zero would be no limit. Each file takes memory of the kernel, also an empty one.
    let (size, files) = (size.max(4_096), (size / 4_096).max(1));
    let options = format!("size={size},nr_inodes={files},mode={mode}\0");
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).map_err(|error| error.to_string())?;
    mount("tmpfs", at, "tmpfs", flags, options).map_err(|error| format!("a tmpfs at {}: {error}", at.display()))
}

/// Mounts a file or a folder with all mounts below it; the point is made. It has its attributes before others can reach it.
fn bind(source: &Path, at: &Path, attributes: u64) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", at.display());
    let tree = copy_of(source).map_err(failed)?;
    set_attributes(tree.as_fd(), attributes | libc::MOUNT_ATTR_NOSUID, true).map_err(failed)?;
    let point = point::make(at, source.is_dir()).map_err(failed)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &point, "", flags).map_err(|error| failed(error.into()))
}

/// The mounts of a path without links: one that was replaced by a link is not followed.
fn copy_of(source: &Path) -> io::Result<OwnedFd> {
    let opened = openat2(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(&opened, "", flags)?)
}

/// Adds attributes to a mount, and where asked for to all mounts below it.
fn set_attributes(of: BorrowedFd<'_>, attributes: u64, is_recursive: bool) -> io::Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if is_recursive { libc::AT_RECURSIVE } else { 0 };
    #[expect(unsafe_code, reason = "there is no safe call for this")]
    // SAFETY: the path and the struct outlive the call, and the size is the struct's.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            of.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_attributes_at(at: &Path, attributes: u64, is_recursive: bool) -> io::Result<()> {
    let opened = rustix::fs::open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    set_attributes(opened.as_fd(), attributes, is_recursive)
}
