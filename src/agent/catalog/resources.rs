//! The resources that administrators add, change and remove while the gateway runs.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Catalog, file_of, shown};
use crate::skills::Skill;
use sekisho_config::{Config, ModelConfig, TenantConfig};
use sekisho_core::administration::{Administrator, AdministratorProof, Ownership, SharedAdministrator};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::limit_tenants;
use sekisho_store::{ResourceKind, WriteOutcome};

/// A kind of resource, stored in the form that the configuration has.
pub trait Resource: Serialize + DeserializeOwned + Send + Sync + 'static {
    const KIND: ResourceKind;

    /// The proof that a caller may change one.
    type Proof: AdministratorProof;

    /// The one that the configuration defines.
    fn configured(catalog: &Catalog, config: &Config, name: &str) -> Option<Self>;

    /// All names that the configuration defines.
    fn configured_names(catalog: &Catalog, config: &Config) -> Vec<String>;

    /// Where the configuration defines it: the setting, and its file.
    fn place(config: &Config, name: &str) -> String;

    /// Its problems, as sentences.
    fn problems(&self, config: &Config, name: &str) -> Vec<String>;

    /// The settings that a tenant's own one may not have, as sentences.
    fn problems_of_tenant(&self, _config: &Config, _tenant: &TenantConfig) -> Vec<String> {
        Vec::new()
    }

    /// Whether the settings of this tenant let its callers read it. Administrators of the tenant `default` read all.
    fn is_visible(tenant_id: &str, tenant: &TenantConfig, name: &str) -> bool;
}

/// A resource with its name.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Shown<T> {
    pub name: String,
    /// Defined by the configuration, and so not to be changed here.
    pub configured: bool,
    /// The tenant whose administrators added it, which alone uses it; missing for what is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(flatten)]
    pub value: T,
}

/// A part of a list, in the order of the names.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePage<T> {
    pub items: Vec<Shown<T>>,
    /// The name after which the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// Who looks for resources: a viewer sees shared resources, and the resources of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer<'a> {
    /// An administrator of the tenant `default`, who sees the resources of every tenant.
    OfAllTenants,
    OfTenant(&'a str),
}

impl<T> Shown<T> {
    pub fn new(name: &str, owner: &Ownership, value: T) -> Self {
        Self { name: name.to_owned(), configured: false, tenant: owner.tenant().map(str::to_owned), value }
    }

    pub fn owner(&self) -> Ownership {
        self.tenant.clone().into()
    }
}

impl Viewer<'_> {
    fn sees(self, owner: &Ownership) -> bool {
        match self {
            Self::OfAllTenants => true,
            Self::OfTenant(tenant) => owner.is_visible_to(tenant),
        }
    }
}

impl Catalog {
    /// The resource of that name, if the viewer sees it.
    /// Errors: `overloaded` if the store is away.
    pub async fn find<R: Resource>(&self, viewer: Viewer<'_>, name: &str) -> Result<Option<R>, CallError> {
        Ok(self.shown(viewer, name).await?.map(|shown| shown.value))
    }

    /// The same, with where it is defined and its owner.
    /// Errors: `overloaded` if the store is away.
    pub async fn shown<R: Resource>(&self, viewer: Viewer<'_>, name: &str) -> Result<Option<Shown<R>>, CallError> {
        if let Some(value) = R::configured(self, &self.gateway.configuration().current(), name) {
            return Ok(Some(Shown { name: name.to_owned(), configured: true, tenant: None, value }));
        }
        let stored = self.gateway.store().resources().get(R::KIND, name).await.map_err(CallError::from)?;
        let Some(stored) = stored.filter(|stored| viewer.sees(&stored.owner)) else { return Ok(None) };
        let value = serde_json::from_str(&stored.value).map_err(CallError::internal)?;
        Ok(Some(Shown::new(name, &stored.owner, value)))
    }

    /// All names that the viewer sees with their owners, of the configuration and of the store.
    pub(super) async fn names<R: Resource>(
        &self,
        viewer: Viewer<'_>,
    ) -> Result<BTreeMap<String, Ownership>, CallError> {
        let stored = self.gateway.store().resources().names(R::KIND).await.map_err(CallError::from)?;
        let stored = stored.into_iter().filter(|(_, owner)| viewer.sees(owner));
        let configured = R::configured_names(self, &self.gateway.configuration().current());
        Ok(stored.chain(configured.into_iter().map(|name| (name, Ownership::Shared))).collect())
    }

    /// At most so many resources after a name, of those that the viewer sees and for which `is_visible` holds.
    /// Errors: `overloaded` if the store is away.
    pub async fn list<R: Resource>(
        &self,
        viewer: Viewer<'_>,
        after: Option<&str>,
        max: usize,
        is_visible: impl Fn(&str, &Ownership) -> bool,
    ) -> Result<ResourcePage<R>, CallError> {
        let names = self.names::<R>(viewer).await?.into_iter();
        let is_later = |name: &str| after.is_none_or(|after| name > after);
        let mut rest = names.filter(|(name, owner)| is_later(name) && is_visible(name, owner)).map(|(name, _)| name);
        let page: Vec<_> = rest.by_ref().take(max).collect();
        let next = rest.next().and_then(|_| page.last().cloned());
        let mut items = Vec::with_capacity(page.len());
        for name in &page {
            // Another request may have removed it.
            items.extend(self.shown(viewer, name).await?);
        }
        Ok(ResourcePage { items, next })
    }

    /// Stores a new resource, of the owner that the proof is for.
    /// Errors: `invalid_request`: the owner has the name already, or the resource is invalid; `name_taken`: another
    /// owner has it; `overloaded`: the tenant has too many.
    pub async fn add<R: Resource>(&self, by: &R::Proof, name: &str, value: &R) -> Result<(), CallError> {
        let text = self.checked(by.owner(), name, value).await?;
        let store = self.gateway.store();
        match store.resources().add(R::KIND, by.owner(), name, &text).await.map_err(CallError::from)? {
            WriteOutcome::Stored => self.changed(R::KIND).await,
            WriteOutcome::Full => {
                let kind = R::KIND.as_str();
                let message = format!("your tenant has as many {kind}s as it may store, or all tenants together have");
                Err(CallError::new(ErrorCode::Overloaded, message))
            }
            WriteOutcome::NameTaken => {
                let known = store.resources().get(R::KIND, name).await.map_err(CallError::from)?;
                Err(match known.is_some_and(|known| known.owner == *by.owner()) {
                    true => CallError::invalid(format!(
                        "there is a {} {name:?} already; change it with PUT",
                        R::KIND.as_str()
                    )),
                    false => name_taken(name),
                })
            }
        }
    }

    /// Replaces a stored resource of the owner that the proof is for.
    /// Errors: `not_found`; `invalid_request` if the configuration defines it, or the new one is invalid.
    pub async fn change<R: Resource>(&self, by: &R::Proof, name: &str, value: &R) -> Result<(), CallError> {
        let text = self.checked(by.owner(), name, value).await?;
        let changed = self.gateway.store().resources().change(R::KIND, by.owner(), name, &text).await;
        match changed.map_err(CallError::from)? {
            true => self.changed(R::KIND).await,
            false => Err(Self::unknown::<R>(name)),
        }
    }

    /// Removes a stored resource of the owner that the proof is for.
    /// Errors: `not_found`; `invalid_request` if the configuration defines it.
    pub async fn remove<R: Resource>(&self, by: &R::Proof, name: &str) -> Result<(), CallError> {
        self.check_not_configured::<R>(by.owner(), name)?;
        let removed = self.gateway.store().resources().remove(R::KIND, by.owner(), name).await;
        match removed.map_err(CallError::from)? {
            true => self.changed(R::KIND).await,
            false => Err(Self::unknown::<R>(name)),
        }
    }

    /// The error for a name that nothing has, or nothing that the caller may know.
    pub fn unknown<R: Resource>(name: &str) -> CallError {
        let message = format!("there is no {} {:?}", R::KIND.as_str(), shown(name));
        CallError::new(ErrorCode::NotFound, message)
    }

    async fn checked<R: Resource>(&self, owner: &Ownership, name: &str, value: &R) -> Result<String, CallError> {
        self.check_not_configured::<R>(owner, name)?;
        let config = self.gateway.configuration().current().clone();
        let mut problems = value.problems(&config, name);
        if let Some(tenant) = owner.tenant() {
            problems.extend(value.problems_of_tenant(&config, &self.tenant(tenant).await?));
        }
        if !problems.is_empty() {
            return Err(CallError::invalid(problems.join("; ")));
        }
        serde_json::to_string(value).map_err(CallError::internal)
    }

    fn check_not_configured<R: Resource>(&self, owner: &Ownership, name: &str) -> Result<(), CallError> {
        let config = self.gateway.configuration().current();
        let is_configured = R::configured_names(self, &config).iter().any(|configured| configured == name);
        match (is_configured, owner) {
            (false, _) => Ok(()),
            (true, Ownership::Shared) => {
                Err(CallError::invalid(format!("{} defines it; change it there", R::place(&config, name))))
            }
            (true, Ownership::Tenant(_)) => Err(name_taken(name)),
        }
    }

    async fn changed(&self, kind: ResourceKind) -> Result<(), CallError> {
        match kind {
            ResourceKind::Tenant => limit_tenants(
                &self.gateway.pipeline.budget,
                &self.gateway.configuration().current(),
                &self.gateway.store().resources(),
            )
            .await
            .map_err(CallError::from),
            ResourceKind::Model | ResourceKind::Skill => Ok(()),
        }
    }
}

impl Resource for TenantConfig {
    const KIND: ResourceKind = ResourceKind::Tenant;
    type Proof = SharedAdministrator;

    fn configured(_: &Catalog, config: &Config, name: &str) -> Option<Self> {
        config.tenants.get(name).cloned()
    }

    fn configured_names(_: &Catalog, config: &Config) -> Vec<String> {
        config.tenants.keys().cloned().collect()
    }

    fn place(config: &Config, name: &str) -> String {
        format!("`tenants.{name}` in {}", file_of(config))
    }

    fn problems(&self, _: &Config, name: &str) -> Vec<String> {
        Config::problems_of_tenant(name, self)
    }

    fn is_visible(tenant_id: &str, _: &TenantConfig, name: &str) -> bool {
        tenant_id == name
    }
}

impl Resource for ModelConfig {
    const KIND: ResourceKind = ResourceKind::Model;
    type Proof = Administrator;

    fn configured(_: &Catalog, config: &Config, name: &str) -> Option<Self> {
        config.agent.models.get(name).cloned()
    }

    fn configured_names(_: &Catalog, config: &Config) -> Vec<String> {
        config.agent.models.keys().cloned().collect()
    }

    fn place(config: &Config, name: &str) -> String {
        format!("`agent.models.{name}` in {}", file_of(config))
    }

    fn problems(&self, config: &Config, name: &str) -> Vec<String> {
        let mut problems = Config::problems_of_model(name, self);
        let profiles = &config.agent.profiles;
        if profiles.contains_key(name) {
            problems.push(format!("{name:?} is the name of a profile; choose another"));
        }
        if let Some(profile) = self.profile.as_ref().filter(|profile| !profiles.contains_key(*profile)) {
            let known: Vec<_> = profiles.keys().map(String::as_str).collect();
            problems.push(format!("there is no profile {:?}; set one of {}", shown(profile), known.join(", ")));
        }
        problems
    }

    /// A tenant sets no prices of its own, by which its budgets are charged, and uses the profiles that it has.
    fn problems_of_tenant(&self, config: &Config, tenant: &TenantConfig) -> Vec<String> {
        let mut problems = Vec::new();
        if self.price_per_million_prompt_tokens.is_some() || self.price_per_million_completion_tokens.is_some() {
            let problem = "the model of a tenant has no prices of its own: its budgets are charged by the vendor's; leave them out";
            problems.push(problem.to_owned());
        }
        let profile = self.profile.as_ref().unwrap_or(&config.agent.default_profile);
        if !tenant.has_model(profile) {
            problems.push(format!("there is no profile {:?} for this tenant; set one of its own", shown(profile)));
        }
        problems
    }

    fn is_visible(_: &str, tenant: &TenantConfig, name: &str) -> bool {
        tenant.has_model(name)
    }
}

impl Resource for Skill {
    const KIND: ResourceKind = ResourceKind::Skill;
    type Proof = Administrator;

    fn configured(catalog: &Catalog, _: &Config, name: &str) -> Option<Self> {
        catalog.skills.get(name).cloned()
    }

    fn configured_names(catalog: &Catalog, _: &Config) -> Vec<String> {
        catalog.skills.keys().cloned().collect()
    }

    fn place(config: &Config, name: &str) -> String {
        let folder = config.agent.skills_directory.clone().unwrap_or_default();
        folder.join(name).join("SKILL.md").display().to_string()
    }

    fn problems(&self, _: &Config, name: &str) -> Vec<String> {
        Self::problems(self, name)
    }

    fn is_visible(_: &str, tenant: &TenantConfig, name: &str) -> bool {
        tenant.has_skill(name)
    }
}

/// Does not name the owner.
fn name_taken(name: &str) -> CallError {
    CallError::new(ErrorCode::NameTaken, format!("the name {:?} is in use; choose another one", shown(name)))
}

/// A resource to be added: the body of a request.
#[derive(Debug, Deserialize)]
#[serde(try_from = "serde_json::Map<String, serde_json::Value>")]
#[serde(bound = "T: DeserializeOwned")]
pub struct NewResource<T> {
    pub name: String,
    pub value: T,
}

// A derived `flatten` would not refuse unknown fields.
impl<T: DeserializeOwned> TryFrom<serde_json::Map<String, serde_json::Value>> for NewResource<T> {
    type Error = String;

    fn try_from(mut fields: serde_json::Map<String, serde_json::Value>) -> Result<Self, String> {
        match fields.shift_remove("name") {
            Some(serde_json::Value::String(name)) => {
                let value = serde_json::from_value(fields.into()).map_err(|error| error.to_string())?;
                Ok(Self { name, value })
            }
            Some(_) => Err("`name` is not a text".to_owned()),
            None => Err("`name` is missing".to_owned()),
        }
    }
}
