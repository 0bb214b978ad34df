//! The compiled schemas of a tool's arguments and output (JSON Schema 2020-12).
//!
//! Schemas may be untrusted. So a `$ref` is never fetched, a schema is checked against limits before
//! it is compiled (`bounds`), and a pattern that backtracks without end fails.

mod aliases;
mod arguments;
mod bounds;
mod coerce;
mod definitions;
mod lowering;
mod output;
mod short;
#[cfg(test)]
mod tests;
mod violation;
mod wrapped;

use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};
use thiserror::Error;

use self::bounds::Bounds;
use self::violation::SchemaViolation;

pub use self::aliases::Aliases;
pub use self::arguments::{ArgumentSchema, InputSchema, Parameters, ValidArguments};
pub use self::definitions::{Fit, SharedSchema};
pub use self::output::OutputSchema;
pub use self::short::{short_schema, short_text};

/// Maximum backtracking steps on one text for a pattern with look-around or back-references.
const BACKTRACK_LIMIT: usize = 20_000;

/// Maximum size of a compiled pattern, in bytes.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidSchema(pub String);

#[derive(Debug)]
struct Schema {
    document: Arc<Value>,
    /// Built when the first value is checked: it takes more memory than the document, and with thousands of tools most
    /// are never called.
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
        Ok(Self { document: Arc::new(document), validator: OnceLock::new(), bounds })
    }

    #[expect(clippy::expect_used, reason = "the same document was compiled before")]
    fn validator(&self) -> &Validator {
        self.validator.get_or_init(|| build(&self.document).expect("the schema was compiled before"))
    }

    /// The violations of an invalid value; never empty.
    fn violations(&self, value: &Value, subject: &'static str) -> Vec<SchemaViolation> {
        let effort = violation::effort(value, self.bounds.fan_out);
        violation::explain(self.validator(), &self.document, value, subject, effort)
    }
}

/// Whether a text can be used as a schema's `pattern`. It cannot if it has the syntax of another language, or if its
/// repetitions make the compiled pattern too large.
pub fn is_pattern(text: &str) -> bool {
    build(&json!({"pattern": text})).is_ok()
}

/// A schema of arguments as model APIs accept it: one object at its root, without the keywords that they refuse. It allows all
/// values that the schema allows.
#[must_use]
pub fn accepted_by_models(mut document: Value) -> Value {
    if let Value::Object(root) = &mut document
        && !root.contains_key("type")
    {
        root.insert("type".to_owned(), "object".into());
    }
    lowering::lower(&mut document);
    lowering::without_union(&document).unwrap_or(document)
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
