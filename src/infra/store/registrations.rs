//! What was registered over HTTP and survives a restart: OpenAPI collections and MCP servers.

use sqlx::AssertSqlSafe;

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
        let kept = sqlx::query(AssertSqlSafe(sql)).bind(name).bind(registration).execute(&self.pool).await;
        kept.map(drop).map_err(|error| self.failed(error))
    }

    /// Removes a registration, if there is one.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn forget_registration(&self, of: Registrations, name: &str) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM {} WHERE name = $1", of.table());
        let forgotten = sqlx::query(AssertSqlSafe(sql)).bind(name).execute(&self.pool).await;
        forgotten.map(drop).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::Registrations::{Collections, McpServers};
    use super::*;
    use crate::infra::store::test_support::{fill_the_disk, free_disk};

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
