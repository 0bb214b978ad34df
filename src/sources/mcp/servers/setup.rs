//! What the settings of a server come to: where it is, what is sent to it, and how it may be reached at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, header};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore};
use url::Url;

use super::McpServers;
use crate::config::{Config, McpConfig, McpPrefix, McpServerSettings};
use crate::outbound::{DomainList, InvalidDomain};
use crate::sources::ToolDefinition;
use crate::sources::credentials::{Template, TemplateFault, TokenSource, bearer, sensitive};
use crate::sources::mcp::connect::{Connector, Reach};
use crate::sources::mcp::handler::News;
use crate::sources::mcp::http::HttpAccess;
use crate::sources::mcp::names::Names;
use crate::sources::mcp::registration::{Function, Registered};

/// Why a server cannot even be tried.
#[derive(Debug, Error)]
pub(super) enum Unusable {
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
    pub(super) fn wanted(&self, config: &McpConfig) -> BTreeMap<String, McpServerSettings> {
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

    pub(super) fn function(&self, function: &Function, config: &Config) -> Result<ToolDefinition, Unusable> {
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

    pub(super) fn connector(
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
