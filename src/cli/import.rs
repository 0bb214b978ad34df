//! `sekisho import`: what would become of a document, before it is put into the configuration.

use std::path::PathBuf;

use clap::Subcommand;
use url::Url;

use super::{Common, Exit, present, with_config};
use crate::config::{CollectionSettings, Config};
use crate::gateway;
use crate::sources::openapi::report::{Note, Report};

#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// Tell which tools an OpenAPI document gives, what is approximated, and what is lost.
    Openapi {
        /// A file, or an address whose host is in `outbound.openapi_allowed_domains`.
        #[arg(value_name = "FILE|URL")]
        document: String,
        /// List what was approximated and lost, operation by operation.
        #[arg(long)]
        report: bool,
        /// Do not show the entry for the configuration.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Stands before the names of the tools where the document gives nothing better.
const DEFAULT_NAME: &str = "api";

pub(super) fn run(common: &Common, command: ImportCommand) -> Exit {
    let ImportCommand::Openapi { document, report, dry_run } = command;
    let settings = settings(&document);
    with_config(common, |config| match import(config, settings) {
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
        Ok(found) if common.json => present::json(&found),
        Ok(found) => {
            show(&found, report);
            if !dry_run {
                let key = if document.contains("://") { "spec_url" } else { "spec_file" };
                present::line(&format!(
                    "\nFor the configuration:\nopenapi:\n  collections:\n    {DEFAULT_NAME}:\n      {key}: {document:?}"
                ));
            }
            Exit::Done
        }
    })
}

fn settings(document: &str) -> CollectionSettings {
    match Url::parse(document) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => {
            CollectionSettings { spec_url: Some(url), ..CollectionSettings::default() }
        }
        _ => CollectionSettings { spec_file: Some(PathBuf::from(document)), ..CollectionSettings::default() },
    }
}

/// The document alone, with the adapters and the bounds of the configuration.
fn import(mut config: Config, settings: CollectionSettings) -> Result<Report, String> {
    config.openapi.collections = [(DEFAULT_NAME.to_owned(), settings)].into();
    let runtime = super::serve::runtime().ok_or("without a runtime nothing can be read")?;
    let (_, mut collections) =
        runtime.block_on(gateway::registry_of(&config)).map_err(|problem| problem.to_string())?;
    if let Some(reason) = collections.broken.remove(DEFAULT_NAME) {
        return Err(reason);
    }
    let collection = collections.loaded.remove(DEFAULT_NAME).ok_or("nothing was loaded")?;
    Ok(collection.report.clone())
}

fn show(found: &Report, each: bool) {
    let Report { operations, tools, lost, approximated } = found;
    let (few, more) = (lost.len(), approximated.len());
    present::line(&format!("{operations} operations, {tools} tools, {more} approximations, {few} losses"));
    if each && few + more > 0 {
        let rows = |kind: &'static str, notes: &[Note]| {
            let row = |note: &Note| vec![kind.to_owned(), note.operation.clone(), note.reason.clone()];
            notes.iter().map(row).collect::<Vec<_>>()
        };
        present::table(&["", "operation", "why"], [rows("lost", lost), rows("approximated", approximated)].concat());
    }
}
