//! Which folder of the machine is mounted where, in the order of their depth.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::symlinkat;

use super::{OLD, bind, in_new, in_old, mount_memory, point, tree};
use crate::links::resolve;
use crate::profile::{Packages, Profile};

/// The content of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// The file or folder of the machine with this path.
    Machine {
        write: bool,
    },
    /// Another folder of the machine.
    Kept {
        folder: PathBuf,
        write: bool,
    },
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
            Some(kept) => Content::Kept { folder: kept.clone(), write: true },
            None => Content::Memory { size, mode: "0700" },
        };
        plan.contents.insert(profile.home.path.clone(), home);
        if let Some(Packages { path, kept, write }) = &profile.packages {
            plan.contents.insert(path.clone(), Content::Kept { folder: kept.clone(), write: *write });
        }
        for path in tree::SYSTEM {
            // Each machine has a part of them.
            _ = plan.add(Path::new(path), false);
        }
        for name in tree::ETC {
            _ = plan.add(&Path::new("/etc").join(name), false);
        }
        for folder in &profile.folders {
            let real = plan.add(&folder.path, folder.write);
            let real = real.map_err(|error| format!("{}: {error}", folder.path.display()))?;
            if real != folder.real {
                // Another program of the same server may have changed a link since.
                return Err(format!("{} is another folder than it was when it was granted", folder.path.display()));
            }
        }
        Ok(plan)
    }

    /// Has the machine's file or folder at its own path, and the links on the way to it.
    fn add(&mut self, path: &Path, write: bool) -> io::Result<PathBuf> {
        let real = resolve(Path::new(OLD), path, |link, target| _ = self.links.insert(link, target))?;
        match self.contents.get_mut(&real) {
            Some(Content::Machine { write: is_written }) => *is_written |= write,
            _ => {
                self.contents.insert(real.clone(), Content::Machine { write });
            }
        }
        Ok(real)
    }

    pub(super) fn mount(&self) -> Result<(), String> {
        for (path, content) in &self.contents {
            let at = in_new(path);
            match content {
                Content::Machine { write } if self.is_seen(path, *write) => {}
                Content::Machine { write } => bind(&in_old(path), &at, attributes(*write))?,
                Content::Kept { folder, write } => bind(&in_old(folder), &at, attributes(*write))?,
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

fn attributes(write: bool) -> u64 {
    libc::MOUNT_ATTR_NODEV | if write { 0 } else { libc::MOUNT_ATTR_RDONLY }
}

fn make_link(target: &Path, at: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (at.parent(), at.file_name()) else { return Ok(()) };
    Ok(symlinkat(target, point::make(folder, true)?, name)?)
}
