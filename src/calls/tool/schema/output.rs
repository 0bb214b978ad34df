//! The schema of a tool's output.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::definitions::SharedSchema;
use super::violation::SchemaViolation;
use super::{InvalidSchema, Schema, lowering};
use sekisho_core::error::Detail;

/// Maximum size of an output schema with shared definitions when it is shown by itself, in bytes; the limit of every
/// other schema.
const MAX_SHOWN: usize = 1 << 20;

/// Maximum size of such a schema for validation, in bytes; smaller, because the compiled schema of every called
/// tool stays in memory.
const MAX_CHECKED: usize = 64 << 10;

/// The schema of a tool's output, compiled when the first output is checked.
#[derive(Debug)]
pub struct OutputSchema {
    listed: Arc<Value>,
    whole: Option<Arc<SharedSchema>>,
    compiled: OnceLock<Option<Schema>>,
}

impl OutputSchema {
    /// Errors: as [`ArgumentSchema::compile`](super::ArgumentSchema::compile), but the root may admit any type.
    pub fn compile(mut document: Value) -> Result<Self, InvalidSchema> {
        lowering::lower(&mut document);
        let schema = Schema::compile(document)?;
        Ok(Self { listed: Arc::clone(&schema.document), whole: None, compiled: OnceLock::from(Some(schema)) })
    }

    /// A schema with shared definitions, of which listings show only the part `listed`. It is assembled and compiled
    /// when the first output is checked, because many tools of a document use the same definitions.
    pub fn shared(listed: Value, whole: Arc<SharedSchema>) -> Self {
        Self { listed: Arc::new(listed), whole: Some(whole), compiled: OnceLock::new() }
    }

    /// The schema as shown in listings.
    pub fn document(&self) -> &Value {
        &self.listed
    }

    /// The whole schema.
    pub fn whole(&self) -> Value {
        self.whole.as_ref().map_or_else(|| Value::clone(&self.listed), |whole| whole.alone(MAX_SHOWN).0)
    }

    /// The violations of the value; empty when there are none, or when the schema cannot be compiled.
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
        compiled.inspect_err(|problem| tracing::warn!(%problem, "cannot compile an output schema; the tool's outputs are not checked")).ok()
    }
}
