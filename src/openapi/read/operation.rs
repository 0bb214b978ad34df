//! The model of an API between documents and tools: read, resolved and lowered.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value};
use url::Url;

use super::report::Report;

/// A whole document in a form independent of its version.
#[derive(Debug, Clone)]
pub struct Api {
    pub title: String,
    pub version: String,
    pub description: String,
    /// The servers of the document; an operation may have its own.
    pub servers: Vec<Server>,
    /// By name.
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    /// The security requirements of operations that have none of their own.
    pub security: Vec<SecurityRequirement>,
    pub operations: Vec<Operation>,
    /// Lowered schemas that others point to as `#/$defs/NAME`; recursion stays recursion.
    pub definitions: Arc<Map<String, Value>>,
    pub report: Report,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Variables filled in with their defaults, made absolute where the document has an address.
    pub url: Url,
    pub description: String,
}

#[derive(Debug, Clone)]
pub struct Operation {
    /// As written; may be missing, malformed or duplicate.
    pub id: Option<String>,
    pub method: Method,
    /// With `{templates}`, as written.
    pub path: String,
    pub summary: String,
    pub description: String,
    pub tags: Vec<String>,
    pub deprecated: bool,
    /// Path-level ones included, overridden by the operation's own.
    pub parameters: Vec<Parameter>,
    pub body: Option<RequestBody>,
    pub responses: Vec<Response>,
    /// Empty: the document's.
    pub servers: Vec<Server>,
    /// `None`: the document's; an empty list: none is required.
    pub security: Option<Vec<SecurityRequirement>>,
    /// The `x-` members.
    pub extensions: Map<String, Value>,
}

impl Operation {
    /// Its name in the report.
    pub fn label(&self) -> String {
        self.id.clone().unwrap_or_else(|| format!("{} {}", self.method, self.path))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub location: Location,
    pub required: bool,
    pub deprecated: bool,
    pub description: String,
    /// Lowered JSON Schema; points into [`Api::definitions`].
    pub schema: Value,
    pub encoding: ParameterEncoding,
    /// Swagger 2.0: the separator of the items of a list within a list.
    pub item_separator: Option<char>,
}

impl Parameter {
    /// Whether it is the header of that name.
    pub(crate) fn is_header(&self, name: &http::HeaderName) -> bool {
        self.location == Location::Header && self.name.eq_ignore_ascii_case(name.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    Path,
    Query,
    /// OpenAPI 3.2: the whole query string is one value.
    QueryString,
    Header,
    Cookie,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterEncoding {
    /// By style: <https://spec.openapis.org/oas/v3.1.1.html#style-values>.
    Styled { style: Style, explode: bool, allow_reserved: bool, allow_empty: bool },
    /// `content`: serialized as this media type.
    Content(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    Matrix,
    Label,
    Simple,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// OpenAPI 3.2, for cookies.
    Cookie,
    /// Swagger 2.0's `collectionFormat: tsv`.
    TabDelimited,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RequestBody {
    pub required: bool,
    pub description: String,
    /// In the document's order.
    pub content: Vec<MediaType>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MediaType {
    /// As written, such as `application/json` or `text/*`.
    pub name: String,
    /// Lowered; `true` when the document has no schema.
    pub schema: Value,
    /// The encoding of form and multipart properties, by name.
    pub encoding: BTreeMap<String, PropertyEncoding>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropertyEncoding {
    pub content_type: Option<String>,
    /// Given only where the document gives it: without, a property that is not a scalar is sent as JSON in
    /// multipart; in a form an object is, and a list is sent in `form` style.
    pub style: Option<Style>,
    pub explode: Option<bool>,
    pub allow_reserved: bool,
    /// Swagger 2.0: the separator of the items of a list within the list.
    pub item_separator: Option<char>,
}

impl PropertyEncoding {
    /// Whether the document says that the property is written by a style; otherwise its content type decides
    /// (OpenAPI 3.1.1 §4.8.15.1.1).
    pub fn is_styled(&self) -> bool {
        self.style.is_some() || self.explode.is_some() || self.allow_reserved
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub status: StatusRange,
    pub description: String,
    pub content: Vec<MediaType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusRange {
    Exactly(u16),
    /// `2XX` is `Class(2)`.
    Class(u16),
    Default,
}

/// Schemes required together, each with its scopes.
pub type SecurityRequirement = BTreeMap<String, Vec<String>>;

/// Where a user signs in, and where the tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFlow {
    pub authorization_url: Url,
    pub token_url: Url,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityScheme {
    ApiKey {
        name: String,
        location: Location,
    },
    Bearer,
    Basic,
    /// RFC 7616.
    Digest,
    /// HTTP authentication of another name, as written: its credential is one text.
    Http(String),
    OAuth2 {
        /// The URL of the client credentials flow, or else of another flow that has one.
        token_url: Option<Url>,
        /// The authorization code flow, for callers who sign in on their own.
        user_flow: Option<UserFlow>,
    },
    OpenIdConnect {
        /// Where the provider describes itself.
        discovery_url: Option<Url>,
    },
    MutualTls,
    /// Other HTTP authentication that answers a challenge.
    Challenge(String),
    /// Any other, described by the text: no credential is known for it.
    Other(String),
}
