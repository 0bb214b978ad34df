//! How much callers may use, the conditions of a call, and where requests may go.

use super::Comparison;
use crate::limits::RuleMatch;
use crate::{
    ApprovalsConfig, BudgetConfig, ExternalPolicyConfig, FlowConfig, FlowHistoryConfig, FlowMode, HistoryScope,
    LimitRule, LimitsConfig, OutboundConfig, PolicyConfig, ProxyConfig, WebhookConfig,
};

pub(super) fn limits(at: &mut Comparison<'_>, was: &LimitsConfig, is: &LimitsConfig) {
    let LimitsConfig {
        mcp_tool_rate_limit,
        caller_rate_limit,
        tenant_rate_limit,
        max_concurrent,
        max_concurrent_per_tool,
        max_queued,
        parallelism,
        rules,
    } = was;
    at.higher("mcp_tool_rate_limit", mcp_tool_rate_limit, &is.mcp_tool_rate_limit);
    at.higher_or_gone("caller_rate_limit", caller_rate_limit, &is.caller_rate_limit);
    at.higher_or_gone("tenant_rate_limit", tenant_rate_limit, &is.tenant_rate_limit);
    at.higher("max_concurrent", max_concurrent, &is.max_concurrent);
    at.higher("max_concurrent_per_tool", max_concurrent_per_tool, &is.max_concurrent_per_tool);
    at.higher("max_queued", max_queued, &is.max_queued);
    at.higher("parallelism", parallelism, &is.parallelism);
    for rule in rules {
        match is.rules.iter().find(|is| is.name == rule.name) {
            Some(is) => limit_rule(&mut at.below("rules").below(&rule.name), rule, is),
            None => at.below("rules").add(&rule.name, "as it is", "removed"),
        }
    }
}

fn limit_rule(at: &mut Comparison<'_>, was: &LimitRule, is: &LimitRule) {
    let LimitRule { name: _, matching, per, rate, max_concurrent, cost_per_day, tokens_per_day } = was;
    let RuleMatch { tools, callers, tenants, roles, keys } = matching;
    // Fewer calls match where a list is shorter, or begins to be one.
    for (key, was, is) in [
        ("match.tools", tools, &is.matching.tools),
        ("match.callers", callers, &is.matching.callers),
        ("match.tenants", tenants, &is.matching.tenants),
        ("match.roles", roles, &is.matching.roles),
        ("match.keys", keys, &is.matching.keys),
    ] {
        let leaves_out = was.iter().any(|entry| !is.contains(entry));
        at.add_if(!is.is_empty() && (was.is_empty() || leaves_out), key, was, is);
    }
    at.changed("per", per, &is.per);
    at.higher_or_gone("rate", rate, &is.rate);
    at.higher_or_gone("max_concurrent", max_concurrent, &is.max_concurrent);
    at.higher_or_gone("cost_per_day", cost_per_day, &is.cost_per_day);
    at.higher_or_gone("tokens_per_day", tokens_per_day, &is.tokens_per_day);
}

/// The rules in the folder are compared where they are loaded.
pub(super) fn policy(at: &mut Comparison<'_>, was: &PolicyConfig, is: &PolicyConfig) {
    let PolicyConfig { directory, shadow: _, dangerous_roles, timeout_ms: _, flow, external } = was;
    at.replaced("directory", directory, &is.directory);
    at.wider("dangerous_roles", dangerous_roles, &is.dangerous_roles);
    at.rises("flow", flow, &is.flow, |mode| match mode {
        FlowMode::Enforce => 0,
        FlowMode::Observe => 1,
        FlowMode::Off => 2,
    });
    let Some(was) = external else { return };
    let ExternalPolicyConfig { url, timeout_ms: _, send_arguments, send_answers } = was;
    match &is.external {
        Some(is) => {
            at.changed("external.url", url, &is.url);
            at.set("external.send_arguments", *send_arguments, is.send_arguments);
            // Without them it stops no answer; with them they leave the gateway.
            at.altered("external.send_answers", *send_answers != is.send_answers);
        }
        None => at.add_if(true, "external.url", &Some(url.clone()), &None),
    }
}

pub(super) fn flow(at: &mut Comparison<'_>, was: &FlowConfig, is: &FlowConfig) {
    let FlowConfig { history: FlowHistoryConfig { days, scope } } = was;
    at.higher("history.days", days, &is.history.days);
    at.rises("history.scope", scope, &is.history.scope, |scope| *scope == HistoryScope::Tenant);
}

pub(super) fn approvals(at: &mut Comparison<'_>, was: &ApprovalsConfig, is: &ApprovalsConfig) {
    let ApprovalsConfig { own, webhook } = was;
    at.set("self", *own, is.own);
    if let (Some(was), Some(is)) = (webhook, &is.webhook) {
        let WebhookConfig { url, secret: _ } = was;
        at.changed("webhook.url", url, &is.url);
    }
}

pub(super) fn budget(at: &mut Comparison<'_>, was: &BudgetConfig, is: &BudgetConfig) {
    let BudgetConfig {
        max_cost_per_request,
        max_tokens_per_request,
        max_tokens_per_run: _,
        token_budget_per_agent,
        token_budget_per_task,
        max_cost_per_caller_per_day,
        max_cost_per_tenant_per_day,
        max_tokens_per_caller_per_day,
        max_tokens_per_tenant_per_day,
        scope_idle_seconds,
    } = was;
    at.higher("max_cost_per_request", max_cost_per_request, &is.max_cost_per_request);
    at.higher("max_tokens_per_request", max_tokens_per_request, &is.max_tokens_per_request);
    // Which setting limits a run depends on both.
    at.higher("max_tokens_per_run", &was.tokens_of_a_run().1, &is.tokens_of_a_run().1);
    at.higher("token_budget_per_agent", token_budget_per_agent, &is.token_budget_per_agent);
    at.higher("token_budget_per_task", token_budget_per_task, &is.token_budget_per_task);
    at.higher_or_gone("max_cost_per_caller_per_day", max_cost_per_caller_per_day, &is.max_cost_per_caller_per_day);
    at.higher_or_gone("max_cost_per_tenant_per_day", max_cost_per_tenant_per_day, &is.max_cost_per_tenant_per_day);
    let per_caller = &is.max_tokens_per_caller_per_day;
    at.higher_or_gone("max_tokens_per_caller_per_day", max_tokens_per_caller_per_day, per_caller);
    let per_tenant = &is.max_tokens_per_tenant_per_day;
    at.higher_or_gone("max_tokens_per_tenant_per_day", max_tokens_per_tenant_per_day, per_tenant);
    at.lower("scope_idle_seconds", scope_idle_seconds, &is.scope_idle_seconds);
}

pub(super) fn outbound(at: &mut Comparison<'_>, was: &OutboundConfig, is: &OutboundConfig) {
    let OutboundConfig {
        // These take effect at the next start.
        max_connections: _,
        max_connections_per_origin: _,
        dns_cache_seconds: _,
        connect_timeout_seconds: _,
        ca_files,
        proxy,
        allow_networks,
        mcp_allowed_domains,
        openapi_allowed_domains,
    } = was;
    at.wider("ca_files", ca_files, &is.ca_files);
    let ProxyConfig { url, no_proxy } = proxy;
    at.altered("proxy.url", *url != is.proxy.url);
    at.wider("proxy.no_proxy", no_proxy, &is.proxy.no_proxy);
    at.wider("allow_networks", allow_networks, &is.allow_networks);
    at.wider("mcp_allowed_domains", mcp_allowed_domains, &is.mcp_allowed_domains);
    at.wider("openapi_allowed_domains", openapi_allowed_domains, &is.openapi_allowed_domains);
}
