//! Generates tools from operations: names, descriptions, schemas, and the executor of each.

mod choice;
mod dangerous;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::mem;
use std::sync::Arc;

use rust_decimal::Decimal;
use serde_json::{Map, Value};
use url::Url;

use self::choice::{configured, is_chosen, named};
use self::dangerous::{Danger, danger_of, deletes_by_name, effects_of, is_key_of, report_unknown_methods};
use super::call::adapter::FilledFields;
use super::call::arguments::{ArgumentList, bounded};
use super::call::body::{BodyPlan, is_json};
use super::call::credentials::{Authorization, CredentialError, Credentials};
use super::call::executor::{Access, OperationExecutor};
use super::call::request::{RequestPlan, is_sent};
use super::collection::NO_SERVER;
use super::read::operation::{Api, Operation, StatusRange};
use super::read::report::{Report, Works};
use sekisho_calls::tool::ToolDefinition;
use sekisho_calls::tool::{ArgumentSchema, Fit, FlowMetadata, InvalidSchema, Metadata, Parameters, SharedSchema};
use sekisho_config::{CollectionSettings, OutputCheck, identity_of_headers};
use sekisho_core::json;
use sekisho_outbound::{DomainList, upstream_of};

pub(super) use self::dangerous::without_false_hints;

/// Most characters of a tool's description.
const MAX_DESCRIPTION: usize = 1_000;

/// Most bytes of an output schema in a list. Where objects refer to each other, each tool's schema would
/// contain most of the document.
const MAX_LISTED_OUTPUT: usize = 4 << 10;

/// Most bytes of all output schemas of a collection in a list, divided equally.
const LISTED_OUTPUTS: usize = 1 << 20;

/// The smallest share of a listed output schema.
const LEAST_LISTED_OUTPUT: usize = 512;

/// Most bytes of the schema of arguments: a model reads it with every request.
const MAX_INPUT: usize = 64 << 10;

/// The tools of one collection, and the report on the parts that they leave out.
///
/// A tool's name is `collection__operationId`, or made of method and path where the id is missing or
/// duplicate; it depends on nothing else, so that it is stable over reloads.
/// Errors: [`CredentialError`]: the configured credentials cannot be sent.
pub fn definitions(
    collection: &str,
    api: &Api,
    settings: &CollectionSettings,
    access: &Arc<Access>,
) -> Result<(Vec<ToolDefinition>, Report), CredentialError> {
    let credentials = Credentials::bind(api, settings, access)?;
    let offered: Vec<_> = api.operations.iter().filter(|operation| is_chosen(operation, settings)).collect();
    let listed_output = (LISTED_OUTPUTS / offered.len().max(1)).clamp(LEAST_LISTED_OUTPUT, MAX_LISTED_OUTPUT);
    let report = api.report.clone();
    let mut maker = Maker { collection, api, settings, access, credentials, report, listed_output };
    let (mut tools, mut made) = (Vec::with_capacity(offered.len()), Vec::with_capacity(offered.len()));
    let mut taken = HashSet::new();
    for (operation, name) in named(collection, &offered, settings) {
        let label = operation.label();
        if !taken.insert(name.clone()) {
            maker.report.lost(&label, "the document has a duplicate of this method and path");
            continue;
        }
        match maker.tool(operation, name, &label)? {
            Ok(tool) => {
                let works = Works { operation: label, tool: tool.metadata.name.clone() };
                match danger_of(operation, &settings.dangerous) {
                    Some(Danger::Method) => maker.report.dangerous.push(works.clone()),
                    None if deletes_by_name(operation) => maker.report.open_deletes.push(works.clone()),
                    _ => {}
                }
                made.push(works);
                tools.push(tool);
            }
            Err(reason) => maker.report.lost(&label, reason),
        }
    }
    maker.report_unused();
    let mut report = maker.report;
    report.tools = tools.len();
    report.works = wholly(made, &report);
    Ok((tools, report))
}

/// Operations without approximations that have their credentials.
fn wholly(mut made: Vec<Works>, report: &Report) -> Vec<Works> {
    let notes = report.approximated.iter().chain(&report.needs_credentials);
    let noted: HashSet<_> = notes.map(|note| note.operation.as_str()).collect();
    made.retain(|Works { operation, .. }| !noted.contains(operation.as_str()));
    made
}

struct Maker<'a> {
    collection: &'a str,
    api: &'a Api,
    settings: &'a CollectionSettings,
    access: &'a Arc<Access>,
    credentials: Credentials<'a>,
    report: Report,
    /// Most bytes of an output schema in a list.
    listed_output: usize,
}

impl Maker<'_> {
    /// The tool, or the reason why there is none.
    fn tool(
        &mut self,
        operation: &Operation,
        name: String,
        label: &str,
    ) -> Result<Result<ToolDefinition, String>, CredentialError> {
        let Some(base) = self.base(operation) else {
            return Ok(Err(NO_SERVER.to_owned()));
        };
        let (mut authorization, unmet) = self.credentials.of(operation)?;
        let (body, mut notes) = match &operation.body {
            Some(body) => {
                let wanted = configured(&self.settings.media_types, operation);
                BodyPlan::of(body, &self.api.definitions, wanted)
            }
            None => (None, Vec::new()),
        };
        if let Some(unmet) = unmet {
            self.report.needs_credentials(label, unmet);
        }
        let trusted = self.is_trusted(&base);
        if !trusted && !authorization.is_empty() {
            authorization = Authorization::default();
            let host = base.host_str().unwrap_or_default();
            let reason =
                format!("its own server {host} gets no credentials; add it to `auth_config.hosts` to send them");
            self.report.needs_credentials(label, reason);
        }
        // Some services expect their key there; the query of a document's own address is no secret.
        let configured = self.settings.base_url.iter().flat_map(Url::query_pairs);
        authorization.add_secrets(configured.map(|(_, value)| value.into_owned()));
        for parameter in operation.parameters.iter().filter(|parameter| !is_sent(parameter)) {
            notes.push(format!("the header {} is not an argument: the HTTP client sets it", parameter.name));
        }
        let mut arguments = ArgumentList::of(operation, body.as_ref(), &self.api.definitions, is_sent);
        notes.extend(self.approximated_definition(&arguments.schema));
        let id = operation.id.clone().unwrap_or_default();
        let mut filled = FilledFields::default();
        if let Some(adapter) = &self.access.adapter {
            adapter.widen(&id, &mut arguments.schema);
            filled = adapter.filled_fields(&arguments, body.as_ref().is_some_and(BodyPlan::has_members));
        }
        // One unusable schema must not prevent the other tools from being offered.
        let (parameters, cost) = match checkable(&mut arguments, &self.api.definitions) {
            Ok(checkable) => checkable,
            Err(error) => return Ok(Err(format!("its arguments cannot be checked: {error}"))),
        };
        notes.extend(cost.map(str::to_owned));
        let output = self.output_schema(operation).map(Arc::new);
        for note in notes {
            self.report.approximated(label, note);
        }
        let metadata = self.metadata(operation, name);
        let plan = RequestPlan::new(operation, base, &arguments, body);
        let output_schema = output.as_ref().map(|output| output.alone(self.listed_output).0);
        let access = Arc::clone(self.access);
        let headers = identity_of_headers(&self.settings.auth_config.extra_headers);
        let executor = OperationExecutor { id, plan, authorization, trusted, access, headers, filled, output };
        Ok(Ok(ToolDefinition { metadata, parameters, output_schema, executor: Arc::new(executor) }))
    }

    /// A note on the first of the definitions used that differs from the document's schema.
    fn approximated_definition(&self, schema: &Value) -> Option<String> {
        let used = schema.get("$defs")?.as_object()?;
        let known = &self.api.report.approximated_definitions;
        let (name, reason) = used.keys().find_map(|name| known.get_key_value(name))?;
        Some(format!("the schema {name}, which it uses, is approximated: {reason}"))
    }

    /// Whether a server may get the collection's credentials: they are for the configured server, or the server of the
    /// whole document; other hosts are not trusted.
    fn is_trusted(&self, server: &Url) -> bool {
        let declared = || self.api.servers.first().map(|server| &server.url);
        let own = self.settings.base_url.as_ref().or_else(declared);
        let named = DomainList::parse(&self.settings.auth_config.hosts);
        own.is_some_and(|own| upstream_of(own) == upstream_of(server)) || named.is_ok_and(|named| named.allows(server))
    }

    /// Reports settings for operations that the document does not have: a typing error, or a changed document.
    fn report_unused(&mut self) {
        let known = |key: &String| self.api.operations.iter().any(|operation| is_key_of(key, operation));
        let CollectionSettings { renames, descriptions, media_types, dangerous, .. } = self.settings;
        let named = renames.keys().chain(descriptions.keys()).chain(media_types.keys());
        let unused: BTreeSet<_> = named.filter(|key| !known(key)).collect();
        for key in unused {
            let reason =
                "the settings rename or describe it, or choose its media type, but the document does not have it";
            self.report.approximated(key, reason);
        }
        for key in dangerous.operations.iter().filter(|key| !known(key)) {
            self.report.approximated(key, "the settings mark it as dangerous, but the document does not have it");
        }
        for scheme in self.credentials.unknown_schemes() {
            self.report.approximated(scheme, "`credentials` has this scheme, but the document does not have it");
        }
        report_unknown_methods(dangerous, &self.api.operations, &mut self.report);
    }

    /// The configured server, the operation's or the document's.
    fn base(&self, operation: &Operation) -> Option<Url> {
        let declared = || operation.servers.first().or(self.api.servers.first()).map(|server| &server.url);
        let base = self.settings.base_url.as_ref().or_else(declared)?;
        matches!(base.scheme(), "http" | "https").then(|| base.clone())
    }

    /// The schema of the success response, if it is JSON and no adapter changes it.
    fn output_schema(&self, operation: &Operation) -> Option<SharedSchema> {
        if self.access.adapter.is_some() {
            return None;
        }
        let mut successes = operation.responses.iter().filter(|response| match response.status {
            StatusRange::Exactly(status) => (200..300).contains(&status),
            StatusRange::Class(class) => class == 2,
            StatusRange::Default => false,
        });
        let success = successes.next()?;
        // Several success responses or media types have no common schema.
        if successes.next().is_some() || success.content.len() != 1 {
            return None;
        }
        let content = success.content.first().filter(|content| is_json(&content.name) && content.schema.is_object())?;
        Some(SharedSchema { schema: content.schema.clone(), definitions: Arc::clone(&self.api.definitions) })
    }

    fn metadata(&self, operation: &Operation, name: String) -> Metadata {
        let settings = self.settings;
        let hints = Hints::of(&operation.extensions);
        let mut labels = operation.tags.clone();
        labels.extend(settings.labels.0.names.iter().flatten().cloned());
        if operation.deprecated {
            labels.push("deprecated".into());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast to an integer saturates")]
        let timeout_seconds = settings.timeout_seconds.ceil() as u32;
        Metadata {
            name,
            version: "1.0.0".into(),
            description: configured(&settings.descriptions, operation)
                .map_or_else(|| description(operation), |text| bounded(text, MAX_DESCRIPTION)),
            category: settings.category.clone(),
            author: self.api.title.clone(),
            source: format!("openapi:{}", self.collection),
            labels,
            flow: FlowMetadata::of_source(&settings.labels.0),
            timeout_seconds: timeout_seconds.max(1),
            rate_limit: hints.rate_limit.map_or(settings.rate_limit, |hint| hint.min(settings.rate_limit)),
            cost_per_use: hints.cost.map_or(settings.base_cost_per_use, |hint| hint.max(settings.base_cost_per_use)),
            dangerous: danger_of(operation, &settings.dangerous).is_some(),
            effects: Some(effects_of(operation)),
            // RFC 9110 §9.2.2.
            idempotent: operation.method.is_idempotent(),
            max_output_bytes: settings.max_response_bytes,
            // Few APIs follow their document exactly.
            output_check: OutputCheck::Report,
            owner: settings.owner.clone(),
            ..Metadata::default()
        }
    }
}

/// The arguments' schema in a form that can be checked, and a note on the removed part.
/// Errors: no part of it can be checked.
fn checkable(
    arguments: &mut ArgumentList,
    definitions: &Arc<Map<String, Value>>,
) -> Result<(Parameters, Option<&'static str>), InvalidSchema> {
    let (schema, aliases) = (mem::take(&mut arguments.schema), mem::take(&mut arguments.aliases));
    let compiled = |schema| Ok(Parameters::Compiled(Arc::new(ArgumentSchema::compile(schema)?.with_aliases(aliases))));
    let size = json::approximate_size(&schema);
    if size <= MAX_INPUT {
        return Ok((compiled(schema)?, None));
    }
    let (smaller, fit) = SharedSchema { schema, definitions: Arc::clone(definitions) }.alone(MAX_INPUT);
    if smaller.get("properties").is_none() {
        return Err(InvalidSchema(format!("their schema is too large: {size} bytes")));
    }
    let cost = match fit {
        Fit::Whole => None,
        Fit::Shortened => Some("the schema of its arguments is long: descriptions in it were shortened"),
        Fit::Opened => Some("the schema of its arguments is too large: parts of them are not checked"),
    };
    Ok((compiled(smaller)?, cost))
}

/// A document's own price and rate limit for an operation: they can only make the settings stricter, since its
/// author is not trusted.
struct Hints {
    cost: Option<Decimal>,
    rate_limit: Option<u32>,
}

impl Hints {
    fn of(extensions: &Map<String, Value>) -> Self {
        let cost = extensions.get("x-cost-per-use").and_then(Value::as_f64);
        let rate_limit = extensions.get("x-rate-limit").and_then(Value::as_u64);
        Self {
            cost: cost.and_then(|usd| Decimal::try_from(usd).ok()),
            rate_limit: rate_limit.and_then(|limit| u32::try_from(limit).ok()).filter(|limit| *limit > 0),
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
    bounded(&text, MAX_DESCRIPTION)
}
