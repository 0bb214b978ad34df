//! `sekisho serve`: the gateway with its HTTP API, until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::{Common, Exit, ServeOptions, describe, load_config, present};
use crate::agent::AgentService;
use crate::api;
use crate::api::BoundListeners;
use crate::config::{Config, TelemetryConfig, Watcher};
use crate::gateway::Gateway;
use crate::infra::{descriptors, telemetry};

pub(super) fn run(common: &Common, options: &ServeOptions) -> Exit {
    let config = match load_config(common.config.as_deref(), options) {
        Ok(config) => config,
        Err(errors) => return misconfigured(&describe(&errors)),
    };
    let Some(runtime) = runtime() else { return Exit::Misconfigured };
    runtime.block_on(async {
        let _telemetry = match telemetry::start(&config.telemetry) {
            Ok(guard) => guard,
            Err(problem) => return misconfigured(&problem),
        };
        descriptors::raise_limit();
        let listening = match BoundListeners::bind(&config.server).await {
            Ok(listening) => listening,
            Err(problem) => return misconfigured(&problem),
        };
        let gateway = match Gateway::start(config).await {
            Ok(gateway) => gateway,
            Err(problem) => return misconfigured(&problem),
        };
        let agents = match AgentService::new(&gateway) {
            Ok(agents) => agents,
            Err(problem) => return misconfigured(&problem),
        };
        if let Ok(address) = listening.address() {
            let tools = gateway.pipeline.registry.snapshot().tools().len();
            tracing::info!(%address, tools, "sekisho is listening");
        }
        log_notes(&gateway).await;
        let reloading = tokio::spawn(reload_on_change(Arc::clone(&gateway), common.config.clone(), options.clone()));
        api::serve(listening, &agents, shutdown(&gateway)).await;
        reloading.abort();
        gateway.close().await;
        tracing::info!("sekisho has stopped");
        Exit::Done
    })
}

/// Logs settings that the operator should review.
pub(super) async fn log_notes(gateway: &Gateway) {
    for (setting, note) in gateway.notes().await {
        tracing::warn!(setting, "{note}");
    }
}

/// Runs something with a gateway of this process that does not listen.
pub(super) fn with_gateway(config: Config, run: impl AsyncFnOnce(Arc<Gateway>) -> Exit) -> Exit {
    let Some(runtime) = runtime() else { return Exit::Misconfigured };
    let exit = runtime.block_on(async {
        // The terminal is for the result, not for logs.
        let quiet = TelemetryConfig { log: "warn".into(), ..config.telemetry.clone() };
        let _telemetry = match telemetry::start(&quiet) {
            Ok(guard) => guard,
            Err(problem) => return misconfigured(&problem),
        };
        match Gateway::start(config).await {
            Ok(gateway) => {
                gateway.fetch_pending_documents().await;
                // MCP servers may have the tools that the command needs.
                gateway.mcp_servers().settled().await;
                gateway.offer_mcp_tools().await;
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

pub(super) async fn shutdown_signal() -> Stop {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be handled; stop with SIGINT");
            let _interrupted = tokio::signal::ctrl_c().await;
            return Stop::Interrupted;
        }
    };
    tokio::select! {
        _ = terminate.recv() => Stop::Terminated,
        _ = tokio::signal::ctrl_c() => Stop::Interrupted,
    }
}

/// Returns when the gateway must stop accepting requests. From SIGTERM on it is not ready, and still answers for the
/// configured delay; a further signal ends the delay.
async fn shutdown(gateway: &Gateway) {
    let stop = shutdown_signal().await;
    gateway.readiness.refuse_calls("shutdown", "the gateway is shutting down");
    let delay = Duration::from_secs(gateway.config().server.shutdown_delay_seconds);
    if stop == Stop::Terminated {
        let _ended = tokio::time::timeout(delay, shutdown_signal()).await;
    }
}

/// Applies a changed configuration or policy on SIGHUP and when a file changes.
async fn reload_on_change(gateway: Arc<Gateway>, file: Option<PathBuf>, options: ServeOptions) {
    let Ok(mut hang_up) = signal(SignalKind::hangup()) else {
        tracing::warn!("SIGHUP cannot be handled; changed files are still detected");
        return;
    };
    let mut watched = gateway.watched_files(file.as_deref());
    let mut watcher = Watcher::new(watched.clone());
    loop {
        tokio::select! {
            _ = hang_up.recv() => {}
            () = watcher.changed() => {}
        }
        match load_config(file.as_deref(), &options) {
            Ok(config) => gateway.reload(config).await,
            Err(errors) => gateway.refuse_reload(&describe(&errors)),
        }
        let to_watch = gateway.watched_files(file.as_deref());
        if to_watch != watched {
            watcher = Watcher::new(to_watch.clone());
            watched = to_watch;
        }
    }
}
