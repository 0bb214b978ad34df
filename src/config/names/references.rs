//! All names in the configuration that stand for something else.

use super::{NameKind, NameReference};
use crate::{
    CALL_TOOL, CollectionSettings, Config, LimitsConfig, McpConfig, OpenApiConfig, SKILL, TASK, TenantConfig,
    ToolFilter, WAIT,
};

/// The names found so far.
#[derive(Default)]
struct References(Vec<NameReference>);

impl Config {
    /// Each name that must be the name of an object, with its place.
    pub fn name_references(&self) -> Vec<NameReference> {
        use NameKind::{Adapter, Component, PythonFile, Role, SourceTool, Tool};
        let mut found = References::default();
        for (name, changes) in &self.tools.overrides {
            found.add(format!("tools.overrides.{name}"), SourceTool, "", name);
            found.list(&format!("tools.overrides.{name}.roles"), Role, "", changes.roles.iter().flatten());
            for (argument, from) in &changes.enumerate {
                found.add(format!("tools.overrides.{name}.enumerate.{argument}.tool"), Tool, "", &from.tool);
            }
        }
        for (part, rules) in
            [("arguments", &self.tools.transform.arguments), ("results", &self.tools.transform.results)]
        {
            for (index, rule) in rules.iter().enumerate() {
                found.list(&format!("tools.transform.{part}[{index}].tools"), Tool, "", &rule.tools);
            }
        }
        for (index, rule) in self.tools.guards.rules.iter().enumerate() {
            found.list(&format!("tools.guards.rules[{index}].tools"), Tool, "", &rule.tools);
            found.list(&format!("tools.guards.rules[{index}].tenants"), NameKind::Tenant, "", &rule.tenants);
        }
        found.list("recording.content.tools", Tool, "", &self.recording.content.tools);
        found.list("recording.content.tenants", NameKind::Tenant, "", &self.recording.content.tenants);
        found.of_limits(&self.limits);
        found.of_documents(&self.openapi);
        found.of_mcp(&self.mcp);
        for (scope, tools) in &self.auth.scopes {
            found.list(&format!("auth.scopes.{scope}"), Tool, "", tools);
        }
        let roles = &self.console.roles;
        for (key, roles) in [
            ("viewer", &roles.viewer),
            ("operator", &roles.operator),
            ("approver", &roles.approver),
            ("admin", &roles.admin),
        ] {
            found.list(&format!("console.roles.{key}"), Role, "", roles);
        }
        found.list("policy.dangerous_roles", Role, "", &self.policy.dangerous_roles);
        for (name, profile) in &self.agent.profiles {
            found.of_filter(&format!("agent.profiles.{name}.tools"), &profile.tools);
        }
        for (name, kind) in &self.agent.subagents.types {
            found.of_filter(&format!("agent.subagents.types.{name}.tools"), &kind.tools);
        }
        for (name, tenant) in &self.tenants {
            found.of_tenant(name, tenant);
        }
        found.keys("python_tools.settings", PythonFile, self.python_tools.settings.keys());
        found.keys("components.grants", Component, self.components.grants.keys());
        found.keys("components.credentials", Component, self.components.credentials.keys());
        for (name, settings) in &self.openapi.collections {
            let setting = format!("openapi.collections.{name}");
            for (key, vendor) in
                [("vendor_adapter", &settings.vendor_adapter), ("auth_config.vendor", &settings.auth_config.vendor)]
            {
                if let Some(vendor) = vendor {
                    found.add(format!("{setting}.{key}"), Adapter, "", vendor);
                }
            }
        }
        found.0
    }
}

impl References {
    /// One name. A bare `*` is none.
    fn add(&mut self, setting: String, kind: NameKind, of: &str, name: &str) {
        if name != "*" {
            self.0.push(NameReference { setting, kind, of: of.to_owned(), name: name.to_owned() });
        }
    }

    fn list<'a>(&mut self, setting: &str, kind: NameKind, of: &str, names: impl IntoIterator<Item = &'a String>) {
        for (index, name) in names.into_iter().enumerate() {
            self.add(format!("{setting}[{index}]"), kind, of, name);
        }
    }

    fn keys<'a>(&mut self, setting: &str, kind: NameKind, names: impl IntoIterator<Item = &'a String>) {
        self.keys_of(setting, kind, "", names);
    }

    fn keys_of<'a>(&mut self, setting: &str, kind: NameKind, of: &str, names: impl IntoIterator<Item = &'a String>) {
        for name in names {
            self.add(format!("{setting}.{name}"), kind, of, name);
        }
    }

    fn of_limits(&mut self, limits: &LimitsConfig) {
        for (index, rule) in limits.rules.iter().enumerate() {
            let at = |key: &str| format!("limits.rules[{index}].match.{key}");
            self.list(&at("tools"), NameKind::Tool, "", &rule.matching.tools);
            self.list(&at("callers"), NameKind::Caller, "", &rule.matching.callers);
            self.list(&at("tenants"), NameKind::Tenant, "", &rule.matching.tenants);
            self.list(&at("roles"), NameKind::Role, "", &rule.matching.roles);
            self.list(&at("keys"), NameKind::Key, "", &rule.matching.keys);
        }
    }

    fn of_documents(&mut self, openapi: &OpenApiConfig) {
        for (name, settings) in &openapi.collections {
            self.of_collection(name, settings);
        }
        for (vendor, adapter) in &openapi.adapters {
            let setting = format!("openapi.adapters.{vendor}.operations");
            self.list(&setting, NameKind::OperationId, &adapter_names(vendor), &adapter.operations);
        }
    }

    fn of_collection(&mut self, name: &str, settings: &CollectionSettings) {
        use NameKind::{Method, Operation, OperationId, Path, SecurityScheme, Tag};
        let at = |key: &str| format!("openapi.collections.{name}.{key}");
        self.list(&at("operations"), OperationId, name, &settings.operations);
        self.list(&at("tags"), Tag, name, &settings.tags);
        self.list(&at("paths"), Path, name, &settings.paths);
        self.list(&at("methods"), Method, name, &settings.methods);
        self.list(&at("dangerous.methods"), Method, name, &settings.dangerous.methods);
        self.list(&at("dangerous.operations"), Operation, name, &settings.dangerous.operations);
        self.list(&at("dangerous.tags"), Tag, name, &settings.dangerous.tags);
        self.keys_of(&at("renames"), Operation, name, settings.renames.keys());
        self.keys_of(&at("descriptions"), Operation, name, settings.descriptions.keys());
        self.keys_of(&at("media_types"), Operation, name, settings.media_types.keys());
        self.keys_of(&at("credentials"), SecurityScheme, name, settings.credentials.keys());
    }

    fn of_mcp(&mut self, mcp: &McpConfig) {
        for (name, settings) in &mcp.servers {
            let at = |key: &str| format!("mcp.servers.{name}.{key}");
            self.list(&at("include"), NameKind::ServerTool, name, &settings.include);
            self.list(&at("exclude"), NameKind::ServerTool, name, &settings.exclude);
            self.list(&at("roles"), NameKind::Role, "", &settings.roles);
        }
        for (name, endpoint) in &mcp.endpoints {
            self.list(&format!("mcp.endpoints.{name}.tools"), NameKind::Tool, "", &endpoint.tools);
            self.list(&format!("mcp.endpoints.{name}.roles"), NameKind::Role, "", &endpoint.roles);
        }
    }

    fn of_tenant(&mut self, name: &str, tenant: &TenantConfig) {
        self.add(format!("tenants.{name}"), NameKind::Tenant, "", name);
        let at = |key: &str| format!("tenants.{name}.{key}");
        self.list(&at("models"), NameKind::Model, "", tenant.models.iter().flatten());
        self.list(&at("skills"), NameKind::Skill, "", tenant.skills.iter().flatten());
        self.list(&at("mcp_servers"), NameKind::McpServer, "", tenant.mcp_servers.iter().flatten());
        self.list(&at("collections"), NameKind::Collection, "", tenant.collections.iter().flatten());
    }

    /// Agents have tools beside the tools of the gateway.
    fn of_filter(&mut self, setting: &str, filter: &ToolFilter) {
        let is_of_gateway = |name: &&String| ![SKILL, TASK, CALL_TOOL, WAIT].contains(&name.as_str());
        for (key, names) in [("include", &filter.include), ("exclude", &filter.exclude)] {
            for (index, name) in names.iter().enumerate().filter(|(_, name)| is_of_gateway(name)) {
                self.add(format!("{setting}.{key}[{index}]"), NameKind::Tool, "", name);
            }
        }
    }
}

/// The owner of the operations' ids that an adapter changes: the operations of all collections that use it.
pub fn adapter_names(vendor: &str) -> String {
    format!("adapter:{}", vendor.to_ascii_lowercase())
}
