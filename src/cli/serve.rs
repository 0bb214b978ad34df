//! `sekisho serve`: the gateway with its HTTP API, until it is stopped.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    Common, Exit, ServeOptions, build_info, core_dumps, describe, load_config, local_gateway, present, start_memory,
};
use sekisho_api::{BoundListeners, LocalListener, Routes};
use sekisho_config::{AnonymousAccess, Config, ConfigError, LogFormat, TelemetryConfig, Watcher};
use sekisho_gateway::Gateway;
use sekisho_observe::{descriptors, telemetry};
use sekisho_outbound::local_socket::{self, LocalSocket};
use sekisho_store::state_lock::StateLock;

pub(super) fn run(common: &Common, options: &ServeOptions) -> Exit {
    // Before the first secret is read.
    core_dumps::forbid();
    let config = match load_config(common.config.as_deref(), options) {
        Ok(config) => config,
        Err(errors) => return misconfigured(&describe(&errors)),
    };
    // Editors start gateways on demand in any folder.
    if !options.on_demand && config.leaves_a_lock() {
        return misconfigured(&config.unpinned());
    }
    let lock = match local_gateway::take_over(&config, options.on_demand) {
        Ok(lock) => lock,
        Err(exit) => return exit,
    };
    let Some(runtime) = runtime() else { return Exit::Misconfigured };
    runtime.block_on(async {
        let _telemetry = match telemetry::start(&config.telemetry) {
            Ok(guard) => guard,
            Err(problem) => return misconfigured(&problem),
        };
        descriptors::raise_limit();
        let listening = match listen(&config, common.config.clone(), options.on_demand).await {
            Ok(listening) => listening,
            Err(problem) => return misconfigured(&problem),
        };
        let gateway = match Gateway::with_lock(config, Vec::new(), lock).await {
            Ok(gateway) => gateway,
            Err(problem) => return misconfigured(&problem),
        };
        let metrics = &gateway.pipeline.settlement.metrics;
        metrics.describe_build(build_info::COMMIT, build_info::DATE, build_info::TARGET);
        let routes = match routes_of_agents(&gateway) {
            Ok(routes) => routes,
            Err(problem) => return misconfigured(&problem),
        };
        let tools = gateway.pipeline.registry.snapshot().tools().len();
        // Before anyone learns that the process runs: a signal would end it at once otherwise.
        let signals = StopSignals::listen().and_of_terminal();
        match listening.address() {
            Some(address) => tracing::info!(%address, tools, "sekisho is listening"),
            None => tracing::info!(tools, "sekisho is listening on its Unix socket"),
        }
        greet(&gateway.configuration().current(), &listening);
        #[cfg(feature = "console")]
        if listening.address().is_some() && std::io::stderr().is_terminal() {
            let config = Config::clone(&gateway.configuration().current());
            if config.server.is_loopback() {
                // The gateway answers once it serves, which it does meanwhile.
                drop(std::thread::spawn(move || super::console::offer_at_start(&config)));
            }
        }
        log_notes(&gateway).await;
        let reloading = tokio::spawn(reload_on_change(Arc::clone(&gateway), common.config.clone(), options.clone()));
        let releasing = tokio::spawn(start_memory::release());
        crate::serve_with(listening, &gateway, routes, shutdown(&gateway, signals)).await;
        reloading.abort();
        releasing.abort();
        gateway.close().await;
        tracing::info!("sekisho has stopped");
        Exit::Done
    })
}

/// The routes of agents, where the program has them.
/// Errors: a file of agents that cannot be used.
#[cfg(feature = "agent")]
fn routes_of_agents(gateway: &Arc<Gateway>) -> Result<Routes, String> {
    let agents = sekisho_agent::AgentService::new(gateway).map_err(|problem| problem.to_string())?;
    Ok(sekisho_agent_api::routes(&agents))
}

#[cfg(not(feature = "agent"))]
fn routes_of_agents(_gateway: &Arc<Gateway>) -> Result<Routes, String> {
    Ok(Routes::default())
}

/// Binds the addresses of the configuration and the Unix socket; only the latter for a gateway on demand.
async fn listen(config: &Config, config_file: Option<PathBuf>, on_demand: bool) -> Result<BoundListeners, String> {
    let config_file = config_file.map(|file| std::path::absolute(&file).unwrap_or(file));
    let local = local_socket::path_of(&config.state_directory()).map_err(|error| error.to_string()).and_then(|path| {
        let bound = LocalSocket::bind(path.clone());
        bound.map_err(|error| format!("the Unix socket {} cannot be created: {error}", path.display()))
    });
    let local = local.map(|socket| LocalListener { socket, config_file, on_demand });
    if on_demand {
        return local.map(BoundListeners::of_socket);
    }
    let listening = BoundListeners::bind(config).await.map_err(|error| error.to_string())?;
    Ok(match local {
        Ok(local) => listening.with_socket(local),
        Err(problem) => {
            tracing::warn!(problem, "commands of this machine cannot use this gateway without --server");
            listening
        }
    })
}

/// Shows on a terminal how to use the gateway.
fn greet(config: &Config, listening: &BoundListeners) {
    let Some(address) = listening.address().filter(|_| std::io::stderr().is_terminal()) else { return };
    let callers = match (config.auth.has_credentials(), config.auth.anonymous) {
        (_, AnonymousAccess::Always) => "everybody, without a key",
        (false, AnonymousAccess::Loopback) if config.server.is_loopback() => {
            "every program on this machine, without a key"
        }
        (true, AnonymousAccess::Loopback) if config.server.is_loopback() => {
            "callers with a key or token, and every program on this machine without one"
        }
        _ => "callers with a key or token",
    };
    let policies =
        config.policy.directory.as_ref().map_or("none of your own".into(), |folder| folder.to_string_lossy());
    let lock = config.lock_file();
    let pins = if lock.exists() { "pinned in" } else { "not pinned: `sekisho lock` pins them in" };
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    let console = match cfg!(feature = "console") {
        true => "  console      sekisho console   (prints a link that signs you in)\n",
        false => "",
    };
    present::info(&format!(
        "\n  API          {scheme}://{address}   (described at /openapi.json)\n  MCP          {scheme}://{address}/mcp\n  \
         callers      {callers}\n  policies     {policies}\n  tools        {pins} {}\n  state        {}\n{console}  editors      sekisho connect\n  \
         try          sekisho call calculator '{{\"expression\": \"6*7\"}}'\n",
        lock.display(),
        config.state_directory().display(),
    ));
}

/// Logs settings that the operator should review.
async fn log_notes(gateway: &Gateway) {
    for (setting, note) in gateway.configuration_notes().all().await {
        tracing::warn!(setting, "{note}");
    }
}

/// Runs something with a gateway of this process that does not listen. `tool`: the one that it needs, if not all.
pub(super) fn with_gateway(
    config: Config,
    lock: StateLock,
    tool: Option<&str>,
    run: impl AsyncFnOnce(Arc<Gateway>) -> Exit,
) -> Exit {
    let Some(runtime) = runtime() else { return Exit::Misconfigured };
    let exit = runtime.block_on(async {
        // Standard error is for messages of the command, not for states of a gateway that ends with it. Damage of the audit
        // trail is one of its messages: the command may be the first to see it.
        let log = "error,sekisho_audit=warn".into();
        let quiet = TelemetryConfig { log, log_format: LogFormat::Pretty, ..config.telemetry.clone() };
        let _telemetry = match telemetry::start(&quiet) {
            Ok(guard) => guard,
            Err(problem) => return misconfigured(&problem),
        };
        match Gateway::with_lock(config, Vec::new(), lock).await {
            Ok(gateway) => {
                // A server that is installed first takes a minute.
                let progress = present::progress("asking MCP servers and reading documents");
                match tool {
                    Some(tool) => offer_tool(&gateway, tool).await,
                    None => offer_all_tools(&gateway).await,
                }
                progress.finish_and_clear();
                let exit = run(Arc::clone(&gateway)).await;
                gateway.close().await;
                exit
            }
            Err(problem) => misconfigured(&problem),
        }
    });
    // At most a read of standard input is left, which would never end.
    runtime.shutdown_background();
    exit
}

/// Waits for all documents and MCP servers, each within its time limits, and offers their tools.
async fn offer_all_tools(gateway: &Arc<Gateway>) {
    gateway.collections().fetch_pending_documents().await;
    gateway.mcp_servers().settled().await;
    gateway.tool_offer().offer_mcp_tools().await;
}

/// Waits only for the sources that may have this tool.
async fn offer_tool(gateway: &Arc<Gateway>, tool: &str) {
    match gateway.pipeline.registry.snapshot().get(tool) {
        // Its program may call any other tool.
        Some(offered) if offered.metadata.sandboxed => return offer_all_tools(gateway).await,
        Some(_) => return,
        None => {}
    }
    // Servers know a renamed tool by its own name.
    let renamed = gateway
        .configuration()
        .current()
        .tools
        .overrides
        .iter()
        .find(|(_, changes)| changes.rename.as_deref() == Some(tool))
        .map(|(name, _)| name.clone());
    if !gateway.mcp_servers().settled_for(renamed.as_deref().unwrap_or(tool)).await {
        gateway.collections().fetch_pending_documents().await;
    }
    gateway.tool_offer().offer_mcp_tools().await;
}

pub(super) fn runtime() -> Option<Runtime> {
    match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            present::problem(&format!("the asynchronous runtime cannot start: {error}"));
            None
        }
    }
}

fn misconfigured(problem: &impl ToString) -> Exit {
    present::problem(&problem.to_string());
    Exit::Misconfigured
}

/// A signal to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGTERM, from a supervisor.
    Terminated,
    /// SIGINT, from a terminal.
    Interrupted,
}

/// The signals to stop that arrive after this was made.
pub(super) struct StopSignals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    /// Of a process on a terminal: it is sent when the terminal is closed, and to reload.
    hang_up: Option<Signal>,
}

impl StopSignals {
    /// A signal that cannot be handled ends the process.
    pub(super) fn listen() -> Self {
        Self { terminate: handled(SignalKind::terminate()), interrupt: handled(SignalKind::interrupt()), hang_up: None }
    }

    /// Also the end of the terminal in which the process was started: it would go on without one, unseen.
    fn and_of_terminal(self) -> Self {
        let hang_up = std::io::stdin().is_terminal().then(|| handled(SignalKind::hangup())).flatten();
        Self { hang_up, ..self }
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            () = received(self.terminate.as_mut()) => Stop::Terminated,
            () = received(self.interrupt.as_mut()) => Stop::Interrupted,
            () = terminal_closed(self.hang_up.as_mut()) => Stop::Interrupted,
        }
    }
}

fn handled(kind: SignalKind) -> Option<Signal> {
    signal(kind).inspect_err(|error| tracing::warn!(%error, ?kind, "a signal to stop cannot be handled")).ok()
}

async fn terminal_closed(mut hang_up: Option<&mut Signal>) {
    loop {
        received(hang_up.as_deref_mut()).await;
        if !std::io::stdin().is_terminal() {
            return;
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns when the gateway must stop accepting requests. From SIGTERM on it is not ready, and still answers for the
/// configured delay; a further signal ends the delay.
async fn shutdown(gateway: &Gateway, mut signals: StopSignals) {
    let stop = signals.next().await;
    gateway.leave();
    let delay = Duration::from_secs(gateway.configuration().current().server.shutdown_delay_seconds);
    if stop == Stop::Terminated {
        let _ended = tokio::time::timeout(delay, signals.next()).await;
    }
}

/// How often a configuration is read whose files change while it is read.
const MAX_READS: usize = 5;

/// Why such a configuration is not applied.
const KEEPS_CHANGING: &str =
    "the files of the configuration keep changing, so that none of their states counts; once they rest, send SIGHUP";

/// Loads the configuration on a thread where programs that give values may block.
async fn load_apart(file: Option<&PathBuf>, options: &ServeOptions) -> Result<Config, Vec<ConfigError>> {
    let (file, options) = (file.cloned(), options.clone());
    let loading = tokio::task::spawn_blocking(move || load_config(file.as_deref(), &options));
    loading.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Loads the configuration as its files are once they rest: as two readings agree that they are, and a third one after it was read.
/// `rests`: two readings have agreed.
///
/// The error is the reason, for an operator.
async fn load_at_rest(
    watcher: &mut Watcher,
    rests: bool,
    file: Option<&PathBuf>,
    options: &ServeOptions,
) -> Result<Config, String> {
    let mut rests = rests || watcher.settle().await;
    for _ in 0..MAX_READS {
        if !rests {
            break;
        }
        let loaded = load_apart(file, options).await;
        if watcher.is_as_seen().await {
            return loaded.map_err(|errors| describe(&errors));
        }
        rests = watcher.settle().await;
    }
    Err(KEEPS_CHANGING.to_owned())
}

/// Applies a changed configuration or policy on SIGHUP and, unless it opens something, when a file changes. SIGHUP also starts a
/// segment of the audit trail.
async fn reload_on_change(gateway: Arc<Gateway>, file: Option<PathBuf>, options: ServeOptions) {
    let Ok(mut hang_up) = signal(SignalKind::hangup()) else {
        tracing::warn!("SIGHUP cannot be handled; changed files are still detected");
        return;
    };
    let watch = || Watcher::new(gateway.configuration().files(file.as_deref()), gateway.watched_files());
    let mut watcher = watch();
    loop {
        let renew_after = gateway.configuration().current().references.renew_after;
        let (is_asked, rests) = tokio::select! {
            _ = hang_up.recv() => {
                gateway.pipeline.settlement.audit.start_segment();
                (true, false)
            }
            () = watcher.changed() => (false, true),
            () = tokio::time::sleep(renew_after.unwrap_or(Duration::MAX)), if renew_after.is_some() => {
                // Programs that give values (`${exec: …}`) are run again; without another value nothing changes.
                // A configuration that cannot be loaded is reported.
                if let Ok(loaded) = load_apart(file.as_ref(), &options).await
                    && gateway.has_in_force(&loaded).await
                {
                    continue;
                }
                (false, false)
            }
        };
        match (load_at_rest(&mut watcher, rests, file.as_ref(), &options).await, is_asked) {
            (Ok(config), true) => gateway.reload(config).await,
            (Ok(config), false) => gateway.reload_found(config).await,
            (Err(problem), _) => gateway.refuse_reload(&problem),
        }
        if !watcher.watches(&gateway.configuration().files(file.as_deref()), &gateway.watched_files()) {
            watcher = watch();
        }
    }
}
