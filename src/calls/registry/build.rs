//! How a snapshot is built: the configuration is applied to the definitions of the sources, and names, schemas and the lock
//! are checked.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::known::Known;
use super::lock::{self, Lock, LockViolation, Pin, Quarantined};
use super::search::EmbeddingTable;
use super::{RegistryError, SearchIndex, Searchable, Snapshot};
use crate::guards::{GuardRules, texts_of_value};
use crate::tool::{
    EnumeratedValues, InputSchema, InvalidSchema, Metadata, OutputSchema, Shape, SourceTools, Tool, ToolDefinition,
    ToolName, Unavailable,
};
use crate::transform::TransformRules;
use sekisho_config::{Labels, ToolOverride, ToolsConfig};
use sekisho_core::call::CallKind;
use sekisho_core::error::Detail;
use sekisho_core::guard_finding::{GuardAction, GuardFinding};
use sekisho_observe::metrics::Metrics;

impl Snapshot {
    /// Applies the configuration to the definitions of the sources, and checks names and schemas.
    /// Errors: all errors found, not only the first.
    pub fn build(
        definitions: Vec<ToolDefinition>,
        unavailable: Vec<Unavailable>,
        config: &ToolsConfig,
        metrics: &Metrics,
    ) -> Result<Self, Vec<RegistryError>> {
        let offer = SourceTools { tools: definitions, unavailable };
        Self::build_with(offer, SourceTools::default(), config, metrics, None, &Self::default())
    }

    /// Like [`build`](Self::build), with tools discovered at run time (`found`). If one of the discovered tools cannot
    /// be registered, it becomes unavailable with the reason, and the others are registered; if only its output schema
    /// cannot be used, it is registered without one. Unchanged tools are reused from the snapshot before. With a `lock`, external
    /// tools that differ from it or are missing in it are quarantined.
    /// Errors: all errors of `fixed`.
    pub fn build_with<'a>(
        fixed: SourceTools,
        found: SourceTools,
        config: &ToolsConfig,
        metrics: &Metrics,
        lock: Option<Arc<Lock>>,
        known: impl Into<Known<'a>>,
    ) -> Result<Self, Vec<RegistryError>> {
        let Known { before, values } = known.into();
        let guards = GuardRules::of(&config.guards, &before.guards).map_err(|error| vec![error.into()])?;
        let transforms =
            TransformRules::compile(&config.transform, &guards.rules()).map_err(|error| vec![error.into()])?;
        let shapes = shapes(config, values)?;
        let are_rules_the_same = Arc::ptr_eq(&guards, &before.guards)
            && config.transform == before.transform
            && config.coerce_arguments == before.coerces_arguments;
        let mut building = Building {
            config,
            are_rules_the_same,
            shapes,
            values,
            transforms,
            guards,
            metrics,
            lock,
            before,
            by_name: HashMap::new(),
            operations: HashMap::new(),
            quarantined: BTreeMap::new(),
            overridden: BTreeSet::new(),
            withheld: Vec::new(),
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
            let Metadata { source, roles, owner, on_request, .. } = definition.metadata.clone();
            if let Err(error) = building.add(definition) {
                let missing = Unavailable::new(&source, tool, error.to_string());
                unavailable.push(missing.for_roles(&roles).of_owner(&owner).on_request(on_request));
            }
        }
        let Building { by_name, operations, quarantined, overridden, withheld, lock, transforms, guards, .. } =
            building;
        unavailable.extend(withheld);
        let mut tools: Vec<_> = by_name.values().cloned().collect();
        tools.sort_by(|a, b| a.name().cmp(b.name()));
        let embeddings = EmbeddingTable::of(config, &before.embeddings);
        let index = SearchIndex::build(tools.iter().map(|tool| Searchable::from(&**tool)), embeddings.embeddings());
        let changes_results = transforms.change_results();
        Ok(Self {
            tools,
            by_name,
            operations,
            index,
            embeddings,
            unavailable,
            quarantined,
            overridden,
            lock,
            changes_results,
            transform: config.transform.clone(),
            coerces_arguments: config.coerce_arguments,
            guards,
        })
    }
}

/// A snapshot that is being built.
pub(super) struct Building<'a> {
    config: &'a ToolsConfig,
    /// Whether tools of the snapshot before were compiled with the same rules, and may be reused.
    are_rules_the_same: bool,
    /// By the name that the source gives a tool.
    shapes: BTreeMap<String, Arc<Shape>>,
    values: &'a EnumeratedValues,
    transforms: TransformRules,
    guards: Arc<GuardRules>,
    metrics: &'a Metrics,
    lock: Option<Arc<Lock>>,
    pub(super) before: &'a Snapshot,
    by_name: HashMap<String, Arc<Tool>>,
    pub(super) operations: HashMap<String, Vec<Arc<Tool>>>,
    quarantined: BTreeMap<String, Quarantined>,
    overridden: BTreeSet<String>,
    /// Tools that guards block.
    withheld: Vec<Unavailable>,
    /// Whether the definitions come from sources that were discovered at run time.
    is_discovering: bool,
}

impl Building<'_> {
    fn add(&mut self, mut definition: ToolDefinition) -> Result<(), RegistryError> {
        definition.metadata.sandboxed = definition.executor.sandboxed();
        let changes = self.config.overrides.get(&definition.metadata.name);
        if changes.is_some() {
            self.overridden.insert(definition.metadata.name.clone());
        }
        if changes.is_some_and(|changes| changes.hidden == Some(true)) {
            return Ok(());
        }
        let shape = self.shape_of(&definition);
        if definition.metadata.kind != CallKind::Tool {
            if shape.is_some() {
                return Err(not_a_tool(&definition.metadata));
            }
            if let Some(changes) = changes {
                apply(changes, &mut definition);
            }
            return self.add_operation(definition);
        }
        let violation = self.lock_violation(&definition);
        let approved =
            self.enforced_lock(&definition).and_then(|lock| lock.get(offered_name(self.config, &definition)));
        let approved = approved.map(|pin| Arc::from(pin.hash()));
        let own_description = changes.filter(|changes| changes.description.is_some());
        let own_description = own_description.map(|_| definition.metadata.description.clone());
        if let Some(changes) = changes {
            apply(changes, &mut definition);
        }
        self.check_free(&definition.metadata)?;
        if let Some(violation) = violation {
            let described = changes.is_some_and(|changes| changes.description.is_some());
            self.quarantine(definition, violation, described);
            return Ok(());
        }
        if let Some(problem) = self.blocked_by_guard(&definition) {
            let Metadata { name, source, roles, owner, on_request, .. } = &definition.metadata;
            let missing = Unavailable::new(source, name.clone(), problem);
            self.withheld.push(missing.for_roles(roles).of_owner(owner).on_request(on_request.clone()));
            return Ok(());
        }
        let known = self.before.get(&definition.metadata.name);
        let known = known.filter(|tool| tool.approved == approved);
        let tool = self.known_or_compiled(known, definition, own_description, approved, shape)?;
        self.by_name.insert(tool.name().to_owned(), tool);
        Ok(())
    }

    /// The shape of a tool. Values that were read for a tool of another owner, which had the name before, do not count.
    fn shape_of(&self, definition: &ToolDefinition) -> Option<Arc<Shape>> {
        let Metadata { name, owner, .. } = &definition.metadata;
        let own = self.shapes.get(name);
        let is_of_other = self.values.get(name).is_some_and(|known| known.owner != *owner);
        match own.filter(|_| is_of_other) {
            Some(own) => Shape::of(definition, Some(&Arc::new(own.without_values()))),
            None => Shape::of(definition, own),
        }
    }

    /// `own_description`: the source's description, if the configuration describes the tool otherwise. `approved`: the hash of
    /// its pin.
    pub(super) fn known_or_compiled(
        &self,
        known: Option<&Arc<Tool>>,
        definition: ToolDefinition,
        own_description: Option<String>,
        approved: Option<Arc<str>>,
        shape: Option<Arc<Shape>>,
    ) -> Result<Arc<Tool>, RegistryError> {
        let known = known.filter(|tool| self.are_rules_the_same && tool.shape() == shape.as_ref());
        Ok(match known.filter(|tool| tool.is_made_of(&definition.metadata, &definition.executor)) {
            Some(tool) => Arc::clone(tool),
            None => {
                let tool = compile(definition, self.config.coerce_arguments, self.is_discovering, self.metrics)?;
                let transforms = self.transforms.for_tool(tool.name());
                let guards = self.guards.for_tool(tool.name(), &tool.metadata.source);
                let tool = tool.with_transforms(transforms).with_guards(guards).with_own_description(own_description);
                let (name, source_name) = (tool.name().to_owned(), tool.metadata.source.clone());
                let shaped = tool.with_approved(approved).with_shape(shape);
                Arc::new(shaped.map_err(|problem| RegistryError::InvalidSchema { name, source_name, problem })?)
            }
        })
    }

    /// Why a tool is not offered in whose texts a guard finds something that it blocks. One that is labelled is flagged all the same.
    fn blocked_by_guard(&self, definition: &ToolDefinition) -> Option<String> {
        let Metadata { name, source, description, mcp_annotations, .. } = &definition.metadata;
        if !self.guards.look_at_descriptions() {
            return None;
        }
        let mut texts = vec![Cow::Borrowed(description.as_str())];
        texts.extend(texts_of_value(definition.parameters.described()));
        texts.extend(definition.output_schema.iter().flat_map(texts_of_value));
        texts.extend(mcp_annotations.values().flat_map(texts_of_value));
        let findings = self.guards.of_description(name, source, &texts);
        let GuardFinding { rule, found, .. } =
            findings.into_iter().find(|finding| finding.action == GuardAction::Block)?;
        Some(format!("the rule `{rule}` of tools.guards found {found} in its description"))
    }

    fn check_free(&self, metadata: &Metadata) -> Result<(), RegistryError> {
        let name = &metadata.name;
        let offered = self.by_name.get(name).map(|tool| &tool.metadata);
        match offered.or_else(|| Some(&self.quarantined.get(name)?.metadata)) {
            None => Ok(()),
            // A caller who sees one of the two learns nothing of another tenant's tools.
            Some(first) if first.owner != metadata.owner => {
                Err(RegistryError::NameInUse { name: name.clone(), source_name: metadata.source.clone() })
            }
            Some(first) => Err(RegistryError::NameClash {
                name: name.clone(),
                first: first.source.clone(),
                second: metadata.source.clone(),
            }),
        }
    }

    /// The lock, if it holds this tool to its approved form.
    fn enforced_lock(&self, definition: &ToolDefinition) -> Option<&Arc<Lock>> {
        self.lock.as_ref().filter(|_| !lock::is_ours(&definition.metadata.source))
    }

    /// The difference between a tool and the lock. A tool that passed the same lock before is not checked again.
    fn lock_violation(&self, definition: &ToolDefinition) -> Option<LockViolation> {
        let lock = self.enforced_lock(definition)?;
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

/// Errors: each expression that is no JMESPath.
fn shapes(config: &ToolsConfig, values: &EnumeratedValues) -> Result<BTreeMap<String, Arc<Shape>>, Vec<RegistryError>> {
    let (mut shapes, mut errors) = (BTreeMap::new(), Vec::new());
    for (name, changes) in &config.overrides {
        match Shape::compile(name, changes, values.get(name).map(|known| &known.by_argument)) {
            Ok(shape) => shapes.extend(shape.map(|shape| (name.clone(), Arc::new(shape)))),
            Err(error) => errors.push(RegistryError::from(error)),
        }
    }
    if errors.is_empty() { Ok(shapes) } else { Err(errors) }
}

fn not_a_tool(metadata: &Metadata) -> RegistryError {
    let problem = "its arguments and results cannot be changed by `tools.overrides`: it is no tool".to_owned();
    RegistryError::InvalidSchema {
        name: metadata.name.clone(),
        source_name: metadata.source.clone(),
        problem: InvalidSchema(problem),
    }
}

/// The name under which a tool is offered.
pub(super) fn offered_name<'a>(config: &'a ToolsConfig, definition: &'a ToolDefinition) -> &'a str {
    let name = &definition.metadata.name;
    config.overrides.get(name).and_then(|changes| changes.rename.as_ref()).unwrap_or(name)
}

fn flags(definition: &ToolDefinition) -> Vec<Detail> {
    let output = definition.output_schema.as_ref().map(|schema| ("output_schema", schema));
    let parts: Vec<_> = [("parameters", definition.parameters.described())].into_iter().chain(output).collect();
    lock::scan_for_injection(&definition.metadata.description, &parts, &definition.metadata.mcp_annotations)
}

/// `may_drop_output`: whether the tool is registered without its output schema if that schema cannot be used.
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
    if let Some(description) = &changes.description {
        metadata.description.clone_from(description);
        metadata.description_problem = None;
    }
    set(&mut metadata.cost_per_use, &changes.cost_per_use);
    set(&mut metadata.rate_limit, &changes.rate_limit);
    set(&mut metadata.timeout_seconds, &changes.timeout_seconds);
    set(&mut metadata.memory_limit_mb, &changes.memory_limit_mb);
    set(&mut metadata.max_text_tokens, &changes.max_text_tokens);
    set(&mut metadata.max_output_bytes, &changes.max_output_bytes);
    set(&mut metadata.output_check, &changes.output_schema);
    set(&mut metadata.roles, &changes.roles);
    if let Some(Labels(labels)) = &changes.labels {
        set(&mut metadata.labels, &labels.names);
        metadata.flow.set_labels(labels);
    }
    if changes.sink.is_some() {
        metadata.flow.sink.clone_from(&changes.sink);
    }
    set(&mut metadata.dangerous, &changes.dangerous);
    set(&mut metadata.requires_auth, &changes.requires_auth);
    set(&mut metadata.audit_arguments, &changes.audit_arguments);
    set(&mut metadata.approval, &changes.approval);
    set(&mut metadata.approvals_needed, &changes.approvals_needed);
    if changes.found_by.is_some() {
        metadata.found_by.clone_from(&changes.found_by);
    }
    set(&mut metadata.is_concurrency_global, &changes.max_concurrent_global);
    if changes.max_concurrent.is_some() {
        metadata.max_concurrent = changes.max_concurrent;
    }
}
