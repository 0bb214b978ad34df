//! The sandbox of a server's program: what its entry grants, and how it is started.

mod packages;
mod profile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::process::Child;

pub(crate) use self::packages::installer_of;
use self::packages::{ServerPackages, own_registries};
pub use self::profile::{SandboxProfile, granted_profile};
use super::child_process::PASSED_ON;
use super::observation::Observation;
use crate::connection_record::{ConnectionRecord, HostConnections};
use sekisho_config::{
    Config, McpSandbox, McpSandboxHome, McpSandboxMode, McpSandboxNetwork, McpSandboxSettings, McpServerSettings,
    dotenv_files,
};
use sekisho_process_sandbox::network::{Connections, Files, Supervisor};
use sekisho_process_sandbox::packages::PackageCommand;
use sekisho_process_sandbox::{
    Folder, Grants, Guard, Home, Limits, Network, Profile, Request, StartError, Started, is_available, start,
};

/// The folder of the state directory with the homes of programs.
const HOMES: &str = "mcp-homes";

/// The home that a program sees where the gateway's user has none.
const OTHER_HOME: &str = "/home/sandbox";

/// Where programs are looked up without a `PATH`, as by execvp(3).
const WITHOUT_PATH: &str = "/bin:/usr/bin";

/// A home in one of these would cover files of the machine.
const NOT_FOR_HOMES: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev"];

/// Programs that only ask a service of the machine, which a sandbox does not reach.
const ASK_A_SERVICE: [&str; 5] = ["docker", "podman", "nerdctl", "snap", "flatpak"];

/// The sandbox of the programs of one server.
#[derive(Debug, Default)]
pub(crate) struct ProgramSandbox {
    own: OwnFiles,
    /// Makes the connections of the programs. Without it, they have the machine's network.
    connections: Option<Arc<dyn Connections>>,
    /// What became of them.
    record: Arc<ConnectionRecord>,
    /// The files that they used, where the server is observed.
    observation: Arc<Observation>,
    packages: ServerPackages,
    /// Missing layers and refused grants, as they were logged.
    missing: Mutex<Option<String>>,
    /// Of the last program that was started.
    layers: Mutex<Vec<&'static str>>,
}

/// Files of the gateway, by their absolute paths.
#[derive(Debug, Default)]
struct OwnFiles {
    state_directory: PathBuf,
    /// Hidden in folders that are granted.
    hidden: Vec<PathBuf>,
    /// They say what programs may do. A program that could change one would choose its own rights.
    governing: Vec<PathBuf>,
}

impl OwnFiles {
    fn of(config: &Config) -> Self {
        let governing = config.file.iter().chain(&config.mcp.files).chain(&config.policy.directory);
        let governing: Vec<_> = governing.map(|file| absolute(file)).collect();
        let tls_key = config.server.tls.as_ref().map(|tls| tls.key.clone());
        let files = [config.audit_file(), config.workspaces_directory(), config.lock_file()].into_iter().chain(tls_key);
        let files = files.chain(config.mcp_files()).chain(dotenv_files(config.file.as_deref()));
        let files = files.chain(config.references.files.iter().cloned()).map(|file| absolute(&file));
        let hidden = files.chain(governing.iter().cloned()).collect();
        Self { state_directory: absolute(&config.state_directory()), hidden, governing }
    }

    /// At the path of the user's own home, so that programs in it find themselves, but where that is hidden: a container's engine makes the
    /// working directory the home of a user without one, which is the state directory in the image.
    fn home_of_program(&self, user: Option<PathBuf>) -> PathBuf {
        let may_be = |home: &PathBuf| {
            let is_covering = home == Path::new("/tmp") || NOT_FOR_HOMES.iter().any(|folder| home.starts_with(folder));
            home.is_absolute() && home.parent().is_some() && !is_covering
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let private =
            [&self.state_directory].into_iter().chain(&self.hidden).filter(|path| !path.as_os_str().is_empty());
        let private: Vec<_> = private.map(|path| real(path)).collect();
        // A link would be replaced by a folder.
        let home = user.filter(may_be).map(|home| real(&home));
        home.filter(|home| !private.iter().any(|path| home.starts_with(path))).unwrap_or_else(|| OTHER_HOME.into())
    }
}

/// A program that was started in a sandbox.
pub(super) struct Sandboxed {
    pub(super) process: Child,
    /// Ends with the program, as the guard does.
    pub(super) supervisor: Option<Supervisor>,
    pub(super) guard: Guard,
}

impl ProgramSandbox {
    /// `of_installer` makes the connections of the installer of their packages.
    pub(crate) fn new(
        config: &Config,
        connections: Option<Arc<dyn Connections>>,
        record: Arc<ConnectionRecord>,
        of_installer: Option<Arc<dyn Connections>>,
    ) -> Self {
        let packages = ServerPackages::new(of_installer);
        Self { own: OwnFiles::of(config), connections, record, packages, ..Self::default() }
    }

    /// What became of the connections of the programs, by host.
    pub(crate) fn connections(&self) -> Vec<HostConnections> {
        self.record.by_host()
    }

    /// The layers of the last program that was started.
    pub(crate) fn layers(&self) -> Vec<&'static str> {
        self.layers.lock().clone()
    }

    /// Missing layers, and refused grants; `None` before a program was started.
    pub(crate) fn missing(&self) -> Option<String> {
        self.missing.lock().clone()
    }

    /// Starts the program; `None` where it is to run without a sandbox.
    pub(super) async fn start(
        &self,
        server: &str,
        program: &str,
        settings: &McpServerSettings,
    ) -> Result<Option<Sandboxed>, StartError> {
        let McpSandbox::On(wanted) = &settings.sandbox else { return Ok(None) };
        let is_required = settings.sandbox_mode == McpSandboxMode::Required;
        if !is_available() {
            let reason =
                "the program that embeds the gateway does not call `run_if_sandbox_helper` first in its `main`";
            if is_required {
                return Err(StartError::Sandbox(reason.to_owned()));
            }
            self.report(server, format!("programs run without a sandbox: {reason}"));
            return Ok(None);
        }
        let grants = grants(program, settings, wanted, &self.own);
        refuse_service(program, &grants).map_err(StartError::Sandbox)?;
        let mut profile = self.profile(server, settings, wanted, &grants)?;
        self.use_packages(settings, &mut profile).await?;
        let started = start(&profile, is_required).await;
        let Started { child, applied, handover, guard } =
            started.map_err(|error| explained(error, &profile.program))?;
        *self.layers.lock() = applied.layers.iter().map(|layer| layer.name()).collect();
        let refused = grants.refused.iter().map(|(path, why)| format!("{} is not granted ({why})", path.display()));
        let missing = applied.missing.iter().map(|missing| format!("without {missing}"));
        let unsupported = PackageCommand::parse(program, &settings.args).err().map(|error| error.to_string());
        let problems: Vec<_> = missing.chain(refused).chain(unsupported).collect();
        if !problems.is_empty() {
            self.report(server, problems.join("; "));
        }
        let supervisor = match (handover, &self.connections) {
            (Some(handover), Some(connections)) => {
                let files = settings.observed.then(|| Arc::clone(&self.observation) as Arc<dyn Files>);
                let supervisor = Supervisor::start(handover, Arc::clone(connections), files);
                Some(supervisor.map_err(|error| StartError::Sandbox(format!("its connections: {error}")))?)
            }
            _ => None,
        };
        Ok(Some(Sandboxed { process: child, supervisor, guard }))
    }

    fn profile(
        &self,
        server: &str,
        settings: &McpServerSettings,
        wanted: &McpSandboxSettings,
        grants: &Grants,
    ) -> Result<Profile, StartError> {
        let program = grants.program.clone().ok_or_else(|| StartError::Program(io::ErrorKind::NotFound.into()))?;
        let home =
            Home { path: self.own.home_of_program(std::env::home_dir()), kept: self.kept_home(server, wanted.home)? };
        // As without a sandbox, arguments may be relative to the gateway's own folder.
        let cwd = match &grants.cwd {
            Some(folder) => folder.canonicalize().map_err(StartError::Program)?,
            None => home.path.clone(),
        };
        let network = match &wanted.network {
            // The gateway answers for the connections of an observed program: with a list of no hosts it refuses and records them.
            McpSandboxNetwork::None if settings.observed => Network::Hosts(Vec::new()),
            McpSandboxNetwork::None => Network::None,
            McpSandboxNetwork::Public => Network::Public,
            McpSandboxNetwork::Hosts(hosts) => Network::Hosts(hosts.clone()),
        };
        Ok(Profile {
            program,
            args: settings.args.clone(),
            env: variables(settings, &home.path),
            cwd,
            folders: grants.folders(),
            private: [&self.own.state_directory].into_iter().chain(&self.own.hidden).cloned().collect(),
            home,
            packages: None,
            supervised: self.connections.is_some(),
            observed: settings.observed,
            network,
            limits: Limits::default(),
            without_namespaces: None,
        })
    }

    /// The folder that is kept as the home of a server's programs.
    fn kept_home(&self, server: &str, home: McpSandboxHome) -> Result<Option<PathBuf>, StartError> {
        if home == McpSandboxHome::Discard || self.own.state_directory.as_os_str().is_empty() {
            return Ok(None);
        }
        let folder = self.own.state_directory.join(HOMES).join(server);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| folder.canonicalize());
        made.map(Some).map_err(|error| StartError::Sandbox(format!("{}: {error}", folder.display())))
    }

    /// Logs it where it is not as before.
    fn report(&self, server: &str, problem: String) {
        let mut missing = self.missing.lock();
        if missing.as_ref() != Some(&problem) {
            tracing::warn!(server, problem, "the sandbox of an MCP server is not complete");
            *missing = Some(problem);
        }
    }
}

/// The grants of the program of an entry, a line for each, and the refused ones; `None` without a sandbox.
/// Errors: why the program cannot run in a sandbox.
pub fn granted(settings: &McpServerSettings, config: &Config) -> Option<Result<String, String>> {
    let (Some(program), McpSandbox::On(wanted)) = (&settings.command, &settings.sandbox) else { return None };
    let grants = grants(program, settings, wanted, &OwnFiles::of(config));
    if let Err(reason) = refuse_service(program, &grants) {
        return Some(Err(reason));
    }
    let granted = grants.granted.iter().map(|grant| {
        let access = if grant.write { "writable" } else { "readable" };
        format!("{}: {access} ({})", grant.path.display(), grant.reason)
    });
    let refused = grants.refused.iter().map(|(path, why)| format!("{}: not granted, {why}", path.display()));
    let packages = match PackageCommand::parse(program, &settings.args) {
        Ok(command) => command.map(|command| {
            let (packages, installer) = (command.shown(), command.installer());
            format!("{packages}: readable (packages that {installer} installs before the program is started)")
        }),
        Err(unsupported) => Some(unsupported.to_string()),
    };
    Some(Ok(granted.chain(refused).chain(packages).collect::<Vec<_>>().join("\n")))
}

/// The packages that the program of an entry fetches, for people; `None` of a program that fetches none.
pub fn named_packages(settings: &McpServerSettings) -> Option<String> {
    let command = PackageCommand::parse(settings.command.as_ref()?, &settings.args).ok()??;
    Some(command.shown())
}

fn grants(program: &str, settings: &McpServerSettings, wanted: &McpSandboxSettings, own: &OwnFiles) -> Grants {
    let home = std::env::home_dir();
    let path = match settings.env.get("PATH") {
        Some(path) => path.expose().to_owned(),
        None => std::env::var("PATH").unwrap_or_else(|_| WITHOUT_PATH.to_owned()),
    };
    let folders = wanted.folders.iter().map(|folder| Folder::new(folder.path.clone(), folder.write));
    Grants::of(&Request {
        program,
        args: settings.args.iter().map(String::as_str).collect(),
        env: settings.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect(),
        cwd: settings.cwd.as_deref(),
        folders: folders.collect(),
        path: &path,
        home: home.as_deref(),
        private: vec![&own.state_directory],
        hidden: own.hidden.iter().map(PathBuf::as_path).collect(),
        governing: own.governing.iter().map(PathBuf::as_path).collect(),
    })
}

fn refuse_service(program: &str, grants: &Grants) -> Result<(), String> {
    let real = grants.program.as_deref().and_then(|file| fs::canonicalize(file).ok());
    let files = [Some(Path::new(program)), real.as_deref()];
    let asks = |file: &Path| file.file_name().is_some_and(|name| ASK_A_SERVICE.iter().any(|asks| name == *asks));
    match files.into_iter().flatten().any(asks) {
        true => Err(format!(
            "{program} has a service of this machine start other programs, and a sandbox does not reach it; set `sandbox: off` in \
             the server's entry in `mcp.servers`, or start the program itself"
        )),
        false => Ok(()),
    }
}

/// The file exists outside of the sandbox.
fn explained(error: StartError, program: &Path) -> StartError {
    match error {
        StartError::Program(error) if error.kind() == io::ErrorKind::NotFound => StartError::Sandbox(format!(
            "{}, or the interpreter that its first line names, is in no folder of the sandbox; name the folder in \
             `sandbox.folders` of the server's entry",
            program.display()
        )),
        other => other,
    }
}

/// Of the entry, and of the gateway's own the few that every program inherits. It has folders of its own as its home and for temporary files.
fn variables(settings: &McpServerSettings, home: &Path) -> Vec<(String, String)> {
    let inherited = PASSED_ON.iter().filter(|name| **name != "TMPDIR");
    let inherited = inherited.filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let mut variables: BTreeMap<_, _> = inherited.collect();
    variables.insert("HOME".to_owned(), home.display().to_string());
    variables.extend(own_registries(&settings.env));
    variables.extend(settings.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())));
    variables.into_iter().collect()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
