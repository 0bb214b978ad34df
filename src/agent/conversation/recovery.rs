//! The ends of runs whose processes ended before them: written from the journal.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::history::{self, History};
use super::{finish, resume, session, stored};
use crate::{Message, plan};
use sekisho_calls::budget::Budgets;
use sekisho_core::error::CallError;
use sekisho_store::{ConversationLock, ConversationRun, RunEnd, RunStatus, Store, StoredError, Used};

/// Interval of searches: another process of a database may have ended.
const INTERVAL: Duration = Duration::from_secs(60);

/// No call lasts so long: a reservation that is older belongs to a call whose process was killed after the run's end.
const MAX_RESERVATION: SignedDuration = SignedDuration::from_hours(24);

/// Characters of stored messages that are read for the end of a run: its last turn has fewer.
const READ_CHARACTERS: u64 = 16 << 20;

pub(super) async fn keep_recovering(store: Store, budgets: Arc<Budgets>) {
    loop {
        match store.conversation_runs().interrupted().await {
            Ok(runs) => end_each(&store, &budgets, runs).await,
            Err(error) => tracing::warn!(%error, "the interrupted runs could not be read"),
        }
        if let Err(error) = charge_plans(&store, &budgets).await {
            tracing::warn!(cause = error.cause(), "what interrupted plans had reserved could not be charged");
        }
        match store.charges().charge_reserved_before(store.now().earlier(MAX_RESERVATION)).await {
            Ok(totals) => budgets.learn(&totals),
            Err(error) => tracing::warn!(%error, "old reservations could not be charged"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn charge_plans(store: &Store, budgets: &Budgets) -> Result<(), CallError> {
    for found in store.plans().with_reservations().await.map_err(CallError::from)? {
        plan::charge_interrupted(store, budgets, &found).await?;
    }
    Ok(())
}

/// A run that cannot be written, such as one with messages of a newer program, does not keep the others back.
async fn end_each(store: &Store, budgets: &Budgets, runs: Vec<ConversationRun>) {
    for run in runs {
        let id = run.id.clone();
        if let Err(error) = end(store, budgets, run, None).await {
            tracing::warn!(cause = error.cause(), run = id, "the end of an interrupted run could not be written");
        }
    }
}

/// Writes the end of each run of a locked conversation that seems to run.
/// Errors: `internal`: the store cannot be used, or has messages of a newer program.
pub(super) async fn recover(store: &Store, budgets: &Budgets, lock: &ConversationLock) -> Result<(), CallError> {
    for run in store.conversation_runs().interrupted_in(lock).await.map_err(CallError::from)? {
        end(store, budgets, run, Some(lock)).await?;
    }
    Ok(())
}

async fn end(
    store: &Store,
    budgets: &Budgets,
    mut run: ConversationRun,
    lock: Option<&ConversationLock>,
) -> Result<(), CallError> {
    // The last turn may have calls without answers.
    let before =
        store.conversation_logs().session_messages(&run.conversation, &run.session_id, None, READ_CHARACTERS).await;
    let History { open, .. } = History::of(session::said(&before.map_err(CallError::from)?.messages)?);
    let input = finish::said(&run);
    let answers = resume::known_answers(store, &open, input.is_some()).await?;
    let added = completed(store, &run.id, Vec::new()).await?;
    let messages = answers.into_iter().map(Message::Tool).chain(input).chain(added);
    let messages: Vec<_> = messages.map(|message| stored::write(&message)).collect();
    run.status = RunStatus::Interrupted;
    run.end_at(store.now());
    let message = "the gateway's process ended before the run did".to_owned();
    run.error = Some(StoredError { code: RunStatus::Interrupted.as_str().to_owned(), message });
    let end = RunEnd { run: &run, lock, keeps_lock: true, messages: &messages, title: None, used: Used::default() };
    if let Some(totals) = store.conversation_runs().end(&end).await.map_err(CallError::from)? {
        budgets.learn(&totals);
        tracing::warn!(
            run = run.id,
            conversation = run.conversation,
            "a run was interrupted; its answered calls are kept"
        );
    }
    Ok(())
}

/// The messages that an unfinished run added to its conversation: those that the loop reports, and further ones that
/// the journal has.
/// Errors: as [`recover`].
pub(super) async fn completed(store: &Store, run: &str, reported: Vec<Message>) -> Result<Vec<Message>, CallError> {
    let turns = store.conversation_runs().turns_of(run).await.map_err(CallError::from)?;
    let executions = store.conversation_runs().tool_executions(run).await.map_err(CallError::from)?;
    history::of_unfinished_run(reported, &turns, &executions).map_err(CallError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::BudgetConfig;
    use sekisho_store::TurnMessage;
    use sekisho_store::test_support::{conversation, test_store};

    #[tokio::test]
    async fn a_run_that_cannot_be_read_does_not_keep_the_others_back() {
        let store = test_store().await;
        let begun = store.now();
        for id in ["a", "b", "c"] {
            store.conversations().add(&conversation(id, "ann"), 9).await.unwrap();
            let lock = store.conversations().lock(id, None).await.unwrap().unwrap();
            let mut run = ConversationRun {
                id: id.into(),
                conversation: id.into(),
                number: 1,
                session_id: "s".into(),
                agent: "default".into(),
                claimed_executor: None,
                user_input: "hello".into(),
                status: RunStatus::Running,
                error: None,
                begun,
                ended: None,
            };
            assert!(store.conversation_runs().begin(&lock, &mut run).await.unwrap());
            if id == "b" {
                let turn = TurnMessage { turn: 1, message: r#"{"version": 99}"#.into() };
                assert!(store.conversation_runs().add_turn(&lock, id, &turn).await.unwrap());
            }
            store.conversations().unlock(&lock).await.unwrap();
        }
        let runs = store.conversation_runs().interrupted().await.unwrap();
        end_each(&store, &Budgets::new(&BudgetConfig::default()), runs).await;
        let status = async |id| store.conversation_runs().get("ann", id).await.unwrap().unwrap().status;
        let all = [status("a").await, status("b").await, status("c").await];
        assert_eq!(all, [RunStatus::Interrupted, RunStatus::Running, RunStatus::Interrupted]);
    }
}
