use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use http::HeaderName;
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    ClientCertificateConfig, McpOAuth, McpPrefix, McpSandbox, McpSandboxMode, McpSandboxNetwork, McpSignIn, check_http,
    check_overlay,
};
use crate::Secret;
use crate::breaker::BreakerOverrides;
use crate::check::Findings;
use crate::identity::{ExchangeSettings, Identity};
use crate::labels::Labels;
use crate::schema::Money;
use crate::tools::{TOOL_NAME_RULE, is_tool_name};
use sekisho_core::administration::Ownership;

/// One server: a program to start, or a URL.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerSettings {
    /// The program to start, with MCP over its standard input and output.
    pub command: Option<String>,
    pub args: Vec<String>,
    /// The program's environment, in addition to a few variables such as `PATH` and `HOME`: no others are passed on.
    pub env: BTreeMap<String, Secret>,
    /// The variables of `env` with a value that a variable, a file or a program gave (`${…}`).
    #[serde(skip)]
    pub env_references: BTreeSet<String>,
    /// The members of its entry in an `mcpServers` file that are not read.
    #[serde(skip)]
    pub unread: BTreeSet<String>,
    /// By `env.NAME` or `headers.NAME`, the variable that the member of an entry in an `mcpServers` file names.
    #[serde(skip)]
    pub variables: BTreeMap<String, String>,
    /// The working directory of the program.
    pub cwd: Option<PathBuf>,
    /// The sandbox of the program: `on`, `off`, or its grants beside its own files.
    pub sandbox: McpSandbox,
    /// `mcp.sandbox`, for the program.
    #[serde(skip)]
    pub sandbox_mode: McpSandboxMode,
    /// The files that the program uses are recorded: for a run by `sekisho mcp add --observe`, and in no file.
    #[serde(skip)]
    pub observed: bool,
    /// The server's URL; its host must be in `outbound.mcp_allowed_domains`.
    pub url: Option<Url>,
    /// Non-public addresses and address ranges (CIDR) that this server, its token server and its sign-in may have, or that a
    /// program in a sandbox may reach, in addition to those of `outbound.allow_networks`.
    pub allow_networks: Vec<String>,
    pub transport: McpTransport,
    pub client_certificate: Option<ClientCertificateConfig>,
    /// Sent with every request.
    pub headers: BTreeMap<String, Secret>,
    /// Like `headers`, with `${name}` replaced by the caller's own tokens (C12).
    pub headers_template: BTreeMap<String, String>,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Secret>,
    /// Client credentials of this server; by default those of `mcp.oauth` where `requires_auth` is set.
    pub oauth: Option<McpOAuth>,
    /// The server requires a token (A49).
    pub requires_auth: bool,
    /// The sign-in of users, for a server that requires one and has no other credentials here.
    pub sign_in: McpSignIn,
    /// As whom its tools are called. With `per_user` and `stored`, other credentials here only list them.
    pub identity: Identity,
    /// The header in which it takes the credentials of its callers, with `identity: stored`.
    pub credential_header: String,
    pub exchange: ExchangeSettings,
    /// Prefix of the tools' names instead of the server's name.
    pub alias: Option<String>,
    pub prefix: Option<McpPrefix>,
    /// Only tools whose names match one of these; `*` matches any text. Empty: all.
    pub include: Vec<String>,
    /// Excludes tools whose names match one of these.
    pub exclude: Vec<String>,
    /// Trust hints that relax a tool's checks: `readOnlyHint`, `idempotentHint`, `destructiveHint: false`.
    pub trusted: bool,
    /// The prepared server whose marks its tools get, such as `github`: they make tools stricter. `tools.overrides` counts before them.
    pub overlay: Option<String>,
    /// Disable the server.
    pub disabled: bool,
    pub category: String,
    /// Labels of its tools for policies, or a mapping with them and with where their results come from.
    pub labels: Labels,
    /// The caller must have one of these roles; empty: no role required.
    pub roles: Vec<String>,
    /// Calls per minute for each caller and tool, and each for reading resources, for prompts and for completions;
    /// `limits.mcp_tool_rate_limit` by default.
    pub rate_limit: Option<u32>,
    /// Settings of the server's circuit breaker that differ from `breaker`.
    pub breaker: BreakerOverrides,
    /// Price of one call of a tool in USD.
    #[schemars(with = "Money")]
    pub cost_per_use: Decimal,
    /// Maximum duration of one call, in seconds.
    pub timeout_seconds: u32,
    /// Maximum time from start to the list of its tools, in seconds.
    pub connect_timeout_seconds: u32,
    /// Maximum size of a message of the server, in bytes.
    pub max_message_bytes: usize,
    /// Maximum size of the description of a tool, in bytes; a longer one is cut, and says so.
    pub max_description_bytes: usize,
    /// Maximum tokens of the text of one result that a model gets; what is longer is cut. Budgets limit it further. A
    /// tool's own limit is in `tools.overrides`.
    pub max_text_tokens: u64,
    /// Maximum size of one result, in bytes; a larger one is refused.
    pub max_output_bytes: usize,
    /// The revision of the protocol that is used; by default the newest that the server supports, and for a client of an
    /// older revision one of those with a handshake, so that the server can send requests to it.
    pub revision: Option<McpRevision>,
    /// Which calls share one session with the server; a session may keep state from its calls.
    pub share: McpShare,
    /// Maximum sessions of callers with the server at once, and half as many of one caller; by default 64 of a
    /// program, each a process of its own, and 1 000 over HTTP. A further one ends an idle session.
    pub max_sessions: Option<usize>,
    /// A session without a call for this long ends, in seconds.
    pub session_idle_seconds: u32,
    /// Its owner. Servers of the configuration are shared.
    #[serde(skip)]
    pub owner: Ownership,
    /// It is in `catalogue.sources`.
    #[serde(skip)]
    pub on_request: bool,
}

/// Default for the maximum of sessions with a server.
const MAX_PROGRAMS: usize = 64;
const MAX_HTTP_SESSIONS: usize = 1_000;

/// Which calls share one session with a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpShare {
    /// Those of one client session of one caller; without a client session, those with the caller's `session_id`.
    #[default]
    Never,
    /// Those of all callers of a tenant.
    Tenant,
    /// All.
    All,
}

impl Default for McpServerSettings {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            env_references: BTreeSet::new(),
            unread: BTreeSet::new(),
            variables: BTreeMap::new(),
            cwd: None,
            sandbox: McpSandbox::default(),
            sandbox_mode: McpSandboxMode::On,
            observed: false,
            url: None,
            allow_networks: Vec::new(),
            transport: McpTransport::Auto,
            client_certificate: None,
            headers: BTreeMap::new(),
            headers_template: BTreeMap::new(),
            token: None,
            oauth: None,
            requires_auth: false,
            sign_in: McpSignIn::default(),
            identity: Identity::Shared,
            credential_header: "Authorization".into(),
            exchange: ExchangeSettings::default(),
            alias: None,
            prefix: None,
            include: Vec::new(),
            exclude: Vec::new(),
            trusted: false,
            overlay: None,
            disabled: false,
            category: "mcp".into(),
            labels: Labels::default(),
            roles: Vec::new(),
            rate_limit: None,
            breaker: BreakerOverrides::default(),
            cost_per_use: Decimal::ZERO,
            timeout_seconds: 30,
            connect_timeout_seconds: 30,
            max_message_bytes: 4 << 20,
            max_description_bytes: 16 << 10,
            max_text_tokens: 8_000,
            max_output_bytes: 1 << 20,
            revision: None,
            share: McpShare::Never,
            max_sessions: None,
            session_idle_seconds: 1_800,
            owner: Ownership::Shared,
            on_request: false,
        }
    }
}

/// The transport of a server with a URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// Streamable HTTP, and where the server does not support it, HTTP with SSE.
    #[default]
    Auto,
    StreamableHttp,
    /// HTTP with SSE, of revision 2024-11-05.
    Sse,
}

/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum McpRevision {
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

impl McpServerSettings {
    /// A note about the members of its entry in a file of another program that have no effect here.
    pub(super) fn unread_members(&self) -> Option<String> {
        let unread: Vec<_> = self.unread.iter().map(|member| format!("`{member}`")).collect();
        let nested =
            if self.unread.contains("options") { "; write `cwd` and `env` of `options` beside `command`" } else { "" };
        let open = match self.unread.contains("sandbox") {
            true => "; only an entry in `mcp.servers` or of `sekisho mcp add` has no sandbox",
            false => "",
        };
        (!unread.is_empty()).then(|| {
            let unread = unread.join(", ");
            format!("members of its entry in the `mcpServers` file that are not read: {unread}{nested}{open}")
        })
    }

    /// For an entry in a file of another program: it does not end the sandbox.
    pub(super) fn keep_sandbox(&mut self) {
        if self.sandbox == McpSandbox::Off {
            self.sandbox = McpSandbox::default();
            self.unread.insert("sandbox".to_owned());
        }
    }

    /// A note about members that are empty, since the variable that they name is not set.
    pub(super) fn unset_variables(&self) -> Option<String> {
        let is_unset = |member: &str| {
            let value = match member.split_once('.') {
                Some(("env", name)) => self.env.get(name),
                Some((_, name)) => self.headers.get(name),
                None => None,
            };
            value.is_some_and(|value| matches!(value.expose().trim(), "" | "Bearer"))
        };
        let unset = self.variables.iter().filter(|(member, _)| is_unset(member));
        let unset: Vec<_> = unset.map(|(member, variable)| format!("`{variable}` (`{member}`)")).collect();
        (!unset.is_empty())
            .then(|| format!("variables that are not set: {}; set them where the gateway is started", unset.join(", ")))
    }

    /// Maximum sessions of callers at once.
    pub fn max_sessions(&self) -> usize {
        self.max_sessions.unwrap_or(if self.command.is_some() { MAX_PROGRAMS } else { MAX_HTTP_SESSIONS })
    }

    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        let at = |key: &str| format!("{setting}.{key}");
        match (&self.command, &self.url) {
            (None, None) => findings.add(setting, "needs `command` or `url`", "set the program to start, or the URL"),
            (Some(_), Some(_)) => findings.add(setting, "has both `command` and `url`", "remove one of them"),
            (Some(command), None) => findings.name(&at("command"), command),
            (None, Some(url)) => check_http(url, &at("url"), findings),
        }
        if self.command.is_some() && !(self.headers.is_empty() && self.headers_template.is_empty()) {
            findings.add(at("headers"), "headers are not sent to a program", "set variables in `env`");
        }
        self.check_sandbox(&at("sandbox"), findings);
        findings.networks(&at("allow_networks"), &self.allow_networks);
        if self.command.is_some() && self.sandbox == McpSandbox::Off && !self.allow_networks.is_empty() {
            findings.add(at("allow_networks"), "a program without a sandbox reaches every address", "remove it");
        }
        if let Some(oauth) = &self.oauth {
            check_http(&oauth.token_url, &at("oauth.token_url"), findings);
        }
        self.sign_in.check(|key| at(&format!("sign_in.{key}")), findings);
        if self.alias.as_ref().is_some_and(|alias| !is_tool_name(alias)) {
            findings.add(at("alias"), "is not a valid server name", TOOL_NAME_RULE);
        }
        check_overlay(self.overlay.as_deref(), at("overlay"), findings);
        findings.name(&at("category"), &self.category);
        self.labels.check(&at("labels"), findings);
        findings.names(&at("roles"), &self.roles);
        findings.names(&at("include"), &self.include);
        findings.names(&at("exclude"), &self.exclude);
        findings.above_zero_or_none(&at("rate_limit"), self.rate_limit);
        self.breaker.check(&at("breaker"), findings);
        if self.cost_per_use < Decimal::ZERO {
            findings.add(at("cost_per_use"), "must not be below zero", "set an amount in USD, such as 0.001");
        }
        findings.duration(&at("timeout_seconds"), self.timeout_seconds.into());
        findings.duration(&at("connect_timeout_seconds"), self.connect_timeout_seconds.into());
        findings.above_zero(&at("max_message_bytes"), self.max_message_bytes);
        findings.above_zero(&at("max_description_bytes"), self.max_description_bytes);
        findings.above_zero(&at("max_text_tokens"), self.max_text_tokens);
        findings.above_zero(&at("max_output_bytes"), self.max_output_bytes);
        if self.transport == McpTransport::Sse && self.revision == Some(McpRevision::V2026_07_28) {
            findings.add(at("revision"), "does not have the transport `sse`", "remove one of the two");
        }
        if let Some(max) = self.max_sessions {
            findings.above_zero(&at("max_sessions"), max);
        }
        findings.duration(&at("session_idle_seconds"), self.session_idle_seconds.into());
        if self.share != McpShare::Never && !self.headers_template.is_empty() {
            let advice = "remove one of the two: with `headers_template` each caller has its own credentials";
            findings.add(at("share"), "callers with their own credentials cannot share a session", advice);
        }
        if self.client_certificate.is_some() {
            ClientCertificateConfig::check(self.url.as_ref(), at("client_certificate"), findings);
        }
        self.exchange.check(self.identity, &at("exchange"), findings);
        if HeaderName::try_from(&self.credential_header).is_err() {
            findings.add(at("credential_header"), "is not the name of a header", "write it like X-API-Key");
        }
        if self.identity != Identity::Shared {
            self.check_identity(at, findings);
        }
    }

    /// A note about a program with all rights of the gateway's user.
    pub(super) fn has_no_sandbox(&self) -> Option<String> {
        let is_open = self.command.is_some() && !self.disabled && self.sandbox == McpSandbox::Off;
        is_open.then(|| {
            "its program runs without a sandbox: it can read and change what the gateway's user can".to_owned()
        })
    }

    fn check_sandbox(&self, setting: &str, findings: &mut Findings) {
        if self.command.is_none() && self.sandbox != McpSandbox::default() {
            findings.add(setting, "only a program has a sandbox", "remove it");
        }
        let McpSandbox::On(sandbox) = &self.sandbox else { return };
        for (index, folder) in sandbox.folders.iter().enumerate() {
            if !folder.path.is_absolute() {
                let setting = format!("{setting}.folders[{index}].path");
                findings.add(setting, "is not an absolute path", "write it from the root, such as /srv/files");
            }
        }
        if let McpSandboxNetwork::Hosts(hosts) = &sandbox.network {
            findings.names(&format!("{setting}.network"), hosts);
        }
    }

    /// Where callers have their own credentials.
    fn check_identity(&self, at: impl Fn(&str) -> String, findings: &mut Findings) {
        if self.command.is_some() {
            let advice = "remove it: a program takes no sign-in, and gets credentials by `env`";
            findings.add(at("identity"), "callers have their own only at a server with a `url`", advice);
        }
        if self.share != McpShare::Never {
            let advice = "remove one of the two: with this `identity` each caller has its own credentials";
            findings.add(at("share"), "callers with their own credentials cannot share a session", advice);
        }
    }
}
