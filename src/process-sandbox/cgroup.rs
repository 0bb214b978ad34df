//! A cgroup for each program, with a limit of the memory of all its processes together, where a part of the machine's cgroups is delegated to
//! the gateway.
//!
//! In a cgroup with processes the kernel limits no children, so that the gateway has to be in a child itself: it takes a cgroup as
//! delegated where its own is the child with the name `gateway` of it (`DelegateSubgroup=gateway` of systemd). Where everything can be
//! written, as by root, nothing else says that the gateway may make cgroups there.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use crate::profile::Limits;

/// The files of cgroups of version 2.
const ROOT: &str = "/sys/fs/cgroup";

/// Says in which cgroup this process is.
const OWN: &str = "/proc/self/cgroup";

/// The name of the gateway's own cgroup.
const GATEWAY: &str = "gateway";

/// Names of the cgroups of programs begin with it; the gateway's process and a number follow.
const PREFIX: &str = "program-";

/// The controllers that set the limits.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Processes of the sandbox itself: the helper, and process 1.
const OWN_PROCESSES: u64 = 2;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Those whose program was ended, while the kernel still ends its processes.
static ENDED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

static REMOVE_LEFT: Once = Once::new();

/// A cgroup with limits. Dropped, it ends all its processes and is removed.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

/// A cgroup for a program; `None` where none is delegated to the gateway.
/// Errors: why there is none, although a cgroup is delegated.
pub(crate) fn make(limits: &Limits) -> Result<Option<Group>, String> {
    let own = fs::read_to_string(OWN).unwrap_or_default();
    make_in(Path::new(ROOT), &own, limits)
}

fn make_in(root: &Path, own: &str, limits: &Limits) -> Result<Option<Group>, String> {
    let Some(folder) = delegated(root, own) else { return Ok(None) };
    let failed = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
    enable_controllers(&folder).map_err(|error| failed(&folder, &error))?;
    REMOVE_LEFT.call_once(|| remove_left(&folder));
    remove_ended();
    let group = Group::make(&folder).map_err(|error| failed(&folder, &error))?;
    group.limit(limits).map_err(|error| failed(&group.0, &error))?;
    Ok(Some(group))
}

/// The folder of the delegated cgroup.
fn delegated(root: &Path, own: &str) -> Option<PathBuf> {
    // The line of version 2 has no number and no controllers.
    let own = Path::new(own.lines().find_map(|line| line.strip_prefix("0::/"))?);
    // A cgroup outside of the cgroup namespace begins with `..`.
    let is_plain = own.components().all(|part| matches!(part, Component::Normal(_)));
    let folder = root.join(own.parent()?);
    let is_gateway = own.file_name().is_some_and(|name| name == GATEWAY);
    (is_plain && is_gateway && folder.join("cgroup.subtree_control").exists()).then_some(folder)
}

/// For the children of the cgroup.
fn enable_controllers(folder: &Path) -> io::Result<()> {
    let control = folder.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control)?;
    let has = |name: &str| enabled.split_whitespace().any(|one| one == name);
    if CONTROLLERS.iter().all(|name| has(name)) {
        return Ok(());
    }
    fs::write(control, CONTROLLERS.map(|name| format!("+{name}")).join(" "))
}

impl Group {
    fn make(folder: &Path) -> io::Result<Self> {
        loop {
            let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = folder.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Of a gateway before that had the same number, as the first process of a container has.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        fs::write(self.0.join("memory.max"), limits.memory_bytes.to_string())?;
        let processes = limits.processes.saturating_add(OWN_PROCESSES);
        fs::write(self.0.join("pids.max"), processes.to_string())?;
        // The kernel then ends a program as a whole, not one of its processes, whose end the others may not survive.
        fs::write(self.0.join("memory.oom.group"), "1")?;
        let swap = self.0.join("memory.swap.max");
        match fs::write(&swap, "0") {
            // A machine that does not limit swapped memory has no such file.
            Err(error) if swap.exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// The file into which a process writes `0` to enter.
    /// Errors: when it cannot be opened.
    pub(crate) fn entrance(&self) -> io::Result<File> {
        File::options().write(true).open(self.0.join("cgroup.procs"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Before Linux 5.14 there is no such file: the processes end with process 1 of the sandbox.
        if let Ok(mut file) = File::options().write(true).open(self.0.join("cgroup.kill")) {
            _ = io::Write::write_all(&mut file, b"1");
        }
        ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0.clone());
        remove_ended();
    }
}

/// Removes those whose processes are gone; the others when it is called again.
fn remove_ended() {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| match fs::remove_dir(path) {
        Ok(()) => false,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    });
}

/// Those of a gateway that was killed, before this process makes one. A cgroup with processes cannot be removed.
fn remove_left(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))) {
        _ = fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "4:memory:/x\n0::/system.slice/sekisho.service/gateway\n";

    /// A folder as the kernel shows a delegated cgroup, in which the gateway is.
    fn cgroups(enabled: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("system.slice/sekisho.service");
        fs::create_dir_all(folder.join(GATEWAY)).unwrap();
        fs::write(folder.join("cgroup.subtree_control"), enabled).unwrap();
        (root, folder)
    }

    fn limits() -> Limits {
        Limits { memory_bytes: 1 << 20, processes: 10, ..Limits::default() }
    }

    #[test]
    fn a_program_has_a_cgroup_with_limits_of_memory_and_processes() {
        let (root, folder) = cgroups("cpu\n");
        let group = make_in(root.path(), OWN, &limits()).unwrap().unwrap();
        assert_eq!(group.0.parent(), Some(folder.as_path()));
        let written = |name: &str| fs::read_to_string(group.0.join(name)).unwrap();
        for (name, expected) in
            [("memory.max", "1048576"), ("memory.swap.max", "0"), ("memory.oom.group", "1"), ("pids.max", "12")]
        {
            assert_eq!(written(name), expected, "{name}");
        }
        assert_eq!(fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        fs::write(group.0.join("cgroup.procs"), "").unwrap();
        io::Write::write_all(&mut group.entrance().unwrap(), b"0").unwrap();
        assert_eq!(written("cgroup.procs"), "0");
        let other = make_in(root.path(), OWN, &limits()).unwrap().unwrap();
        assert_ne!(other.0, group.0);
    }

    #[test]
    fn enabled_controllers_are_left_as_they_are() {
        let (root, folder) = cgroups("cpu memory pids\n");
        make_in(root.path(), OWN, &limits()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap(), "cpu memory pids\n");
    }

    #[test]
    fn only_a_delegated_cgroup_is_used() {
        let (root, folder) = cgroups("memory pids");
        fs::create_dir(folder.join("other")).unwrap();
        for own in [
            "",
            "4:memory:/system.slice/sekisho.service/gateway\n",
            "0::/\n",
            "0::/gateway\n",
            "0::/system.slice/sekisho.service\n",
            "0::/system.slice/sekisho.service/other\n",
            "0::/../sekisho.service/gateway\n",
            "0::/system.slice/nothing/gateway\n",
        ] {
            assert!(make_in(root.path(), own, &limits()).unwrap().is_none(), "{own}");
        }
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_str().unwrap().starts_with(PREFIX)), "{names:?}");
    }

    #[test]
    fn a_name_that_is_taken_is_left_out() {
        let (root, folder) = cgroups("memory pids");
        let next = NEXT.load(Ordering::Relaxed);
        // The other tests take numbers, too.
        let taken: Vec<_> =
            (next..next + 64).map(|number| folder.join(format!("{PREFIX}{}-{number}", std::process::id()))).collect();
        for path in &taken {
            fs::create_dir_all(path.join("with a process")).unwrap();
        }
        let group = make_in(root.path(), OWN, &limits()).unwrap().unwrap();
        assert!(group.0.parent() == Some(folder.as_path()) && !taken.contains(&group.0), "{group:?}");
    }

    #[test]
    fn a_delegated_cgroup_that_cannot_be_used_is_an_error_with_its_path() {
        let (root, folder) = cgroups("memory pids");
        let control = folder.join("cgroup.subtree_control");
        fs::remove_file(&control).unwrap();
        fs::create_dir(control).unwrap();
        let error = make_in(root.path(), OWN, &limits()).unwrap_err();
        assert!(error.contains(folder.to_str().unwrap()), "{error}");
    }

    #[test]
    fn cgroups_without_processes_are_removed() {
        let (_root, folder) = cgroups("memory pids");
        let path = |name: &str| folder.join(name);
        for name in ["program-1-0", "program-1-1", "ended", "other"] {
            fs::create_dir(path(name)).unwrap();
        }
        // As the kernel refuses to remove one with processes.
        fs::write(path("program-1-1/process"), "").unwrap();
        remove_left(&folder);
        assert!(!path("program-1-0").exists() && path("program-1-1").exists() && path("other").exists());
        ENDED.lock().unwrap().push(path("ended"));
        remove_ended();
        assert!(!path("ended").exists());
        assert!(!ENDED.lock().unwrap().contains(&path("ended")));
    }
}
