//! `sekisho check --remote`: the state of a running gateway, as it reports it.

use serde_json::Value;

use super::super::client::{Endpoint, Remote, Unanswered};
use super::{Finding, Verdict};

/// # Errors
/// The gateway cannot be reached, or does not answer this caller.
pub(super) fn look_at(gateway: &Endpoint) -> Result<Vec<Finding>, Unanswered> {
    let remote = Remote::new(gateway)?;
    // 503 while it refuses every call.
    let ready = remote.get_any(&["readyz"])?;
    let tools = remote.get(&["tools", "list"], &[("detail", "full")])?;
    Ok(findings(&ready, &tools))
}

fn findings(ready: &Value, tools: &Value) -> Vec<Finding> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = |name: &str| ready[name].as_object().into_iter().flatten();
    let mut findings = Vec::new();
    let degraded: Vec<_> = members("degraded")
        .map(|(part, reason)| Finding { part: part.clone().into(), verdict: Verdict::Broken(text(reason)) })
        .collect();
    let verdict = match (ready["status"].as_str(), degraded.is_empty()) {
        (Some("ready"), _) => Verdict::Ok("ready".to_owned()),
        (Some("unavailable"), _) => Verdict::Broken("unavailable: it refuses every call".to_owned()),
        (_, true) => Verdict::Broken("degraded; it shows details to callers with a key (SEKISHO_API_KEY)".to_owned()),
        (_, false) => Verdict::Broken("degraded".to_owned()),
    };
    findings.push(Finding { part: "gateway".into(), verdict });
    findings.extend(degraded);
    let notes = members("notes")
        .map(|(part, note)| Finding { part: part.clone().into(), verdict: Verdict::Warning(text(note)) });
    findings.extend(notes);
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |is_meant: fn(&Value) -> bool| {
        tools.iter().filter(|tool| is_meant(tool)).map(|tool| text(&tool["name"])).collect::<Vec<_>>().join(", ")
    };
    findings.push(Finding { part: "tools".into(), verdict: Verdict::Ok(named(|tool| tool["quarantined"].is_null())) });
    let quarantined = named(|tool| !tool["quarantined"].is_null());
    if !quarantined.is_empty() {
        findings.push(Finding { part: "quarantined".into(), verdict: Verdict::Warning(quarantined) });
    }
    findings
}
