//! `sekisho audit`: verifies, searches and exports the audit trail.

mod stored;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{Common, Exit, present, serve, with_config};
use sekisho_audit::{FoundLine, LineFilter, Verified};
use sekisho_config::Config;
use sekisho_core::error::ErrorCode;
use sekisho_core::nearest_name::nearest_name;

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Check every line's hash and the chain over all segments, and that no line is missing at the end.
    ///
    /// Exit code 1 if something is missing or changed, also where the gateway has stated that and started a new chain.
    Verify {
        /// The trails, such as those of several replicas; by default the one of the configuration.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The closed segments of all replicas in object storage (`cluster.blobs`) instead, also for a trail that two
        /// gateways went on with.
        #[arg(long, conflicts_with = "files")]
        stored: bool,
    },
    /// Find lines of all segments. With --json each is printed as it is in the trail.
    Search(Search),
    /// Print the lines of all segments as they are, in the order of time: JSON, one on each line.
    Export {
        #[command(flatten)]
        period: Period,
        #[command(flatten)]
        trails: Trails,
    },
    /// Add the lines of all segments to the index of calls and events, each once: lost entries are in it again.
    ///
    /// A gateway may use the index. An entry that is made of a line lacks the times of stages and the reason.
    Index {
        #[command(flatten)]
        period: Period,
        #[command(flatten)]
        trails: Trails,
    },
}

/// A line must fit all options that are given.
#[derive(Debug, Args)]
pub(super) struct Search {
    /// The event of a line that is not about a call, such as `unauthenticated` (requests without a valid key) or `key_created`.
    #[arg(long, conflicts_with_all = ["tool", "code", "call_id"])]
    event: Option<String>,
    /// The name of the tool that was called.
    #[arg(long)]
    tool: Option<String>,
    /// The id of a caller.
    #[arg(long)]
    caller: Option<String>,
    /// An error code, such as `denied`.
    #[arg(long, value_parser = error_code)]
    code: Option<String>,
    /// The id of a call, as its reply has it.
    #[arg(long)]
    call_id: Option<String>,
    /// What the client sent or got as `X-Request-Id`.
    #[arg(long)]
    request_id: Option<String>,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    trails: Trails,
}

#[derive(Debug, Args)]
pub(super) struct Trails {
    /// A trail; several times for those of several replicas. By default the one of the configuration.
    #[arg(long = "file", value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Period {
    /// The first moment: `2026-01-31`, or `2026-01-31T12:00:00Z`. A date begins at midnight UTC.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// The moment after the last one.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

pub(super) fn run(common: &Common, command: AuditCommand) -> Exit {
    match command {
        AuditCommand::Verify { stored: true, .. } => with_config(common, |config| stored::verify(common, &config)),
        AuditCommand::Verify { files, .. } => with_trails(common, &files, |files| verify_all(common, files)),
        AuditCommand::Search(Search { event, tool, caller, code, call_id, request_id, period, trails }) => {
            let Period { since, until } = period;
            let filter = LineFilter { event, tool, caller, code, call_id, request_id, since, until };
            with_trails(common, &trails.files, |files| {
                print(files, &filter, |text| if common.json { text.to_owned() } else { summary(text) })
            })
        }
        AuditCommand::Export { period: Period { since, until }, trails } => {
            let filter = LineFilter { since, until, ..LineFilter::default() };
            with_trails(common, &trails.files, |files| print(files, &filter, str::to_owned))
        }
        AuditCommand::Index { period: Period { since, until }, trails } => {
            let filter = LineFilter { since, until, ..LineFilter::default() };
            with_config(common, |config| index(common, &config, trails.files, filter))
        }
    }
}

pub(super) fn with_trails(common: &Common, files: &[PathBuf], run: impl FnOnce(&[PathBuf]) -> Exit) -> Exit {
    match files.is_empty() {
        true => with_config(common, |config| run(&[config.audit_file()])),
        false => run(files),
    }
}

/// Adds lines to the index.
fn index(common: &Common, config: &Config, files: Vec<PathBuf>, filter: LineFilter) -> Exit {
    let Some(runtime) = serve::runtime() else { return Exit::Failed };
    let files = if files.is_empty() { vec![config.audit_file()] } else { files };
    match runtime.block_on(sekisho_gateway::rebuild_index(config, files, filter)) {
        Ok(read) if common.json => present::json_line(&json!({"read": read})),
        Ok(read) => present::line(&format!("{read} calls and events of the trail are in the index")),
        Err(problem) => {
            present::problem(&problem.to_string());
            return Exit::Failed;
        }
    }
    Exit::Done
}

/// A misspelled code fits no line, which would read as "it did not happen".
fn error_code(text: &str) -> Result<String, String> {
    let known = || ErrorCode::ALL.iter().map(|code| code.as_str());
    if known().any(|code| code == text) {
        return Ok(text.to_owned());
    }
    let meant = nearest_name(text, known()).map_or_else(String::new, |code| format!("; did you mean `{code}`?"));
    Err(format!("there is no such error code{meant}"))
}

/// A time, or a date.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let date = || text.parse::<Date>().and_then(|date| date.to_zoned(TimeZone::UTC)).map(|day| day.timestamp());
    let wrong = |_| "write a date as 2026-01-31, or a time as 2026-01-31T12:00:00Z".to_owned();
    text.parse::<Timestamp>().or_else(|_| date()).map_err(wrong)
}

/// Prints each line that is found, until nobody reads any more.
fn print(files: &[PathBuf], filter: &LineFilter, show: impl Fn(&str) -> String) -> Exit {
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut written, mut is_found) = (Ok(()), false);
    let searched = sekisho_audit::search(files, filter, |text| {
        is_found = true;
        written = writeln!(out, "{}", show(text));
        written.is_ok()
    });
    if let Err(problem) = searched {
        present::problem(&problem.to_string());
        return Exit::Failed;
    }
    if !is_found {
        present::info("no line of the trail fits");
    }
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            present::problem(&format!("cannot write to standard output: {error}"));
            Exit::Failed
        }
        _ => Exit::Done,
    }
}

/// Time, status, error code, tool, caller and call id; for a line that is not about a call, the event and its subject.
pub(super) fn summary(line: &str) -> String {
    // It was read before, by the search.
    let Ok(line) = serde_json::from_str::<FoundLine<'_>>(line) else { return line.to_owned() };
    let text = |field: &Option<Cow<'_, str>>| field.as_deref().unwrap_or("-").to_owned();
    let status = match (&line.status, line.success) {
        (None, Some(true)) => "success".to_owned(),
        (None, Some(false)) => "refused".to_owned(),
        (status, _) => text(status),
    };
    let (what, id) = match &line.event {
        Some(event) => (format!("{event} {}", line.subject.as_deref().unwrap_or_default()), text(&line.request_id)),
        None => (text(&line.tool), text(&line.call_id)),
    };
    let (time, code, caller) = (&line.time, text(&line.code), text(&line.caller));
    let shown = format!("{time}  {status:<9}  {code:<17}  {what:<28}  {caller:<16}  {id}");
    // A tool's name may have been chosen by a caller.
    present::harmless(&shown).replace('\n', " ")
}

/// Verifies each trail; a failure of one does not keep the others from being verified.
fn verify_all(common: &Common, files: &[PathBuf]) -> Exit {
    let ends = files.iter().map(|file| verify(common, file)).collect::<Vec<_>>();
    if ends.iter().all(|end| matches!(end, Exit::Done)) { Exit::Done } else { Exit::Failed }
}

fn verify(common: &Common, file: &Path) -> Exit {
    let found = sekisho_audit::verify(file).map_err(|error| error.to_string());
    report(common, json!({"file": file}), &file.display().to_string(), found)
}

/// `origin` names the trail in JSON, `name` in text.
fn report(common: &Common, mut origin: Value, name: &str, found: Result<Verified, String>) -> Exit {
    match found {
        Ok(verified) => {
            show(common, origin, name, &verified);
            if verified.damages.is_empty() { Exit::Done } else { Exit::Failed }
        }
        Err(fault) if common.json => {
            (origin["whole"], origin["fault"]) = (false.into(), fault.into());
            present::json_line(&origin);
            Exit::Failed
        }
        Err(fault) => {
            present::problem(&if fault.starts_with(name) { fault } else { format!("{name}: {fault}") });
            Exit::Failed
        }
    }
}

fn show(common: &Common, mut origin: Value, name: &str, verified: &Verified) {
    let Verified { lines, segments, removed_lines, damages, .. } = verified;
    if common.json {
        origin["whole"] = damages.is_empty().into();
        origin["lines"] = (*lines).into();
        origin["segments"] = (*segments).into();
        origin["removed_lines"] = (*removed_lines).into();
        origin["damages"] = json!(damages);
        present::json_line(&origin);
        return;
    }
    let chain = if damages.is_empty() { "the chain is intact" } else { "each chain is intact" };
    let (counted_lines, segments) = (present::counted(lines, "line"), present::counted(segments, "segment"));
    present::line(&format!("{name}: {counted_lines} in {segments}, {chain}"));
    if *removed_lines > 0 {
        present::line(&format!(
            "{removed_lines} lines before them were removed, as the trail states (audit.retention_days)"
        ));
    }
    for damage in damages {
        let kept = damage.stated.kept_as.as_ref().map(|name| format!("; what was found is in {name}"));
        present::problem(&format!(
            "a new chain begins with line {}, after damage: {}{}",
            damage.line,
            damage.stated.reason,
            kept.unwrap_or_default()
        ));
    }
}
