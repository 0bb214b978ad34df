//! Writes of a holder that loses its right to them meanwhile.

use std::pin::pin;

use super::super::test_support::{conversation, test_store};
use super::super::*;

/// How long a write is seen to wait.
const WAIT: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum Write {
    Turn,
    ToolCall,
    Run,
    PartOfProgramRun,
    Workspace,
    Plan,
}

const ALL: [Write; 6] =
    [Write::Turn, Write::ToolCall, Write::Run, Write::PartOfProgramRun, Write::Workspace, Write::Plan];

/// The rights of the earlier holder.
struct Held {
    conversation: ConversationLock,
    workspace: WorkspaceLock,
    plan: PlanLease,
    program_run: ProgramRunLease,
}

impl Write {
    /// As the next holder takes the right, also one of the version before or of the next one.
    fn next_holders(self) -> &'static [&'static str] {
        const IN_WORK: &str = "UPDATE work SET fence = fence + 1, holder = 'next'";
        match self {
            Self::Turn | Self::ToolCall | Self::Run => {
                &[IN_WORK, "UPDATE conversations SET fence = fence + 1, holder = 'next'"]
            }
            Self::PartOfProgramRun => &[IN_WORK, "UPDATE program_runs SET fence = fence + 1, runner = 'next'"],
            Self::Workspace => &[IN_WORK, "UPDATE workspaces SET fence = fence + 1, holder = 'next'"],
            Self::Plan => &[IN_WORK, "UPDATE plans SET holder = 'next'"],
        }
    }

    /// Whether the earlier holder still writes it.
    async fn is_stored(self, store: &Store, held: &Held) -> bool {
        let (runs, lock) = (store.conversation_runs(), &held.conversation);
        match self {
            Self::Turn => runs.add_turn(lock, "r", &TurnMessage { turn: 1, message: "{}".into() }).await.unwrap(),
            Self::ToolCall => {
                let execution = ToolExecution {
                    tool_use_id: "x".into(),
                    position: 0,
                    turn: 1,
                    tool_name: "add".into(),
                    tool_input: "{}".into(),
                    output: None,
                    begun: store.now(),
                    ended: None,
                };
                runs.begin_tool_execution(lock, "r", &execution, Used::default()).await.unwrap().is_some()
            }
            Self::Run => runs.begin(lock, &mut run("s", store)).await.unwrap(),
            Self::PartOfProgramRun => store.program_runs().add_part(&held.program_run, 1, "second").await.unwrap(),
            Self::Workspace => store.workspaces().save(&held.workspace, "v", "{}").await.unwrap(),
            Self::Plan => store.plans().save(&held.plan, ("paused", "{}"), &[], store.now()).await.unwrap().is_some(),
        }
    }
}

fn run(id: &str, store: &Store) -> ConversationRun {
    ConversationRun {
        id: id.into(),
        conversation: "c".into(),
        number: 0,
        session_id: "s".into(),
        agent: "default".into(),
        claimed_executor: None,
        user_input: "hello".into(),
        status: RunStatus::Running,
        error: None,
        begun: store.now(),
        ended: None,
    }
}

fn plan(store: &Store) -> StoredPlan {
    StoredPlan {
        id: "p".into(),
        caller_key: "ann".into(),
        agent: "default".into(),
        session: None,
        status: "running".into(),
        is_interrupted: false,
        created: store.now(),
        changed: store.now(),
        state: "{}".into(),
    }
}

/// Of a conversation with a run, a run of a program, a workspace, and a plan.
async fn held(store: &Store) -> Held {
    store.conversations().add(&conversation("c", "ann"), 9).await.unwrap();
    let conversation = store.conversations().lock("c", None).await.unwrap().unwrap();
    assert!(store.conversation_runs().begin(&conversation, &mut run("r", store)).await.unwrap());
    let owner = ProgramRunOwner { tenant: "acme", caller_key: "ann", endpoint: "all" };
    let new = NewProgramRun { id: "p", owner, arguments: "a", replica: Some("one"), part: "first" };
    let program_run = store.program_runs().begin(new).await.unwrap();
    let workspace = store.workspaces().lock("w", "one").await.unwrap().unwrap();
    let plan = store.plans().add(&plan(store), None).await.unwrap();
    Held { conversation, workspace, plan, program_run }
}

/// On PostgreSQL by two connections: a write that read the earlier row would be stored after the next holder has read.
#[tokio::test]
async fn a_write_waits_for_the_next_holder_and_is_refused() {
    for write in ALL {
        for next_holder in write.next_holders() {
            let store = test_store().await;
            let held = held(&store).await;
            let mut taking = store.pool.begin().await.unwrap();
            sqlx::query(*next_holder).execute(&mut *taking).await.unwrap();
            let mut stored = pin!(write.is_stored(&store, &held));
            let waits = tokio::time::timeout(WAIT, stored.as_mut()).await.is_err();
            assert!(waits, "{write:?} does not wait: {next_holder}");
            taking.commit().await.unwrap();
            assert!(!stored.await, "{write:?}: {next_holder}");
        }
    }
}

#[tokio::test]
async fn the_holder_writes() {
    for write in ALL {
        let store = test_store().await;
        let held = held(&store).await;
        assert!(write.is_stored(&store, &held).await, "{write:?}");
    }
}
