//! `sekisho import`: what would become of a document, before it is put into the configuration.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value};
use url::Url;

use super::client::{Remote, Unanswered, sentence};
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
        /// Name of the collection, which stands before the names of its tools.
        #[arg(long, default_value = "api")]
        name: String,
        /// List what was approximated and lost, operation by operation.
        #[arg(long)]
        report: bool,
        /// Do not show the entry for the configuration; with `--server`, do not register the document there.
        #[arg(long)]
        dry_run: bool,
    },
}

pub(super) fn run(common: &Common, command: ImportCommand) -> Exit {
    let ImportCommand::Openapi { document, name, report, dry_run } = command;
    if let Some(server) = &common.server {
        return at_server(common, server, &document, &name, dry_run);
    }
    let settings = settings(&document);
    with_config(common, |config| match import(config, &name, settings) {
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
        Ok(found) if common.json => present::json(&found),
        Ok(found) => {
            show(&found, report);
            if !dry_run {
                let key = if is_address(&document) { "spec_url" } else { "spec_file" };
                present::line(&format!(
                    "\nFor the configuration:\nopenapi:\n  collections:\n    {name}:\n      {key}: {document:?}"
                ));
            }
            Exit::Done
        }
    })
}

/// Has a running gateway register the document, or only look at it.
fn at_server(common: &Common, server: &Url, document: &str, name: &str, dry_run: bool) -> Exit {
    let body = match document_body(document) {
        Ok(mut body) => {
            if !dry_run {
                body.insert("name".into(), name.into());
            }
            Value::Object(body)
        }
        Err(problem) => {
            present::problem(&problem);
            return Exit::Failed;
        }
    };
    let action = if dry_run { "validate" } else { "register" };
    match Remote::new(server).and_then(|remote| remote.post(&["tools", "openapi", action], &body)) {
        Err(unanswered) => unanswered.report(),
        Ok(answer) if answer["error"].is_string() => Unanswered::Refused(sentence(&answer)).report(),
        Ok(answer) if common.json => present::json(&answer),
        Ok(answer) => {
            let message = answer["message"].as_str().map(str::to_owned);
            present::line(&message.unwrap_or_else(|| format!("{} operations", answer["operations_count"])));
            let faults = answer["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
            faults.for_each(present::line);
            if answer["valid"] == false { Exit::Failed } else { Exit::Done }
        }
    }
}

/// How the document is named to a gateway: a file of this machine goes along as it is.
fn document_body(document: &str) -> Result<Map<String, Value>, String> {
    if is_address(document) {
        return Ok(Map::from_iter([("spec_url".to_owned(), document.into())]));
    }
    let text = std::fs::read_to_string(document).map_err(|error| format!("{document} cannot be read: {error}"))?;
    Ok(Map::from_iter([("spec_inline".to_owned(), text.into())]))
}

fn is_address(document: &str) -> bool {
    Url::parse(document).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
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
fn import(mut config: Config, name: &str, settings: CollectionSettings) -> Result<Report, String> {
    config.openapi.collections = [(name.to_owned(), settings)].into();
    if let Some(fault) = config.check().first() {
        return Err(fault.to_string());
    }
    let runtime = super::serve::runtime().ok_or("without a runtime nothing can be read")?;
    let mut collections = runtime.block_on(gateway::collections_of(&config)).map_err(|problem| problem.to_string())?;
    if let Some(reason) = collections.broken.remove(name) {
        return Err(reason);
    }
    let collection = collections.loaded.remove(name).ok_or("nothing was loaded")?;
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
