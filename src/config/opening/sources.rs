//! Collections and MCP servers: where their calls go, as whom, and which tools they have.

use std::collections::BTreeMap;

use super::Comparison;
use crate::mcp::is_host_with_port;
use crate::{
    AuthSettings, CatalogueConfig, CollectionSettings, DangerousOperations, ExchangeSettings, McpConfig, McpEndpoint,
    McpOAuth, McpSandboxMode, McpServerSettings, McpShare, McpSignIn, OpenApiConfig, SchemeCredentials,
};

pub(super) fn openapi(at: &mut Comparison<'_>, was: &OpenApiConfig, is: &OpenApiConfig) {
    let OpenApiConfig { collections, adapters, secrets: _ } = was;
    at.below("collections").in_both(collections, &is.collections, collection);
    // Callers cannot choose values that an adapter fills in.
    at.below("adapters").in_both(adapters, &is.adapters, |at, was, is| at.altered("", was != is));
    let gone = adapters.keys().filter(|name| !is.adapters.contains_key(*name));
    gone.for_each(|name| at.below("adapters").add(name, "as it is", "removed"));
}

/// A source that leaves the catalogue is there for all callers.
pub(super) fn catalogue(at: &mut Comparison<'_>, was: &CatalogueConfig, is: &CatalogueConfig) {
    let CatalogueConfig { sources } = was;
    let names = |sources: &BTreeMap<String, String>| sources.keys().cloned().collect::<Vec<_>>();
    at.fewer("sources", &names(sources), &names(&is.sources));
}

fn collection(at: &mut Comparison<'_>, was: &CollectionSettings, is: &CollectionSettings) {
    let CollectionSettings {
        spec_url,
        spec_file,
        spec_inline,
        auth_type: _,
        auth_config,
        credentials,
        identity,
        exchange,
        category: _,
        labels,
        base_cost_per_use,
        operations,
        tags,
        paths,
        methods,
        dangerous,
        renames,
        descriptions: _,
        media_types: _,
        base_url,
        allow_networks,
        rate_limit,
        timeout_seconds: _,
        max_response_bytes,
        overlays,
        vendor_adapter: _,
        pagination: _,
        owner: _,
    } = was;
    at.changed("spec_url", spec_url, &is.spec_url);
    at.changed("spec_file", spec_file, &is.spec_file);
    at.altered("spec_inline", *spec_inline != is.spec_inline);
    at.changed("overlays", overlays, &is.overlays);
    at.changed("base_url", base_url, &is.base_url);
    at.wider("allow_networks", allow_networks, &is.allow_networks);
    auth_settings(&mut at.below("auth_config"), auth_config, &is.auth_config);
    let adapter = |of: &CollectionSettings| of.adapter_name().map(str::to_owned);
    at.changed("vendor_adapter", &adapter(was), &adapter(is));
    at.below("credentials").in_both(credentials, &is.credentials, scheme);
    at.changed("identity", identity, &is.identity);
    self::exchange(at, exchange, &is.exchange);
    at.altered("labels", labels.opens(&is.labels));
    at.lower("base_cost_per_use", base_cost_per_use, &is.base_cost_per_use);
    at.wider_choice("operations", operations, &is.operations);
    at.wider_choice("tags", tags, &is.tags);
    at.wider_choice("paths", paths, &is.paths);
    at.wider_choice("methods", methods, &is.methods);
    let DangerousOperations { methods, operations, tags, words } = dangerous;
    at.fewer("dangerous.methods", methods, &is.dangerous.methods);
    at.fewer("dangerous.operations", operations, &is.dangerous.operations);
    at.fewer("dangerous.tags", tags, &is.dangerous.tags);
    at.unset("dangerous.words", *words, is.dangerous.words);
    // Rules name tools.
    at.changed("renames", renames, &is.renames);
    at.higher("rate_limit", rate_limit, &is.rate_limit);
    at.higher("max_response_bytes", max_response_bytes, &is.max_response_bytes);
}

fn auth_settings(at: &mut Comparison<'_>, was: &AuthSettings, is: &AuthSettings) {
    let AuthSettings {
        // Compared as the name of the adapter.
        vendor: _,
        api_key: _,
        api_key_name: _,
        token: _,
        username: _,
        password: _,
        client_id: _,
        client_secret: _,
        extra_headers: _,
        headers_template,
        hosts,
    } = was;
    // With tokens of callers.
    at.changed("headers_template", headers_template, &is.headers_template);
    at.wider("hosts", hosts, &is.hosts);
}

fn scheme(at: &mut Comparison<'_>, was: &SchemeCredentials, is: &SchemeCredentials) {
    let SchemeCredentials {
        api_key: _,
        token: _,
        username: _,
        password: _,
        client_id: _,
        client_secret: _,
        token_url,
        scopes,
        certificate_file: _,
        key_file: _,
    } = was;
    at.changed("token_url", token_url, &is.token_url);
    at.changed("scopes", scopes, &is.scopes);
}

fn exchange(at: &mut Comparison<'_>, was: &ExchangeSettings, is: &ExchangeSettings) {
    let ExchangeSettings { token_url, grant, client_id, client_secret: _, audience, resource, scopes, actor } = was;
    at.changed("exchange.token_url", token_url, &is.token_url);
    at.altered("exchange.grant", *grant != is.grant);
    at.changed("exchange.client_id", client_id, &is.client_id);
    at.changed("exchange.audience", audience, &is.audience);
    at.changed("exchange.resource", resource, &is.resource);
    at.changed("exchange.scopes", scopes, &is.scopes);
    at.changed("exchange.actor", actor, &is.actor);
}

pub(super) fn mcp(at: &mut Comparison<'_>, was: &McpConfig, is: &McpConfig) {
    let McpConfig {
        servers,
        // Their servers are among the others.
        files: _,
        prefix,
        secrets: _,
        oauth: client,
        max_tools_per_server,
        max_connecting: _,
        sandbox,
        endpoints,
    } = was;
    at.below("servers").in_both(servers, &is.servers, server);
    at.changed("prefix", prefix, &is.prefix);
    oauth(at, client.as_ref(), is.oauth.as_ref());
    at.higher("max_tools_per_server", max_tools_per_server, &is.max_tools_per_server);
    at.altered("sandbox", *sandbox == McpSandboxMode::Required && is.sandbox == McpSandboxMode::On);
    at.below("endpoints").in_both(endpoints, &is.endpoints, |at, was, is| {
        let McpEndpoint { tools, roles, instructions: _, search: _, code_mode: _, results: _, max_name_length: _ } =
            was;
        at.wider_choice("tools", tools, &is.tools);
        at.wider_choice("roles", roles, &is.roles);
    });
}

fn oauth(at: &mut Comparison<'_>, was: Option<&McpOAuth>, is: Option<&McpOAuth>) {
    if let (Some(was), Some(is)) = (was, is) {
        let McpOAuth { token_url, client_id: _, client_secret: _, scopes } = was;
        at.changed("oauth.token_url", token_url, &is.token_url);
        at.wider("oauth.scopes", scopes, &is.scopes);
    }
}

fn server(at: &mut Comparison<'_>, was: &McpServerSettings, is: &McpServerSettings) {
    let McpServerSettings {
        command,
        args,
        // Compared without credentials, which are changed in turns.
        env: _,
        env_references: _,
        unread: _,
        variables: _,
        cwd,
        sandbox,
        // Compared once for all.
        sandbox_mode: _,
        observed: _,
        url,
        allow_networks,
        transport: _,
        client_certificate: _,
        headers: _,
        headers_template,
        token: _,
        oauth: client,
        requires_auth: _,
        sign_in,
        identity,
        credential_header: _,
        exchange: exchanged,
        alias,
        prefix,
        include,
        exclude,
        trusted,
        overlay,
        disabled,
        category: _,
        labels,
        roles,
        rate_limit,
        breaker: _,
        cost_per_use,
        timeout_seconds: _,
        connect_timeout_seconds: _,
        max_message_bytes,
        max_description_bytes,
        max_text_tokens,
        max_output_bytes,
        revision: _,
        share,
        max_sessions,
        session_idle_seconds: _,
        owner: _,
        on_request: _,
    } = was;
    at.changed("command", command, &is.command);
    // They may have secrets.
    at.altered("args", *args != is.args);
    let (env, env_is) = (was.env_without_credentials(), is.env_without_credentials());
    at.altered("env", env_is.iter().any(|(name, value)| names_place(value) && env.get(name) != Some(value)));
    at.changed("cwd", cwd, &is.cwd);
    at.altered("sandbox", sandbox.opens(&is.sandbox));
    at.changed("url", url, &is.url);
    at.wider("allow_networks", allow_networks, &is.allow_networks);
    at.changed("headers_template", headers_template, &is.headers_template);
    oauth(at, client.as_ref(), is.oauth.as_ref());
    let McpSignIn { client_id: _, client_secret: _, issuer, client_metadata_url: _, scopes } = sign_in;
    at.changed("sign_in.issuer", issuer, &is.sign_in.issuer);
    at.changed("sign_in.scopes", scopes, &is.sign_in.scopes);
    at.changed("identity", identity, &is.identity);
    exchange(at, exchanged, &is.exchange);
    // Rules name tools.
    at.changed("alias", alias, &is.alias);
    at.changed("prefix", prefix, &is.prefix);
    at.wider_choice("include", include, &is.include);
    at.fewer("exclude", exclude, &is.exclude);
    at.set("trusted", *trusted, is.trusted);
    at.replaced("overlay", overlay, &is.overlay);
    at.unset("disabled", *disabled, is.disabled);
    at.altered("labels", labels.opens(&is.labels));
    at.wider_choice("roles", roles, &is.roles);
    at.higher_or_gone("rate_limit", rate_limit, &is.rate_limit);
    at.lower("cost_per_use", cost_per_use, &is.cost_per_use);
    at.higher("max_message_bytes", max_message_bytes, &is.max_message_bytes);
    at.higher("max_description_bytes", max_description_bytes, &is.max_description_bytes);
    at.higher("max_text_tokens", max_text_tokens, &is.max_text_tokens);
    at.higher("max_output_bytes", max_output_bytes, &is.max_output_bytes);
    at.rises("share", share, &is.share, |share| match share {
        McpShare::Never => 0,
        McpShare::Tenant => 1,
        McpShare::All => 2,
    });
    at.higher_or_gone("max_sessions", max_sessions, &is.max_sessions);
}

/// Whether a value of `env` names a file, a folder or a service, which a program in a sandbox is granted for that.
fn names_place(value: &str) -> bool {
    let names = |text: &str| {
        let text = text.trim();
        let is_path = ["/", "~/", "./", "../"].iter().any(|begin| text.starts_with(begin));
        // A URL, or one of several paths.
        is_path || text.contains(":/") || is_host_with_port(text)
    };
    names(value) || value.split_once('=').is_some_and(|(_, value)| names(value))
}
