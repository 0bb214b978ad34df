use std::collections::BTreeMap;
use std::time::Duration;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::check::Findings;
use super::overrides::Overrides;
use super::schema::Money;

/// The agents: their models, and how far a run may go.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// The profile of a request that names none.
    pub default_profile: String,
    /// By the name that `GET /v1/models` lists.
    pub profiles: BTreeMap<String, AgentProfile>,
}

/// One agent: which model, and its bounds. Defaults are those of the original's ReAct agent (A9–A13).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentProfile {
    pub provider: Provider,
    /// The provider's name of the model; for `replay` the script's file.
    pub model: String,
    /// Where the provider's API stands, when it is not the provider's own.
    pub base_url: Option<Url>,
    pub api_key: Option<Secret>,
    /// Left to the provider when it is left out.
    pub temperature: Option<f64>,
    /// Tokens of one answer (A11).
    pub max_tokens: u32,
    /// The longest wait for the first piece of an answer, and between two pieces (A12).
    pub timeout_seconds: f64,
    /// Further attempts after a failure of the provider (A13); overload and timeouts have three (A65, A66).
    pub retries: u32,
    /// USD for a million tokens sent to the model.
    #[schemars(with = "Money")]
    pub price_per_million_prompt_tokens: Decimal,
    /// USD for a million tokens of its answers.
    #[schemars(with = "Money")]
    pub price_per_million_completion_tokens: Decimal,
    /// Turns of one run (A15).
    pub max_turns: u32,
    /// Tool calls of one run.
    pub max_tool_calls: u32,
    /// A run's wall time.
    pub max_run_seconds: f64,
    /// Tokens of all turns of a run, sent and received.
    pub run_tokens: u64,
    /// Tool calls of one turn at the same time.
    pub parallel_tool_calls: usize,
    /// A longer tool result is cut before the model sees it.
    pub max_result_bytes: usize,
    /// A turn whose text holds one of these ends the run, whatever else it asks for (D19). Empty: none.
    pub end_words: Vec<String>,
}

/// Whose API a model speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and whatever speaks it.
    Openai,
    /// A scripted conversation from a file.
    Replay,
}

impl Default for AgentConfig {
    fn default() -> Self {
        let openai = AgentProfile {
            provider: Provider::Openai,
            model: "gpt-4o-mini".into(),
            temperature: Some(0.7),
            max_tokens: 1_000,
            ..AgentProfile::default()
        };
        Self {
            default_profile: "anthropic".into(),
            profiles: [("anthropic".into(), AgentProfile::default()), ("openai".into(), openai)].into(),
        }
    }
}

impl Default for AgentProfile {
    fn default() -> Self {
        Self {
            provider: Provider::Anthropic,
            model: "claude-sonnet-4-5".into(),
            base_url: None,
            api_key: None,
            temperature: Some(0.2),
            max_tokens: 2_000,
            timeout_seconds: 30.0,
            retries: 2,
            price_per_million_prompt_tokens: Decimal::ZERO,
            price_per_million_completion_tokens: Decimal::ZERO,
            max_turns: 50,
            max_tool_calls: 200,
            max_run_seconds: 600.0,
            run_tokens: 200_000,
            parallel_tool_calls: 8,
            max_result_bytes: 65_536,
            end_words: Vec::new(),
        }
    }
}

impl AgentProfile {
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_seconds)
    }

    pub fn max_run(&self) -> Duration {
        seconds(self.max_run_seconds)
    }

    fn check(&self, at: &str, findings: &mut Findings) {
        if self.model.trim().is_empty() {
            findings.add(format!("{at}.model"), "is empty", "name the provider's model, or a script's file");
        }
        if let Some(temperature) = self.temperature
            && !(0.0..=2.0).contains(&temperature)
        {
            findings.add(format!("{at}.temperature"), "is not between 0 and 2", "0.2 is a usual value");
        }
        for (setting, price) in [
            ("price_per_million_prompt_tokens", self.price_per_million_prompt_tokens),
            ("price_per_million_completion_tokens", self.price_per_million_completion_tokens),
        ] {
            if price.is_sign_negative() {
                findings.add(format!("{at}.{setting}"), "is negative", "give the price in USD, 0 for none");
            }
        }
        findings.above_zero(&format!("{at}.max_tokens"), self.max_tokens);
        findings.above_zero(&format!("{at}.max_turns"), self.max_turns);
        findings.above_zero(&format!("{at}.run_tokens"), self.run_tokens);
        findings.above_zero(&format!("{at}.parallel_tool_calls"), self.parallel_tool_calls);
        findings.above_zero(&format!("{at}.max_result_bytes"), self.max_result_bytes);
        findings.duration(&format!("{at}.timeout_seconds"), self.timeout_seconds);
        findings.duration(&format!("{at}.max_run_seconds"), self.max_run_seconds);
        if self.end_words.iter().any(|word| word.trim().is_empty()) {
            findings.add(format!("{at}.end_words"), "has an empty word, which ends every run", "remove it");
        }
    }
}

impl AgentConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        for (name, profile) in &mut self.profiles {
            let (model, key) = (format!("agent.profiles.{name}.model"), format!("agent.profiles.{name}.api_key"));
            match profile.provider {
                Provider::Anthropic => {
                    environment.apply("ANTHROPIC_MODEL", &model, &mut profile.model);
                    environment.apply("ANTHROPIC_API_KEY", &key, &mut profile.api_key);
                }
                Provider::Openai => environment.apply("OPENAI_API_KEY", &key, &mut profile.api_key),
                Provider::Replay => {}
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if !self.profiles.contains_key(&self.default_profile) {
            findings.add("agent.default_profile", "names no profile", "name one of `agent.profiles`");
        }
        for (name, profile) in &self.profiles {
            let at = format!("agent.profiles.{name}");
            findings.name(&at, name);
            profile.check(&at, findings);
        }
    }
}

/// Checked settings fit; whatever else is as good as no bound.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
