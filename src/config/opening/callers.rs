//! Who may call, who sees the console, and the agents' permissions of a tenant.

use std::collections::BTreeMap;

use super::Comparison;
use crate::console::ConsoleRoles;
use crate::{
    AnonymousAccess, ApiKeyConfig, AuthConfig, BrokerConfig, BudgetConfig, ConsoleConfig, IntrospectionConfig,
    JwtConfig, OidcConfig, ResourceStatus, TenantConfig,
};

pub(super) fn auth(at: &mut Comparison<'_>, was: &AuthConfig, is: &AuthConfig) {
    let AuthConfig { anonymous, api_keys, jwt, scopes, oidc, broker, workloads } = was;
    at.rises("anonymous", anonymous, &is.anonymous, |access| match access {
        AnonymousAccess::Never => 0,
        AnonymousAccess::Loopback => 1,
        AnonymousAccess::Always => 2,
    });
    if was.has_credentials() && !is.has_credentials() && is.anonymous != AnonymousAccess::Never {
        at.add("", "with keys or tokens", "none: whatever a caller sends, it counts as one without credentials");
    }
    for key in &is.api_keys {
        if let Some(was) = same_key(api_keys, key) {
            api_key(&mut at.below("api_keys").below(&key.id), was, key);
        }
    }
    for issuer in &is.jwt.0 {
        match jwt.iter().find(|was| was.issuer == issuer.issuer) {
            Some(was) => self::issuer(&mut at.below("jwt").below(&issuer.issuer), was, issuer),
            None => at.add("jwt", "without this issuer", &issuer.issuer),
        }
    }
    for (scope, tools) in scopes {
        let none = Vec::new();
        at.below("scopes").fewer(scope, tools, is.scopes.get(scope).unwrap_or(&none));
    }
    match (oidc, &is.oidc) {
        (Some(was), Some(is)) => {
            let OidcConfig { client_id, client_secret: _, scopes: _ } = was;
            at.changed("oidc.client_id", client_id, &is.client_id);
        }
        (None, Some(is)) => at.add("oidc", "not set", &is.client_id),
        (_, None) => {}
    }
    match (broker, &is.broker) {
        (Some(was), Some(is)) => self::broker(&mut at.below("broker"), was, is),
        (None, Some(is)) => at.add("broker", "not set", &is.issuer),
        (_, None) => {}
    }
    // The first entry that fits counts: the end of one may open another.
    if !is.workloads.is_empty() && *workloads != is.workloads {
        at.add("workloads", "other entries", "entries by which workloads are callers");
    }
}

/// An issuer that tokens of the gateway are given for, and what those who sign in there may do.
fn broker(at: &mut Comparison<'_>, was: &BrokerConfig, is: &BrokerConfig) {
    let BrokerConfig {
        provider: _,
        issuer,
        client_id,
        client_secret: _,
        scopes: _,
        tenant,
        roles_claim,
        roles,
        default_roles,
        tokens,
        redirects,
        assertion_clients,
    } = was;
    at.changed("issuer", issuer, &is.issuer);
    at.changed("client_id", client_id, &is.client_id);
    at.changed("tenant", tenant, &is.tenant);
    at.changed("roles_claim", roles_claim, &is.roles_claim);
    if !roles.is_empty() && is.roles.is_empty() {
        at.add("roles", "with values", "none: everybody whom the provider signs in is a caller");
    }
    for (value, given) in &is.roles {
        let none = Vec::new();
        at.below("roles").wider(value, roles.get(value).unwrap_or(&none), given);
    }
    at.wider("default_roles", default_roles, &is.default_roles);
    at.higher("tokens.access", &tokens.access.duration().as_secs(), &is.tokens.access.duration().as_secs());
    at.higher("tokens.refresh", &tokens.refresh.duration().as_secs(), &is.tokens.refresh.duration().as_secs());
    at.wider_choice("redirects", redirects, &is.redirects);
    for client in is.assertion_clients.keys().filter(|client| !assertion_clients.contains_key(*client)) {
        at.add("assertion_clients", "without this client", client);
    }
}

/// The entry with the same key, otherwise the entry of the same caller. A further caller has none.
fn same_key<'a>(was: &'a [ApiKeyConfig], key: &ApiKeyConfig) -> Option<&'a ApiKeyConfig> {
    let hash = key.hash();
    let with_key = was.iter().find(|was| hash.is_some() && was.hash() == hash);
    with_key.or_else(|| was.iter().find(|was| (&was.tenant, &was.id) == (&key.tenant, &key.id)))
}

fn api_key(at: &mut Comparison<'_>, was: &ApiKeyConfig, is: &ApiKeyConfig) {
    let ApiKeyConfig { id, key: _, key_sha256: _, tenant, roles, person } = was;
    at.changed("id", id, &is.id);
    at.changed("tenant", tenant, &is.tenant);
    at.wider("roles", roles, &is.roles);
    let person = person.as_ref().unwrap_or(id);
    at.changed("person", person, is.person.as_ref().unwrap_or(&is.id));
}

fn issuer(at: &mut Comparison<'_>, was: &JwtConfig, is: &JwtConfig) {
    let JwtConfig {
        issuer: _,
        audience,
        jwks_url,
        jwks_file,
        introspection,
        roles_claim,
        tenant_claim,
        leeway_seconds,
        subjects_of: _,
    } = was;
    at.wider("audience", &audience.0, &is.audience.0);
    at.changed("jwks_url", jwks_url, &is.jwks_url);
    at.changed("jwks_file", jwks_file, &is.jwks_file);
    match (introspection, &is.introspection) {
        (Some(was), Some(is)) => {
            let IntrospectionConfig { client_id: _, client_secret: _, url } = was;
            at.changed("introspection.url", url, &is.url);
        }
        (None, Some(is)) => at.add("introspection", "not set", &is.client_id),
        (_, None) => {}
    }
    at.changed("roles_claim", roles_claim, &is.roles_claim);
    at.changed("tenant_claim", tenant_claim, &is.tenant_claim);
    at.higher("leeway_seconds", leeway_seconds, &is.leeway_seconds);
}

pub(super) fn console(at: &mut Comparison<'_>, was: &ConsoleConfig, is: &ConsoleConfig) {
    let ConsoleConfig { roles: ConsoleRoles { viewer, operator, approver, admin } } = was;
    at.wider("viewer", viewer, &is.roles.viewer);
    at.wider("operator", operator, &is.roles.operator);
    at.wider("approver", approver, &is.roles.approver);
    at.wider("admin", admin, &is.roles.admin);
}

type Tenants<'a> = (&'a BTreeMap<String, TenantConfig>, &'a BudgetConfig);

/// A tenant that is not listed may use everything, and has the budget of all.
pub(super) fn tenants(at: &mut Comparison<'_>, was: Tenants<'_>, is: Tenants<'_>) {
    let ((was, budget_was), (is, budget_is)) = (was, is);
    at.in_either(was, is, |at, was, is| {
        let TenantConfig {
            status,
            prompt: _,
            models,
            skills,
            mcp_servers,
            collections,
            max_cost_per_day,
            max_tokens_per_day,
        } = was;
        at.rises("status", status, &is.status, |status: &ResourceStatus| status.is_active());
        at.wider_or_gone("models", models, &is.models);
        at.wider_or_gone("skills", skills, &is.skills);
        at.wider_or_gone("mcp_servers", mcp_servers, &is.mcp_servers);
        at.wider_or_gone("collections", collections, &is.collections);
        let cost = max_cost_per_day.or(budget_was.max_cost_per_tenant_per_day);
        at.higher_or_gone("max_cost_per_day", &cost, &is.max_cost_per_day.or(budget_is.max_cost_per_tenant_per_day));
        let tokens = max_tokens_per_day.or(budget_was.max_tokens_per_tenant_per_day);
        let tokens_is = is.max_tokens_per_day.or(budget_is.max_tokens_per_tenant_per_day);
        at.higher_or_gone("max_tokens_per_day", &tokens, &tokens_is);
    });
}
