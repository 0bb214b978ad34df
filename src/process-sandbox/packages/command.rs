//! Commands that fetch packages and run a program of them: `npx -y PACKAGE`, `pnpm dlx`, `bunx`, `uvx PACKAGE`, `pipx run`.

mod runners;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use self::runners::Installer;
use self::runners::{FORMS, Meaning, fetches_otherwise};

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
const VARIABLE_PREFIXES: [&str; 7] =
    ["npm_config_", "NPM_CONFIG_", "pnpm_config_", "PNPM_CONFIG_", "BUN_CONFIG_", "UV_", "PIP_"];

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
    /// The program is run by the interpreter of the installer, whatever its first line names.
    #[serde(skip)]
    pub(super) by_installer: bool,
}

/// One start of the installer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// A program among the packages in place of the installer itself.
    pub(super) program: Option<&'static str>,
    pub(super) args: Vec<String>,
}

/// A command that fetches packages, which cannot be installed before it is started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnsupportedCommand {
    /// An option that is not in the tables.
    #[error("{command} has the option {option}, with which packages cannot be installed in a step of their own")]
    Option { command: String, option: String },
    /// A form of a command, or a program, that is not in the tables.
    #[error(
        "{command} fetches packages each time that it is started: they cannot be installed in a step of their own, and `tools.lock` does \
         not pin them; use npx, pnpm dlx, bunx, uvx or pipx run"
    )]
    Form { command: String },
}

impl PackageCommand {
    /// The packages of a command; `None` of every other command, and of packages that are in a folder of this machine.
    /// Errors: a command that fetches packages in a form that is not in the tables.
    pub fn parse(program: &str, args: &[String]) -> Result<Option<Self>, UnsupportedCommand> {
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let begins =
            |words: &[&str]| args.len() >= words.len() && args.iter().zip(words).all(|(arg, word)| arg == word);
        let form = FORMS.iter().find(|(form, words, _)| *form == name && begins(words));
        let other_form = || UnsupportedCommand::Form { command: name.to_owned() };
        let Some((_, words, installer)) = form else {
            return if fetches_otherwise(name, args) { Err(other_form()) } else { Ok(None) };
        };
        let mut command = Self {
            installer: *installer,
            packages: Vec::new(),
            program: None,
            options: Vec::new(),
            python: None,
            variables: BTreeMap::new(),
            args: Vec::new(),
            by_installer: false,
        };
        let unknown = |option: String| UnsupportedCommand::Option { command: name.to_owned(), option };
        command.read(args.iter().skip(words.len()).cloned()).map_err(unknown)?;
        if name == "npm" && command.args.first().is_some_and(|first| first == "--") {
            // `npm exec PACKAGE -- ARGUMENTS`; npx passes it on.
            command.args.remove(0);
        }
        // pipx runs a script from there.
        if command.installer == Installer::Pip && command.packages.iter().any(|package| is_script(package)) {
            return if command.packages.iter().any(|package| package.contains("://")) {
                Err(other_form())
            } else {
                Ok(None)
            };
        }
        let is_fetched = !command.packages.is_empty() && !command.packages.iter().any(|package| is_local(package));
        Ok(is_fetched.then_some(command))
    }

    /// Errors: the option that is unknown, or has no value.
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
                Meaning::ByInstaller => self.by_installer = true,
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

    /// The program that installs the packages, by its name; pipx names one by its version or its path.
    pub fn installer(&self) -> String {
        match (self.installer, &self.python) {
            (Installer::Pip, Some(python)) if python.starts_with(|first: char| first.is_ascii_digit()) => {
                format!("python{python}")
            }
            (Installer::Pip, Some(python)) => python.clone(),
            _ => self.installer.program().to_owned(),
        }
    }

    /// Whether the installer is in the folder of the program that the command names, where it names one. pipx has a Python of its own.
    pub fn is_installer_beside(&self) -> bool {
        self.installer != Installer::Pip
    }

    /// The starts of the installer, in the folder of the packages.
    pub(super) fn steps(&self) -> Vec<Step> {
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let own = |parts: &[Vec<String>]| Step { program: None, args: parts.concat() };
        let requirements = || self.packages.iter().map(|package| requirement(package)).collect::<Vec<_>>();
        match self.installer {
            Installer::Npm => {
                let install = text(&["install", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev"]);
                vec![own(&[install, self.options.clone(), text(&["--"]), self.packages.clone()])]
            }
            Installer::Pnpm => {
                // Packages whose scripts are not allowed are installed without them.
                let add = ["add", "--save-prod", "--reporter=append-only", "--config.strict-dep-builds=false"];
                vec![own(&[text(&add), self.options.clone(), self.packages.clone()])]
            }
            Installer::Bun => {
                let add = text(&["add", "--no-progress", "--no-summary"]);
                vec![own(&[add, self.options.clone(), self.packages.clone()])]
            }
            Installer::Uv => {
                let python = self.python.iter().flat_map(|python| ["--python".to_owned(), python.clone()]).collect();
                let make = text(&["venv", "--allow-existing", "--relocatable", "--no-project", "--no-config", "."]);
                let install = text(&["pip", "install", "--no-config", "--python", "bin/python"]);
                vec![own(&[make, python]), own(&[install, self.options.clone(), text(&["--"]), requirements()])]
            }
            Installer::Pip => {
                let install = ["-m", "pip", "install", "--no-compile", "--no-input", "--disable-pip-version-check"];
                let args = [text(&install), self.options.clone(), text(&["--"]), requirements()].concat();
                vec![own(&[text(&["-m", "venv", "."])]), Step { program: Some("bin/python"), args }]
            }
        }
    }

    /// Hosts that the installer may reach without being told: the registry, and hosts of repositories that the packages name.
    pub fn hosts(&self) -> Vec<String> {
        let registries: &[&str] = match self.installer {
            Installer::Npm | Installer::Pnpm | Installer::Bun => &["registry.npmjs.org"],
            Installer::Uv | Installer::Pip => &["pypi.org", "files.pythonhosted.org"],
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

/// Whether it is a file of Python in place of a package.
fn is_script(package: &str) -> bool {
    Path::new(package).extension().is_some_and(|extension| extension == "py")
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
