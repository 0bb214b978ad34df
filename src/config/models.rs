use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AgentProfile;
use super::check::Findings;
use super::schema::Money;
use super::tenants::ResourceStatus;

/// A model under a name of ours: requests and tenants name it, and the provider's id may change (C26).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// The profile with its provider, key, prompt and limits. Default: `agent.default_profile`.
    pub profile: Option<String>,
    /// The provider's id of the model. Default: the profile's.
    pub model: Option<String>,
    pub status: ResourceStatus,
    /// USD per million tokens sent to it. Default: the vendor's, or the profile's if it has the same model.
    #[schemars(with = "Option<Money>")]
    #[schema(value_type = Option<String>)]
    pub price_per_million_prompt_tokens: Option<Decimal>,
    /// USD per million tokens of its answers, with the same default.
    #[schemars(with = "Option<Money>")]
    #[schema(value_type = Option<String>)]
    pub price_per_million_completion_tokens: Option<Decimal>,
    /// The model's context window in tokens. Default: that of the shipped list, or the profile's if it has the same model.
    pub context_tokens: Option<u64>,
}

impl ModelConfig {
    /// The profile with this model.
    pub fn over(&self, profile: &AgentProfile) -> AgentProfile {
        let model = self.model.as_deref().unwrap_or(profile.model());
        // The prices and the window of a profile are for its own model.
        let own = (model == profile.model()).then_some(profile);
        let (prompt, completion) = (self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens);
        AgentProfile {
            model: Some(model.to_owned()),
            context_tokens: self.context_tokens.or(own.and_then(|own| own.context_tokens)),
            price_per_million_prompt_tokens: prompt.or(own.and_then(|own| own.price_per_million_prompt_tokens)),
            price_per_million_completion_tokens: completion
                .or(own.and_then(|own| own.price_per_million_completion_tokens)),
            ..profile.clone()
        }
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        if self.model.as_ref().is_some_and(|model| model.trim().is_empty()) {
            findings.add(format!("{at}.model"), "is empty", "set the provider's id of the model");
        }
        for (key, price) in [
            ("price_per_million_prompt_tokens", self.price_per_million_prompt_tokens),
            ("price_per_million_completion_tokens", self.price_per_million_completion_tokens),
        ] {
            if price.is_some_and(|price| price.is_sign_negative()) {
                findings.add(format!("{at}.{key}"), "is negative", "set the price in USD, 0 if it is free");
            }
        }
        findings.above_zero_or_none(&format!("{at}.context_tokens"), self.context_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_of_a_profile_are_not_those_of_another_model() {
        let price = |text: &str| Some(text.parse::<Decimal>().unwrap());
        let profile = AgentProfile {
            model: Some("large".into()),
            price_per_million_prompt_tokens: price("3"),
            price_per_million_completion_tokens: price("15"),
            ..AgentProfile::default()
        };
        let prices = |alias: ModelConfig| {
            let resolved = alias.over(&profile);
            (
                resolved.model().to_owned(),
                resolved.price_per_million_prompt_tokens,
                resolved.price_per_million_completion_tokens,
            )
        };
        assert_eq!(prices(ModelConfig::default()), ("large".into(), price("3"), price("15")));
        let small = || ModelConfig { model: Some("small".into()), ..ModelConfig::default() };
        assert_eq!(prices(small()), ("small".into(), None, None));
        let priced = ModelConfig { price_per_million_prompt_tokens: price("1"), ..small() };
        assert_eq!(prices(priced), ("small".into(), price("1"), None));
        let profile = AgentProfile { context_tokens: Some(200_000), ..profile };
        let window = |alias: ModelConfig| alias.over(&profile).context_tokens;
        assert_eq!((window(ModelConfig::default()), window(small())), (Some(200_000), None));
        assert_eq!(window(ModelConfig { context_tokens: Some(8_000), ..small() }), Some(8_000));
    }
}
