//! What fits a tool: the compiled schemas of its arguments and its output (JSON Schema 2020-12).
//!
//! Schemas come from outside too, so nothing here fetches what a `$ref` names, a schema is bounded
//! before it is compiled (`bounds`), and a pattern that backtracks for ever fails.

mod bounds;
mod coerce;
mod definitions;
#[cfg(test)]
mod tests;
mod violation;

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};
use thiserror::Error;

use self::bounds::Bounds;
use self::violation::SchemaViolation;
use crate::core::call::Arguments;
use crate::core::error::{CallError, Detail, ErrorCode};
use crate::core::json;

pub use self::coerce::Coercion;
pub use self::definitions::{Fit, SharedSchema};

/// Steps a pattern with look-around or back-references may take back on one text.
const BACKTRACK_LIMIT: usize = 20_000;

/// Bytes one compiled pattern may take.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidSchema(pub String);

/// The schema of a tool's arguments as its source describes it.
#[derive(Debug, Clone)]
pub enum Parameters {
    /// Not yet looked at.
    Described(Value),
    /// By a source that had to know whether it can be: once is enough.
    Compiled(Arc<ArgumentSchema>),
}

/// A compiled schema of arguments.
#[derive(Debug)]
pub struct ArgumentSchema {
    schema: Schema,
    hash: String,
}

/// What a tool's arguments must fit, and what may be mended of them.
#[derive(Debug)]
pub struct InputSchema {
    schema: Arc<ArgumentSchema>,
    tool: String,
    coerce: bool,
}

/// The schema of a tool's output, compiled when the first output is checked.
#[derive(Debug)]
pub struct OutputSchema {
    listed: Value,
    whole: Option<Arc<SharedSchema>>,
    compiled: OnceLock<Option<Schema>>,
}

/// Most bytes of an output schema that shares its definitions, as it is shown alone; the bounds of every
/// other schema.
const MAX_SHOWN: usize = 1 << 20;

/// Most bytes of it as it is checked: what is compiled stays in memory, for each tool that was called.
const MAX_CHECKED: usize = 64 << 10;

/// Arguments that fit the schema of the tool they are meant for. Made by [`InputSchema::validate`] alone.
#[derive(Debug)]
pub struct ValidArguments {
    arguments: Arguments,
    coercions: Vec<Coercion>,
}

impl Parameters {
    pub fn document(&self) -> &Value {
        match self {
            Self::Described(document) => document,
            Self::Compiled(compiled) => compiled.document(),
        }
    }

    fn compile(self) -> Result<Arc<ArgumentSchema>, InvalidSchema> {
        match self {
            Self::Described(document) => ArgumentSchema::compile(document).map(Arc::new),
            Self::Compiled(compiled) => Ok(compiled),
        }
    }
}

impl Parameters {
    /// Compiled where that can be done. Whoever keeps them beside the registry then shares them with it; what is
    /// wrong with them is the registry's to say.
    pub fn shared(document: Value) -> Self {
        match ArgumentSchema::compile(document.clone()) {
            Ok(compiled) => Self::Compiled(Arc::new(compiled)),
            Err(_) => Self::Described(document),
        }
    }
}

impl From<Value> for Parameters {
    fn from(document: Value) -> Self {
        Self::Described(document)
    }
}

impl ArgumentSchema {
    /// A root without `type` becomes `type: object`.
    ///
    /// # Errors
    /// [`InvalidSchema`]: not a JSON Schema, its root admits no object, it points outside itself, or it
    /// is too large to be applied cheaply.
    pub fn compile(mut document: Value) -> Result<Self, InvalidSchema> {
        let Value::Object(root) = &mut document else {
            return Err(InvalidSchema("the schema of arguments must be an object with `type: object`".into()));
        };
        match root.get("type") {
            None => {
                root.insert("type".into(), "object".into());
            }
            Some(Value::String(kind)) if kind == "object" => {}
            Some(other) => {
                let message =
                    format!("the schema of arguments must have `type: object`, not {}", violation::brief(other));
                return Err(InvalidSchema(message));
            }
        }
        let hash = hex(json::digest(root));
        Ok(Self { schema: Schema::compile(document)?, hash })
    }

    pub fn document(&self) -> &Value {
        &self.schema.document
    }
}

impl InputSchema {
    /// `tool` is the tool's own name, for unwrapping arguments nested under it; `coerce` allows
    /// changes of form ([`Coercion`]).
    ///
    /// # Errors
    /// As [`ArgumentSchema::compile`].
    pub fn compile(tool: &str, parameters: impl Into<Parameters>, coerce: bool) -> Result<Self, InvalidSchema> {
        Ok(Self { schema: parameters.into().compile()?, tool: tool.to_owned(), coerce })
    }

    pub fn document(&self) -> &Value {
        self.schema.document()
    }

    /// SHA-256 (hex) of the canonical document.
    pub fn hash(&self) -> &str {
        &self.schema.hash
    }

    /// Checks the arguments and, where that is switched on, mends what is wrong only in form.
    ///
    /// # Errors
    /// `invalid_arguments`, with at most [`violation::MAX_TOLD`] details: path, rule, and what to do.
    pub fn validate(&self, arguments: Arguments) -> Result<ValidArguments, CallError> {
        let arguments = Value::Object(arguments);
        let Schema { document, bounds, .. } = &self.schema.schema;
        let validator = self.schema.schema.validator();
        let fits = validator.is_valid(&arguments);
        if fits && !(self.coerce && bounds.asks_integers && coerce::holds_whole_float(&arguments)) {
            return Ok(ValidArguments::new(arguments, Vec::new()));
        }
        let mended = if self.coerce { coerce::coerce(document, &self.tool, &arguments, fits) } else { None };
        match mended {
            Some((mended, coercions)) if validator.is_valid(&mended) => Ok(ValidArguments::new(mended, coercions)),
            _ if fits => Ok(ValidArguments::new(arguments, Vec::new())),
            Some((mended, _)) => Err(self.refusal(&mended)),
            None => Err(self.refusal(&arguments)),
        }
    }

    #[cold]
    fn refusal(&self, arguments: &Value) -> CallError {
        let violations = self.schema.schema.violations(arguments, "the arguments");
        // The details name the values that do not fit; the message, which is logged, does not.
        let first = violations.first().map_or("they do not fit its schema", |misfit| misfit.demand.as_str());
        let mut message = format!("the arguments do not fit {}: {first}", self.tool);
        if violations.len() > 1 {
            let _ = write!(message, " (and {} more in `details`)", violations.len() - 1);
        }
        CallError::new(ErrorCode::InvalidArguments, message)
            .with_details(violations.into_iter().map(SchemaViolation::into_detail).collect())
    }
}

impl OutputSchema {
    /// # Errors
    /// As [`ArgumentSchema::compile`], but the root may admit any type.
    pub fn compile(document: Value) -> Result<Self, InvalidSchema> {
        let schema = Schema::compile(document)?;
        Ok(Self { listed: schema.document.clone(), whole: None, compiled: OnceLock::from(Some(schema)) })
    }

    /// One of which lists show only a part, `listed`. The whole is put together and compiled once an output
    /// is to be checked: a document's tools together reach its definitions many times over.
    pub(crate) fn shared(listed: Value, whole: Arc<SharedSchema>) -> Self {
        Self { listed, whole: Some(whole), compiled: OnceLock::new() }
    }

    /// As lists show it.
    pub fn document(&self) -> &Value {
        &self.listed
    }

    /// All of it.
    pub fn whole(&self) -> Value {
        self.whole.as_ref().map_or_else(|| self.listed.clone(), |whole| whole.alone(MAX_SHOWN).0)
    }

    /// Where the value does not fit; empty when it does, or where the schema cannot be applied.
    pub fn violations(&self, value: &Value) -> Vec<Detail> {
        let Some(schema) = self.compiled.get_or_init(|| self.compile_whole()) else { return Vec::new() };
        if schema.validator().is_valid(value) {
            return Vec::new();
        }
        schema.violations(value, "the output").into_iter().map(SchemaViolation::into_detail).collect()
    }

    fn compile_whole(&self) -> Option<Schema> {
        let (document, _) = self.whole.as_ref()?.alone(MAX_CHECKED);
        let compiled = Schema::compile(document);
        compiled.inspect_err(|problem| tracing::warn!(%problem, "a tool's outputs are not checked")).ok()
    }
}

impl ValidArguments {
    fn new(arguments: Value, coercions: Vec<Coercion>) -> Self {
        let arguments = match arguments {
            Value::Object(members) => members,
            _ => Arguments::new(),
        };
        Self { arguments, coercions }
    }

    pub fn as_map(&self) -> &Arguments {
        &self.arguments
    }

    /// What was changed so that the arguments fit.
    pub fn coercions(&self) -> &[Coercion] {
        &self.coercions
    }
}

#[derive(Debug)]
struct Schema {
    document: Value,
    /// Made for the first value that is checked: it takes more memory than the document, and most of thousands of
    /// tools are never called.
    validator: OnceLock<Validator>,
    bounds: Bounds,
}

impl Schema {
    fn compile(document: Value) -> Result<Self, InvalidSchema> {
        let bounds = bounds::check(&document)?;
        build(&document).map_err(|error| {
            let problem = violation::shorten(&error.to_string(), 300);
            InvalidSchema(format!("its schema is not valid at {:?}: {problem}", error.instance_path().as_str()))
        })?;
        Ok(Self { document, validator: OnceLock::new(), bounds })
    }

    #[expect(clippy::expect_used, reason = "it was made of the same document once before")]
    fn validator(&self) -> &Validator {
        self.validator.get_or_init(|| build(&self.document).expect("a schema that was compiled"))
    }

    /// What does not fit; never empty for a value that is not valid.
    fn violations(&self, value: &Value, subject: &'static str) -> Vec<SchemaViolation> {
        let effort = violation::effort(value, self.bounds.fan_out);
        violation::explain(self.validator(), &self.document, value, subject, effort)
    }
}

/// Whether a text can stand as a schema's `pattern`: another language's may be unknown here, and one that
/// counts to thousands is too large to be kept for every tool.
pub fn is_pattern(text: &str) -> bool {
    build(&json!({"pattern": text})).is_ok()
}

fn build(document: &Value) -> Result<Validator, ValidationError<'_>> {
    let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT).size_limit(PATTERN_SIZE_LIMIT);
    jsonschema::options()
        .offline()
        // Annotations, as in the default dialect of 2020-12; older dialects would assert them.
        .should_validate_formats(false)
        .with_pattern_options(patterns)
        .build(document)
}

fn hex(bytes: [u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
