//! Landlock, the second wall around files: it holds where the mounts would not, and where there are none.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::tree;
use crate::profile::Profile;

/// The newest version whose rights are asked for; an older kernel gets those that it knows.
const VERSION: ABI = ABI::V6;

/// Writable in every sandbox, where there is one.
const WRITABLE: [&str; 2] = ["/tmp", "/var/tmp"];

/// Readable without namespaces, beside the system's programs: with namespaces, all that is there is readable. A rule for a link holds for
/// its target.
const OF_MACHINE: [&str; 6] =
    ["/proc", "/etc/passwd", "/etc/group", "/etc/resolv.conf", "/sys/fs/cgroup", "/sys/devices/system/cpu"];

/// # Errors
/// When the kernel has no Landlock, or it is disabled.
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
    for folder in profile.folders.iter().filter(|folder| is_granted(profile, &folder.path)) {
        ruleset = add(ruleset, &folder.path, folder.write)?;
    }
    Ok(ruleset)
}

/// Without mounts, nothing hides the gateway's files in a folder: it is not granted.
fn is_granted(profile: &Profile, folder: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = real(folder);
    profile.without_namespaces.is_none() || !profile.private.iter().any(|private| real(private).starts_with(&folder))
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
