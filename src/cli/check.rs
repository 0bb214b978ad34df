//! `sekisho check`: checks configuration, policies and tools, and prints each error with its location.

#[cfg(feature = "agent")]
mod agents;
#[cfg(not(feature = "agent"))]
#[path = "check/without_agents.rs"]
mod agents;
mod remote;

use std::borrow::Cow;

use comfy_table::{Cell, Color};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{Common, Exit, ServeOptions, describe, load_config, local_gateway, present};
use sekisho_calls::budget::model_prices;
use sekisho_calls::policy::{self, Policy};
use sekisho_calls::registry::Snapshot;
use sekisho_calls::registry::lock::Lock;
use sekisho_calls::tool::Metadata;
use sekisho_config::{Config, ToolsConfig};
use sekisho_gateway::{NameSources, OfferedTools, OwnTools, RegisteredNames};
use sekisho_openapi::Collections;
use sekisho_outbound::Outbound;

/// The result of one check.
struct Finding {
    part: Cow<'static, str>,
    verdict: Verdict,
}

enum Verdict {
    /// Valid; with details.
    Ok(String),
    /// Valid, but probably not intended.
    Warning(String),
    /// Invalid; with the reason.
    Broken(String),
}

impl From<Result<String, String>> for Verdict {
    fn from(outcome: Result<String, String>) -> Self {
        outcome.map_or_else(Self::Broken, Self::Ok)
    }
}

pub(super) fn run(common: &Common, remote: bool) -> Exit {
    let findings = if remote {
        let gateway = match local_gateway::find_remote(common) {
            Ok(gateway) => gateway,
            Err(exit) => return exit,
        };
        match remote::look_at(&gateway) {
            Ok(findings) => findings,
            Err(unanswered) => return unanswered.report(),
        }
    } else {
        match load_config(common.config.as_deref(), &ServeOptions::default()) {
            Err(errors) => vec![finding("configuration", Err(describe(&errors)))],
            Ok(config) => look_at(&config),
        }
    };
    let broken = findings.iter().any(|finding| matches!(finding.verdict, Verdict::Broken(_)));
    show(common, findings);
    if broken { Exit::Failed } else { Exit::Done }
}

fn finding(part: impl Into<Cow<'static, str>>, outcome: Result<String, String>) -> Finding {
    Finding { part: part.into(), verdict: outcome.into() }
}

fn warning((part, text): (String, String)) -> Finding {
    Finding { part: part.into(), verdict: Verdict::Warning(text) }
}

fn look_at(config: &Config) -> Vec<Finding> {
    let mut findings = vec![finding("configuration", Ok("valid".into()))];
    findings.extend(config.notes().into_iter().map(warning));
    findings.extend(agents::unused_settings(&config.agent));
    findings.extend(model_prices::unpriced(config).map(|unpriced| warning(("prices".to_owned(), unpriced))));
    if let Some(tls) = &config.server.tls {
        let usable = sekisho_api::check_tls(tls).map(|()| "certificate and key can be used".to_owned());
        findings.push(finding("tls", usable.map_err(|problem| problem.to_string())));
    }
    findings.extend(agents::check_files(&config.agent));
    findings.extend(check_sandboxes(config));
    let policies = Policy::load(&config.policy);
    let version = policies.as_ref().map(|set| format!("version {}", set.version())).map_err(|errors| describe(errors));
    findings.push(finding("policies", version));
    findings.extend(policies.as_ref().ok().and_then(|policies| check_sealing_key(config, policies)));
    let Some(runtime) = super::serve::runtime() else { return findings };
    findings.extend(policies.as_ref().ok().and_then(|policies| check_external_policy(config, policies, &runtime)));
    let lock = runtime.block_on(sekisho_gateway::read_lock(config)).map_err(|problem| problem.to_string());
    findings.extend(check_cluster(config, &runtime));
    findings.extend(check_blobs(config, &runtime));
    let lock = match lock {
        Ok(lock) => lock,
        Err(problem) => {
            findings.push(finding("lock", Err(problem)));
            return findings;
        }
    };
    let progress = present::progress("asking MCP servers and reading documents");
    let offered = runtime.block_on(sekisho_gateway::offered_tools(config));
    progress.finish_and_clear();
    match offered {
        Err(problem) => findings.push(finding("tools", Err(problem.to_string()))),
        Ok(OfferedTools { snapshot, collections, python_tools, components, servers, out_of_reach }) => {
            findings.push(describe_lock(config, lock.as_ref(), &snapshot));
            if policies.is_ok() {
                findings.push(finding("policy cases", run_cases(config, &snapshot)));
            }
            findings.push(finding("checks", Ok(describe_checks(config, &snapshot))));
            findings.extend(check_collections(&collections, &config.tools));
            findings.extend(python_tools.verdicts().map(|(file, verdict)| finding(file, verdict)));
            findings.extend(components.verdicts().map(|(file, verdict)| finding(file, verdict)));
            let down = out_of_reach.into_iter().filter(|(source, _)| source.starts_with("mcp:"));
            findings.extend(down.map(|(server, reason)| finding(server, Err(reason))));
            let names: Vec<_> = snapshot.tools().iter().map(|tool| tool.name()).collect();
            findings.push(finding("tools", Ok(names.join(", "))));
            let waiting: Vec<_> =
                snapshot.quarantined().map(|tool| format!("{}: {}", tool.name(), tool.violation)).collect();
            if !waiting.is_empty() {
                findings.push(finding("quarantined", Ok(waiting.join("\n"))));
            }
            let missing = snapshot.unavailable().iter();
            let missing: Vec<_> =
                missing.map(|missing| format!("{}: {}", missing.described(), missing.reason)).collect();
            if !missing.is_empty() {
                findings.push(finding("not offered", Ok(missing.join("\n"))));
            }
            let unchecked = snapshot.tools().iter().filter_map(|tool| {
                Some(format!("{}: its output schema is not used: {}", tool.name(), tool.output_problem.as_ref()?))
            });
            let unchecked: Vec<_> = unchecked.collect();
            if !unchecked.is_empty() {
                findings.push(finding("outputs not checked", Ok(unchecked.join("\n"))));
            }
            let registered = runtime.block_on(RegisteredNames::of_configured_store(config)).unwrap_or_default();
            let own = OwnTools { python: &python_tools, components: &components };
            let skills = agents::skills(&config.agent);
            let (collections, skills) = (&collections, skills.as_ref());
            let names = NameSources {
                snapshot: &snapshot,
                collections,
                own,
                servers: &servers,
                registered: &registered,
                skills,
            };
            findings.extend(check_names(config, names));
            let known = sekisho_gateway::known_names(config, &snapshot, collections, own, registered.servers());
            // Errors of the policies are reported above.
            let unknown = policy::unknown_names(&config.policy, &known).unwrap_or_default();
            if !unknown.is_empty() {
                findings.push(warning(("names in policies".to_owned(), describe(&unknown))));
            }
        }
    }
    findings
}

/// The grants of the programs of MCP servers, with their reasons.
fn check_sandboxes(config: &Config) -> Vec<Finding> {
    let servers = config.mcp.servers.iter().filter(|(_, settings)| !settings.disabled);
    let granted = servers.filter_map(|(name, settings)| Some((name, sekisho_mcp_client::granted(settings, config)?)));
    granted.map(|(name, granted)| finding(format!("sandbox of mcp:{name}"), granted)).collect()
}

/// The names in the configuration that match nothing.
fn check_names(config: &Config, existing: NameSources<'_>) -> Vec<Finding> {
    let unknown = config.unknown_names(&sekisho_gateway::existing_names(config, existing));
    let errors = config.name_errors(&unknown);
    let refused = (!errors.is_empty()).then(|| finding("names", Err(describe(&errors))));
    let notes = unknown.iter().filter(|unknown| !unknown.is_error);
    refused.into_iter().chain(notes.map(|unknown| warning((unknown.setting.clone(), unknown.sentence())))).collect()
}

/// The key for sealed data, where it is missing.
fn check_sealing_key(config: &Config, policies: &Policy) -> Option<Finding> {
    let problem = sekisho_gateway::require_sealing_key(config, policies).err()?;
    Some(finding("secrets", Err(problem.to_string())))
}

/// Whether the external policy answers, where there is one.
fn check_external_policy(config: &Config, policies: &Policy, runtime: &Runtime) -> Option<Finding> {
    let external = config.policy.external.as_ref()?;
    let outcome = match Outbound::new(&config.outbound) {
        Ok(outbound) => {
            policies.set_outbound(&outbound);
            runtime.block_on(policies.probe_external())
        }
        Err(problem) => Err(problem.to_string()),
    };
    Some(finding("external policy", outcome.map(|()| format!("{} answers", external.url))))
}

/// The replicas of the database, where this gateway is to be one, and the replicas that have another configuration.
/// Replicas are also reported to a gateway that is to use their database without being one.
fn check_cluster(config: &Config, runtime: &Runtime) -> Option<Finding> {
    if !config.cluster.enabled {
        config.store.url.as_ref()?;
        // A database that cannot be reached is reported with the tools.
        let (replicas, _) = runtime.block_on(sekisho_gateway::live_replicas(config)).ok()?;
        let hosts: Vec<_> = replicas.iter().map(|replica| replica.host.as_str()).collect();
        return (!hosts.is_empty()).then(|| warning(("cluster".to_owned(), not_a_replica(&hosts))));
    }
    let (replicas, configuration) = match runtime.block_on(sekisho_gateway::live_replicas(config)) {
        Ok(found) => found,
        Err(problem) => return Some(finding("cluster", Err(problem.to_string()))),
    };
    let others = replicas.iter().filter(|replica| replica.configuration != configuration);
    let others: Vec<_> = others.map(|replica| replica.host.as_str()).collect();
    let live = format!("the database can be reached; {} replicas are live", replicas.len());
    Some(match others.is_empty() {
        true => finding("cluster", Ok(live)),
        false => {
            let hosts = present::harmless(&others.join(", ")).into_owned();
            warning(("cluster".to_owned(), format!("{live}; those at {hosts} have another configuration")))
        }
    })
}

fn not_a_replica(hosts: &[&str]) -> String {
    format!(
        "`cluster.enabled` is off, and {} live replicas use this database, at {}: a gateway beside them does not see what they lease of \
         budgets, grants whole rates of its own, and does not take over what they register. Set `cluster.enabled`, or use another \
         database",
        hosts.len(),
        present::harmless(&hosts.join(", "))
    )
}

/// Whether an object can be written, read and removed, where replicas share object storage.
fn check_blobs(config: &Config, runtime: &Runtime) -> Option<Finding> {
    let outcome = match runtime.block_on(sekisho_gateway::probe_blobs(config)) {
        Ok(place) => Ok(format!("an object could be written, read and removed in {}", place?)),
        Err(problem) => Err(problem.to_string()),
    };
    Some(finding("object storage", outcome))
}

/// The tools of each document, or why it has none.
fn check_collections(collections: &Collections, settings: &ToolsConfig) -> impl Iterator<Item = Finding> {
    let finding = |name: &String, outcome| finding(format!("openapi:{name}"), outcome);
    let loaded = collections.loaded.iter().map(move |(name, collection)| {
        let report = &collection.report;
        let details = report.summary();
        let dangerous = report.dangers(|tool| settings.opens(tool)).map(|dangerous| format!("; {dangerous}"));
        finding(name, Ok(details + &dangerous.unwrap_or_default()))
    });
    loaded.chain(collections.broken.iter().map(move |(name, reason)| finding(name, Err(reason.clone()))))
}

fn describe_lock(config: &Config, lock: Option<&Lock>, offered: &Snapshot) -> Finding {
    match lock {
        Some(lock) => finding("lock", Ok(format!("{} are pinned in {}", lock.count(), config.lock_file().display()))),
        None if offered.has_tools_from_outside() => warning(("lock".to_owned(), config.unpinned())),
        None => finding("lock", Ok(config.unpinned())),
    }
}

/// The requirements of tools that are checked before any policy.
fn describe_checks(config: &Config, snapshot: &Snapshot) -> String {
    let named = |check: &str, needs: &str, is_checked: &dyn Fn(&Metadata) -> bool| {
        let tools = snapshot.tools().iter().map(|tool| &tool.metadata).filter(|tool| is_checked(tool));
        let names: Vec<_> = tools.map(|tool| tool.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{check} ({needs}): {}", names.join(", ")))
    };
    let roles = config.policy.dangerous_roles.join(" or ");
    let lines = [
        named("dangerous", &format!("the role {roles}"), &|tool| tool.dangerous),
        named("requires_auth", "a signed-in caller", &|tool| tool.requires_auth),
        named("roles", "hidden from others", &|tool| !tool.roles.is_empty()),
    ];
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    if lines.is_empty() { "no tool requires a role or a sign-in".to_owned() } else { lines.join("\n") }
}

fn run_cases(config: &Config, tools: &Snapshot) -> Result<String, String> {
    let results = policy::cases::run(&config.policy, tools).map_err(|errors| describe(&errors))?;
    let failed: Vec<_> = results
        .iter()
        .filter_map(|case| Some(format!("{}: {}: {}", case.file, case.name, case.problem.as_ref()?)))
        .collect();
    if failed.is_empty() { Ok(format!("{} pass", results.len())) } else { Err(failed.join("\n")) }
}

fn show(common: &Common, mut findings: Vec<Finding>) {
    if common.json {
        let findings_json: Vec<_> = findings
            .iter()
            .map(|finding| {
                let part = &finding.part;
                match &finding.verdict {
                    Verdict::Ok(details) => json!({"part": part, "ok": true, "says": details}),
                    Verdict::Warning(details) => json!({"part": part, "ok": true, "warning": true, "says": details}),
                    Verdict::Broken(details) => json!({"part": part, "ok": false, "says": details}),
                }
            })
            .collect();
        present::json(&findings_json);
        return;
    }
    let broken = count(&findings, |verdict| matches!(verdict, Verdict::Broken(_)));
    let warnings = count(&findings, |verdict| matches!(verdict, Verdict::Warning(_)));
    // On a terminal the end is read first.
    findings.sort_by_key(|finding| match finding.verdict {
        Verdict::Ok(_) => 0,
        Verdict::Warning(_) => 1,
        Verdict::Broken(_) => 2,
    });
    let styles = present::may_style();
    let rows = findings.into_iter().map(|finding| row(finding, styles)).collect();
    present::colored_table(&["part", "", ""], rows);
    present::line(&format!("{broken} broken, {warnings} warnings"));
}

/// A finding as a row: the part, the verdict in its colour, and the details.
fn row(finding: Finding, styles: bool) -> Vec<Cell> {
    let (state, color, details) = match finding.verdict {
        Verdict::Ok(details) => ("ok", Color::Green, details),
        Verdict::Warning(details) => ("WARNING", Color::Yellow, details),
        Verdict::Broken(details) => ("BROKEN", Color::Red, details),
    };
    let state = Cell::new(state);
    let state = if styles { state.fg(color) } else { state };
    vec![Cell::new(present::harmless(&finding.part)), state, Cell::new(present::harmless(&details))]
}

fn count(findings: &[Finding], is_meant: impl Fn(&Verdict) -> bool) -> usize {
    findings.iter().filter(|finding| is_meant(&finding.verdict)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_its_color_unless_colors_are_off() {
        let verdict = |outcome| finding("policies", outcome);
        let ok = || verdict(Ok("version 1".to_owned()));
        let broken = || verdict(Err("line 3".to_owned()));
        let warned = || warning(("lock".to_owned(), "not pinned".to_owned()));
        for (finding, word, color) in
            [(ok(), "ok", Color::Green), (warned(), "WARNING", Color::Yellow), (broken(), "BROKEN", Color::Red)]
        {
            assert_eq!(row(finding, true)[1], Cell::new(word).fg(color));
        }
        let plain = ["policies", "BROKEN", "line 3"].map(Cell::new);
        assert_eq!(row(broken(), false), plain);
    }
}
