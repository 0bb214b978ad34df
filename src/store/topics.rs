//! The handles of the store, one for each topic. Each runs the statements of its tables, and shares the connections of the store.

use super::{
    ApprovalStore, BackgroundRunStore, BrokerStore, BudgetLeaseStore, ChargeStore, ConversationLogStore,
    ConversationRunStore, ConversationStore, FlowDestinationStore, FlowSessionStore, IdempotencyStore,
    InterpreterSessionStore, KeyStore, ModelUsageStore, PausedRunStore, PermitStore, PlanStore, ProgramRunStore,
    RateBucketStore, RecordedRunStore, RegistrationStore, ReplicaStore, ResourceStore, ResultStore, RuleUsageStore,
    Store, ThreadSummaryStore, UsageStore, UserTokenStore, WorkStore, WorkspaceStore,
};

impl Store {
    /// Approvals of calls.
    pub fn approvals(&self) -> ApprovalStore {
        ApprovalStore(self.clone())
    }

    /// Runs that go on without a client.
    pub fn background_runs(&self) -> BackgroundRunStore {
        BackgroundRunStore(self.clone())
    }

    /// The authorization server: its keys, clients, codes and sessions.
    pub fn broker(&self) -> BrokerStore {
        BrokerStore(self.clone())
    }

    /// The amounts that replicas lease of the budgets of a day.
    pub fn budget_leases(&self) -> BudgetLeaseStore {
        BudgetLeaseStore(self.clone())
    }

    /// Charges that are made once.
    pub fn charges(&self) -> ChargeStore {
        ChargeStore(self.clone())
    }

    /// The logs of conversations, and the session that a run continues.
    pub fn conversation_logs(&self) -> ConversationLogStore {
        ConversationLogStore(self.clone())
    }

    /// Runs of conversations and their journal.
    pub fn conversation_runs(&self) -> ConversationRunStore {
        ConversationRunStore(self.clone())
    }

    /// Conversations and their locks.
    pub fn conversations(&self) -> ConversationStore {
        ConversationStore(self.clone())
    }

    /// Destinations that are known from calls of before.
    pub fn flow_destinations(&self) -> FlowDestinationStore {
        FlowDestinationStore(self.clone())
    }

    /// The values of sessions, and which of them have read text of strangers.
    pub fn flow_sessions(&self) -> FlowSessionStore {
        FlowSessionStore(self.clone())
    }

    /// Calls with an idempotency key.
    pub fn idempotency(&self) -> IdempotencyStore {
        IdempotencyStore(self.clone())
    }

    /// Sessions of interpreters and their images.
    pub fn interpreter_sessions(&self) -> InterpreterSessionStore {
        InterpreterSessionStore(self.clone())
    }

    /// The keys that administrators manage.
    pub fn keys(&self) -> KeyStore {
        KeyStore(self.clone())
    }

    /// Runs that wait for the tools of their clients.
    pub fn paused_runs(&self) -> PausedRunStore {
        PausedRunStore(self.clone())
    }

    /// Slots of tools with a limit over all replicas.
    pub fn permits(&self) -> PermitStore {
        PermitStore(self.clone())
    }

    /// Plans of agents and their vectors.
    pub fn plans(&self) -> PlanStore {
        PlanStore(self.clone())
    }

    /// Runs of programs and their journals.
    pub fn program_runs(&self) -> ProgramRunStore {
        ProgramRunStore(self.clone())
    }

    /// Rate limits over all replicas.
    pub fn rate_buckets(&self) -> RateBucketStore {
        RateBucketStore(self.clone())
    }

    /// Runs that were recorded.
    pub fn recorded_runs(&self) -> RecordedRunStore {
        RecordedRunStore(self.clone())
    }

    /// OpenAPI collections and MCP servers.
    pub fn registrations(&self) -> RegistrationStore {
        RegistrationStore(self.clone())
    }

    /// The gateways that share the database.
    pub fn replicas(&self) -> ReplicaStore {
        ReplicaStore(self.clone())
    }

    /// Tenants, models and skills.
    pub fn resources(&self) -> ResourceStore {
        ResourceStore(self.clone())
    }

    /// Large results of calls.
    pub fn results(&self) -> ResultStore {
        ResultStore(self.clone())
    }

    /// The spending by the subjects of rules.
    pub fn rule_usage(&self) -> RuleUsageStore {
        RuleUsageStore(self.clone())
    }

    pub fn model_usage(&self) -> ModelUsageStore {
        ModelUsageStore(self.clone())
    }

    /// Requests for sources of the catalogue.
    pub fn source_requests(&self) -> SourceRequestStore {
        SourceRequestStore(self.clone())
    }

    /// Summaries of threads.
    pub fn thread_summaries(&self) -> ThreadSummaryStore {
        ThreadSummaryStore(self.clone())
    }

    /// The spending of callers and tenants, and the usage of each run of an agent.
    pub fn usage(&self) -> UsageStore {
        UsageStore(self.clone())
    }

    /// Tokens of callers for upstreams, and their sign-ins.
    pub fn user_tokens(&self) -> UserTokenStore {
        UserTokenStore(self.clone())
    }

    /// Who works on things of each kind.
    pub fn work(&self) -> WorkStore {
        WorkStore(self.clone())
    }

    /// Workspaces that replicas share, with their locks.
    pub fn workspaces(&self) -> WorkspaceStore {
        WorkspaceStore(self.clone())
    }
}
