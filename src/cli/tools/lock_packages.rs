//! `sekisho tools lock`: fetches and pins the packages that Python functions import.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::{Common, Exit, present};
use sekisho_config::Config;
use sekisho_interpreters::interpreter::Manifest;
use sekisho_interpreters::packages::{LockedPackages, WheelSource, lock_packages};

#[derive(Debug, Args)]
pub(in crate::cli) struct LockCommand {
    /// A folder with wheels that were downloaded before, used instead of pip's download.
    #[arg(long, value_name = "FOLDER")]
    wheels: Option<PathBuf>,
    /// The Python whose pip downloads the wheels.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: OsString,
}

pub(super) fn run(common: &Common, config: &Config, command: &LockCommand) -> Exit {
    let Some(directory) = &config.python_tools.directory else {
        present::problem("there are no tools that could import packages: set `python_tools.directory`");
        return Exit::Misconfigured;
    };
    let source = match &command.wheels {
        Some(folder) => WheelSource::Folder(folder.clone()),
        None => WheelSource::Pip(vec![command.python.clone()]),
    };
    let locked = Manifest::chosen(&config.sandbox).map_err(|error| error.to_string()).and_then(|interpreter| {
        lock_packages(directory, &interpreter.python, &source, &inform).map_err(|error| error.to_string())
    });
    match locked {
        Ok(LockedPackages { packages, needs }) => {
            needs.iter().for_each(|needed| inform(needed));
            if common.json {
                return present::json(&json!({"packages": packages, "needs": needs}));
            }
            packages.iter().for_each(|package| present::line(package));
            Exit::Done
        }
        Err(problem) => {
            present::problem(&present::harmless(&problem));
            Exit::Failed
        }
    }
}

/// Names of files and lists of requirements come from packages.
fn inform(text: &str) {
    present::info(&present::harmless(text));
}
