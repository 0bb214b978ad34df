//! `sekisho audit`: verifies the audit trail.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::{Common, Exit, present, with_config};
use crate::infra::audit;

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Check every line's hash, the chain, and that no line is missing at the end.
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
        Ok(verified) if common.json => present::json(&serde_json::json!({"whole": true, "lines": verified.lines})),
        Ok(verified) => {
            present::line(&format!("{}: {} lines, the chain is intact", file.display(), verified.lines));
            Exit::Done
        }
        Err(error) => {
            if common.json {
                present::json(&serde_json::json!({"whole": false, "fault": error.to_string()}));
            } else {
                present::problem(&format!("{}: {error}", file.display()));
            }
            Exit::Failed
        }
    }
}
