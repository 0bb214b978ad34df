//! The run of an agent is played in this process, which asks nobody without `--live`.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::super::call::Identity;
use super::super::client::Unanswered;
use super::super::local_gateway::{self, find_remote_as};
use super::super::{Common, Exit, present, serve};
use super::{ChangedCall, ReplayOptions};
use sekisho_agent::models::{self, Replay};
use sekisho_agent::run_file::{self, Change, Further, Replayed};
use sekisho_agent::service;
use sekisho_agent::toolbox::OverHttp;
use sekisho_agent::{Model, Toolbox};
use sekisho_calls::policy::replay::{DecisionKind, KnownInput, PolicyReplay};
use sekisho_core::error::ErrorCode;
use sekisho_core::run_file::{RunFile, ToolOutput};
use sekisho_observe::metrics::Metrics;
use sekisho_outbound::Outbound;

/// Begins the name of a script.
const SCRIPT: &str = "replay:";

/// Errors: the model cannot be used, or the file has no call that is to be changed.
pub(super) fn replay(
    common: &Common,
    identity: &Identity,
    (file, changes): (&RunFile, &[ChangedCall]),
    options: &ReplayOptions,
) -> Result<Exit, String> {
    let (model, live) = (options.model.as_deref(), options.live);
    let further = Further {
        model: model_of(common, file, model, live)?,
        replaces_model: model.is_some(),
        toolbox: match live {
            false => None,
            true => match tools_of(common, identity) {
                Ok(toolbox) => Some(toolbox),
                Err(exit) => return Ok(exit),
            },
        },
    };
    let change = |changed: &ChangedCall| {
        let output = ToolOutput { success: true, text: changed.output.clone(), ..ToolOutput::default() };
        Change { call: changed.call.clone(), output }
    };
    let mut changes: Vec<_> = changes.iter().map(change).collect();
    if let Some(directory) = &options.policies {
        changes.extend(refused(common, file, directory)?);
    }
    let Some(runtime) = serve::runtime() else { return Ok(Exit::Failed) };
    let replayed =
        runtime.block_on(run_file::replay(file, &changes, further)).map_err(|problem| problem.to_string())?;
    let is_changed = live || model.is_some() || !changes.is_empty() || options.policies.is_some();
    Ok(show(common, &replayed, is_changed))
}

/// The calls that other policies refuse, with the refusal as their answer. Calls of which that is not known are named.
fn refused(common: &Common, file: &RunFile, directory: &Path) -> Result<Vec<Change>, String> {
    let unusable = |_| "the configuration is not usable".to_owned();
    let config = local_gateway::configuration(common).map_err(unusable)?;
    let policies = PolicyReplay::load(&config.policy, directory)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let mut refused = Vec::new();
    for call in file.tool_calls() {
        let parts = json!({
            "tool": call.tool, "kind": "tool", "target": null, "user": file.header.caller, "arguments": call.arguments,
        });
        match policies.decide(&KnownInput::Parts(parts, &["user", "arguments"])) {
            Ok((DecisionKind::Allow, _)) => {}
            Ok((kind, reason)) => {
                let code = if kind == DecisionKind::Deny { ErrorCode::Denied } else { ErrorCode::ApprovalRequired };
                let error_info = Some(json!({"code": code, "message": reason, "retryable": false}));
                let output = ToolOutput { success: false, text: reason, error_info, images: Vec::new() };
                refused.push(Change { call: call.id.clone(), output });
            }
            Err(reads) => {
                present::info(&format!("not known for the call {} of {}: rules read {reads}", call.id, call.tool));
            }
        }
    }
    Ok(refused)
}

fn model_of(
    common: &Common,
    file: &RunFile,
    model: Option<&str>,
    live: bool,
) -> Result<Option<Arc<dyn Model>>, String> {
    if let Some(script) = model.and_then(|model| model.strip_prefix(SCRIPT)) {
        let script = Replay::open(Path::new(script)).map_err(|problem| problem.to_string())?;
        return Ok(Some(Arc::new(script)));
    }
    if !live {
        return match model {
            None => Ok(None),
            Some(_) => {
                Err("a model that is asked needs `--live`; without it, name a script: `--model replay:FILE`".to_owned())
            }
        };
    }
    let config = local_gateway::configuration(common).map_err(|_| "the configuration is not usable".to_owned())?;
    let name = model.unwrap_or(&file.header.name);
    let profile = service::profile(&config.agent, name).map_err(|error| error.message().to_owned())?;
    let outbound = Outbound::new(&config.outbound).map_err(|problem| problem.to_string())?;
    let metrics = Arc::new(Metrics::new("sekisho").map_err(|problem| problem.to_string())?);
    models::open(&profile, &outbound, &metrics).map(Some).map_err(|problem| problem.to_string())
}

/// The tools of the running gateway.
fn tools_of(common: &Common, identity: &Identity) -> Result<Arc<dyn Toolbox>, Exit> {
    let endpoint = find_remote_as(common, &identity.caller())?;
    let gateway = endpoint.gateway().map_err(Unanswered::report)?;
    Ok(Arc::new(OverHttp::new(gateway)))
}

/// A run that was not changed must be equal; one that was need not.
fn show(common: &Common, replayed: &Replayed, is_changed: bool) -> Exit {
    let exit = if replayed.equal || is_changed { Exit::Done } else { Exit::Failed };
    if common.json {
        present::json(replayed);
        return exit;
    }
    let Replayed { equal, reason, requests, further_requests, calls, further_calls, differences, answer, .. } =
        replayed;
    let of_file = |all: &usize, further: &usize| all.saturating_sub(*further);
    let verdict = if *equal { "equal" } else { "differs" };
    present::line(&format!(
        "{verdict}: ended with {reason}; {} of {requests} requests and {} of {calls} calls are answered by the file",
        of_file(requests, further_requests),
        of_file(calls, further_calls)
    ));
    for difference in differences {
        present::line(&difference.to_string());
    }
    if !answer.is_empty() {
        present::line(answer);
    }
    exit
}
