//! Landlock, the second wall around files: it holds where the mounts would not, and where there are none.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::tree;
use crate::profile::Profile;

/// The newest version whose rights are asked for; an older kernel gets those that it knows.
const VERSION: ABI = ABI::V6;

/// Entries of a folder with something private that get a rule: each is opened for it.
const MAX_ENTRIES: usize = 1_024;

/// Writable in every sandbox, where there is one.
const WRITABLE: [&str; 2] = ["/tmp", "/var/tmp"];

/// Readable without namespaces, beside the system's programs: with namespaces, all that is there is readable. A rule for a link holds for
/// its target.
const OF_MACHINE: [&str; 6] =
    ["/proc", "/etc/passwd", "/etc/group", "/etc/resolv.conf", "/sys/fs/cgroup", "/sys/devices/system/cpu"];

/// Errors: when the kernel has no Landlock, or it is disabled.
pub(super) fn restrict(profile: &Profile) -> Result<(), String> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(VERSION)))
        .and_then(Ruleset::create)
        .map_err(|error| error.to_string())?;
    let status = allow(ruleset, profile)?.restrict_self().map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel has none, or it is disabled".to_owned()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn allow(mut ruleset: RulesetCreated, profile: &Profile) -> Result<RulesetCreated, String> {
    if profile.without_namespaces.is_none() {
        ruleset = add(ruleset, Path::new("/"), false)?;
        ruleset = add(ruleset, Path::new("/dev"), true)?;
    } else {
        // Of the machine's devices, others are terminals and disks.
        for name in tree::DEVICES.iter().chain(&["shm"]) {
            ruleset = add(ruleset, &Path::new("/dev").join(name), true)?;
        }
        for path in tree::SYSTEM.iter().chain(&OF_MACHINE) {
            ruleset = add(ruleset, Path::new(path), false)?;
        }
        for name in tree::ETC {
            ruleset = add(ruleset, &Path::new("/etc").join(name), false)?;
        }
    }
    for path in WRITABLE {
        ruleset = add(ruleset, Path::new(path), true)?;
    }
    let home = match (&profile.without_namespaces, &profile.home.kept) {
        (Some(_), Some(kept)) => kept,
        _ => &profile.home.path,
    };
    if profile.without_namespaces.is_none() || profile.home.kept.is_some() {
        ruleset = add(ruleset, home, true)?;
    }
    if let Some(packages) = &profile.packages {
        ruleset = add(ruleset, &packages.path, packages.write)?;
    }
    // Without mounts, nothing else hides the gateway's files.
    let private: Vec<_> = match profile.without_namespaces {
        Some(_) => profile.private.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect(),
        None => Vec::new(),
    };
    for folder in &profile.folders {
        ruleset = add_without(ruleset, &folder.real, folder.write, &private)?;
    }
    Ok(ruleset)
}

/// Adds a folder; where something private is in it, each entry that is not. Links are left out: a rule for one holds for its target.
fn add_without(
    mut ruleset: RulesetCreated,
    path: &Path,
    write: bool,
    private: &[PathBuf],
) -> Result<RulesetCreated, String> {
    if private.iter().any(|one| path.starts_with(one)) {
        return Ok(ruleset);
    }
    if !private.iter().any(|one| one.starts_with(path)) {
        return add(ruleset, path, write);
    }
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok).take(MAX_ENTRIES);
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())) {
        ruleset = add_without(ruleset, &entry.path(), write, private)?;
    }
    Ok(ruleset)
}

/// A path that does not exist needs no rule.
fn add(ruleset: RulesetCreated, path: &Path, write: bool) -> Result<RulesetCreated, String> {
    let Ok(opened) = PathFd::new(path) else { return Ok(ruleset) };
    let mut access = if write { AccessFs::from_all(VERSION) } else { AccessFs::from_read(VERSION) };
    if !path.is_dir() {
        access &= AccessFs::from_file(VERSION);
    }
    ruleset.add_rule(PathBeneath::new(opened, access)).map_err(|error| format!("{}: {error}", path.display()))
}
