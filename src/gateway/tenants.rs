//! The budgets of tenants, of the configuration and of the store.

use std::collections::BTreeMap;

use sekisho_calls::budget::{Budgets, TenantLimits};
use sekisho_config::{Config, TenantConfig};
use sekisho_store::{ResourceKind, ResourceStore, StoreError};

/// The limits of one day.
pub fn limits_of_tenant(tenant: &TenantConfig) -> TenantLimits {
    TenantLimits { cost_usd: tenant.max_cost_per_day, tokens: tenant.max_tokens_per_day }
}

/// Applies the limits of all tenants. A tenant of the configuration hides a stored one of the same name.
pub async fn limit_tenants(budgets: &Budgets, config: &Config, store: &ResourceStore) -> Result<(), StoreError> {
    let mut tenants = BTreeMap::new();
    for (name, _) in store.names(ResourceKind::Tenant).await? {
        let Some(stored) = store.get(ResourceKind::Tenant, &name).await? else { continue };
        match serde_json::from_str::<TenantConfig>(&stored.value) {
            Ok(tenant) => drop(tenants.insert(name, limits_of_tenant(&tenant))),
            // Its agents are refused too.
            Err(error) => tracing::error!(tenant = name, %error, "a stored tenant cannot be used"),
        }
    }
    tenants.extend(config.tenants.iter().map(|(name, tenant)| (name.clone(), limits_of_tenant(tenant))));
    budgets.limit_tenants(tenants.into_iter().map(|(name, limits)| (name.into(), limits)));
    Ok(())
}
