//! What was registered over HTTP and survives a restart: OpenAPI collections and MCP servers.

use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Database};

use super::{Store, StoreError};

/// A kind of registration, with a table of its own: names of one are no names of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registrations {
    Collections,
    McpServers,
}

impl Registrations {
    fn table(self) -> &'static str {
        match self {
            Self::Collections => "openapi_collections",
            Self::McpServers => "mcp_servers",
        }
    }
}

impl Store {
    /// All registrations of a kind, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn registrations(&self, of: Registrations) -> Result<Vec<(String, String)>, StoreError> {
        let sql = format!("SELECT name, registration FROM {} ORDER BY name", of.table());
        sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&self.pool).await.map_err(|error| self.failed(error))
    }

    /// Keeps a registration, in the place of an earlier one of that name.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn keep_registration(&self, of: Registrations, name: &str, registration: &str) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO {} (name, registration) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET registration = excluded.registration",
            of.table()
        );
        self.change_shared(sqlx::query(AssertSqlSafe(sql)).bind(name).bind(registration)).await.map(drop)
    }

    /// Removes a registration, if there is one.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn forget_registration(&self, of: Registrations, name: &str) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM {} WHERE name = $1", of.table());
        self.change_shared(sqlx::query(AssertSqlSafe(sql)).bind(name)).await.map(drop)
    }

    /// A number that grows with each change of registrations and resources, by whatever process.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn registrations_version(&self) -> Result<i64, StoreError> {
        let version = sqlx::query_scalar("SELECT version FROM shared_versions WHERE subject = 'registrations'");
        let version: Option<i64> = version.fetch_optional(&self.pool).await.map_err(|error| self.failed(error))?;
        Ok(version.unwrap_or(0))
    }

    /// Runs a statement that changes registrations or resources, and lets other replicas know. How many rows it changed.
    pub(super) async fn change_shared(
        &self,
        statement: Query<'_, Any, <Any as Database>::Arguments>,
    ) -> Result<u64, StoreError> {
        let failed = |error| self.failed(error);
        let mut transaction = self.pool.begin_with(self.engine.begin_statement()).await.map_err(failed)?;
        let changed = statement.execute(&mut *transaction).await.map_err(failed)?;
        self.count_change(&mut transaction, "registrations").await?;
        transaction.commit().await.map_err(failed)?;
        Ok(changed.rows_affected())
    }

    /// Gives a subject of `shared_versions` its next version, in the transaction of the change.
    pub(super) async fn count_change(&self, transaction: &mut AnyConnection, subject: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO shared_versions (subject, version) VALUES ($1, 1)
             ON CONFLICT (subject) DO UPDATE SET version = shared_versions.version + 1",
        )
        .bind(subject)
        .execute(transaction)
        .await
        .map(drop)
        .map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::Registrations::{Collections, McpServers};
    use super::*;
    use crate::infra::store::ResourceKind;
    use crate::infra::store::test_support::{fill_the_disk, free_disk, test_store};

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[tokio::test]
    async fn registrations_survive_a_restart_are_replaced_and_forgotten_each_kind_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let store = Store::open_file(&path).await.unwrap();
        for (of, name, registration) in [
            (Collections, "pets", "1"),
            (McpServers, "time", "2"),
            (Collections, "cars", "3"),
            (McpServers, "pets", "4"),
            (Collections, "pets", "5"),
        ] {
            store.keep_registration(of, name, registration).await.unwrap();
        }
        store.close().await;
        let store = Store::open_file(&path).await.unwrap();
        assert_eq!(store.registrations(Collections).await.unwrap(), pairs(&[("cars", "3"), ("pets", "5")]));
        assert_eq!(store.registrations(McpServers).await.unwrap(), pairs(&[("pets", "4"), ("time", "2")]));
        store.forget_registration(Collections, "pets").await.unwrap();
        store.forget_registration(Collections, "nobody").await.unwrap();
        assert_eq!(store.registrations(Collections).await.unwrap(), pairs(&[("cars", "3")]));
        assert_eq!(store.registrations(McpServers).await.unwrap(), pairs(&[("pets", "4"), ("time", "2")]));
    }

    #[tokio::test]
    async fn each_change_has_a_version_of_its_own() {
        let store = test_store().await;
        assert_eq!(store.registrations_version().await.unwrap(), 0);
        store.keep_registration(Collections, "pets", "1").await.unwrap();
        store.forget_registration(McpServers, "pets").await.unwrap();
        assert_eq!(store.registrations_version().await.unwrap(), 2);
        assert!(store.add_resource(ResourceKind::Tenant, "acme", "{}").await.unwrap());
        assert_eq!(store.registrations_version().await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_full_disk_keeps_what_was_registered() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        store.keep_registration(Collections, "pets", "1").await.unwrap();
        fill_the_disk(&store).await;
        let error = store.keep_registration(Collections, "pets", &"x".repeat(100_000)).await.unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        free_disk(&store).await;
        assert_eq!(store.registrations(Collections).await.unwrap(), pairs(&[("pets", "1")]));
    }
}
