//! Commands that fetch packages and run a program of them: `npx -y PACKAGE`, `uvx PACKAGE`.

mod runners;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use self::runners::Installer;
use self::runners::{FORMS, Meaning};

/// Variables of an entry that the installer gets, beside those with one of the prefixes. No others: they may have secrets of the server.
const VARIABLES: [&str; 13] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
const VARIABLE_PREFIXES: [&str; 3] = ["npm_config_", "NPM_CONFIG_", "UV_"];

/// A package of a repository names its host, or is one of GitHub.
const GITHUB: [&str; 2] = ["github.com", "codeload.github.com"];

/// A command with the packages that it fetches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackageCommand {
    pub installer: Installer,
    /// As the command names them; the first has the program, or is the one that is asked for.
    pub packages: Vec<String>,
    /// The program's name, where it is not the package's.
    pub(super) program: Option<String>,
    /// For the installer.
    pub(super) options: Vec<String>,
    pub(super) python: Option<String>,
    /// Variables with settings of the installer, such as the address of a registry, without credentials.
    pub variables: BTreeMap<String, String>,
    /// Of the program.
    #[serde(skip)]
    pub args: Vec<String>,
}

/// An option that is not in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{command} has the option {option}, with which packages cannot be installed in a step of their own")]
pub struct UnknownOption {
    command: String,
    option: String,
}

impl PackageCommand {
    /// The packages of a command; `None` of every other command, and of packages that are in a folder of this machine.
    ///
    /// # Errors
    /// An option that is not in the tables.
    pub fn parse(program: &str, args: &[String]) -> Result<Option<Self>, UnknownOption> {
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let begins =
            |words: &[&str]| args.len() >= words.len() && args.iter().zip(words).all(|(arg, word)| arg == word);
        let form = FORMS.iter().find(|(form, words, _)| *form == name && begins(words));
        let Some((_, words, installer)) = form else { return Ok(None) };
        let mut command = Self {
            installer: *installer,
            packages: Vec::new(),
            program: None,
            options: Vec::new(),
            python: None,
            variables: BTreeMap::new(),
            args: Vec::new(),
        };
        let unknown = |option: String| UnknownOption { command: name.to_owned(), option };
        command.read(args.iter().skip(words.len()).cloned()).map_err(unknown)?;
        if name == "npm" && command.args.first().is_some_and(|first| first == "--") {
            // `npm exec PACKAGE -- ARGUMENTS`; npx passes it on.
            command.args.remove(0);
        }
        let is_fetched = !command.packages.is_empty() && !command.packages.iter().any(|package| is_local(package));
        Ok(is_fetched.then_some(command))
    }

    /// # Errors
    /// The option that is unknown, or has no value.
    fn read(&mut self, mut args: impl Iterator<Item = String>) -> Result<(), String> {
        let (mut beside, mut is_named) = (Vec::new(), false);
        while let Some(argument) = args.next() {
            if !argument.starts_with('-') {
                match is_named {
                    true => self.program = Some(argument),
                    false => self.packages.push(argument),
                }
                self.args = args.collect();
                break;
            }
            let (option, value) = match argument.split_once('=').filter(|_| argument.starts_with("--")) {
                Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
                None => (argument.clone(), None),
            };
            let meaning = self.installer.meaning(&option).ok_or_else(|| option.clone())?;
            let mut value = || value.clone().or_else(|| args.next()).ok_or_else(|| option.clone());
            match meaning {
                Meaning::Ignored => {}
                Meaning::Package => {
                    self.packages.push(value()?);
                    is_named = true;
                }
                Meaning::Beside => beside.extend(value()?.split(',').map(str::to_owned)),
                Meaning::Python => self.python = Some(value()?),
                Meaning::Passed => self.options.push(argument),
                Meaning::PassedWithValue => {
                    let value = value()?;
                    self.options.extend([option, value]);
                }
            }
        }
        // Packages without a program: npm would start a shell.
        if is_named && self.program.is_none() {
            self.packages.clear();
        }
        if !self.packages.is_empty() {
            self.packages.append(&mut beside);
        }
        Ok(())
    }

    /// The program that installs the packages.
    pub fn installer(&self) -> &'static str {
        match self.installer {
            Installer::Npm => "npm",
            Installer::Uv => "uv",
        }
    }

    /// The arguments of the installer, for each time that it is started; it is started in the folder of the packages.
    pub(super) fn steps(&self) -> Vec<Vec<String>> {
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self.installer {
            Installer::Npm => {
                let install = text(&["install", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev"]);
                vec![[install, self.options.clone(), text(&["--"]), self.packages.clone()].concat()]
            }
            Installer::Uv => {
                let python = self.python.iter().flat_map(|python| ["--python".to_owned(), python.clone()]);
                let make = text(&["venv", "--allow-existing", "--relocatable", "--no-project", "--no-config", "."]);
                let install = text(&["pip", "install", "--no-config", "--python", "bin/python"]);
                let packages = self.packages.iter().map(|package| requirement(package)).collect();
                vec![
                    make.into_iter().chain(python).collect(),
                    [install, self.options.clone(), text(&["--"]), packages].concat(),
                ]
            }
        }
    }

    /// Hosts that the installer may reach without being told: the registry, and hosts of repositories that the packages name.
    pub fn hosts(&self) -> Vec<String> {
        let registries: &[&str] = match self.installer {
            Installer::Npm => &["registry.npmjs.org"],
            Installer::Uv => &["pypi.org", "files.pythonhosted.org"],
        };
        let mut hosts: Vec<_> = registries.iter().map(|host| (*host).to_owned()).collect();
        for package in &self.packages {
            let authority = package.split_once("://").and_then(|(_, rest)| rest.split('/').next());
            let host = authority.map(|authority| authority.rsplit('@').next().unwrap_or(authority));
            hosts.extend(host.map(|host| host.split(':').next().unwrap_or(host).to_owned()));
            if package.starts_with("github:") || package.contains("//github.com/") {
                hosts.extend(GITHUB.map(str::to_owned));
            }
        }
        hosts.retain(|host| !host.is_empty());
        hosts
    }

    /// Addresses among the options of the installer.
    pub fn registries(&self) -> Vec<String> {
        self.options.iter().filter(|option| option.contains("://")).cloned().collect()
    }

    /// Whether the installer gets this variable of the server's entry.
    pub fn has_variable(name: &str) -> bool {
        VARIABLES.contains(&name) || Self::is_setting(name)
    }

    /// Whether a variable is a setting of an installer.
    pub fn is_setting(name: &str) -> bool {
        VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }

    /// The packages for people: the address of a repository may have a password.
    pub fn shown(&self) -> String {
        self.packages.iter().map(|package| without_user(package)).collect::<Vec<_>>().join(" ")
    }

    /// Equal where the same is installed.
    pub(super) fn key(&self) -> String {
        // A struct of texts can be serialized.
        let text = serde_json::to_vec(self).unwrap_or_default();
        hex::encode(Sha256::digest(&text))
    }
}

/// Whether a package is in a folder or file of this machine.
fn is_local(package: &str) -> bool {
    package.starts_with(['.', '/', '~']) || package.starts_with("file:") || package.contains("file://")
}

fn without_user(package: &str) -> String {
    let Some((scheme, rest)) = package.split_once("://") else { return package.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

/// `PACKAGE@VERSION` as `pip` writes it.
fn requirement(package: &str) -> String {
    match package.split_once('@') {
        Some((name, "latest")) => name.to_owned(),
        Some((name, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("{name}=={version}")
        }
        _ => package.to_owned(),
    }
}

#[cfg(test)]
mod tests;
