use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::yaml::document::Document;
use super::yaml::error::ConfigError;
use super::{Secret, TOOL_FILE_RULE, is_tool_file};

const GRANTS: &str = "components.grants";
const CREDENTIALS: &str = "components.credentials";

/// Tools that are WebAssembly components, or commands of WASI preview 1.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentsConfig {
    /// The folder of their files: each exported function of `FILE.wasm` is the tool `FILE__FUNCTION`, or
    /// `FILE__INTERFACE__FUNCTION`. Without it there are none.
    pub directory: Option<PathBuf>,
    /// By the name of a file without `.wasm`: what it may use. Without an entry, nothing.
    pub grants: BTreeMap<String, ComponentGrantsConfig>,
    /// By the name of a file, and by host, which is asked over HTTPS, or by origin: headers of its requests there, which it does
    /// not see.
    pub credentials: BTreeMap<String, BTreeMap<String, BTreeMap<String, Secret>>>,
}

/// What a component may use.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentGrantsConfig {
    /// Environment variables. No secrets: none enters the sandbox.
    pub env: BTreeMap<String, String>,
    /// Values for `wasi:config`. No secrets.
    pub config: BTreeMap<String, String>,
    /// The path that the component sees → a folder, which it can read.
    pub folders: BTreeMap<String, PathBuf>,
    /// The time, and timers.
    pub clocks: bool,
    /// Random bytes.
    pub random: bool,
    /// Hosts that it may send requests to, each with its subdomains: at the usual ports, or at one port as `HOST:PORT`.
    pub http: Vec<String>,
    /// Networks of these hosts that are not public.
    pub allow_networks: Vec<String>,
}

impl ComponentsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        let named =
            [(GRANTS, self.grants.keys().collect::<Vec<_>>()), (CREDENTIALS, self.credentials.keys().collect())];
        for (setting, files) in named {
            if self.directory.is_none() && !files.is_empty() {
                findings.add(setting, "is for files of a folder, and there is none", "set `components.directory`");
            }
            for file in files.into_iter().filter(|file| !is_tool_file(file)) {
                let setting = format!("{setting}.{file}");
                findings.add(setting, "is not the name of a component", format!("{TOOL_FILE_RULE}, without `.wasm`"));
            }
        }
        for (file, grants) in &self.grants {
            for path in grants.folders.keys().filter(|path| !is_guest_path(path)) {
                let setting = format!("{GRANTS}.{file}.folders");
                let message = format!("{path:?} is no path that a component can see");
                findings.add(setting, message, "write an absolute path without `.` and `..`, such as /data");
            }
        }
        for (file, hosts) in &self.credentials {
            let granted = self.grants.get(file).map(|grants| grants.http.as_slice()).unwrap_or_default();
            if granted.is_empty() && !hosts.is_empty() {
                let advice = format!("list the hosts in `{GRANTS}.{file}.http`");
                findings.add(format!("{CREDENTIALS}.{file}"), "is for requests that it may not send", advice);
            }
        }
    }

    /// Refuses values of variables, files and programs where a component reads them: they may be secrets.
    pub(super) fn find_reference(document: &Document) -> Option<ConfigError> {
        let (grants, _) = document.find(GRANTS).filter(|(_, is_exact)| *is_exact)?;
        let value = grants.first_reference()?;
        let message =
            "a component reads this value in the sandbox, which no secret enters, and `${…}` may stand for one";
        let advice = "write the value itself; a secret that a host asks for belongs in `components.credentials`";
        Some(document.error(value.position, false, message).advise(advice))
    }
}

fn is_guest_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|names| {
        names.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains(['\0', '\\']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_folders_are_absolute_and_plain() {
        for path in ["/data", "/var/lib/data"] {
            assert!(is_guest_path(path), "{path}");
        }
        for path in ["", "/", "data", "/data/", "/a/../b", "/./a", "//a", "/a\\b"] {
            assert!(!is_guest_path(path), "{path}");
        }
    }
}
