//! The resources that administrators of a tenant registered or stored only for that tenant. Shared resources are in a
//! table of their kind.

use sqlx::AssertSqlSafe;

use super::{AtStore, Store, StoreError};
use sekisho_core::administration::Ownership;

/// A resource of a kind, as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResource {
    pub name: String,
    pub owner: Ownership,
    /// JSON.
    pub value: String,
}

/// The result of storing something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Stored,
    /// Another owner has the name; or, for an addition that does not replace, anybody has it.
    NameTaken,
    /// The tenant, or all tenants together, have as many as there may be.
    Full,
}

/// How many of a kind tenants may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct TenantBounds {
    pub of_tenant: i64,
    pub of_all: i64,
}

/// A kind of resources of tenants.
#[derive(Debug, Clone, Copy)]
pub(super) struct TenantKind {
    /// As the table names it.
    pub kind: &'static str,
    /// Selects 1 for a row of a shared table that has the name `$3`, or reserves it.
    pub shared_name: &'static str,
    /// Selects 1 for a row of another tenant than `$1` that has the name `$3`, or reserves it. `$2` is the kind.
    pub others_name: &'static str,
    pub bounds: TenantBounds,
}

/// [`TenantKind::others_name`] of a kind whose names reserve no others.
pub(super) const SAME_NAME: &str = "SELECT 1 FROM tenant_resources WHERE kind = $2 AND name = $3 AND tenant <> $1";

/// Stores something of a tenant, in the place of an earlier one that the tenant has under this name if it `replaces`.
/// Errors: [`StoreError`]; nothing is changed then.
pub(super) async fn keep_of_tenant(
    store: &Store,
    TenantKind { kind, shared_name, others_name, bounds }: TenantKind,
    (tenant, name, value): (&str, &str, &str),
    replaces: bool,
) -> Result<WriteOutcome, StoreError> {
    let mut transaction = store.durable.begin_with(store.engine.begin_statement()).await.at(store)?;
    // This is first: others that change a registration or a resource wait here, so that the rows that are read next
    // stay true.
    store.count_change(&mut transaction, "registrations").await?;
    let counts = "SELECT COUNT(*), COALESCE(SUM(CASE WHEN tenant = $1 THEN 1 ELSE 0 END), 0)
             FROM tenant_resources WHERE kind = $2 AND NOT (tenant = $1 AND name = $3)";
    let counts = sqlx::query_as(counts).bind(tenant).bind(kind).bind(name);
    let (of_all, of_tenant): (i64, i64) = counts.fetch_one(&mut *transaction).await.at(store)?;
    if of_all >= bounds.of_all || of_tenant >= bounds.of_tenant {
        return Ok(WriteOutcome::Full);
    }
    let conflict = if replaces { "UPDATE SET value = excluded.value" } else { "NOTHING" };
    let sql = format!(
        "INSERT INTO tenant_resources (tenant, kind, name, value)
             SELECT $1, $2, $3, $4
             WHERE NOT EXISTS ({shared_name})
             AND NOT EXISTS ({others_name})
             ON CONFLICT (tenant, kind, name) DO {conflict}"
    );
    let insert = sqlx::query(AssertSqlSafe(sql)).bind(tenant).bind(kind).bind(name).bind(value);
    if insert.execute(&mut *transaction).await.at(store)?.rows_affected() == 0 {
        return Ok(WriteOutcome::NameTaken);
    }
    transaction.commit().await.at(store)?;
    Ok(WriteOutcome::Stored)
}

/// Replaces something that the tenant has; `false` if it has none of that name.
/// Errors: [`StoreError`]; nothing is changed then.
pub(super) async fn change_of_tenant(
    store: &Store,
    kind: &str,
    (tenant, name, value): (&str, &str, &str),
) -> Result<bool, StoreError> {
    let sql = "UPDATE tenant_resources SET value = $4 WHERE tenant = $1 AND kind = $2 AND name = $3";
    let update = sqlx::query(sql).bind(tenant).bind(kind).bind(name).bind(value);
    store.change_shared(update).await.map(|rows| rows > 0)
}

/// Removes something that the tenant has; `false` if it has none of that name.
/// Errors: [`StoreError`]; nothing is changed then.
pub(super) async fn forget_of_tenant(store: &Store, kind: &str, tenant: &str, name: &str) -> Result<bool, StoreError> {
    let sql = "DELETE FROM tenant_resources WHERE tenant = $1 AND kind = $2 AND name = $3";
    store.change_shared(sqlx::query(sql).bind(tenant).bind(kind).bind(name)).await.map(|rows| rows > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;
    use crate::{Registrations, ResourceKind};

    fn of(tenant: &str) -> Ownership {
        Ownership::Tenant(tenant.into())
    }

    #[tokio::test]
    async fn a_name_has_one_owner_who_alone_replaces_and_removes_it() {
        let store = test_store().await;
        let servers = Registrations::McpServers;
        let keep = async |owner: &Ownership, name: &str, text: &str| {
            store.registrations().keep(servers, owner, name, text).await.unwrap()
        };
        assert_eq!(keep(&of("acme"), "files", "1").await, WriteOutcome::Stored);
        assert_eq!(keep(&Ownership::Shared, "mail", "2").await, WriteOutcome::Stored);
        for (owner, name) in [(of("globex"), "files"), (Ownership::Shared, "files"), (of("acme"), "mail")] {
            assert_eq!(keep(&owner, name, "3").await, WriteOutcome::NameTaken, "{owner:?} {name}");
            assert!(!store.registrations().forget(servers, &owner, name).await.unwrap(), "{owner:?} {name}");
        }
        assert_eq!(keep(&of("acme"), "files", "4").await, WriteOutcome::Stored);
        let stored = |name: &str, owner, value: &str| StoredResource { name: name.into(), owner, value: value.into() };
        let expected = [stored("files", of("acme"), "4"), stored("mail", Ownership::Shared, "2")];
        assert_eq!(store.registrations().list(servers).await.unwrap(), expected);
        assert!(
            store.registrations().list(Registrations::Collections).await.unwrap().is_empty(),
            "each kind has its names"
        );
        assert!(store.registrations().forget(servers, &of("acme"), "files").await.unwrap());
        assert_eq!(keep(&of("globex"), "files", "5").await, WriteOutcome::Stored);
    }

    #[tokio::test]
    async fn a_model_of_a_tenant_is_added_once_and_changed_by_its_owner() {
        let store = test_store().await;
        let (model, acme, globex) = (ResourceKind::Model, of("acme"), of("globex"));
        let add = async |owner: &Ownership| store.resources().add(model, owner, "fast", "1").await.unwrap();
        assert_eq!(add(&acme).await, WriteOutcome::Stored);
        for owner in [&acme, &globex, &Ownership::Shared] {
            assert_eq!(add(owner).await, WriteOutcome::NameTaken, "{owner:?}");
        }
        for owner in [&globex, &Ownership::Shared] {
            assert!(!store.resources().change(model, owner, "fast", "2").await.unwrap(), "{owner:?}");
            assert!(!store.resources().remove(model, owner, "fast").await.unwrap(), "{owner:?}");
        }
        assert!(store.resources().change(model, &acme, "fast", "3").await.unwrap());
        let found = store.resources().get(model, "fast").await.unwrap().unwrap();
        assert_eq!((found.owner, &*found.value), (acme.clone(), "3"));
        assert_eq!(store.resources().names(model).await.unwrap(), [("fast".to_owned(), acme.clone())]);
        assert!(store.resources().get(ResourceKind::Skill, "fast").await.unwrap().is_none());
        assert!(store.resources().remove(model, &acme, "fast").await.unwrap());
        assert_eq!(add(&Ownership::Shared).await, WriteOutcome::Stored);
        assert_eq!(add(&globex).await, WriteOutcome::NameTaken, "a shared one has the name");
    }

    #[tokio::test]
    async fn tenants_have_a_bound_each_and_together() {
        let store = test_store().await;
        let (shared_name, others_name) = ("SELECT 1 FROM mcp_servers WHERE name = $3", SAME_NAME);
        let bounds = TenantBounds { of_tenant: 2, of_all: 3 };
        let kind = TenantKind { kind: "test", shared_name, others_name, bounds };
        let keep =
            async |tenant: &str, name: &str| keep_of_tenant(&store, kind, (tenant, name, "{}"), true).await.unwrap();
        for (tenant, name, expected) in [
            ("acme", "a", WriteOutcome::Stored),
            ("acme", "b", WriteOutcome::Stored),
            ("acme", "c", WriteOutcome::Full),
            ("globex", "d", WriteOutcome::Stored),
            ("globex", "e", WriteOutcome::Full),
            ("acme", "a", WriteOutcome::Stored),
            ("other", "f", WriteOutcome::Full),
        ] {
            assert_eq!(keep(tenant, name).await, expected, "{tenant} {name}");
        }
    }
}
