mod background;
mod fallback;
mod profile;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

pub use self::background::{BackgroundConfig, Recover};
pub use self::fallback::{FailureClass, FallbackConfig};
pub use self::profile::{AgentProfile, ProfilePrompt, Provider};

use super::check::Findings;
use super::embeddings::EmbeddingsConfig;
use super::model_table::ModelTable;
use super::models::ModelConfig;
use super::overrides::Overrides;
use super::subagents::SubAgentsConfig;
use super::yaml::error::ConfigError;

/// The agents: their models, and the limits of a run.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// The profile for requests that name none.
    pub default_profile: String,
    /// By the name that `GET /v1/models` lists. `anthropic` and `openai` always exist; settings here change them.
    #[serde(deserialize_with = "beside_the_built_in")]
    pub profiles: BTreeMap<String, AgentProfile>,
    /// Further names of models; each has the settings of a profile. Requests and tenants may name them.
    pub models: BTreeMap<String, ModelConfig>,
    /// A file with rows about models, in the form of `src/config/model_table.yaml`: they come before the shipped ones.
    pub models_file: Option<PathBuf>,
    /// A folder with skills: folders with a `SKILL.md`, whose front matter has `name` and `description`.
    pub skills_directory: Option<PathBuf>,
    pub subagents: SubAgentsConfig,
    /// A folder with prompts that replace the built-in ones: `with_tools.md`, `without_tools.md`,
    /// `reasoning_summary.md`, `conversation_summary.md`, `context_summary.md`, `selection.md`, `title.md`, `planner.md`,
    /// `replanner.md`, `evaluator.md`, `plan_step.md`, `plan_answer.md` (A58).
    pub prompts_directory: Option<PathBuf>,
    pub memory: MemoryConfig,
    pub conversations: ConversationsConfig,
    pub recover: Recover,
    pub background: BackgroundConfig,
    /// Lets the memory of plans be searched by the meaning of its entries too. Without it, by their words alone.
    pub embeddings: Option<EmbeddingsConfig>,
}

/// The conversations of `/api/conversations`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConversationsConfig {
    /// The messages, tool calls and usage of a conversation that did not change for this long are deleted.
    pub retention_days: u32,
}

/// Memory of a thread (the header `X-OpenWebUI-Chat-Id`): a short summary, written after each reply.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Whether threads are summarized (A43).
    pub summaries: bool,
    /// Maximum number of summaries; beyond it the least recently used are deleted (A44).
    pub max_summaries: u32,
    /// The provider's model for summaries; by default the profile's own (A45). Its price is the list's, or that of a
    /// profile with this model.
    pub summary_model: Option<String>,
}

/// Names of models, and the variables with the provider's ids of them (C26).
const MODEL_VARIABLES: [(&str, &str); 3] = [
    ("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    ("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
    ("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
];

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            default_profile: Provider::Anthropic.as_str().into(),
            profiles: built_in(),
            models: BTreeMap::new(),
            models_file: None,
            skills_directory: None,
            subagents: SubAgentsConfig::default(),
            prompts_directory: None,
            memory: MemoryConfig::default(),
            conversations: ConversationsConfig::default(),
            recover: Recover::default(),
            background: BackgroundConfig::default(),
            embeddings: None,
        }
    }
}

impl Default for ConversationsConfig {
    fn default() -> Self {
        Self { retention_days: 90 }
    }
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { summaries: true, max_summaries: 1_000, summary_model: None }
    }
}

impl AgentConfig {
    /// The profile that summarizes threads: the same with `memory.summary_model`. The prices in a profile are for its
    /// own model; another model has the prices of a profile with that model.
    pub fn summary_profile(&self, profile: &AgentProfile) -> AgentProfile {
        let Some(model) = self.memory.summary_model.as_deref().filter(|model| *model != profile.model()) else {
            return profile.clone();
        };
        let names_it = |other: &&AgentProfile| {
            other.model() == model && other.provider() == profile.provider() && other.base_url == profile.base_url
        };
        let priced = self.profiles.values().find(names_it);
        AgentProfile {
            model: Some(model.to_owned()),
            context_tokens: priced.and_then(|priced| priced.context_tokens),
            price_per_million_prompt_tokens: priced.and_then(|priced| priced.price_per_million_prompt_tokens),
            price_per_million_completion_tokens: priced.and_then(|priced| priced.price_per_million_completion_tokens),
            ..profile.clone()
        }
    }

    /// Gives each profile the rows of `models_file`.
    /// Errors: the file cannot be read, or is not a table.
    pub(super) fn read_models(&mut self) -> Result<(), ConfigError> {
        let Some(file) = &self.models_file else { return Ok(()) };
        let text = fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, &error))?;
        let table = ModelTable::with(&text).map_err(|problem| ConfigError::of_file(file, problem))?;
        self.profiles.values_mut().for_each(|profile| profile.table = table.clone());
        Ok(())
    }

    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        let memory = &mut self.memory;
        environment.apply("CONVERSATION_SUMMARY_ENABLED", "agent.memory.summaries", &mut memory.summaries);
        environment.apply("CONVERSATION_SUMMARY_MAX_ENTRIES", "agent.memory.max_summaries", &mut memory.max_summaries);
        environment.apply("SUMMARY_MODEL", "agent.memory.summary_model", &mut memory.summary_model);
        environment.apply("CLAUDE_CODE_SUBAGENT_MODEL", "agent.subagents.model", &mut self.subagents.model);
        if let Some(embeddings) = &mut self.embeddings {
            embeddings.override_from(environment);
        }
        for (name, profile) in &mut self.profiles {
            let (model, key) = (format!("agent.profiles.{name}.model"), format!("agent.profiles.{name}.api_key"));
            match profile.provider() {
                Provider::Anthropic => {
                    environment.apply("ANTHROPIC_MODEL", &model, &mut profile.model);
                    environment.apply("ANTHROPIC_API_KEY", &key, &mut profile.api_key);
                }
                Provider::Openai => environment.apply("OPENAI_API_KEY", &key, &mut profile.api_key),
                Provider::Gemini => environment.apply("GEMINI_API_KEY", &key, &mut profile.api_key),
                Provider::Bedrock => {
                    environment.apply("AWS_BEARER_TOKEN_BEDROCK", &key, &mut profile.api_key);
                    profile.aws.override_from(&format!("agent.profiles.{name}.aws"), environment);
                }
                Provider::Replay => {}
            }
        }
        self.override_models(environment);
    }

    /// A model that the file does not have is added where the default profile's provider has models of Anthropic.
    fn override_models(&mut self, environment: &mut Overrides<'_>) {
        let default = self.profiles.get(&self.default_profile).map(AgentProfile::provider);
        let is_of_anthropic = matches!(default, Some(Provider::Anthropic | Provider::Bedrock));
        for (name, variable) in MODEL_VARIABLES {
            let is_named = self.models.contains_key(name) || (is_of_anthropic && !self.profiles.contains_key(name));
            if is_named && environment.is_set(variable) {
                let model = self.models.entry(name.to_owned()).or_default();
                environment.apply(variable, &format!("agent.models.{name}.model"), &mut model.model);
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if !self.profiles.contains_key(&self.default_profile) {
            findings.add("agent.default_profile", "is not the name of a profile", "set one of `agent.profiles`");
        }
        findings.above_zero("agent.memory.max_summaries", self.memory.max_summaries);
        findings.above_zero("agent.conversations.retention_days", self.conversations.retention_days);
        for (name, profile) in &self.profiles {
            let at = format!("agent.profiles.{name}");
            findings.name(&at, name);
            profile.check(&at, findings);
            for (index, fallback) in profile.fallbacks.iter().enumerate() {
                if fallback.profile == *name || !self.profiles.contains_key(&fallback.profile) {
                    let at = format!("{at}.fallbacks[{index}].profile");
                    findings.add(at, "is not the name of another profile", "set one of `agent.profiles`");
                }
            }
        }
        for (name, model) in &self.models {
            let at = format!("agent.models.{name}");
            findings.name(&at, name);
            if self.profiles.contains_key(name) {
                findings.add(&at, "is the name of a profile too", "choose another name");
            }
            if model.profile.as_ref().is_some_and(|profile| !self.profiles.contains_key(profile)) {
                findings.add(format!("{at}.profile"), "is not the name of a profile", "set one of `agent.profiles`");
            }
            model.check(&at, findings);
        }
        self.subagents.check(findings);
        self.background.check(findings);
        if let Some(embeddings) = &self.embeddings {
            embeddings.check(findings);
        }
    }
}

fn built_in() -> BTreeMap<String, AgentProfile> {
    let profile = |provider: Provider| AgentProfile { provider: Some(provider), ..AgentProfile::default() };
    [Provider::Anthropic, Provider::Openai].map(|provider| (provider.as_str().to_owned(), profile(provider))).into()
}

/// A file that adds a profile, or sets a key of one, leaves the others unchanged.
fn beside_the_built_in<'de, D>(deserializer: D) -> Result<BTreeMap<String, AgentProfile>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut profiles = built_in();
    for (name, mut profile) in BTreeMap::<String, AgentProfile>::deserialize(deserializer)? {
        profile.provider = profile.provider.or(profiles.get(&name).and_then(|built_in| built_in.provider));
        profiles.insert(name, profile);
    }
    Ok(profiles)
}
