//! All MCP servers: which there are, what they offer together, and what changes there.
//!
//! Whatever the protocol gives is JSON as the protocol writes it (2025-11-25 and later), with the names and
//! URIs under their server's prefix.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use http::{HeaderMap, header};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::task::TaskTracker;
use url::Url;

use super::Change;
use super::catalogue::source;
use super::connect::{Connector, Reach};
use super::handler::News;
use super::http::HttpAccess;
use super::names::Names;
use super::registration::{Function, Registered};
use super::server::{Server, Surroundings};
use crate::call::{CallContext, Caller};
use crate::config::{Config, McpConfig, McpPrefix, McpServerSettings};
use crate::error::CallError;
use crate::metrics::Metrics;
use crate::outbound::{DomainList, InvalidDomain, Outbound};
use crate::readiness::Readiness;
use crate::sources::credentials::{Template, TemplateFault, TokenSource, bearer, sensitive};
use crate::sources::{Offer, Source, ToolDefinition, Unavailable};

/// Changes that a listener may be behind before it is told only that it missed some.
const CHANGES_KEPT: usize = 256;

/// How often connections that nobody uses are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// The servers, for as long as the gateway runs: a reload changes which they are.
#[derive(Debug)]
pub struct McpServers {
    outbound: Outbound,
    surroundings: Arc<Surroundings>,
    changes: broadcast::Sender<Change>,
    tools_changed: Arc<Notify>,
    running: ArcSwap<BTreeMap<String, Arc<Server>>>,
    /// Replaced and removed ones whose tools are still on offer.
    retiring: Mutex<Vec<Arc<Server>>>,
    /// Servers that cannot be set up, and why.
    unusable: ArcSwap<BTreeMap<String, String>>,
    /// Added at run time; the configuration's come before them.
    added: Mutex<BTreeMap<String, Registered>>,
    /// Single tools that were added, by their names.
    functions: ArcSwap<BTreeMap<String, ToolDefinition>>,
    tasks: TaskTracker,
}

/// Servers that end when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Retired(Vec<Arc<Server>>);

impl Drop for Retired {
    fn drop(&mut self) {
        self.0.iter().for_each(|server| server.stop.cancel());
    }
}

/// Why a server does not give what was asked for.
#[derive(Debug, Error)]
pub enum ServerFault {
    /// No server has it, or the caller may not use the server that does.
    #[error("there is no {0}")]
    Unknown(String),
    /// The server's own JSON-RPC error.
    #[error("{message}")]
    Refused { code: i32, message: String, data: Option<Value> },
    /// The server could not be asked.
    #[error(transparent)]
    Failed(#[from] CallError),
}

/// Why a server cannot even be tried.
#[derive(Debug, Error)]
enum Unusable {
    #[error(
        "{host} is not on the list of hosts MCP servers may stand on; add it to `outbound.mcp_allowed_domains` (MCP_ALLOWED_DOMAINS)"
    )]
    NotAllowed { host: String },
    #[error("`{0}` cannot be sent as a header")]
    Header(String),
    #[error("`headers_template`: {0}")]
    Template(#[from] TemplateFault),
    #[error("outbound.mcp_allowed_domains: {0}")]
    Domain(#[from] InvalidDomain),
    #[error("it has neither `command` nor `url`")]
    Nowhere,
}

impl McpServers {
    pub fn new(outbound: Outbound, readiness: Arc<Readiness>, metrics: Arc<Metrics>) -> Self {
        let changes = broadcast::Sender::new(CHANGES_KEPT);
        let tools_changed = Arc::new(Notify::new());
        let surroundings =
            Surroundings { readiness, metrics, changes: changes.clone(), tools_changed: Arc::clone(&tools_changed) };
        Self {
            outbound,
            surroundings: Arc::new(surroundings),
            changes,
            tools_changed,
            running: ArcSwap::default(),
            retiring: Mutex::default(),
            unusable: ArcSwap::default(),
            added: Mutex::default(),
            functions: ArcSwap::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Takes over which servers there are. One whose settings are the same goes on undisturbed; one whose
    /// settings changed keeps its tools on offer until it is connected anew. Nothing is waited for. Those that are
    /// no more serve calls until they [`retire`](Self::retire).
    pub fn configure(&self, config: &Config) {
        let before = self.running.load_full();
        let unusable_before = self.unusable.load_full();
        let (mut running, mut unusable) = (BTreeMap::new(), BTreeMap::new());
        let connecting = Arc::new(Semaphore::new(config.mcp.max_connecting));
        for (name, settings) in self.wanted(&config.mcp) {
            let known = before.get(&name);
            let limits = (config.mcp.max_tools_per_server, config.limits.mcp_tool_rate_limit);
            if let Some(server) = known.filter(|server| server.runs_as(&settings, limits)) {
                running.insert(name, Arc::clone(server));
                continue;
            }
            let listing = known.map(|server| server.listing.load_full()).unwrap_or_default();
            match self.connector(&name, settings, config, &connecting) {
                Ok((connector, templates)) => {
                    let surroundings = Arc::clone(&self.surroundings);
                    let server = Server::new(connector, templates, limits, surroundings, listing);
                    running.insert(name, server);
                }
                Err(problem) => {
                    unusable.insert(name, problem.to_string());
                }
            }
        }
        let mut functions = BTreeMap::new();
        for (name, registered) in self.additions().iter() {
            let Registered::Function(function) = registered else { continue };
            match self.function(function, config) {
                Ok(definition) => _ = functions.insert(name.clone(), definition),
                Err(problem) => _ = unusable.insert(name.clone(), problem.to_string()),
            }
        }
        self.functions.store(Arc::new(functions));
        for (name, server) in before.iter().filter(|(name, server)| is_new(&running, name, server)) {
            server.gives_way(running.contains_key(name));
            self.retiring().push(Arc::clone(server));
        }
        for name in unusable_before.keys().filter(|name| !unusable.contains_key(*name)) {
            self.surroundings.readiness.restore(&source(name));
        }
        for (name, problem) in &unusable {
            self.surroundings.readiness.degrade(&source(name), problem);
        }
        let started: Vec<_> = running.iter().filter(|(name, server)| is_new(&before, name, server)).collect();
        for (_, server) in started {
            self.tasks.spawn(Arc::clone(server).keep());
        }
        self.running.store(Arc::new(running));
        self.unusable.store(Arc::new(unusable));
        self.tools_changed.notify_one();
    }

    /// The servers that are no more; to be dropped once their tools are off the registry.
    pub fn retire(&self) -> Retired {
        Retired(std::mem::take(&mut *self.retiring()))
    }

    /// Adds a server that the configuration does not know, in the place of one added before under the same name;
    /// [`configure`](Self::configure) takes it over.
    pub fn add(&self, name: &str, registered: Registered) {
        self.additions().insert(name.to_owned(), registered);
    }

    pub fn added(&self, name: &str) -> bool {
        self.additions().contains_key(name)
    }

    pub fn added_count(&self) -> usize {
        self.additions().len()
    }

    /// Uses a server once, before it is added: connects, reads its lists, and lets it go.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn try_out(&self, name: &str, registered: &Registered, config: &Config) -> Result<(), String> {
        let problem = |problem: Unusable| problem.to_string();
        let settings = match registered {
            Registered::Function(function) => return self.function(function, config).map(drop).map_err(problem),
            Registered::Server(settings) => McpServerSettings::clone(settings),
        };
        let alone = Arc::new(Semaphore::new(1));
        let (connector, _) = self.connector(name, settings, config, &alone).map_err(problem)?;
        let session = connector.connect(&HeaderMap::new()).await?;
        connector.list(&session, config.mcp.max_tools_per_server).await.map(drop)
    }

    /// Waits until the server was connected or has failed once.
    pub async fn settled_one(&self, name: &str) {
        let server = self.running.load().get(name).cloned();
        if let Some(server) = server {
            server.settle().await;
        }
    }

    /// Waits until some server's tools are others than before.
    pub async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Tells clients that there are other tools.
    pub fn announce_tools(&self) {
        // Nobody may be listening.
        let _ = self.changes.send(Change::Tools);
    }

    /// Waits until each server was connected or has failed once.
    pub async fn settled(&self) {
        let running = self.running.load_full();
        join_all(running.values().map(|server| server.settle())).await;
    }

    /// Forgets connections of callers who come no more.
    pub async fn keep_house(&self) {
        let mut tick = tokio::time::interval(HOUSEKEEPING);
        loop {
            tick.tick().await;
            self.running.load().values().for_each(|server| server.forget_idle_callers());
        }
    }

    /// Ends all connections, and the programs behind them.
    pub async fn close(&self) {
        for server in self.running.swap(Arc::default()).values() {
            server.stop.cancel();
        }
        drop(self.retire());
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Why the tools of a source (`mcp:NAME`) cannot be used right now.
    pub fn degraded(&self, source: &str) -> Option<Arc<str>> {
        self.running.load().get(source.strip_prefix("mcp:")?)?.trouble()
    }

    /// The servers that cannot be used now, each with its reason.
    pub fn out_of_reach(&self) -> BTreeMap<String, String> {
        let running = self.running.load();
        let down = running.iter().filter_map(|(name, server)| Some((name.clone(), server.down()?.to_string())));
        let unusable = self.unusable.load();
        down.chain(unusable.iter().map(|(name, problem)| (name.clone(), problem.clone()))).collect()
    }

    /// What changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// `Resource` objects of the servers that `caller` may use, as last listed, in a fixed order.
    pub fn resources(&self, caller: &Caller) -> Vec<Value> {
        self.each_for(caller, |server| server.catalogue.load().resources.clone())
    }

    /// `ResourceTemplate` objects, as [`resources`](Self::resources).
    pub fn resource_templates(&self, caller: &Caller) -> Vec<Value> {
        self.each_for(caller, |server| server.catalogue.load().templates.clone())
    }

    /// `Prompt` objects, as [`resources`](Self::resources). Of two with one name the first server's is meant.
    pub fn prompts(&self, caller: &Caller) -> Vec<Value> {
        let mut names = std::collections::HashSet::new();
        let mut prompts = self.each_for(caller, |server| server.catalogue.load().prompts.clone());
        prompts.retain(|prompt| names.insert(prompt["name"].to_string()));
        prompts
    }

    /// What the servers that `caller` may use say about how to use them.
    pub fn instructions(&self, caller: &Caller) -> Option<String> {
        let said = self.each_for(caller, |server| {
            let said = server.catalogue.load().instructions.clone();
            said.map(|said| format!("{}: {said}", server.name())).into_iter().collect()
        });
        (!said.is_empty()).then(|| said.join("\n\n"))
    }

    /// `ReadResourceResult` of a resource of a server that the caller may use.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn read_resource(&self, call: &CallContext, uri: &str) -> Result<Value, ServerFault> {
        let (server, own) = self.of_resource(&call.caller, uri)?;
        let params = Map::from_iter([("uri".to_owned(), Value::String(own))]);
        let mut result = server.ask(call, "resources/read", params).await?;
        for content in result.get_mut("contents").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(Value::String(uri)) = content.get_mut("uri") {
                *uri = server.names().uri(uri);
            }
        }
        Ok(result)
    }

    /// Asks to be told ([`Change::Resource`]) when the resource changes. Each subscription asks for one
    /// [`unsubscribe`](Self::unsubscribe).
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn subscribe(&self, call: &CallContext, uri: &str) -> Result<(), ServerFault> {
        let (server, own) = self.of_resource(&call.caller, uri)?;
        server.subscribe(call, &own).await
    }

    /// Ends one subscription.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn unsubscribe(&self, call: &CallContext, uri: &str) -> Result<(), ServerFault> {
        let (server, own) = self.of_resource(&call.caller, uri)?;
        server.unsubscribe(call, &own).await
    }

    /// `GetPromptResult` of a listed prompt.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn get_prompt(
        &self,
        call: &CallContext,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, ServerFault> {
        let (server, own) = self.of_prompt(&call.caller, name)?;
        let mut params = Map::from_iter([("name".to_owned(), Value::String(own))]);
        if !arguments.is_empty() {
            params.insert("arguments".to_owned(), Value::Object(arguments.clone()));
        }
        let mut result = server.ask(call, "prompts/get", params).await?;
        for message in result.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(content) = message.get_mut("content") {
                server.names().adopt(content);
            }
        }
        Ok(result)
    }

    /// `CompleteResult` for the `params` of `completion/complete`: `ref`, `argument`, `context`.
    ///
    /// # Errors
    /// [`ServerFault`].
    pub async fn complete(&self, call: &CallContext, params: &Map<String, Value>) -> Result<Value, ServerFault> {
        let reference = params.get("ref").unwrap_or(&Value::Null);
        let field = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut params = params.clone();
        params.shift_remove("_meta");
        let (server, member, own) = if field("type") == "ref/prompt" {
            let (server, own) = self.of_prompt(&call.caller, field("name"))?;
            (server, "name", own)
        } else {
            let (server, own) = self.of_resource(&call.caller, field("uri"))?;
            (server, "uri", own)
        };
        if let Some(reference) = params.get_mut("ref") {
            reference[member] = own.into();
        }
        server.ask(call, "completion/complete", params).await
    }

    fn each_for<T>(&self, caller: &Caller, of: impl Fn(&Server) -> Vec<T>) -> Vec<T> {
        self.running.load().values().filter(|server| server.may_use(caller)).flat_map(|server| of(server)).collect()
    }

    /// The server that a URI belongs to, and its own URI. Of several without a prefix the one that lists it.
    fn of_resource(&self, caller: &Caller, uri: &str) -> Result<(Arc<Server>, String), ServerFault> {
        let running = self.running.load();
        let mut candidates = running.values().filter(|server| server.may_use(caller)).filter_map(|server| {
            let own = server.names().own_uri(uri)?;
            Some((Arc::clone(server), own.to_owned(), server.lists(uri), server.names().is_prefixed()))
        });
        let mut best = None;
        let unknown = || ServerFault::Unknown(format!("resource {uri:?}"));
        for (server, own, lists, prefixed) in &mut candidates {
            let rank = (prefixed, lists);
            if best.as_ref().is_none_or(|(_, _, before)| rank > *before) {
                best = Some((server, own, rank));
            }
        }
        let (server, own, _) = best.ok_or_else(unknown)?;
        Ok((server, own))
    }

    fn of_prompt(&self, caller: &Caller, name: &str) -> Result<(Arc<Server>, String), ServerFault> {
        let running = self.running.load();
        let found = running.values().filter(|server| server.may_use(caller)).find_map(|server| {
            let own = server.catalogue.load().prompt_names.get(name).cloned()?;
            Some((Arc::clone(server), own))
        });
        found.ok_or_else(|| ServerFault::Unknown(format!("prompt {name:?}")))
    }

    fn wanted(&self, config: &McpConfig) -> BTreeMap<String, McpServerSettings> {
        let mut wanted: BTreeMap<_, _> = self
            .additions()
            .iter()
            .filter_map(|(name, registered)| match registered {
                Registered::Server(settings) => Some((name.clone(), McpServerSettings::clone(settings))),
                Registered::Function(_) => None,
            })
            .collect();
        wanted.extend(config.servers.clone());
        wanted.retain(|_, settings| !settings.disabled);
        for settings in wanted.values_mut() {
            settings.prefix = Some(settings.prefix.unwrap_or(config.prefix));
            if settings.requires_auth && settings.oauth.is_none() {
                settings.oauth.clone_from(&config.oauth);
            }
        }
        wanted
    }

    fn additions(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retiring(&self) -> MutexGuard<'_, Vec<Arc<Server>>> {
        self.retiring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn function(&self, function: &Function, config: &Config) -> Result<ToolDefinition, Unusable> {
        let allowed = Arc::new(DomainList::parse(&config.outbound.mcp_allowed_domains)?);
        let settings = McpServerSettings { headers: function.headers.clone(), ..McpServerSettings::default() };
        let access = HttpAccess {
            outbound: self.outbound.clone(),
            url: listed(&function.registration.url, &allowed)?,
            allowed,
            headers: headers(&settings)?,
            tokens: None,
            max_message_bytes: settings.max_message_bytes,
        };
        Ok(function.definition(access, config.limits.mcp_tool_rate_limit))
    }

    fn connector(
        &self,
        name: &str,
        settings: McpServerSettings,
        config: &Config,
        connecting: &Arc<Semaphore>,
    ) -> Result<(Connector, Vec<Template>), Unusable> {
        let allowed = Arc::new(DomainList::parse(&config.outbound.mcp_allowed_domains)?);
        let reach = match (&settings.command, &settings.url) {
            (Some(program), _) => Reach::Program(program.clone()),
            (None, Some(url)) => Reach::Http(Arc::new(HttpAccess {
                outbound: self.outbound.clone(),
                url: listed(url, &allowed)?,
                allowed,
                headers: headers(&settings)?,
                tokens: settings.oauth.as_ref().map(|oauth| {
                    let url = oauth.token_url.clone();
                    Arc::new(TokenSource::new(url, &oauth.client_id, &oauth.client_secret, &oauth.scopes))
                }),
                max_message_bytes: settings.max_message_bytes,
            })),
            (None, None) => return Err(Unusable::Nowhere),
        };
        let templates = settings.headers_template.iter();
        let templates = templates.map(|(name, text)| Template::parse(name, text)).collect::<Result<_, _>>()?;
        let prefix = match settings.prefix {
            Some(McpPrefix::Never) => None,
            _ => Some(settings.alias.as_deref().unwrap_or(name)),
        };
        let news = News { lists_changed: Notify::new(), names: Names::new(prefix), changes: self.changes.clone() };
        let connector = Connector {
            name: name.into(),
            reach,
            news: Arc::new(news),
            connecting: Arc::clone(connecting),
            era: Default::default(),
            speaks_sse: Default::default(),
            settings,
        };
        Ok((connector, templates))
    }
}

/// The URL, if its host is on the list.
fn listed(url: &Url, allowed: &DomainList) -> Result<Url, Unusable> {
    match allowed.allows(url) {
        true => Ok(url.clone()),
        false => Err(Unusable::NotAllowed { host: url.host_str().unwrap_or_default().to_owned() }),
    }
}

fn is_new(before: &BTreeMap<String, Arc<Server>>, name: &str, server: &Arc<Server>) -> bool {
    !before.get(name).is_some_and(|known| Arc::ptr_eq(known, server))
}

/// What goes with every request, credentials among it.
fn headers(settings: &McpServerSettings) -> Result<HeaderMap, Unusable> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let (name, value) = sensitive(name, value.expose()).ok_or_else(|| Unusable::Header(name.clone()))?;
        headers.insert(name, value);
    }
    if let Some(token) = &settings.token {
        let value = bearer(token.expose()).ok_or_else(|| Unusable::Header("token".to_owned()))?;
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

impl Source for McpServers {
    fn name(&self) -> &str {
        "mcp"
    }

    fn tools(&self) -> Offer {
        let mut offer = Offer::default();
        for server in self.running.load().values() {
            let catalogue = server.catalogue.load();
            offer.tools.extend(catalogue.tools.iter().cloned());
            offer.unavailable.extend(catalogue.unavailable.iter().cloned());
        }
        offer.tools.extend(self.functions.load().values().cloned());
        let unusable = self.unusable.load();
        offer.unavailable.extend(
            unusable.iter().map(|(name, problem)| Unavailable { tool: format!("{name}__*"), reason: problem.clone() }),
        );
        offer
    }
}
