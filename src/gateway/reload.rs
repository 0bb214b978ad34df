//! Applies another configuration while the gateway runs.

use std::sync::Arc;

use super::changes::{record_lock, record_reload};
use super::configuration_changes::advice_on;
use super::parts::{
    component_error, forget_removed_rules, lines, log_dangerous_operations, report_broken_collections,
    report_unpriced_models, require_key_for_tokens,
};
use super::tool_set::ToolSet;
use super::{Gateway, OwnTools, StartError, components, limit_tenants, mcp, python_tools};
use sekisho_calls::policy::{FewerRules, LoadedPolicies, Policy, PolicyError};
use sekisho_calls::registry::Snapshot;
use sekisho_config::{Config, Opening, ReloadMode};
use sekisho_mcp_client::Change;

/// A changed configuration that is not applied, because it opens something.
#[derive(Debug)]
pub(super) struct WaitingConfiguration {
    pub(super) config: Config,
    pub(super) opens: Vec<Opening>,
}

/// Maximum settings in a log line and in readiness.
const MAX_NAMED: usize = 20;

impl WaitingConfiguration {
    /// For operators.
    fn reason(&self) -> String {
        let named: Vec<_> = self.opens.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = self.opens.len().saturating_sub(MAX_NAMED);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        format!(
            "a changed configuration waits for SIGHUP, since it opens what the one in force keeps closed: {}{more}",
            named.join("; ")
        )
    }
}

/// The parts that a configuration and its policies open.
pub(super) fn openings(
    running: &Config,
    next: &Config,
    policy: &Policy,
    loaded: &Result<LoadedPolicies, Vec<PolicyError>>,
) -> Vec<Opening> {
    let mut opens = next.opens(running);
    // A set that does not load is not applied.
    let fewer = loaded.iter().flat_map(|loaded| policy.fewer_rules(loaded));
    let line = |fewer: FewerRules| {
        let rules = |count: usize| format!("{count} rules");
        Opening::new(format!("policy rules `{}`", fewer.name), rules(fewer.before), rules(fewer.after))
    };
    opens.extend(fewer.map(line));
    opens
}

impl Gateway {
    /// Applies another configuration. If a part cannot be applied, the active one stays, and readiness reports the
    /// reason. Policies are applied separately, so that an invalid set does not block the rest.
    pub async fn reload(&self, config: Config) {
        let _applying = self.changes.applying.lock().await;
        let config = match self.changes.over(&config).await {
            Ok(config) => config,
            Err(problem) => return self.refuse_reload(&problem),
        };
        let policies = Policy::read(&config.policy);
        Box::pin(self.take_over(Arc::unwrap_or_clone(config), policies)).await;
    }

    /// Applies a configuration that nobody asked to apply: its files, or the policies, were found changed. Where it opens something it
    /// waits for [`reload`](Self::reload), unless the one in force has `config.reload: immediate`.
    pub async fn reload_found(&self, config: Config) {
        let _applying = self.changes.applying.lock().await;
        let config = match self.changes.over(&config).await {
            Ok(config) => config,
            Err(problem) => return self.refuse_reload(&problem),
        };
        let running = self.configuration.current_arc();
        let policies = Policy::read(&config.policy);
        let opens = match running.config.reload {
            ReloadMode::Immediate => Vec::new(),
            ReloadMode::Guarded => openings(&running, &config, &self.pipeline.policy, &policies),
        };
        match opens.is_empty() {
            true => Box::pin(self.take_over(Arc::unwrap_or_clone(config), policies)).await,
            false => {
                let config = Arc::unwrap_or_clone(config);
                Box::pin(self.hold(&running, WaitingConfiguration { config, opens })).await;
            }
        }
    }

    /// The configuration in force stays, with documents, functions and policies as they are now.
    async fn hold(&self, running: &Config, waiting: WaitingConfiguration) {
        let policies = Policy::read(&running.policy);
        let has_fewer = policies.as_ref().is_ok_and(|loaded| !self.pipeline.policy.fewer_rules(loaded).is_empty());
        if !has_fewer {
            self.replace_policies(policies, running);
        }
        if let Err(problem) = Box::pin(self.apply(running.clone())).await {
            tracing::warn!(%problem, "changed files were not applied with the configuration in force");
        }
        let reason = waiting.reason();
        match self.configuration.hold(waiting) {
            true => self.readiness.degrade("configuration", reason),
            false => self.report_refusal(&reason),
        }
    }

    async fn take_over(&self, config: Config, policies: Result<LoadedPolicies, Vec<PolicyError>>) {
        self.configuration.forget_waiting();
        let (broken, advice) = (self.replace_policies(policies, &config), advice_on(&config));
        match Box::pin(self.apply(config)).await {
            Ok(()) => {
                record_reload(
                    &self.pipeline.settlement.audit,
                    broken.map(|problem| format!("applied without its policies: {problem}")),
                );
                self.pipeline.settlement.metrics.configuration_reloaded(true);
                self.readiness.restore("configuration");
                tracing::info!("the configuration was applied");
            }
            Err(problem) => self.report_refusal(&format!("{problem}{advice}")),
        }
    }

    /// Why the set is broken, if it is.
    fn replace_policies(&self, policies: Result<LoadedPolicies, Vec<PolicyError>>, config: &Config) -> Option<String> {
        self.pipeline.settlement.metrics.policy_reloaded(policies.is_ok());
        match policies {
            Ok(loaded) => {
                self.pipeline.policy.replace(loaded, &config.policy);
                self.readiness.restore("policy");
                None
            }
            Err(errors) => {
                let problem = lines(&errors);
                self.readiness.degrade("policy", &*problem);
                Some(problem)
            }
        }
    }

    /// Reports a configuration that could not be read: the active one stays.
    pub fn refuse_reload(&self, problem: &str) {
        self.configuration.forget_waiting();
        self.report_refusal(problem);
    }

    fn report_refusal(&self, problem: &str) {
        self.pipeline.settlement.metrics.configuration_reloaded(false);
        self.readiness.degrade("configuration", problem);
        record_reload(&self.pipeline.settlement.audit, Some(problem.to_owned()));
    }

    pub(super) async fn apply(&self, mut config: Config) -> Result<(), StartError> {
        let running = self.configuration.current_arc();
        self.configuration.require_restart(&config);
        // Whether a key is required depends on the address that is listened on now, not on the new configuration.
        config.server = running.server.clone();
        config.sandbox = running.sandbox.clone();
        require_key_for_tokens(&config, self.sign_ins.can_keep_tokens())?;
        let _reading = self.python_functions.reading.lock().await;
        let python = python_tools::read(&config, &self.sandbox, &self.tool_offer.python_tools.load_full()).await;
        let (collections, _changing) = self.collections.next(&config).await;
        let before = self.tool_offer.collections.load_full();
        let lock = self.tool_offer.next_lock(&config).await;
        let own_components = self.tool_offer.components_for(&config, lock.is_some()).await;
        let tools = ToolSet {
            python: Arc::clone(&python),
            components: Arc::clone(&own_components),
            ..self.tool_offer.tool_set(lock.clone())
        };
        let snapshot = tools.rebuild(&config, &collections, &Snapshot::default())?;
        let own = OwnTools { python: &python, components: &own_components };
        self.configuration_notes.refuse_misspelled(&config, &snapshot, &collections, own)?;
        let authenticator = self.keys.next_authenticator(&config, &self.outbound).await?;
        self.reconfigure_stages(&config)?;
        if self.tool_offer.lock.load().as_ref().map(Arc::as_ptr) != lock.as_ref().map(Arc::as_ptr) {
            let before = self.tool_offer.lock.load();
            let audit = &self.pipeline.settlement.audit;
            record_lock(audit, &running.lock_file(), before.as_deref(), lock.as_deref());
            self.tool_offer.lock.store(lock);
            self.mcp_servers.announce(Change::Prompts(None));
        }
        components::offer(&self.sandbox, &self.readiness, &own_components);
        self.tool_offer.replace(snapshot);
        forget_removed_rules(&self.pipeline.settlement.metrics, &config.tools.transform);
        self.mcp_servers.configure(&config);
        report_broken_collections(&self.readiness, &before, &collections);
        python_tools::report(&self.readiness, &self.tool_offer.python_tools.load(), &python);
        self.tool_offer.python_tools.store(python);
        components::report(&self.readiness, &self.tool_offer.components.load(), &own_components);
        self.tool_offer.components.store(own_components);
        report_unpriced_models(&self.readiness, &config);
        log_dangerous_operations(&config.tools, &before, &collections);
        self.tool_offer.collections.store(Arc::new(collections));
        self.keys.replace_authenticator(authenticator);
        limit_tenants(&self.pipeline.budget, &config, &self.store.resources())
            .await
            .map_err(component_error("store"))?;
        self.cluster.renew_keys(&config);
        self.configuration.replace(config);
        self.configuration_notes.look_for_unknown_names();
        self.collections.fetch_soon();
        Ok(())
    }

    /// Errors: the limits cannot be used; nothing is changed then.
    fn reconfigure_stages(&self, config: &Config) -> Result<(), StartError> {
        self.pipeline.limits.reconfigure(&config.limits).map_err(component_error("limits"))?;
        self.pipeline.budget.reconfigure(&config.budget);
        self.pipeline.budget.limit_by_rules(&config.limits.rules);
        self.pipeline.breakers.reconfigure(mcp::breaker_rules(config));
        self.pipeline.retries.reconfigure(&config.execution);
        self.pipeline.replies.reconfigure(&config.session);
        self.pipeline.results.reconfigure(&config.results);
        self.pipeline.approvals.reconfigure(&config.approvals);
        self.pipeline.guards.reconfigure(&config.tools.guards);
        self.pipeline.flow.reconfigure(config);
        self.pipeline.sessions.reconfigure(&config.session);
        Ok(())
    }
}
