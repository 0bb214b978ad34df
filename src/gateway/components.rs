//! Tools that are components while the service runs: files that are not compiled yet are compiled in the background.

use std::sync::Arc;
use std::time::Duration;

use super::Gateway;
use super::tool_set::ToolSet;
use crate::config::Config;
use crate::infra::outbound::Outbound;
use crate::infra::readiness::Readiness;
use crate::sandbox::{RunComponents, Sandbox};
use crate::sources::components::{ComponentReader, Components};

/// How often it is looked for files that are not compiled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What files are read with.
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
    let problems = now.problems();
    for component in before.problems().keys().filter(|component| !problems.contains_key(*component)) {
        match now.has_file(component) {
            true => readiness.restore(component),
            false => readiness.forget(component),
        }
    }
    for (component, problem) in problems {
        readiness.degrade(&component, problem);
    }
}

impl Gateway {
    /// Compiles the files that are not compiled, until the gateway closes.
    pub(super) async fn keep_components(&self) {
        let mut moments = tokio::time::interval(LOOK_AGAIN);
        while self.closing.run_until_cancelled(moments.tick()).await.is_some() {
            if self.components.load().is_waiting() {
                self.closing.run_until_cancelled(self.read_components()).await;
            }
        }
    }

    /// The tools of the folder under a lock, of what is compiled already.
    pub(super) async fn components_for(&self, config: &Config, has_lock: bool) -> Arc<Components> {
        let with = ReadWith { sandbox: &self.sandbox, outbound: &self.outbound, has_lock, may_compile: false };
        read(config, with, &self.components.load_full()).await
    }

    async fn read_components(&self) {
        let (config, before) = (self.config.load_full(), self.components.load_full());
        let has_lock = self.lock.load().is_some();
        let with = ReadWith { sandbox: &self.sandbox, outbound: &self.outbound, has_lock, may_compile: true };
        let now = read(&config, with, &before).await;
        let _changing = self.changing.lock().await;
        // A reload may have read the files meanwhile.
        if !Arc::ptr_eq(&config, &self.config.load()) || !Arc::ptr_eq(&before, &self.components.load()) {
            return;
        }
        let tools = ToolSet { components: Arc::clone(&now), ..self.tool_set(self.lock.load_full()) };
        match tools.rebuild(&config, &self.collections.load(), &self.pipeline.registry.snapshot()) {
            Ok(snapshot) => {
                self.offer_snapshot(snapshot);
                report(&self.readiness, &before, &now);
                self.components.store(now);
            }
            Err(problem) => tracing::error!(%problem, "the tools of components could not be applied"),
        }
    }
}
