//! The configuration file as a tree in which every value has its position.
//!
//! serde-saphyr parses the YAML: duplicate keys are refused, aliases have a budget. This module has no knowledge of
//! the settings, so an excerpt shows only the value it is about, and only on request.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::error::{ConfigError, ConfigLocation};
use crate::check::Finding;

/// Maximum bytes of a configuration file. A hand-written one has a few thousand.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file and its tree.
#[derive(Debug, Clone)]
pub struct Document {
    file: PathBuf,
    text: String,
    /// Read from the file: its author may name files and programs of this machine.
    pub(crate) is_operators: bool,
    pub root: Node,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub position: Position,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text {
        value: String,
        /// Written with `${…}`: the value is not in the file, must not be shown, and may be a number.
        interpolated: bool,
    },
    /// As it is written, with `${…}`: a value of this machine, which is not read for a text that is not the operator's file.
    Unread(String),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
    /// Already reported as invalid; no further error is reported for it.
    InvalidValue,
}

#[derive(Debug, Clone)]
pub struct Key {
    pub position: Position,
    pub name: String,
}

/// Line and column count from 1; column and width in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
    width: usize,
}

impl Document {
    /// Reads and parses a file.
    /// Errors: it cannot be read, is too large, or is not accepted YAML.
    pub fn open(file: &Path) -> Result<Self, ConfigError> {
        let mut bytes = Vec::new();
        File::open(file)
            .and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| ConfigError::unreadable(file, &error))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(ConfigError::of_file(file, format!("is larger than {MAX_FILE_BYTES} bytes"))
                .advise("name a configuration file, which is much smaller"));
        }
        let text = String::from_utf8(bytes).map_err(|error| not_utf8(file, &error))?;
        Ok(Self { is_operators: true, ..Self::parse(file, text)? })
    }

    pub fn parse(file: &Path, text: String) -> Result<Self, ConfigError> {
        let options = serde_saphyr::options! {
            // The deepest setting is five levels down; each level takes space on the stack.
            budget: serde_saphyr::budget! { max_depth: 16, max_aliases: 1_000, max_nodes: 100_000 },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
            strict_booleans: true,
            with_snippet: false,
        };
        let root = serde_saphyr::from_str_with_options(&text, options);
        let mut document = Self { file: file.to_owned(), text, is_operators: false, root: Node::nothing() };
        document.root = root.map_err(|error| document.syntax_error(&error))?;
        Ok(document)
    }

    /// One without a file, which sets nothing.
    pub fn empty() -> Self {
        Self { file: PathBuf::new(), text: String::new(), is_operators: false, root: Node::nothing() }
    }

    /// Merges a change into it, as RFC 7396 says. `places`: how many values changes have set so far.
    pub fn merge(&mut self, patch: &Value, places: &mut usize) {
        self.root.merge(patch, places);
    }

    /// The merge patch that makes this document, into which changes were merged, of the one before.
    pub fn difference(&self, before: Option<&Self>) -> Value {
        let changed = self.root.difference(before.map(|before| &before.root));
        changed.unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// An error at a position. Its value is shown only if `reveal` is set.
    pub fn error(&self, position: Position, reveal: bool, message: impl Into<String>) -> ConfigError {
        if position.is_of_change() {
            let (mut key, message): (_, String) = (String::new(), message.into());
            path_to(&self.root, &|node: &Node| node.position == position, &mut key);
            let place = format!("`{key}`: ");
            let message = message.strip_prefix(&place).unwrap_or(&message).to_owned();
            return ConfigError::new(ConfigLocation::Setting(key), message);
        }
        let mut error = ConfigError::in_file(&self.file, position.line, position.column, message);
        error.excerpt = self.excerpt(position, reveal);
        error
    }

    /// A finding about a node.
    pub fn place(&self, node: &Node, reveal: bool, finding: Finding) -> ConfigError {
        if node.position.is_of_change() {
            let setting = finding.setting.clone();
            return finding.into_error(ConfigLocation::Setting(setting));
        }
        let Position { line, column, .. } = node.position;
        let mut error = finding.into_error(ConfigLocation::At { file: self.file.clone(), line, column });
        error.excerpt = self.excerpt(node.position, reveal);
        error
    }

    /// The value at `topic.key[index]`, or its nearest ancestor, and whether it is the exact value.
    pub fn find(&self, key: &str) -> Option<(&Node, bool)> {
        let mut found = None;
        let mut node = &self.root;
        for step in key.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
            match node.child(step) {
                Some(child) => node = child,
                None => return found.map(|node| (node, false)),
            }
            found = Some(node);
        }
        found.map(|node| (node, true))
    }

    /// `topic.key[index]` of a node of this document.
    pub fn key_of(&self, node: &Node) -> String {
        let mut key = String::new();
        path_to(&self.root, &|one: &Node| std::ptr::eq(one, node), &mut key);
        key
    }

    fn syntax_error(&self, error: &serde_saphyr::Error) -> ConfigError {
        let error = error.without_snippet();
        let message = match error {
            serde_saphyr::Error::MultipleDocuments { .. } => {
                "a second YAML document starts here; only one is accepted".into()
            }
            _ => error.render_with_formatter(&serde_saphyr::UserMessageFormatter),
        };
        let message = message.lines().next().unwrap_or_default();
        // The position is already at the start of the message.
        let message = message.split_once(" at line ").map_or(message, |(message, _)| message);
        let error = match error.location().map(Position::from) {
            Some(position) if position.line > 0 => self.error(position, false, message),
            _ => ConfigError::of_file(&self.file, message),
        };
        error.advise("correct the YAML here; the rest of the file was not checked")
    }

    fn excerpt(&self, position: Position, reveal: bool) -> Option<String> {
        let line = self.text.lines().nth(position.line.checked_sub(1)?)?;
        let shown = excerpt_of(line, position, reveal);
        let number = position.line;
        let margin = " ".repeat(number.to_string().len());
        let indent = " ".repeat(position.column.saturating_sub(1).min(shown.chars().count()));
        Some(format!("  {number} | {shown}\n  {margin} | {indent}^"))
    }
}

impl Position {
    /// The place of the next value that a change sets.
    pub(super) fn of_change(places: &mut usize) -> Self {
        *places += 1;
        Self { line: 0, column: *places, width: 0 }
    }

    /// Whether a change set the value: no file has it.
    pub fn is_of_change(self) -> bool {
        self.line == 0
    }
}

impl Node {
    fn nothing() -> Self {
        Self { position: Position { line: 1, column: 1, width: 0 }, content: Content::Null }
    }

    /// Whether a value of it is not known.
    pub fn has_unread(&self) -> bool {
        match &self.content {
            Content::Unread(_) => true,
            Content::List(items) => items.iter().any(Self::has_unread),
            Content::Mapping(entries) => entries.iter().any(|(_, value)| value.has_unread()),
            _ => false,
        }
    }

    /// The first value in it that stands for the value of a variable, a file or a program.
    pub(crate) fn first_reference(&self) -> Option<&Self> {
        match &self.content {
            Content::Text { interpolated: true, .. } | Content::Unread(_) => Some(self),
            Content::List(items) => items.iter().find_map(Self::first_reference),
            Content::Mapping(entries) => entries.iter().find_map(|(_, value)| value.first_reference()),
            _ => None,
        }
    }

    /// Whether a value directly in it is not known.
    pub(crate) fn has_unread_member(&self) -> bool {
        let is_unread = |node: &Self| matches!(node.content, Content::Unread(_));
        match &self.content {
            Content::List(items) => items.iter().any(is_unread),
            Content::Mapping(entries) => entries.iter().any(|(_, value)| is_unread(value)),
            _ => false,
        }
    }

    pub(super) fn child(&self, step: &str) -> Option<&Self> {
        match &self.content {
            Content::Mapping(entries) => entries.iter().find(|(key, _)| key.name == step).map(|(_, value)| value),
            Content::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    }
}

/// The start of the line up to its key, followed by the value, if it may be shown. Everything else on the line could
/// be a secret: a flow mapping has several values on one line.
fn excerpt_of(line: &str, position: Position, reveal: bool) -> String {
    let value: String = line.chars().skip(position.column.saturating_sub(1)).take(position.width).collect();
    let head = head_of(line);
    let rest = line[head.len()..].trim();
    match rest {
        "" => head.to_owned(),
        _ if reveal && !value.is_empty() && line[head.len()..].trim_start().starts_with(&value) => {
            let gap = position.column.saturating_sub(1).saturating_sub(head.chars().count());
            format!("{head}{}{value}", " ".repeat(gap))
        }
        _ => format!("{} …", head.trim_end()),
    }
}

/// Indentation, dashes and the key with its colon: the part of a line before its value.
fn head_of(line: &str) -> &str {
    let dashes = line.len() - line.trim_start_matches([' ', '-']).len();
    let key = line[dashes..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte)).count();
    match line[dashes + key..].starts_with(':') {
        true => &line[..=dashes + key],
        false => &line[..dashes],
    }
}

fn path_to(from: &Node, is_wanted: &dyn Fn(&Node) -> bool, key: &mut String) -> bool {
    if is_wanted(from) {
        return true;
    }
    let length = key.len();
    let mut found_in = |step: String, child: &Node| {
        key.push_str(&step);
        let found = path_to(child, is_wanted, key);
        if !found {
            key.truncate(length);
        }
        found
    };
    match &from.content {
        Content::Mapping(entries) => entries.iter().any(|(name, child)| {
            let dot = if length == 0 { "" } else { "." };
            found_in(format!("{dot}{}", name.name), child)
        }),
        Content::List(items) => items.iter().enumerate().any(|(index, child)| found_in(format!("[{index}]"), child)),
        _ => false,
    }
}

fn not_utf8(file: &Path, error: &std::string::FromUtf8Error) -> ConfigError {
    let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    ConfigError::in_file(file, line, 1, "this line is not UTF-8").advise("save the file as UTF-8")
}

impl From<serde_saphyr::Location> for Position {
    fn from(location: serde_saphyr::Location) -> Self {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Self { line: number(location.line()), column: number(location.column()), width: number(location.span().len()) }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { position: spanned.referenced.into(), content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self { position: spanned.referenced.into(), name: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a setting")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(u64::try_from(value).map_or(Content::Signed(value), Content::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Text { value: value.to_owned(), interpolated: false })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Content::Mapping(mapping))
    }
}
