//! Tenants, models and skills that administrators store.

use super::{Store, StoreError};

/// A kind of resource: names of one are no names of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    Tenant,
    Model,
    Skill,
}

impl ResourceKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Model => "model",
            Self::Skill => "skill",
        }
    }
}

impl Store {
    /// The names of all resources of a kind, in no order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resource_names(&self, kind: ResourceKind) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar("SELECT name FROM resources WHERE kind = $1")
            .bind(kind.as_str())
            .fetch_all(&self.pool)
            .await
            .map_err(|error| self.failed(error))
    }

    /// The resource of that name, as JSON.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resource(&self, kind: ResourceKind, name: &str) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT value FROM resources WHERE kind = $1 AND name = $2")
            .bind(kind.as_str())
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(error))
    }

    /// Adds a resource; `false` if there is one of that name.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn add_resource(&self, kind: ResourceKind, name: &str, value: &str) -> Result<bool, StoreError> {
        let sql = "INSERT INTO resources (kind, name, value) VALUES ($1, $2, $3) ON CONFLICT (kind, name) DO NOTHING";
        let added = self.change_shared(sqlx::query(sql).bind(kind.as_str()).bind(name).bind(value)).await;
        added.map(|rows| rows > 0)
    }

    /// Replaces a resource; `false` if there is none of that name.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn change_resource(&self, kind: ResourceKind, name: &str, value: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE resources SET value = $3 WHERE kind = $1 AND name = $2";
        let changed = self.change_shared(sqlx::query(sql).bind(kind.as_str()).bind(name).bind(value)).await;
        changed.map(|rows| rows > 0)
    }

    /// Removes a resource; `false` if there is none of that name.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub async fn remove_resource(&self, kind: ResourceKind, name: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM resources WHERE kind = $1 AND name = $2";
        self.change_shared(sqlx::query(sql).bind(kind.as_str()).bind(name)).await.map(|rows| rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceKind::{Model, Tenant};
    use crate::infra::store::test_support::test_store;

    #[tokio::test]
    async fn resources_are_added_once_changed_and_removed_each_kind_for_itself() {
        let store = test_store().await;
        assert!(store.add_resource(Tenant, "acme", "1").await.unwrap());
        assert!(!store.add_resource(Tenant, "acme", "2").await.unwrap());
        assert!(store.add_resource(Model, "acme", "3").await.unwrap());
        assert!(store.change_resource(Tenant, "acme", "4").await.unwrap());
        assert!(!store.change_resource(Tenant, "nobody", "5").await.unwrap());
        assert_eq!(store.resource(Tenant, "acme").await.unwrap().as_deref(), Some("4"));
        assert_eq!(store.resource_names(Model).await.unwrap(), ["acme"]);
        assert!(store.remove_resource(Tenant, "acme").await.unwrap());
        assert!(!store.remove_resource(Tenant, "acme").await.unwrap());
        assert_eq!(store.resource(Tenant, "acme").await.unwrap(), None);
        assert_eq!(store.resource(Model, "acme").await.unwrap().as_deref(), Some("3"));
    }
}
