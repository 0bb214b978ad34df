//! `sekisho import`: previews the tools of a document before it is added to the configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value};
use url::Url;

use super::client::{Remote, Unanswered, sentence};
use super::{Common, Exit, local_gateway, present, with_config};
use sekisho_api::NamedCaller;
use sekisho_config::{AuthSettings, CollectionSettings, Config, Secret};
use sekisho_openapi::Collection;
use sekisho_openapi::read::report::{Note, Report, Works};
use sekisho_outbound::DomainList;

/// Placeholder server of a document that names none: a reserved name (RFC 2606 §2).
const STAND_IN: &str = "https://server.invalid/";

const STAND_IN_HOST: &str = "server.invalid";

#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// Show the tools that an OpenAPI document gives, what is approximated, and what is lost.
    Openapi {
        /// A file, or an address whose host is in `outbound.openapi_allowed_domains`.
        #[arg(value_name = "FILE|URL")]
        document: String,
        /// Name of the collection, which is the prefix of its tools' names.
        #[arg(long, default_value = "api")]
        name: String,
        /// The server that operations are sent to, in place of those the document names.
        #[arg(long, value_name = "URL")]
        base_url: Option<Url>,
        /// List for each operation whether it works, is approximated, needs credentials or is lost.
        #[arg(long)]
        report: bool,
        /// Do not print the entry for the configuration; with `--server`, do not register the document there.
        #[arg(long)]
        dry_run: bool,
    },
}

/// A document, and the settings of its collection.
pub(super) struct Import {
    pub(super) document: String,
    pub(super) name: String,
    pub(super) base_url: Option<Url>,
    /// The variable with the key of its API.
    pub(super) key_variable: Option<String>,
}

pub(super) fn run(common: &Common, command: ImportCommand) -> Exit {
    let ImportCommand::Openapi { document, name, base_url, report, dry_run } = command;
    let import = Import { document, name, base_url, key_variable: None };
    if let Some(server) = &common.server {
        return import.register(common, Remote::at(server), dry_run);
    }
    with_config(common, |config| match import.preview(config) {
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
        Ok(collection) if common.json => present::json(&collection.report),
        Ok(collection) => {
            show(&collection.report, report);
            if !dry_run {
                present::line(&format!("\nFor the configuration:\n{}", import.entry(&collection)));
            }
            Exit::Done
        }
    })
}

/// Shows the tools of a document, and registers it with the running gateway, or shows the entry for the configuration
/// where that is needed: for its hosts, or its key.
pub(super) fn add(common: &Common, import: &Import) -> Exit {
    with_config(common, |config| {
        let mut with_host = config.clone();
        // The user of the command names it, and no caller of a gateway.
        with_host.outbound.openapi_allowed_domains.extend(import.host());
        let collection = match import.preview(with_host) {
            Ok(collection) => collection,
            Err(problem) => {
                present::problem(&problem);
                return Exit::Failed;
            }
        };
        show(&collection.report, false);
        let gateway = match local_gateway::find(&config, &NamedCaller::administrator()) {
            Ok(gateway) => gateway,
            Err(exit) => return exit,
        };
        let allowed = DomainList::parse(&config.outbound.openapi_allowed_domains);
        let mut urls = collection.servers().into_iter().chain(import.address());
        let is_allowed = allowed.is_ok_and(|allowed| urls.all(|url| allowed.allows(&url)));
        match gateway {
            Some(gateway) if is_allowed && import.key_variable.is_none() => {
                import.register(common, Remote::new(&gateway), false)
            }
            _ => {
                present::line(&format!(
                    "\nAdd this to the configuration, and start the gateway, or send it SIGHUP:\n{}",
                    import.entry(&collection)
                ));
                Exit::Done
            }
        }
    })
}

impl Import {
    /// A preview of the document, with the adapters and limits of the configuration.
    fn preview(&self, mut config: Config) -> Result<Collection, String> {
        let settings = self.settings();
        config.openapi.collections = [(self.name.clone(), settings.clone())].into();
        if let Some(error) = config.check().first() {
            return Err(error.to_string());
        }
        let runtime = super::serve::runtime().ok_or("the asynchronous runtime could not be started")?;
        let loader = sekisho_gateway::loader_of(&config).map_err(|problem| problem.to_string())?;
        let stand_in = Url::parse(STAND_IN).map_err(|error| error.to_string())?;
        let preview = loader.preview(&self.name, settings, &config.openapi, &stand_in);
        runtime.block_on(preview).map_err(|error| error.to_string())
    }

    /// Registers the document with a running gateway, or only validates it there.
    fn register(&self, common: &Common, remote: Result<Remote, Unanswered>, dry_run: bool) -> Exit {
        let body = match self.body(dry_run) {
            Ok(body) => Value::Object(body),
            Err(problem) => {
                present::problem(&problem);
                return Exit::Failed;
            }
        };
        let action = if dry_run { "validate" } else { "register" };
        let answer = match remote.and_then(|remote| remote.post(&["tools", "openapi", action], &body)) {
            Err(unanswered) => return unanswered.report(),
            Ok(answer) if answer["error"].is_string() => return Unanswered::Refused(sentence(&answer)).report(),
            Ok(answer) => answer,
        };
        if common.json {
            present::json(&answer);
        } else {
            let message = answer["message"].as_str().map(str::to_owned);
            present::line(&message.unwrap_or_else(|| format!("{} operations", answer["operations_count"])));
            let errors = answer["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
            errors.for_each(present::line);
        }
        if answer["valid"] == false { Exit::Failed } else { Exit::Done }
    }

    /// The request body for a gateway: a file of this machine is sent inline.
    fn body(&self, dry_run: bool) -> Result<Map<String, Value>, String> {
        let document = &self.document;
        let mut body = Map::new();
        if self.address().is_some() {
            body.insert("spec_url".into(), document.as_str().into());
        } else {
            let text =
                std::fs::read_to_string(document).map_err(|error| format!("{document} cannot be read: {error}"))?;
            body.insert("spec_inline".into(), text.into());
        }
        if !dry_run {
            body.insert("name".into(), self.name.as_str().into());
            body.extend(self.base_url.as_ref().map(|url| ("base_url".to_owned(), url.as_str().into())));
        }
        Ok(body)
    }

    fn settings(&self) -> CollectionSettings {
        let spec_url = self.address();
        let spec_file = spec_url.is_none().then(|| PathBuf::from(&self.document));
        // The document says which of the two it needs. A preview sends neither.
        let key = self.key_variable.as_deref().map(Secret::new);
        let auth_config = AuthSettings { api_key: key.clone(), token: key, ..AuthSettings::default() };
        let base_url = self.base_url.clone();
        CollectionSettings { spec_url, spec_file, base_url, auth_config, ..CollectionSettings::default() }
    }

    fn address(&self) -> Option<Url> {
        Url::parse(&self.document).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
    }

    /// The host of the document.
    fn host(&self) -> Option<String> {
        self.address().as_ref().and_then(Url::host_str).map(str::to_owned)
    }

    /// The configuration entry that offers the document's tools and allows their hosts.
    fn entry(&self, collection: &Collection) -> String {
        let servers = collection.servers();
        let is_known = |host: &&str| *host != STAND_IN_HOST;
        let own = self.host();
        let hosts = servers.iter().filter_map(Url::host_str).filter(is_known).chain(own.as_deref());
        let hosts: Vec<_> = hosts.collect::<BTreeSet<_>>().into_iter().collect();
        // An absolute path: the service may be started in another folder.
        let file = std::path::absolute(&self.document).unwrap_or_else(|_| PathBuf::from(&self.document));
        let (key, place) = match self.address() {
            Some(address) => ("spec_url", address.to_string()),
            None => ("spec_file", file.display().to_string()),
        };
        let base_url = match &self.base_url {
            Some(url) => format!("\n      base_url: {url}"),
            None if servers.iter().any(|url| url.host_str() == Some(STAND_IN_HOST)) => {
                "\n      base_url: https://…   # the document names no server".to_owned()
            }
            None => String::new(),
        };
        let credentials = self.key_variable.as_deref().map_or_else(String::new, |variable| {
            format!("\n      auth_config: {{api_key: \"${{{variable}}}\", token: \"${{{variable}}}\"}}")
        });
        format!(
            "outbound:\n  openapi_allowed_domains: [{}]\nopenapi:\n  collections:\n    {}:\n      {key}: {place:?}{base_url}{credentials}",
            hosts.join(", "),
            self.name
        )
    }
}

fn show(found: &Report, each: bool) {
    let Report { works, lost, approximated, needs_credentials, dangerous, open_deletes, .. } = found;
    present::line(&found.summary());
    if let Some(dangerous) = found.dangers(|_| false) {
        present::line(&dangerous);
    }
    if !each {
        return;
    }
    let noted = |kind: &'static str, notes: &[Note]| {
        let row = |note: &Note| vec![kind.to_owned(), note.operation.clone(), note.reason.clone()];
        notes.iter().map(row).collect::<Vec<_>>()
    };
    let offered = |kind: &'static str, works: &[Works]| {
        let row = |Works { operation, tool }: &Works| vec![kind.to_owned(), operation.clone(), tool.clone()];
        works.iter().map(row).collect::<Vec<_>>()
    };
    let rows = [
        noted("lost", lost),
        noted("approximated", approximated),
        noted("needs credentials", needs_credentials),
        offered("dangerous", dangerous),
        offered("deletes by name", open_deletes),
        offered("works", works),
    ]
    .concat();
    present::table(&["", "operation", "tool or reason"], rows);
}
