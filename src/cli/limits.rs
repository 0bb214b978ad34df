//! `sekisho limits`: the rest of the limits of a running gateway.

use clap::Subcommand;

use super::local_gateway::with_remote;
use super::{Common, Exit, present};
use sekisho_api::{LevelBody, RuleBody};

#[derive(Debug, Default, Subcommand)]
pub(super) enum LimitsCommand {
    /// Show what is left for whom: with `--server` for the holder of the key.
    #[default]
    Show,
}

pub(super) fn run(common: &Common, LimitsCommand::Show: &LimitsCommand) -> Exit {
    with_remote(common, |remote| {
        let limits = remote.get(&["limits"], &[])?;
        if common.json {
            return Ok(present::json(&limits));
        }
        present::list::<RuleBody>(present::entries(&limits["rules"]));
        present::list::<LevelBody>(present::entries(&limits["rates"]));
        Ok(Exit::Done)
    })
}
