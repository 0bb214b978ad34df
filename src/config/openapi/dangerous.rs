use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::check::Findings;

/// Which operations of a collection are dangerous, so that a caller needs a role for them. Matching one of these
/// is enough. `x-dangerous` of an overlay takes precedence, and `tools.overrides` over both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DangerousOperations {
    /// Those of these methods; `[]`: no method.
    pub methods: Vec<String>,
    /// Those with these operationIds, or `METHOD /path`.
    pub operations: Vec<String>,
    /// Those with one of these tags.
    pub tags: Vec<String>,
    /// Those that delete by their name, whatever their method: with a word such as `delete` or `remove` in the operationId or at
    /// the end of the path.
    pub words: bool,
}

impl Default for DangerousOperations {
    fn default() -> Self {
        Self { methods: vec![Method::DELETE.to_string()], operations: Vec::new(), tags: Vec::new(), words: false }
    }
}

impl DangerousOperations {
    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        let at = |key: &str| format!("{setting}.{key}");
        findings.names(&at("methods"), &self.methods);
        for method in self.methods.iter().filter(|method| Method::from_bytes(method.as_bytes()).is_err()) {
            findings.add(at("methods"), format!("{method:?} is not an HTTP method"), "write it like DELETE");
        }
        findings.names(&at("operations"), &self.operations);
        findings.names(&at("tags"), &self.tags);
    }
}
