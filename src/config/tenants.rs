use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::check::Findings;
use super::schema::Money;

/// Whether something may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResourceStatus {
    #[default]
    Active,
    /// Runs that need it are refused (C3).
    Inactive,
}

/// What the agents of a tenant's callers may use. A tenant without settings may use everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantConfig {
    pub status: ResourceStatus,
    /// The system prompt of its conversations, in place of the gateway's own (C10).
    pub prompt: Option<String>,
    /// Names of `agent.models` and `agent.profiles`; the first one is its default. Null: all.
    pub models: Option<Vec<String>>,
    /// Names of skills. Null: all.
    pub skills: Option<Vec<String>>,
    /// MCP servers whose tools its agents may call (C11). Null: all.
    pub mcp_servers: Option<Vec<String>>,
    /// OpenAPI collections whose tools its agents may call. Null: all.
    pub collections: Option<Vec<String>>,
    /// USD of all its callers on one day (UTC), in place of `budget.max_cost_per_tenant_per_day`.
    #[schemars(with = "Option<Money>")]
    #[schema(value_type = Option<String>)]
    pub max_cost_per_day: Option<Decimal>,
    /// Tokens of all its callers on one day, in place of `budget.max_tokens_per_tenant_per_day`.
    pub max_tokens_per_day: Option<u64>,
}

impl ResourceStatus {
    pub fn is_active(self) -> bool {
        self == Self::Active
    }
}

impl TenantConfig {
    /// Whether it has the model or profile of that name.
    pub fn has_model(&self, name: &str) -> bool {
        is_in(self.models.as_ref(), name)
    }

    pub fn has_skill(&self, name: &str) -> bool {
        is_in(self.skills.as_ref(), name)
    }

    /// Whether its agents may call tools of the source, such as `mcp:files`.
    pub fn has_source(&self, source: &str) -> bool {
        match source.split_once(':') {
            Some(("mcp", server)) => is_in(self.mcp_servers.as_ref(), server),
            Some(("openapi", collection)) => is_in(self.collections.as_ref(), collection),
            _ => true,
        }
    }

    /// Whether it has all sources.
    pub fn has_every_source(&self) -> bool {
        self.mcp_servers.is_none() && self.collections.is_none()
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        for (key, names) in [
            ("models", &self.models),
            ("skills", &self.skills),
            ("mcp_servers", &self.mcp_servers),
            ("collections", &self.collections),
        ] {
            findings.names(&format!("{at}.{key}"), names.as_deref().unwrap_or_default());
        }
        if self.max_cost_per_day.is_some_and(|amount| amount < Decimal::ZERO) {
            let advice = "set an amount in USD, such as 5.00";
            findings.add(format!("{at}.max_cost_per_day"), "must not be below zero", advice);
        }
        findings.above_zero_or_none(&format!("{at}.max_tokens_per_day"), self.max_tokens_per_day);
    }
}

fn is_in(names: Option<&Vec<String>>, name: &str) -> bool {
    names.is_none_or(|names| names.iter().any(|known| known == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_admits_its_names_and_none_admits_all() {
        let tenant = TenantConfig {
            models: Some(vec!["haiku".into()]),
            mcp_servers: Some(vec!["files".into()]),
            collections: Some(Vec::new()),
            ..TenantConfig::default()
        };
        assert!(tenant.has_model("haiku") && !tenant.has_model("opus") && tenant.has_skill("any"));
        let admitted = ["builtin", "mcp:files", "mcp:file", "mcp:mail", "openapi:pets"].map(|of| tenant.has_source(of));
        assert_eq!(admitted, [true, true, false, false, false]);
        assert!(!tenant.has_every_source() && TenantConfig::default().has_every_source());
        assert!(TenantConfig::default().has_source("openapi:pets"));
    }
}
