//! The provider of embeddings, with which plans also search their memory.

use std::time::Duration;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::check::Findings;
use super::overrides::Overrides;
use super::schema::Money;

/// A model for embeddings of OpenAI's API, or of a compatible one.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingsConfig {
    /// The provider's name of the model.
    pub model: String,
    /// Base URL of the API, the prefix of `embeddings`, if it is not OpenAI's.
    pub base_url: Option<Url>,
    pub api_key: Option<Secret>,
    /// Maximum wait for an answer.
    pub timeout_seconds: f64,
    /// USD per million tokens, 0 for a free model. A model without a price is not asked where
    /// `budget.max_cost_per_caller_per_day` or `max_cost_per_tenant_per_day` is set.
    #[schemars(with = "Option<Money>")]
    pub price_per_million_tokens: Option<Decimal>,
}

impl Default for EmbeddingsConfig {
    fn default() -> Self {
        Self {
            model: "text-embedding-3-small".into(),
            base_url: None,
            api_key: None,
            timeout_seconds: 10.0,
            price_per_million_tokens: None,
        }
    }
}

impl EmbeddingsConfig {
    pub fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_seconds).unwrap_or(Duration::MAX)
    }

    /// Only OpenAI gets OpenAI's key.
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        if self.base_url.is_none() {
            environment.apply("OPENAI_API_KEY", "agent.embeddings.api_key", &mut self.api_key);
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if self.model.trim().is_empty() {
            findings.add("agent.embeddings.model", "is empty", "set the provider's model");
        }
        if self.base_url.as_ref().is_some_and(Url::cannot_be_a_base) {
            findings.add("agent.embeddings.base_url", "has no path", "set one such as https://api.openai.com/v1");
        }
        if self.price_per_million_tokens.is_some_and(|price| price.is_sign_negative()) {
            let at = "agent.embeddings.price_per_million_tokens";
            findings.add(at, "is negative", "set the price in USD, 0 if it is free");
        }
        findings.duration("agent.embeddings.timeout_seconds", self.timeout_seconds);
    }
}
