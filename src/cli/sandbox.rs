//! `sekisho sandbox`: prepares and verifies the interpreter for untrusted Python, and runs it as a worker.

mod interpreters;

use clap::Subcommand;

use super::{Common, Exit, present, with_config};

#[derive(Debug, Subcommand)]
pub(super) enum SandboxCommand {
    /// Fetch, check and compile the interpreter, so that `python_executor` can run.
    ///
    /// The first time it takes some minutes, 3 GB of memory and 2 GB of disk, afterwards milliseconds. It can be
    /// interrupted, and continues with what is missing. Everything is stored in sekisho's cache folder
    /// ($XDG_CACHE_HOME/sekisho/interpreters, else ~/.cache/sekisho/interpreters).
    Prepare(interpreters::PrepareCommand),
    /// List the interpreters, and which are ready.
    List,
    /// Compare every file of the interpreter with its SHA-256 sum.
    Verify,
    /// Run programs as a worker of the gateway, which starts this command and writes to its standard input.
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        background: bool,
    },
}

pub(super) fn run(common: &Common, command: SandboxCommand) -> Exit {
    match command {
        SandboxCommand::Prepare(command) => {
            with_config(common, |config| interpreters::prepare(common, &config.sandbox, command))
        }
        SandboxCommand::List => with_config(common, |config| interpreters::list(common, &config.sandbox)),
        SandboxCommand::Verify => with_config(common, |config| interpreters::verify(common, &config.sandbox)),
        SandboxCommand::Worker { background } => match sekisho_guest_worker::main(background) {
            Ok(()) => Exit::Done,
            Err(error) => {
                present::problem(&error.to_string());
                Exit::Failed
            }
        },
    }
}
