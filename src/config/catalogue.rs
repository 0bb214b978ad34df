use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::{McpConfig, OpenApiConfig};

/// Sources that are allowed but off: callers ask for them, and administrators switch them on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CatalogueConfig {
    /// By `mcp:SERVER` or `openapi:COLLECTION` of this configuration, what callers read about the source. Nobody sees its tools, and
    /// a server is not started, until an administrator has switched it on for a user, a key or a tenant.
    pub sources: BTreeMap<String, String>,
}

/// Longest text about a source, in bytes.
const MAX_TEXT_BYTES: usize = 500;

impl CatalogueConfig {
    /// Whether callers get the source on request.
    pub fn has(&self, source: &str) -> bool {
        self.sources.contains_key(source)
    }

    /// A name that is no source would leave the meant one to all callers.
    pub(super) fn check(&self, mcp: &McpConfig, openapi: &OpenApiConfig, findings: &mut Findings) {
        for (source, text) in &self.sources {
            let setting = format!("catalogue.sources.{source}");
            let is_known = match source.split_once(':') {
                Some(("mcp", name)) => mcp.servers.contains_key(name),
                Some(("openapi", name)) => openapi.collections.contains_key(name),
                _ => false,
            };
            if !is_known {
                let advice = "write `mcp:` and a name in `mcp.servers`, or `openapi:` and one in `openapi.collections`";
                findings.add(&setting, "is no source of this configuration", advice);
            }
            if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES {
                let problem = format!("is empty, or longer than {MAX_TEXT_BYTES} bytes");
                findings.add(&setting, problem, "say in a sentence what the source is for");
            }
        }
    }
}
