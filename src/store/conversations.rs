//! Conversations with agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};

use super::text::storable;
use super::work::CONVERSATION;
use super::{AtStore, Store, StoreError};
use sekisho_config::ProfilePrompt;
use sekisho_core::database_clock::DatabaseTime;

/// A conversation of one caller, whose runs continue each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    pub id: String,
    pub caller_key: Arc<str>,
    /// `None`: the first run that succeeds sets it.
    pub title: Option<String>,
    pub status: ConversationStatus,
    /// The profile's name.
    pub agent: String,
    /// The session whose messages the next run continues; `None`: it begins a new one.
    pub session_id: Option<String>,
    /// Whether runs know of the session's files.
    pub workspace: bool,
    pub labels: BTreeMap<String, String>,
    pub created: DatabaseTime,
    /// When it was last changed, or a run ended.
    pub changed: DatabaseTime,
    /// Of a conversation that was branched from a run.
    pub branch: Option<Branch>,
}

/// The run that a conversation was branched from, and what differs from the profile since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// The id of the run.
    pub run: String,
    /// The name of the profile or model whose model answers.
    pub model: Option<String>,
    /// In place of the profile's.
    pub prompt: Option<ProfilePrompt>,
}

/// The changes of a conversation; a field with `None` stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationChange {
    pub title: Option<Option<String>>,
    pub status: Option<ConversationStatus>,
    pub agent: Option<String>,
    pub session_id: Option<Option<String>>,
    pub workspace: Option<bool>,
    pub labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum ConversationStatus {
    Active,
    /// No run begins.
    Inactive,
}

sekisho_core::as_str!(ConversationStatus);

const COLUMNS: &str = "id, caller_key, title, status, agent, session_id, workspace, labels, created, changed, branch";

/// Conversations: the table `conversations`. The holders of their locks are in `work`. Deletion and fork also write the tables of their runs.
#[derive(Debug, Clone)]
pub struct ConversationStore(pub(super) Store);

impl ConversationStore {
    /// Adds a conversation, unless its caller has `max` of them: false then. On PostgreSQL, requests at the same moment
    /// may exceed the maximum.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn add(&self, conversation: &Conversation, max: u32) -> Result<bool, StoreError> {
        let mut connection = self.0.pool.acquire().await.at(&self.0)?;
        insert(&mut connection, conversation, max).await.at(&self.0)
    }

    /// A conversation of a caller.
    pub async fn get(&self, caller_key: &str, id: &str) -> Result<Option<Conversation>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM conversations WHERE caller_key = $1 AND id = $2");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(caller_key).bind(id).fetch_optional(&self.0.pool).await;
        row.at(&self.0)?.map(|row| self.conversation_of(&row)).transpose()
    }

    /// A caller's conversations, the one created last first, at most `max` that were created before the one with the id
    /// `before`. Ids are in the order of creation.
    pub async fn of_caller(
        &self,
        caller_key: &str,
        before: Option<&str>,
        max: u32,
    ) -> Result<Vec<Conversation>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM conversations WHERE caller_key = $1 AND (id < $2 OR $2 IS NULL) ORDER BY id DESC LIMIT $3"
        );
        let rows = bound!(sqlx::query(AssertSqlSafe(sql)), caller_key, before, i64::from(max))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.iter().map(|row| self.conversation_of(row)).collect()
    }

    /// The caller's conversation that changed the longest ago, of those with exactly these labels and without a run.
    pub async fn oldest(
        &self,
        caller_key: &str,
        of_labels: &BTreeMap<String, String>,
    ) -> Result<Option<String>, StoreError> {
        let sql = format!(
            "SELECT id FROM conversations WHERE caller_key = $1 AND labels = $2 AND {} ORDER BY changed, id LIMIT 1",
            CONVERSATION.is_free(self.0.engine, "conversations")
        );
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(caller_key).bind(labels(of_labels));
        found.fetch_optional(&self.0.pool).await.at(&self.0)
    }

    /// Changes a conversation. False when there is none any more, or its session is to change while a run is on, which would
    /// set it at its end.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn change(&self, id: &str, change: &ConversationChange, now: DatabaseTime) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE conversations SET title = CASE WHEN $2 = 1 THEN $3 ELSE title END, status = COALESCE($4, status),
                agent = COALESCE($5, agent), session_id = CASE WHEN $6 = 1 THEN $7 ELSE session_id END,
                workspace = COALESCE($8, workspace), labels = COALESCE($9, labels), changed = $10
             WHERE id = $1 AND ($6 = 0 OR {})",
            CONVERSATION.is_free(self.0.engine, "conversations")
        );
        let changed = sqlx::query(AssertSqlSafe(sql))
            .bind(id)
            .bind(i64::from(change.title.is_some()))
            .bind(change.title.as_ref().and_then(|title| title.as_deref().map(storable)))
            .bind(change.status.map(ConversationStatus::as_str))
            .bind(&change.agent)
            .bind(i64::from(change.session_id.is_some()))
            .bind(change.session_id.clone().flatten())
            .bind(change.workspace.map(i64::from))
            .bind(change.labels.as_ref().map(labels))
            .bind(now.as_microsecond())
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(changed.rows_affected() > 0)
    }

    fn conversation_of(&self, row: &AnyRow) -> Result<Conversation, StoreError> {
        let read = || -> sqlx::Result<_> {
            let texts: (String, String, String, String) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?, row.try_get(4)?);
            let options: (Option<String>, Option<String>) = (row.try_get(2)?, row.try_get(5)?);
            let rest: (i64, String, i64, i64) = (row.try_get(6)?, row.try_get(7)?, row.try_get(8)?, row.try_get(9)?);
            Ok((texts, options, rest, row.try_get::<Option<String>, _>(10)?))
        };
        let ((id, caller_key, status, agent), (title, session_id), (workspace, labels, created, changed), branch) =
            read().at(&self.0)?;
        let branch = branch.as_deref().map(serde_json::from_str::<Branch>).transpose();
        let status =
            status.parse().map_err(|_| self.0.damaged(format!("the status of a conversation is {status:?}")))?;
        Ok(Conversation {
            id,
            caller_key: caller_key.into(),
            title,
            status,
            agent,
            session_id,
            workspace: workspace != 0,
            labels: serde_json::from_str(&labels)
                .map_err(|problem| self.0.damaged(format!("labels of a conversation: {problem}")))?,
            created: self.0.moment(created)?,
            changed: self.0.moment(changed)?,
            branch: branch.map_err(|problem| self.0.damaged(format!("the branch of a conversation: {problem}")))?,
        })
    }
}

/// False, and nothing is inserted, if the caller has `max` conversations.
pub(super) async fn insert(
    connection: &mut AnyConnection,
    conversation: &Conversation,
    max: u32,
) -> sqlx::Result<bool> {
    let sql = format!(
        "INSERT INTO conversations ({COLUMNS}, fence, held_until, stop_fence)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, 0, -1
         WHERE (SELECT COUNT(*) FROM conversations WHERE caller_key = $2) < $12"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(&conversation.id)
        .bind(&*conversation.caller_key)
        .bind(conversation.title.as_deref().map(storable))
        .bind(conversation.status.as_str())
        .bind(&conversation.agent)
        .bind(&conversation.session_id)
        .bind(i64::from(conversation.workspace))
        .bind(labels(&conversation.labels))
        .bind(conversation.created.as_microsecond())
        .bind(conversation.changed.as_microsecond())
        .bind(conversation.branch.as_ref().map(|branch| json!(branch).to_string()))
        .bind(i64::from(max))
        .execute(connection)
        .await
        .map(|inserted| inserted.rows_affected() > 0)
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let labels = labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    Value::Object(labels.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::test_support::{conversation_created as conversation, end_leases, test_store};

    #[tokio::test]
    async fn a_conversation_is_its_callers_alone_and_can_be_changed() {
        let store = test_store().await;
        let first = conversation("a", "ann", 1);
        for conversation in [first.clone(), conversation("b", "ann", 2), conversation("c", "bob", 3)] {
            store.conversations().add(&conversation, 10).await.unwrap();
        }
        assert_eq!(store.conversations().get("ann", "a").await.unwrap(), Some(first.clone()));
        assert_eq!(store.conversations().get("bob", "a").await.unwrap(), None);
        let ids = async |before: Option<&str>, max| {
            let found = store.conversations().of_caller("ann", before, max).await.unwrap();
            found.into_iter().map(|conversation| conversation.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(None, 10).await, ["b", "a"]);
        assert_eq!(ids(None, 1).await, ["b"]);
        assert_eq!(ids(Some("b"), 10).await, ["a"]);
        let change = ConversationChange {
            title: Some(Some("a title".into())),
            status: Some(ConversationStatus::Inactive),
            session_id: Some(Some("s".into())),
            workspace: Some(true),
            labels: Some(BTreeMap::new()),
            ..ConversationChange::default()
        };
        let now = DatabaseTime::from(Timestamp::from_second(9).unwrap());
        assert!(store.conversations().change("a", &change, now).await.unwrap());
        let changed = Conversation {
            title: Some("a title".into()),
            status: ConversationStatus::Inactive,
            session_id: Some("s".into()),
            workspace: true,
            labels: BTreeMap::new(),
            changed: now,
            ..first
        };
        assert_eq!(store.conversations().get("ann", "a").await.unwrap(), Some(changed.clone()));
        let reset = ConversationChange { title: Some(None), session_id: Some(None), ..ConversationChange::default() };
        assert!(store.conversations().change("a", &reset, now).await.unwrap());
        let changed = Conversation { title: None, session_id: None, ..changed };
        assert_eq!(store.conversations().get("ann", "a").await.unwrap(), Some(changed));
        assert!(!store.conversations().change("none", &reset, now).await.unwrap());
    }

    #[tokio::test]
    async fn the_session_of_a_conversation_does_not_change_while_a_run_is_on() {
        let store = test_store().await;
        store.conversations().add(&conversation("a", "ann", 1), 10).await.unwrap();
        let now = DatabaseTime::from(Timestamp::from_second(100).unwrap());
        store.conversations().lock("a", None).await.unwrap().unwrap();
        let reset = ConversationChange { session_id: Some(None), ..ConversationChange::default() };
        assert!(!store.conversations().change("a", &reset, now).await.unwrap());
        let name = ConversationChange { title: Some(Some("t".into())), ..ConversationChange::default() };
        assert!(store.conversations().change("a", &name, now).await.unwrap());
        end_leases(&store).await;
        assert!(store.conversations().change("a", &reset, now).await.unwrap());
    }

    #[tokio::test]
    async fn a_caller_has_at_most_so_many_conversations() {
        let store = test_store().await;
        let add = async |id: &str, key: &str| store.conversations().add(&conversation(id, key, 1), 2).await.unwrap();
        assert_eq!((add("a", "ann").await, add("b", "ann").await, add("c", "ann").await), (true, true, false));
        assert_eq!((add("d", "bob").await, store.conversations().get("ann", "c").await.unwrap()), (true, None));
    }

    #[tokio::test]
    async fn the_oldest_conversation_with_certain_labels_and_no_run_is_found() {
        let store = test_store().await;
        let of_chat = BTreeMap::from([("api".to_owned(), "chat".to_owned())]);
        for (id, key, changed, labels) in [
            ("a", "ann", 1, BTreeMap::new()),
            ("b", "ann", 3, of_chat.clone()),
            ("c", "ann", 2, of_chat.clone()),
            ("d", "bob", 1, of_chat.clone()),
        ] {
            let conversation = Conversation { labels, ..conversation(id, key, changed) };
            assert!(store.conversations().add(&conversation, 10).await.unwrap());
        }
        let oldest = async |key| store.conversations().oldest(key, &of_chat).await.unwrap();
        assert_eq!((oldest("ann").await.as_deref(), oldest("eve").await), (Some("c"), None));
        store.conversations().lock("c", None).await.unwrap().unwrap();
        assert_eq!(oldest("ann").await.as_deref(), Some("b"));
    }
}
