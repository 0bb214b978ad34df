//! Tools by name, in an immutable snapshot that is replaced as a whole, so that a call sees one consistent state.

mod describe;
pub mod lock;
mod operations;
mod search;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use thiserror::Error;
use tokio::sync::watch;

pub use self::describe::{ToolMetadata, ToolSchema, ToolSummary};
pub use self::operations::unknown_target;
pub use self::search::{SearchIndex, Searchable};

use crate::config::{ToolOverride, ToolsConfig};
use crate::core::call::{CallContext, CallKind, Caller};
use crate::core::error::{CallError, Detail, ErrorCode};
use crate::infra::metrics::Metrics;
use crate::tool::{
    InputSchema, InvalidSchema, InvalidToolName, Metadata, OutputSchema, SourceTools, Tool, ToolDefinition, ToolName,
    Unavailable,
};
use crate::transform::{InvalidRule, TransformRules};

use self::lock::{Lock, LockViolation, Pin, Quarantined};

/// The registered tools.
#[derive(Debug)]
pub struct Registry {
    snapshot: ArcSwap<Snapshot>,
    changes: watch::Sender<()>,
    /// Of the registrations that replicas share, as last taken over; negative before that, and where there are no replicas.
    shared_version: AtomicI64,
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
    unavailable: Vec<Unavailable>,
    /// By name; no offered tool has the same name.
    quarantined: BTreeMap<String, Quarantined>,
    lock: Option<Arc<Lock>>,
    /// Whether rules of `tools.transform` may change results.
    changes_results: bool,
}

/// Why a set of definitions cannot be registered.
#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("two tools have the name {name:?}: one from {first}, one from {second}; rename one in `tools.overrides`")]
    NameClash { name: String, first: String, second: String },
    #[error("tool {name:?} from {source_name}: {problem}")]
    InvalidName { name: String, source_name: String, problem: InvalidToolName },
    #[error("tool {name:?} from {source_name}: {problem}")]
    InvalidSchema { name: String, source_name: String, problem: InvalidSchema },
    #[error(transparent)]
    InvalidRule(#[from] InvalidRule),
}

impl Registry {
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            changes: watch::Sender::new(()),
            shared_version: AtomicI64::new(-1),
        }
    }

    /// The tool of that name, if it is visible to the caller.
    ///
    /// # Errors
    /// `unknown_tool` with the most similar names, or `tool_changed`.
    pub fn find(&self, name: &str, caller: &Caller) -> Result<Arc<Tool>, CallError> {
        self.snapshot.load().find(name, caller).cloned()
    }

    /// The tool of the call's name, or the operation of the source that has the call's target.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_for(&self, call: &CallContext) -> Result<Arc<Tool>, CallError> {
        let snapshot = self.snapshot.load();
        let Some(target) = &call.target else {
            return match call.depth == 0 || call.nested_scope.admits(&call.tool) {
                true => snapshot.find(&call.tool, &call.caller).cloned(),
                false => Err(snapshot.unknown_to(call)),
            };
        };
        let source = target.source.as_deref();
        let operation = source.and_then(|source| snapshot.operation(source, target.kind));
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

    /// The version of the registrations that replicas share: the tools are those of it, or newer.
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
    /// Applies the configuration to the definitions of the sources, and checks names and schemas.
    ///
    /// # Errors
    /// All errors found, not only the first.
    pub fn build(
        definitions: Vec<ToolDefinition>,
        unavailable: Vec<Unavailable>,
        config: &ToolsConfig,
        metrics: &Metrics,
    ) -> Result<Self, Vec<RegistryError>> {
        let offer = SourceTools { tools: definitions, unavailable };
        Self::build_with(offer, SourceTools::default(), config, metrics, None, &Self::default())
    }

    /// Like [`build`](Self::build), with tools discovered at run time (`found`). If one of these cannot be registered, it
    /// becomes unavailable with the reason, and the others are registered; if only its output schema cannot be used, it is
    /// registered without one. Unchanged tools are reused from `before`. With
    /// a `lock`, external tools that differ from it or are missing in it are quarantined.
    ///
    /// # Errors
    /// All errors of `fixed`.
    pub fn build_with(
        fixed: SourceTools,
        found: SourceTools,
        config: &ToolsConfig,
        metrics: &Metrics,
        lock: Option<Arc<Lock>>,
        before: &Self,
    ) -> Result<Self, Vec<RegistryError>> {
        let transforms = TransformRules::compile(&config.transform).map_err(|error| vec![error.into()])?;
        let mut building = Building {
            config,
            transforms,
            metrics,
            lock,
            before,
            by_name: HashMap::new(),
            operations: HashMap::new(),
            quarantined: BTreeMap::new(),
            is_discovering: false,
        };
        let errors: Vec<_> = fixed.tools.into_iter().filter_map(|definition| building.add(definition).err()).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut unavailable = fixed.unavailable;
        unavailable.extend(found.unavailable);
        building.is_discovering = true;
        for definition in found.tools {
            let tool = definition.metadata.name.clone();
            let Metadata { source, roles, .. } = definition.metadata.clone();
            if let Err(error) = building.add(definition) {
                unavailable.push(Unavailable::new(&source, tool, error.to_string()).for_roles(&roles));
            }
        }
        let Building { by_name, operations, quarantined, lock, transforms, .. } = building;
        let mut tools: Vec<_> = by_name.values().cloned().collect();
        tools.sort_by(|a, b| a.name().cmp(b.name()));
        let index = SearchIndex::build(tools.iter().map(|tool| Searchable::from(&**tool)));
        let changes_results = transforms.change_results();
        Ok(Self { tools, by_name, operations, index, unavailable, quarantined, lock, changes_results })
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// All tools, sorted by name.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Tools that exist but cannot be offered, with the reason.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Quarantined tools, sorted by name: not offered and not run until they are approved.
    pub fn quarantined(&self) -> impl Iterator<Item = &Quarantined> {
        self.quarantined.values()
    }

    /// The tool of that name, if it is visible to the caller. For a tool that is hidden from the caller, the error is the
    /// same as for a missing one; only its cause, which is logged, differs.
    ///
    /// # Errors
    /// `unknown_tool` or `tool_changed`.
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
            |tool: &Tool| !tool.metadata.is_hidden_from(&call.caller) && call.nested_scope.admits(tool.name());
        self.unknown_among(&call.tool, may_be_named)
            .caused_by("the agent's profile, or its session, leaves the tool out")
    }

    /// Why no tool of that name is offered: `tool_changed` or `unknown_tool`. For operators: also suggests hidden tools.
    pub fn missing(&self, name: &str) -> CallError {
        self.quarantined.get(name).map_or_else(|| self.unknown_among(name, |_| true), Quarantined::refusal)
    }

    /// The tools that match a query best, with their scores.
    pub fn search(&self, query: &str, at_most: usize) -> Vec<(&Arc<Tool>, f64)> {
        self.index.search(query, at_most).into_iter().map(|(at, score)| (&self.tools[at], score)).collect()
    }

    /// `unknown_tool`, with the most similar names of the tools that `may_be_named` allows.
    fn unknown_among(&self, name: &str, may_be_named: impl Fn(&Tool) -> bool) -> CallError {
        let shown: String = name.chars().take(64).collect();
        let mut near: Vec<_> = self
            .tools
            .iter()
            .filter(|tool| may_be_named(tool))
            .map(|tool| (strsim::jaro_winkler(tool.name(), &shown), tool.name()))
            .filter(|(likeness, _)| *likeness >= LIKELY_MEANT)
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        let alternatives = near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect();
        CallError::new(ErrorCode::UnknownTool, format!("there is no tool {shown:?}; GET /tools/list lists the tools"))
            .with_alternatives(alternatives)
    }
}

/// Jaro–Winkler similarity from which a name is suggested as an alternative.
const LIKELY_MEANT: f64 = 0.75;

/// A snapshot that is being built.
struct Building<'a> {
    config: &'a ToolsConfig,
    transforms: TransformRules,
    metrics: &'a Metrics,
    lock: Option<Arc<Lock>>,
    before: &'a Snapshot,
    by_name: HashMap<String, Arc<Tool>>,
    operations: HashMap<String, Vec<Arc<Tool>>>,
    quarantined: BTreeMap<String, Quarantined>,
    /// Whether the definitions come from sources that were discovered at run time.
    is_discovering: bool,
}

impl Building<'_> {
    fn add(&mut self, mut definition: ToolDefinition) -> Result<(), RegistryError> {
        definition.metadata.sandboxed = definition.executor.sandboxed();
        let changes = self.config.overrides.get(&definition.metadata.name);
        if changes.is_some_and(|changes| changes.hidden == Some(true)) {
            return Ok(());
        }
        if definition.metadata.kind != CallKind::Tool {
            if let Some(changes) = changes {
                apply(changes, &mut definition);
            }
            return self.add_operation(definition);
        }
        let violation = self.lock_violation(&definition);
        if let Some(changes) = changes {
            apply(changes, &mut definition);
        }
        self.check_free(&definition.metadata)?;
        if let Some(violation) = violation {
            let described = changes.is_some_and(|changes| changes.description.is_some());
            self.quarantine(definition, violation, described);
            return Ok(());
        }
        let known = self.before.get(&definition.metadata.name);
        let tool = self.known_or_compiled(known, definition)?;
        self.by_name.insert(tool.name().to_owned(), tool);
        Ok(())
    }

    fn known_or_compiled(
        &self,
        known: Option<&Arc<Tool>>,
        definition: ToolDefinition,
    ) -> Result<Arc<Tool>, RegistryError> {
        Ok(match known.filter(|tool| tool.is_made_of(&definition.metadata, &definition.executor)) {
            Some(tool) => Arc::clone(tool),
            None => {
                let tool = compile(definition, self.config.coerce_arguments, self.is_discovering, self.metrics)?;
                let transforms = self.transforms.for_tool(tool.name());
                Arc::new(tool.with_transforms(transforms))
            }
        })
    }

    fn check_free(&self, metadata: &Metadata) -> Result<(), RegistryError> {
        let name = &metadata.name;
        let offered = self.by_name.get(name).map(|tool| &tool.metadata);
        match offered.or_else(|| Some(&self.quarantined.get(name)?.metadata)) {
            None => Ok(()),
            Some(first) => Err(RegistryError::NameClash {
                name: name.clone(),
                first: first.source.clone(),
                second: metadata.source.clone(),
            }),
        }
    }

    /// The difference between a tool and the lock. A tool that passed the same lock before is not checked again.
    fn lock_violation(&self, definition: &ToolDefinition) -> Option<LockViolation> {
        let lock = self.lock.as_ref().filter(|_| !lock::is_ours(&definition.metadata.source))?;
        let name = offered_name(self.config, definition);
        let is_same_lock = self.before.lock.as_ref().is_some_and(|before| Arc::ptr_eq(before, lock));
        let has_passed = |tool: &Arc<Tool>| tool.is_run_by(&definition.executor);
        if is_same_lock && self.before.get(name).is_some_and(has_passed) {
            return None;
        }
        lock.violation(name, &Pin::of(name, definition))
    }

    /// Quarantines a tool. Its own description is not kept, unless it `is_described` by the configuration.
    fn quarantine(&mut self, definition: ToolDefinition, violation: LockViolation, is_described: bool) {
        let flags = flags(&definition);
        let mut metadata = definition.metadata;
        let name = metadata.name.clone();
        if !is_described {
            let approved = self.lock.as_ref().and_then(|lock| Some(lock.get(&name)?.description().to_owned()));
            metadata.description = approved.unwrap_or_default();
        }
        metadata.mcp_annotations.clear();
        self.quarantined.insert(name, Quarantined { metadata, violation, flags });
    }
}

/// The name under which a tool is offered.
fn offered_name<'a>(config: &'a ToolsConfig, definition: &'a ToolDefinition) -> &'a str {
    let name = &definition.metadata.name;
    config.overrides.get(name).and_then(|changes| changes.rename.as_ref()).unwrap_or(name)
}

fn flags(definition: &ToolDefinition) -> Vec<Detail> {
    let output = definition.output_schema.as_ref().map(|schema| ("output_schema", schema));
    let parts: Vec<_> = [("parameters", definition.parameters.document())].into_iter().chain(output).collect();
    lock::scan_for_injection(&definition.metadata.description, &parts, &definition.metadata.mcp_annotations)
}

/// `may_drop_output`: whether the tool is registered without its output schema if that cannot be used.
fn compile(
    definition: ToolDefinition,
    coerce: bool,
    may_drop_output: bool,
    metrics: &Metrics,
) -> Result<Tool, RegistryError> {
    let flags = flags(&definition);
    let ToolDefinition { metadata, parameters, output_schema, executor } = definition;
    ToolName::parse(&metadata.name).map_err(|problem| RegistryError::InvalidName {
        name: metadata.name.clone(),
        source_name: metadata.source.clone(),
        problem,
    })?;
    let invalid_schema = |problem| RegistryError::InvalidSchema {
        name: metadata.name.clone(),
        source_name: metadata.source.clone(),
        problem,
    };
    let input = InputSchema::compile(&metadata.name, parameters, coerce).map_err(invalid_schema)?;
    let mut output_problem = None;
    let output = match (output_schema, executor.output_schema()) {
        (Some(listed), Some(whole)) => Some(OutputSchema::shared(listed, whole)),
        (listed, _) => match listed.map(OutputSchema::compile).transpose() {
            Err(problem) if may_drop_output => {
                output_problem = Some(problem.to_string());
                None
            }
            compiled => compiled.map_err(invalid_schema)?,
        },
    };
    let tool_metrics = metrics.for_tool(&metadata.name);
    let tool = Tool::new(metadata, input, output, flags, tool_metrics, executor);
    Ok(tool.with_output_problem(output_problem))
}

fn apply(changes: &ToolOverride, definition: &mut ToolDefinition) {
    fn set<T: Clone>(field: &mut T, change: &Option<T>) {
        if let Some(value) = change {
            field.clone_from(value);
        }
    }
    let metadata = &mut definition.metadata;
    set(&mut metadata.name, &changes.rename);
    set(&mut metadata.description, &changes.description);
    set(&mut metadata.cost_per_use, &changes.cost_per_use);
    set(&mut metadata.rate_limit, &changes.rate_limit);
    set(&mut metadata.timeout_seconds, &changes.timeout_seconds);
    set(&mut metadata.memory_limit_mb, &changes.memory_limit_mb);
    set(&mut metadata.max_text_tokens, &changes.max_text_tokens);
    set(&mut metadata.max_output_bytes, &changes.max_output_bytes);
    set(&mut metadata.output_check, &changes.output_schema);
    set(&mut metadata.roles, &changes.roles);
    set(&mut metadata.labels, &changes.labels);
    set(&mut metadata.dangerous, &changes.dangerous);
    set(&mut metadata.requires_auth, &changes.requires_auth);
    set(&mut metadata.audit_arguments, &changes.audit_arguments);
    set(&mut metadata.approval, &changes.approval);
    set(&mut metadata.approvals_needed, &changes.approvals_needed);
    set(&mut metadata.is_concurrency_global, &changes.max_concurrent_global);
    if changes.max_concurrent.is_some() {
        metadata.max_concurrent = changes.max_concurrent;
    }
}
