//! The prices of models: from their profile, otherwise from the shipped list of the vendors' prices. A model in
//! neither has no price, which is different from being free.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::civil::Date;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use sekisho_config::{AgentConfig, AgentProfile, Config, Provider, RowPrices};

/// Prefixes of Amazon's inference profiles; each costs the same as the model in a region.
const BEDROCK_GEOGRAPHIES: [&str; 5] = ["us.", "eu.", "apac.", "jp.", "au."];

/// The profile's keys, as an operator writes them.
const PROMPT_KEY: &str = "price_per_million_prompt_tokens";
const COMPLETION_KEY: &str = "price_per_million_completion_tokens";

static LIST: LazyLock<Result<PriceList, String>> =
    LazyLock::new(|| PriceList::parse(include_str!("model_prices.yaml")));

/// Tokens of one turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelUsage {
    /// All tokens of the prompt, including the counts below.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Tokens of the prompt that are in the provider's cache.
    pub cached_tokens: u64,
    /// Tokens of the prompt that are added to the cache.
    pub cache_write_tokens: u64,
    /// The part of the completion that is reasoning, where the provider counts it.
    pub reasoning_tokens: u64,
}

/// The prices of a model, by the length of its prompt: the shortest first, and never empty.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Prices(Vec<Rates>);

/// USD for a million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    /// For prompts of more tokens.
    #[serde(default)]
    above: u64,
    prompt: Decimal,
    completion: Decimal,
    /// Prices of prompt tokens read from the provider's cache, and written to it; without a price of their own they
    /// cost the same as others.
    cached: Option<Decimal>,
    cache_write: Option<Decimal>,
}

/// A model without a price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpricedModel {
    model: String,
    /// Keys of its profile.
    missing: Vec<&'static str>,
}

/// The shipped list. Its date and sources are for readers of the file.
#[derive(Debug)]
struct PriceList {
    by_model: HashMap<String, Prices>,
}

#[derive(Debug, Deserialize)]
struct PriceFile {
    vendors: Vec<Vendor>,
}

#[derive(Debug, Deserialize)]
struct Vendor {
    models: HashMap<String, Prices>,
}

impl Prices {
    /// Errors: neither the profile nor the list has a price for the model.
    pub fn of(profile: &AgentProfile) -> Result<Self, UnpricedModel> {
        let in_table = profile.row().and_then(|row| row.prices).map(|prices| {
            let RowPrices { prompt, completion, cached, cache_write } = prices;
            Self(vec![Rates { above: 0, prompt, completion, cached, cache_write }])
        });
        let listed = match profile.provider() {
            Provider::Replay => Some(Self::free()),
            _ if in_table.is_some() => in_table,
            _ => LIST.as_ref().ok().and_then(|list| list.find(profile.model())).cloned(),
        };
        match (profile.price_per_million_prompt_tokens, profile.price_per_million_completion_tokens, listed) {
            (Some(prompt), Some(completion), _) => Ok(Self(vec![Rates { prompt, completion, ..Rates::default() }])),
            (prompt, completion, Some(listed)) => Ok(listed.with(prompt, completion)),
            (prompt, completion, None) => {
                let missing = [(PROMPT_KEY, prompt), (COMPLETION_KEY, completion)];
                let missing = missing.into_iter().filter(|(_, price)| price.is_none()).map(|(key, _)| key).collect();
                Err(UnpricedModel { model: profile.model().to_owned(), missing })
            }
        }
    }

    pub fn free() -> Self {
        Self(vec![Rates::default()])
    }

    pub fn cost(&self, usage: ModelUsage) -> Decimal {
        let ModelUsage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens: _ } =
            usage;
        let fits = |rates: &&Rates| rates.above == 0 || prompt_tokens > rates.above;
        let Some(rates) = self.0.iter().rev().find(fits) else { return Decimal::ZERO };
        let cached = cached_tokens.min(prompt_tokens);
        let written = cache_write_tokens.min(prompt_tokens - cached);
        [
            (prompt_tokens - cached - written, rates.prompt),
            (cached, rates.cached.unwrap_or(rates.prompt)),
            (written, rates.cache_write.unwrap_or(rates.prompt)),
            (completion_tokens, rates.completion),
        ]
        .into_iter()
        .fold(Decimal::ZERO, |sum, (tokens, price)| sum.saturating_add(price_of(tokens, price)))
    }

    /// With a profile's prices in place of the list's. A configured price is for every prompt token.
    fn with(mut self, prompt: Option<Decimal>, completion: Option<Decimal>) -> Self {
        for rates in &mut self.0 {
            if let Some(prompt) = prompt {
                (rates.prompt, rates.cached, rates.cache_write) = (prompt, None, None);
            }
            rates.completion = completion.unwrap_or(rates.completion);
        }
        self
    }
}

impl UnpricedModel {
    /// The error for a model without a price when a daily money limit is set.
    pub fn refusal(&self, limit: &str) -> String {
        format!("the model {} has no price, and `{limit}` is set; {}", shown(&self.model), self.advice("its profile"))
    }

    fn advice(&self, place: &str) -> String {
        let keys: Vec<_> = self.missing.iter().map(|key| format!("`{key}`")).collect();
        format!("write {} in {place}, 0 if it is free", keys.join(" and "))
    }
}

/// The models of a configuration without a price, and the consequence; `None` where there are none.
pub fn unpriced(config: &Config) -> Option<String> {
    let agent = &config.agent;
    let profiles = agent.profiles.iter().filter_map(|(name, profile)| {
        let place = format!("`agent.profiles.{name}`");
        unpriced_at(&place, &place, profile)
    });
    let mut models: Vec<_> = profiles.chain(unpriced_summaries(agent)).collect();
    models.dedup();
    let effect = match config.budget.daily_cost_limit() {
        Some(limit) => format!("calls of models without a price are refused, since `{limit}` is set"),
        None => "the cost of models without a price counts as 0".to_owned(),
    };
    (!models.is_empty()).then(|| format!("{effect}: {}", models.join("; ")))
}

/// Only of profiles that can be used: the built-in ones always exist.
fn unpriced_summaries(agent: &AgentConfig) -> impl Iterator<Item = String> {
    let is_set = agent.memory.summaries && agent.memory.summary_model.is_some();
    let is_usable = |profile: &&AgentProfile| {
        profile.api_key.is_some() || profile.base_url.is_some() || profile.aws.names_credentials()
    };
    let max_usage = agent.profiles.values().filter(is_usable);
    let profiles = max_usage.filter(move |_| is_set).map(|profile| agent.summary_profile(profile));
    profiles.filter_map(|profile| unpriced_at("`agent.memory.summary_model`", "a profile with this model", &profile))
}

fn unpriced_at(place: &str, profile_place: &str, profile: &AgentProfile) -> Option<String> {
    let unpriced = Prices::of(profile).err()?;
    Some(format!("{place} ({}): {}", shown(&unpriced.model), unpriced.advice(profile_place)))
}

impl PriceList {
    fn parse(yaml: &str) -> Result<Self, String> {
        let file: PriceFile = serde_saphyr::from_str(yaml).map_err(|problem| problem.to_string())?;
        Ok(Self { by_model: file.vendors.into_iter().flat_map(|vendor| vendor.models).collect() })
    }

    /// The price of exactly this model: by its name, by its name without the date of a snapshot, or by the model of
    /// one of Amazon's inference profiles.
    fn find(&self, model: &str) -> Option<&Prices> {
        let find = |name: &str| self.by_model.get(name);
        let in_region = || {
            let mut names = BEDROCK_GEOGRAPHIES.iter().filter_map(|prefix| model.strip_prefix(prefix));
            names.find(|name| name.starts_with("anthropic."))
        };
        find(model).or_else(|| find(without_date(model)?)).or_else(|| find(in_region()?))
    }
}

/// `claude-sonnet-4-5-20250929` and `gpt-4o-2024-08-06` without their dates; `None` where there is none.
pub fn without_date(model: &str) -> Option<&str> {
    [("%Y%m%d", 8), ("%Y-%m-%d", 10)].into_iter().find_map(|(form, length)| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(length)?)?;
        Date::strptime(form, date).ok()?;
        name.strip_suffix('-')
    })
}

fn price_of(tokens: u64, per_million: Decimal) -> Decimal {
    const MILLION: Decimal = Decimal::from_parts(1_000_000, 0, 0, false, 0);
    Decimal::from(tokens).checked_mul(per_million).unwrap_or(Decimal::MAX) / MILLION
}

/// A name from a configuration, shortened for a message.
fn shown(model: &str) -> String {
    format!("{:?}", model.chars().take(100).collect::<String>())
}

#[cfg(test)]
mod tests;
