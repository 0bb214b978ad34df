//! The resources of agents: tenants, models, skills and types of sub-agents, of the configuration and of the store.

mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::front_matter::UnusableFile;
use super::skills::{self, Skill};
use super::subagents::files;
use sekisho_config::{AgentConfig, AgentProfile, Config, ModelConfig, ResourceStatus, SubAgentType, TenantConfig};
use sekisho_core::error::CallError;
use sekisho_gateway::{Gateway, limits_of_tenant};
use sekisho_store::Branch;

pub use self::resources::{NewResource, Resource, ResourcePage, Shown, Viewer};

/// Finds them by name. A resource of the configuration hides a stored resource of the same name.
///
/// Each run asks the store anew, so that a change by another process of a database counts from the next run on. A tenant and its
/// skills took 44 µs together from a SQLite file, in a build without optimization: nothing is cached.
pub struct Catalog {
    gateway: Arc<Gateway>,
    /// Of `agent.skills_directory`.
    skills: BTreeMap<String, Skill>,
    /// Of `agent.subagents.directory`.
    subagents: BTreeMap<String, SubAgentType>,
}

/// Maximum skills in the prompt of an agent.
const MAX_SKILLS: usize = 100;

/// In place of a model's name: the model of the agent that starts a sub-agent.
pub const INHERIT: &str = "inherit";

/// A tenant, and its settings.
#[derive(Debug, Clone)]
pub struct Tenant {
    pub id: Arc<str>,
    pub settings: TenantConfig,
}

/// A model that a tenant may use.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// The name of the model, or of the profile.
    pub name: Arc<str>,
    pub profile: Arc<AgentProfile>,
}

impl Catalog {
    /// Reads the folders of skills and of sub-agents.
    /// Errors: a folder or a file in it that cannot be used.
    pub fn load(gateway: &Arc<Gateway>) -> Result<Self, UnusableFile> {
        let config = gateway.configuration().current();
        let (skills, subagents) = read_folders(&config.agent)?;
        gateway.configuration_notes().know_skills(skills.keys().cloned().collect());
        Ok(Self { gateway: Arc::clone(gateway), skills, subagents })
    }

    /// The settings of a tenant. A tenant without settings may use everything.
    /// Errors: `internal` if the store fails.
    pub async fn tenant(&self, id: &str) -> Result<TenantConfig, CallError> {
        let tenant = self.find::<TenantConfig>(Viewer::OfTenant(id), id).await?.unwrap_or_default();
        // Another process may have changed it.
        self.gateway.pipeline.budget.limit_tenant(id, limits_of_tenant(&tenant));
        Ok(tenant)
    }

    /// A tenant whose agents may run (C3).
    /// Errors: `invalid_request` for an inactive one.
    pub async fn active_tenant(&self, id: &str) -> Result<Tenant, CallError> {
        let settings = self.tenant(id).await?;
        if settings.status.is_active() {
            return Ok(Tenant { id: id.into(), settings });
        }
        Err(CallError::invalid(format!("the tenant {id:?} is inactive; an administrator can activate it")))
    }

    /// The model or profile of that name, for a run of this tenant; without a name, the tenant's default.
    /// Errors: `invalid_request`: the tenant or the model is inactive, or the tenant has no such model.
    pub async fn model(&self, tenant_id: &str, name: Option<&str>) -> Result<ResolvedModel, CallError> {
        let tenant = self.active_tenant(tenant_id).await?;
        self.model_of(&tenant, name).await
    }

    /// The model or profile of that name, for a run of an active tenant.
    /// Errors: as [`Catalog::model`].
    pub async fn model_of(&self, tenant: &Tenant, name: Option<&str>) -> Result<ResolvedModel, CallError> {
        let config = self.gateway.configuration().current().clone();
        let name = name.unwrap_or_else(|| default_model(&config.agent, &tenant.settings));
        let known = match tenant.settings.has_model(name) {
            true => self.known_model(&config.agent, tenant, name).await?,
            false => None,
        };
        match known {
            Some((_, ResourceStatus::Inactive)) => {
                Err(CallError::invalid(format!("the model {:?} is inactive; use another", shown(name))))
            }
            Some((profile, ResourceStatus::Active)) => {
                Ok(ResolvedModel { name: name.into(), profile: Arc::new(profile) })
            }
            None => {
                // Clients of model APIs show only the message.
                let names = self.models(tenant).await?;
                let message = format!("there is no model {:?} for this tenant, only {}", shown(name), names.join(", "));
                Err(CallError::invalid(message).with_alternatives(names))
            }
        }
    }

    /// The profile for a sub-agent with the model of that name. Without a name, the profile for all sub-agents
    /// (`agent.subagents.model`), or the profile of the agent that starts it.
    /// Errors: as [`Catalog::model`].
    pub async fn model_of_subagent(
        &self,
        tenant_id: &str,
        name: Option<&str>,
        parent: &AgentProfile,
    ) -> Result<AgentProfile, CallError> {
        let config = self.gateway.configuration().current().clone();
        let general = config.agent.subagents.model.as_deref().filter(|name| *name != INHERIT);
        let Some(named) = name.or(general) else { return Ok(parent.clone()) };
        let viewer = Viewer::OfTenant(tenant_id);
        let is_name =
            config.agent.profiles.contains_key(named) || self.find::<ModelConfig>(viewer, named).await?.is_some();
        if name.is_none() && !is_name {
            let id = ModelConfig { model: Some(named.to_owned()), ..ModelConfig::default() };
            return Ok(id.over(parent));
        }
        Ok(AgentProfile::clone(&self.model(tenant_id, Some(named)).await?.profile))
    }

    /// The profile with the model and the prompt of a branch.
    /// Errors: as [`Catalog::model`].
    pub async fn of_branch(
        &self,
        tenant: &Tenant,
        profile: &AgentProfile,
        branch: &Branch,
    ) -> Result<Arc<AgentProfile>, CallError> {
        let mut profile = match &branch.model {
            Some(name) => profile.with_model_of(&self.model_of(tenant, Some(name)).await?.profile),
            None => profile.clone(),
        };
        if let Some(prompt) = &branch.prompt {
            profile.prompt.clone_from(prompt);
        }
        Ok(Arc::new(profile))
    }

    /// The names of the models and profiles of a tenant.
    /// Errors: `internal` if the store fails.
    pub async fn models(&self, tenant: &Tenant) -> Result<Vec<String>, CallError> {
        let mut names: BTreeSet<_> =
            self.names::<ModelConfig>(Viewer::OfTenant(&tenant.id)).await?.into_keys().collect();
        names.extend(self.gateway.configuration().current().agent.profiles.keys().cloned());
        names.retain(|name| tenant.settings.has_model(name));
        Ok(names.into_iter().collect())
    }

    /// The skills of these names.
    /// Errors: `invalid_request` for a skill that the tenant does not have.
    pub async fn skills(&self, tenant: &Tenant, names: &[String]) -> Result<Vec<(String, Skill)>, CallError> {
        let viewer = Viewer::OfTenant(&tenant.id);
        let mut skills = Vec::with_capacity(names.len());
        for name in names {
            let skill = match tenant.settings.has_skill(name) {
                true => self.find::<Skill>(viewer, name).await?,
                false => None,
            };
            let Some(skill) = skill else {
                let mut known = self.names::<Skill>(viewer).await?;
                known.retain(|name, _| tenant.settings.has_skill(name));
                let message = format!("there is no skill {:?} for this tenant; leave it out", shown(name));
                return Err(CallError::invalid(message).with_alternatives(known.into_keys().collect()));
            };
            if !skills.iter().any(|(known, _)| known == name) {
                skills.push((name.clone(), skill));
            }
        }
        Ok(skills)
    }

    /// All skills of a tenant, at most [`MAX_SKILLS`].
    /// Errors: `overloaded` if the store is away.
    pub async fn skills_of(&self, tenant: &Tenant) -> Result<BTreeMap<String, Skill>, CallError> {
        let viewer = Viewer::OfTenant(&tenant.id);
        let found = self.list::<Skill>(viewer, None, MAX_SKILLS, |name, _| tenant.settings.has_skill(name)).await?;
        Ok(found.items.into_iter().map(|shown| (shown.name, shown.value)).collect())
    }

    /// The types of sub-agents among these names; `*` stands for all. A name that no type has is left out.
    pub fn subagents(&self, names: &[String]) -> BTreeMap<String, SubAgentType> {
        if names.is_empty() {
            return BTreeMap::new();
        }
        let mut types = self.subagents.clone();
        types.extend(self.gateway.configuration().current().agent.subagents.types.clone());
        types.retain(|name, _| names.iter().any(|wanted| wanted == name || wanted == "*"));
        types
    }

    /// The profile with the model of that name, or the profile of that name, if the tenant has it.
    async fn known_model(
        &self,
        config: &AgentConfig,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<(AgentProfile, ResourceStatus)>, CallError> {
        if let Some(profile) = config.profiles.get(name) {
            return Ok(Some((profile.clone(), ResourceStatus::Active)));
        }
        let found = self.shown::<ModelConfig>(Viewer::OfTenant(&tenant.id), name).await?;
        let Some(Shown { value: model, tenant: owner, .. }) = found else { return Ok(None) };
        let base = model.profile.as_ref().unwrap_or(&config.default_profile);
        // The tenant may have lost the profile since it added the model.
        if owner.is_some() && !tenant.settings.has_model(base) {
            return Ok(None);
        }
        // A stored model may name a profile that the configuration no longer has.
        let profile = config.profiles.get(base).ok_or_else(|| {
            CallError::invalid(format!(
                "the model {name:?} names the profile {base:?}, which does not exist; correct the model"
            ))
        })?;
        Ok(Some((model.over(profile), model.status)))
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Catalog")
            .field("skills", &self.skills.keys())
            .field("subagents", &self.subagents.keys())
            .finish_non_exhaustive()
    }
}

/// Skills, and types of sub-agents, by name.
type Folders = (BTreeMap<String, Skill>, BTreeMap<String, SubAgentType>);

/// The skills and types of sub-agents of the configured folders.
/// Errors: a folder or a file in it that cannot be used, or a type that a profile names and nobody defines.
pub fn read_folders(config: &AgentConfig) -> Result<Folders, UnusableFile> {
    let skills = config.skills_directory.as_deref().map(skills::load).transpose()?.unwrap_or_default();
    let subagents = config.subagents.directory.as_deref().map(files::load).transpose()?.unwrap_or_default();
    let is_known =
        |name: &String| name == "*" || subagents.contains_key(name) || config.subagents.types.contains_key(name);
    let of_profiles = config.profiles.iter().map(|(name, profile)| (format!("profiles.{name}"), &profile.subagents));
    let of_types =
        config.subagents.types.iter().map(|(name, kind)| (format!("subagents.types.{name}"), &kind.subagents));
    for (place, names) in of_profiles.chain(of_types) {
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            let place = format!("agent.{place}.subagents");
            return Err(UnusableFile::new(Path::new(&place), format!("there is no type of sub-agents {unknown:?}")));
        }
    }
    Ok((skills, subagents))
}

/// The first of the tenant's models, or where it has all, the default profile.
fn default_model<'a>(config: &'a AgentConfig, tenant: &'a TenantConfig) -> &'a str {
    let first = tenant.models.as_ref().and_then(|models| models.first());
    first.filter(|_| !tenant.has_model(&config.default_profile)).unwrap_or(&config.default_profile)
}

/// The file that defines the resources of the configuration.
fn file_of(config: &Config) -> String {
    config.file.as_ref().map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string())
}

fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}

#[cfg(test)]
mod tests;
