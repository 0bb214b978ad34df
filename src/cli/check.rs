//! `sekisho check`: configuration, policies and tools, each fault with where it stands.

use serde_json::json;

use super::{Common, Exit, describe, load_config, present};
use crate::config::Config;
use crate::gateway;
use crate::policy;

/// One part that was looked at.
struct Finding {
    part: &'static str,
    /// What is wrong; `Ok` says what is right.
    verdict: Result<String, String>,
}

pub(super) fn run(common: &Common) -> Exit {
    let findings = match load_config(common.config.as_deref(), None) {
        Err(faults) => vec![Finding { part: "configuration", verdict: Err(describe(&faults)) }],
        Ok(config) => look_at(&config),
    };
    let broken = findings.iter().any(|finding| finding.verdict.is_err());
    show(common, findings);
    if broken { Exit::Failed } else { Exit::Done }
}

fn look_at(config: &Config) -> Vec<Finding> {
    let mut findings = vec![Finding { part: "configuration", verdict: Ok("in order".into()) }];
    let policies = policy::Policy::load(&config.policy);
    findings.push(Finding {
        part: "policies",
        verdict: policies.as_ref().map(|set| format!("version {}", set.version())).map_err(|faults| describe(faults)),
    });
    if policies.is_ok() {
        findings.push(Finding { part: "policy cases", verdict: run_cases(config) });
    }
    match gateway::registry_of(config) {
        Err(problem) => findings.push(Finding { part: "tools", verdict: Err(problem.to_string()) }),
        Ok(snapshot) => {
            let names: Vec<_> = snapshot.tools().iter().map(|tool| tool.name()).collect();
            findings.push(Finding { part: "tools", verdict: Ok(names.join(", ")) });
            let missing = snapshot.unavailable().iter().map(|missing| format!("{}: {}", missing.tool, missing.reason));
            let missing: Vec<_> = missing.collect();
            if !missing.is_empty() {
                findings.push(Finding { part: "not offered", verdict: Ok(missing.join("\n")) });
            }
        }
    }
    findings
}

fn run_cases(config: &Config) -> Result<String, String> {
    let results = policy::cases::run(&config.policy).map_err(|faults| describe(&faults))?;
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
        Ok(says) => vec![finding.part.to_owned(), "ok".to_owned(), says],
        Err(says) => vec![finding.part.to_owned(), "BROKEN".to_owned(), says],
    };
    present::table(&["part", "", ""], findings.into_iter().map(row).collect());
}
