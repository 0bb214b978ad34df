//! MCP servers registered over HTTP, which survive a restart.

use super::{Store, StoreError};

/// `registration` is JSON; where a credential belongs it has the name of one.
pub(super) const SCHEMA: &str = "
    CREATE TABLE mcp_servers (
        name         TEXT NOT NULL PRIMARY KEY,
        registration TEXT NOT NULL
    )";

impl Store {
    /// All registrations, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn mcp_servers(&self) -> Result<Vec<(String, String)>, StoreError> {
        sqlx::query_as("SELECT name, registration FROM mcp_servers ORDER BY name")
            .fetch_all(&self.pool)
            .await
            .map_err(|error| self.failed(error))
    }

    /// Keeps a registration, in the place of an earlier one of that name.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn keep_mcp_server(&self, name: &str, registration: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO mcp_servers (name, registration) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET registration = excluded.registration",
        )
        .bind(name)
        .bind(registration)
        .execute(&self.pool)
        .await
        .map(drop)
        .map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn registrations_survive_a_restart_and_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let store = Store::open(&path).await.unwrap();
        for (name, registration) in [("docs", "1"), ("time", "2"), ("docs", "3")] {
            store.keep_mcp_server(name, registration).await.unwrap();
        }
        store.close().await;
        let kept = Store::open(&path).await.unwrap().mcp_servers().await.unwrap();
        assert_eq!(kept, [("docs".to_owned(), "3".to_owned()), ("time".to_owned(), "2".to_owned())]);
    }
}
