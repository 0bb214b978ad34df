//! `sekisho usage`: which callers used which tools on which days and at which cost, at a running gateway.

use clap::Args;

use super::local_gateway::with_remote;
use super::{Common, Exit, present};
use sekisho_api::ToolUseOfDay;

#[derive(Debug, Args)]
pub(super) struct UsageCommand {
    /// The last days (UTC), today included; at most 90.
    #[arg(long, value_name = "N", default_value = "30")]
    days: u32,
}

pub(super) fn run(common: &Common, command: &UsageCommand) -> Exit {
    let days = command.days.to_string();
    with_remote(common, |remote| {
        let uses = remote.get_all(&["admin", "usage", "tools"], &[("days", &*days)])?;
        Ok(present::listed::<ToolUseOfDay>(&uses, common.json))
    })
}
