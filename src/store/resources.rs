//! Tenants, models and skills that administrators store.

use super::tenant_resources::{
    SAME_NAME, StoredResource, TenantBounds, TenantKind, WriteOutcome, change_of_tenant, forget_of_tenant,
    keep_of_tenant,
};
use super::{AtStore, Store, StoreError};
use sekisho_core::administration::Ownership;

/// Maximum models, and as many skills, that one tenant may have beside the shared ones, and the maximum of all tenants
/// together. An agent is told of 100 skills.
const MAX_OF_TENANT: i64 = 100;
const MAX_OF_ALL_TENANTS: i64 = 10_000;

/// A kind of resource: names of one are no names of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ResourceKind {
    Tenant,
    Model,
    Skill,
}

sekisho_core::as_str!(ResourceKind);

impl ResourceKind {
    fn of_tenants(self) -> TenantKind {
        let shared_name = "SELECT 1 FROM resources WHERE kind = $2 AND name = $3";
        TenantKind {
            kind: self.as_str(),
            shared_name,
            others_name: SAME_NAME,
            bounds: TenantBounds { of_tenant: MAX_OF_TENANT, of_all: MAX_OF_ALL_TENANTS },
        }
    }
}

/// Tenants, models and skills: the tables `resources` and `tenant_resources`, whose version is in `shared_versions`.
#[derive(Debug, Clone)]
pub struct ResourceStore(pub(super) Store);

impl ResourceStore {
    /// The names of all resources of a kind with their owners, in no order.
    pub async fn names(&self, kind: ResourceKind) -> Result<Vec<(String, Ownership)>, StoreError> {
        let sql = "SELECT name, CAST(NULL AS TEXT) FROM resources WHERE kind = $1
             UNION ALL SELECT name, tenant FROM tenant_resources
             WHERE kind = $1 AND name NOT IN (SELECT name FROM resources WHERE kind = $1)";
        let rows = sqlx::query_as(sql).bind(kind.as_str()).fetch_all(&self.0.pool).await;
        let rows: Vec<(String, Option<String>)> = rows.at(&self.0)?;
        Ok(rows.into_iter().map(|(name, tenant)| (name, tenant.into())).collect())
    }

    /// The resource of that name. A shared one counts before one of a tenant.
    pub async fn get(&self, kind: ResourceKind, name: &str) -> Result<Option<StoredResource>, StoreError> {
        let sql = "SELECT value, CAST(NULL AS TEXT) FROM resources WHERE kind = $1 AND name = $2
             UNION ALL SELECT value, tenant FROM tenant_resources WHERE kind = $1 AND name = $2
             AND NOT EXISTS (SELECT 1 FROM resources WHERE kind = $1 AND name = $2)";
        let row = sqlx::query_as(sql).bind(kind.as_str()).bind(name).fetch_optional(&self.0.pool).await;
        let row: Option<(String, Option<String>)> = row.at(&self.0)?;
        Ok(row.map(|(value, tenant)| StoredResource { name: name.to_owned(), owner: tenant.into(), value }))
    }

    /// Adds a resource.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn add(
        &self,
        kind: ResourceKind,
        owner: &Ownership,
        name: &str,
        value: &str,
    ) -> Result<WriteOutcome, StoreError> {
        if let Some(tenant) = owner.tenant() {
            return keep_of_tenant(&self.0, kind.of_tenants(), (tenant, name, value), false).await;
        }
        let sql = "INSERT INTO resources (kind, name, value) SELECT $1, $2, $3
             WHERE NOT EXISTS (SELECT 1 FROM tenant_resources WHERE kind = $1 AND name = $2)
             ON CONFLICT (kind, name) DO NOTHING";
        match self.0.change_shared(sqlx::query(sql).bind(kind.as_str()).bind(name).bind(value)).await? {
            0 => Ok(WriteOutcome::NameTaken),
            _ => Ok(WriteOutcome::Stored),
        }
    }

    /// Replaces a resource of this owner; `false` if it has none of that name.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn change(
        &self,
        kind: ResourceKind,
        owner: &Ownership,
        name: &str,
        value: &str,
    ) -> Result<bool, StoreError> {
        if let Some(tenant) = owner.tenant() {
            return change_of_tenant(&self.0, kind.as_str(), (tenant, name, value)).await;
        }
        let sql = "UPDATE resources SET value = $3 WHERE kind = $1 AND name = $2";
        let changed = self.0.change_shared(sqlx::query(sql).bind(kind.as_str()).bind(name).bind(value)).await;
        changed.map(|rows| rows > 0)
    }

    /// Removes a resource of this owner; `false` if it has none of that name.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn remove(&self, kind: ResourceKind, owner: &Ownership, name: &str) -> Result<bool, StoreError> {
        if let Some(tenant) = owner.tenant() {
            return forget_of_tenant(&self.0, kind.as_str(), tenant, name).await;
        }
        let sql = "DELETE FROM resources WHERE kind = $1 AND name = $2";
        self.0.change_shared(sqlx::query(sql).bind(kind.as_str()).bind(name)).await.map(|rows| rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceKind::{Model, Tenant};
    use super::*;
    use crate::test_support::test_store;

    #[tokio::test]
    async fn resources_are_added_once_changed_and_removed_each_kind_for_itself() {
        let (store, shared) = (test_store().await, &Ownership::Shared);
        let add = async |kind, value: &str| store.resources().add(kind, shared, "acme", value).await.unwrap();
        let value = async |kind| store.resources().get(kind, "acme").await.unwrap().map(|found| found.value);
        assert_eq!(add(Tenant, "1").await, WriteOutcome::Stored);
        assert_eq!(add(Tenant, "2").await, WriteOutcome::NameTaken);
        assert_eq!(add(Model, "3").await, WriteOutcome::Stored);
        assert!(store.resources().change(Tenant, shared, "acme", "4").await.unwrap());
        assert!(!store.resources().change(Tenant, shared, "nobody", "5").await.unwrap());
        assert_eq!(value(Tenant).await.as_deref(), Some("4"));
        assert_eq!(store.resources().names(Model).await.unwrap(), [("acme".to_owned(), Ownership::Shared)]);
        assert!(store.resources().remove(Tenant, shared, "acme").await.unwrap());
        assert!(!store.resources().remove(Tenant, shared, "acme").await.unwrap());
        assert_eq!(value(Tenant).await, None);
        assert_eq!(value(Model).await.as_deref(), Some("3"));
    }
}
