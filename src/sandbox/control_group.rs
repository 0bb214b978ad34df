//! The memory limits of the control groups that this process is in: of a container, of a systemd unit, and of every
//! group above.
//!
//! cgroups(7), <https://docs.kernel.org/admin-guide/cgroup-v2.html> and `cgroup-v1/memory.html` beside it.

use std::fs;
use std::path::Path;

/// Where the hierarchies are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The names of one version's files.
struct Version {
    /// Below [`MOUNT`].
    folders: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: cached file content that the kernel drops before it ends a process.
    droppable: &'static str,
}

const V1: Version = Version {
    folders: &["memory"],
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    droppable: "total_inactive_file",
};

/// On hybrid systems it is not mounted at the root.
const V2: Version =
    Version { folders: &["", "unified"], limit: "memory.max", usage: "memory.current", droppable: "inactive_file" };

/// The memory that this process may still use under the tightest limit, in bytes; `None` without a limit.
pub(crate) fn available_memory() -> Option<u64> {
    available_in(Path::new(MOUNT), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

fn available_in(mount: &Path, membership: &str) -> Option<u64> {
    membership.lines().flat_map(|line| available_of(mount, line)).min()
}

/// For a line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`: the memory that each group on the way to the root leaves.
fn available_of(mount: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let version = match controllers {
        "" => V2,
        v1 if v1.split(',').any(|controller| controller == "memory") => V1,
        _ => return Vec::new(),
    };
    // In a container the path may be a path of the host, and the mount the container's own group: then only the root of
    // the mount exists.
    let groups: Vec<_> = Path::new(path).ancestors().filter_map(|group| group.strip_prefix("/").ok()).collect();
    let roots = version.folders.iter().map(|folder| mount.join(folder));
    roots
        .flat_map(|root| groups.iter().map(move |group| root.join(group)))
        .filter_map(|group| version.left_in(&group))
        .collect()
}

impl Version {
    fn left_in(&self, group: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        // `max` is no number; without a limit, version 1 has one that is larger than any memory.
        let limit = number(self.limit)?;
        let droppable = read("memory.stat").and_then(|stat| {
            let lines = stat.lines().filter_map(|line| line.split_once(' '));
            lines.filter(|(name, _)| *name == self.droppable).find_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        });
        let used = number(self.usage).unwrap_or_default().saturating_sub(droppable.unwrap_or_default());
        Some(limit.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A folder with these files, each with its text.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_of_all_groups_above_counts() {
        let (limit, used) = ((300 * MIB).to_string(), (120 * MIB).to_string());
        let stat = format!("anon 1\ninactive_file {}\n", 20 * MIB);
        let unit = [
            ("system.slice/sekisho.service/memory.max", "max\n"),
            ("system.slice/memory.max", &*limit),
            ("system.slice/memory.current", &*used),
            ("system.slice/memory.stat", &*stat),
        ];
        let container = [("memory.max", &*limit), ("memory.current", &*used)];
        let version_1 = [
            ("memory/docker/abc/memory.limit_in_bytes", "9223372036854771712"),
            ("memory/docker/memory.limit_in_bytes", &*limit),
            ("memory/docker/memory.usage_in_bytes", &*used),
        ];
        let container_1 = [("memory/memory.limit_in_bytes", &*limit), ("memory/memory.usage_in_bytes", &*used)];
        for (files, membership, expected) in [
            (&unit[..], "0::/system.slice/sekisho.service\n", Some(200 * MIB)),
            (&container, "0::/\n", Some(180 * MIB)),
            (&container, "0::/docker/of-the-host\n", Some(180 * MIB)),
            (&version_1, "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n", Some(180 * MIB)),
            (&container_1, "4:memory:/docker/of-the-host\n", Some(180 * MIB)),
            (&[("memory.max", "max")], "0::/\n", None),
            (&[], "0::/\nno line of the file\n", None),
        ] {
            let root = tree(files);
            assert_eq!(available_in(root.path(), membership), expected, "{membership}");
        }
    }
}
