//! Parameters of the path and of the operation merged, with their styles.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{PathItem, Reader, flag, text};
use crate::load::document::Version;
use crate::read::operation::{Location, Parameter, ParameterEncoding, Style};
use crate::read::schema::Direction;
use crate::read::swagger2;

/// Header parameters of these names are to be ignored:
/// <https://spec.openapis.org/oas/v3.1.1.html#parameter-name>.
const IGNORED_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];

/// Microsoft's word for `allowReserved`: a value of the path, too, may have slashes.
pub(super) const SKIP_URL_ENCODING: &str = "x-ms-skip-url-encoding";

impl<'d> Reader<'d> {
    /// The parameters as the document writes them, references resolved: the path's, each replaced by the
    /// operation's of the same name and place.
    pub(super) fn written_parameters(
        &mut self,
        item: &PathItem<'d>,
        operation: &'d Map<String, Value>,
    ) -> Vec<&'d Value> {
        let mut written: Vec<&'d Value> = Vec::new();
        for list in [item.members.get("parameters"), operation.get("parameters")].into_iter().flatten() {
            let Value::Array(list) = list else {
                self.approximated("its `parameters` are not a list and were left out");
                continue;
            };
            for parameter in list {
                let Some(parameter) = self.resolved(parameter) else { continue };
                match written.iter_mut().find(|other| is_same(other, parameter)) {
                    Some(other) => *other = parameter,
                    None => written.push(parameter),
                }
            }
        }
        written
    }

    /// Every parameter that can be sent, and one for each path placeholder that has none.
    pub(super) fn parameters(&mut self, path: &str, written: &[&'d Value]) -> Vec<Parameter> {
        let mut parameters: Vec<_> = written.iter().filter_map(|parameter| self.parameter(path, parameter)).collect();
        for name in templates(path) {
            if !parameters.iter().any(|p| p.location == Location::Path && p.name == name) {
                self.approximated(format!(
                    "the path has {{{name}}} but no parameter of that name; it is taken as text"
                ));
                parameters.push(undeclared(name));
            }
        }
        parameters
    }

    fn parameter(&mut self, path: &str, written: &Value) -> Option<Parameter> {
        let written = match self.version {
            Version::Swagger2 => Cow::Owned(swagger2::parameter(written)),
            _ => Cow::Borrowed(written),
        };
        let name = text(written.get("name"));
        let place = text(written.get("in"));
        let Some(location) = location(&place).filter(|_| !name.is_empty()) else {
            self.approximated(format!("the parameter {name:?} has an unknown location {place:?} and was left out"));
            return None;
        };
        if location == Location::Path && !templates(path).contains(name.as_str()) {
            self.approximated(format!("the path has no {{{name}}}; that parameter was left out"));
            return None;
        }
        if location == Location::Header && IGNORED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            self.approximated(format!("the header {name} is set by the HTTP client; that parameter was left out"));
            return None;
        }
        if location == Location::Header && http::HeaderName::try_from(&name).is_err() {
            self.approximated(format!("{name:?} is not a valid name of a header; that parameter was left out"));
            return None;
        }
        let (schema, encoding) = self.parameter_form(&written, &name, location);
        Some(Parameter {
            required: location == Location::Path || flag(written.get("required")),
            deprecated: flag(written.get("deprecated")),
            description: text(written.get("description")),
            name,
            location,
            schema,
            encoding,
            item_separator: swagger2::separator_of_items(&written),
        })
    }

    fn parameter_form(&mut self, written: &Value, name: &str, location: Location) -> (Value, ParameterEncoding) {
        let content = written.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
        if let Some((media_type, described)) = content {
            let schema = described.get("schema").map_or_else(|| json!({}), |s| self.lower(s, Direction::Request));
            return (schema, ParameterEncoding::Content(media_type.clone()));
        }
        let mut schema = written.get("schema").map_or_else(|| json!({}), |s| self.lower(s, Direction::Request));
        if let (Some(example), Value::Object(schema)) = (written.get("example"), &mut schema) {
            schema.entry("examples").or_insert_with(|| json!([example]));
        }
        let style = self.style(written, name, location);
        let explode = written.get("explode").and_then(Value::as_bool);
        let encoding = ParameterEncoding::Styled {
            style,
            explode: explode.unwrap_or(matches!(style, Style::Form | Style::Cookie | Style::DeepObject)),
            allow_reserved: flag(written.get("allowReserved")) || flag(written.get(SKIP_URL_ENCODING)),
            allow_empty: flag(written.get("allowEmptyValue")),
        };
        (schema, encoding)
    }

    fn style(&mut self, written: &Value, name: &str, location: Location) -> Style {
        let usual = match location {
            Location::Path | Location::Header => Style::Simple,
            _ => Style::Form,
        };
        let Some(declared) = written.get("style").and_then(Value::as_str) else { return usual };
        match style(declared).filter(|style| fits(*style, location)) {
            Some(style) => style,
            None => {
                self.approximated(format!(
                    "the parameter {name} cannot have the style {declared:?}; its location's default is used"
                ));
                usual
            }
        }
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    one.get("name") == other.get("name") && one.get("in") == other.get("in")
}

fn undeclared(name: &str) -> Parameter {
    Parameter {
        name: name.to_owned(),
        location: Location::Path,
        required: true,
        deprecated: false,
        description: String::new(),
        schema: json!({"type": "string"}),
        encoding: ParameterEncoding::Styled {
            style: Style::Simple,
            explode: false,
            allow_reserved: false,
            allow_empty: false,
        },
        item_separator: None,
    }
}

/// The names in a path's braces.
fn templates(path: &str) -> BTreeSet<&str> {
    path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).filter(|name| !name.is_empty()).collect()
}

fn location(written: &str) -> Option<Location> {
    Some(match written {
        "path" => Location::Path,
        "query" => Location::Query,
        "querystring" => Location::QueryString,
        "header" => Location::Header,
        "cookie" => Location::Cookie,
        _ => return None,
    })
}

pub(super) fn style(written: &str) -> Option<Style> {
    Some(match written {
        "matrix" => Style::Matrix,
        "label" => Style::Label,
        "simple" => Style::Simple,
        "form" => Style::Form,
        "spaceDelimited" => Style::SpaceDelimited,
        "pipeDelimited" => Style::PipeDelimited,
        "deepObject" => Style::DeepObject,
        "cookie" => Style::Cookie,
        swagger2::TAB_DELIMITED => Style::TabDelimited,
        _ => return None,
    })
}

/// <https://spec.openapis.org/oas/v3.1.1.html#style-values>; tabs also where 2.0 allowed them.
fn fits(style: Style, location: Location) -> bool {
    match style {
        Style::Matrix | Style::Label => location == Location::Path,
        Style::Simple => matches!(location, Location::Path | Location::Header),
        Style::Form => matches!(location, Location::Query | Location::Cookie),
        Style::SpaceDelimited | Style::PipeDelimited => {
            matches!(location, Location::Query | Location::Path | Location::Header)
        }
        Style::DeepObject => location == Location::Query,
        Style::Cookie => location == Location::Cookie,
        Style::TabDelimited => true,
    }
}
