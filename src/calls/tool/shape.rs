//! The part of `tools.overrides` that changes arguments and results: fixed values, defaults, values that other tools have, and projections.
//!
//! A tool with changed arguments has two schemas of its arguments: the offered one, which lacks fixed ones, and the one of its source. A
//! call is validated against the first, completed, and validated against the second. So every later stage has the complete arguments.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{InputSchema, InvalidSchema, OutputSchema, Tool, ToolDefinition, ValidArguments, enumeration};
use crate::projection::{InvalidProjection, Projection};
use crate::transform::json_of_text;
use sekisho_config::{Summary, ToolOverride};
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json::LARGE_NUMBERS;
use sekisho_core::record::shortened;

/// The share of a call's memory that a projection may walk over and build.
const MEMORY_SHARE: usize = 4;

/// The keywords of an offered schema whose root is changed. The schema of the source decides about all others.
const KEPT: [&str; 8] =
    ["$schema", "$id", "$defs", "definitions", "type", "properties", "patternProperties", "required"];

/// The changes of one override; never empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape {
    /// The name in `tools.overrides`.
    tool: String,
    fix: Arguments,
    defaults: Arguments,
    /// The values of arguments that other tools have; none while they are not known.
    enumerated: BTreeMap<String, Vec<Value>>,
    projection: Option<Projection>,
    summary: Option<Summary>,
}

/// The shape of a registered tool, with the schemas of its source that it replaces.
#[derive(Debug)]
pub(super) struct Shaped {
    shape: Arc<Shape>,
    input: Option<InputSchema>,
    output: Option<OutputSchema>,
}

impl Shape {
    /// `None` for an override that changes neither arguments nor results. `known`: the values that were read for its arguments.
    /// Errors: an expression that is no JMESPath.
    pub fn compile(
        tool: &str,
        changes: &ToolOverride,
        known: Option<&BTreeMap<String, Vec<Value>>>,
    ) -> Result<Option<Self>, InvalidProjection> {
        let of = |values: &BTreeMap<String, Value>| -> Arguments { values.clone().into_iter().collect() };
        let projection = changes
            .project
            .as_deref()
            .map(|project| Projection::compile(&format!("tools.overrides.{tool}.project"), project));
        let projection = projection.transpose()?;
        let (fix, defaults) = (of(&changes.fix), of(&changes.defaults));
        let mut enumerated = BTreeMap::new();
        for (argument, from) in &changes.enumerate {
            enumeration::path(tool, argument, from)?;
            let values = known.and_then(|known| known.get(argument)).cloned().unwrap_or_default();
            enumerated.insert(argument.clone(), values);
        }
        let summary = changes.summarise;
        let changes_arguments = !(fix.is_empty() && defaults.is_empty() && enumerated.is_empty());
        let is_shape = changes_arguments || projection.is_some() || summary.is_some();
        Ok(is_shape.then(|| Self { tool: tool.to_owned(), fix, defaults, enumerated, projection, summary }))
    }

    /// The shape of a tool by its override, and by the overlay of its server where that says nothing and fits the tool's schema.
    pub(crate) fn of(definition: &ToolDefinition, own: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let Some(prepared) = &definition.metadata.prepared else { return own.cloned() };
        let tool = &definition.metadata.name;
        let mut shape = own.map_or_else(|| Self { tool: tool.clone(), ..Self::default() }, |own| Self::clone(own));
        for (name, value) in &prepared.defaults {
            if shape.value_of(name).is_none() {
                shape.defaults.insert(name.clone(), value.clone());
            }
        }
        if shape.projection.is_none()
            && let Some(project) = &prepared.project
        {
            shape.projection = Projection::compile(&format!("the overlay of {tool}"), project).ok();
        }
        let document = definition.parameters.document();
        let fits = shape.offered(document).is_ok() && shape.check_values(document).is_ok();
        if fits { Some(Arc::new(shape)) } else { own.cloned() }
    }

    /// The same, while the values of its arguments are not known.
    pub(crate) fn without_values(&self) -> Self {
        let enumerated = self.enumerated.keys().map(|argument| (argument.clone(), Vec::new())).collect();
        Self { enumerated, ..self.clone() }
    }

    /// The part of a result that is answered; `None` where all of it is: without a projection, and of a text that is no JSON.
    /// `memory`: maximum bytes that the expression may walk over and build.
    /// Errors: `invalid_output`, with the tool and the expression.
    pub fn selected(&self, result: &Value, memory: usize, max_bytes: usize) -> Result<Option<Value>, CallError> {
        let Some(projection) = &self.projection else { return Ok(None) };
        let parsed = match result {
            Value::String(text) => {
                let Some(parsed) = json_of_text(text) else { return Ok(None) };
                Some(parsed)
            }
            _ => None,
        };
        let selected = projection.of(parsed.as_ref().unwrap_or(result), memory, max_bytes);
        selected.map(Some).map_err(|error| {
            let (tool, expression, problem) = (&self.tool, shortened(projection.expression()), error.message());
            let message = format!(
                "`project` of the override of {tool:?} ({expression}) fails on the result: {problem}; correct it, with the result as a \
                 case for `sekisho tools test`"
            );
            CallError::new(ErrorCode::InvalidOutput, message)
        })
    }

    /// The schema that is offered in place of the source's; `None` if it is the same.
    fn offered(&self, document: &Value) -> Result<Option<Value>, InvalidSchema> {
        if self.fix.is_empty() && self.defaults.is_empty() && self.enumerated.is_empty() {
            return Ok(None);
        }
        let mut root = document.as_object().cloned().unwrap_or_default();
        // Another name of a fixed argument, which only the source knows, must not come beside it.
        let closed = (!self.fix.is_empty()).then_some(Value::Bool(false));
        let additional = closed.or_else(|| root.get("additionalProperties").cloned());
        root.retain(|keyword, _| KEPT.contains(&keyword.as_str()));
        root.extend(additional.map(|schema| ("additionalProperties".to_owned(), schema)));
        let mut none = Map::new();
        let properties = root.get_mut("properties").and_then(Value::as_object_mut).unwrap_or(&mut none);
        for (name, value) in &self.defaults {
            let property = properties.get_mut(name).ok_or_else(|| self.unknown("defaults", name))?;
            if let Value::Object(schema) = property {
                schema.insert("default".to_owned(), value.clone());
            }
        }
        for (name, values) in &self.enumerated {
            let property = properties.get_mut(name).ok_or_else(|| self.unknown("enumerate", name))?;
            if let Value::Object(schema) = property
                && !values.is_empty()
            {
                enumeration::offer(schema, values);
            }
        }
        for name in self.fix.keys() {
            properties.shift_remove(name).ok_or_else(|| self.unknown("fix", name))?;
        }
        if let Some(Value::Array(required)) = root.get_mut("required") {
            let is_given = |name: &Value| name.as_str().is_some_and(|name| self.value_of(name).is_some());
            required.retain(|name| !is_given(name));
        }
        Ok(Some(Value::Object(root)))
    }

    fn unknown(&self, key: &str, name: &str) -> InvalidSchema {
        InvalidSchema(format!("`tools.overrides.{}.{key}` names {name:?}, which is no argument of the tool", self.tool))
    }

    fn value_of(&self, argument: &str) -> Option<&Value> {
        self.fix.get(argument).or_else(|| self.defaults.get(argument))
    }

    /// Checks each value against the schema of its argument.
    fn check_values(&self, document: &Value) -> Result<(), InvalidSchema> {
        let kept = ["$schema", "$id", "$defs", "definitions", "properties"];
        let members = document.as_object().into_iter().flatten();
        let members = members.filter(|(keyword, _)| kept.contains(&keyword.as_str()));
        let of_values: Map<_, _> = members.map(|(keyword, member)| (keyword.clone(), member.clone())).collect();
        let schema = InputSchema::compile(&self.tool, Value::Object(of_values), true)?;
        let mut values = self.defaults.clone();
        values.extend(self.fix.clone());
        let wrong = |said: &str| {
            InvalidSchema(format!(
                "values of `fix` or `defaults` in `tools.overrides.{}` do not match it: {said}",
                self.tool
            ))
        };
        let valid = schema.validate(values).map_err(|error| wrong(error.message()))?;
        match valid.coercions().first() {
            Some(coercion) => Err(wrong(&format!("{} has another type", coercion.path))),
            None => Ok(()),
        }
    }

    /// Takes the fixed values out of arguments, which have them where a completed call is validated again.
    /// Errors: `invalid_arguments` for another value of a fixed argument.
    fn remove_fixed(&self, tool: &str, arguments: &mut Arguments) -> Result<(), CallError> {
        for (name, value) in &self.fix {
            if arguments.shift_remove(name).is_some_and(|given| given != *value) {
                let message = format!("{tool} takes no argument `{name}`: its value is fixed; leave it out");
                return Err(CallError::new(ErrorCode::InvalidArguments, message));
            }
        }
        Ok(())
    }

    /// Sets the fixed values, and defaults for missing arguments. Answers whether there was one to set.
    pub(super) fn complete(&self, arguments: &mut Arguments) -> bool {
        let missing: Vec<_> = self.defaults.iter().filter(|(name, _)| !arguments.contains_key(*name)).collect();
        let is_changed = !missing.is_empty() || !self.fix.is_empty();
        let values = missing.into_iter().chain(&self.fix).map(|(name, value)| (name.clone(), value.clone()));
        arguments.extend(values);
        is_changed
    }
}

impl Tool {
    /// The same tool in a shape.
    /// Errors: fixed values or defaults that its source's schema does not have or does not allow.
    pub(crate) fn with_shape(self, shape: Option<Arc<Shape>>) -> Result<Self, InvalidSchema> {
        let Some(shape) = shape else { return Ok(self) };
        let (mut tool, mut shaped) = (self, Shaped { shape, input: None, output: None });
        if let Some(document) = shaped.shape.offered(tool.input.document())? {
            shaped.shape.check_values(tool.input.document())?;
            let offered = tool.input.offered_as(document)?;
            shaped.input = Some(std::mem::replace(&mut tool.input, offered));
        }
        if shaped.shape.projection.is_some() {
            shaped.output = tool.output.take();
        }
        tool.shaped = Some(Box::new(shaped));
        Ok(tool)
    }

    pub(crate) fn shape(&self) -> Option<&Arc<Shape>> {
        self.shaped.as_ref().map(|shaped| &shaped.shape)
    }

    /// The schema of the arguments that are sent: of its source.
    pub(crate) fn complete_input(&self) -> &InputSchema {
        self.shaped.as_ref().and_then(|shaped| shaped.input.as_ref()).unwrap_or(&self.input)
    }

    /// The schema of its output before the projection.
    pub(crate) fn source_output(&self) -> Option<&OutputSchema> {
        self.shaped.as_ref().and_then(|shaped| shaped.output.as_ref()).or(self.output.as_ref())
    }

    /// Whether a part of its results is answered.
    pub(crate) fn is_projected(&self) -> bool {
        self.shape().is_some_and(|shape| shape.projection.is_some())
    }

    /// The form in which a model gets its results, however small they are.
    pub(crate) fn summary(&self) -> Option<Summary> {
        self.shape()?.summary
    }

    /// The arguments of a call, valid and complete.
    pub(super) fn completed(&self, mut arguments: Arguments) -> Result<ValidArguments, CallError> {
        let Some((shape, input)) =
            self.shaped.as_ref().and_then(|shaped| Some((&shaped.shape, shaped.input.as_ref()?)))
        else {
            return self.input.validate(arguments);
        };
        shape.remove_fixed(self.name(), &mut arguments)?;
        input.complete(self.input.validate(arguments)?, shape)
    }

    /// The output with its projection in place of all its forms.
    /// Errors: as [`Shape::selected`].
    pub(crate) fn projected(&self, output: ToolOutput) -> Result<ToolOutput, CallError> {
        let Some(shape) = self.shape() else { return Ok(output) };
        let result = self.source_output().map_or(&output.value, |schema| schema.value(&output.value));
        let memory = self.memory_limit_bytes() / MEMORY_SHARE;
        let Some(value) = shape.selected(result, memory, self.max_stored_bytes())? else { return Ok(output) };
        let mut metadata = output.metadata;
        // Its paths are of the result before.
        metadata.shift_remove(LARGE_NUMBERS);
        Ok(ToolOutput { value, metadata, ..ToolOutput::default() })
    }
}
