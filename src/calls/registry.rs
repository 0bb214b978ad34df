//! Tools by name, in an immutable snapshot that is replaced as a whole, so that a call sees one consistent state.

mod build;
mod describe;
mod known;
mod lint;
pub mod lock;
mod nearest;
mod operations;
mod search;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;

pub use self::describe::{ToolMetadata, ToolSchema, ToolSummary};
pub use self::known::Known;
pub use self::lint::{LintFinding, LintReport, LintedTool};
pub use self::nearest::{nearest_names, shown_name};
pub use self::operations::unknown_target;
pub use sekisho_tool_search::{Part, Search, SearchIndex, Searchable};

use crate::guards::{GuardRules, InvalidRulesFile, texts_of_value};
use crate::projection::InvalidProjection;
use crate::tool::{AwaitedTools, InvalidSchema, InvalidToolName, Metadata, Tool, Unavailable};
use crate::transform::InvalidRule;
use sekisho_config::TransformConfig;
use sekisho_core::call::{CallContext, Caller};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::guard_finding::GuardAction;

use self::lock::{Lock, Quarantined};
use self::search::EmbeddingTable;

/// The registered tools.
#[derive(Debug)]
pub struct Registry {
    snapshot: ArcSwap<Snapshot>,
    changes: watch::Sender<()>,
    /// The version of the registrations that replicas share, as last taken over; negative before that, and without
    /// replicas.
    shared_version: AtomicI64,
    /// Asked about tools that nobody offers.
    awaited: OnceLock<Arc<dyn AwaitedTools>>,
}

/// One state of the registry: complete, checked and immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Sorted by name.
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, Arc<Tool>>,
    /// Operations of sources that are not tools, by the name of the source.
    operations: HashMap<String, Vec<Arc<Tool>>>,
    index: SearchIndex,
    embeddings: EmbeddingTable,
    unavailable: Vec<Unavailable>,
    /// By name; no offered tool has the same name.
    quarantined: BTreeMap<String, Quarantined>,
    lock: Option<Arc<Lock>>,
    /// The names in `tools.overrides` that a source has a tool or operation of.
    overridden: BTreeSet<String>,
    /// Whether rules of `tools.transform` may change results.
    changes_results: bool,
    /// The settings that its tools were compiled with, beside their own and `guards`.
    transform: TransformConfig,
    coerces_arguments: bool,
    guards: Arc<GuardRules>,
}

/// Why a set of definitions cannot be registered.
#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("two tools have the name {name:?}: one from {first}, one from {second}; rename one in `tools.overrides`")]
    NameClash { name: String, first: String, second: String },
    #[error("tool {name:?} from {source_name}: the name is in use; register the source under another name")]
    NameInUse { name: String, source_name: String },
    #[error("tool {name:?} from {source_name}: {problem}")]
    InvalidName { name: String, source_name: String, problem: InvalidToolName },
    #[error("tool {name:?} from {source_name}: {problem}")]
    InvalidSchema { name: String, source_name: String, problem: InvalidSchema },
    #[error(transparent)]
    InvalidRule(#[from] InvalidRule),
    #[error(transparent)]
    InvalidRulesFile(#[from] InvalidRulesFile),
    #[error(transparent)]
    InvalidProjection(#[from] InvalidProjection),
}

impl Registry {
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            changes: watch::Sender::new(()),
            shared_version: AtomicI64::new(-1),
            awaited: OnceLock::new(),
        }
    }

    /// Has calls of tools that nobody offers answered by sources that list their tools later. Of several calls the first one counts.
    pub fn await_tools_of(&self, sources: Arc<dyn AwaitedTools>) {
        let _set_before = self.awaited.set(sources);
    }

    /// The tool of that name, if it is visible to the caller.
    /// Errors: `unknown_tool` with the most similar names, `tool_changed`, or the state of a source that has not listed
    /// its tools yet.
    pub fn find(&self, name: &str, caller: &Caller) -> Result<Arc<Tool>, CallError> {
        let snapshot = self.snapshot.load();
        snapshot.find(name, caller).cloned().map_err(|error| {
            // A tool that is hidden from the caller is answered like one that nobody has.
            let awaited = self.awaited.get().filter(|_| !snapshot.knows(name) && !snapshot.withholds(name));
            awaited.and_then(|sources| sources.refusal(name, caller)).unwrap_or(error)
        })
    }

    /// The tool of the call's name, or the operation of the source that has the call's target.
    /// Errors: as [`find`](Self::find).
    pub fn find_for(&self, call: &CallContext) -> Result<Arc<Tool>, CallError> {
        let snapshot = self.snapshot.load();
        let Some(target) = &call.target else {
            return match call.nesting.depth == 0 || call.nesting.scope.admits(&call.tool) {
                true => self.find(&call.tool, &call.caller),
                false => Err(snapshot.unknown_to(call)),
            };
        };
        let source = target.source.as_deref();
        let operation = source.and_then(|source| snapshot.operation(source, target.kind));
        let operation = operation.filter(|operation| {
            !operation.metadata.is_of_another_tenant(&call.caller) && !operation.metadata.is_off_for(&call.caller)
        });
        operation.cloned().ok_or_else(|| unknown_target(target.kind, &target.name))
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Whether rules may change results of any tool.
    pub fn changes_results(&self) -> bool {
        self.snapshot.load().changes_results
    }

    pub fn replace(&self, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
        self.changes.send_replace(());
    }

    /// The version of the registrations that replicas share: the tools have this version or a newer one.
    pub fn shared_version(&self) -> Option<i64> {
        Some(self.shared_version.load(Ordering::Acquire)).filter(|version| *version >= 0)
    }

    /// The registrations of this version were taken over.
    pub fn set_shared_version(&self, version: i64) {
        self.shared_version.store(version, Ordering::Release);
    }

    /// A receiver that is notified when the snapshot is replaced.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

impl Snapshot {
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// All tools, sorted by name.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Whether a source from outside has a tool, which only a lock holds to its approved form.
    pub fn has_tools_from_outside(&self) -> bool {
        self.tools.iter().any(|tool| !lock::is_ours(&tool.metadata.source))
    }

    /// Tools that exist but cannot be offered, with the reason.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Whether a rule of `tools.guards` that is for all tools of a source blocks a text by which the source describes itself, or something
    /// that is no tool.
    pub fn blocks_description(&self, source: &str, described: &Value) -> bool {
        if !self.guards.look_at_descriptions() {
            return false;
        }
        let findings = self.guards.of_description("", source, &texts_of_value(described));
        findings.iter().any(|finding| finding.action == GuardAction::Block)
    }

    /// Quarantined tools, sorted by name: not offered and not run until they are approved.
    pub fn quarantined(&self) -> impl Iterator<Item = &Quarantined> {
        self.quarantined.values()
    }

    /// The names in `tools.overrides` that a source has a tool or operation of, also names that the overrides hide.
    pub fn overridden(&self) -> &BTreeSet<String> {
        &self.overridden
    }

    /// Whether a tool or operation of that name is offered, or waits for approval.
    pub fn knows(&self, name: &str) -> bool {
        let is_operation = || self.operations().any(|operation| operation.name() == name);
        self.by_name.contains_key(name) || self.quarantined.contains_key(name) || is_operation()
    }

    /// Whether a source has a tool of that name that is not offered under it, now or later: it is hidden, renamed or invalid.
    fn withholds(&self, name: &str) -> bool {
        self.overridden.contains(name) || self.unavailable.iter().any(|missing| missing.name == name)
    }

    /// The tool of that name, if it is visible to the caller. For a tool that is hidden from the caller, the error is the
    /// same as for a missing one; only its cause, which is logged, differs.
    /// Errors: `unknown_tool` or `tool_changed`.
    pub fn find(&self, name: &str, caller: &Caller) -> Result<&Arc<Tool>, CallError> {
        let found = self.get(name);
        if let Some(tool) = found.filter(|tool| !tool.metadata.is_hidden_from(caller)) {
            return Ok(tool);
        }
        let quarantined = self.quarantined.get(name);
        if let Some(tool) = quarantined.filter(|tool| !tool.is_hidden_from(caller)) {
            return Err(tool.refusal());
        }
        let unknown = self.unknown_among(name, |tool| !tool.metadata.is_hidden_from(caller));
        let hidden = found.map(|tool| &tool.metadata).or_else(|| quarantined.map(|tool| &tool.metadata));
        Err(match hidden {
            Some(tool) if tool.is_of_another_tenant(caller) => unknown.caused_by("the tool is of another tenant"),
            Some(tool) if tool.is_off_for(caller) => unknown.caused_by("its source is not switched on for the caller"),
            Some(tool) if !tool.lacks_role(caller) => {
                unknown.caused_by("the caller's key, or the endpoint of the request, leaves the tool out")
            }
            Some(tool) => {
                unknown.caused_by(format!("the caller has none of the tool's roles: {}", tool.roles.join(", ")))
            }
            None => unknown,
        })
    }

    /// The error of a call that a tool made, of a tool that is left out there.
    fn unknown_to(&self, call: &CallContext) -> CallError {
        let may_be_named =
            |tool: &Tool| !tool.metadata.is_hidden_from(&call.caller) && call.nesting.scope.admits(tool.name());
        self.unknown_among(&call.tool, may_be_named)
            .caused_by("the agent's profile, or its session, leaves the tool out")
    }

    /// Why no tool of that name is offered: `tool_changed` or `unknown_tool`. For operators: also suggests hidden tools
    /// for which `may_be_named` holds.
    pub fn missing(&self, name: &str, may_be_named: impl Fn(&Metadata) -> bool) -> CallError {
        let quarantined = self.quarantined.get(name).filter(|tool| may_be_named(&tool.metadata));
        quarantined.map_or_else(|| self.unknown_among(name, |tool| may_be_named(&tool.metadata)), Quarantined::refusal)
    }

    /// The tools that match a query best, with their scores.
    pub fn search(&self, query: &str, at_most: usize) -> Vec<(&Arc<Tool>, f64)> {
        self.index.search(query, at_most).into_iter().map(|(at, score)| (&self.tools[at], score)).collect()
    }

    /// As [`search`](Self::search), among the tools that `may_be_found`, which is asked about the best ones only.
    pub fn search_where(
        &self,
        search: Search<'_>,
        mut may_be_found: impl FnMut(&Arc<Tool>) -> bool,
    ) -> Vec<(&Arc<Tool>, f64)> {
        let found = self.index.search_where(search, |at| self.tools.get(at).is_some_and(&mut may_be_found));
        found.into_iter().map(|(at, score)| (&self.tools[at], score)).collect()
    }

    /// `unknown_tool`, with the most similar names of the tools that `may_be_named` allows.
    fn unknown_among(&self, name: &str, may_be_named: impl Fn(&Tool) -> bool) -> CallError {
        let shown = shown_name(name);
        let tools = self.tools.iter().filter(|tool| may_be_named(tool));
        CallError::new(ErrorCode::UnknownTool, format!("there is no tool {shown:?}; tools/list lists the tools"))
            .with_alternatives(nearest_names(name, tools.map(|tool| tool.name())))
    }
}
