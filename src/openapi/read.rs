//! Converts a document into an [`Api`] piece by piece: an error in one operation becomes a line of the report
//! and does not affect the others.

mod content;
pub mod operation;
#[cfg(test)]
mod oracle;
mod parameter;
pub(crate) mod reference;
pub mod report;
pub(crate) mod schema;
mod security;
mod server;
pub(crate) mod swagger2;
#[cfg(test)]
mod tests;
mod xml;

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value};
use url::Url;

use self::operation::{Api, Operation};
use self::reference::References;
use self::report::Report;
use self::schema::{Direction, Lowered, Lowering, Site};
use super::load::document;
use super::load::document::{DocumentError, Version};

/// Most operations read from one document; GitHub's has 1 223.
const MAX_OPERATIONS: usize = 10_000;

const METHODS: [(&str, Method); 8] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
    ("trace", Method::TRACE),
];

/// Reads a parsed document. `base` is the address it was loaded from, which relative addresses are resolved against.
/// Errors: [`DocumentError`] when it is not an OpenAPI document; other errors are lines of the report.
pub fn read(document: &Value, base: Option<&Url>) -> Result<Api, DocumentError> {
    let version = document::version(document)?;
    let reader = Reader {
        document,
        base,
        version,
        references: References::new(document),
        lowering: Lowering::new(version),
        report: Report::default(),
        place: String::new(),
    };
    Ok(reader.api())
}

struct Reader<'d> {
    document: &'d Value,
    base: Option<&'d Url>,
    version: Version,
    references: References<'d>,
    lowering: Lowering<'d>,
    report: Report,
    /// For the report: the operation that is being read.
    place: String,
}

/// The common members of a path's operations.
struct PathItem<'d> {
    path: &'d str,
    members: &'d Map<String, Value>,
}

impl<'d> Reader<'d> {
    fn api(mut self) -> Api {
        "the document".clone_into(&mut self.place);
        let info = |key| text(self.document.get("info").and_then(|info| info.get(key)));
        let (title, version, description) = (info("title"), info("version"), info("description"));
        let servers = self.document_servers();
        let security_schemes = self.security_schemes();
        let security = self.requirements(self.document.get("security")).unwrap_or_default();
        self.report_unread();
        let operations = self.operations();
        let Self { lowering, references, mut report, .. } = self;
        let Lowered { definitions, notes, approximated } = lowering.finish(&references);
        report.approximated.extend(notes);
        report.approximated_definitions = approximated;
        Api {
            title,
            version,
            description,
            servers,
            security_schemes,
            security,
            operations,
            definitions: Arc::new(definitions),
            report,
        }
    }

    /// Reports the parts of the document that never become tools.
    fn report_unread(&mut self) {
        if self.version == Version::V3_2 {
            self.approximated("OpenAPI 3.2 is read as 3.1, with its query methods and `querystring` parameters");
        }
        let webhooks = self.document.get("webhooks").and_then(Value::as_object).map_or(0, Map::len);
        if webhooks > 0 {
            self.approximated(format!("its {webhooks} webhooks are requests to the client and do not become tools"));
        }
    }

    fn operations(&mut self) -> Vec<Operation> {
        let document = self.document;
        let mut operations = Vec::new();
        match document.get("paths") {
            Some(Value::Object(_)) => {}
            Some(_) => self.lost("`paths` is not an object"),
            None => self.approximated("the document has no `paths`"),
        }
        for (path, item) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
            if path.starts_with("x-") {
                continue;
            }
            path.clone_into(&mut self.place);
            let item = match self.references.follow(item) {
                Ok(Value::Object(members)) => PathItem { path, members },
                Ok(_) => {
                    self.lost("the path's value is not an object");
                    continue;
                }
                Err(broken) => {
                    self.lost(broken.to_string());
                    continue;
                }
            };
            for (method, operation) in self.methods(&item) {
                self.report.operations += 1;
                if operations.len() < MAX_OPERATIONS {
                    operations.extend(self.operation(&item, method, operation));
                }
            }
        }
        if self.report.operations > MAX_OPERATIONS {
            "the document".clone_into(&mut self.place);
            self.lost(format!("only the first {MAX_OPERATIONS} operations are read"));
        }
        operations
    }

    /// The operations of a path, also in OpenAPI 3.2's `query` and `additionalOperations`.
    fn methods(&mut self, item: &PathItem<'d>) -> Vec<(Method, &'d Value)> {
        let mut found = Vec::new();
        for (key, operation) in item.members {
            if let Some((_, method)) = METHODS.iter().find(|(name, _)| name == key) {
                found.push((method.clone(), operation));
            }
        }
        if self.version == Version::V3_2 {
            let named = item.members.get("additionalOperations").and_then(Value::as_object).into_iter().flatten();
            let query = item.members.get("query").map(|operation| ("QUERY", operation));
            for (name, operation) in query.into_iter().chain(named.map(|(name, value)| (name.as_str(), value))) {
                match Method::from_bytes(name.as_bytes()) {
                    Ok(method) => found.push((method, operation)),
                    Err(_) => {
                        self.report.operations += 1;
                        self.lost(format!("{name:?} is not an HTTP method"));
                    }
                }
            }
        }
        found
    }

    fn operation(&mut self, item: &PathItem<'d>, method: Method, value: &'d Value) -> Option<Operation> {
        let id = value.get("operationId").and_then(Value::as_str).filter(|id| !id.trim().is_empty());
        self.place = id.map_or_else(|| format!("{method} {}", item.path), str::to_owned);
        let Value::Object(members) = value else {
            self.lost("the operation is not an object");
            return None;
        };
        if has_unnamed_template(item.path) {
            self.lost("the path has a placeholder without a name, so that no call can succeed");
            return None;
        }
        if members.contains_key("callbacks") {
            self.approximated("its callbacks are requests to the client and are ignored");
        }
        let written = self.written_parameters(item, members);
        let (written, body) = match self.version {
            Version::Swagger2 => swagger2::split_body(written, self.media_types("consumes", members)),
            _ => (written, None),
        };
        let body = match body {
            Some(body) => self.request_body(&body),
            None => members.get("requestBody").and_then(|body| self.resolved(body)).and_then(|b| self.request_body(b)),
        };
        let parameters = self.parameters(item.path, &written);
        Some(Operation {
            id: id.map(str::to_owned),
            method,
            path: item.path.to_owned(),
            summary: text(members.get("summary").or_else(|| item.members.get("summary"))),
            description: text(members.get("description").or_else(|| item.members.get("description"))),
            tags: strings(members.get("tags")),
            deprecated: flag(members.get("deprecated")),
            parameters,
            body,
            responses: self.responses(members),
            servers: self.operation_servers(members.get("servers").or_else(|| item.members.get("servers"))),
            security: self.requirements(members.get("security")),
            extensions: extensions(item.members, members),
        })
    }

    /// Resolves a piece; a broken reference becomes a line of the report.
    fn resolved(&mut self, value: &'d Value) -> Option<&'d Value> {
        match self.references.follow(value) {
            Ok(value) => Some(value),
            Err(broken) => {
                self.report.broken_reference(&self.place, &broken);
                None
            }
        }
    }

    fn lower(&mut self, schema: &Value, direction: Direction) -> Value {
        self.lowering.lower(schema, Site { references: &self.references, direction, place: &self.place })
    }

    /// Swagger 2.0's `consumes` and `produces`: the operation's or else the document's.
    fn media_types(&self, key: &str, operation: &Map<String, Value>) -> Vec<String> {
        strings(operation.get(key).or_else(|| self.document.get(key)))
    }

    fn lost(&mut self, reason: impl Into<String>) {
        self.report.lost(&self.place, reason);
    }

    fn approximated(&mut self, reason: impl Into<String>) {
        self.report.approximated(&self.place, reason);
    }
}

/// Whether a `{` of a path begins no name that could be filled in.
fn has_unnamed_template(path: &str) -> bool {
    path.split('{').skip(1).any(|rest| rest.split_once('}').is_none_or(|(name, _)| name.is_empty()))
}

/// The `x-` members of an operation, and the ones of its path that it does not override.
fn extensions(item: &Map<String, Value>, operation: &Map<String, Value>) -> Map<String, Value> {
    let mut extensions = Map::new();
    for (key, value) in operation.iter().chain(item).filter(|(key, _)| key.starts_with("x-")) {
        extensions.entry(key.clone()).or_insert_with(|| value.clone());
    }
    extensions
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// `true`, which some documents write as a string.
fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(|value| *value == Value::Bool(true) || value == "true")
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
