//! The JSON Schema of the configuration file, for editors and for `sekisho check --print-schema`.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::Config;

/// JSON Schema 2020-12 of the configuration file; descriptions and defaults come from the code.
pub fn json_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().with_transform(AsRead).into_generator();
    generator.into_root_schema_for::<Config>().to_value()
}

/// An exact amount of money in the schema: a number, or a string with one.
pub(super) struct Money;

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An exact amount in USD, such as 0.50.",
            "type": ["number", "string"],
            "minimum": 0,
            "pattern": r"^[0-9]+(\.[0-9]+)?$|\$\{",
        })
    }
}

/// Further input that the reader accepts for a value: `${NAME}` for a number or a boolean, and null for a list or a
/// mapping whose entries are all commented out.
#[derive(Clone)]
struct AsRead;

impl Transform for AsRead {
    fn transform(&mut self, schema: &mut Schema) {
        let mut types = match schema.get("type") {
            Some(Value::Array(names)) => names.clone(),
            Some(name @ Value::String(_)) => vec![name.clone()],
            _ => Vec::new(),
        };
        let is_one_of = |names: &[&str]| types.iter().any(|name| names.iter().any(|wanted| name == wanted));
        let also = if is_one_of(&["string"]) {
            None
        } else if is_one_of(&["integer", "number", "boolean"]) {
            schema.insert("pattern".into(), json!(r"\$\{"));
            Some("string")
        } else if is_one_of(&["object", "array"]) && !is_one_of(&["null"]) {
            Some("null")
        } else {
            None
        };
        if let Some(also) = also {
            types.push(json!(also));
            schema.insert("type".into(), types.into());
        }
        transform_subschemas(self, schema);
    }
}
