//! Packages that a server's command fetches (`npx`, `pnpm dlx`, `bunx`, `uvx`, `pipx run`): installed in a sandbox of their own before the program is started, and read
//! again before each start.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::{ProgramSandbox, grants};
use sekisho_config::{
    McpSandbox, McpSandboxHome, McpSandboxMode, McpSandboxNetwork, McpSandboxSettings, McpServerSettings, Secret,
};
use sekisho_core::redaction::SentSecrets;
use sekisho_process_sandbox::network::Connections;
use sekisho_process_sandbox::packages::{InstallError, Installed, Package, PackageCommand, PackageFolder, Reading};
use sekisho_process_sandbox::{Profile, StartError, is_available};

/// The folder of the state directory with the packages of servers.
const PACKAGES: &str = "mcp-packages";

/// At the same time, of all servers.
const MAX_INSTALLATIONS: usize = 2;

static INSTALLATIONS: Semaphore = Semaphore::const_new(MAX_INSTALLATIONS);

const CHANGED: &str = "its installed packages have changed since its tools were listed; connect it again";

/// The packages of one server.
#[derive(Debug, Default)]
pub(super) struct ServerPackages {
    /// Makes the connections of the installer.
    connections: Option<Arc<dyn Connections>>,
    /// Locked while they are installed or read.
    used: Mutex<Option<UsedPackages>>,
    /// As it was when the tools were listed.
    listed: parking_lot::Mutex<Option<Package>>,
}

#[derive(Debug)]
struct UsedPackages {
    installed: Installed,
    reading: Reading,
}

impl ServerPackages {
    pub(super) fn new(connections: Option<Arc<dyn Connections>>) -> Self {
        Self { connections, ..Self::default() }
    }
}

impl ProgramSandbox {
    /// Has the packages installed that the entry's command fetches, and reads them again. The connection for the tools' list may have other
    /// packages than before, no other connection may.
    /// Errors: why the program cannot be started, as a text for an operator.
    pub(crate) async fn prepare(
        &self,
        server: &str,
        settings: &McpServerSettings,
        is_for_list: bool,
    ) -> Result<(), String> {
        let Some((command, installer)) = packages_of(settings)? else { return Ok(()) };
        let mut used = self.packages.used.lock().await;
        let before = used.take();
        let folder = PackageFolder::new(self.own.state_directory.join(PACKAGES).join(server));
        let installed = match folder.installed(&command) {
            Some(installed) => installed,
            None => {
                let secrets = secrets_of(&command, settings, &installer);
                let installed = self.install(server, &command, &installer, &folder, &secrets).await;
                installed.map_err(|error| not_installed(&command, &error))?
            }
        };
        let before = before.filter(|before| before.installed == installed).map(|before| before.reading);
        let now = read(installed, before).await?;
        let package = Some(now.reading.package.clone());
        let mut listed = self.packages.listed.lock();
        if is_for_list {
            *listed = package;
        } else if *listed != package {
            return Err(CHANGED.to_owned());
        }
        drop(listed);
        *used = Some(now);
        Ok(())
    }

    /// The package of the program whose tools are listed.
    pub(crate) fn package(&self) -> Option<Package> {
        self.packages.listed.lock().clone()
    }

    /// Whether packages are being installed or read.
    pub(crate) fn is_preparing(&self) -> bool {
        self.packages.used.try_lock().is_err()
    }

    /// Has the profile run the installed program in place of the command that would fetch it.
    pub(super) async fn use_packages(
        &self,
        settings: &McpServerSettings,
        profile: &mut Profile,
    ) -> Result<(), StartError> {
        let Some((command, _)) = packages_of(settings).map_err(StartError::Sandbox)? else { return Ok(()) };
        let used = self.packages.used.lock().await;
        let used = used.as_ref().ok_or_else(|| StartError::Sandbox("its packages are not installed".to_owned()))?;
        used.installed.run_by(&command, profile);
        Ok(())
    }

    async fn install(
        &self,
        server: &str,
        command: &PackageCommand,
        settings: &McpServerSettings,
        folder: &PackageFolder,
        secrets: &SentSecrets,
    ) -> Result<Installed, InstallError> {
        let McpSandbox::On(wanted) = &settings.sandbox else {
            return Err(StartError::Sandbox("the installer has no sandbox".to_owned()).into());
        };
        let connections = self.packages.connections.clone();
        let connections =
            connections.ok_or_else(|| StartError::Sandbox("nothing makes the installer's connections".to_owned()))?;
        let grants = grants(settings.command.as_deref().unwrap_or_default(), settings, wanted, &self.own);
        let profile = self.profile(server, settings, wanted, &grants)?;
        // It is never closed.
        let _place = INSTALLATIONS.acquire().await;
        let begun = Instant::now();
        tracing::info!(server, packages = command.shown(), "installing the packages of an MCP server");
        let is_required = settings.sandbox_mode == McpSandboxMode::Required;
        // A script of a package may print all that it was given.
        let redaction = |output: &str| secrets.strike(output).into_owned();
        let installed = folder.install(command, &profile, &connections, is_required, &redaction).await?;
        let Package { name, version, .. } = &installed.package;
        let seconds = begun.elapsed().as_secs();
        tracing::info!(server, package = %name, %version, seconds, "the packages of an MCP server are installed");
        Ok(installed)
    }
}

/// The packages that an entry's command fetches, and the entry of their installer; `None` where it fetches none, or has a
/// form that is not known and need not be.
/// Errors: an unknown form or option, where all layers are required.
fn packages_of(settings: &McpServerSettings) -> Result<Option<(PackageCommand, McpServerSettings)>, String> {
    let (Some(program), McpSandbox::On(wanted)) = (&settings.command, &settings.sandbox) else { return Ok(None) };
    if !is_available() {
        return Ok(None);
    }
    let command = command_of(program, settings)?;
    Ok(command.map(|mut command| {
        let installer = installer_settings(&command, program, settings, wanted);
        command.variables = variables_of(&installer);
        (command, installer)
    }))
}

/// Errors: as [`packages_of`].
fn command_of(program: &str, settings: &McpServerSettings) -> Result<Option<PackageCommand>, String> {
    match PackageCommand::parse(program, &settings.args) {
        Ok(command) => Ok(command),
        Err(unsupported) if settings.sandbox_mode == McpSandboxMode::Required => {
            Err(format!("{unsupported}; `mcp.sandbox` is `required`"))
        }
        // The program runs as its command says; the note of its sandbox has the reason.
        Err(_) => Ok(None),
    }
}

/// The entry of the installer of a server's packages; `None` where its command fetches none.
pub(crate) fn installer_of(settings: &McpServerSettings) -> Option<McpServerSettings> {
    packages_of(settings).ok().flatten().map(|(_, installer)| installer)
}

/// It has no arguments, folders and secrets of the server. It reaches the registries that its variables and the user's `.npmrc` name, as a
/// program reaches services that its entry names, and the hosts that the server may reach by a list; at private addresses, where the
/// entry allows their networks.
fn installer_settings(
    command: &PackageCommand,
    program: &str,
    settings: &McpServerSettings,
    wanted: &McpSandboxSettings,
) -> McpServerSettings {
    let mut hosts = command.hosts();
    if let McpSandboxNetwork::Hosts(listed) = &wanted.network {
        hosts.extend(listed.iter().cloned());
    }
    let mut env: BTreeMap<_, _> =
        own_registries(&settings.env).into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    let of_installer = settings.env.iter().filter(|(name, _)| PackageCommand::has_variable(name));
    env.extend(of_installer.map(|(name, value)| (name.clone(), value.clone())));
    // `npm` is beside `npx`.
    let beside = || Path::new(program).with_file_name(command.installer()).to_string_lossy().into_owned();
    let is_beside = program.contains('/') && command.is_installer_beside();
    let installer = if is_beside { beside() } else { command.installer() };
    let network = McpSandboxNetwork::Hosts(hosts);
    let sandbox = McpSandboxSettings { network, home: McpSandboxHome::Discard, ..McpSandboxSettings::default() };
    McpServerSettings {
        command: Some(installer),
        args: command.registries(),
        env,
        allow_networks: settings.allow_networks.clone(),
        sandbox: McpSandbox::On(sandbox),
        sandbox_mode: settings.sandbox_mode,
        ..McpServerSettings::default()
    }
}

/// The credentials of the server's entry, and passwords in the addresses of packages and registries.
fn secrets_of(command: &PackageCommand, server: &McpServerSettings, installer: &McpServerSettings) -> SentSecrets {
    let mut secrets = server.env_secrets();
    let variables = installer.env.values().map(Secret::expose);
    let named = command.packages.iter().chain(&installer.args).map(String::as_str);
    // `NAME @ ADDRESS` is a package, `NAME=ADDRESS` an index, and several are in one variable.
    for word in variables.chain(named).flat_map(str::split_whitespace) {
        let addresses = [Some(word), word.split_once('=').map(|(_, value)| value)];
        for address in addresses.into_iter().flatten() {
            secrets.add_password_of(address.strip_prefix("git+").unwrap_or(address));
        }
    }
    secrets
}

/// The settings of the installer. Another token installs nothing anew.
fn variables_of(installer: &McpServerSettings) -> BTreeMap<String, String> {
    let variables = installer.env_without_credentials().into_iter();
    let variables = variables.filter(|(name, _)| PackageCommand::is_setting(name));
    variables.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The registries of the user's `.npmrc`, which is not in the sandbox: it may have the user's tokens for them. Without those that the entry
/// names in `env` itself: npm reads its variables in either case, and takes the last one.
pub(super) fn own_registries(env: &BTreeMap<String, Secret>) -> Vec<(String, String)> {
    let npmrc = std::env::home_dir().unwrap_or_default().join(".npmrc");
    package_registries(&fs::read_to_string(npmrc).unwrap_or_default(), env)
}

fn package_registries(npmrc: &str, env: &BTreeMap<String, Secret>) -> Vec<(String, String)> {
    let entries = npmrc.lines().filter_map(|line| line.split_once('='));
    let entries = entries.map(|(key, value)| (key.trim(), value.trim().trim_matches('"')));
    let is_registry = |key: &str| key == "registry" || (key.starts_with('@') && key.ends_with(":registry"));
    let is_plain = |value: &str| value.starts_with("http") && !value.contains(['@', '$']);
    let registries = entries.filter(|(key, value)| is_registry(key) && is_plain(value));
    let registries = registries.map(|(key, value)| (format!("npm_config_{key}"), value.to_owned()));
    registries.filter(|(name, _)| !env.keys().any(|named| named.eq_ignore_ascii_case(name))).collect()
}

async fn read(installed: Installed, before: Option<Reading>) -> Result<UsedPackages, String> {
    let reading = tokio::task::spawn_blocking(move || {
        let reading = installed.read(before.as_ref()).map_err(|error| format!("its installed packages: {error}"))?;
        Ok::<_, String>(UsedPackages { installed, reading })
    });
    reading.await.unwrap_or_else(|error| Err(format!("its installed packages cannot be read: {error}")))
}

fn not_installed(command: &PackageCommand, error: &InstallError) -> String {
    let packages = command.shown();
    match error {
        InstallError::Start(StartError::Program(error)) => {
            let reason = match error.kind() {
                io::ErrorKind::NotFound => "there is no such program in `PATH`; install it".to_owned(),
                _ => error.to_string(),
            };
            format!("{packages} is not installed: {} cannot be started: {reason}", command.installer())
        }
        error => format!("{packages} is not installed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{granted, named_packages};
    use super::*;
    use sekisho_config::Config;

    fn settings(command: &str, args: &[&str], env: &[(&str, &str)], network: McpSandboxNetwork) -> McpServerSettings {
        McpServerSettings {
            command: Some(command.to_owned()),
            args: args.iter().map(|argument| (*argument).to_owned()).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
            sandbox: McpSandbox::On(McpSandboxSettings { network, ..McpSandboxSettings::default() }),
            ..McpServerSettings::default()
        }
    }

    fn installer(settings: &McpServerSettings) -> McpServerSettings {
        let McpSandbox::On(wanted) = &settings.sandbox else { panic!("there is a sandbox") };
        let program = settings.command.as_deref().unwrap();
        let command = PackageCommand::parse(program, &settings.args).unwrap().unwrap();
        installer_settings(&command, program, settings, wanted)
    }

    #[test]
    fn packages_are_named_and_a_missing_installer_is_to_be_installed() {
        let named = |command, args: &[&str]| named_packages(&settings(command, args, &[], McpSandboxNetwork::Public));
        assert_eq!(named("uvx", &["mcp-server-time"]).as_deref(), Some("mcp-server-time"));
        assert_eq!(named("python3", &["server.py"]), None);
        let command = PackageCommand::parse("uvx", &["mcp-server-time".to_owned()]).unwrap().unwrap();
        let missing = InstallError::Start(StartError::Program(io::ErrorKind::NotFound.into()));
        let expected =
            "mcp-server-time is not installed: uv cannot be started: there is no such program in `PATH`; install it";
        assert_eq!(not_installed(&command, &missing), expected);
    }

    #[test]
    fn the_installer_has_its_own_variables_and_nothing_of_the_server() {
        let args = ["-y", "--registry=https://r.test/", "a", "/srv/files", "--token=secret"];
        let env = [("API_KEY", "secret"), ("npm_config_strict_ssl", "true")];
        let allow_networks = vec!["10.1.0.0/16".to_owned()];
        let server = settings("/opt/node/bin/npx", &args, &env, McpSandboxNetwork::Public);
        let server = McpServerSettings { allow_networks: allow_networks.clone(), ..server };
        let installer = installer(&server);
        assert_eq!(installer.allow_networks, allow_networks);
        assert_eq!(installer.command.as_deref(), Some("/opt/node/bin/npm"));
        assert_eq!(installer.args, ["https://r.test/"]);
        assert!(installer.env.contains_key("npm_config_strict_ssl") && !installer.env.contains_key("API_KEY"));
        let McpSandbox::On(sandbox) = &installer.sandbox else { panic!("there is a sandbox") };
        assert_eq!(sandbox.network, McpSandboxNetwork::Hosts(vec!["registry.npmjs.org".to_owned()]));
        assert_eq!((sandbox.home, sandbox.folders.len()), (McpSandboxHome::Discard, 0));
    }

    #[test]
    fn the_check_names_the_packages_or_the_unknown_option() {
        let lines = |args: &[&str]| {
            let settings = settings("npx", args, &[], McpSandboxNetwork::Public);
            granted(&settings, &Config::default()).unwrap().unwrap()
        };
        assert!(lines(&["-y", "demo"]).contains("demo: readable (packages that npm installs"));
        assert!(lines(&["-c", "demo"]).contains("the option -c"));
        let yarn = settings("yarn", &["dlx", "demo"], &[], McpSandboxNetwork::Public);
        let lines = granted(&yarn, &Config::default()).unwrap().unwrap();
        assert!(lines.contains("yarn fetches packages each time that it is started"), "{lines}");
        assert_eq!(command_of("yarn", &yarn), Ok(None));
        let required = McpServerSettings { sandbox_mode: McpSandboxMode::Required, ..yarn };
        let refused = command_of("yarn", &required).unwrap_err();
        assert!(refused.contains("yarn") && refused.ends_with("`mcp.sandbox` is `required`"), "{refused}");
    }

    #[test]
    fn packages_of_another_registry_are_installed_anew_and_not_with_another_token() {
        let variables = |registry: &str, token: &str| {
            let env = [("npm_config_registry", registry), ("npm_config_//r.test/:_authToken", token), ("STAGE", "a")];
            let settings = settings("npx", &["a"], &env, McpSandboxNetwork::Public);
            let McpSandbox::On(wanted) = &settings.sandbox else { panic!("there is a sandbox") };
            let command = PackageCommand::parse("npx", &settings.args).unwrap().unwrap();
            variables_of(&installer_settings(&command, "npx", &settings, wanted))
        };
        let first = variables("https://r.test/", "old");
        assert_eq!(first.get("npm_config_registry").map(String::as_str), Some("https://r.test/"));
        assert_eq!(first, variables("https://r.test/", "new"));
        assert_ne!(first, variables("https://other.test/", "old"));
        assert!(!first.contains_key("STAGE"));
    }

    #[test]
    fn secrets_of_an_entry_and_of_its_addresses_are_struck_from_the_installers_output() {
        let env = [
            ("npm_config_//r.test/:_authToken", "token-of-npm"),
            ("UV_INDEX", "https://a.test/simple own=https://ann:pass-of-index@b.test/simple"),
            ("API_KEY", "key-of-server"),
            ("STAGE", "production"),
        ];
        let args =
            ["--from", "git+https://ann:pass-of-git@c.test/d", "--index-url=https://ann:pass-of-url@e.test", "d"];
        let server = settings("uvx", &args, &env, McpSandboxNetwork::Public);
        let command = PackageCommand::parse("uvx", &server.args).unwrap().unwrap();
        let secrets = secrets_of(&command, &server, &installer(&server));
        for secret in ["token-of-npm", "pass-of-index", "key-of-server", "pass-of-git", "pass-of-url"] {
            assert_eq!(secrets.strike(&format!("a script printed {secret}")), "a script printed [redacted]");
        }
        assert_eq!(secrets.strike("stage production"), "stage production");
    }

    #[test]
    fn hosts_of_the_servers_list_are_reached_by_the_installer() {
        let server = settings("uvx", &["a"], &[], McpSandboxNetwork::Hosts(vec!["github.com".to_owned()]));
        let McpSandbox::On(sandbox) = installer(&server).sandbox else { panic!("there is a sandbox") };
        let hosts = ["pypi.org", "files.pythonhosted.org", "github.com"].map(str::to_owned);
        assert_eq!(sandbox.network, McpSandboxNetwork::Hosts(hosts.to_vec()));
    }

    #[test]
    fn registries_are_passed_on_without_credentials() {
        let npmrc = "# mine\nregistry = https://npm.example/\n@a:registry=https://a.example\n//npm.example/:_authToken=secret\n\
                     @b:registry=https://ann:secret@b.example\nemail=ann@example.com\n";
        let expected =
            [("npm_config_registry", "https://npm.example/"), ("npm_config_@a:registry", "https://a.example")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(package_registries(npmrc, &BTreeMap::new()), expected);
        let env = BTreeMap::from([("NPM_CONFIG_REGISTRY".to_owned(), Secret::new("https://entry.example/"))]);
        assert_eq!(package_registries(npmrc, &env), expected[1..], "the entry has its own");
    }
}
