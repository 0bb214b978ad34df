//! Derives from a server's settings its endpoint, the headers sent to it, and whether it may be reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore};
use url::Url;

use super::McpServers;
use crate::auth::{McpProvider, SignIn};
use crate::connection_record::ConnectionRecord;
use crate::names::Names;
use crate::registration::{Function, Registered};
use crate::server::catalogue::source;
use crate::server::connect::Connector;
use crate::server::endpoint::Endpoint;
use crate::server::handler::ServerEvents;
use crate::server::handshake::Handshake;
use crate::server_network::ServerNetwork;
use crate::transport::authorized_http::{AuthorizedHttp, Tokens};
use crate::transport::program_sandbox::{ProgramSandbox, installer_of};
use sekisho_calls::tool::ToolDefinition;
use sekisho_config::{Config, Identity, McpOAuth, McpPrefix, McpServerSettings};
use sekisho_outbound::{DomainList, InvalidDomain, InvalidNetwork, Outbound, OutboundError, Trust};
use sekisho_process_sandbox::network::Connections;
use sekisho_user_tokens::credentials::{Template, TemplateError, TokenSource, bearer, sensitive};
use sekisho_user_tokens::{CredentialHeader, Provider, TokenExchange, TokenRequests, UserSource};

/// Why a server cannot be set up.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    #[error(
        "{host} is not an allowed host for MCP servers; add it to `outbound.mcp_allowed_domains` (MCP_ALLOWED_DOMAINS)"
    )]
    NotAllowed { host: String },
    #[error("`{0}` is not a valid header")]
    Header(String),
    #[error("`headers_template`: {0}")]
    Template(#[from] TemplateError),
    #[error("outbound.mcp_allowed_domains: {0}")]
    Domain(#[from] InvalidDomain),
    #[error(transparent)]
    Network(#[from] InvalidNetwork),
    #[error("`client_certificate`: {0}")]
    Certificate(#[from] OutboundError),
    #[error("`sandbox.network`: {0}")]
    SandboxHost(InvalidDomain),
    #[error("it has neither `command` nor `url`")]
    Nowhere,
}

impl McpServers {
    /// The servers to connect; a server of the catalogue only while somebody has it.
    pub(super) fn wanted(&self, config: &Config) -> BTreeMap<String, McpServerSettings> {
        let mut wanted = self.allowed(config);
        let is_in_use =
            |name: &str| self.context.switched.as_ref().is_none_or(|switched| switched.is_in_use(&source(name)));
        wanted.retain(|name, settings| !settings.on_request || is_in_use(name));
        wanted
    }

    /// All servers that are not disabled.
    pub(super) fn allowed(&self, config: &Config) -> BTreeMap<String, McpServerSettings> {
        let (catalogue, config) = (&config.catalogue, &config.mcp);
        let mut wanted: BTreeMap<_, _> = self
            .added
            .lock()
            .iter()
            .filter_map(|(name, registered)| match registered {
                Registered::Server(settings) => Some((name.clone(), McpServerSettings::clone(settings))),
                Registered::Function(_) => None,
            })
            .collect();
        wanted.extend(config.servers.clone());
        wanted.retain(|_, settings| !settings.disabled);
        for (name, settings) in &mut wanted {
            settings.on_request = catalogue.has(&source(name));
            settings.prefix = Some(settings.prefix.unwrap_or(config.prefix));
            settings.sandbox_mode = config.sandbox;
            if settings.requires_auth && settings.oauth.is_none() {
                settings.oauth.clone_from(&config.oauth);
            }
        }
        wanted
    }

    pub(super) fn function(&self, function: &Function, config: &Config) -> Result<ToolDefinition, Unusable> {
        let allowed = Arc::new(DomainList::parse(&config.outbound.mcp_allowed_domains)?);
        let settings = McpServerSettings { headers: function.headers.clone(), ..McpServerSettings::default() };
        let access = AuthorizedHttp {
            outbound: self.outbound.clone(),
            url: listed(&function.registration.url, &allowed)?,
            allowed,
            headers: headers(&settings)?,
            tokens: Tokens::None,
            last_token: Arc::default(),
            trust: Trust::Caller,
            max_message_bytes: settings.max_message_bytes,
        };
        Ok(function.definition(access, config.limits.mcp_tool_rate_limit))
    }

    /// The client for one server. A registered server has no key of its own.
    fn outbound_for(&self, name: &str, settings: &McpServerSettings, config: &Config) -> Result<Outbound, Unusable> {
        if !config.mcp.servers.contains_key(name) {
            return Ok(self.outbound.clone());
        }
        let key = format!("mcp.servers.{name}.allow_networks");
        let outbound = self.outbound.for_source(&settings.allow_networks, &key)?;
        match &settings.client_certificate {
            Some(files) => Ok(outbound.with_client_certificate(&files.certificate, &files.key)?),
            None => Ok(outbound),
        }
    }

    /// What makes the connections of a program in a sandbox.
    fn connections(
        &self,
        name: &str,
        settings: &McpServerSettings,
        config: &Config,
        record: &Arc<ConnectionRecord>,
    ) -> Result<Option<Arc<dyn Connections>>, Unusable> {
        if settings.command.is_none() {
            return Ok(None);
        }
        let outbound = self.outbound_for(name, settings, config)?;
        let network = ServerNetwork::new(name, settings, &outbound, &self.context.metrics, record);
        let network: Arc<dyn Connections> = network.map_err(Unusable::SandboxHost)?;
        Ok(Some(network))
    }

    fn tokens(
        &self,
        name: &str,
        url: &Url,
        settings: &McpServerSettings,
        outbound: &Outbound,
        allowed: &Arc<DomainList>,
    ) -> Tokens {
        if let Some(McpOAuth { token_url, client_id, client_secret, scopes }) = &settings.oauth {
            return Tokens::Client(Arc::new(TokenSource::new(token_url.clone(), client_id, client_secret, scopes)));
        }
        if settings.identity != Identity::Shared || identifies_the_gateway(settings) {
            return Tokens::None;
        }
        let running = self.running.load();
        let of_owner = running.get(name).filter(|server| server.settings().owner == settings.owner);
        let before = of_owner.and_then(|server| server.connector.sign_in());
        if let Some(known) = before.filter(|known| known.serves(url, &settings.sign_in, outbound, allowed)) {
            return Tokens::User(Arc::clone(known));
        }
        let (outbound, allowed) = (outbound.clone(), Arc::clone(allowed));
        Tokens::User(SignIn::new(name.into(), url.clone(), settings.sign_in.clone(), outbound, allowed))
    }

    /// Where the callers of a server get their own tokens.
    fn new_user_source(&self, name: &str, settings: &McpServerSettings, reach: &Endpoint) -> Option<Arc<UserSource>> {
        let Endpoint::Http(access) = reach else { return None };
        let tokens = self.users.as_ref().filter(|_| settings.identity.is_kept())?;
        let AuthorizedHttp { outbound, allowed, url, .. } = &**access;
        let (outbound, allowed) = (outbound.clone(), Arc::clone(allowed));
        let provider: Box<dyn Provider> = if settings.identity == Identity::Stored {
            // The check of the configuration has reported another name.
            Box::new(CredentialHeader(HeaderName::try_from(&settings.credential_header).ok()?))
        } else {
            let (outbound, allowed) = (outbound.clone(), Arc::clone(&allowed));
            Box::new(McpProvider::new(url.clone(), settings.sign_in.clone(), outbound, allowed))
        };
        let requests = TokenRequests { outbound, allowed, is_secure: url.scheme() == "https" };
        Some(UserSource::new(source(name), url.to_string(), tokens, requests, provider))
    }

    pub(super) fn connector(
        &self,
        name: &str,
        settings: McpServerSettings,
        config: &Config,
        connecting: &Arc<Semaphore>,
    ) -> Result<(Connector, Vec<Template>), Unusable> {
        let allowed = Arc::new(DomainList::parse(&config.outbound.mcp_allowed_domains)?);
        let reach = match (&settings.command, &settings.url) {
            (Some(program), _) => Endpoint::Program(program.clone()),
            (None, Some(url)) => {
                let outbound = self.outbound_for(name, &settings, config)?;
                Endpoint::Http(Arc::new(AuthorizedHttp {
                    url: listed(url, &allowed)?,
                    headers: headers(&settings)?,
                    tokens: self.tokens(name, url, &settings, &outbound, &allowed),
                    last_token: Arc::default(),
                    trust: Trust::Caller,
                    outbound,
                    allowed,
                    max_message_bytes: settings.max_message_bytes,
                }))
            }
            (None, None) => return Err(Unusable::Nowhere),
        };
        let templates = settings.headers_template.iter();
        let templates = templates.map(|(name, text)| Template::parse(name, text)).collect::<Result<_, _>>()?;
        let prefix = match settings.prefix {
            Some(McpPrefix::Never) => None,
            _ => Some(settings.alias.as_deref().unwrap_or(name)),
        };
        let events =
            ServerEvents { lists_changed: Notify::new(), names: Names::new(prefix), changes: self.changes.clone() };
        let record = Arc::default();
        let connections = self.connections(name, &settings, config, &record)?;
        // Its registries are no hosts of the server.
        let installer = installer_of(&settings);
        let of_installer =
            installer.map(|installer| self.connections(name, &installer, config, &Arc::default())).transpose()?;
        let connector = Connector {
            name: name.into(),
            user_source: self.new_user_source(name, &settings, &reach),
            exchange: exchange(name, &settings, &reach),
            reach,
            sandbox: ProgramSandbox::new(config, connections, record, of_installer.flatten()),
            events: Arc::new(events),
            connecting: Arc::clone(connecting),
            beginning: Semaphore::new(config.mcp.max_connecting),
            era: Handshake::new(settings.revision),
            speaks_sse: Default::default(),
            settings,
        };
        Ok((connector, templates))
    }
}

/// How a token for the server is made of the caller's.
fn exchange(name: &str, settings: &McpServerSettings, reach: &Endpoint) -> Option<Arc<TokenExchange>> {
    let Endpoint::Http(access) = reach else { return None };
    let AuthorizedHttp { outbound, allowed, url, .. } = &**access;
    let (outbound, allowed) = (outbound.clone(), Arc::clone(allowed));
    let requests = TokenRequests { outbound, allowed, is_secure: url.scheme() == "https" };
    TokenExchange::new(source(name), settings.identity, &settings.exchange, requests)
}

/// A user's sign-in is used only if the configuration has no credentials.
fn identifies_the_gateway(settings: &McpServerSettings) -> bool {
    let mut headers = settings.headers.keys().chain(settings.headers_template.keys());
    settings.token.is_some() || headers.any(|name| name.eq_ignore_ascii_case(header::AUTHORIZATION.as_str()))
}

/// The URL, if its host is allowed.
fn listed(url: &Url, allowed: &DomainList) -> Result<Url, Unusable> {
    match allowed.allows(url) {
        true => Ok(url.clone()),
        false => Err(Unusable::NotAllowed { host: url.host_str().unwrap_or_default().to_owned() }),
    }
}

/// The headers of every request, including credentials.
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
