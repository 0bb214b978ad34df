//! The titles that models make of conversations after their runs.

use super::conversation_journal::Used;
use super::conversation_runs::add_usage;
use super::text::storable;
use super::{AtStore, ConversationRunStore, DailyUsage, StoreError, retried};

/// A title that is made after the end of a run, with the usage of the run and of its making.
#[derive(Debug, Clone, Copy)]
pub struct LaterTitle<'a> {
    pub run: &'a str,
    pub conversation: &'a str,
    /// The title that the end of the run stored; another one is kept.
    pub first: Option<&'a str>,
    /// `None` if none could be made.
    pub made: Option<&'a str>,
    pub used: Used<'a>,
}

impl ConversationRunStore {
    /// Stores a title, the usage, and the charges, whose new totals are returned. Of a run that was deleted, only the charges are
    /// stored.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn add_title(&self, title: &LaterTitle<'_>) -> Result<Vec<DailyUsage>, StoreError> {
        retried(|| self.try_add_title(title)).await
    }

    async fn try_add_title(&self, title: &LaterTitle<'_>) -> Result<Vec<DailyUsage>, StoreError> {
        let mut transaction = self.0.begin().await?;
        let sql = "UPDATE conversations SET title = COALESCE($3, title) WHERE id = $1 AND COALESCE(title, '') = COALESCE($2, '')";
        bound!(sqlx::query(sql), title.conversation, title.first.map(storable), title.made.map(storable))
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        let run = sqlx::query("SELECT 1 FROM conversation_runs WHERE id = $1")
            .bind(title.run)
            .fetch_optional(&mut *transaction)
            .await
            .at(&self.0)?;
        if run.is_some() {
            add_usage(&mut transaction, title.run, title.used.rows).await.at(&self.0)?;
        }
        let totals = self.0.charges().add_within(&mut transaction, title.used.charges).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{conversation, test_store};
    use crate::{Conversation, ConversationRun, ModelUsageRow, RunStatus};
    use sekisho_core::record::RunUsage;

    #[tokio::test]
    async fn a_title_takes_the_place_of_the_first_one_and_of_no_other() {
        let store = test_store().await;
        let (agent, provider, model) = ("a".into(), "openai".into(), "m".into());
        let rows = [ModelUsageRow { agent, provider, model, used: RunUsage::default() }];
        let used = Used { rows: &rows, charges: &[] };
        for (id, title, made, expected) in [
            ("a", Some("Hello"), Some("A greeting"), Some("A greeting")),
            ("b", Some("Mine"), Some("A greeting"), Some("Mine")),
            ("c", Some("Hello"), None, Some("Hello")),
        ] {
            let titled = Conversation { title: title.map(str::to_owned), ..conversation(id, "ann") };
            store.conversations().add(&titled, 10).await.unwrap();
            let later = LaterTitle { run: "none", conversation: id, first: Some("Hello"), made, used };
            store.conversation_runs().add_title(&later).await.unwrap();
            let found = store.conversations().get("ann", id).await.unwrap().unwrap();
            assert_eq!(found.title.as_deref(), expected, "{id}");
        }
        let logged = async || {
            let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM usage_logs").fetch_one(&store.pool).await.unwrap();
            rows
        };
        assert_eq!(logged().await, 0, "the run was deleted");
        let begun = store.now();
        let mut run = ConversationRun {
            id: "r".into(),
            conversation: "d".into(),
            number: 1,
            session_id: "s".into(),
            agent: "a".into(),
            claimed_executor: None,
            user_input: "".into(),
            status: RunStatus::Running,
            error: None,
            begun,
            ended: None,
        };
        store.conversations().add(&conversation("d", "ann"), 10).await.unwrap();
        let lock = store.conversations().lock("d", None).await.unwrap();
        assert!(store.conversation_runs().begin(&lock.unwrap(), &mut run).await.unwrap());
        let later = LaterTitle { run: "r", conversation: "d", first: None, made: Some("Without input"), used };
        store.conversation_runs().add_title(&later).await.unwrap();
        let found = store.conversations().get("ann", "d").await.unwrap().unwrap();
        assert_eq!((found.title.as_deref(), logged().await), (Some("Without input"), 1));
    }
}
