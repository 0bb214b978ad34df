//! Builds one operation's requests from its arguments (path, query, headers, cookies, body).

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::{Map, Value};
use url::Url;

use super::arguments::{ArgumentList, Place};
use super::body::{BodyPlan, Shape, is_json};
use super::parameter_encoding;
use super::parameter_encoding::Escaping;
use crate::read::operation::{Location, Operation, Parameter, ParameterEncoding, Style};
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::upstream_of;

/// An operation, prepared for building requests.
#[derive(Debug)]
pub(crate) struct RequestPlan {
    method: Method,
    base: Url,
    /// With `{templates}`.
    path: String,
    parameters: Vec<Parameter>,
    arguments: Vec<(String, Place)>,
    body: Option<BodyPlan>,
    accept: HeaderValue,
}

/// A request without its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Bytes>,
}

/// Whether a parameter is sent. By OpenAPI, header parameters of these names are ignored
/// (<https://spec.openapis.org/oas/v3.1.1.html#parameter-object>); the HTTP client sets the others.
pub(crate) fn is_sent(parameter: &Parameter) -> bool {
    const NEVER: [&str; 12] = [
        "accept",
        "content-type",
        "authorization",
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "upgrade",
        "accept-encoding",
        "te",
        "trailer",
        "proxy-authorization",
    ];
    parameter.location != Location::Header || !NEVER.iter().any(|name| parameter.name.eq_ignore_ascii_case(name))
}

impl RequestPlan {
    pub(crate) fn new(operation: &Operation, base: Url, arguments: &ArgumentList, body: Option<BodyPlan>) -> Self {
        let arguments =
            arguments.arguments.iter().map(|argument| (argument.name.clone(), argument.place.clone())).collect();
        Self {
            method: operation.method.clone(),
            base,
            path: operation.path.clone(),
            parameters: operation.parameters.clone(),
            arguments,
            body,
            accept: accept(operation),
        }
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    /// Whether the document declares a header of that name.
    pub(crate) fn has_header(&self, name: &HeaderName) -> bool {
        self.parameters.iter().any(|parameter| parameter.is_header(name))
    }

    /// Method and address, with `{templates}` in its path.
    pub(crate) fn address(&self) -> String {
        format!("{} {}", self.method, self.url_template())
    }

    /// The server and the path, with `{templates}`. Without the server's own query, which may contain a key.
    pub(crate) fn url_template(&self) -> String {
        let base = self.base.path().trim_end_matches('/');
        format!("{}{base}{}", upstream_of(&self.base).name, self.path)
    }

    /// The media type of the body that these arguments make; `None` for an operation without one.
    pub(crate) fn coding<'a>(&'a self, arguments: &'a Arguments) -> Option<Cow<'a, str>> {
        let body = self.body.as_ref()?;
        let given = || self.arguments.iter().filter_map(|(name, place)| Some((place, arguments.get(name)?)));
        let chosen = given().find_map(|(place, value)| value.as_str().filter(|_| *place == Place::MediaType));
        let whole = given().find_map(|(place, value)| (*place == Place::Body).then_some(value));
        let members = given().filter_map(|(place, value)| match place {
            Place::Member(member) => Some((member.as_str(), value)),
            _ => None,
        });
        Some(body.coding(chosen, whole, members).into())
    }

    /// The arguments in the form that an adapter changes: flat, including the members of a body that is one
    /// argument. A member with the name of an argument stays in the body.
    pub(crate) fn spread(&self, arguments: &Arguments) -> Arguments {
        let mut spread = arguments.clone();
        let body = self.arguments.iter().find(|(_, place)| *place == Place::Body).map(|(name, _)| name);
        let Some((name, Some(Value::Object(members)))) = body.map(|name| (name, arguments.get(name))) else {
            return spread;
        };
        let is_argument = |member: &str| self.arguments.iter().any(|(name, _)| name == member);
        let (kept, free): (Map<_, _>, Map<_, _>) =
            members.clone().into_iter().partition(|(member, _)| is_argument(member));
        spread.insert(name.clone(), kept.into());
        spread.extend(free);
        spread
    }

    /// An argument that the operation does not have comes from an adapter: it becomes a member of a body that has
    /// members, or else a query parameter.
    /// Errors: `invalid_arguments` for a value that cannot be encoded in its location, or that would change the
    /// requested resource.
    pub(crate) fn request(&self, arguments: &Arguments) -> Result<Request, CallError> {
        let mut draft = Draft { path: self.path.clone(), ..Draft::default() };
        let mut placed = 0;
        for (name, place) in &self.arguments {
            placed += usize::from(arguments.contains_key(name));
            match (place, arguments.get(name)) {
                (Place::Parameter(at), Some(value)) => {
                    if let Some(parameter) = self.parameters.get(*at) {
                        draft.add(parameter, name, value)?;
                    }
                }
                (Place::Member(member), Some(value)) => {
                    draft.members.insert(member.clone(), value.clone());
                }
                (Place::Body, Some(value)) => draft.body = Some(value.clone()),
                (Place::MediaType, Some(value)) => draft.media_type = value.as_str().map(str::to_owned),
                (_, None) => {}
            }
        }
        if placed < arguments.len() {
            self.add_further(arguments, &mut draft);
        }
        self.finish(draft)
    }

    /// Places values that are not arguments of the operation, as [`RequestPlan::request`] describes.
    fn add_further(&self, arguments: &Arguments, draft: &mut Draft) {
        let is_argument = |name: &str| self.arguments.iter().any(|(argument, _)| argument == name);
        let further = arguments.iter().filter(|(name, _)| !is_argument(name));
        let further = further.map(|(name, value)| (name.clone(), value.clone()));
        match (&self.body, &mut draft.body) {
            (Some(plan), None) if plan.has_members() => draft.members.extend(further),
            (Some(_), Some(Value::Object(members))) if self.body.as_ref().is_some_and(BodyPlan::has_members) => {
                members.extend(further);
            }
            _ => {
                let pairs = further.flat_map(|(name, value)| {
                    parameter_encoding::pairs(&name, &value, Style::Form, true, Escaping::Percent)
                });
                draft.query.extend(joined(pairs.collect()));
            }
        }
    }

    fn finish(&self, draft: Draft) -> Result<Request, CallError> {
        let Draft { path, query, mut headers, cookies, members, body, media_type } = draft;
        headers.insert(header::ACCEPT, self.accept.clone());
        if !cookies.is_empty() {
            headers.insert(header::COOKIE, header_value("the cookies", &cookies.join("; "))?);
        }
        let body = match (&self.body, body) {
            (None, _) => None,
            (Some(_), Some(whole)) => Some(whole),
            (Some(plan @ BodyPlan { shape: Shape::Members { .. }, required, .. }), None) => {
                let is_sent = *required || !members.is_empty() || (plan.may_be_empty_object() && self.has_content());
                is_sent.then_some(Value::Object(members))
            }
            // Not given: the body has only the adapter's additions.
            (Some(_), None) => (!members.is_empty()).then_some(Value::Object(members)),
        };
        let body = match (&self.body, body) {
            (Some(plan), Some(value)) => {
                let (content_type, bytes) = plan.write(&value, media_type.as_deref())?;
                headers.insert(header::CONTENT_TYPE, content_type);
                Some(bytes)
            }
            _ => None,
        };
        Ok(Request { method: self.method.clone(), url: self.url(&path, &query)?, headers, body })
    }

    /// Whether content is usual with the method (RFC 9110 §9.3).
    fn has_content(&self) -> bool {
        matches!(self.method, Method::POST | Method::PUT | Method::PATCH)
    }

    /// The server's address, the path below it, and the query, all encoded already. The server's own query, such as a
    /// key of Azure Functions, comes first.
    fn url(&self, path: &str, query: &[String]) -> Result<Url, CallError> {
        if let Some(missing) = path.split('{').nth(1) {
            let name = missing.split('}').next().unwrap_or_default();
            return Err(invalid_argument(format!("the path needs a value for `{name}`")));
        }
        let mut base = self.base.clone();
        base.set_query(None);
        base.set_fragment(None);
        let mut text = format!("{}/{}", base.as_str().trim_end_matches('/'), path.trim_start_matches('/'));
        let own = self.base.query().filter(|query| !query.is_empty());
        for pair in own.into_iter().chain(query.iter().map(String::as_str)) {
            let separator = if text.contains('?') { '&' } else { '?' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{pair}");
        }
        Url::parse(&text).map_err(|error| invalid_argument(format!("the arguments do not form a valid URL: {error}")))
    }
}

#[derive(Default)]
struct Draft {
    path: String,
    /// Encoded `name=value`.
    query: Vec<String>,
    headers: HeaderMap,
    cookies: Vec<String>,
    members: Map<String, Value>,
    body: Option<Value>,
    /// Chosen by the caller.
    media_type: Option<String>,
}

impl Draft {
    fn add(&mut self, parameter: &Parameter, argument: &str, value: &Value) -> Result<(), CallError> {
        let joined_items = parameter.item_separator.map(|one| parameter_encoding::with_joined_items(value, one));
        let value = joined_items.as_ref().unwrap_or(value);
        match parameter.location {
            Location::Path => self.fill_path(parameter, argument, value),
            // No style can represent null (the table's "undefined"): it is treated as not given.
            _ if value.is_null() => Ok(()),
            Location::Query => {
                self.query.extend(joined(pairs(parameter, value)));
                Ok(())
            }
            Location::QueryString => {
                self.query.extend(query_string(parameter, value));
                Ok(())
            }
            Location::Header => self.add_header(parameter, argument, value),
            Location::Cookie => self.add_cookie(parameter, argument, value),
        }
    }

    fn fill_path(&mut self, parameter: &Parameter, argument: &str, value: &Value) -> Result<(), CallError> {
        let text = match &parameter.encoding {
            ParameterEncoding::Styled { style, explode, allow_reserved, .. } => {
                let text =
                    parameter_encoding::path(&parameter.name, value, *style, *explode, escaping(*allow_reserved));
                // A query would begin there.
                text.replace('?', "%3F")
            }
            ParameterEncoding::Content(media_type) => {
                let text = Value::String(content(value, media_type));
                parameter_encoding::path(&parameter.name, &text, Style::Simple, false, Escaping::Percent)
            }
        };
        // An empty segment, `.` and `..` would change the operation's path (RFC 3986 §5.2.4).
        if text.is_empty() || text.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(invalid_argument(format!(
                "`{argument}` is a path parameter: it must not be empty, `.` or `..`"
            )));
        }
        self.path = self.path.replace(&format!("{{{}}}", parameter.name), &text);
        Ok(())
    }

    fn add_header(&mut self, parameter: &Parameter, argument: &str, value: &Value) -> Result<(), CallError> {
        let text = match &parameter.encoding {
            ParameterEncoding::Styled { style, explode, .. } => parameter_encoding::header(value, *style, *explode),
            ParameterEncoding::Content(media_type) => content(value, media_type),
        };
        let name = HeaderName::try_from(&parameter.name).map_err(|_| {
            invalid_argument(format!("{:?} is not a valid header name; correct the document", parameter.name))
        })?;
        self.headers.append(name, header_value(&format!("`{argument}`"), &text)?);
        Ok(())
    }

    fn add_cookie(&mut self, parameter: &Parameter, argument: &str, value: &Value) -> Result<(), CallError> {
        for (name, text) in pairs(parameter, value) {
            // A `;` would begin another cookie (RFC 6265 §4.2.1).
            if name.contains(';') || text.contains(';') {
                return Err(invalid_argument(format!("`{argument}` is sent as a cookie, which cannot contain `;`")));
            }
            self.cookies.push(format!("{name}={text}"));
        }
        Ok(())
    }
}

fn pairs(parameter: &Parameter, value: &Value) -> Vec<(String, String)> {
    match &parameter.encoding {
        ParameterEncoding::Styled { style, explode, allow_reserved, allow_empty } => {
            let escaping = if *style == Style::Cookie { Escaping::Verbatim } else { escaping(*allow_reserved) };
            let found = parameter_encoding::pairs(&parameter.name, value, *style, *explode, escaping);
            if found.is_empty() && *allow_empty {
                let empty = Value::String(String::new());
                return parameter_encoding::pairs(&parameter.name, &empty, Style::Form, false, escaping);
            }
            found
        }
        ParameterEncoding::Content(media_type) => {
            let text = Value::String(content(value, media_type));
            parameter_encoding::pairs(&parameter.name, &text, Style::Form, false, Escaping::Percent)
        }
    }
}

/// OpenAPI 3.2: the whole query string is one value: a form if its media type is one, otherwise its encoded text.
fn query_string(parameter: &Parameter, value: &Value) -> Vec<String> {
    match (&parameter.encoding, value) {
        (ParameterEncoding::Content(media_type), Value::Object(members)) if !is_json(media_type) => {
            let member = |(name, value): (&String, _)| {
                parameter_encoding::pairs(name, value, Style::Form, true, Escaping::Percent)
            };
            joined(members.iter().flat_map(member).collect())
        }
        (ParameterEncoding::Content(media_type), _) => {
            let text = Value::String(content(value, media_type));
            vec![parameter_encoding::path(&parameter.name, &text, Style::Simple, false, Escaping::Percent)]
        }
        (ParameterEncoding::Styled { .. }, _) => joined(pairs(parameter, value)),
    }
}

fn joined(pairs: Vec<(String, String)>) -> Vec<String> {
    pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// A parameter with `content`: JSON for a JSON media type, otherwise the text itself.
fn content(value: &Value, media_type: &str) -> String {
    if is_json(media_type) { value.to_string() } else { parameter_encoding::plain(value) }
}

fn escaping(allow_reserved: bool) -> Escaping {
    if allow_reserved { Escaping::Reserved } else { Escaping::Percent }
}

fn header_value(subject: &str, text: &str) -> Result<HeaderValue, CallError> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
        invalid_argument(format!(
            "{subject} is sent as a header, which cannot contain line breaks or control characters"
        ))
    })
}

pub(super) fn invalid_argument(message: impl Into<String>) -> CallError {
    CallError::new(ErrorCode::InvalidArguments, message)
}

/// The `Accept` header: the operation's response types, JSON first (RFC 9110 §12.5.1).
fn accept(operation: &Operation) -> HeaderValue {
    let mut types: Vec<&str> = Vec::new();
    for media_type in operation.responses.iter().flat_map(|response| &response.content) {
        if !types.contains(&media_type.name.as_str()) {
            types.push(&media_type.name);
        }
    }
    let (json, other): (Vec<_>, Vec<_>) = types.into_iter().partition(|name| is_json(name));
    let weight = if json.is_empty() { "" } else { ";q=0.5" };
    let mut accepted: Vec<String> = json.into_iter().map(str::to_owned).collect();
    accepted.extend(other.into_iter().map(|name| format!("{name}{weight}")));
    if accepted.is_empty() {
        accepted.push("application/json, */*;q=0.5".to_owned());
    }
    HeaderValue::try_from(accepted.join(", ")).unwrap_or(HeaderValue::from_static("*/*"))
}
