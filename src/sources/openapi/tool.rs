//! Operations as tools: names, descriptions, schemas, and the executor of each.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use rust_decimal::Decimal;
use serde_json::{Map, Value};
use url::Url;

use super::arguments::{ArgumentList, add_definitions, bounded, reached};
use super::body::{BodyPlan, is_json};
use super::credentials::{CredentialFault, Credentials};
use super::executor::{Access, OperationExecutor};
use super::operation::{Api, Operation, StatusRange};
use super::report::Report;
use super::request::{RequestPlan, is_sent};
use crate::config::{CollectionSettings, OutputCheck};
use crate::registry::{InputSchema, Metadata, OutputSchema, qualified_name};
use crate::sources::ToolDefinition;

/// Most characters of a tool's description.
const LONGEST_DESCRIPTION: usize = 1_000;

/// Most bytes of an output schema with all it reaches. Where every object can hold every other, each
/// tool's schema would be most of the document.
const LARGEST_OUTPUT_SCHEMA: usize = 64 << 10;

/// The tools of one collection, and what of its document they leave out.
///
/// A tool's name is `collection__operationId`, or made of method and path where the id is missing or given
/// twice; it depends on nothing else, so that it is the same after each reload.
///
/// # Errors
/// [`CredentialFault`]: the configured credentials cannot be sent.
pub fn definitions(
    collection: &str,
    api: &Api,
    settings: &CollectionSettings,
    access: &Arc<Access>,
) -> Result<(Vec<ToolDefinition>, Report), CredentialFault> {
    let credentials = Credentials::bind(api, settings)?;
    let mut maker = Maker { collection, api, settings, access, credentials, report: api.report.clone() };
    let offered: Vec<_> = api.operations.iter().filter(|operation| is_chosen(operation, settings)).collect();
    let mut tools = Vec::with_capacity(offered.len());
    let mut taken = HashSet::new();
    for (operation, name) in named(collection, &offered, settings) {
        let label = label(operation);
        if !taken.insert(name.clone()) {
            maker.report.lost(&label, "the document has the same method and path twice");
            continue;
        }
        match maker.tool(operation, name, &label)? {
            Ok(tool) => tools.push(tool),
            Err(reason) => maker.report.lost(&label, reason),
        }
    }
    maker.note_unused();
    maker.report.tools = tools.len();
    Ok((tools, maker.report))
}

/// An empty filter lets everything through.
fn is_chosen(operation: &Operation, settings: &CollectionSettings) -> bool {
    let CollectionSettings { operations, tags, paths, methods, .. } = settings;
    (operations.is_empty() || operation.id.as_ref().is_some_and(|id| operations.contains(id)))
        && (tags.is_empty() || operation.tags.iter().any(|tag| tags.contains(tag)))
        && (paths.is_empty() || paths.iter().any(|pattern| fits_path(pattern, &operation.path)))
        && (methods.is_empty() || methods.iter().any(|method| operation.method.as_str().eq_ignore_ascii_case(method)))
}

/// `/pets/*` stands for `/pets/` and all that follows; without `*` the path is meant as it is written.
fn fits_path(pattern: &str, path: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == path, |beginning| path.starts_with(beginning))
}

/// What the settings have for an operation, by its id or its method and path.
fn configured<'s>(settings: &'s BTreeMap<String, String>, operation: &Operation) -> Option<&'s str> {
    let by_id = operation.id.as_ref().and_then(|id| settings.get(id));
    by_id.or_else(|| settings.get(&format!("{} {}", operation.method, operation.path))).map(String::as_str)
}

/// Each operation with its tool's name.
fn named<'a>(
    collection: &str,
    operations: &[&'a Operation],
    settings: &CollectionSettings,
) -> Vec<(&'a Operation, String)> {
    let short = |operation: &Operation| {
        let renamed = configured(&settings.renames, operation);
        let own = renamed.or(operation.id.as_deref()).map(str::trim).filter(|id| !id.is_empty());
        let name = own.map_or_else(|| slug(operation), str::to_owned);
        qualified_name(collection, &name).to_string()
    };
    let mut uses = BTreeMap::<String, usize>::new();
    for operation in operations {
        *uses.entry(short(operation)).or_default() += 1;
    }
    let name = |operation: &'a Operation| match short(operation) {
        name if uses.get(&name) == Some(&1) => name,
        // Doubled: all of them by method and path, whichever comes first in the document.
        _ => qualified_name(collection, &format!("{}{}", operation.method, operation.path)).to_string(),
    };
    operations.iter().map(|operation| (*operation, name(operation))).collect()
}

/// `GET /users/{id}` as `get_users_id`.
fn slug(operation: &Operation) -> String {
    let mut slug = operation.method.as_str().to_ascii_lowercase();
    for part in operation.path.split(|character: char| !character.is_ascii_alphanumeric()) {
        if !part.is_empty() {
            slug.push('_');
            slug.push_str(part);
        }
    }
    slug
}

/// How the report names an operation.
fn label(operation: &Operation) -> String {
    operation.id.clone().unwrap_or_else(|| format!("{} {}", operation.method, operation.path))
}

struct Maker<'a> {
    collection: &'a str,
    api: &'a Api,
    settings: &'a CollectionSettings,
    access: &'a Arc<Access>,
    credentials: Credentials<'a>,
    report: Report,
}

impl Maker<'_> {
    /// The tool, or why there is none.
    fn tool(
        &mut self,
        operation: &Operation,
        name: String,
        label: &str,
    ) -> Result<Result<ToolDefinition, String>, CredentialFault> {
        let Some(base) = self.base(operation) else {
            return Ok(Err("no server is named; set base_url".to_owned()));
        };
        let (authorization, unmet) = self.credentials.of(operation)?;
        let (body, mut notes) = match &operation.body {
            Some(body) => BodyPlan::of(body, &self.api.definitions),
            None => (None, Vec::new()),
        };
        notes.extend(unmet);
        for parameter in operation.parameters.iter().filter(|parameter| !is_sent(parameter)) {
            notes.push(format!("the header {} is not asked for: it is written by the service", parameter.name));
        }
        let arguments = ArgumentList::of(operation, body.as_ref(), &self.api.definitions, is_sent);
        // One schema that cannot be used must not keep the others from being offered.
        if let Err(fault) = InputSchema::compile(&name, arguments.schema.clone(), false) {
            return Ok(Err(format!("its arguments cannot be checked: {fault}")));
        }
        let output_schema = self.output_schema(operation, &mut notes);
        for note in notes {
            self.report.approximated(label, note);
        }
        let metadata = self.metadata(operation, name);
        let plan = RequestPlan::new(operation, base, &arguments, body);
        let id = operation.id.clone().unwrap_or_default();
        let executor = OperationExecutor { id, plan, authorization, access: Arc::clone(self.access) };
        Ok(Ok(ToolDefinition { metadata, parameters: arguments.schema, output_schema, executor: Arc::new(executor) }))
    }

    /// Settings for operations that the document does not have: a slip, or the document has changed.
    fn note_unused(&mut self) {
        let known = |key: &String| {
            let of = |operation: &Operation| {
                operation.id.as_ref() == Some(key) || format!("{} {}", operation.method, operation.path) == *key
            };
            self.api.operations.iter().any(of)
        };
        let CollectionSettings { renames, descriptions, .. } = self.settings;
        let unused: BTreeSet<_> = renames.keys().chain(descriptions.keys()).filter(|key| !known(key)).collect();
        for key in unused {
            self.report.approximated(key, "the settings rename or describe it, and the document does not have it");
        }
    }

    /// The configured server, the operation's or the document's.
    fn base(&self, operation: &Operation) -> Option<Url> {
        let declared = || operation.servers.first().or(self.api.servers.first()).map(|server| &server.url);
        let base = self.settings.base_url.as_ref().or_else(declared)?;
        matches!(base.scheme(), "http" | "https").then(|| base.clone())
    }

    /// Of the answer that says success, if it is JSON and an adapter does not change it.
    fn output_schema(&self, operation: &Operation, notes: &mut Vec<String>) -> Option<Value> {
        if self.access.adapter.is_some() {
            return None;
        }
        let mut successes = operation.responses.iter().filter(|response| match response.status {
            StatusRange::Exactly(status) => (200..300).contains(&status),
            StatusRange::Class(class) => class == 2,
            StatusRange::Default => false,
        });
        let success = successes.next()?;
        // Several successes, or several media types, have no schema in common.
        if successes.next().is_some() || success.content.len() != 1 {
            return None;
        }
        let content = success.content.first().filter(|content| is_json(&content.name) && content.schema.is_object())?;
        if !is_within(&content.schema, &self.api.definitions) {
            notes
                .push(format!("its answers are not checked: their schema has more than {LARGEST_OUTPUT_SCHEMA} bytes"));
            return None;
        }
        let mut schema = content.schema.clone();
        add_definitions(&mut schema, &self.api.definitions);
        match OutputSchema::compile(schema.clone()) {
            Ok(_) => Some(schema),
            Err(fault) => {
                notes.push(format!("its answers are not checked: {fault}"));
                None
            }
        }
    }

    fn metadata(&self, operation: &Operation, name: String) -> Metadata {
        let settings = self.settings;
        let hints = Hints::of(&operation.extensions);
        let mut labels = operation.tags.clone();
        if operation.deprecated {
            labels.push("deprecated".into());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast to an integer saturates")]
        let timeout_seconds = settings.timeout_seconds.ceil() as u32;
        Metadata {
            name,
            version: "1.0.0".into(),
            description: configured(&settings.descriptions, operation)
                .map_or_else(|| description(operation), |text| bounded(text, LONGEST_DESCRIPTION)),
            category: settings.category.clone(),
            author: self.api.title.clone(),
            source: format!("openapi:{}", self.collection),
            labels,
            timeout_seconds: timeout_seconds.max(1),
            rate_limit: hints.rate_limit.map_or(settings.rate_limit, |hint| hint.min(settings.rate_limit)),
            cost_per_use: hints.cost.map_or(settings.base_cost_per_use, |hint| hint.max(settings.base_cost_per_use)),
            dangerous: hints.dangerous,
            // RFC 9110 §9.2.2.
            idempotent: operation.method.is_idempotent(),
            max_output_bytes: settings.max_response_bytes,
            // Few APIs keep to every word of their document.
            output_check: OutputCheck::Report,
            ..Metadata::default()
        }
    }
}

/// Whether a schema and the definitions it reaches keep to [`LARGEST_OUTPUT_SCHEMA`].
fn is_within(schema: &Value, definitions: &Map<String, Value>) -> bool {
    let reached = reached(schema, definitions);
    let mut sizes = reached.into_values().chain([schema]).map(|part| part.to_string().len());
    let total = sizes.try_fold(0, |sum, size| Some(sum + size).filter(|sum| *sum <= LARGEST_OUTPUT_SCHEMA));
    total.is_some()
}

/// What a document may say of its operation's price, pace and danger: only ever stricter than the settings,
/// since its author may be anybody.
struct Hints {
    cost: Option<Decimal>,
    rate_limit: Option<u32>,
    dangerous: bool,
}

impl Hints {
    fn of(extensions: &Map<String, Value>) -> Self {
        let cost = extensions.get("x-cost-per-use").and_then(Value::as_f64);
        let rate_limit = extensions.get("x-rate-limit").and_then(Value::as_u64);
        Self {
            cost: cost.and_then(|usd| Decimal::try_from(usd).ok()),
            rate_limit: rate_limit.and_then(|limit| u32::try_from(limit).ok()).filter(|limit| *limit > 0),
            dangerous: extensions.get("x-dangerous") == Some(&Value::Bool(true)),
        }
    }
}

fn description(operation: &Operation) -> String {
    let (summary, more) = (operation.summary.trim(), operation.description.trim());
    let mut text = match (summary, more) {
        ("", "") => format!("{} {}", operation.method, operation.path),
        (_, "") => summary.to_owned(),
        _ if more.starts_with(summary) => more.to_owned(),
        _ => format!("{}. {more}", summary.trim_end_matches('.')),
    };
    if operation.deprecated {
        text.insert_str(0, "Deprecated. ");
    }
    bounded(&text, LONGEST_DESCRIPTION)
}

#[cfg(test)]
mod tests;
