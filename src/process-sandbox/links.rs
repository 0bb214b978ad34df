//! Links on the way to a file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The maximum of links in a path, as the kernel has it.
const MAX_LINKS: usize = 40;

/// The path without links, in the tree of files at `root`; `on_link` gets each link on the way, at its real path, with its target.
pub(crate) fn resolve(root: &Path, path: &Path, mut on_link: impl FnMut(PathBuf, PathBuf)) -> io::Result<PathBuf> {
    let in_root = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
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
        if !in_root(&next).symlink_metadata()?.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(in_root(&next))?;
        if target.is_absolute() {
            at = "/".into();
        }
        left.extend(parts(&target));
        on_link(next, target);
    }
    Ok(at)
}

/// The path without links; `None` where a link in one of these folders leads out of it. The folders have no links in their own paths.
pub(crate) fn resolve_within(path: &Path, folders: &[PathBuf]) -> io::Result<Option<PathBuf>> {
    let mut links = Vec::new();
    let real = resolve(Path::new("/"), path, |link, _| links.push(link))?;
    let leads_out = |link: &PathBuf| folders.iter().any(|folder| link.starts_with(folder) && !real.starts_with(folder));
    let is_within = !links.iter().any(leads_out);
    Ok(is_within.then_some(real))
}

pub(crate) fn lead_out(path: &Path, of: &[PathBuf]) -> bool {
    matches!(resolve_within(path, of), Ok(None))
}
