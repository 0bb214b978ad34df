//! `sekisho sandbox`: sets up, looks after, and is what runs untrusted Python.

mod bench;
mod interpreters;

use clap::Subcommand;

use super::{Common, Exit, present, with_config};
use crate::sandbox::worker;

#[derive(Debug, Subcommand)]
pub(super) enum SandboxCommand {
    /// Fetch, check and compile the interpreter, so that `python_executor` can run.
    ///
    /// Takes some minutes, 3 GB of memory and 2 GB of disk the first time, and milliseconds afterwards. It can be
    /// interrupted: what was finished stays finished. Everything is kept in sekisho's cache folder
    /// ($XDG_CACHE_HOME/sekisho/interpreters, else ~/.cache/sekisho/interpreters).
    Prepare(interpreters::PrepareCommand),
    /// See which interpreters there are, and which are ready.
    List,
    /// Compare every file of the interpreter with its SHA-256 sum.
    Verify,
    /// Measure runs through the pipeline, beside Python as a process of its own.
    Bench(bench::BenchCommand),
    /// Run programs for the gateway that is at the other end of standard input, which starts it.
    #[command(hide = true)]
    Worker,
}

pub(super) fn run(common: &Common, command: SandboxCommand) -> Exit {
    match command {
        SandboxCommand::Prepare(command) => {
            with_config(common, |config| interpreters::prepare(common, &config.sandbox, command))
        }
        SandboxCommand::List => with_config(common, |config| interpreters::list(common, &config.sandbox)),
        SandboxCommand::Verify => with_config(common, |config| interpreters::verify(common, &config.sandbox)),
        SandboxCommand::Bench(command) => with_config(common, |config| bench::bench(common, config, &command)),
        SandboxCommand::Worker => match worker::main() {
            Ok(()) => Exit::Done,
            Err(fault) => {
                present::problem(&fault.to_string());
                Exit::Failed
            }
        },
    }
}
