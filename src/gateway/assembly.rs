//! Makes a gateway of its parts: each capability gets the capabilities that it uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio_util::sync::CancellationToken;

use super::configuration_changes::ConfigurationChanges;
use super::housekeeping::Housekeeping;
use super::{
    BackgroundWork, CallApprovals, CallIndex, Cluster, ConfigurationNotes, Gateway, History, Keys, McpRegistrations,
    OpenapiCollections, PythonFunctions, RegisteredNames, SignIns, SourceCatalogue, Sources, Status, ToolOffer,
};
use sekisho_broker::Broker;
use sekisho_calls::budget::WriteBehind;
use sekisho_openapi::{Loader, OwnedRegistration};
use sekisho_outbound::blobs::Blobs;
use sekisho_store::Store;
use sekisho_store::replica::Replica;
use sekisho_store::state_lock::StateLock;
use sekisho_user_tokens::UserTokens;

/// The parts that a start has built.
pub(super) struct Parts {
    pub tool_offer: Arc<ToolOffer>,
    pub store: Store,
    pub call_index: Arc<CallIndex>,
    pub keys: Keys,
    pub users: Arc<UserTokens>,
    pub loader: Loader,
    /// The collections in the store.
    pub registered: BTreeMap<String, OwnedRegistration>,
    pub registered_names: RegisteredNames,
    pub replica: Option<Arc<Replica>>,
    pub blobs: Option<Blobs>,
    pub usage: WriteBehind,
    pub state_lock: StateLock,
}

pub(super) fn assemble(parts: Parts) -> Arc<Gateway> {
    let Parts { tool_offer, store, call_index, users, replica, .. } = parts;
    let (configuration, pipeline) = (Arc::clone(&tool_offer.configuration), Arc::clone(&tool_offer.pipeline));
    let (readiness, sandbox) = (Arc::clone(&tool_offer.readiness), Arc::clone(&tool_offer.sandbox));
    let (workspaces, background) = (tool_offer.workspaces.clone(), BackgroundWork::default());
    let keys = Arc::new(parts.keys);
    let history = Arc::new(History::new(&configuration, &pipeline, &call_index));
    let mcp_registrations = Arc::new(McpRegistrations::new(&tool_offer, &store));
    let collections = Arc::new(OpenapiCollections::new(&tool_offer, &store, parts.loader, parts.registered));
    let sources = Arc::new(Sources::new(&tool_offer, &collections, &history));
    let sign_ins = Arc::new(SignIns::new(&tool_offer, &background, users));
    let source_catalogue = Arc::new(SourceCatalogue::new(&tool_offer, &store));
    let configuration_notes = Arc::new(ConfigurationNotes::new(&tool_offer, &store, parts.registered_names));
    let status = Arc::new(Status {
        configuration: Arc::clone(&configuration),
        pipeline: Arc::clone(&pipeline),
        readiness: Arc::clone(&readiness),
        sandbox: Arc::clone(&sandbox),
        configuration_notes: Arc::clone(&configuration_notes),
        keys: Arc::clone(&keys),
        history: Arc::clone(&history),
        sources: Arc::clone(&sources),
        replica: replica.clone(),
    });
    let cluster = Arc::new(Cluster {
        configuration: Arc::clone(&configuration),
        pipeline: Arc::clone(&pipeline),
        readiness: Arc::clone(&readiness),
        store: store.clone(),
        workspaces: workspaces.clone(),
        status: Arc::clone(&status),
        mcp_registrations: Arc::clone(&mcp_registrations),
        collections: Arc::clone(&collections),
        source_catalogue: Arc::clone(&source_catalogue),
        replica,
        blobs: parts.blobs,
    });
    let housekeeping = Arc::new(Housekeeping {
        configuration: Arc::clone(&configuration),
        pipeline: Arc::clone(&pipeline),
        readiness: Arc::clone(&readiness),
        store: store.clone(),
        workspaces: workspaces.clone(),
        sandbox: Arc::clone(&sandbox),
        keys: Arc::clone(&keys),
        sign_ins: Arc::clone(&sign_ins),
        cluster: Arc::clone(&cluster),
    });
    Arc::new(Gateway {
        broker: Broker::new(Arc::clone(keys.own()), tool_offer.outbound.clone()),
        approvals: Arc::new(CallApprovals::new(&configuration, &pipeline)),
        changes: ConfigurationChanges::new(&store),
        python_functions: Arc::new(PythonFunctions::new(&tool_offer, &history)),
        outbound: tool_offer.outbound.clone(),
        mcp_servers: Arc::clone(&tool_offer.mcp_servers),
        pipeline,
        readiness,
        background,
        configuration,
        configuration_notes,
        keys,
        history,
        tool_offer,
        mcp_registrations,
        collections,
        sources,
        sign_ins,
        source_catalogue,
        status,
        cluster,
        housekeeping,
        workspaces,
        sandbox,
        store,
        call_index,
        usage: parts.usage,
        leaving: CancellationToken::new(),
        draining: CancellationToken::new(),
        state_lock: ArcSwapOption::from_pointee(parts.state_lock),
    })
}
