//! `sekisho check --remote`: the state of a running gateway, as it reports it.

use serde_json::Value;

use super::super::client::{Endpoint, Remote, Unanswered};
use super::{Finding, Verdict};

/// Errors: the gateway cannot be reached, or does not answer this caller.
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
        .map(|(part, reason)| Finding { part: part.clone().into(), verdict: verdict_of(part, text(reason)) })
        .collect();
    let is_broken = degraded.iter().any(|finding| matches!(finding.verdict, Verdict::Broken(_)));
    let verdict = match (ready["status"].as_str(), degraded.is_empty()) {
        (Some("ready"), _) => Verdict::Ok("ready".to_owned()),
        (Some("unavailable"), _) => Verdict::Broken("unavailable: it refuses every call".to_owned()),
        (_, true) => Verdict::Broken("degraded; it shows details to callers with a key (SEKISHO_API_KEY)".to_owned()),
        (_, false) if is_broken => Verdict::Broken("degraded".to_owned()),
        (_, false) => Verdict::Warning("degraded: parts of the sandbox are not set up yet".to_owned()),
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

/// The interpreter is missing in the first minutes of each installation, or for as long as nobody wants it: nothing is broken.
fn verdict_of(component: &str, reason: String) -> Verdict {
    match component {
        "sandbox" | "sandbox_profiles" if reason.contains(" set up") => Verdict::Warning(reason),
        _ => Verdict::Broken(reason),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdicts(degraded: &Value) -> Vec<(String, char)> {
        let ready = json!({"status": "degraded", "degraded": degraded});
        let mark = |verdict: &Verdict| match verdict {
            Verdict::Ok(_) => 'o',
            Verdict::Warning(_) => 'w',
            Verdict::Broken(_) => 'b',
        };
        let found = findings(&ready, &json!([])).into_iter();
        found.map(|finding| (finding.part.to_string(), mark(&finding.verdict))).take(2).collect()
    }

    #[test]
    fn a_new_installation_without_its_interpreter_is_not_broken() {
        for (component, reason, expected) in [
            ("sandbox", "the interpreter is being set up, which takes some minutes (x)", 'w'),
            ("sandbox", "the interpreter is not set up (x): run `sekisho sandbox prepare`", 'w'),
            ("sandbox", "no worker can be started: x", 'b'),
            ("mcp:time", "it is not set up", 'b'),
        ] {
            let found = verdicts(&json!({component: reason}));
            assert_eq!(found, [("gateway".to_owned(), expected), (component.to_owned(), expected)], "{reason}");
        }
    }
}
