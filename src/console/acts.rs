//! The acts of the console, and their roles. docs/console.md has the table, with which the tests compare.

use sekisho_config::ConsoleRole;
use sekisho_core::caller::{Caller, DEFAULT_TENANT};
use sekisho_core::error::{CallError, ErrorCode};

/// Something that a page shows or does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    SeeOverview,
    SeeTools,
    SeeCalls,
    SeeApprovals,
    SeeConversations,
    SeePlans,
    SeeResults,
    SeeSessions,
    SeeRuns,
    SeeAgents,
    SeeCosts,
    SeeConnect,
    TryTool,
    TalkToAgents,
    RunPlans,
    DecideApprovals,
    ChangeAgents,
    ChangeTenants,
    SeeSources,
    SearchHistory,
    SeeServers,
    ChangeServers,
    SeePolicies,
    ExplainCall,
    SeeLimits,
    EndSessions,
    SettleRuns,
    ManageSignIns,
    AskForSources,
    ManageKeys,
    SeeFlow,
    SeeConfiguration,
}

impl Act {
    #[cfg(test)]
    const ALL: [Self; 32] = [
        Self::SeeOverview,
        Self::SeeTools,
        Self::SeeCalls,
        Self::SeeApprovals,
        Self::SeeConversations,
        Self::SeePlans,
        Self::SeeResults,
        Self::SeeSessions,
        Self::SeeRuns,
        Self::SeeAgents,
        Self::SeeCosts,
        Self::SeeConnect,
        Self::TryTool,
        Self::TalkToAgents,
        Self::RunPlans,
        Self::DecideApprovals,
        Self::ChangeAgents,
        Self::ChangeTenants,
        Self::SeeSources,
        Self::SearchHistory,
        Self::SeeServers,
        Self::ChangeServers,
        Self::SeePolicies,
        Self::ExplainCall,
        Self::SeeLimits,
        Self::EndSessions,
        Self::SettleRuns,
        Self::ManageSignIns,
        Self::AskForSources,
        Self::ManageKeys,
        Self::SeeFlow,
        Self::SeeConfiguration,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SeeOverview => "see the overview",
            Self::SeeTools => "see tools",
            Self::SeeCalls => "see calls",
            Self::SeeApprovals => "see approvals",
            Self::SeeConversations => "see your conversations",
            Self::SeePlans => "see your plans",
            Self::SeeResults => "see your stored results",
            Self::SeeSessions => "see your sessions of Python",
            Self::SeeRuns => "see your runs of programs",
            Self::SeeAgents => "see models, skills and tenants",
            Self::SeeCosts => "see costs",
            Self::SeeConnect => "see how clients connect",
            Self::TryTool => "try a tool",
            Self::TalkToAgents => "talk to an agent",
            Self::RunPlans => "begin and steer plans",
            Self::DecideApprovals => "approve and deny calls",
            Self::ChangeAgents => "change models and skills",
            Self::ChangeTenants => "change tenants",
            Self::SeeSources => "see the sources of Python functions",
            Self::SearchHistory => "search older calls",
            Self::SeeServers => "see servers",
            Self::ChangeServers => "change servers",
            Self::SeePolicies => "see policies",
            Self::ExplainCall => "explain a call",
            Self::SeeLimits => "see limits and budgets",
            Self::EndSessions => "end your sessions of Python",
            Self::SettleRuns => "settle calls of your runs of programs",
            Self::ManageSignIns => "manage your sign-ins to upstreams",
            Self::AskForSources => "ask for sources of the catalogue",
            Self::ManageKeys => "manage keys",
            Self::SeeFlow => "see the flow of values",
            Self::SeeConfiguration => "see the configuration",
        }
    }

    /// Whether a caller with these roles may do it. A caller without any is the anonymous caller of this machine.
    pub(super) fn is_open_to(self, roles: &[ConsoleRole]) -> bool {
        let has = |wanted: &[ConsoleRole]| roles.iter().any(|role| wanted.contains(role));
        match self {
            Self::SeeOverview
            | Self::SeeTools
            | Self::SeeCalls
            | Self::SeeApprovals
            | Self::SeeConversations
            | Self::SeePlans
            | Self::SeeResults
            | Self::SeeSessions
            | Self::SeeRuns
            | Self::SeeAgents
            | Self::SeeCosts
            | Self::SeeConnect => true,
            Self::TryTool | Self::TalkToAgents | Self::RunPlans | Self::SeeSources | Self::ExplainCall => {
                has(&[ConsoleRole::Operator, ConsoleRole::Admin])
            }
            Self::DecideApprovals => has(&[ConsoleRole::Approver, ConsoleRole::Admin]),
            Self::SearchHistory
            | Self::SeeServers
            | Self::SeePolicies
            | Self::SeeLimits
            | Self::EndSessions
            | Self::SettleRuns
            | Self::ManageSignIns
            | Self::AskForSources => !roles.is_empty(),
            Self::ChangeServers
            | Self::ManageKeys
            | Self::SeeFlow
            | Self::SeeConfiguration
            | Self::ChangeAgents
            | Self::ChangeTenants => has(&[ConsoleRole::Admin]),
        }
    }

    /// Whether it is about resources that all tenants share, and so only for callers of the tenant `default`.
    fn is_about_all_tenants(self) -> bool {
        matches!(self, Self::SeeSources | Self::ChangeTenants | Self::SeeConfiguration)
    }

    /// Errors: `denied` to callers of a tenant, for resources that all tenants share.
    pub(super) fn require_tenant(self, caller: &Caller) -> Result<(), CallError> {
        if !self.is_about_all_tenants() || caller.is_of_default() {
            return Ok(());
        }
        let message = format!(
            "to {} is about what all tenants share: it requires a key of the tenant `{DEFAULT_TENANT}`, and yours is of {:?}",
            self.as_str(),
            caller.tenant
        );
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// Errors: `denied`, with the role that is missing.
    pub(super) fn require(self, roles: &[ConsoleRole]) -> Result<(), CallError> {
        if self.is_open_to(roles) {
            return Ok(());
        }
        let opening =
            ConsoleRole::ALL.iter().copied().filter(|role| self.is_open_to(&[*role])).map(ConsoleRole::as_str);
        let opening = opening.collect::<Vec<_>>().join(" or ");
        let message = format!(
            "to {} requires the console role {opening}; sign in with a key that has it (`console.roles`), or with \
             the link of `sekisho console` on its machine",
            self.as_str()
        );
        Err(CallError::new(ErrorCode::Denied, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the page's table.
    fn rows() -> Vec<Vec<&'static str>> {
        let page = include_str!("../../docs/console.md");
        let table = page.split("\n\n").find(|part| part.starts_with("| Act |")).unwrap();
        let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        table.lines().filter(|line| !line.contains("---")).map(cells).collect()
    }

    #[test]
    fn each_act_is_open_to_the_roles_of_the_table() {
        let rows = rows();
        let (head, acts) = rows.split_first().unwrap();
        assert_eq!(acts.iter().map(|row| row[0]).collect::<Vec<_>>(), Act::ALL.map(Act::as_str));
        assert_eq!(head[1], "anonymous, on this machine");
        for (act, row) in Act::ALL.into_iter().zip(acts) {
            for (role, cell) in head.iter().zip(row).skip(1) {
                let roles: Vec<_> = ConsoleRole::ALL.iter().copied().filter(|known| known.as_str() == *role).collect();
                assert!(["yes", "no"].contains(cell) && (*role == head[1] || roles.len() == 1), "{role} {cell}");
                assert_eq!(act.is_open_to(&roles), *cell == "yes", "{} {role}", act.as_str());
                assert_eq!(act.require(&roles).is_ok(), *cell == "yes");
            }
        }
        assert_eq!(head.len(), 2 + ConsoleRole::ALL.len());
    }

    #[test]
    fn what_all_tenants_share_is_for_the_tenant_default() {
        let of = |tenant: &str| Caller::new("ada", tenant, vec!["admin".to_owned()]);
        let shared = Act::ALL.into_iter().filter(|act| act.require_tenant(&of("acme")).is_err());
        assert_eq!(
            shared.map(Act::as_str).collect::<Vec<_>>(),
            ["change tenants", "see the sources of Python functions", "see the configuration"]
        );
        assert!(Act::ALL.into_iter().all(|act| act.require_tenant(&of("default")).is_ok()));
    }
}
