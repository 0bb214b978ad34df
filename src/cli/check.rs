//! `sekisho check`: configuration, policies and tools, each fault with where it stands.

use std::borrow::Cow;

use serde_json::json;

use super::{Common, Exit, ServeOptions, describe, load_config, present};
use crate::agent::prices;
use crate::config::{Config, ToolsConfig};
use crate::gateway;
use crate::policy;
use crate::registry::lock::Lock;
use crate::registry::{Metadata, Snapshot};
use crate::sources::openapi::Collections;

/// One part that was looked at.
struct Finding {
    part: Cow<'static, str>,
    /// What is wrong; `Ok` says what is right.
    verdict: Result<String, String>,
}

pub(super) fn run(common: &Common) -> Exit {
    let findings = match load_config(common.config.as_deref(), &ServeOptions::default()) {
        Err(faults) => vec![Finding { part: "configuration".into(), verdict: Err(describe(&faults)) }],
        Ok(config) => look_at(&config),
    };
    let broken = findings.iter().any(|finding| finding.verdict.is_err());
    show(common, findings);
    if broken { Exit::Failed } else { Exit::Done }
}

fn look_at(config: &Config) -> Vec<Finding> {
    let mut findings = vec![Finding { part: "configuration".into(), verdict: Ok("in order".into()) }];
    if let Some(unpriced) = prices::unpriced(config) {
        findings.push(Finding { part: "prices".into(), verdict: Ok(unpriced) });
    }
    let policies = policy::Policy::load(&config.policy);
    findings.push(Finding {
        part: "policies".into(),
        verdict: policies.as_ref().map(|set| format!("version {}", set.version())).map_err(|faults| describe(faults)),
    });
    let Some(runtime) = super::serve::runtime() else { return findings };
    let lock = runtime.block_on(gateway::read_lock(config)).map_err(|problem| problem.to_string());
    findings.push(Finding { part: "lock".into(), verdict: lock.as_ref().map(says_of_lock).map_err(Clone::clone) });
    if lock.is_err() {
        return findings;
    }
    match runtime.block_on(gateway::registry_of(config)) {
        Err(problem) => findings.push(Finding { part: "tools".into(), verdict: Err(problem.to_string()) }),
        Ok((snapshot, collections)) => {
            if policies.is_ok() {
                findings.push(Finding { part: "policy cases".into(), verdict: run_cases(config, &snapshot) });
            }
            findings.push(Finding { part: "checks".into(), verdict: Ok(describe_checks(config, &snapshot)) });
            findings.extend(look_at_collections(&collections, &config.tools));
            let names: Vec<_> = snapshot.tools().iter().map(|tool| tool.name()).collect();
            findings.push(Finding { part: "tools".into(), verdict: Ok(names.join(", ")) });
            let waiting: Vec<_> =
                snapshot.quarantined().map(|tool| format!("{}: {}", tool.name(), tool.objection)).collect();
            if !waiting.is_empty() {
                findings.push(Finding { part: "quarantined".into(), verdict: Ok(waiting.join("\n")) });
            }
            let missing = snapshot.unavailable().iter().map(|missing| format!("{}: {}", missing.tool, missing.reason));
            let missing: Vec<_> = missing.collect();
            if !missing.is_empty() {
                findings.push(Finding { part: "not offered".into(), verdict: Ok(missing.join("\n")) });
            }
        }
    }
    findings
}

/// What was made of each document, or why nothing was.
fn look_at_collections(collections: &Collections, settings: &ToolsConfig) -> impl Iterator<Item = Finding> {
    let finding = |name: &String, verdict| Finding { part: format!("openapi:{name}").into(), verdict };
    let loaded = collections.loaded.iter().map(move |(name, collection)| {
        let report = &collection.report;
        let (lost, approximated) = (report.lost.len(), report.approximated.len());
        let (operations, tools) = (report.operations, report.tools);
        let says = format!("{operations} operations, {tools} tools, {approximated} approximated, {lost} lost");
        let dangerous = report.dangerous_by_method(|tool| settings.opens(tool)).map(|dangerous| format!("; {dangerous}"));
        finding(name, Ok(says + &dangerous.unwrap_or_default()))
    });
    loaded.chain(collections.broken.iter().map(move |(name, reason)| finding(name, Err(reason.clone()))))
}

fn says_of_lock(lock: &Option<Lock>) -> String {
    match lock {
        Some(lock) => format!("{} are pinned", lock.count()),
        None => "none: tools are offered as their sources describe them; `sekisho lock` pins them".to_owned(),
    }
}

/// What is asked of callers before any policy, and of which tools.
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
    if lines.is_empty() { "none of the tools asks for a role or a sign-in".to_owned() } else { lines.join("\n") }
}

fn run_cases(config: &Config, tools: &Snapshot) -> Result<String, String> {
    let results = policy::cases::run(&config.policy, tools).map_err(|faults| describe(&faults))?;
    let failed: Vec<_> = results
        .iter()
        .filter_map(|case| Some(format!("{}: {}: {}", case.file, case.name, case.problem.as_ref()?)))
        .collect();
    if failed.is_empty() { Ok(format!("{} pass", results.len())) } else { Err(failed.join("\n")) }
}

fn show(common: &Common, findings: Vec<Finding>) {
    if common.json {
        let told: Vec<_> = findings
            .iter()
            .map(|finding| {
                let (ok, says) = match &finding.verdict {
                    Ok(says) => (true, says),
                    Err(says) => (false, says),
                };
                json!({"part": finding.part, "ok": ok, "says": says})
            })
            .collect();
        present::json(&told);
        return;
    }
    let row = |finding: Finding| match finding.verdict {
        Ok(says) => vec![finding.part.into_owned(), "ok".to_owned(), says],
        Err(says) => vec![finding.part.into_owned(), "BROKEN".to_owned(), says],
    };
    present::table(&["part", "", ""], findings.into_iter().map(row).collect());
}
