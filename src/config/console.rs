use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use sekisho_core::call::Caller;

/// The console, `/console`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleConfig {
    /// Which callers' roles give which role of the console.
    pub roles: ConsoleRoles,
}

/// Roles of callers, by the role that each gives in the console. Whoever has none of them cannot sign in there.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleRoles {
    /// See tools, and the calls of the own tenant.
    pub viewer: Vec<String>,
    /// The same, and try tools.
    pub operator: Vec<String>,
    /// See what viewers see, and decide about calls that need approval.
    pub approver: Vec<String>,
    /// All of it; administrators of the tenant `default` see the calls of all tenants.
    pub admin: Vec<String>,
}

/// The role of a caller in the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ConsoleRole {
    Viewer,
    Approver,
    Operator,
    Admin,
}

sekisho_core::as_str!(ConsoleRole);

impl ConsoleRole {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

impl Default for ConsoleRoles {
    fn default() -> Self {
        // The address that a refused caller gets leads approvers to a page of the console.
        let (approver, admin) = (vec!["approver".to_owned()], vec!["admin".to_owned()]);
        Self { viewer: Vec::new(), operator: Vec::new(), approver, admin }
    }
}

impl ConsoleConfig {
    /// The caller's roles in the console; callers without credentials have none.
    pub fn roles_of(&self, caller: &Caller) -> Vec<ConsoleRole> {
        let has = |role: &ConsoleRole| !caller.anonymous && caller.has_one_of(self.roles.giving(*role));
        ConsoleRole::ALL.iter().copied().filter(has).collect()
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for role in ConsoleRole::ALL.iter().copied() {
            findings.names(&format!("console.roles.{}", role.as_str()), self.roles.giving(role));
        }
    }
}

impl ConsoleRoles {
    fn giving(&self, role: ConsoleRole) -> &[String] {
        match role {
            ConsoleRole::Viewer => &self.viewer,
            ConsoleRole::Approver => &self.approver,
            ConsoleRole::Operator => &self.operator,
            ConsoleRole::Admin => &self.admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gives_a_role_to_administrators_and_approvers() {
        let caller = |roles: &[&str]| Caller::new("ann", "acme", roles.iter().map(|role| (*role).to_owned()).collect());
        let of = |roles: &[&str]| ConsoleConfig::default().roles_of(&caller(roles));
        assert_eq!(of(&["admin"]), [ConsoleRole::Admin]);
        assert_eq!(of(&["approver"]), [ConsoleRole::Approver]);
        // The role that opens dangerous tools is none of the console.
        assert!(of(&["operator"]).is_empty() && of(&["viewer"]).is_empty() && of(&[]).is_empty());
        let roles = ConsoleRoles { viewer: vec!["audit".into()], operator: vec!["audit".into()], ..Default::default() };
        let config = ConsoleConfig { roles };
        assert_eq!(config.roles_of(&caller(&["audit"])), [ConsoleRole::Viewer, ConsoleRole::Operator]);
        assert!(config.roles_of(&Caller { anonymous: true, ..caller(&["audit"]) }).is_empty());
    }
}
