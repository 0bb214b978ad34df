//! Applies another configuration while the gateway runs.

use std::sync::Arc;

use super::parts::{
    authenticator, component_error, forget_removed_rules, lines, log_dangerous_operations, report_broken_collections,
    report_unpriced_models, require_key_for_tokens, restart_required,
};
use super::tool_set::ToolSet;
use super::{Gateway, StartError, components, mcp, python_tools, tenants};
use crate::config::Config;
use crate::registry::Snapshot;
use crate::sources::mcp::Change;

impl Gateway {
    /// Applies another configuration. If a part cannot be applied, the active one stays, and readiness reports the
    /// reason. Policies are applied separately, so that an invalid set does not block the rest.
    pub async fn reload(&self, config: Config) {
        let policies = self.pipeline.policy.reload(&config.policy);
        self.pipeline.settlement.metrics.policy_reloaded(policies.is_ok());
        let broken = policies.err().map(|errors| lines(&errors));
        match &broken {
            None => self.readiness.restore("policy"),
            Some(problem) => self.readiness.degrade("policy", problem),
        }
        match self.apply(config).await {
            Ok(()) => {
                self.record_reload(broken.map(|problem| format!("applied without its policies: {problem}")));
                self.pipeline.settlement.metrics.configuration_reloaded(true);
                self.readiness.restore("configuration");
                tracing::info!("the configuration was applied");
            }
            Err(problem) => self.refuse_reload(&problem.to_string()),
        }
    }

    /// Reports a configuration that could not be read: the active one stays.
    pub fn refuse_reload(&self, problem: &str) {
        self.pipeline.settlement.metrics.configuration_reloaded(false);
        self.readiness.degrade("configuration", problem);
        self.record_reload(Some(problem.to_owned()));
    }

    async fn apply(&self, mut config: Config) -> Result<(), StartError> {
        let running = self.config.load_full();
        let pending = restart_required(&self.started_with, &config);
        for topic in &pending {
            tracing::warn!(topic, "a change of this topic takes effect at the next start");
        }
        self.restart_required.store(Arc::new(pending));
        // Whether a key is required depends on the address that is listened on now, not on the new configuration.
        config.server = running.server.clone();
        config.sandbox = running.sandbox.clone();
        require_key_for_tokens(&config, self.users.can_keep_tokens())?;
        let _reading = self.reading_python_tools.lock().await;
        let python = python_tools::read(&config, &self.sandbox, &self.python_tools.load_full()).await;
        let (collections, _changing) = self.collections_for(&config).await;
        let before = self.collections.load_full();
        let lock = self.next_lock(&config).await;
        let own_components = self.components_for(&config, lock.is_some()).await;
        let tools = ToolSet {
            python: Arc::clone(&python),
            components: Arc::clone(&own_components),
            ..self.tool_set(lock.clone())
        };
        let snapshot = tools.rebuild(&config, &collections, &Snapshot::default())?;
        let mut authenticator = authenticator(&config, &self.outbound, &self.keys).await?;
        authenticator.keep_keys_of(&self.authenticator());
        self.pipeline.limits.reconfigure(&config.limits).map_err(component_error("limits"))?;
        self.pipeline.budget.reconfigure(&config.budget);
        self.pipeline.budget.limit_by_rules(&config.limits.rules);
        self.pipeline.breakers.reconfigure(mcp::breaker_rules(&config));
        self.pipeline.retries.reconfigure(&config.execution);
        self.pipeline.replies.reconfigure(&config.session);
        self.pipeline.results.reconfigure(&config.results);
        self.pipeline.approvals.reconfigure(&config.approvals);
        self.pipeline.sessions.reconfigure(&config.session);
        if self.lock.load().as_ref().map(Arc::as_ptr) != lock.as_ref().map(Arc::as_ptr) {
            self.record_lock(self.lock.load().as_deref(), lock.as_deref());
            self.lock.store(lock);
            self.mcp_servers.announce(Change::Prompts);
        }
        components::offer(&self.sandbox, &self.readiness, &own_components);
        self.offer_snapshot(snapshot);
        forget_removed_rules(&self.pipeline.settlement.metrics, &config.tools.transform);
        self.mcp_servers.configure(&config);
        report_broken_collections(&self.readiness, &before, &collections);
        python_tools::report(&self.readiness, &self.python_tools.load(), &python);
        self.python_tools.store(python);
        components::report(&self.readiness, &self.components.load(), &own_components);
        self.components.store(own_components);
        report_unpriced_models(&self.readiness, &config);
        log_dangerous_operations(&config.tools, &before, &collections);
        self.collections.store(Arc::new(collections));
        self.authenticator.store(Arc::new(authenticator));
        tenants::limit(&self.pipeline.budget, &config, &self.store).await.map_err(component_error("store"))?;
        self.renew_cluster_keys(&config);
        self.config.store(Arc::new(config));
        self.documents_pending.notify_one();
        Ok(())
    }
}
