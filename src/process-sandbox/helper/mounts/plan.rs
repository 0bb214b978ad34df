//! Which folder of the machine is mounted where, in the order of their depth.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::symlinkat;

use super::{bind, in_new, in_old, mount_memory, point, tree};
use crate::profile::Profile;

/// The maximum of links in a path, as the kernel has it.
const MAX_LINKS: usize = 40;

/// The content of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// The file or folder of the machine with this path.
    Machine {
        write: bool,
    },
    /// Another folder of the machine.
    Kept(PathBuf),
    Memory {
        size: u64,
        mode: &'static str,
    },
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Folders come before their content.
    contents: BTreeMap<PathBuf, Content>,
    /// The links of the machine on the way to these, each with its target.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Plan {
    pub(super) fn of(profile: &Profile) -> Result<Self, String> {
        let mut plan = Self::default();
        let size = profile.limits.temporary_bytes;
        plan.contents.insert("/tmp".into(), Content::Memory { size, mode: "1777" });
        plan.links.insert("/var/tmp".into(), "/tmp".into());
        let home = match &profile.home.kept {
            Some(kept) => Content::Kept(kept.clone()),
            None => Content::Memory { size, mode: "0700" },
        };
        plan.contents.insert(profile.home.path.clone(), home);
        for path in tree::SYSTEM {
            // Each machine has a part of them.
            _ = plan.add(Path::new(path), false);
        }
        for name in tree::ETC {
            _ = plan.add(&Path::new("/etc").join(name), false);
        }
        for folder in &profile.folders {
            plan.add(&folder.path, folder.write).map_err(|error| format!("{}: {error}", folder.path.display()))?;
        }
        Ok(plan)
    }

    /// Has the machine's file or folder at its own path, and the links on the way to it.
    fn add(&mut self, path: &Path, write: bool) -> io::Result<()> {
        let real = resolve(path, |link, target| _ = self.links.insert(link, target))?;
        match self.contents.get_mut(&real) {
            Some(Content::Machine { write: is_written }) => *is_written |= write,
            _ => {
                self.contents.insert(real, Content::Machine { write });
            }
        }
        Ok(())
    }

    pub(super) fn mount(&self) -> Result<(), String> {
        for (path, content) in &self.contents {
            let at = in_new(path);
            match content {
                Content::Machine { write } if self.is_seen(path, *write) => {}
                Content::Machine { write } => {
                    let attributes = if *write { 0 } else { libc::MOUNT_ATTR_RDONLY };
                    bind(&in_old(path), &at, attributes | libc::MOUNT_ATTR_NODEV)?;
                }
                Content::Kept(kept) => bind(&in_old(kept), &at, libc::MOUNT_ATTR_NODEV)?,
                Content::Memory { size, mode } => {
                    fs::create_dir_all(&at).map_err(|error| format!("{}: {error}", path.display()))?;
                    mount_memory(&at, *size, mode)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a folder above shows it in the same way.
    fn is_seen(&self, path: &Path, write: bool) -> bool {
        let above = path.ancestors().skip(1).find_map(|above| self.contents.get(above));
        above == Some(&Content::Machine { write })
    }

    /// Folders that are mounted have their links already.
    pub(super) fn make_links(&self) -> Result<(), String> {
        for (path, target) in &self.links {
            let at = in_new(path);
            if at.symlink_metadata().is_ok() {
                continue;
            }
            make_link(target, &at).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

fn make_link(target: &Path, at: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (at.parent(), at.file_name()) else { return Ok(()) };
    Ok(symlinkat(target, point::make(folder, true)?, name)?)
}

/// The path without links, as the machine has it; `on_link` gets each link on the way with its target.
pub(super) fn resolve(path: &Path, mut on_link: impl FnMut(PathBuf, PathBuf)) -> io::Result<PathBuf> {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        parts.map(|part| part.as_os_str().to_owned()).rev().collect()
    };
    let (mut at, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        if !in_old(&next).symlink_metadata()?.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(in_old(&next))?;
        if target.is_absolute() {
            at = "/".into();
        }
        left.extend(parts(&target));
        on_link(next, target);
    }
    Ok(at)
}
