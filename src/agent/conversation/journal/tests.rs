use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::RunUsage;
use crate::message::RequestedCall;
use crate::toolbox::OnApproval;
use sekisho_calls::budget::Budgets;
use sekisho_config::BudgetConfig;
use sekisho_core::call::Arguments;
use sekisho_store::test_support::{conversation, test_store};

/// Answers each call once it is allowed to.
struct Slow(Arc<Notify>);

impl Toolbox for Slow {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            self.0.notified().await;
            ToolAnswer { success: call.tool == "add", text: "three".into(), error_info: None, images: Vec::new() }
        })
    }
}

#[tokio::test]
async fn a_call_is_in_the_journal_before_it_is_sent_and_with_its_answer_after() {
    let (store, allowed) = (test_store().await, Arc::new(Notify::new()));
    let lock = locked(&store).await;
    let (usage, budgets) = (UsageByAgent::default(), Arc::new(Budgets::new(&BudgetConfig::default())));
    let charges = DeferredCharges::new(&budgets, &store, "r");
    let used = RunUsage { prompt_tokens: 7, cost_usd: "0.000001".parse().unwrap(), ..RunUsage::default() };
    usage.add(&"main".into(), ("openai", "m"), &used);
    let journal = Journal::new(store.clone(), lock.clone(), ("r", "main"), (usage, charges), 4);
    let turn = AssistantTurn::new("so", [RequestedCall::new("1".into(), "add".into(), "{}".into())]);
    journal.observer().observe(turn.clone());
    let toolbox = Journaled { toolbox: Arc::new(Slow(Arc::clone(&allowed))), journal: Arc::clone(&journal) };
    let call = |id: &str, tool: &str| ToolboxCall::new(id, tool, Arguments::new());
    let mut first = toolbox.call(call("1", "add"));
    let waiting = tokio::time::timeout(Duration::from_millis(200), &mut first).await;
    assert!(waiting.is_err());
    let open = store.conversation_runs().tool_executions("r").await.unwrap();
    assert_eq!((open.len(), &open[0].output, open[0].turn), (1, &None, 1));
    assert_eq!(stored::read_turn(&store.conversation_runs().turns_of("r").await.unwrap()[0].message), Ok(turn));
    let so_far = RunUsage { turns: 1, tool_calls: 1, ..used };
    let rows = store.conversation_logs().usage_of_run("r").await.unwrap();
    let (agent, provider, model) = ("main".into(), "openai".into(), "m".into());
    assert_eq!(rows, [ModelUsageRow { agent, provider, model, used: so_far }]);
    allowed.notify_one();
    first.await;
    allowed.notify_one();
    toolbox.call(call("2", "fail")).await;
    journal.settle().await;
    let calls = store.conversation_runs().tool_executions("r").await.unwrap();
    let texts: Vec<_> = calls.iter().map(|call| message_of(call, call.output.as_ref().unwrap()).text).collect();
    assert_eq!(texts, ["thre", "Error: thre"]);
    assert_eq!(store.conversation_runs().turns_of("r").await.unwrap().len(), 1);

    // A run that lost the lock, since its process was suspended, sends nothing more.
    store.conversations().unlock(&lock).await.unwrap();
    let later = store.conversations().lock("c", None).await.unwrap();
    assert!(later.is_some());
    let refused = toolbox.call(call("3", "add")).await;
    assert!(!refused.success && refused.text.contains("another run"), "{refused:?}");
    assert_eq!(store.conversation_runs().tool_executions("r").await.unwrap().len(), 2);
    journal.observer().observe(AssistantTurn::new("more", []));
    assert!(!toolbox.call(call("4", "add")).await.success);
    assert_eq!(store.conversation_runs().turns_of("r").await.unwrap().len(), 1);
}

/// Refuses a call until it is made by its approval.
struct Approved;

impl Toolbox for Approved {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        let success = call.on_approval != OnApproval::Pause;
        let approval = json!({"id": "p", "expires_at": "", "url": ""});
        let error_info = (!success).then(|| json!({"code": "approval_required", "approval": approval}));
        Box::pin(async move { ToolAnswer { success, text: "three".into(), error_info, images: Vec::new() } })
    }
}

#[tokio::test]
async fn a_call_for_which_its_run_pauses_has_not_ended_and_a_later_run_makes_the_same_call() {
    let store = test_store().await;
    let lock = locked(&store).await;
    let budgets = Arc::new(Budgets::new(&BudgetConfig::default()));
    let journal = |run: &str| {
        let charges = DeferredCharges::new(&budgets, &store, run);
        Journal::new(store.clone(), lock.clone(), (run, "main"), (UsageByAgent::default(), charges), 100)
    };
    let make = async |journal: &Arc<Journal>, on_approval| {
        let toolbox = Journaled { toolbox: Arc::new(Approved), journal: Arc::clone(journal) };
        toolbox.call(ToolboxCall { on_approval, ..ToolboxCall::new("1", "add", Arguments::new()) }).await
    };
    make(&journal("r"), OnApproval::Pause).await;
    let [paused] = &store.conversation_runs().tool_executions("r").await.unwrap()[..] else { panic!() };
    assert!(paused.output.as_ref().is_some_and(|output| output.is_error) && paused.ended.is_none(), "{paused:?}");
    let later = journal("s");
    let call =
        RequestedCall { approval: Some("p".into()), ..RequestedCall::new("1".into(), "add".into(), "{}".into()) };
    later.resume(&OpenCall { run: "r".into(), call });
    make(&later, OnApproval::Resume("p".into())).await;
    let [made] = &store.conversation_runs().tool_executions("r").await.unwrap()[..] else { panic!() };
    assert!(made.output.as_ref().is_some_and(|output| !output.is_error) && made.ended.is_some(), "{made:?}");
    assert!(store.conversation_runs().tool_executions("s").await.unwrap().is_empty());
    later.settle().await;
}

async fn locked(store: &Store) -> ConversationLock {
    store.conversations().add(&conversation("c", "ann"), 1).await.unwrap();
    store.conversations().lock("c", None).await.unwrap().unwrap()
}
