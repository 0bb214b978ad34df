//! Tools: their overrides, the rules that change their calls, and own tools.

use std::collections::BTreeMap;

use super::{Comparison, has_more};
use crate::{
    ApprovalRule, ComponentGrantsConfig, ComponentsConfig, GuardRule, GuardsConfig, Labels, OutputCheck,
    PythonToolsConfig, Secret, SinkKindSetting, SinkSettings, ToolOverride, ToolsConfig, TransformConfig,
    TransformRule, WebFetchConfig, WebSearchConfig,
};

pub(super) fn tools(at: &mut Comparison<'_>, was: &ToolsConfig, is: &ToolsConfig) {
    let ToolsConfig {
        coerce_arguments: _,
        lock,
        embeddings: _,
        overrides,
        transform,
        guards,
        web_fetch,
        web_search,
        workspace: _,
    } = was;
    at.replaced("lock", lock, &is.lock);
    at.below("overrides").in_either(overrides, &is.overrides, override_of_tool);
    let TransformConfig { arguments, results } = transform;
    rules(&mut at.below("transform.arguments"), arguments, &is.transform.arguments);
    rules(&mut at.below("transform.results"), results, &is.transform.results);
    self::guards(&mut at.below("guards"), guards, &is.guards);
    fetch(&mut at.below("web_fetch"), web_fetch, &is.web_fetch);
    let WebSearchConfig { provider, api_key: _, base_url } = web_search;
    at.replaced("web_search.provider", provider, &is.web_search.provider);
    let is_elsewhere = provider.is_some() && *base_url != is.web_search.base_url;
    at.add_if(is_elsewhere, "web_search.base_url", base_url, &is.web_search.base_url);
}

/// A value that is not set is the tool's own: to set a limit or a role is no opening, and to take it away is one.
fn override_of_tool(at: &mut Comparison<'_>, was: &ToolOverride, is: &ToolOverride) {
    let ToolOverride {
        rename,
        description: _,
        hidden,
        cost_per_use,
        rate_limit,
        timeout_seconds: _,
        memory_limit_mb,
        max_concurrent,
        max_concurrent_global,
        max_text_tokens,
        max_output_bytes,
        output_schema,
        roles,
        labels,
        sink,
        dangerous,
        requires_auth,
        audit_arguments: _,
        approval,
        approvals_needed,
        found_by: _,
        fix,
        defaults: _,
        enumerate,
        project,
        summarise: _,
        cases: _,
    } = was;
    // Rules name tools.
    at.changed("rename", rename, &is.rename);
    at.unset("hidden", *hidden == Some(true), is.hidden == Some(true));
    at.lower_or_gone("cost_per_use", cost_per_use, &is.cost_per_use);
    at.higher_or_gone("rate_limit", rate_limit, &is.rate_limit);
    at.higher_or_gone("memory_limit_mb", memory_limit_mb, &is.memory_limit_mb);
    at.higher_or_gone("max_concurrent", max_concurrent, &is.max_concurrent);
    at.unset("max_concurrent_global", *max_concurrent_global == Some(true), is.max_concurrent_global == Some(true));
    at.higher_or_gone("max_text_tokens", max_text_tokens, &is.max_text_tokens);
    at.higher_or_gone("max_output_bytes", max_output_bytes, &is.max_output_bytes);
    at.rises("output_schema", output_schema, &is.output_schema, |check| match check {
        Some(OutputCheck::Enforce) => 0,
        None => 1,
        Some(OutputCheck::Report) => 2,
        Some(OutputCheck::Off) => 3,
    });
    let more_callers = match (roles, &is.roles) {
        // No role was asked for.
        (Some(was), _) if was.is_empty() => false,
        (_, Some(is)) if is.is_empty() => true,
        (Some(was), Some(is)) => has_more(was, is),
        (Some(_), None) => true,
        (None, _) => false,
    };
    at.add_if(more_callers, "roles", roles, &is.roles);
    let none = Labels::default();
    let opens = labels.as_ref().unwrap_or(&none).opens(is.labels.as_ref().unwrap_or(&none));
    at.altered("labels", opens);
    at.altered("sink", sink != &is.sink && sink_opens(sink.as_ref(), is.sink.as_ref()));
    at.rises("dangerous", dangerous, &is.dangerous, how_open);
    at.rises("requires_auth", requires_auth, &is.requires_auth, how_open);
    at.rises("approval", approval, &is.approval, |rule| match rule.unwrap_or_default() {
        ApprovalRule::Always => 0,
        ApprovalRule::FirstUse => 1,
        ApprovalRule::Never => 2,
    });
    let (needed, needed_is) = (approvals_needed.unwrap_or(1), is.approvals_needed.unwrap_or(1));
    at.lower("approvals_needed", &needed, &needed_is);
    at.altered("fix", fix.iter().any(|(name, value)| is.fix.get(name) != Some(value)));
    // The values are shown to all who are offered the tool.
    at.altered("enumerate", is.enumerate.iter().any(|(name, from)| enumerate.get(name) != Some(from)));
    at.altered("project", project.is_some() && *project != is.project);
}

/// A sink that is set for the first time closes, unless it says that there is none.
fn sink_opens(was: Option<&SinkSettings>, is: Option<&SinkSettings>) -> bool {
    let is_none = |sink: &SinkSettings| sink.kind == SinkKindSetting::None;
    was.is_some_and(|was| !is_none(was)) || is.is_some_and(is_none)
}

/// The openness of a mark that a tool may have by itself.
fn how_open(mark: &Option<bool>) -> u8 {
    match mark {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    }
}

/// Each rule stays as it is, and in its place among those that were there.
fn rules(at: &mut Comparison<'_>, was: &[TransformRule], is: &[TransformRule]) {
    for rule in was {
        match is.iter().find(|is| is.name == rule.name) {
            Some(is) => at.altered(&rule.name, is != rule),
            None => at.add(&rule.name, "as it is", "removed"),
        }
    }
    let names = |rules: &[TransformRule], others: &[TransformRule]| -> Vec<String> {
        let kept = rules.iter().filter(|rule| others.iter().any(|other| other.name == rule.name));
        kept.map(|rule| rule.name.clone()).collect()
    };
    at.changed("", &names(was, is), &names(is, was));
}

/// Other rules of detectors, and another service, may find less; a new service gets texts. Each rule stays as it is; their order
/// has no meaning.
fn guards(at: &mut Comparison<'_>, was: &GuardsConfig, is: &GuardsConfig) {
    let GuardsConfig { rules_file, services, rules } = was;
    at.altered("rules_file", !rules.is_empty() && *rules_file != is.rules_file);
    let is_used = |name: &str| rules.iter().any(|rule: &GuardRule| rule.service.as_deref() == Some(name));
    for (name, service) in services.iter().filter(|(name, _)| is_used(name)) {
        at.altered(&format!("services.{name}"), is.services.get(name).is_some_and(|is| is != service));
    }
    let is_new = |rule: &&GuardRule| rule.service.is_some() && rules.iter().all(|was| was.name != rule.name);
    for rule in is.rules.iter().filter(is_new) {
        at.add(&format!("rules.{}", rule.name), "absent", "sends texts to a service");
    }
    for rule in rules {
        match is.rules.iter().find(|is| is.name == rule.name) {
            Some(is) => at.altered(&format!("rules.{}", rule.name), is != rule),
            None => at.add(&format!("rules.{}", rule.name), "as it is", "removed"),
        }
    }
}

fn fetch(at: &mut Comparison<'_>, was: &WebFetchConfig, is: &WebFetchConfig) {
    let WebFetchConfig { max_bytes, max_depth, max_redirects, allowed_domains, allow_networks, allow_ports } = was;
    at.higher("max_bytes", max_bytes, &is.max_bytes);
    at.higher("max_depth", max_depth, &is.max_depth);
    at.higher("max_redirects", max_redirects, &is.max_redirects);
    at.wider_choice("allowed_domains", allowed_domains, &is.allowed_domains);
    at.wider("allow_networks", allow_networks, &is.allow_networks);
    at.wider("allow_ports", allow_ports, &is.allow_ports);
}

pub(super) fn python_tools(at: &mut Comparison<'_>, was: &PythonToolsConfig, is: &PythonToolsConfig) {
    let PythonToolsConfig { directory, settings: _ } = was;
    at.moved("directory", directory, &is.directory);
}

/// Without an entry a component has nothing.
pub(super) fn components(at: &mut Comparison<'_>, was: &ComponentsConfig, is: &ComponentsConfig) {
    let ComponentsConfig { directory, grants, credentials } = was;
    at.moved("directory", directory, &is.directory);
    at.below("grants").in_either(grants, &is.grants, |at, was, is| {
        let ComponentGrantsConfig { env: _, config: _, folders, clocks, random, http, allow_networks } = was;
        let opens = is.folders.iter().any(|(path, folder)| folders.get(path) != Some(folder));
        at.add_if(opens, "folders", folders, &is.folders);
        at.set("clocks", *clocks, is.clocks);
        at.set("random", *random, is.random);
        at.wider("http", http, &is.http);
        at.wider("allow_networks", allow_networks, &is.allow_networks);
    });
    at.below("credentials").in_either(credentials, &is.credentials, |at, was, is| {
        let hosts = |of: &BTreeMap<String, BTreeMap<String, Secret>>| of.keys().cloned().collect::<Vec<_>>();
        at.wider("", &hosts(was), &hosts(is));
    });
}
