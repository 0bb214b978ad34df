//! `sekisho sandbox`: what runs untrusted Python.

use clap::Subcommand;

use super::{Exit, present};
use crate::sandbox::worker;

#[derive(Debug, Subcommand)]
pub(super) enum SandboxCommand {
    /// Run programs for the gateway that is at the other end of standard input, which starts it.
    #[command(hide = true)]
    Worker,
}

pub(super) fn run(command: &SandboxCommand) -> Exit {
    match command {
        SandboxCommand::Worker => match worker::main() {
            Ok(()) => Exit::Done,
            Err(fault) => {
                present::problem(&fault.to_string());
                Exit::Failed
            }
        },
    }
}
