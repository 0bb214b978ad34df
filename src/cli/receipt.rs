//! `sekisho receipt`: receipts of calls that others verify, and the keys by which they are signed.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Exit, audit, present, with_config};
use sekisho_audit::{ReceiptVerifier, VerifiedReceipt, VerifierKey, receipts_in};

#[derive(Debug, Subcommand)]
pub(super) enum ReceiptCommand {
    /// Print the receipt of a call: its line of the audit trail, with the proof that a signed checkpoint includes it.
    Get {
        /// The id of a call, as its reply has it.
        call: String,
        #[command(flatten)]
        trail: Trail,
    },
    /// Verify receipts, offline: `sekisho receipt verify call.tlog-proof --key gateway.pub`.
    ///
    /// Prints the line of each, with --json as it is in the trail. Exit code 1 if one is not valid.
    Verify {
        /// Files with a receipt, or with several, one after the other.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// A public key of the gateway, or a file with its public keys, as `sekisho receipt keys` prints them.
        #[arg(long = "key", required = true, value_name = "KEY|FILE")]
        keys: Vec<String>,
    },
    /// Print the public keys, the newest first: for whoever verifies receipts.
    Keys {
        #[command(flatten)]
        trail: Trail,
    },
    /// Sign with a new key from the next segment on, or the next start. The public keys before it are kept.
    Rotate {
        #[command(flatten)]
        trail: Trail,
    },
}

#[derive(Debug, Args)]
pub(super) struct Trail {
    /// A trail; by default the one of the configuration.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(common: &Common, command: ReceiptCommand) -> Exit {
    match command {
        ReceiptCommand::Get { call, trail } => {
            trail.with(common, |file| match sekisho_audit::receipt_of_call(file, &call) {
                Ok(receipt) => {
                    present::line(receipt.trim_end());
                    Exit::Done
                }
                Err(problem) => failed(&problem.to_string()),
            })
        }
        ReceiptCommand::Verify { files, keys } => match keys_of(&keys) {
            Ok(keys) => verify(common, &files, keys),
            Err(problem) => failed(&problem),
        },
        ReceiptCommand::Keys { trail } => trail.with(common, |file| match sekisho_audit::public_keys(file) {
            Ok(keys) if keys.is_empty() => failed("nothing was signed yet: a key is generated with the first call"),
            Ok(keys) => show(common, &keys),
            Err(problem) => failed(&problem.to_string()),
        }),
        ReceiptCommand::Rotate { trail } => trail.with(common, |file| match sekisho_audit::rotate_key(file) {
            Ok(key) => show(common, &[key]),
            Err(problem) => failed(&problem.to_string()),
        }),
    }
}

impl Trail {
    fn with(self, common: &Common, run: impl FnOnce(&Path) -> Exit) -> Exit {
        match self.file {
            Some(file) => run(&file),
            None => with_config(common, |config| run(&config.audit_file())),
        }
    }
}

fn failed(problem: &str) -> Exit {
    present::problem(problem);
    Exit::Failed
}

fn show(common: &Common, keys: &[VerifierKey]) -> Exit {
    for key in keys {
        match common.json {
            true => present::json_line(&json!({"key": key.to_string(), "signer": key.name()})),
            false => present::line(&key.to_string()),
        }
    }
    Exit::Done
}

/// The keys that were given, each as a text or as a file.
fn keys_of(given: &[String]) -> Result<Vec<VerifierKey>, String> {
    let mut keys = Vec::new();
    for text in given {
        if let Ok(key) = text.parse::<VerifierKey>() {
            keys.push(key);
            continue;
        }
        let file =
            fs::read_to_string(text).map_err(|problem| format!("{text} is no key, and no file of keys: {problem}; `sekisho receipt keys` prints them where the gateway runs"))?;
        for line in file.lines() {
            keys.push(line.parse::<VerifierKey>().map_err(|problem| format!("{text}: {problem}"))?);
        }
    }
    Ok(keys)
}

fn verify(common: &Common, files: &[PathBuf], keys: Vec<VerifierKey>) -> Exit {
    let mut verifier = ReceiptVerifier::new(keys);
    let (mut valid, mut invalid) = (0_usize, 0_usize);
    for file in files {
        let name = file.display();
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(problem) => {
                present::problem(&format!("{name}: {problem}"));
                invalid += 1;
                continue;
            }
        };
        if text.is_empty() {
            present::problem(&format!("{name}: it is empty"));
            invalid += 1;
        }
        for (number, receipt) in receipts_in(&text).enumerate() {
            match verifier.verify(receipt) {
                Ok(VerifiedReceipt { line, .. }) => {
                    present::line(&if common.json { line } else { audit::summary(&line) });
                    valid += 1;
                }
                Err(problem) => {
                    present::problem(&format!("{name}, receipt {}: {problem}", number + 1));
                    invalid += 1;
                }
            }
        }
    }
    if !common.json {
        present::info(&format!("{valid} receipts are valid, {invalid} are not"));
    }
    if invalid == 0 { Exit::Done } else { Exit::Failed }
}
