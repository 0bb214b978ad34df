//! Installs packages in a sandbox, into a new folder; the folders of a server, and the record of the one that is used.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::command::{Installer, PackageCommand, Step};
use super::installed::{FOLDER, Installed, Package, find};
use super::output::{Redaction, has_no_connection, is_untrusted, last_bytes, readable, reason};
use super::removal::{remove, remove_each};
use super::tree::{self, TreeError};
use crate::network::{Connections, Supervisor};
use crate::profile::{Home, Packages, Profile};
use crate::start::{StartError, Started, start};

/// The time that an installation may take.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// The cache of the installer, in the folder of the packages until they are installed: files are linked, not copied.
const CACHE: &str = ".cache";

/// In the folder of a server: the name of the used folder, and its packages.
const RECORD: &str = "installed.json";

/// One process at a time installs packages of a server.
const LOCK: &str = "lock";

/// Files of pnpm with the time of an installation, which programs do not need.
const OF_PNPM: [&str; 2] = ["node_modules/.modules.yaml", "node_modules/.pnpm-workspace-state-v1.json"];

/// Why packages are not installed.
#[derive(Debug, Error)]
pub enum InstallError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "there is no connection to the package registry: {0}; it is installed when this machine is connected, and from a registry at a \
         private address once `allow_networks` of the server has its network"
    )]
    NoConnection(String),
    #[error(
        "{installer} does not trust the certificate of the package registry: {line}; name the file of its authority in `env` of the \
         server: `SSL_CERT_FILE` for uv, `PIP_CERT` for pip, `NODE_EXTRA_CA_CERTS` for the others"
    )]
    Untrusted { installer: &'static str, line: String },
    #[error("{installer} failed: {line}")]
    Installer { installer: &'static str, line: String },
    #[error("{installer} took longer than {} s", INSTALL_TIMEOUT.as_secs())]
    Timeout { installer: &'static str },
    #[error("{0}")]
    NoProgram(String),
    #[error("the installed files: {0}")]
    Tree(#[from] TreeError),
    #[error("{}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
}

/// The folder with the packages of one server: a folder for each installation. The last two are kept: programs of the one before may run.
#[derive(Debug, Clone)]
pub struct PackageFolder(PathBuf);

/// The used folder.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    key: String,
    folder: String,
    package: Package,
    program: PathBuf,
}

/// A new folder, while packages are installed into it.
struct NewFolder {
    path: PathBuf,
    name: String,
    _lock: File,
}

impl PackageFolder {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The packages of the command, where they are installed.
    pub fn installed(&self, command: &PackageCommand) -> Option<Installed> {
        let record = self.record().filter(|record| record.key == command.key())?;
        let Record { folder, package, program, .. } = record;
        let folder = self.0.join(folder);
        let installed = Installed { package, program, folder, installer: command.installer };
        installed.is_whole().then_some(installed)
    }

    /// Installs the packages of the command anew, with the programs, variables and folders of `profile`, and with these connections. With
    /// `is_required`, only with all layers of the sandbox. No error or log line has more of the installer's output than `redaction` leaves.
    /// Errors: when the installer cannot be started or fails, or the packages have no such program. The installation
    /// before is used then.
    pub async fn install(
        &self,
        command: &PackageCommand,
        profile: &Profile,
        connections: &Arc<dyn Connections>,
        is_required: bool,
        redaction: Redaction<'_>,
    ) -> Result<Installed, InstallError> {
        let new = self.new_folder(command).await?;
        let sandbox = InstallerSandbox { profile: profile_of(profile, &new.path), connections, is_required, redaction };
        let installing = sandbox.run_steps(command);
        let timed = tokio::time::timeout(INSTALL_TIMEOUT, installing).await;
        let ended = timed.unwrap_or_else(|_| Err(InstallError::Timeout { installer: command.installer.program() }));
        let (folder, command) = (self.clone(), command.clone());
        blocking(move || folder.finish(&command, &new, ended)).await
    }

    async fn new_folder(&self, command: &PackageCommand) -> Result<NewFolder, InstallError> {
        let (folder, installer) = (self.clone(), command.installer);
        blocking(move || folder.make_new(installer).map_err(|error| InstallError::Folder { path: folder.0, error }))
            .await
    }

    fn make_new(&self, installer: Installer) -> io::Result<NewFolder> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let lock = File::create(self.0.join(LOCK))?;
        lock.lock()?;
        let recorded = self.record().and_then(|record| record.folder.parse().ok()).unwrap_or(0);
        self.remove_after(recorded);
        // Never the recorded name, also where somebody removed that folder: the record would be of packages that are half installed.
        let last = self.numbers().into_iter().max().unwrap_or_default().max(recorded);
        let name = last.saturating_add(1).to_string();
        let path = self.0.canonicalize()?.join(&name);
        DirBuilder::new().mode(0o755).create(&path)?;
        if !installer.is_of_python() {
            // Without it, they install into a folder above.
            fs::write(path.join("package.json"), "{\"private\":true}\n")?;
        }
        Ok(NewFolder { path, name, _lock: lock })
    }

    /// Folders of installations that did not end: the gateway was stopped meanwhile. The caller has the lock.
    fn remove_after(&self, recorded: u64) {
        self.numbers().into_iter().filter(|number| *number > recorded).for_each(|number| {
            remove(&self.0.join(number.to_string()));
        });
    }

    /// Of a failed installation nothing is left.
    fn finish(
        &self,
        command: &PackageCommand,
        new: &NewFolder,
        ended: Result<(), InstallError>,
    ) -> Result<Installed, InstallError> {
        let recorded = ended.and_then(|()| self.record_new(command, new));
        if recorded.is_err() {
            remove(&new.path);
        }
        recorded
    }

    fn record_new(&self, command: &PackageCommand, new: &NewFolder) -> Result<Installed, InstallError> {
        remove(&new.path.join(CACHE));
        match command.installer {
            // A script may have put a link to a folder of the machine in its place.
            Installer::Pnpm if new.path.join("node_modules").symlink_metadata().is_ok_and(|found| found.is_dir()) => {
                OF_PNPM.iter().for_each(|file| _ = fs::remove_file(new.path.join(file)));
            }
            // Compiled modules have the times of their sources.
            Installer::Pip => remove_each(&new.path, "__pycache__"),
            Installer::Npm | Installer::Pnpm | Installer::Bun | Installer::Uv => {}
        }
        let (name, version, program) = find(command, &new.path).map_err(InstallError::NoProgram)?;
        let package = Package { name, version, digest: tree::digest_of(&new.path)? };
        let before = self.record().map(|record| record.folder);
        let record =
            Record { key: command.key(), folder: new.name.clone(), package: package.clone(), program: program.clone() };
        let path = self.0.join(RECORD);
        self.write(&record).map_err(|error| InstallError::Folder { path, error })?;
        for number in self.numbers().into_iter().map(|number| number.to_string()) {
            if number != new.name && Some(&number) != before.as_ref() {
                remove(&self.0.join(number));
            }
        }
        Ok(Installed { package, program, folder: new.path.clone(), installer: command.installer })
    }

    fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.0.join(RECORD)).ok()?).ok()
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.0.join(format!("{RECORD}.new"));
        fs::write(&new, serde_json::to_vec(record)?)?;
        fs::rename(new, self.0.join(RECORD))
    }

    /// The names of the folders.
    fn numbers(&self) -> Vec<u64> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

/// The sandbox of the installer: it may write this folder and no other, and has a home in memory.
fn profile_of(profile: &Profile, folder: &Path) -> Profile {
    let mut profile = profile.clone();
    let cache = |name: &str| format!("{FOLDER}/{CACHE}/{name}");
    let own = [
        ("npm_config_cache", cache("npm")),
        ("npm_config_store_dir", cache("pnpm")),
        ("pnpm_config_store_dir", cache("pnpm")),
        ("BUN_INSTALL_CACHE_DIR", cache("bun")),
        ("PIP_CACHE_DIR", cache("pip")),
        ("UV_CACHE_DIR", cache("uv")),
        // It would be in a home that ends with the installer.
        ("UV_PYTHON_DOWNLOADS", "never".to_owned()),
    ];
    // npm reads its variables in either case.
    profile.env.retain(|(name, _)| own.iter().all(|(own, _)| !own.eq_ignore_ascii_case(name)));
    profile.env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    profile.folders.iter_mut().for_each(|folder| folder.write = false);
    profile.cwd = FOLDER.into();
    profile.home = Home { kept: None, ..profile.home };
    profile.packages = Some(Packages { path: FOLDER.into(), kept: folder.to_owned(), write: true });
    profile
}

struct InstallerSandbox<'a> {
    profile: Profile,
    connections: &'a Arc<dyn Connections>,
    is_required: bool,
    redaction: Redaction<'a>,
}

impl InstallerSandbox<'_> {
    async fn run_steps(&self, command: &PackageCommand) -> Result<(), InstallError> {
        for step in command.steps() {
            let mut output = self.run(step.clone()).await?;
            let script_failed =
                |text: &&String| command.installer.script_failed().is_some_and(|part| text.contains(part));
            if let Some(text) = output.as_ref().err().filter(script_failed) {
                let (packages, reason) = (command.shown(), reason(text));
                tracing::warn!(packages, reason, "a script of a package failed; it is installed without scripts");
                output = self.run(without_scripts(step)).await?;
            }
            output.map_err(|text| error_of(command.installer.program(), &text))?;
        }
        Ok(())
    }

    /// Runs the installer to its end; where it fails, the inner error is its output without secrets.
    async fn run(&self, step: Step) -> Result<Result<(), String>, InstallError> {
        let mut profile = Profile { args: step.args, ..self.profile.clone() };
        if let Some(program) = step.program {
            profile.program = Path::new(FOLDER).join(program);
        }
        // Dropped, it is ended with all its processes.
        let Started { mut child, handover, guard: _guard, .. } = start(&profile, self.is_required).await?;
        let supervisor =
            handover.map(|handover| Supervisor::start(handover, Arc::clone(self.connections), None)).transpose();
        let _supervisor = supervisor.map_err(|error| StartError::Sandbox(format!("its connections: {error}")))?;
        drop(child.stdin.take());
        let (output, errors) = tokio::join!(last_bytes(child.stdout.take()), last_bytes(child.stderr.take()));
        let status = child.wait().await.map_err(StartError::Program)?;
        Ok(if status.success() { Ok(()) } else { Err(readable(&format!("{output}\n{errors}\n"), self.redaction)) })
    }
}

/// Most packages need none of their scripts.
fn without_scripts(mut step: Step) -> Step {
    step.args.insert(1, "--ignore-scripts".to_owned());
    step
}

fn error_of(installer: &'static str, output: &str) -> InstallError {
    let line = reason(output);
    match output {
        _ if is_untrusted(output) => InstallError::Untrusted { installer, line },
        _ if has_no_connection(output) => InstallError::NoConnection(line),
        _ => InstallError::Installer { installer, line },
    }
}

async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, InstallError> + Send + 'static,
) -> Result<T, InstallError> {
    let ended = tokio::task::spawn_blocking(task).await;
    ended.unwrap_or_else(|error| Err(StartError::Sandbox(error.to_string()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_line_that_says_what_failed() {
        for (output, expected, is_connection) in [
            (
                "npm warn x\nnpm error code ENOTFOUND\nnpm error errno ENOTFOUND\nnpm error network request to https://r.test/a \
                 failed\nnpm error A complete log of this run can be found in: /x-debug-0.log\n",
                "npm error code ENOTFOUND npm error errno ENOTFOUND npm error network request to https://r.test/a failed",
                true,
            ),
            ("npm error code E404\nnpm error 404 Not Found\n", "npm error code E404 npm error 404 Not Found", false),
            (
                "Resolved\nerror: No interpreter found for Python 3.99\n",
                "error: No interpreter found for Python 3.99",
                false,
            ),
            (
                "× No solution found\n  ╰─▶ Because a was not found\n",
                "× No solution found ╰─▶ Because a was not found",
                false,
            ),
            (
                "error: Request failed\n  cause: error sending request\n  cause: dns error\n\nhint: x\n",
                "error: Request failed cause: dns error",
                true,
            ),
            (
                "error: Request failed\n  cause: error sending request\n  cause: invalid peer certificate: UnknownIssuer\n",
                "error: Request failed cause: invalid peer certificate: UnknownIssuer",
                false,
            ),
            (
                "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for a\n",
                "ERROR: No matching distribution found for a",
                true,
            ),
            (
                "error: ConnectionRefused downloading package manifest a\n",
                "error: ConnectionRefused downloading package manifest a",
                true,
            ),
            ("something else\n\n", "something else", false),
            ("", "", false),
        ] {
            assert_eq!(reason(output), expected);
            let error = error_of("npm", output);
            assert_eq!(matches!(error, InstallError::NoConnection(_)), is_connection, "{error}");
            assert_eq!(matches!(error, InstallError::Untrusted { .. }), output.contains("UnknownIssuer"), "{error}");
        }
    }

    #[test]
    fn the_installer_has_the_cache_and_python_of_the_packages() {
        let env = [("UV_CACHE_DIR", "/elsewhere"), ("NPM_CONFIG_CACHE", "/elsewhere"), ("PATH", "/bin")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let profile = Profile { env: env.to_vec(), ..crate::profile::tests::of_program("/usr/bin/uv") };
        let profile = profile_of(&profile, Path::new("/state/1"));
        let value = |name: &str| {
            profile.env.iter().filter(|(own, _)| own == name).map(|(_, value)| &**value).collect::<Vec<_>>()
        };
        assert_eq!(value("UV_CACHE_DIR"), ["/sekisho-packages/.cache/uv"]);
        assert_eq!(value("NPM_CONFIG_CACHE"), [""; 0]);
        assert_eq!((value("PATH"), &profile.home.kept), (vec!["/bin"], &None));
        let profile = profile.in_namespaces_of_machine("refused".to_owned());
        assert_eq!(profile.cwd, Path::new("/state/1"));
        assert!(profile.env.contains(&("npm_config_cache".to_owned(), "/state/1/.cache/npm".to_owned())));
    }
}
