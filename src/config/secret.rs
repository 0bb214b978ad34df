use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A value that must not be shown: `Debug` and the logs print `***`.
// Not `serde(transparent)`: the reader recognises a secret by this type's name.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that sends or hashes it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}
