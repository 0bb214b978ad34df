//! `sekisho tools test`: runs the cases of overrides (`tools.overrides.TOOL.cases`), and of Python functions, `FILE.cases.yaml`
//! beside `FILE.py`.
//!
//! Each case of a function is a call through the whole pipeline, in a gateway of this process on a copy of the state: counts and
//! records of the running gateway stay as they are.

mod case;
mod overrides;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use self::case::{Case, Verdict};
use crate::cli::call::Identity;
use crate::cli::explain::with_copied_state;
use crate::cli::{Common, Exit, present};
use sekisho_calls::tool::PYTHON_SOURCE;
use sekisho_config::{ApprovalsConfig, ClusterConfig, Config};
use sekisho_core::call::{CallContext, Caller, Via};
use sekisho_gateway::Gateway;

#[derive(Debug, Args)]
pub(in crate::cli) struct TestCommand {
    /// Only the cases of these files of Python functions, named without `.py`.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    identity: Identity,
}

/// The cases of one file, by its name without `.py`.
#[derive(Debug)]
struct FileCases {
    file: String,
    cases: Vec<Case>,
}

/// The shown result of a case.
#[derive(Debug, Serialize)]
struct Ran {
    file: String,
    name: String,
    #[serde(flatten)]
    verdict: Verdict,
}

const SUFFIX: &str = ".cases.yaml";

/// More than anybody writes: the limits of the tools are not tested here.
const RATE_LIMIT: u32 = 1_000_000;

pub(super) fn run(common: &Common, config: Config, command: &TestCommand) -> Exit {
    let ran = if command.files.is_empty() { overrides::run(&config) } else { Vec::new() };
    let found = match &config.python_tools.directory {
        None if ran.is_empty() => {
            present::problem(
                "there are no tools to test: set `python_tools.directory`, write one with `sekisho tools new`, or add `cases` to one of \
                 `tools.overrides`",
            );
            return Exit::Misconfigured;
        }
        None => return finish(common, &ran),
        Some(directory) => names_of_cases(directory).and_then(|names| match names.is_empty() && !ran.is_empty() {
            true => Ok(Vec::new()),
            false => read_cases(directory, names, &command.files),
        }),
    };
    match found {
        Ok(found) if found.is_empty() => finish(common, &ran),
        Ok(found) => {
            let config = for_tests(config, &found);
            with_copied_state(config, async |gateway| run_all(common, &gateway, &command.identity, found, ran).await)
        }
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
    }
}

/// The same tools, without limits of rates, and without others who are told of calls.
fn for_tests(mut config: Config, found: &[FileCases]) -> Config {
    (config.cluster, config.approvals) = (ClusterConfig::default(), ApprovalsConfig::default());
    config.tools.workspace.directory = None;
    for FileCases { file, cases } in found {
        for case in cases {
            let changes = config.tools.overrides.entry(case.tool_of(file)).or_default();
            changes.rate_limit = Some(RATE_LIMIT);
        }
    }
    config
}

/// The files of the folder that have cases, without their suffix.
/// Errors: the folder cannot be read.
fn names_of_cases(directory: &Path) -> Result<Vec<String>, String> {
    let unreadable = |error: std::io::Error| format!("the folder {} cannot be read: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        names.extend(name.to_string_lossy().strip_suffix(SUFFIX).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Errors: a file that cannot be read, has no cases, or is none of the folder.
fn read_cases(directory: &Path, mut names: Vec<String>, only: &[String]) -> Result<Vec<FileCases>, String> {
    let shown = directory.display();
    if let Some(missing) = only.iter().find(|wanted| !names.contains(wanted)) {
        return Err(format!("{shown} has no {missing}{SUFFIX}; `sekisho tools new NAME` writes an example"));
    }
    names.retain(|name| only.is_empty() || only.contains(name));
    if names.is_empty() {
        return Err(format!("{shown} has no file NAME{SUFFIX}; `sekisho tools new NAME` writes an example"));
    }
    let read = |file: String| {
        let path = directory.join(format!("{file}{SUFFIX}"));
        let cases = fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|text| Case::read(&text));
        let cases = cases.map_err(|problem| format!("{}: {problem}", path.display()))?;
        Ok::<_, String>(FileCases { file, cases })
    };
    names.into_iter().map(read).collect()
}

/// `ran`: the cases that were run before.
async fn run_all(
    common: &Common,
    gateway: &Arc<Gateway>,
    identity: &Identity,
    found: Vec<FileCases>,
    mut ran: Vec<Ran>,
) -> Exit {
    let caller = match identity.caller().caller() {
        Ok(caller) => caller,
        Err(error) => {
            present::problem(&error.to_string());
            return Exit::WrongCommandLine;
        }
    };
    // A file that is broken has no tool, and says why.
    let degraded = gateway.status().degraded();
    for (component, reason) in degraded.iter().filter(|(component, _)| component.starts_with(PYTHON_SOURCE)) {
        present::problem(&format!("{component}: {reason}"));
    }
    for FileCases { file, cases } in found {
        for case in cases {
            let verdict = run_one(gateway, &caller, &file, &case).await;
            ran.push(Ran { file: file.clone(), name: case.name, verdict });
        }
    }
    finish(common, &ran)
}

fn finish(common: &Common, ran: &[Ran]) -> Exit {
    show(common, ran);
    if ran.iter().all(|ran| ran.verdict.ok) { Exit::Done } else { Exit::Failed }
}

async fn run_one(gateway: &Arc<Gateway>, caller: &Arc<Caller>, file: &str, case: &Case) -> Verdict {
    let call = CallContext::new(case.tool_of(file), Arc::clone(caller), Via::Rest);
    let answered = gateway.pipeline.call(call, case.arguments.clone()).await;
    let reply = serde_json::to_value(&*answered.reply).unwrap_or(Value::Null);
    case.verdict(&reply)
}

fn show(common: &Common, ran: &[Ran]) {
    if common.json {
        present::json(ran);
        return;
    }
    let row = |ran: &Ran| {
        let Ran { file, name, verdict } = ran;
        let time = verdict.wall_ms.map(|time| format!("{time:.1} ms")).unwrap_or_default();
        let memory = verdict.peak_memory_bytes.map(|bytes| format!("{} MiB", bytes >> 20)).unwrap_or_default();
        let problem = verdict.problem.as_deref().map(|problem| present::harmless(problem).into_owned());
        let state = if verdict.ok { "ok" } else { "FAILED" };
        vec![file.clone(), name.clone(), state.to_owned(), time, memory, problem.unwrap_or_default()]
    };
    present::table(&["file", "case", "", "time", "memory", ""], ran.iter().map(row).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_found_beside_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let read = |only: &[&str]| {
            let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
            let found = read_cases(folder.path(), names_of_cases(folder.path())?, &only)?;
            Ok::<_, String>(found.into_iter().map(|found| (found.file, found.cases.len())).collect::<Vec<_>>())
        };
        assert!(read(&[]).unwrap_err().contains("has no file NAME.cases.yaml"));
        write("weather.cases.yaml", "- {name: one, tool: now}\n- {name: two, tool: now, output: null}\n");
        write("other.cases.yaml", "[]");
        write("weather.py", "");
        assert_eq!(read(&[]).unwrap(), [("other".to_owned(), 0), ("weather".to_owned(), 2)]);
        assert_eq!(read(&["weather"]).unwrap(), [("weather".to_owned(), 2)]);
        assert!(read(&["wether"]).unwrap_err().contains("has no wether.cases.yaml"));
        write("other.cases.yaml", "- {name: one, tool: now, outptu: 3}");
        let problem = read(&[]).unwrap_err();
        assert!(problem.contains("other.cases.yaml: ") && problem.contains("outptu"), "{problem}");
    }

    #[test]
    fn the_example_has_cases_of_each_kind() {
        let cases = Case::read(include_str!("new_file/example.cases.yaml")).unwrap();
        assert_eq!(
            cases.iter().map(|case| case.tool_of("weather")).collect::<Vec<_>>(),
            ["weather__convert", "weather__convert", "weather__convert", "weather__product"]
        );
        let config = for_tests(Config::default(), &[FileCases { file: "weather".to_owned(), cases }]);
        assert_eq!(config.tools.overrides["weather__product"].rate_limit, Some(RATE_LIMIT));
    }
}
