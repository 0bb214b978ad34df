//! The resources that administrators add, change and remove while the gateway runs.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Catalog, file_of, invalid, shown};
use crate::agent::skills::Skill;
use crate::config::{Config, ModelConfig, TenantConfig};
use crate::core::administration::SharedAdministrator;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::store::ResourceKind;

/// A kind of resource, stored in the form that the configuration has.
pub trait Resource: Serialize + DeserializeOwned + Send + Sync + 'static {
    const KIND: ResourceKind;

    /// The one that the configuration defines.
    fn configured(catalog: &Catalog, config: &Config, name: &str) -> Option<Self>;

    /// All names that the configuration defines.
    fn configured_names(catalog: &Catalog, config: &Config) -> Vec<String>;

    /// Where the configuration defines it: the setting, and its file.
    fn place(config: &Config, name: &str) -> String;

    /// What is wrong with it, as sentences.
    fn problems(&self, config: &Config, name: &str) -> Vec<String>;

    /// Whether callers of this tenant may read it. Administrators of the tenant `default` read all.
    fn is_visible(tenant_id: &str, tenant: &TenantConfig, name: &str) -> bool;
}

/// A resource with its name.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Shown<T> {
    pub name: String,
    /// Defined by the configuration, and so not to be changed here.
    pub configured: bool,
    #[serde(flatten)]
    pub value: T,
}

/// A part of a list, in the order of the names.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<Shown<T>>,
    /// The value of `after` for the next page; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Catalog {
    /// The resource of that name.
    ///
    /// # Errors
    /// `overloaded` if the store is away.
    pub async fn find<R: Resource>(&self, name: &str) -> Result<Option<R>, CallError> {
        Ok(self.shown(name).await?.map(|shown| shown.value))
    }

    /// The resource of that name, and where it is defined.
    ///
    /// # Errors
    /// `overloaded` if the store is away.
    pub async fn shown<R: Resource>(&self, name: &str) -> Result<Option<Shown<R>>, CallError> {
        if let Some(value) = R::configured(self, &self.gateway.config(), name) {
            return Ok(Some(Shown { name: name.to_owned(), configured: true, value }));
        }
        let Some(text) = self.gateway.store().resource(R::KIND, name).await.map_err(CallError::from)? else {
            return Ok(None);
        };
        let value = serde_json::from_str(&text).map_err(CallError::internal)?;
        Ok(Some(Shown { name: name.to_owned(), configured: false, value }))
    }

    /// All names, those of the configuration and of the store.
    pub(super) async fn names<R: Resource>(&self) -> Result<BTreeSet<String>, CallError> {
        let stored = self.gateway.store().resource_names(R::KIND).await.map_err(CallError::from)?;
        let configured = R::configured_names(self, &self.gateway.config());
        Ok(stored.into_iter().chain(configured).collect())
    }

    /// At most so many resources after a name, of those for which `is_visible` holds.
    ///
    /// # Errors
    /// `overloaded` if the store is away.
    pub async fn list<R: Resource>(
        &self,
        after: Option<&str>,
        max: usize,
        is_visible: impl Fn(&str) -> bool,
    ) -> Result<Page<R>, CallError> {
        let names = self.names::<R>().await?;
        let mut rest =
            names.into_iter().filter(|name| after.is_none_or(|after| name.as_str() > after) && is_visible(name));
        let page: Vec<_> = rest.by_ref().take(max).collect();
        let next = rest.next().and_then(|_| page.last().cloned());
        let mut items = Vec::with_capacity(page.len());
        for name in &page {
            // Another request may have removed it.
            items.extend(self.shown(name).await?);
        }
        Ok(Page { items, next })
    }

    /// Stores a new resource.
    ///
    /// # Errors
    /// `invalid_request`: the name is in use, or the resource is invalid.
    pub async fn add<R: Resource>(&self, _by: SharedAdministrator, name: &str, value: &R) -> Result<(), CallError> {
        let text = self.checked(name, value)?;
        if !self.gateway.store().add_resource(R::KIND, name, &text).await.map_err(CallError::from)? {
            let kind = R::KIND.as_str();
            return Err(invalid(format!("there is a {kind} {name:?} already; change it with PUT")));
        }
        self.changed(R::KIND).await
    }

    /// Replaces a stored resource.
    ///
    /// # Errors
    /// `not_found`; `invalid_request` if the configuration defines it, or the new one is invalid.
    pub async fn change<R: Resource>(&self, _by: SharedAdministrator, name: &str, value: &R) -> Result<(), CallError> {
        let text = self.checked(name, value)?;
        if !self.gateway.store().change_resource(R::KIND, name, &text).await.map_err(CallError::from)? {
            return Err(Self::unknown::<R>(name));
        }
        self.changed(R::KIND).await
    }

    /// Removes a stored resource.
    ///
    /// # Errors
    /// `not_found`; `invalid_request` if the configuration defines it.
    pub async fn remove<R: Resource>(&self, _by: SharedAdministrator, name: &str) -> Result<(), CallError> {
        self.check_not_configured::<R>(name)?;
        if !self.gateway.store().remove_resource(R::KIND, name).await.map_err(CallError::from)? {
            return Err(Self::unknown::<R>(name));
        }
        self.changed(R::KIND).await
    }

    /// The error for a name that nothing has, or nothing that the caller may know.
    pub fn unknown<R: Resource>(name: &str) -> CallError {
        let message = format!("there is no {} {:?}", R::KIND.as_str(), shown(name));
        CallError::new(ErrorCode::NotFound, message)
    }

    fn checked<R: Resource>(&self, name: &str, value: &R) -> Result<String, CallError> {
        self.check_not_configured::<R>(name)?;
        let problems = value.problems(&self.gateway.config(), name);
        if !problems.is_empty() {
            return Err(invalid(problems.join("; ")));
        }
        serde_json::to_string(value).map_err(CallError::internal)
    }

    fn check_not_configured<R: Resource>(&self, name: &str) -> Result<(), CallError> {
        let config = self.gateway.config();
        match R::configured_names(self, &config).iter().any(|configured| configured == name) {
            true => Err(invalid(format!("{} defines it; change it there", R::place(&config, name)))),
            false => Ok(()),
        }
    }

    async fn changed(&self, kind: ResourceKind) -> Result<(), CallError> {
        match kind {
            ResourceKind::Tenant => self.gateway.limit_tenants().await.map_err(CallError::from),
            ResourceKind::Model | ResourceKind::Skill => Ok(()),
        }
    }
}

impl Resource for TenantConfig {
    const KIND: ResourceKind = ResourceKind::Tenant;

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

    fn is_visible(_: &str, tenant: &TenantConfig, name: &str) -> bool {
        tenant.has_model(name)
    }
}

impl Resource for Skill {
    const KIND: ResourceKind = ResourceKind::Skill;

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
