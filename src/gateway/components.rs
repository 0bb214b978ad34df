//! Tools that are components while the service runs: files that are not compiled yet are compiled in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::ToolOffer;
use super::tool_set::ToolSet;
use sekisho_config::Config;
use sekisho_observe::readiness::Readiness;
use sekisho_outbound::Outbound;
use sekisho_sandbox::{RunComponents, Sandbox};
use sekisho_tools::components::{ComponentReader, Components};

/// How often it is looked for files that are not compiled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Longest pause before files are read again that could not be read or stored: each attempt may compile them.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// In `/readyz`: the workers.
const WORKERS: &str = "component_workers";

/// The means to read files.
pub(super) struct ReadWith<'a> {
    pub(super) sandbox: &'a Arc<Sandbox>,
    pub(super) outbound: &'a Outbound,
    pub(super) has_lock: bool,
    pub(super) may_compile: bool,
}

/// The tools of the configured folder. Files that are as `before` are not read again.
pub(super) async fn read(config: &Config, with: ReadWith<'_>, before: &Components) -> Arc<Components> {
    let ReadWith { sandbox, outbound, has_lock, may_compile } = with;
    let run = Arc::clone(sandbox) as Arc<dyn RunComponents>;
    let reader = ComponentReader::new(sandbox.config(), run, outbound, has_lock, may_compile);
    Arc::new(Components::read(&config.components, &reader, before).await)
}

/// Reports files of which nothing is offered: they degrade the service, but do not stop it.
pub(super) fn report(readiness: &Readiness, before: &Components, now: &Components) {
    readiness.replace(&before.problems(), now.problems(), |component| now.has_file(component));
}

/// Has calls run the loaded components. Called when changed tools count: workers of a state that never counted would
/// not have the components of the tools.
pub(super) fn offer(sandbox: &Sandbox, readiness: &Readiness, components: &Components) {
    match sandbox.offer_components(components.loads()) {
        Ok(()) => readiness.restore(WORKERS),
        Err(problem) => readiness.degrade(WORKERS, format!("no worker can be started: {problem}")),
    }
}

impl ToolOffer {
    /// Compiles the files that are not compiled, until the gateway closes.
    pub(super) async fn keep_components(self: Arc<Self>, closing: CancellationToken) {
        let mut moments = tokio::time::interval(LOOK_AGAIN);
        moments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut tried, mut pause, mut again_at) = (None, LOOK_AGAIN, Instant::now());
        while closing.run_until_cancelled(moments.tick()).await.is_some() {
            let components = self.components.load_full();
            let is_new = !tried.as_ref().is_some_and(|tried| Arc::ptr_eq(tried, &components));
            if !components.is_waiting() || (!is_new && Instant::now() < again_at) {
                continue;
            }
            pause = if is_new { LOOK_AGAIN } else { (pause * 2).min(MAX_PAUSE) };
            closing.run_until_cancelled(self.read_components()).await;
            again_at = Instant::now() + pause;
            tried = Some(self.components.load_full());
        }
    }

    /// The tools of the folder under a lock, only of files that are compiled already.
    pub(super) async fn components_for(&self, config: &Config, has_lock: bool) -> Arc<Components> {
        let with = ReadWith { sandbox: &self.sandbox, outbound: &self.outbound, has_lock, may_compile: false };
        read(config, with, &self.components.load_full()).await
    }

    async fn read_components(&self) {
        let (config, before) = (self.configuration.current_arc(), self.components.load_full());
        let has_lock = self.lock.load().is_some();
        let with = ReadWith { sandbox: &self.sandbox, outbound: &self.outbound, has_lock, may_compile: true };
        let now = read(&config, with, &before).await;
        // Otherwise clients would be told each time that the tools have changed.
        if now.is_as(&before) {
            return;
        }
        let _changing = self.changing.lock().await;
        // A reload may have read the files in between.
        if !Arc::ptr_eq(&config, &self.configuration.current()) || !Arc::ptr_eq(&before, &self.components.load()) {
            return;
        }
        let tools = ToolSet { components: Arc::clone(&now), ..self.tool_set(self.lock.load_full()) };
        match tools.rebuild(&config, &self.collections.load(), &self.pipeline.registry.snapshot()) {
            Ok(snapshot) => {
                offer(&self.sandbox, &self.readiness, &now);
                self.replace(snapshot);
                report(&self.readiness, &before, &now);
                self.components.store(now);
            }
            Err(problem) => tracing::error!(%problem, "the tools of components could not be applied"),
        }
    }
}
