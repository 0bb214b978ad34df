//! The registrations over HTTP, which survive a restart: OpenAPI collections and MCP servers.

use sqlx::AssertSqlSafe;

use super::tenant_resources::{
    StoredResource, TenantBounds, TenantKind, WriteOutcome, forget_of_tenant, keep_of_tenant,
};
use super::{AtStore, Store, StoreError};
use sekisho_core::administration::Ownership;

/// Maximum registrations of a kind that one tenant may have beside the shared ones, and the maximum of all tenants
/// together: each server holds a connection, and each collection a document's tools in memory. One tenant cannot take
/// the room of the others.
const MAX_OF_TENANT: i64 = 20;
const MAX_OF_ALL_TENANTS: i64 = 200;

/// Whether `name` is the name `$3`, begins with it and `__`, or `$3` begins with `name` and `__`, in upper and lower case: a tool has the
/// name of its source, `__` and its own, and a function has only its own. A server may list other tools at any time, so the names
/// of tools are reserved with the name of their source, for rules such as `NAME__*`, too.
macro_rules! shares_tools {
    () => {
        "(SUBSTR(LOWER(name) || '__', 1, LENGTH(CAST($3 AS TEXT)) + 2) = LOWER(CAST($3 AS TEXT)) || '__'
        OR SUBSTR(LOWER(CAST($3 AS TEXT)) || '__', 1, LENGTH(name) + 2) = LOWER(name) || '__')"
    };
}

/// A collection or server of another tenant.
const OTHERS_TOOLS: &str = concat!(
    "SELECT 1 FROM tenant_resources WHERE kind IN ('openapi_collection', 'mcp_server') AND tenant <> $1 AND ",
    shares_tools!()
);

/// A shared collection or server.
const SHARED_TOOLS: &str = concat!(
    "SELECT 1 FROM (SELECT name FROM openapi_collections UNION ALL SELECT name FROM mcp_servers) AS sources WHERE ",
    shares_tools!()
);

/// A kind of registration, with a table of its own. A name may be in both, unless two tenants have it.
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

    fn of_tenants(self) -> TenantKind {
        let kind = match self {
            Self::Collections => "openapi_collection",
            Self::McpServers => "mcp_server",
        };
        let bounds = TenantBounds { of_tenant: MAX_OF_TENANT, of_all: MAX_OF_ALL_TENANTS };
        TenantKind { kind, shared_name: SHARED_TOOLS, others_name: OTHERS_TOOLS, bounds }
    }
}

/// OpenAPI collections and MCP servers: the tables `openapi_collections`, `mcp_servers` and `tenant_resources`, whose version is in
/// `shared_versions`.
#[derive(Debug, Clone)]
pub struct RegistrationStore(pub(super) Store);

impl RegistrationStore {
    /// All registrations of a kind, by name, each with its owner. A shared registration counts before one of a tenant:
    /// a program that does not know of owners may have given both the same name.
    pub async fn list(&self, of: Registrations) -> Result<Vec<StoredResource>, StoreError> {
        let table = of.table();
        let sql = format!(
            "SELECT name, registration, CAST(NULL AS TEXT) FROM {table}
             UNION ALL SELECT name, value, tenant FROM tenant_resources
             WHERE kind = $1 AND name NOT IN (SELECT name FROM {table})
             ORDER BY 1"
        );
        let rows = sqlx::query_as(AssertSqlSafe(sql)).bind(of.of_tenants().kind).fetch_all(&self.0.pool);
        let rows: Vec<(String, String, Option<String>)> = rows.await.at(&self.0)?;
        let stored = rows.into_iter().map(|(name, value, tenant)| StoredResource { name, value, owner: tenant.into() });
        Ok(stored.collect())
    }

    /// Keeps a registration, in the place of an earlier one of that name and owner.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn keep(
        &self,
        of: Registrations,
        owner: &Ownership,
        name: &str,
        registration: &str,
    ) -> Result<WriteOutcome, StoreError> {
        let kind = of.of_tenants();
        if let Some(tenant) = owner.tenant() {
            return keep_of_tenant(&self.0, kind, (tenant, name, registration), true).await;
        }
        let sql = format!(
            "INSERT INTO {} (name, registration) SELECT $1, $2
             WHERE NOT EXISTS (SELECT 1 FROM tenant_resources WHERE kind = $3 AND name = $1)
             ON CONFLICT (name) DO UPDATE SET registration = excluded.registration",
            of.table()
        );
        let insert = sqlx::query(AssertSqlSafe(sql)).bind(name).bind(registration).bind(kind.kind);
        match self.0.change_shared(insert).await? {
            0 => Ok(WriteOutcome::NameTaken),
            _ => Ok(WriteOutcome::Stored),
        }
    }

    /// Removes a registration of this owner; `false` if it has none of that name.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn forget(&self, of: Registrations, owner: &Ownership, name: &str) -> Result<bool, StoreError> {
        if let Some(tenant) = owner.tenant() {
            return forget_of_tenant(&self.0, of.of_tenants().kind, tenant, name).await;
        }
        let sql = format!("DELETE FROM {} WHERE name = $1", of.table());
        self.0.change_shared(sqlx::query(AssertSqlSafe(sql)).bind(name)).await.map(|rows| rows > 0)
    }

    /// A number that grows with each change of registrations and resources, by any process.
    pub async fn version(&self) -> Result<i64, StoreError> {
        let version = sqlx::query_scalar("SELECT version FROM shared_versions WHERE subject = 'registrations'");
        let version: Option<i64> = version.fetch_optional(&self.0.pool).await.at(&self.0)?;
        Ok(version.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::Registrations::{Collections, McpServers};
    use super::*;
    use crate::ResourceKind;
    use crate::test_support::{fill_the_disk, free_disk, test_store};

    const SHARED: &Ownership = &Ownership::Shared;

    fn pairs(expected: &[(&str, &str)]) -> Vec<StoredResource> {
        let shared = |(name, text): &(&str, &str)| StoredResource {
            name: (*name).to_owned(),
            owner: Ownership::Shared,
            value: (*text).to_owned(),
        };
        expected.iter().map(shared).collect()
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
            store.registrations().keep(of, SHARED, name, registration).await.unwrap();
        }
        store.close().await;
        let store = Store::open_file(&path).await.unwrap();
        assert_eq!(store.registrations().list(Collections).await.unwrap(), pairs(&[("cars", "3"), ("pets", "5")]));
        assert_eq!(store.registrations().list(McpServers).await.unwrap(), pairs(&[("pets", "4"), ("time", "2")]));
        store.registrations().forget(Collections, SHARED, "pets").await.unwrap();
        store.registrations().forget(Collections, SHARED, "nobody").await.unwrap();
        assert_eq!(store.registrations().list(Collections).await.unwrap(), pairs(&[("cars", "3")]));
        assert_eq!(store.registrations().list(McpServers).await.unwrap(), pairs(&[("pets", "4"), ("time", "2")]));
    }

    #[tokio::test]
    async fn the_name_of_a_tenants_source_reserves_the_names_of_its_tools_from_other_tenants() {
        let store = test_store().await;
        let (acme, globex) = (Ownership::Tenant("acme".into()), Ownership::Tenant("globex".into()));
        let keep = async |of: Registrations, owner: &Ownership, name: &str| {
            store.registrations().keep(of, owner, name, "{}").await.unwrap()
        };
        assert_eq!(keep(Collections, &acme, "bank").await, WriteOutcome::Stored);
        assert_eq!(keep(McpServers, &acme, "crm__find").await, WriteOutcome::Stored);
        for name in ["bank", "BANK", "Bank__pay", "bank__", "bank__pay", "crm", "crm__find__all"] {
            for of in [McpServers, Collections] {
                assert_eq!(keep(of, &globex, name).await, WriteOutcome::NameTaken, "{of:?} {name}");
            }
            assert_eq!(keep(McpServers, &acme, name).await, WriteOutcome::Stored, "its own: {name}");
            assert!(store.registrations().forget(McpServers, &acme, name).await.unwrap(), "{name}");
        }
        for name in ["ban", "banks", "bank_x", "crm__fin", "crm_", "%", "_ank"] {
            assert_eq!(keep(McpServers, &globex, name).await, WriteOutcome::Stored, "{name}");
        }
        assert_eq!(keep(McpServers, SHARED, "bank__pay").await, WriteOutcome::Stored, "a shared one comes first");
        assert_eq!(keep(Collections, SHARED, "shop").await, WriteOutcome::Stored);
        for name in ["shop", "Shop", "SHOP__pay"] {
            for of in [McpServers, Collections] {
                assert_eq!(keep(of, &acme, name).await, WriteOutcome::NameTaken, "{of:?} {name}");
            }
        }
        assert_eq!(keep(McpServers, &acme, "shops").await, WriteOutcome::Stored);
    }

    #[tokio::test]
    async fn each_change_has_a_version_of_its_own() {
        let store = test_store().await;
        assert_eq!(store.registrations().version().await.unwrap(), 0);
        store.registrations().keep(Collections, SHARED, "pets", "1").await.unwrap();
        store.registrations().forget(McpServers, SHARED, "pets").await.unwrap();
        assert_eq!(store.registrations().version().await.unwrap(), 2);
        assert!(
            store.resources().add(ResourceKind::Tenant, SHARED, "acme", "{}").await.unwrap() == WriteOutcome::Stored
        );
        assert_eq!(store.registrations().version().await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_change_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        store.registrations().keep(Collections, SHARED, "pets", "1").await.unwrap();
        store.durable.close().await;
        for owner in [SHARED, &Ownership::Tenant("acme".into())] {
            assert!(store.registrations().keep(Collections, owner, "cars", "1").await.is_err(), "{owner:?}");
            assert!(store.registrations().forget(Collections, owner, "pets").await.is_err(), "{owner:?}");
        }
        assert_eq!(store.registrations().list(Collections).await.unwrap(), pairs(&[("pets", "1")]));
    }

    #[tokio::test]
    async fn a_full_disk_keeps_what_was_registered() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        store.registrations().keep(Collections, SHARED, "pets", "1").await.unwrap();
        fill_the_disk(&store).await;
        let error = store.registrations().keep(Collections, SHARED, "pets", &"x".repeat(100_000)).await.unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        free_disk(&store).await;
        assert_eq!(store.registrations().list(Collections).await.unwrap(), pairs(&[("pets", "1")]));
    }
}
