//! The names in the configuration that stand for something defined elsewhere: a tool, a role, an operation of a document. One that
//! matches nothing switches off what its setting was written for, so each is compared with the names that exist.
//!
//! [`references`] has the list of them; a test walks the schema, so that no map or list of names is forgotten there.

mod references;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use self::references::adapter_names;
use super::Config;
use super::check::Findings;
use super::yaml::error::ConfigError;
use sekisho_core::nearest_name::{misspelled_name, nearest_name};
use sekisho_core::tool_scope::fits;

/// Separates the name of a source from the name of its tool.
const SEPARATOR: &str = "__";

/// The kind of object that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// A tool, by the name that its source gives it, before `tools.overrides` renames it.
    SourceTool,
    /// A tool, by the name that callers use.
    Tool,
    /// A tool of an MCP server, by the server's own name for it.
    ServerTool,
    /// A role that a caller has.
    Role,
    Caller,
    Tenant,
    /// A managed key.
    Key,
    McpServer,
    Collection,
    /// A vendor adapter of `openapi.adapters`.
    Adapter,
    /// An operation of a document, by its id, or by method and path.
    Operation,
    /// An operation of a document, only by its id.
    OperationId,
    Path,
    Tag,
    Method,
    SecurityScheme,
    /// Of `agent.models`, `agent.profiles` or the store.
    Model,
    Skill,
    /// A file of `python_tools.directory`.
    PythonFile,
    /// A file of `components.directory`.
    Component,
}

/// A name in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameReference {
    /// `topic.key[index]`, as in the file.
    pub setting: String,
    pub kind: NameKind,
    /// The MCP server, collection or adapter whose names are meant; empty for names of the whole gateway.
    pub of: String,
    /// In tools and paths, a `*` stands for any text.
    pub name: String,
}

/// The names that exist, as far as they are known.
#[derive(Debug, Default)]
pub struct ExistingNames {
    sets: BTreeMap<(NameKind, String), BTreeSet<String>>,
    /// Beginnings of the names of tools that may exist: the tools of sources that are not loaded. An empty one fits any
    /// tool.
    pending: BTreeSet<String>,
}

/// A name that matches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    pub setting: String,
    pub message: String,
    pub advice: Option<String>,
    /// It is the name of a guard, and misspells the name of a tool: the configuration is refused.
    pub is_error: bool,
}

impl NameKind {
    fn describes(self) -> &'static str {
        match self {
            Self::SourceTool | Self::Tool | Self::ServerTool => "tool",
            Self::Role => "role of any caller",
            Self::Caller => "caller",
            Self::Tenant => "tenant of any caller",
            Self::Key => "managed key",
            Self::McpServer => "MCP server",
            Self::Collection => "collection",
            Self::Adapter => "adapter",
            Self::Operation | Self::OperationId => "operation in the document",
            Self::Path => "path in the document",
            Self::Tag => "tag in the document",
            Self::Method => "method of an operation",
            Self::SecurityScheme => "security scheme in the document",
            Self::Model => "model or profile",
            Self::Skill => "skill",
            Self::PythonFile => "file of Python functions",
            Self::Component => "component",
        }
    }

    fn has_patterns(self) -> bool {
        matches!(self, Self::SourceTool | Self::Tool | Self::ServerTool | Self::Path)
    }

    /// Whether `pet` is `PET`.
    fn ignores_case(self) -> bool {
        matches!(self, Self::Adapter | Self::Method)
    }
}

impl NameReference {
    /// Whether a guard depends on it: a limit, a requirement of `tools.overrides`, or a rule of `tools.guards`.
    fn is_of_guard(&self) -> bool {
        ["tools.overrides.", "tools.guards.", "limits."].iter().any(|topic| self.setting.starts_with(*topic))
    }

    fn is_pattern(&self) -> bool {
        self.kind.has_patterns() && self.name.contains('*')
    }

    fn matches(&self, name: &str) -> bool {
        match self.kind.ignores_case() {
            true => self.name.eq_ignore_ascii_case(name),
            false if self.is_pattern() => fits(&self.name, name),
            false => self.name == name,
        }
    }
}

impl ExistingNames {
    /// Adds names of a kind; `of` as in [`NameReference`]. Names of a kind of which none were added are not judged.
    pub fn add<S: Into<String>>(&mut self, kind: NameKind, of: &str, names: impl IntoIterator<Item = S>) {
        self.sets.entry((kind, of.to_owned())).or_default().extend(names.into_iter().map(Into::into));
    }

    /// Names of tools with this beginning may exist: their source is not loaded.
    pub fn add_pending(&mut self, beginning: impl Into<String>) {
        self.pending.insert(beginning.into());
    }

    /// The problem of a name, if there is one.
    pub fn judge(&self, reference: &NameReference) -> Option<UnknownName> {
        let known = self.sets.get(&(reference.kind, reference.of.clone()))?;
        if known.iter().any(|name| reference.matches(name)) || self.may_be_pending(reference) {
            return None;
        }
        let NameReference { setting, kind, name, .. } = reference;
        let (message, meant) = match reference.is_pattern() {
            true => (format!("no {} has a name like {name:?}", kind.describes()), nearest_pattern(name, known)),
            false => {
                let nearest = nearest_name(name, known.iter().map(String::as_str));
                (format!("there is no {} {name:?}", kind.describes()), nearest.map(str::to_owned))
            }
        };
        let is_tool = matches!(kind, NameKind::SourceTool | NameKind::Tool);
        let misspelled = match is_tool && reference.is_of_guard() && !reference.is_pattern() {
            true => misspelled_name(name, known.iter().map(String::as_str)),
            false => None,
        };
        let is_error = misspelled.is_some();
        let meant = misspelled.map(str::to_owned).or(meant);
        let advice = meant.map(|meant| format!("did you mean `{meant}`?"));
        Some(UnknownName { setting: setting.clone(), message, advice, is_error })
    }

    fn may_be_pending(&self, reference: &NameReference) -> bool {
        if !matches!(reference.kind, NameKind::SourceTool | NameKind::Tool) {
            return false;
        }
        let stem = reference.name.split('*').next().unwrap_or_default();
        let is_pattern = reference.is_pattern();
        let may_be = |beginning: &String| stem.starts_with(beginning) || (is_pattern && beginning.starts_with(stem));
        self.pending.iter().any(may_be)
    }
}

/// `crm__*` for `crmm__*`: the pattern of the source whose name is most like that in a pattern.
fn nearest_pattern(pattern: &str, known: &BTreeSet<String>) -> Option<String> {
    let (source, _) = pattern.split_once(SEPARATOR)?;
    let sources: BTreeSet<_> = known.iter().filter_map(|name| Some(name.split_once(SEPARATOR)?.0)).collect();
    nearest_name(source, sources).filter(|meant| *meant != source).map(|meant| format!("{meant}{SEPARATOR}*"))
}

impl UnknownName {
    /// The problem, in a line.
    pub fn sentence(&self) -> String {
        self.advice.iter().fold(self.message.clone(), |message, advice| format!("{message}; {advice}"))
    }
}

impl Config {
    /// Its names that match none of those that exist. Names that stand for values which are not read are not judged.
    pub fn unknown_names(&self, existing: &ExistingNames) -> Vec<UnknownName> {
        let references = self.name_references().into_iter();
        let read = references.filter(|reference| self.set.is_read(&reference.setting));
        read.filter_map(|reference| existing.judge(&reference)).collect()
    }

    /// The unknown names for which the configuration is refused, with their places.
    pub fn name_errors(&self, unknown: &[UnknownName]) -> Vec<ConfigError> {
        let mut findings = Findings::default();
        for UnknownName { setting, message, advice, .. } in unknown.iter().filter(|unknown| unknown.is_error) {
            findings.add(setting, message, advice.clone().unwrap_or_default());
        }
        findings.found.into_iter().map(|finding| self.set.place(finding)).collect()
    }
}
