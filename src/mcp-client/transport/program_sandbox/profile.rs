//! Grants of a server's program, or its needs in a run, as the `sandbox` of its entry.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{OwnFiles, ProgramSandbox, grants, refuse_service};
use crate::connection_record::{HostConnections, OTHER};
use sekisho_config::{Config, McpSandbox, McpSandboxHome, McpSandboxNetwork, McpSandboxSettings, McpServerSettings};
use sekisho_process_sandbox::{Grant, Reason, is_in_every_sandbox};

/// Files of the machine that are named as refused.
const MAX_REFUSED: usize = 50;

/// The `sandbox` of an entry. Displayed as YAML, with its reasons as comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxProfile {
    network: McpSandboxNetwork,
    home: McpSandboxHome,
    folders: Vec<ProfileFolder>,
    /// Grants that no entry has, and refusals.
    remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProfileFolder {
    path: PathBuf,
    write: bool,
    reason: Reason,
}

/// All that the program of an entry is granted; `None` without a sandbox.
/// Errors: why the program cannot run in a sandbox.
pub fn granted_profile(settings: &McpServerSettings, config: &Config) -> Option<Result<SandboxProfile, String>> {
    let (Some(program), McpSandbox::On(wanted)) = (&settings.command, &settings.sandbox) else { return None };
    let grants = grants(program, settings, wanted, &OwnFiles::of(config));
    if let Err(reason) = refuse_service(program, &grants) {
        return Some(Err(reason));
    }
    let (listed, of_program): (Vec<_>, Vec<_>) = grants.granted.iter().partition(|grant| is_listed(grant));
    let readable = |grant: &&Grant| format!("readable: {} ({})", grant.path.display(), grant.reason);
    let refused = grants.refused.iter().map(|(path, why)| format!("not granted: {} ({why})", path.display()));
    Some(Ok(SandboxProfile {
        network: wanted.network.clone(),
        home: wanted.home,
        folders: listed.into_iter().map(|grant| ProfileFolder::of(grant, grant.write)).collect(),
        remarks: of_program.iter().map(readable).chain(refused).collect(),
    }))
}

/// Whether the entry can grant it. The rest comes with every program.
fn is_listed(grant: &Grant) -> bool {
    !matches!(grant.reason, Reason::Program | Reason::SearchPath | Reason::Downloaded)
}

impl ProgramSandbox {
    /// The smallest profile with all that the observed programs have used until now.
    pub(crate) fn needed(&self, server: &str, settings: &McpServerSettings) -> Option<SandboxProfile> {
        let (Some(program), McpSandbox::On(wanted)) = (&settings.command, &settings.sandbox) else { return None };
        let grants = grants(program, settings, wanted, &self.own);
        let (used, is_cut) = self.observation.recorded();
        let hosts = self.record.by_host();
        let seen = self.own.home_of_program(std::env::home_dir());
        let home = Homes { seen, kept: self.kept_home(server, wanted.home).ok().flatten() };
        let is_granted = |path: &Path| grants.granted.iter().any(|grant| covers(grant, path));
        let others: Vec<_> = used.iter().filter(|(path, _)| !is_granted(path)).cloned().collect();
        let mut remarks = refused_files(&others, &grants.granted, &home);
        remarks.extend(hosts.iter().filter_map(refused_connection));
        if is_cut {
            remarks.push("more files were used than are recorded: the rest is not considered".to_owned());
        }
        Some(SandboxProfile {
            network: needed_network(&hosts, wanted),
            home: if home.is_needed(&others) { wanted.home } else { McpSandboxHome::Discard },
            folders: grants.granted.iter().filter_map(|grant| needed_folder(grant, &used)).collect(),
            remarks,
        })
    }
}

/// The home as the program sees it, and where it is kept.
struct Homes {
    seen: PathBuf,
    kept: Option<PathBuf>,
}

impl Homes {
    /// Whether something of the home outlives a program: files that it writes there, or finds there.
    fn is_needed(&self, used: &[(PathBuf, bool)]) -> bool {
        let mut below = used.iter().filter(|(path, _)| path != &self.seen && path.starts_with(&self.seen));
        below.any(|(path, writes)| *writes || self.has(path))
    }

    fn has(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.seen).ok().zip(self.kept.as_ref());
        below.is_some_and(|(below, kept)| kept.join(below).symlink_metadata().is_ok())
    }
}

/// Services that the entry names are among the hosts: without a list that is not empty there are no connections at all.
fn needed_network(hosts: &[HostConnections], wanted: &McpSandboxSettings) -> McpSandboxNetwork {
    let reached: Vec<_> = hosts.iter().filter(|host| host.allowed > 0).map(|host| host.host.clone()).collect();
    match reached.as_slice() {
        [] => McpSandboxNetwork::None,
        hosts if hosts.iter().any(|host| host == OTHER) => wanted.network.clone(),
        _ => McpSandboxNetwork::Hosts(reached),
    }
}

fn covers(grant: &Grant, path: &Path) -> bool {
    path.starts_with(&grant.path) || path.starts_with(&grant.real)
}

/// Left out where only `sandbox.folders` grants it and nothing used it.
fn needed_folder(grant: &Grant, used: &[(PathBuf, bool)]) -> Option<ProfileFolder> {
    let mut uses = used.iter().filter(|(path, _)| covers(grant, path));
    let is_used = uses.clone().next().is_some();
    let is_written = uses.any(|(_, writes)| *writes);
    let is_needed = is_listed(grant) && (is_used || grant.reason != Reason::Configured);
    is_needed.then(|| ProfileFolder::of(grant, grant.write && is_written))
}

/// Files of the machine that a program looked for and that are not in its sandbox; of a folder and its content, the folder.
fn refused_files(others: &[(PathBuf, bool)], granted: &[Grant], home: &Homes) -> Vec<String> {
    let mut refused: Vec<&Path> = Vec::new();
    for (path, _) in others {
        let is_above = granted.iter().any(|grant| grant.path.starts_with(path) || grant.real.starts_with(path));
        let is_home = home.seen.starts_with(path) || home.has(path);
        let is_known = refused.last().is_some_and(|above| path.starts_with(above));
        if !is_above && !is_home && !is_known && !is_in_every_sandbox(path) && path.symlink_metadata().is_ok() {
            refused.push(path);
        }
    }
    refused
        .iter()
        .take(MAX_REFUSED)
        .map(|path| format!("not in the sandbox, and looked for: {}", path.display()))
        .collect()
}

fn refused_connection(host: &HostConnections) -> Option<String> {
    Some(format!("refused: {} ({})", host.host, host.reason.as_ref()?))
}

impl ProfileFolder {
    fn of(grant: &Grant, write: bool) -> Self {
        Self { path: grant.path.clone(), write, reason: grant.reason.clone() }
    }
}

impl SandboxProfile {
    /// The `sandbox` of an entry.
    pub fn entry(&self) -> Value {
        let network = match &self.network {
            McpSandboxNetwork::None => json!("none"),
            McpSandboxNetwork::Public => json!("public"),
            McpSandboxNetwork::Hosts(hosts) => json!(hosts),
        };
        let folder = |folder: &ProfileFolder| json!({"path": folder.path.to_string_lossy(), "write": folder.write});
        let folders: Vec<_> = self.folders.iter().map(folder).collect();
        json!({"network": network, "home": self.home, "folders": folders})
    }
}

impl fmt::Display for SandboxProfile {
    /// Texts are written as in JSON, which YAML reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = match &self.network {
            McpSandboxNetwork::None => "none".to_owned(),
            McpSandboxNetwork::Public => "public".to_owned(),
            McpSandboxNetwork::Hosts(hosts) => json!(hosts).to_string(),
        };
        let home = match self.home {
            McpSandboxHome::Keep => "keep",
            McpSandboxHome::Discard => "discard",
        };
        write!(f, "sandbox:\n  network: {network}\n  home: {home}\n  folders:")?;
        if self.folders.is_empty() {
            f.write_str(" []")?;
        }
        for ProfileFolder { path, write, reason } in &self.folders {
            write!(f, "\n    - path: {}   # {reason}", json!(path.to_string_lossy()))?;
            write!(f, "\n      write: {write}")?;
        }
        for remark in &self.remarks {
            write!(f, "\n# {}", remark.replace(char::is_control, " "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(path: &str, write: bool, reason: Reason) -> Grant {
        Grant { path: path.into(), real: path.into(), write, reason }
    }

    fn used(paths: &[(&str, bool)]) -> Vec<(PathBuf, bool)> {
        paths.iter().map(|(path, writes)| (PathBuf::from(path), *writes)).collect()
    }

    #[test]
    fn a_profile_is_the_sandbox_of_an_entry_in_yaml() {
        let folder = ProfileFolder { path: "/srv/a \"b\"".into(), write: true, reason: Reason::Argument };
        let profile = SandboxProfile {
            network: McpSandboxNetwork::Hosts(vec!["example.com".into(), "[::1]".into()]),
            home: McpSandboxHome::Discard,
            folders: vec![folder],
            remarks: vec!["not granted: /x\ny: {}".into()],
        };
        let expected = "sandbox:\n  network: [\"example.com\",\"[::1]\"]\n  home: discard\n  folders:\n    \
                        - path: \"/srv/a \\\"b\\\"\"   # in `args`\n      write: true\n# not granted: /x y: {}";
        assert_eq!(profile.to_string(), expected);
        let read: McpSandbox = serde_json::from_value(profile.entry()).unwrap();
        let McpSandbox::On(read) = read else { panic!("there is a sandbox") };
        assert_eq!((&read.network, read.home), (&profile.network, profile.home));
        let folder = &read.folders[0];
        assert_eq!((folder.path.as_path(), folder.write), (Path::new("/srv/a \"b\""), true));
        let empty =
            SandboxProfile { network: McpSandboxNetwork::None, folders: Vec::new(), remarks: Vec::new(), ..profile };
        assert_eq!(empty.to_string(), "sandbox:\n  network: none\n  home: discard\n  folders: []");
    }

    #[test]
    fn only_what_was_used_is_needed() {
        let used = used(&[("/srv/docs/a", false), ("/srv/out/b", true)]);
        for (path, reason, expected) in [
            ("/srv/docs", Reason::Argument, Some(false)),
            ("/srv/out", Reason::Argument, Some(true)),
            ("/srv/out", Reason::Configured, Some(true)),
            ("/srv/named", Reason::Variable("DIR".into()), Some(false)),
            ("/srv/unused", Reason::Configured, None),
            ("/srv/docs", Reason::Program, None),
        ] {
            let needed = needed_folder(&grant(path, true, reason), &used);
            assert_eq!(needed.map(|folder| folder.write), expected, "{path}");
        }
        let host = |host: &str, allowed| HostConnections { host: host.into(), allowed, ..HostConnections::default() };
        let public = McpSandboxSettings::default();
        for (hosts, expected) in [
            (vec![host("a.example", 0)], McpSandboxNetwork::None),
            (vec![host("a.example", 2), host("b.example", 0)], McpSandboxNetwork::Hosts(vec!["a.example".into()])),
            (vec![host("a.example", 2), host(OTHER, 1)], McpSandboxNetwork::Public),
        ] {
            assert_eq!(needed_network(&hosts, &public), expected);
        }
    }

    #[test]
    fn files_that_exist_outside_alone_are_named_and_a_home_is_kept_for_what_is_in_it() {
        let base = std::env::temp_dir().join(format!("sekisho-profile-{}", std::process::id()));
        let (machine, kept) = (base.join("machine"), base.join("kept"));
        for folder in [machine.join("data"), kept.join(".cache")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let home = Homes { seen: machine.clone(), kept: Some(kept) };
        let path = |below: &str, writes| (machine.join(below), writes);
        // The temporary folder is in every sandbox, so that this is about the home.
        for (uses, expected) in [
            (vec![path("", true), path(".npmrc", false)], false),
            (vec![path(".npmrc", true)], true),
            (vec![path(".cache/x", false)], false),
            (vec![path(".cache", false)], true),
        ] {
            assert_eq!(home.is_needed(&uses), expected, "{uses:?}");
        }
        std::fs::remove_dir_all(base).unwrap();
        let looked_for =
            used(&[("/srv-of-nobody", false), ("/usr/bin", false), ("/var/lib", false), ("/var/lib/x", false)]);
        let nobody = Homes { seen: "/home/nobody".into(), kept: None };
        assert_eq!(refused_files(&looked_for, &[], &nobody), ["not in the sandbox, and looked for: /var/lib"]);
        let granted = grant("/var/lib/data", false, Reason::Configured);
        assert_eq!(refused_files(&looked_for, &[granted], &nobody), [""; 0]);
    }
}
