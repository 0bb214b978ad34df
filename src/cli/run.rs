//! `sekisho runs recorded`, `export` and `replay`: recorded runs as files, and files that are played again. `sekisho run` is their
//! hidden former name.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::call::{self, Identity};
use super::local_gateway::with_remote_as;
use super::{Common, Exit, present};
use sekisho_api::RecordedRunBody;
use sekisho_core::owner_only_files;
use sekisho_core::run_file::{ProgramAnswer, ProgramQuestion, RunFile, RunKind, RunLine, SealedRun};

#[cfg(feature = "agent")]
mod agent;

#[derive(Debug, Args)]
pub(super) struct RunCommand {
    #[command(subcommand)]
    action: Option<FormerAction>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

#[derive(Debug, Subcommand)]
enum FormerAction {
    /// List your recorded runs of agents and programs.
    List,
    #[command(flatten)]
    Recorded(Action),
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// List your recorded runs of agents and programs.
    Recorded,
    /// Write a recorded run to a file, with the answers of models and tools, and the clocks and random numbers that it read.
    Export {
        /// The id of a run, as `sekisho runs recorded` lists it.
        run: String,
        /// The file; without it, standard output.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Sealed: only you open it, at a gateway with the same key.
        #[arg(long)]
        sealed: bool,
    },
    /// Play a run again with the answers of its file; nothing is sent. Fails if it differs.
    Replay(ReplayOptions),
}

#[derive(Debug, Args)]
pub(super) struct ReplayOptions {
    /// A file of `sekisho runs export`.
    file: PathBuf,
    /// Another answer to a call: its id, or the number of a program's call, and a text or `@FILE`.
    #[arg(long, num_args = 2, value_names = ["call=ID", "output=@FILE"])]
    change: Vec<String>,
    /// Policies of a folder: a call of an agent that they refuse gets the refusal as its answer.
    #[cfg(feature = "agent")]
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Another model in place of the recorded answers: `replay:FILE`, or with `--live` a profile.
    #[cfg(feature = "agent")]
    #[arg(long)]
    model: Option<String>,
    /// Send requests and calls that have no answer in the file: to the model of the run's profile, and to the tools of the running gateway.
    #[cfg(feature = "agent")]
    #[arg(long)]
    live: bool,
}

/// Another answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChangedCall {
    call: String,
    output: String,
}

pub(super) fn run(common: &Common, command: RunCommand) -> Exit {
    let action = match command.action {
        Some(FormerAction::Recorded(action)) => action,
        Some(FormerAction::List) | None => Action::Recorded,
    };
    act(common, action, &command.identity)
}

pub(super) fn act(common: &Common, action: Action, identity: &Identity) -> Exit {
    match action {
        Action::Recorded => with_remote_as(common, &identity.caller(), |remote| {
            Ok(present::listed::<RecordedRunBody>(&remote.get_all(&["recorded-runs"], &[])?, common.json))
        }),
        Action::Export { run, output, sealed } => with_remote_as(common, &identity.caller(), |remote| {
            let found = remote.get(&["recorded-runs", &run], if sealed { &[("sealed", "true")] } else { &[] })?;
            Ok(write(found["file"].as_str().unwrap_or_default(), output.as_deref()))
        }),
        Action::Replay(options) => replay(common, identity, &options).unwrap_or_else(|problem| {
            present::problem(&problem);
            Exit::WrongCommandLine
        }),
    }
}

/// Only its user reads the file: it has all that the run has read.
fn write(text: &str, output: Option<&Path>) -> Exit {
    let Some(file) = output else {
        // As it is: a reader that has left is no failure.
        let _ = io::stdout().lock().write_all(text.as_bytes());
        return Exit::Done;
    };
    match owner_only_files::write::<io::Error>(file, |file| file.write_all(text.as_bytes())) {
        Ok(()) => Exit::Done,
        Err(problem) => {
            present::problem(&format!("{}: cannot be written: {problem}", file.display()));
            Exit::Failed
        }
    }
}

fn read_file(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file)
        .map_err(|problem| format!("{} cannot be read: {problem}; check the path and its permissions", file.display()))
}

/// Errors: the file cannot be read, or a change is none.
fn replay(common: &Common, identity: &Identity, options: &ReplayOptions) -> Result<Exit, String> {
    let name = options.file.display();
    let text = read_file(&options.file)?;
    let text = match opened(common, identity, text) {
        Ok(text) => text,
        Err(exit) => return Ok(exit),
    };
    let mut file = RunFile::parse(&text).map_err(|problem| format!("{name}: {problem}"))?;
    let changes = options.change.chunks(2).map(ChangedCall::read).collect::<Result<Vec<_>, _>>()?;
    match file.header.kind {
        RunKind::Program => {
            #[cfg(feature = "agent")]
            {
                if options.live || options.model.is_some() || options.policies.is_some() {
                    return Err(
                        "`--live`, `--model` and `--policies` are for runs of agents, not of programs".to_owned()
                    );
                }
            }
            change_program(&mut file, &changes)?;
            Ok(with_remote_as(common, &identity.caller(), |remote| {
                let reply = remote.post(&["recorded-runs", "replay"], &json!({"file": file.to_text()}))?;
                Ok(call::show(common, &reply))
            }))
        }
        #[cfg(feature = "agent")]
        RunKind::Agent => agent::replay(common, identity, (&file, &changes), options),
        #[cfg(not(feature = "agent"))]
        RunKind::Agent => Err("the run of an agent is played by a build with the feature `agent`".to_owned()),
    }
}

/// The text of a sealed file, which the gateway opens.
fn opened(common: &Common, identity: &Identity, text: String) -> Result<String, Exit> {
    if SealedRun::parse(&text).is_none() {
        return Ok(text);
    }
    let mut plain = None;
    let exit = with_remote_as(common, &identity.caller(), |remote| {
        let opened = remote.send(Method::POST, &["recorded-runs", "open"], Some(&json!({"file": text})))?;
        plain = opened["file"].as_str().map(str::to_owned);
        Ok(Exit::Done)
    });
    plain.ok_or(exit)
}

/// A changed run is compared with nothing.
fn change_program(file: &mut RunFile, changes: &[ChangedCall]) -> Result<(), String> {
    for ChangedCall { call, output } in changes {
        let is_it = |question: &ProgramQuestion| match question {
            ProgramQuestion::Call { call: number, .. } => number.to_string() == *call,
            ProgramQuestion::Inquiry(_) => false,
        };
        let request = file.lines.iter_mut().find_map(|line| match line {
            RunLine::ProgramRequest(request) if is_it(&request.question) => Some(request),
            _ => None,
        });
        let request = request.ok_or_else(|| format!("the run has no call {call:?}; its calls are numbered from 1"))?;
        let json = serde_json::from_str::<Value>(output).unwrap_or_else(|_| Value::from(output.as_str()));
        request.answer = ProgramAnswer { is_ok: true, json: json.to_string() };
        file.end.result_sha256 = None;
    }
    Ok(())
}

impl ChangedCall {
    /// Errors: the two values are not `call=ID output=TEXT`, or the file cannot be read.
    fn read(values: &[String]) -> Result<Self, String> {
        let wrong = || "write a change as `--change call=ID output=@FILE`".to_owned();
        let [call, output] = values else { return Err(wrong()) };
        let call = call.strip_prefix("call=").ok_or_else(wrong)?.to_owned();
        let output = output.strip_prefix("output=").ok_or_else(wrong)?;
        let output = match output.strip_prefix('@') {
            Some(file) => read_file(Path::new(file))?,
            None => output.to_owned(),
        };
        Ok(Self { call, output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_a_call_and_an_output() {
        let read = |values: [&str; 2]| ChangedCall::read(&values.map(str::to_owned));
        let expected = ChangedCall { call: "c1".to_owned(), output: "{\"a\": 1}".to_owned() };
        assert_eq!(read(["call=c1", "output={\"a\": 1}"]), Ok(expected));
        assert!(read(["c1", "output=x"]).unwrap_err().contains("--change call=ID"));
        assert!(read(["call=c1", "x"]).is_err());
        assert!(read(["call=c1", "output=@/nowhere/file"]).unwrap_err().contains("/nowhere/file cannot be read"));
    }
}
