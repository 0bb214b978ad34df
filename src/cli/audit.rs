//! `sekisho audit`: verifies the audit trail.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use super::{Common, Exit, present, with_config};
use crate::infra::audit::{self, Verified};

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Check every line's hash and the chain over all segments, and that no line is missing at the end.
    ///
    /// Exit code 1 if something is missing or changed, also where the gateway has stated that and started a new chain.
    Verify {
        /// The trail; by default the one of the configuration.
        file: Option<PathBuf>,
    },
}

pub(super) fn run(common: &Common, command: AuditCommand) -> Exit {
    let AuditCommand::Verify { file } = command;
    match file {
        Some(file) => verify(common, &file),
        None => with_config(common, |config| verify(common, &config.audit_file())),
    }
}

fn verify(common: &Common, file: &Path) -> Exit {
    match audit::verify(file) {
        Ok(verified) => {
            show(common, file, &verified);
            if verified.damages.is_empty() { Exit::Done } else { Exit::Failed }
        }
        Err(error) => {
            if common.json {
                present::json(&json!({"whole": false, "fault": error.to_string()}));
            } else {
                present::problem(&format!("{}: {error}", file.display()));
            }
            Exit::Failed
        }
    }
}

fn show(common: &Common, file: &Path, verified: &Verified) {
    let Verified { lines, segments, damages, .. } = verified;
    if common.json {
        let whole = damages.is_empty();
        present::json(&json!({"whole": whole, "lines": lines, "segments": segments, "damages": damages}));
        return;
    }
    let chain = if damages.is_empty() { "the chain is intact" } else { "each chain is intact" };
    present::line(&format!("{}: {lines} lines in {segments} segments, {chain}", file.display()));
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
