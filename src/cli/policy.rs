//! `sekisho policy replay`: the decisions that other policies would change, by the calls in the audit trail.

mod report;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};

use self::report::{DecidedLine, Report};
use super::audit::{Trails, moment, with_trails};
use super::{Common, Exit, present, with_config};
use sekisho_audit::LineFilter;
use sekisho_calls::policy::replay::PolicyReplay;

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Evaluate the policies of a folder about calls in the audit trail, and list the decisions that change.
    ///
    /// Exact for calls that were made while `recording.decisions` was true; of others, for rules that read no more than the trail has.
    /// Exit code 1 if a decision changes, or none could be evaluated.
    Replay(ReplayOptions),
}

#[derive(Debug, Args)]
pub(super) struct ReplayOptions {
    /// The folder of the policies.
    directory: PathBuf,
    /// The first moment: `7d`, `12h` or `30m` before now, `2026-01-31`, or `2026-01-31T12:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    #[command(flatten)]
    trails: Trails,
}

/// Lines that a worker takes at a time.
const BATCH: usize = 512;

/// Batches that wait for a worker.
const MAX_WAITING: usize = 8;

/// Evaluation takes most of the time.
const MAX_WORKERS: usize = 8;

pub(super) fn run(common: &Common, command: &PolicyCommand) -> Exit {
    let PolicyCommand::Replay(options) = command;
    with_config(common, |config| {
        let replay = match PolicyReplay::load(&config.policy, &options.directory) {
            Ok(replay) => replay,
            Err(errors) => {
                errors.iter().for_each(|error| present::problem(&error.to_string()));
                return Exit::Failed;
            }
        };
        with_trails(common, &options.trails.files, |files| match judged(&replay, files, options.since) {
            Ok(report) => show(common, &report),
            Err(problem) => {
                present::problem(&problem);
                Exit::Failed
            }
        })
    })
}

/// Judges the calls of the trails, several at a time.
/// Errors: a trail cannot be read.
fn judged(replay: &PolicyReplay, files: &[PathBuf], since: Option<Timestamp>) -> Result<Report, String> {
    let filter = LineFilter { since, ..LineFilter::default() };
    let workers = thread::available_parallelism().map_or(1, |count| count.get().min(MAX_WORKERS));
    let (send, lines) = sync_channel::<Vec<String>>(MAX_WAITING);
    let lines = Mutex::new(lines);
    thread::scope(|scope| {
        let judging: Vec<_> = (0..workers).map(|_| scope.spawn(|| judge_batches(replay, &lines))).collect();
        let mut batch = Vec::with_capacity(BATCH);
        let searched = sekisho_audit::search(files, &filter, |text| {
            batch.push(text.to_owned());
            if batch.len() < BATCH {
                return true;
            }
            send.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).is_ok()
        });
        // The workers end when nothing is sent any more; they are there until then.
        let _ = send.send(batch);
        drop(send);
        let mut report = Report::default();
        for worker in judging {
            report.merge(worker.join().map_err(|_| "the evaluation failed".to_owned())?);
        }
        searched.map(|()| report).map_err(|problem| problem.to_string())
    })
}

fn judge_batches(replay: &PolicyReplay, lines: &Mutex<Receiver<Vec<String>>>) -> Report {
    let mut report = Report::default();
    loop {
        let received = lines.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = received else { return report };
        for line in batch {
            if let Some((call, known)) = DecidedLine::read(&line) {
                report.add(&call, replay.judge(&known));
            }
        }
    }
}

fn show(common: &Common, report: &Report) -> Exit {
    if common.json {
        present::json(report);
    } else {
        report.print();
    }
    if report.fits() { Exit::Done } else { Exit::Failed }
}

/// A time, or how long before now.
fn since(text: &str) -> Result<Timestamp, String> {
    let ago = text.strip_suffix(['d', 'h', 'm']).and_then(|number| number.parse::<u32>().ok());
    let Some(number) = ago else {
        return moment(text).map_err(|wrong| format!("{wrong}; or how long ago it was: 7d, 12h or 30m"));
    };
    let minutes = i64::from(number)
        * match text.as_bytes().last() {
            Some(b'd') => 24 * 60,
            Some(b'h') => 60,
            _ => 1,
        };
    let then = Timestamp::now().checked_sub(SignedDuration::from_mins(minutes));
    then.map_err(|_| format!("{text} ago is before all times"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use sekisho_config::PolicyConfig;

    #[test]
    fn a_time_is_one_or_how_long_ago_it_was() {
        let hours_ago = |text: &str| {
            let then = since(text).unwrap();
            Timestamp::now().duration_since(then).as_hours()
        };
        for (text, expected) in [("7d", 168), ("12h", 12), ("90m", 1)] {
            assert_eq!(hours_ago(text), expected, "{text}");
        }
        assert_eq!(since("2026-01-31").unwrap().to_string(), "2026-01-31T00:00:00Z");
        assert!(since("soon").unwrap_err().contains("7d"));
    }

    /// Two lines with their inputs, one without, and one that no policy decided.
    #[test]
    fn changes_are_told_by_rule_tool_and_caller() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        write(
            "new/a.rego",
            "package tools\nimport rego.v1\ndeny contains \"no interns\" if \"intern\" in input.user.roles\n",
        );
        write("old/a.rego", "package tools\nimport rego.v1\ndeny contains \"never\" if false\n");
        let line = |seq: u32, caller: &str, roles: Option<&str>| {
            let input = roles.map(|role| json!({"tool": "mail", "user": {"id": caller, "roles": [role]}}));
            json!({
                "seq": seq, "time": "2026-01-31T10:00:00.000000Z", "tool": "mail", "caller": caller, "tenant": "acme",
                "anonymous": false, "via": "rest", "depth": 0, "dry_run": false, "session": null,
                "call_id": format!("c-{seq}"), "policy_version": "v", "policy_input": input,
            })
        };
        let refused = json!({"seq": 4, "time": "2026-01-31T10:00:00.000000Z", "tool": "mail", "caller": "ann", "policy_version": null});
        let lines = [line(1, "ann", Some("intern")), line(2, "bob", Some("chief")), line(3, "cat", None), refused];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let trail = write("audit.jsonl", &text);
        let config = PolicyConfig { directory: Some(folder.path().join("old")), ..PolicyConfig::default() };
        let replay = PolicyReplay::load(&config, &folder.path().join("new")).unwrap();
        let report = judged(&replay, &[trail], None).unwrap();
        let shown = serde_json::to_value(&report).unwrap();
        assert_eq!(
            shown,
            json!({
                "decisions": 3, "same": 1, "changed": 1, "unknown": 1,
                "changes": [{
                    "before": "allow", "after": "deny", "rule": "no interns", "tool": "mail", "caller": "acme/ann", "calls": 1,
                    "examples": ["c-1"],
                }],
                "unknown_calls": [{"reads": "input.user.roles", "calls": 1, "examples": ["c-3"]}],
            })
        );
        assert!(!report.fits());
    }
}
