//! `sekisho eval`: cases that agents of several profiles are asked, with the answers of the cases' tools, as a table of passed checks.

mod junit;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use futures_util::stream::{self, StreamExt};
use uuid::Uuid;

use self::report::{CaseResult, Report};
use super::call::Identity;
use super::chat::{named_profile, state_of_its_own};
use super::{Common, Exit, local_gateway, present, serve};
use sekisho_agent::evaluation::{Candidate, Case, CaseTools, evaluate};
use sekisho_agent::toolbox::OverHttp;
use sekisho_agent::{AgentService, Toolbox, models};
use sekisho_config::{AgentProfile, Config};
use sekisho_core::call::Caller;
use sekisho_gateway::Gateway;

/// The name of the agent whose model a case's own script plays.
const RECORDED: &str = "recorded";

/// Files of a run of the command at most.
const MAX_CASES: usize = 10_000;

#[derive(Debug, Args)]
pub(super) struct EvalCommand {
    /// Files of cases, or folders with files `.yaml` or `.yml`.
    #[arg(required = true)]
    cases: Vec<PathBuf>,
    /// A profile that is asked, or `replay:FILE`; may be repeated. Without one, each case's script plays its model.
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// The profile that answers the questions of cases about an answer. Without one these are left out.
    #[arg(long, value_name = "PROFILE")]
    judge: Option<String>,
    /// Call the tools of the running gateway, in place of the cases' answers.
    #[arg(long)]
    live: bool,
    /// How many cases run at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64), value_name = "COUNT")]
    jobs: u8,
    /// Write the results as JUnit XML, too.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

/// A case of a file.
struct Named {
    /// The path, as given or found.
    file: PathBuf,
    case: Case,
}

impl EvalCommand {
    pub(super) fn is_live(&self) -> bool {
        self.live
    }
}

pub(super) fn run(common: &Common, command: &EvalCommand) -> Exit {
    let cases = match read(&command.cases) {
        Ok(cases) => cases,
        Err(problem) => {
            present::problem(&problem);
            return Exit::WrongCommandLine;
        }
    };
    let live = match live_tools(common, command) {
        Ok(live) => live,
        Err(exit) => return exit,
    };
    let (config, lock, folder) = match local_gateway::configuration(common).and_then(state_of_its_own) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let exit =
        serve::with_gateway(config, lock, None, async |gateway| match score(&gateway, command, &cases, live).await {
            Ok(report) => report.show(common.json, command.junit.as_deref()),
            Err((exit, problem)) => {
                present::problem(&problem);
                exit
            }
        });
    drop(folder);
    exit
}

/// The tools of the running gateway, with `--live`.
fn live_tools(common: &Common, command: &EvalCommand) -> Result<Option<OverHttp>, Exit> {
    if !command.live {
        return Ok(None);
    }
    let endpoint = local_gateway::find_remote_as(common, &command.identity.caller())?;
    let gateway = endpoint.gateway().map_err(super::client::Unanswered::report)?;
    Ok(Some(OverHttp::new(gateway)))
}

/// The cases of files and folders, in their order.
fn read(paths: &[PathBuf]) -> Result<Vec<Named>, String> {
    let mut files = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => files.extend(in_folder(path)?),
            false => files.push(path.clone()),
        }
    }
    if files.is_empty() || files.len() > MAX_CASES {
        let count = files.len();
        return Err(format!(
            "there are {count} cases, and 1 to {MAX_CASES} can be run; `sekisho runs save` writes one"
        ));
    }
    let named = |file: PathBuf| Case::open(&file).map(|case| Named { file, case }).map_err(|error| error.to_string());
    files.into_iter().map(named).collect()
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |problem| format!("{} cannot be read: {problem}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>();
    let is_yaml = |file: &PathBuf| file.extension().is_some_and(|end| end == "yaml" || end == "yml") && file.is_file();
    let mut files: Vec<_> = files.map_err(unreadable)?.into_iter().filter(is_yaml).collect();
    files.sort();
    Ok(files)
}

async fn score(
    gateway: &Arc<Gateway>,
    command: &EvalCommand,
    cases: &[Named],
    live: Option<OverHttp>,
) -> Result<Report, (Exit, String)> {
    let misconfigured = |problem: String| (Exit::Misconfigured, problem);
    let agents = AgentService::new(gateway).map_err(|problem| misconfigured(problem.to_string()))?;
    let caller = command.identity.caller().caller().map_err(|error| misconfigured(error.to_string()))?;
    let config = gateway.configuration().current().clone();
    let named = |name: &String| candidate(gateway, &config, name);
    let profiles = command.profiles.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let judge = command.judge.as_ref().map(named).transpose()?;
    let mut asked = Vec::new();
    for case in cases {
        match profiles.is_empty() {
            true => asked.push((case, recorded(&case.file))),
            false => asked.extend(profiles.iter().map(|profile| (case, profile.clone()))),
        }
    }
    let (agents, judge, live) = (&agents, judge.as_ref(), live.as_ref());
    let results = stream::iter(asked.into_iter().map(|(Named { file, case }, candidate)| {
        let caller: Arc<Caller> = Arc::clone(&caller);
        async move {
            let score = evaluate(agents, &caller, &candidate, (case, toolbox(case, live)), judge).await;
            CaseResult { case: file.display().to_string(), profile: candidate.name, score }
        }
    }));
    Ok(Report::new(results.buffered(command.jobs.into()).collect().await))
}

/// The answers of the case, or with `--live` the tools of the gateway in a session of their own.
fn toolbox(case: &Case, live: Option<&OverHttp>) -> Arc<dyn Toolbox> {
    let Some(live) = live else { return Arc::new(CaseTools::new(case)) };
    let id = Uuid::now_v7().to_string();
    Arc::new(live.for_request(Some(&id), &id))
}

/// A profile of the configuration, or a script.
fn candidate(gateway: &Gateway, config: &Config, name: &str) -> Result<Candidate, (Exit, String)> {
    let (agent, profile) = named_profile(config, name).map_err(|error| (Exit::WrongCommandLine, error.to_string()))?;
    let opened = models::open(&profile, gateway.outbound(), &gateway.pipeline.settlement.metrics);
    opened.map_err(|problem| (Exit::Misconfigured, format!("the profile {agent:?} cannot be used: {problem}")))?;
    Ok(Candidate { name: name.to_owned(), profile })
}

fn recorded(file: &Path) -> Candidate {
    let profile = Arc::new(AgentProfile::replay(&file.to_string_lossy()));
    Candidate { name: RECORDED.to_owned(), profile }
}
