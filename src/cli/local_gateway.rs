//! The gateway of this user's state directory: commands use the one that runs, and work in their own process if there
//! is none. MCP clients start one in the background.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use super::call::Identity;
use super::client::{Endpoint, Remote, Unanswered};
use super::{Common, Exit, ServeOptions, describe, load_config, present};
use sekisho_api::{GatewayStatus, NamedCaller};
use sekisho_config::Config;
use sekisho_outbound::local_socket;
use sekisho_store::state_lock::{StateLock, StateLockError};

/// How long a command waits for another one that uses the state directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a gateway may take to read a changed configuration.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a gateway may take to start: it may have to read large documents.
const START_TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(50);

/// How often a client of a gateway on demand connects to it: far less than the time after which the gateway ends.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The log of gateways on demand, in the state directory.
const LOG: &str = "gateway.log";

/// The log is begun anew when it is longer than this.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// How much of the log is shown when a gateway does not start.
const MAX_SHOWN_BYTES: u64 = 4 << 10;

/// Where a command runs.
pub(super) enum Place {
    /// In a running gateway.
    Gateway(Endpoint),
    /// In this process, which has the state directory for itself.
    Process(Box<Config>, StateLock),
}

/// The gateway at `--server`, or of the state directory; without one, takes the directory's lock.
/// Errors: the exit code, after the problem was shown: a configuration that is invalid or not the gateway's, or a lock
/// that is not released.
pub(super) fn place(common: &Common, identity: &Identity) -> Result<Place, Exit> {
    if let Some(server) = &common.server {
        return Endpoint::at(server).map(Place::Gateway).map_err(Unanswered::report);
    }
    let config = configuration(common)?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        if let Some(endpoint) = find(&config, &identity.caller())? {
            return Ok(Place::Gateway(endpoint));
        }
        match StateLock::acquire(&config.state_directory()) {
            Ok(lock) => return Ok(Place::Process(Box::new(config), lock)),
            Err(StateLockError::Held(_)) if Instant::now() < until => sleep(PAUSE),
            Err(error) => return Err(misconfigured(&error.to_string())),
        }
    }
}

/// The gateway at `--server`, or the one that runs on the state directory, as its administrator.
/// Errors: the exit code, after the problem was shown: no gateway runs, or it has another configuration.
pub(super) fn find_remote(common: &Common) -> Result<Endpoint, Exit> {
    find_remote_as(common, &NamedCaller::administrator())
}

/// Runs a command at the gateway of [`find_remote`], or prints why there is no answer.
pub(super) fn with_remote(common: &Common, run: impl FnOnce(&Remote) -> Result<Exit, Unanswered>) -> Exit {
    with_remote_as(common, &NamedCaller::administrator(), run)
}

/// The same as this caller.
pub(super) fn with_remote_as(
    common: &Common,
    caller: &NamedCaller,
    run: impl FnOnce(&Remote) -> Result<Exit, Unanswered>,
) -> Exit {
    match find_remote_as(common, caller) {
        Ok(endpoint) => Remote::new(&endpoint).and_then(|remote| run(&remote)).unwrap_or_else(Unanswered::report),
        Err(exit) => exit,
    }
}

/// The gateway at `--server`, or the one that runs on the state directory, as this caller.
/// Errors: as [`find_remote`].
pub(super) fn find_remote_as(common: &Common, caller: &NamedCaller) -> Result<Endpoint, Exit> {
    if let Some(server) = &common.server {
        return Endpoint::at(server).map_err(Unanswered::report);
    }
    let config = configuration(common)?;
    find(&config, caller)?.ok_or_else(|| {
        let directory = config.state_directory();
        let problem = format!("no gateway runs on the state directory {}", directory.display());
        Unanswered::Unreachable(problem + "; start it with `sekisho serve`, or name one with --server URL").report()
    })
}

/// Errors: the exit code, after the problems were shown.
pub(super) fn configuration(common: &Common) -> Result<Config, Exit> {
    let loaded = load_config(common.config.as_deref(), &ServeOptions::default());
    loaded.map_err(|errors| misconfigured(&describe(&errors)))
}

/// The running gateway of the state directory, if it has this configuration.
/// Errors: the exit code, after the problem was shown.
pub(super) fn find(config: &Config, caller: &NamedCaller) -> Result<Option<Endpoint>, Exit> {
    let until = Instant::now() + RELOAD_TIMEOUT;
    loop {
        let Some((path, status)) = running(config)? else { return Ok(None) };
        let differing = differing(&config.fingerprint(), &status.configuration);
        if differing.is_empty() {
            return Ok(Some(Endpoint::at_socket(path, caller)));
        }
        if Instant::now() >= until {
            return Err(misconfigured(&other_configuration(&status, &differing)));
        }
        sleep(PAUSE);
    }
}

/// Takes the lock of the state directory for a gateway. A gateway on demand makes way for a gateway that was started by
/// hand.
/// Errors: the exit code, after the problem was shown: another gateway, or a command that does not end.
pub(super) fn take_over(config: &Config, on_demand: bool) -> Result<StateLock, Exit> {
    let mut until = Instant::now() + LOCK_TIMEOUT;
    let mut asked = None;
    loop {
        let held = match StateLock::acquire(&config.state_directory()) {
            Ok(lock) => return Ok(lock),
            Err(error @ StateLockError::Held(_)) => error,
            Err(error) => return Err(misconfigured(&error.to_string())),
        };
        if let Some((socket, gateway)) = running(config)? {
            if on_demand || !gateway.on_demand {
                return Err(misconfigured(&format!("{held} (a gateway is running: process {})", gateway.process_id)));
            }
            if asked != Some(gateway.process_id) {
                stop(socket)?;
                asked = Some(gateway.process_id);
                until = Instant::now() + LOCK_TIMEOUT + Duration::from_secs(config.server.shutdown_grace_seconds);
            }
        }
        if Instant::now() >= until {
            return Err(misconfigured(&held.to_string()));
        }
        sleep(PAUSE);
    }
}

/// The gateway that serves the socket of the state directory.
/// Errors: the exit code, after the problem was shown.
fn running(config: &Config) -> Result<Option<(PathBuf, GatewayStatus)>, Exit> {
    // A gateway whose socket has no path serves without one.
    let Ok(path) = local_socket::path_of(&config.state_directory()) else { return Ok(None) };
    match UnixStream::connect(&path) {
        Ok(_) => {}
        // None, or one that was killed.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(error) => return Err(misconfigured(&format!("{} cannot be opened: {error}", path.display()))),
    }
    let endpoint = Endpoint::at_socket(path.clone(), &NamedCaller::default());
    let asked = Remote::new(&endpoint).and_then(|remote| remote.get(&["gateway"], &[]));
    match asked.map(serde_json::from_value::<GatewayStatus>) {
        Ok(Ok(status)) => Ok(Some((path, status))),
        // It has just ended.
        Err(Unanswered::Unreachable(_)) => Ok(None),
        Ok(Err(error)) => Err(misconfigured(&format!("{} is served by another version: {error}", path.display()))),
        Err(unanswered) => Err(unanswered.report()),
    }
}

/// How many tools the caller of this endpoint may not use, and advice to change that.
/// Errors: the gateway does not answer, or knows no such caller.
pub(super) fn left_out(gateway: &Endpoint) -> Result<Option<String>, Unanswered> {
    let status = Remote::new(gateway)?.get(&["gateway"], &[])?;
    Ok(status["left_out"].as_str().map(str::to_owned))
}

/// Asks a gateway on demand to end.
fn stop(socket: PathBuf) -> Result<(), Exit> {
    let endpoint = Endpoint::at_socket(socket, &NamedCaller::administrator());
    let asked = Remote::new(&endpoint).and_then(|remote| remote.post(&["gateway", "stop"], &json!({})));
    match asked {
        // It has just ended.
        Ok(_) | Err(Unanswered::Unreachable(_)) => Ok(()),
        Err(refused) => Err(refused.report()),
    }
}

/// Finds the gateway of the state directory, or starts one in the background.
/// Errors: the exit code, after the problem was shown.
pub(super) fn find_or_start(common: &Common, config: &Config, caller: &NamedCaller) -> Result<Endpoint, Exit> {
    let until = Instant::now() + START_TIMEOUT;
    let mut started: Option<OnDemand> = None;
    loop {
        if let Some(endpoint) = find(config, caller)? {
            return Ok(endpoint);
        }
        let Some(gateway) = &mut started else {
            started = Some(OnDemand::start(common, config).map_err(|problem| misconfigured(&problem))?);
            continue;
        };
        if gateway.has_ended() || Instant::now() >= until {
            // Another client's may have been faster.
            return find(config, caller)?.ok_or_else(|| misconfigured(&gateway.problem()));
        }
        sleep(PAUSE);
    }
}

/// Holds a connection to the gateway, so that a gateway on demand does not end, and starts another in place of a killed
/// one. Runs until the process ends.
pub(super) fn keep_running(common: &Common, config: &Config, caller: &NamedCaller) {
    let Ok(socket) = local_socket::path_of(&config.state_directory()) else { return };
    let mut failures = 0;
    loop {
        let connection = UnixStream::connect(&socket);
        failures = if connection.is_ok() { 0 } else { failures + 1 };
        // At the first one, a gateway that was started by hand may be taking its place.
        if failures > 1 {
            let _shown = find_or_start(common, config, caller);
        }
        sleep(KEEP_ALIVE_INTERVAL);
    }
}

/// A gateway in the background that ends when it has no clients.
struct OnDemand {
    child: Child,
    log: PathBuf,
    /// Where its part of the log begins.
    log_start: u64,
}

impl OnDemand {
    fn start(common: &Common, config: &Config) -> Result<Self, String> {
        let directory = config.state_directory();
        let log = directory.join(LOG);
        let failed = |error: std::io::Error| format!("{} cannot be written: {error}", log.display());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&log).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > MAX_LOG_BYTES {
            file.set_len(0).map_err(failed)?;
        }
        let log_start = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let program = std::env::current_exe().map_err(|error| format!("the program cannot be found: {error}"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--on-demand"]);
        if let Some(file) = &common.config {
            command.arg("--config").arg(file);
        }
        // A process group of its own: Ctrl-C in the client's terminal is not meant for it.
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).process_group(0);
        let child = command.spawn().map_err(|error| format!("the gateway cannot be started: {error}"))?;
        Ok(Self { child, log, log_start })
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Why it does not serve, from its log.
    fn problem(&self) -> String {
        let mut text = Vec::new();
        let read = std::fs::File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.log_start))?;
            file.take(MAX_SHOWN_BYTES).read_to_end(&mut text)
        });
        let shown = read.map_or_else(|error| error.to_string(), |_| String::from_utf8_lossy(&text).trim().to_owned());
        format!("the gateway in the background did not start; {} says:\n{shown}", self.log.display())
    }
}

fn differing(own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let topics = own.keys().chain(other.keys().filter(|topic| !own.contains_key(*topic)));
    topics.filter(|topic| own.get(*topic) != other.get(*topic)).cloned().collect()
}

fn other_configuration(status: &GatewayStatus, differing: &[String]) -> String {
    let file = status
        .config_file
        .as_deref()
        .map(Path::display)
        .map_or_else(|| "without a configuration file".to_owned(), |file| format!("with --config {file}"));
    format!(
        "a gateway with another configuration uses this state directory (process {}, version {}, started {file}). \
         Different: {}. Use the same configuration and variables, send that gateway SIGHUP if its file has changed, restart it, or name another folder in \
         SEKISHO_STATE_DIRECTORY",
        status.process_id,
        status.version,
        differing.join(", ")
    )
}

fn misconfigured(problem: &str) -> Exit {
    present::problem(problem);
    Exit::Misconfigured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_topics_are_named_from_both_sides() {
        let of = |topics: &[(&str, &str)]| -> BTreeMap<String, String> {
            topics.iter().map(|(topic, digest)| ((*topic).to_owned(), (*digest).to_owned())).collect()
        };
        let own = of(&[("auth", "1"), ("mcp", "2"), ("new", "3")]);
        assert_eq!(differing(&own, &own), [""; 0]);
        assert_eq!(differing(&own, &of(&[("auth", "1"), ("mcp", "4"), ("old", "5")])), ["mcp", "new", "old"]);
    }
}
