//! Builds the parts of a gateway, each from its topic of the configuration.

use std::sync::Arc;

use super::{StartError, mcp};
use sekisho_audit::Audit;
use sekisho_auth::{Authenticator, ManagedKeys};
use sekisho_broker::{BrokerKeys, accepted_issuers};
use sekisho_calls::approval::Approvals;
use sekisho_calls::breaker::Breakers;
use sekisho_calls::budget::Budgets;
use sekisho_calls::budget::model_prices;
use sekisho_calls::flow::Flow;
use sekisho_calls::guards::GuardServices;
use sekisho_calls::journals::Journals;
use sekisho_calls::limits::Limits;
use sekisho_calls::pipeline::{Pipeline, Replies, Retries, Sessions, Settlement};
use sekisho_calls::policy::Policy;
use sekisho_calls::registry::{Registry, Snapshot};
use sekisho_calls::results::Results;
use sekisho_config::{ApprovalRule, Config, FlowMode, Identity, Recover, ToolOverride, ToolsConfig, TransformConfig};
use sekisho_core::transform_finding::TransformedPart;
use sekisho_observe::metrics::Metrics;
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::{Collections, Loader};
use sekisho_outbound::{DomainList, Outbound};
use sekisho_sandbox::Sandbox;
use sekisho_store::Store;
use sekisho_store::sealing::Sealer;
use sekisho_tools::builtin::Workspaces;
use sekisho_user_tokens::UserTokens;

/// The loader for the OpenAPI documents of a configuration, without starting anything.
/// Errors: the configuration of outbound requests is not usable.
pub fn loader_of(config: &Config) -> Result<Loader, StartError> {
    let outbound = Outbound::new(&config.outbound).map_err(component_error("outbound"))?;
    loader(config, &outbound)
}

/// Removes the metrics of rules that another configuration does not have.
pub(super) fn forget_removed_rules(metrics: &Metrics, rules: &TransformConfig) {
    metrics.forget_transform_rules(|part, name| {
        let of_part = if part == TransformedPart::Arguments.as_str() { &rules.arguments } else { &rules.results };
        of_part.iter().any(|rule| rule.name == name)
    });
}

pub(super) fn workspaces(config: &Config) -> Workspaces {
    Workspaces::new(config.workspaces_directory(), &config.tools.workspace)
}

pub(super) fn sandbox(
    config: &Config,
    metrics: &Metrics,
    readiness: &Arc<Readiness>,
) -> Result<Arc<Sandbox>, StartError> {
    let sandbox = Sandbox::new(&config.sandbox, metrics.for_sandbox(), Arc::clone(readiness));
    Ok(Arc::new(sandbox.map_err(component_error("sandbox"))?))
}

/// The results that are too large for models. Without a key that all replicas have, none is stored.
pub(super) fn results(config: &Config, store: &Store, metrics: &Arc<Metrics>) -> Arc<Results> {
    let results = Results::new(config, store.clone(), Arc::clone(metrics));
    if !results.can_keep() {
        tracing::info!(
            "results that are too large for models are answered by previews alone, since they cannot be sealed: set \
             `secrets.key` to the output of `openssl rand -hex 32`, the same at all replicas"
        );
    }
    Arc::new(results)
}

pub(super) fn loader(config: &Config, outbound: &Outbound) -> Result<Loader, StartError> {
    let allowed = DomainList::parse(&config.outbound.openapi_allowed_domains).map_err(component_error("outbound"))?;
    Ok(Loader::new(outbound.clone(), allowed))
}

/// Reports models without a price: the service is degraded if their calls are refused; models that count as free are
/// only logged.
pub(super) fn report_unpriced_models(readiness: &Readiness, config: &Config) {
    const COMPONENT: &str = "agent.prices";
    let is_refused = config.budget.daily_cost_limit().is_some();
    match model_prices::unpriced(config) {
        Some(unpriced) if is_refused => return readiness.degrade(COMPONENT, unpriced),
        Some(unpriced) => tracing::info!("{unpriced}"),
        None => {}
    }
    readiness.restore(COMPONENT);
}

/// Reports invalid collections: they degrade the service, but do not stop it.
pub(super) fn report_broken_collections(readiness: &Readiness, before: &Collections, now: &Collections) {
    let component = |name: &String| format!("openapi:{name}");
    for name in before.broken.keys().filter(|name| !now.broken.contains_key(*name)) {
        match now.loaded.contains_key(name) {
            true => readiness.restore(&component(name)),
            false => readiness.forget(&component(name)),
        }
    }
    for (name, reason) in &now.broken {
        readiness.degrade(&component(name), reason);
    }
}

/// Logs the operations of each collection that require a role since this version.
pub(super) fn log_dangerous_operations(tools: &ToolsConfig, before: &Collections, now: &Collections) {
    for (collection, loaded) in &now.loaded {
        let is_known = before.loaded.get(collection).is_some_and(|known| Arc::ptr_eq(known, loaded));
        let says = loaded.report.dangers(|tool| tools.opens(tool)).filter(|_| !is_known);
        if let Some(says) = says {
            tracing::info!(collection, "{says}");
        }
    }
}

/// The pipeline, with the tools offered at the start.
pub(super) async fn pipeline(
    config: &Config,
    snapshot: Snapshot,
    metrics: Arc<Metrics>,
    readiness: &Arc<Readiness>,
    (store, results): (&Store, Arc<Results>),
    outbound: &Outbound,
) -> Result<Arc<Pipeline>, StartError> {
    let policy = Policy::load(&config.policy).map_err(|errors| component_error("policy")(lines(&errors)))?;
    policy.set_outbound(outbound);
    policy.set_metrics(&metrics);
    let open = if config.cluster.blobs.is_some() { Audit::open_stored } else { Audit::open };
    let audit = open(config.audit_file(), &config.audit, Arc::clone(readiness)).map_err(component_error("audit"))?;
    let budget = match config.cluster.enabled {
        true => Budgets::of_replica(&config.budget),
        false => Budgets::new(&config.budget),
    };
    budget.limit_by_rules(&config.limits.rules);
    let approvals = Approvals::new(config, store.clone(), audit.clone(), Arc::clone(&metrics));
    require_key_for_approvals(config, &policy, approvals.can_keep_arguments())?;
    approvals.sweep().await.map_err(component_error("store"))?;
    let guards = GuardServices::new(&config.tools.guards);
    guards.set_outbound(outbound);
    let pipeline = Arc::new(Pipeline {
        registry: Arc::new(Registry::new(snapshot)),
        limits: match config.cluster.enabled {
            true => Limits::of_replica(&config.limits, store.clone()),
            false => Limits::new(&config.limits),
        }
        .map_err(component_error("limits"))?,
        policy,
        guards,
        flow: Arc::new(Flow::new(config, store, Arc::clone(&metrics))),
        approvals: Arc::new(approvals),
        budget: Arc::new(budget),
        breakers: Breakers::new(mcp::breaker_rules(config), Arc::clone(&metrics)),
        retries: Retries::new(&config.execution),
        sessions: Sessions::new(&config.session),
        replies: Arc::new(Replies::open(&config.session, store.clone()).await.map_err(component_error("store"))?),
        results,
        journals: Arc::new(Journals::new(config, store.program_runs())),
        settlement: Settlement::new(metrics, audit, &config.recording.content),
    });
    pipeline.results.set_access(Arc::downgrade(&pipeline));
    Ok(pipeline)
}

/// Whether a gateway of this configuration has a key for its sealed data, without starting anything.
/// Errors: `secrets.key` is missing; the error names the settings that need it.
pub fn require_sealing_key(config: &Config, policy: &Policy) -> Result<(), StartError> {
    let can_seal = Sealer::new(config).is_available();
    require_key_for_approvals(config, policy, can_seal)?;
    require_key_for_tokens(config, can_seal)
}

/// The arguments of a call that waits for approval are kept sealed: without a key that all replicas have, no call could be
/// approved.
fn require_key_for_approvals(config: &Config, policy: &Policy, can_seal: bool) -> Result<(), StartError> {
    let asks = |changes: &ToolOverride| changes.approval.is_some_and(|rule| rule != ApprovalRule::Never);
    let may_ask =
        policy.asks_approval() || config.policy.flow == FlowMode::Enforce || config.tools.overrides.values().any(asks);
    if may_ask && !can_seal {
        let problem = "calls may need approval, and the arguments of those that wait cannot be sealed: set it to the \
                       output of `openssl rand -hex 32`, the same at all replicas";
        return Err(component_error("secrets.key")(problem));
    }
    Ok(())
}

/// The tokens of callers who sign in on their own.
/// Errors: a source is called as its callers, or runs go on with the tokens of their requests, and these cannot be
/// sealed.
pub(super) fn user_tokens(config: &Config, store: &Store) -> Result<Arc<UserTokens>, StartError> {
    let tokens = UserTokens::new(config, store.user_tokens());
    require_key_for_tokens(config, tokens.can_keep_tokens())?;
    Ok(tokens)
}

/// Errors: as [`user_tokens`].
pub(super) fn require_key_for_tokens(config: &Config, can_seal: bool) -> Result<(), StartError> {
    if config.agent.recover == Recover::Auto && !can_seal {
        let problem = "with `agent.recover: auto` requests are kept sealed while their runs are on: set the key to the output of \
                       `openssl rand -hex 32`, the same at all replicas";
        return Err(component_error("secrets.key")(problem));
    }
    if config.auth.broker.is_some() && !can_seal {
        let problem = "with `auth.broker` the key that signs tokens, and the sessions of users, are kept sealed: set the key to the \
                       output of `openssl rand -hex 32`, the same at all replicas";
        return Err(component_error("secrets.key")(problem));
    }
    let servers = config.mcp.servers.iter().map(|(name, settings)| ("mcp.servers", name, settings.identity));
    let collections =
        config.openapi.collections.iter().map(|(name, settings)| ("openapi.collections", name, settings.identity));
    let mut of_callers = servers.chain(collections).filter(|(.., identity)| identity.is_kept());
    match of_callers.next() {
        Some((topic, name, identity)) if !can_seal => {
            let identity = if identity == Identity::Stored { "stored" } else { "per_user" };
            let problem = format!(
                "`{topic}.{name}.identity` is `{identity}`, and the tokens of callers cannot be sealed: set the key to the output of \
                 `openssl rand -hex 32`, the same at all replicas"
            );
            Err(component_error("secrets.key")(problem))
        }
        _ => Ok(()),
    }
}

pub(super) async fn authenticator(
    config: &Config,
    outbound: &Outbound,
    managed: &Arc<ManagedKeys>,
    own: &Arc<BrokerKeys>,
) -> Result<Authenticator, StartError> {
    let (auth, client) = accepted_issuers(config, own, outbound);
    let authenticator = Authenticator::new(&auth, Some(client)).await;
    let mut authenticator = authenticator.map_err(|errors| component_error("auth")(lines(&errors)))?;
    authenticator.use_managed_keys(managed);
    Ok(authenticator)
}

/// The topics whose change takes effect at the next start.
pub(super) fn restart_required(started: &Config, now: &Config) -> Vec<&'static str> {
    let fixed = [
        ("server", started.server != now.server),
        ("outbound", started.outbound != now.outbound),
        ("store", started.store != now.store),
        ("secrets", started.secrets != now.secrets),
        ("cluster", started.cluster.without_secrets() != now.cluster.without_secrets()),
        ("audit", started.audit != now.audit),
        ("recording", started.recording != now.recording),
        ("telemetry", started.telemetry != now.telemetry),
        ("agent.prompts_directory", started.agent.prompts_directory != now.agent.prompts_directory),
        ("agent.skills_directory", started.agent.skills_directory != now.agent.skills_directory),
        ("agent.subagents.directory", started.agent.subagents.directory != now.agent.subagents.directory),
        ("sandbox", started.sandbox != now.sandbox),
        ("state_directory", started.state_directory != now.state_directory),
        ("tools.workspace", started.tools.workspace != now.tools.workspace),
    ];
    fixed.into_iter().filter(|(_, changed)| *changed).map(|(topic, _)| topic).collect()
}

/// Converts the error of a part into a [`StartError`] with the name of the part.
pub(super) fn component_error<E: ToString>(part: &'static str) -> impl Fn(E) -> StartError {
    move |problem| StartError { part, problem: problem.to_string() }
}

pub(super) fn lines(errors: &[impl ToString]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{ClusterConfig, McpConfig, McpServerSettings, Secret, SecretsConfig, StoreConfig};

    /// With a database, which others may use too, and without a key.
    fn of_several() -> Config {
        let store = StoreConfig { url: Some(Secret::new("postgres://localhost/sekisho")) };
        Config { store, ..Config::default() }
    }

    fn with_users(config: Config) -> Config {
        let far = McpServerSettings { identity: Identity::PerUser, ..McpServerSettings::default() };
        let mcp = McpConfig { servers: [("far".to_owned(), far)].into(), ..McpConfig::default() };
        Config { mcp, ..config }
    }

    #[test]
    fn what_needs_a_key_for_secrets_is_named() {
        let always = ToolOverride { approval: Some(ApprovalRule::Always), ..ToolOverride::default() };
        let tools = ToolsConfig { overrides: [("calculator".to_owned(), always)].into(), ..ToolsConfig::default() };
        let asks = Config { tools, ..of_several() };
        let mut recovers = of_several();
        recovers.agent.recover = Recover::Auto;
        for (config, needed_for) in [
            (asks, "calls may need approval"),
            (with_users(of_several()), "`mcp.servers.far.identity` is `per_user`"),
            (recovers, "`agent.recover: auto`"),
        ] {
            let check = |config: &Config| require_sealing_key(config, &Policy::load(&config.policy).unwrap());
            let error = check(&config).unwrap_err().to_string();
            assert!(error.starts_with("secrets.key: ") && error.contains(needed_for), "{error}");
            let secrets = SecretsConfig { key: Some(Secret::new("1f".repeat(32))), ..SecretsConfig::default() };
            assert!(check(&Config { secrets, ..config.clone() }).is_ok(), "{needed_for}");
            assert!(check(&Config { store: StoreConfig::default(), ..config }).is_ok(), "one is generated");
        }
    }

    #[test]
    fn of_a_cluster_its_secrets_alone_change_without_a_start() {
        let with = |cluster: &ClusterConfig| Config { cluster: cluster.clone(), ..Config::default() };
        let secret = |text: &str| Some(Secret::new(text));
        let started = ClusterConfig { enabled: true, secret: secret("old"), ..ClusterConfig::default() };
        let changed = ClusterConfig { secret: secret("new"), accepted_secret: secret("old"), ..started.clone() };
        assert!(restart_required(&with(&started), &with(&changed)).is_empty());
        let moved = ClusterConfig { address: Some(([10, 0, 0, 3], 8790).into()), ..started.clone() };
        assert_eq!(restart_required(&with(&started), &with(&moved)), ["cluster"]);
    }

    #[tokio::test]
    async fn callers_sign_in_only_where_their_tokens_can_be_sealed() {
        let store = Store::in_memory().await.unwrap();
        assert!(user_tokens(&of_several(), &store).is_ok(), "nobody signs in");
        let mut config = with_users(of_several());
        let error = user_tokens(&config, &store).unwrap_err().to_string();
        assert!(error.contains("secrets.key") && error.contains("mcp.servers.far.identity"), "{error}");
        config.secrets.key = Some(Secret::new("1f".repeat(32)));
        assert!(user_tokens(&config, &store).is_ok());
    }
}
