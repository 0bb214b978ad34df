//! The imports of a component, and its grants.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use sekisho_config::ComponentGrantsConfig;
use sekisho_guest_protocol::{ComponentFolder, ComponentGrants, MAX_FOLDER_ENTRIES};

/// The grants of every component: streams for its output, an empty environment, folders without an entry, sockets that
/// refuse, and requests that it can write and nothing sends. Components of JavaScript import the last, whatever they do.
const ALWAYS: [&str; 6] =
    ["wasi:io/", "wasi:cli/", "wasi:filesystem/", "wasi:sockets/", HTTP_TYPES, "wasi_snapshot_preview1."];

const HTTP_TYPES: &str = "wasi:http/types@";

/// The version of these interfaces.
const VERSION: &str = "0.2";

/// The functions of preview 1 that are one of the capabilities below.
const CLOCKS: [&str; 3] = [
    "wasi_snapshot_preview1.clock_time_get",
    "wasi_snapshot_preview1.clock_res_get",
    "wasi_snapshot_preview1.poll_oneoff",
];
const RANDOM: [&str; 1] = ["wasi_snapshot_preview1.random_get"];

/// Why an import is refused; the line that grants it, if there is one.
#[derive(Debug, PartialEq, Eq)]
enum Missing {
    Grant(&'static str),
    Version,
    Unknown,
}

/// Checks all imports of a file.
/// Errors: the imports that nobody grants, with the remedy.
pub(super) fn check(name: &str, imports: &[String], granted: &ComponentGrantsConfig) -> Result<(), String> {
    let refused = imports.iter().filter_map(|import| {
        Some(match missing(import, granted)? {
            Missing::Grant(line) => {
                format!("it imports {import}, which is not granted: set `components.grants.{name}.{line}` if it may")
            }
            Missing::Version => {
                format!(
                    "it imports {import}, which is not of WASI {VERSION}: build it for that, such as with wasm32-wasip2"
                )
            }
            Missing::Unknown => format!("it imports {import}, which no component is granted: build it without"),
        })
    });
    let refused: Vec<_> = refused.collect();
    if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
}

fn missing(import: &str, granted: &ComponentGrantsConfig) -> Option<Missing> {
    let begins = |name: &str| import.starts_with(name);
    let (is_granted, line) = if begins("wasi:clocks/") || CLOCKS.contains(&import) {
        (granted.clocks, "clocks: true")
    } else if begins("wasi:random/") || RANDOM.contains(&import) {
        (granted.random, "random: true")
    } else if begins("wasi:http/") && !begins(HTTP_TYPES) {
        (!granted.http.is_empty(), "http: [HOST]")
    } else if begins("wasi:config/") {
        (!granted.config.is_empty(), "config: {NAME: VALUE}")
    } else if ALWAYS.iter().any(|name| begins(name)) {
        (true, "")
    } else {
        return Some(Missing::Unknown);
    };
    match is_granted {
        false => Some(Missing::Grant(line)),
        true => (begins("wasi:") && !import.contains(&format!("@{VERSION}."))).then_some(Missing::Version),
    }
}

/// As a worker gets them.
/// Errors: a folder that is not there.
pub(super) fn for_worker(granted: &ComponentGrantsConfig) -> Result<ComponentGrants, String> {
    let mut folders = Vec::new();
    for (guest_path, host_path) in &granted.folders {
        if !host_path.is_dir() {
            return Err(format!("the folder {} that it is granted is not there: create it", host_path.display()));
        }
        folders.push(ComponentFolder { guest_path: guest_path.clone(), host_path: host_path.clone() });
    }
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    Ok(ComponentGrants { environment: pairs(&granted.env), config: pairs(&granted.config), folders })
}

/// Another one once anything of it is another, and once a file in a folder that it reads has changed: workers read folders when they
/// start.
pub(super) fn id_of(sum: &str, grants: &ComponentGrants) -> String {
    let mut hash = Sha256::new().chain_update(sum).chain_update(format!("{grants:?}"));
    let mut left = MAX_FOLDER_ENTRIES;
    for folder in &grants.folders {
        add_folder(&mut hash, &folder.host_path, &mut left);
    }
    hex::encode(&hash.finalize()[..16])
}

/// Adds the state of each file in a folder, and in the folders inside. Links are not followed. Entries beyond the
/// workers' maximum are left out: workers refuse all of them.
fn add_folder(hash: &mut Sha256, folder: &Path, left: &mut usize) {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().take(*left).collect();
    *left -= entries.len();
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let metadata = entry.metadata();
        let changed = metadata.as_ref().ok().and_then(|metadata| Some((metadata.len(), metadata.modified().ok()?)));
        hash.update(format!("{:?} {changed:?}", entry.path()));
        if metadata.is_ok_and(|metadata| metadata.is_dir()) {
            add_folder(hash, &entry.path(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_imported_must_be_granted() {
        let everything = ComponentGrantsConfig {
            config: [("a".to_owned(), "b".to_owned())].into(),
            clocks: true,
            random: true,
            http: vec!["example.com".to_owned()],
            ..ComponentGrantsConfig::default()
        };
        for (import, line) in [
            ("wasi:clocks/wall-clock@0.2.3", Some("own.clocks: true")),
            ("wasi_snapshot_preview1.clock_time_get", Some("own.clocks: true")),
            ("wasi:random/insecure-seed@0.2.0", Some("own.random: true")),
            ("wasi_snapshot_preview1.random_get", Some("own.random: true")),
            ("wasi:http/outgoing-handler@0.2.3", Some("own.http: [HOST]")),
            ("wasi:http/types@0.2.3", None),
            ("wasi:config/store@0.2.0-rc.1", Some("own.config: {NAME: VALUE}")),
            ("wasi:config/store@0.2.0-draft", Some("own.config: {NAME: VALUE}")),
            ("wasi:cli/environment@0.2.3", None),
            ("wasi:sockets/tcp@0.2.3", None),
            ("wasi_snapshot_preview1.fd_write", None),
        ] {
            let import = [import.to_owned()];
            let refused = check("own", &import, &ComponentGrantsConfig::default()).err();
            assert_eq!(refused.is_some(), line.is_some(), "{import:?}");
            let says = refused.zip(line).is_none_or(|(refused, line)| refused.contains(line));
            assert!(says && check("own", &import, &everything).is_ok(), "{import:?}");
        }
        for import in
            ["wasi:cli/environment@0.3.0", "wasi:http/types@0.3.0", "wasi:random/random", "wasi:random/random@1.0.2"]
        {
            let refused = check("own", &[import.to_owned()], &everything).unwrap_err();
            assert!(refused.contains("not of WASI 0.2") && refused.contains("wasm32-wasip2"), "{import}: {refused}");
        }
        for import in ["wasi:keyvalue/store@0.2.0", "my:keys/store", "env.memory", "wasi_unstable.fd_write", "log"] {
            let refused = check("own", &[import.to_owned()], &everything).unwrap_err();
            assert!(refused.contains("no component is granted"), "{import}: {refused}");
        }
    }

    #[test]
    fn a_component_is_another_one_with_other_grants_or_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut granted = ComponentGrantsConfig::default();
        let id = |granted: &ComponentGrantsConfig| id_of("sum", &for_worker(granted).unwrap());
        let bare = id(&granted);
        granted.folders.insert("/data".to_owned(), folder.path().to_owned());
        let empty = id(&granted);
        std::fs::write(folder.path().join("a"), "b").unwrap();
        let filled = id(&granted);
        assert!(bare != empty && empty != filled && filled == id(&granted));
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        let with_folder = id(&granted);
        std::fs::write(folder.path().join("inner/b"), "c").unwrap();
        assert!(filled != with_folder && with_folder != id(&granted), "also in folders inside");
        granted.folders.insert("/other".to_owned(), folder.path().join("nowhere"));
        assert!(for_worker(&granted).unwrap_err().contains("is not there"));
    }
}
