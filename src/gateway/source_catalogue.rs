//! The catalogue: sources that are allowed but off. Callers ask for one, and administrators switch it on, for a user, a key or a
//! tenant, and off again.

use std::sync::Arc;

use tokio::sync::Mutex;
use uuid::Uuid;

use super::{Configuration, ToolOffer};
use sekisho_calls::pipeline::Pipeline;
use sekisho_calls::tool::Metadata;
use sekisho_config::{ApprovalRule, Config, McpSandbox, ToolOverride};
use sekisho_core::administration::{Administrator, AdministratorProof, Ownership};
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::shortened;
use sekisho_core::source_access::SwitchedSources;
use sekisho_mcp_client::{Change, ExaminedTool, McpServers, granted_profile, named_packages};
use sekisho_store::{
    Audience, MAX_REQUESTS_OF_TENANT, NewSourceRequest, RequestState, SourceRequestFilter, SourceRequestStore, Store,
    StoreError, StoredSourceRequest,
};

/// Longest reason of a request, in bytes.
const MAX_REASON_BYTES: usize = 1_000;

/// The requests of one caller: one for each source and key.
const MAX_OF_CALLER: usize = 10_000;

/// A source of the catalogue, as a caller sees it.
#[derive(Debug, Clone)]
pub struct CatalogueEntry {
    pub source: String,
    /// Its purpose.
    pub text: String,
    /// Whether it is switched on for the caller.
    pub is_on: bool,
    /// The caller's own request.
    pub request: Option<StoredSourceRequest>,
}

/// What an administrator decides about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDecision {
    Approve(Audience),
    Refuse,
    Withdraw,
}

/// The profile of a source, for whoever decides about it.
#[derive(Debug, Clone)]
pub struct SourceProfile {
    pub source: String,
    pub text: String,
    /// The program with the packages that it fetches, or the origin of the server; empty for a collection.
    pub address: String,
    /// What its program is granted, as YAML, or why it cannot run; `sandbox: off` for a program without one.
    pub sandbox: Option<String>,
    pub tools: Vec<ProfileTool>,
    /// Why the tools are not known.
    pub problem: Option<String>,
}

/// A tool of a source, with the overrides of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileTool {
    pub name: String,
    pub is_dangerous: bool,
    /// A person must approve some of its calls.
    pub needs_approval: bool,
}

/// The sources of the catalogue, and the requests for them.
#[derive(Debug)]
pub struct SourceCatalogue {
    configuration: Arc<Configuration>,
    pipeline: Arc<Pipeline>,
    tool_offer: Arc<ToolOffer>,
    mcp_servers: Arc<McpServers>,
    store: SourceRequestStore,
    /// Held while a change of the store is taken over.
    changing: Mutex<()>,
    /// Held while a server is started to be looked at.
    examining: Mutex<()>,
}

/// Makes the switches equal to the store's; whether they were others.
pub(super) async fn restore(store: &SourceRequestStore, switched: &SwitchedSources) -> Result<bool, StoreError> {
    Ok(switched.replace(store.switched().await?))
}

impl SourceCatalogue {
    pub(super) fn new(tool_offer: &Arc<ToolOffer>, store: &Store) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            tool_offer: Arc::clone(tool_offer),
            mcp_servers: Arc::clone(&tool_offer.mcp_servers),
            store: store.source_requests(),
            changing: Mutex::default(),
            examining: Mutex::default(),
        }
    }

    /// The sources that the caller may ask for, in the order of their names.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn entries(&self, caller: &Caller) -> Result<Vec<CatalogueEntry>, CallError> {
        let config = self.configuration.current_arc();
        let (tenant, caller_key) = (Some(&*caller.tenant), Some(&*caller.key));
        let filter = SourceRequestFilter { tenant, caller_key, ..SourceRequestFilter::default() };
        let own = self.store.list(filter, MAX_OF_CALLER).await?;
        let open = config.catalogue.sources.iter().filter(|(source, _)| may_ask(&config, source, caller));
        let entry = |(source, text): (&String, &String)| CatalogueEntry {
            source: source.clone(),
            text: text.clone(),
            is_on: self.tool_offer.switched.admits(source, caller),
            request: own.iter().find(|request| request.source == *source).cloned(),
        };
        Ok(open.map(entry).collect())
    }

    /// Asks for a source. A request that waits or is approved stays as it is.
    /// Errors: `unauthenticated`, `not_found`, `invalid_request` for a reason that is too long; `overloaded` when the
    /// tenant has too many requests, or the store cannot be written.
    pub async fn ask(&self, caller: &Caller, source: &str, reason: &str) -> Result<StoredSourceRequest, CallError> {
        if caller.anonymous {
            let message = "only callers with a key or a token ask for a source; send one";
            return Err(CallError::new(ErrorCode::Unauthenticated, message));
        }
        if !may_ask(&self.configuration.current(), source, caller) {
            return Err(no_source(source));
        }
        if reason.len() > MAX_REASON_BYTES || reason.contains('\0') {
            let message = format!("`reason` has more than {MAX_REASON_BYTES} bytes, or a null character; shorten it");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        let new = NewSourceRequest {
            id: Uuid::new_v4().to_string(),
            source: source.to_owned(),
            tenant: caller.tenant.to_string(),
            caller_key: caller.key.to_string(),
            // Two callers may have one id: of a key, and of a token of an issuer.
            caller_id: Caller::parts_of_key(&caller.key).1.to_owned(),
            key_id: caller.key_id.as_deref().map(str::to_owned),
            reason: reason.to_owned(),
        };
        self.store.ask(&new).await?.ok_or_else(|| {
            let message = format!(
                "your tenant has {MAX_REQUESTS_OF_TENANT} requests for sources, which is the maximum; an administrator refuses or \
                 withdraws some"
            );
            CallError::new(ErrorCode::Overloaded, message)
        })
    }

    /// The requests of the tenants that the caller administers, the latest first. `after`: the last one of the page before.
    /// Errors: `denied`; `overloaded` when the store cannot be read.
    pub async fn requests(
        &self,
        by: &Caller,
        filter: SourceRequestFilter<'_>,
        max: usize,
    ) -> Result<Vec<StoredSourceRequest>, CallError> {
        by.require_administrator()?;
        let tenant = (!by.administers_shared()).then_some(&*by.tenant);
        Ok(self.store.list(SourceRequestFilter { tenant, ..filter }, max).await?)
    }

    /// A request of a tenant that the caller administers.
    /// Errors: `not_found`; `overloaded` when the store cannot be read.
    pub async fn request(&self, by: &Caller, id: &str) -> Result<StoredSourceRequest, CallError> {
        let missing = || CallError::new(ErrorCode::NotFound, "there is no such request for a source");
        let id = Uuid::try_parse(id).map_err(|_| missing())?;
        let request = self.store.get(&id.to_string()).await?.ok_or_else(missing)?;
        let owner = Ownership::Tenant(request.tenant.as_str().into());
        Administrator::for_owner(by, &owner).map_err(|_| missing())?;
        Ok(request)
    }

    /// Decides about a request, and switches its source on or off at once.
    /// Errors: as [`request`](Self::request); `invalid_request`: the request is in another state, or cannot be approved
    /// so.
    pub async fn decide(
        &self,
        by: &Caller,
        id: &str,
        decision: SourceDecision,
    ) -> Result<StoredSourceRequest, CallError> {
        let request = self.request(by, id).await?;
        self.check(&request, decision)?;
        let _changing = self.changing.lock().await;
        let is_decided = match decision {
            SourceDecision::Approve(audience) => {
                let to = (RequestState::Approved, Some(audience));
                self.store.decide(&request.id, RequestState::Asked, to, &by.id).await?
            }
            SourceDecision::Refuse => {
                self.store.decide(&request.id, RequestState::Asked, (RequestState::Refused, None), &by.id).await?
            }
            // A source that is withdrawn already may not be off here yet.
            SourceDecision::Withdraw => {
                self.store.withdraw(&request, &by.id).await? > 0 || request.state == RequestState::Withdrawn
            }
        };
        self.take_over().await?;
        let now = self.request(by, id).await?;
        if is_decided {
            return Ok(now);
        }
        let (state, needed) = (<&str>::from(now.state), decision.needs());
        let next = match now.state {
            RequestState::Refused | RequestState::Withdrawn => "the caller may ask again",
            RequestState::Asked | RequestState::Approved => "look at it again",
        };
        let message = format!("the request is {state}, and only one that is {needed} can be decided so; {next}");
        Err(CallError::new(ErrorCode::InvalidRequest, message))
    }

    fn check(&self, request: &StoredSourceRequest, decision: SourceDecision) -> Result<(), CallError> {
        let SourceDecision::Approve(audience) = decision else { return Ok(()) };
        let message = match audience {
            Audience::Key if request.key_id.is_none() => {
                "it was not asked with a managed key; approve it for `user` or `tenant`"
            }
            _ if !self.configuration.current().catalogue.has(&request.source) => {
                "its source is no longer in the catalogue; refuse it"
            }
            _ => return Ok(()),
        };
        Err(CallError::new(ErrorCode::InvalidRequest, message))
    }

    /// Takes over the decisions in the store, which another replica may have made.
    pub(super) async fn adopt(&self) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        self.take_over().await
    }

    /// The caller holds `changing`. The switches count for calls at once; servers that nobody has any more end, and the lists follow.
    async fn take_over(&self) -> Result<(), StoreError> {
        if restore(&self.store, &self.tool_offer.switched).await? {
            self.tool_offer.configure_servers().await;
            self.tool_offer.offer_mcp_tools().await;
            // A server that others have already does not announce its lists itself.
            self.mcp_servers.announce(Change::Resources(None));
            self.mcp_servers.announce(Change::Prompts(None));
        }
        Ok(())
    }

    /// The profile of a source. A server that nobody has yet is started once in its sandbox, to list its tools.
    /// Errors: `denied`, `not_found`.
    pub async fn profile(&self, by: &Caller, source: &str) -> Result<SourceProfile, CallError> {
        by.require_administrator()?;
        let config = self.configuration.current_arc();
        let text = config.catalogue.sources.get(source).cloned().ok_or_else(|| no_source(source))?;
        let (mut tools, mut problem) = (self.offered(source), None);
        let server = source.strip_prefix("mcp:");
        if let Some(server) = server.filter(|_| tools.is_empty()) {
            let _examining = self.examining.lock().await;
            match Box::pin(self.mcp_servers.examine(server, &config)).await {
                Ok(examined) => tools = examined.into_iter().filter_map(|tool| overridden(tool, &config)).collect(),
                Err(reason) => problem = Some(reason),
            }
        }
        let (address, sandbox) = match server.map(str::to_owned) {
            // It looks at files.
            Some(server) => tokio::task::spawn_blocking(move || place_of(&server, &config)).await,
            None => Ok((String::new(), None)),
        }
        .map_err(CallError::internal)?;
        Ok(SourceProfile { source: source.to_owned(), text, address, sandbox, tools, problem })
    }

    /// The tools of a source that are offered, or wait for the approval of the lock.
    fn offered(&self, source: &str) -> Vec<ProfileTool> {
        let snapshot = self.pipeline.registry.snapshot();
        let offered = snapshot.tools().iter().map(|tool| &tool.metadata);
        let held_back = snapshot.quarantined().map(|tool| &tool.metadata);
        let of_source = offered.chain(held_back).filter(|metadata| metadata.source == source);
        of_source.map(ProfileTool::of).collect()
    }
}

impl SourceDecision {
    /// The state that a request must have.
    fn needs(self) -> &'static str {
        match self {
            Self::Approve(_) | Self::Refuse => RequestState::Asked.into(),
            Self::Withdraw => RequestState::Approved.into(),
        }
    }
}

impl ProfileTool {
    fn of(metadata: &Metadata) -> Self {
        let (name, needs_approval) = (metadata.name.clone(), metadata.may_ask_itself());
        Self { name, is_dangerous: metadata.dangerous, needs_approval }
    }
}

/// The tool as it would be offered; `None` for a hidden one.
fn overridden(
    ExaminedTool { name, is_dangerous, needs_approval }: ExaminedTool,
    config: &Config,
) -> Option<ProfileTool> {
    let Some(changes) = config.tools.overrides.get(&name) else {
        return Some(ProfileTool { name, is_dangerous, needs_approval });
    };
    let ToolOverride { rename, hidden, dangerous, approval, .. } = changes;
    let tool = ProfileTool {
        name: rename.clone().unwrap_or(name),
        is_dangerous: dangerous.unwrap_or(is_dangerous),
        needs_approval: approval.map_or(needs_approval, |rule| rule != ApprovalRule::Never),
    };
    (*hidden != Some(true)).then_some(tool)
}

/// Where a server is, without what may be a secret, and what its program is granted.
fn place_of(server: &str, config: &Config) -> (String, Option<String>) {
    let Some(settings) = config.mcp.servers.get(server) else { return (String::new(), None) };
    let origin = settings.url.as_ref().map(|url| url.origin().ascii_serialization());
    let sandbox = match &settings.sandbox {
        _ if settings.command.is_none() => None,
        McpSandbox::Off => Some("sandbox: off".to_owned()),
        McpSandbox::On(_) => granted_profile(settings, config)
            .map(|granted| granted.map_or_else(|reason| reason, |profile| profile.to_string())),
    };
    let program = settings.command.as_ref().map(|program| match named_packages(settings) {
        Some(packages) => format!("{program} {packages}"),
        None => program.clone(),
    });
    (program.or(origin).unwrap_or_default(), sandbox)
}

/// Whether the catalogue has the source for this caller: not one that is disabled, or for roles that the caller lacks.
fn may_ask(config: &Config, source: &str, caller: &Caller) -> bool {
    let is_open = match source.split_once(':') {
        Some(("mcp", server)) => config.mcp.servers.get(server).is_some_and(|settings| {
            !settings.disabled && (settings.roles.is_empty() || caller.has_one_of(&settings.roles))
        }),
        Some(("openapi", collection)) => config.openapi.collections.contains_key(collection),
        _ => false,
    };
    is_open && config.catalogue.has(source)
}

fn no_source(source: &str) -> CallError {
    let source = shortened(source);
    let message = format!(
        "the catalogue has no source {source:?}; `GET /me/sources`, or `sekisho catalogue`, lists its sources, such as `mcp:NAME`"
    );
    CallError::new(ErrorCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gateway;
    use sekisho_config::McpServerSettings;

    #[tokio::test]
    async fn decisions_of_another_replica_are_taken_over_and_a_server_runs_only_while_somebody_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config { state_directory: Some(folder.path().to_owned()), ..Config::default() };
        let missing = McpServerSettings { command: Some("/nowhere/git".to_owned()), ..McpServerSettings::default() };
        config.mcp.servers.insert("git".to_owned(), missing);
        config.catalogue.sources.insert("mcp:git".to_owned(), "A repository.".to_owned());
        let gateway = Gateway::start(config).await.unwrap();
        let (ann, eve) = (Caller::new("ann", "acme", Vec::new()), Caller::new("eve", "globex", Vec::new()));
        let catalogue = &gateway.source_catalogue;
        let assert_on = async |of_ann: bool| {
            for (caller, expected) in [(&ann, of_ann), (&eve, false)] {
                assert_eq!(catalogue.entries(caller).await.unwrap()[0].is_on, expected, "{}", caller.id);
            }
            assert_eq!(gateway.mcp_servers.statuses().len(), usize::from(of_ann));
        };
        let asked = catalogue.ask(&ann, "mcp:git", "").await.unwrap();
        assert_on(false).await;
        let (store, to) = (gateway.store.source_requests(), (RequestState::Approved, Some(Audience::Tenant)));
        assert!(store.decide(&asked.id, RequestState::Asked, to, "ada").await.unwrap());
        assert_on(false).await;
        catalogue.adopt().await.unwrap();
        assert_on(true).await;
        let approved = store.get(&asked.id).await.unwrap().unwrap();
        assert_eq!(store.withdraw(&approved, "ada").await.unwrap(), 1);
        catalogue.adopt().await.unwrap();
        assert_on(false).await;
        for (caller, source, code) in [
            (&Caller::anonymous(), "mcp:git", ErrorCode::Unauthenticated),
            (&ann, "mcp:time", ErrorCode::NotFound),
            (&ann, "git", ErrorCode::NotFound),
        ] {
            assert_eq!(catalogue.ask(caller, source, "").await.unwrap_err().code(), code, "{source}");
        }
    }
}
