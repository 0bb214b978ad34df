//! The handles of the store, one for each topic. Each runs the statements of its tables, and shares the connections of the store.

use super::{
    ApprovalStore, BackgroundRunStore, BrokerStore, BudgetLeaseStore, ChargeStore, ConfigurationChangeStore,
    ConversationLogStore, ConversationRunStore, ConversationStore, FlowDestinationStore, FlowSessionStore,
    IdempotencyStore, InterpreterSessionStore, KeyStore, ModelUsageStore, PausedRunStore, PermitStore, PlanStore,
    ProgramRunStore, RateBucketStore, RecordedRunStore, RegistrationStore, ReplicaStore, ResourceStore, ResultStore,
    RuleUsageStore, SourceRequestStore, Store, ThreadSummaryStore, UsageStore, UserTokenStore, WorkStore,
    WorkspaceStore,
};

macro_rules! topics {
    ($($name:ident: $handle:ident,)+) => {
        impl Store {
            $(#[doc = concat!("The handle [`", stringify!($handle), "`].")]
            pub fn $name(&self) -> $handle {
                $handle(self.clone())
            })+
        }
    };
}

topics! {
    approvals: ApprovalStore,
    background_runs: BackgroundRunStore,
    broker: BrokerStore,
    budget_leases: BudgetLeaseStore,
    charges: ChargeStore,
    configuration_changes: ConfigurationChangeStore,
    conversation_logs: ConversationLogStore,
    conversation_runs: ConversationRunStore,
    conversations: ConversationStore,
    flow_destinations: FlowDestinationStore,
    flow_sessions: FlowSessionStore,
    idempotency: IdempotencyStore,
    interpreter_sessions: InterpreterSessionStore,
    keys: KeyStore,
    paused_runs: PausedRunStore,
    permits: PermitStore,
    plans: PlanStore,
    program_runs: ProgramRunStore,
    rate_buckets: RateBucketStore,
    recorded_runs: RecordedRunStore,
    registrations: RegistrationStore,
    replicas: ReplicaStore,
    resources: ResourceStore,
    results: ResultStore,
    rule_usage: RuleUsageStore,
    model_usage: ModelUsageStore,
    source_requests: SourceRequestStore,
    thread_summaries: ThreadSummaryStore,
    usage: UsageStore,
    user_tokens: UserTokenStore,
    work: WorkStore,
    workspaces: WorkspaceStore,
}
