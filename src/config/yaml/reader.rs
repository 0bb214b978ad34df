//! From the file's tree to the typed configuration, with all type errors reported in one run.
//!
//! A serde deserializer knows the valid keys and types at each place, but stops at the first error. So the invalid
//! value is excluded and reading starts again without it.

use std::cell::RefCell;
use std::collections::HashSet;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde_json::Value;

use super::document::{Content, Document, Node};
use super::error::ConfigError;
use super::type_error::{ConfigTypeError, unknown_key};
use crate::one_or_many::ONE_OR_MANY;
use crate::schema::json_schema;

/// Maximum values that are not read and no texts: for each the document is read once more.
const MAX_UNREAD: usize = 200;

/// Maximum type errors reported in one run; a file with more is probably another kind of file.
const MAX_ERRORS: usize = 20;

/// Reads the whole document as a `T`.
/// Errors: every unknown key and every value of a wrong type, with its place.
pub fn read<T: DeserializeOwned>(document: &Document) -> Result<T, Vec<ConfigError>> {
    let reading = Reading { document, invalid: RefCell::default(), errors: RefCell::default() };
    loop {
        match T::deserialize(Reader { node: &document.root, reading: &reading, hidden: false }) {
            Ok(value) if reading.errors.borrow().is_empty() => return Ok(value),
            Ok(_) => return Err(reading.into_errors()),
            Err(type_error) => {
                let node = type_error.node.unwrap_or(&document.root);
                reading.report(node, type_error);
                if std::ptr::eq(node, &document.root) || reading.errors.borrow().len() >= MAX_ERRORS {
                    return Err(reading.into_errors());
                }
            }
        }
    }
}

/// The advice for a key at the top level that belongs in one topic.
fn topic_with(key: &str) -> Option<String> {
    let schema = json_schema();
    let has_key = |topic: &Value| {
        let definition = topic["$ref"].as_str().and_then(|path| schema.pointer(path.trim_start_matches('#')));
        definition.is_some_and(|definition| definition["properties"].get(key).is_some())
    };
    let mut topics = schema["properties"].as_object()?.iter().filter(|(_, topic)| has_key(topic)).map(|(name, _)| name);
    let (topic, None) = (topics.next()?, topics.next()) else { return None };
    Some(format!("write it in `{topic}`, as `{topic}: {{{key}: …}}`"))
}

struct Reading<'a> {
    document: &'a Document,
    /// Values already reported, by identity; they are read as if they were missing.
    invalid: RefCell<HashSet<*const Node>>,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'a> Reading<'a> {
    fn is_invalid(&self, node: &Node) -> bool {
        matches!(node.content, Content::InvalidValue) || self.invalid.borrow().contains(&std::ptr::from_ref(node))
    }

    /// A field may be missing only because its value was excluded: that is not a second error.
    fn is_consequence(&self, node: &Node, type_error: &ConfigTypeError<'_>) -> bool {
        let Content::Mapping(entries) = &node.content else { return false };
        type_error.missing_field && entries.iter().any(|(_, value)| self.is_invalid(value))
    }

    /// The text of a value that is not read says nothing about its type: it is read as if it were missing.
    fn is_unread(&self, node: &Node) -> bool {
        let is_root = std::ptr::eq(node, &self.document.root);
        matches!(node.content, Content::Unread(_)) && !is_root && self.invalid.borrow().len() < MAX_UNREAD
    }

    fn report(&self, node: &'a Node, type_error: ConfigTypeError<'a>) {
        if !self.is_consequence(node, &type_error) && !self.is_unread(node) {
            let key = self.document.key_of(node);
            let place = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
            let reveal = !type_error.hidden && !matches!(node.content, Content::List(_) | Content::Mapping(_));
            let message = format!("{place}{}", type_error.message_for(node));
            self.add(self.document.error(node.position, reveal, message), type_error.advice);
        }
        self.invalid.borrow_mut().insert(std::ptr::from_ref(node));
    }

    fn report_unknown_keys(&self, mapping: &Node, known: &[&str]) {
        let Content::Mapping(entries) = &mapping.content else { return };
        let is_new = |node: &Node| !self.invalid.borrow().contains(&std::ptr::from_ref(node));
        let unknown = entries.iter().filter(|(key, value)| !known.contains(&key.name.as_str()) && is_new(value));
        for (key, value) in unknown.take(MAX_ERRORS) {
            let (what, mut advice) = unknown_key(&key.name, known);
            // Other files are read with the same words.
            if known.contains(&"state_directory") {
                advice = topic_with(&key.name).unwrap_or(advice);
            }
            let message = match self.document.key_of(mapping).as_str() {
                "" => format!("{what} at the top level"),
                around => format!("{what} in `{around}`"),
            };
            self.add(self.document.error(key.position, false, message), Some(advice));
            self.invalid.borrow_mut().insert(std::ptr::from_ref(value));
        }
    }

    fn add(&self, mut error: ConfigError, advice: Option<String>) {
        error.advice = advice;
        self.errors.borrow_mut().push(error);
    }

    fn into_errors(self) -> Vec<ConfigError> {
        let mut errors = self.errors.into_inner();
        errors.truncate(MAX_ERRORS);
        errors
    }
}

/// One node being read.
#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
    reading: &'a Reading<'a>,
    /// The value is not shown: it is a [`Secret`](crate::Secret), or is in a place of keys and may contain
    /// one (`- key:hunter2`).
    hidden: bool,
}

impl<'a> Reader<'a> {
    fn item(self, node: &'a Node) -> Option<Self> {
        (!self.reading.is_invalid(node)).then_some(Self { node, ..self })
    }

    /// Passes the value to the visitor, which refuses a wrong type.
    fn visit<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, ConfigTypeError<'a>> {
        match &self.node.content {
            Content::Null | Content::InvalidValue => visitor.visit_unit(),
            Content::Bool(value) => visitor.visit_bool(*value),
            Content::Unsigned(value) => visitor.visit_u64(*value),
            Content::Signed(value) => visitor.visit_i64(*value),
            Content::Float(value) => visitor.visit_f64(*value),
            Content::Text { value, .. } | Content::Unread(value) => visitor.visit_borrowed_str(value),
            Content::List(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().filter_map(|item| self.item(item))))
            }
            Content::Mapping(entries) => visitor.visit_map(MapDeserializer::new(
                entries.iter().filter_map(|(key, value)| Some((key.name.as_str(), self.item(value)?))),
            )),
        }
        .map_err(|type_error| type_error.at(self.node, self.hidden))
    }

    /// A number or a boolean, which may be written as `${…}`.
    fn visit_parsed<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, ConfigTypeError<'a>> {
        let Content::Text { value, interpolated: true } = &self.node.content else {
            return self.visit(visitor);
        };
        let text = value.trim();
        let visited: Result<_, ConfigTypeError<'a>> = if let Ok(value) = text.parse() {
            visitor.visit_bool(value)
        } else if let Ok(value) = text.parse() {
            visitor.visit_u64(value)
        } else if let Ok(value) = text.parse() {
            visitor.visit_i64(value)
        } else if let Some(value) = text.parse().ok().filter(|value: &f64| value.is_finite()) {
            visitor.visit_f64(value)
        } else {
            visitor.visit_str(text)
        };
        visited.map_err(|type_error| type_error.at(self.node, self.hidden))
    }

    /// A string. A number or boolean is not converted, since `1.10` would silently become `1.1`.
    fn visit_text<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, ConfigTypeError<'a>> {
        match &self.node.content {
            Content::Bool(_) | Content::Unsigned(_) | Content::Signed(_) | Content::Float(_) => {
                let mut type_error = ConfigTypeError::saying("expected a string".into());
                type_error.advice = Some("put the value in quotes".into());
                Err(type_error.at(self.node, self.hidden))
            }
            _ => self.visit(visitor),
        }
    }
}

macro_rules! forward {
    ($($method:ident)* => $to:ident) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> { self.$to(visitor) })*
    };
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = ConfigTypeError<'de>;

    forward! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 => visit_parsed
    }

    forward! {
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_identifier => visit_text
    }

    forward! { deserialize_any deserialize_unit deserialize_ignored_any => visit }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.node.content {
            // `api_key: ${KEY:-}`: no key, rather than an empty one.
            Content::Text { value, interpolated: true } if value.is_empty() => visitor.visit_none(),
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// A key whose items are all commented out has no items.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.node.content {
            Content::Null => {
                visitor.visit_seq(SeqDeserializer::<_, ConfigTypeError<'de>>::new(std::iter::empty::<Self>()))
            }
            Content::List(_) => self.visit(visitor),
            _ => Self { hidden: true, ..self }.visit(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.node.content {
            Content::Null => visitor
                .visit_map(MapDeserializer::<_, ConfigTypeError<'de>>::new(std::iter::empty::<(&str, Self)>()))
                .map_err(|type_error| type_error.at(self.node, self.hidden)),
            Content::Mapping(_) => self.visit(visitor),
            _ => Self { hidden: true, ..self }.visit(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if matches!(self.node.content, Content::List(_)) {
            // serde would accept a list as the fields in their order.
            return Err(ConfigTypeError::invalid_type(Unexpected::Seq, &visitor).at(self.node, self.hidden));
        }
        self.reading.report_unknown_keys(self.node, fields);
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match &self.node.content {
            Content::List(_) | Content::Null if name == ONE_OR_MANY => self.deserialize_seq(visitor),
            _ => visitor.visit_newtype_struct(Self { hidden: self.hidden || name == "Secret", ..self }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match &self.node.content {
            Content::Text { value, .. } => {
                let value: StrDeserializer<'_, ConfigTypeError<'de>> = value.as_str().into_deserializer();
                visitor.visit_enum(value)
            }
            _ => Err(ConfigTypeError::saying(format!("expected one of {}", variants.join(", ")))),
        }
        .map_err(|type_error| type_error.at(self.node, self.hidden))
    }

    serde::forward_to_deserialize_any! { unit_struct tuple tuple_struct }
}

impl<'a> IntoDeserializer<'a, ConfigTypeError<'a>> for Reader<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
