//! The start: builds all parts from a configuration.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Mutex, Notify};

use super::assembly::{Parts, assemble};
use super::components::ReadWith;
use super::configuration_changes::{ConfigurationChanges, advice_on};
use super::configuration_notes::refuse_misspelled;
use super::parts::{
    component_error, loader, log_dangerous_operations, pipeline, report_broken_collections, report_unpriced_models,
    results, sandbox, user_tokens, workspaces,
};
use super::tool_set::ToolSet;
use super::{
    CallIndex, Configuration, Gateway, Keys, NameSources, OwnTools, RegisteredNames, StartError, ToolOffer, blobs,
    cluster, components, existing_names, limit_tenants, lock, mcp, openapi, python_tools, source_catalogue,
};
use sekisho_calls::budget::WriteBehind;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{AwaitedTools, Source, SourceTools};
use sekisho_config::Config;
use sekisho_core::source_access::SwitchedSources;
use sekisho_mcp_client::McpServers;
use sekisho_observe::metrics::Metrics;
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::{Collections, DesiredCollections, Wait};
use sekisho_outbound::Outbound;
use sekisho_sandbox::ToolPipeline;
use sekisho_store::state_lock::StateLock;
use sekisho_store::{Store, StoreLocation};
use sekisho_tools::components::Components;
use sekisho_tools::python_tools::PythonTools;

impl Gateway {
    /// Starts with the built-in tools.
    /// Errors: the part that cannot start, and the reason.
    pub async fn start(config: Config) -> Result<Arc<Self>, StartError> {
        Box::pin(Self::with_sources(config, Vec::new())).await
    }

    /// Starts with the built-in tools and the tools of further sources.
    /// Errors: as [`Gateway::start`].
    pub async fn with_sources(config: Config, sources: Vec<Box<dyn Source>>) -> Result<Arc<Self>, StartError> {
        let lock = StateLock::acquire(&config.state_directory()).map_err(component_error("state_directory"))?;
        Box::pin(Self::with_lock(config, sources, lock)).await
    }

    /// Starts with the lock of the state directory.
    /// Errors: as [`Gateway::start`].
    pub async fn with_lock(
        config: Config,
        sources: Vec<Box<dyn Source>>,
        state_lock: StateLock,
    ) -> Result<Arc<Self>, StartError> {
        let store = Store::open(&StoreLocation::of(&config)).await.map_err(component_error("store"))?;
        let changed = ConfigurationChanges::new(&store).over(&config).await.map_err(component_error("config"))?;
        let advice = advice_on(&changed);
        let started = Box::pin(Self::with_store(Arc::unwrap_or_clone(changed), sources, state_lock, store)).await;
        started.map_err(|error| StartError { problem: error.problem + advice, ..error })
    }

    /// `config`: with the changes of the store.
    async fn with_store(
        config: Config,
        sources: Vec<Box<dyn Source>>,
        state_lock: StateLock,
        store: Store,
    ) -> Result<Arc<Self>, StartError> {
        let readiness = Arc::new(Readiness::default());
        let metrics =
            Arc::new(Metrics::new(&config.telemetry.metrics_namespace).map_err(component_error("telemetry"))?);
        let outbound = Outbound::new(&config.outbound).map_err(component_error("outbound"))?;
        let workspaces = workspaces(&config);
        store.work().free_things_of_earlier_processes().await.map_err(component_error("store"))?;
        let users = user_tokens(&config, &store)?;
        let loader = loader(&config, &outbound)?.with_user_tokens(&users);
        let registered = openapi::registered(&store.registrations()).await.map_err(component_error("store"))?;
        let wanted = DesiredCollections::of(&config.openapi, &registered);
        let none = Collections::default();
        let collections = Collections::load(wanted, &config.openapi, &loader, Wait::ForLocalDocuments, &none).await;
        let sandbox = sandbox(&config, &metrics, &readiness)?;
        let python = python_tools::read(&config, &sandbox, &PythonTools::default()).await;
        let lock = lock::read(&config).await?.map(Arc::new);
        let with = ReadWith { sandbox: &sandbox, outbound: &outbound, has_lock: lock.is_some(), may_compile: false };
        let own_components = components::read(&config, with, &Components::default()).await;
        let shared_lock = Arc::new(ArcSwapOption::from(lock.clone()));
        let switched = Arc::new(SwitchedSources::default());
        source_catalogue::restore(&store.source_requests(), &switched).await.map_err(component_error("store"))?;
        let mcp_servers = Arc::new(McpServers::new(
            outbound.clone(),
            Arc::clone(&readiness),
            Arc::clone(&metrics),
            Arc::clone(&shared_lock),
            Some(Arc::clone(&users)),
            Some(Arc::clone(&switched)),
        ));
        mcp::restore_servers(&store.registrations(), &mcp_servers, &config.mcp.secrets)
            .await
            .map_err(component_error("store"))?;
        let results = results(&config, &store, &metrics);
        let tools = ToolSet {
            outbound: &outbound,
            workspaces: &workspaces,
            sandbox: &sandbox,
            results: &results,
            metrics: &metrics,
            sources: &sources,
            python: Arc::clone(&python),
            components: Arc::clone(&own_components),
            mcp: SourceTools::default(),
            lock,
            switched: &switched,
            values: Arc::default(),
        };
        let snapshot = tools.rebuild(&config, &collections, &Snapshot::default())?;
        let registered_names = RegisteredNames::read(&store).await.map_err(component_error("store"))?;
        let own = OwnTools { python: &python, components: &own_components };
        let names = NameSources {
            snapshot: &snapshot,
            collections: &collections,
            own,
            // None has listed its tools yet.
            servers: &[],
            registered: &registered_names,
            skills: None,
        };
        refuse_misspelled(&config, &existing_names(&config, names))?;
        report_broken_collections(&readiness, &none, &collections);
        python_tools::report(&readiness, &PythonTools::default(), &python);
        components::offer(&sandbox, &readiness, &own_components);
        components::report(&readiness, &Components::default(), &own_components);
        report_unpriced_models(&readiness, &config);
        log_dangerous_operations(&config.tools, &none, &collections);
        lock::report_quarantine(&Snapshot::default(), &snapshot, &[], &readiness, &metrics);
        let keys = Keys::read(&config, &outbound, &store).await?;
        let pipeline = pipeline(&config, snapshot, metrics, &readiness, (&store, results), &outbound).await?;
        sandbox.connect(&(Arc::clone(&pipeline) as Arc<dyn ToolPipeline>));
        limit_tenants(&pipeline.budget, &config, &store.resources()).await.map_err(component_error("store"))?;
        let replica = cluster::register(&config, &pipeline.policy, &store, &readiness).await?;
        if let Some(replica) = &replica {
            // Before the usage of today is read.
            pipeline.budget.set_database_time(*replica.database_time());
        }
        let call_index = Arc::new(Box::pin(CallIndex::open(&config, &store, &pipeline.settlement, &readiness)).await?);
        let usage = WriteBehind::start(Arc::clone(&pipeline.budget), store.clone(), Arc::clone(&readiness))
            .await
            .map_err(component_error("store"))?;
        let blobs = blobs::open(&config, &outbound)?;
        if let Some(images) = blobs::session_images(&config, &store, blobs.as_ref(), replica.as_ref())? {
            sandbox.store_sessions_in(images);
        }
        let tool_offer = Arc::new(ToolOffer {
            configuration: Arc::new(Configuration::new(config)),
            pipeline,
            readiness,
            outbound,
            workspaces,
            sandbox,
            embedded: sources,
            mcp_servers,
            collections: ArcSwap::from_pointee(collections),
            python_tools: ArcSwap::new(python),
            components: ArcSwap::new(own_components),
            lock: shared_lock,
            switched,
            values: ArcSwap::default(),
            changing: Mutex::default(),
            collected: AtomicU64::default(),
            names_changed: Notify::new(),
        });
        let gateway = assemble(Parts {
            tool_offer,
            store,
            call_index,
            keys,
            users,
            loader,
            registered,
            registered_names,
            replica,
            blobs,
            usage,
            state_lock,
        });
        gateway.pipeline.registry.await_tools_of(Arc::clone(&gateway.mcp_servers) as Arc<dyn AwaitedTools>);
        gateway.mcp_servers.configure(&gateway.configuration.current());
        gateway.configuration_notes.look_for_unknown_names();
        gateway.start_background();
        Ok(gateway)
    }
}
