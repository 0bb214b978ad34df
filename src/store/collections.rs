//! OpenAPI collections registered over HTTP, which survive a restart.

use super::{Store, StoreError};

/// `registration` is JSON; where a credential belongs it has the name of one.
pub(super) const SCHEMA: &str = "
    CREATE TABLE openapi_collections (
        name         TEXT NOT NULL PRIMARY KEY,
        registration TEXT NOT NULL
    )";

impl Store {
    /// All registrations, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn collections(&self) -> Result<Vec<(String, String)>, StoreError> {
        sqlx::query_as("SELECT name, registration FROM openapi_collections ORDER BY name")
            .fetch_all(&self.pool)
            .await
            .map_err(|error| self.failed(error))
    }

    /// Keeps a registration, in the place of an earlier one of that name.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn keep_collection(&self, name: &str, registration: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO openapi_collections (name, registration) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET registration = excluded.registration",
        )
        .bind(name)
        .bind(registration)
        .execute(&self.pool)
        .await
        .map(drop)
        .map_err(|error| self.failed(error))
    }

    /// Removes a registration, if there is one.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn forget_collection(&self, name: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM openapi_collections WHERE name = $1")
            .bind(name)
            .execute(&self.pool)
            .await
            .map(drop)
            .map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{fill_the_disk, make_room_on_disk};

    #[tokio::test]
    async fn registrations_survive_a_restart_are_replaced_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let store = Store::open(&path).await.unwrap();
        for (name, registration) in [("pets", "1"), ("cars", "2"), ("pets", "3")] {
            store.keep_collection(name, registration).await.unwrap();
        }
        store.close().await;
        let store = Store::open(&path).await.unwrap();
        let kept = |pairs: &[(&str, &str)]| -> Vec<_> {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        assert_eq!(store.collections().await.unwrap(), kept(&[("cars", "2"), ("pets", "3")]));
        store.forget_collection("cars").await.unwrap();
        store.forget_collection("nobody").await.unwrap();
        assert_eq!(store.collections().await.unwrap(), kept(&[("pets", "3")]));
    }

    #[tokio::test]
    async fn a_full_disk_keeps_what_was_registered() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("sekisho.db")).await.unwrap();
        store.keep_collection("pets", "1").await.unwrap();
        fill_the_disk(&store).await;
        let error = store.keep_collection("pets", &"x".repeat(100_000)).await.unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        make_room_on_disk(&store).await;
        assert_eq!(store.collections().await.unwrap(), [("pets".to_owned(), "1".to_owned())]);
    }
}
