use serde_json::Value;

use super::*;
use sekisho_config::agent::MemoryConfig;
use sekisho_config::{BudgetConfig, Secret};

fn profile(provider: Provider, model: &str) -> AgentProfile {
    AgentProfile { provider: Some(provider), model: Some(model.into()), ..AgentProfile::default() }
}

/// Prompt and completion for a short prompt.
fn priced(profile: &AgentProfile) -> Option<String> {
    let prices = Prices::of(profile).ok()?;
    let million = |prompt_tokens, completion_tokens| {
        prices.cost(ModelUsage { prompt_tokens, completion_tokens, ..ModelUsage::default() })
    };
    // A thousand tokens are in no tier of long prompts.
    let thousand = million(1_000, 0) * Decimal::from(1_000);
    Some(format!("{} {}", thousand.normalize(), million(0, 1_000_000).normalize()))
}

#[test]
fn the_list_is_dated_and_has_a_source_for_every_price() {
    let list: Value = serde_saphyr::from_str(include_str!("../model_prices.yaml")).unwrap();
    assert!(list["date"].as_str().unwrap().parse::<jiff::civil::Date>().is_ok());
    for vendor in list["vendors"].as_array().unwrap() {
        assert!(vendor["source"].as_str().unwrap().starts_with("https://"), "{vendor}");
        assert!(!vendor["models"].as_object().unwrap().is_empty(), "{vendor}");
    }
}

#[test]
fn every_listed_price_makes_sense() {
    let list = LIST.as_ref().unwrap();
    assert!(list.by_model.len() > 90, "{}", list.by_model.len());
    for (model, Prices(tiers)) in &list.by_model {
        assert!(!tiers.is_empty() && tiers[0].above == 0, "{model}");
        for rates in tiers {
            assert!(rates.prompt > Decimal::ZERO && rates.completion > rates.prompt, "{model}");
            assert!(rates.cached.is_none_or(|cached| cached > Decimal::ZERO && cached < rates.prompt), "{model}");
            assert!(rates.cache_write.is_none_or(|written| written > rates.prompt), "{model}");
        }
        let dearer = |pair: &[Rates]| pair[1].above > pair[0].above && pair[1].prompt > pair[0].prompt;
        assert!(tiers.windows(2).all(dearer), "{model}");
    }
}

#[test]
fn a_name_is_found_exactly_or_with_its_vendors_date_and_never_by_its_beginning() {
    for (provider, model, expected) in [
        (Provider::Anthropic, "claude-opus-4-5", Some("5 25")),
        (Provider::Anthropic, "claude-opus-4-5-20251101", Some("5 25")),
        (Provider::Anthropic, "claude-sonnet-4-5-20250929", Some("3 15")),
        (Provider::Anthropic, "claude-opus-4-20250514", Some("15 75")),
        (Provider::Anthropic, "claude-3-7-sonnet-latest", Some("3 15")),
        (Provider::Anthropic, "claude-opus-4-5-20251301", None),
        (Provider::Anthropic, "claude-opus-4-5-v2", None),
        (Provider::Anthropic, "claude-opus-4-55", None),
        (Provider::Anthropic, "claude-opus-4-5-20251101-pro", None),
        (Provider::Anthropic, "claude-opus", None),
        (Provider::Anthropic, "CLAUDE-OPUS-4-5", None),
        (Provider::Openai, "gpt-4o-mini-2024-07-18", Some("0.15 0.6")),
        (Provider::Openai, "gpt-4o-2024-08-06", Some("2.5 10")),
        (Provider::Openai, "gpt-4o-2024-05-13", Some("5 15")),
        (Provider::Openai, "gpt-4o-audio-preview", None),
        (Provider::Openai, "gpt-5-pro", Some("15 120")),
        (Provider::Openai, "gpt-5-turbo", None),
        (Provider::Openai, "o1-pro-2025-03-19", Some("150 600")),
        (Provider::Openai, "ft:gpt-4o-mini-2024-07-18:acme::id", None),
        (Provider::Openai, "claude-haiku-4-5", Some("1 5")),
        (Provider::Openai, "llama3.2", None),
        (Provider::Openai, "20250929", None),
        (Provider::Openai, "-20250929", None),
        (Provider::Openai, "モデル-20250929", None),
        (Provider::Bedrock, "anthropic.claude-sonnet-4-5-20250929-v1:0", Some("3.3 16.5")),
        (Provider::Bedrock, "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", Some("3.3 16.5")),
        (Provider::Bedrock, "global.anthropic.claude-sonnet-4-5-20250929-v1:0", Some("3 15")),
        (Provider::Bedrock, "apac.anthropic.claude-sonnet-4-20250514-v1:0", Some("3 15")),
        (Provider::Bedrock, "us.anthropic.claude-opus-4-6-v1", Some("5.5 27.5")),
        (Provider::Bedrock, "us.us.anthropic.claude-opus-4-6-v1", None),
        (Provider::Openai, "eu.gpt-4o", None),
        (Provider::Bedrock, "mars.anthropic.claude-opus-4-6-v1", None),
        (Provider::Bedrock, "anthropic.claude-sonnet-4-5-20250929-v2:0", None),
    ] {
        assert_eq!(priced(&profile(provider, model)).as_deref(), expected, "{model}");
    }
    assert_eq!(priced(&AgentProfile::default()).as_deref(), Some("3 15"), "the default model");
}

#[test]
fn the_prices_of_a_profile_take_precedence_over_the_list() {
    let own = |model: &str, prompt: Option<i64>, completion: Option<i64>| AgentProfile {
        price_per_million_prompt_tokens: prompt.map(Decimal::from),
        price_per_million_completion_tokens: completion.map(Decimal::from),
        ..profile(Provider::Anthropic, model)
    };
    for (model, prompt, completion, expected) in [
        ("claude-opus-4-5", Some(1), Some(2), Some("1 2")),
        ("claude-opus-4-5", Some(1), None, Some("1 25")),
        ("claude-opus-4-5", None, Some(2), Some("5 2")),
        ("local", Some(1), Some(2), Some("1 2")),
        ("local", Some(0), Some(0), Some("0 0")),
        ("local", Some(1), None, None),
        ("local", None, Some(0), None),
    ] {
        assert_eq!(priced(&own(model, prompt, completion)).as_deref(), expected, "{model} {prompt:?} {completion:?}");
    }
    for free in [own("local", Some(0), Some(0)), AgentProfile::replay("script.yaml")] {
        assert_eq!(Prices::of(&free).unwrap(), Prices::free());
    }
    let refusal = Prices::of(&own("local", Some(1), None)).unwrap_err().refusal("budget.max_cost_per_caller_per_day");
    assert!(refusal.contains("`price_per_million_completion_tokens`") && !refusal.contains("prompt"), "{refusal}");
}

#[test]
fn long_prompts_and_cached_tokens_have_their_own_prices() {
    let cost = |model: &str, usage: [u64; 4]| {
        let [prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens] = usage;
        let usage =
            ModelUsage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, ..ModelUsage::default() };
        Prices::of(&profile(Provider::Anthropic, model)).unwrap().cost(usage).normalize().to_string()
    };
    for (model, usage, expected) in [
        ("claude-opus-4-5", [1_000_000, 1_000_000, 0, 0], "30"),
        ("claude-opus-4-5", [1_000_000, 0, 400_000, 200_000], "3.45"),
        ("claude-opus-4-5", [1_000, 0, u64::MAX, u64::MAX], "0.0005"),
        ("claude-haiku-5-5", [100_000, 0, 0, 0], "0.01"),
        ("claude-haiku-5-5", [100_001, 1_000_000, 0, 0], "2.5500005"),
        ("gpt-4o-2024-05-13", [1_000_000, 0, 1_000_000, 0], "5"),
    ] {
        assert_eq!(cost(model, usage), expected, "{model} {usage:?}");
    }
    // A written price is for all tokens of a prompt, of any length and with any part of it cached.
    let own = AgentProfile {
        price_per_million_prompt_tokens: Some(Decimal::ONE),
        ..profile(Provider::Anthropic, "claude-haiku-5-5")
    };
    let usage = ModelUsage { prompt_tokens: 1_000_000, cached_tokens: 500_000, ..ModelUsage::default() };
    assert_eq!(Prices::of(&own).unwrap().cost(usage), Decimal::ONE);
}

#[test]
fn absurd_counts_do_not_overflow() {
    let absurd = ModelUsage { prompt_tokens: u64::MAX, completion_tokens: u64::MAX, ..ModelUsage::default() };
    let own = AgentProfile {
        price_per_million_prompt_tokens: Some(Decimal::MAX),
        price_per_million_completion_tokens: Some(Decimal::ONE),
        ..AgentProfile::default()
    };
    assert!(Prices::of(&own).unwrap().cost(absurd) > Decimal::from(1_000_000));
}

fn config(profiles: &[(&str, AgentProfile)], summary_model: Option<&str>) -> Config {
    let mut config = Config::default();
    config.agent.profiles.extend(profiles.iter().map(|(name, profile)| ((*name).to_owned(), profile.clone())));
    config.agent.memory = MemoryConfig { summary_model: summary_model.map(str::to_owned), ..MemoryConfig::default() };
    config
}

#[test]
fn models_without_a_price_are_named_with_the_keys_to_write() {
    let local = profile(Provider::Openai, "llama3");
    assert_eq!(unpriced(&Config::default()), None);
    assert_eq!(unpriced(&config(&[("script", AgentProfile::replay("s.yaml"))], None)), None);
    let mut bounded = config(&[("local", local)], None);
    let reported = unpriced(&bounded).unwrap();
    assert!(
        reported.starts_with("the cost of models without a price counts as 0: `agent.profiles.local` (\"llama3\")")
    );
    for limit in ["max_cost_per_caller_per_day", "max_cost_per_tenant_per_day"] {
        bounded.budget = BudgetConfig::default();
        let bound = Some(Decimal::ONE);
        match limit {
            "max_cost_per_caller_per_day" => bounded.budget.max_cost_per_caller_per_day = bound,
            _ => bounded.budget.max_cost_per_tenant_per_day = bound,
        }
        let reported = unpriced(&bounded).unwrap();
        for part in ["refused", limit, "price_per_million_prompt_tokens", "price_per_million_completion_tokens"] {
            assert!(reported.contains(part), "{part}: {reported}");
        }
    }
}

#[test]
fn the_model_of_summaries_is_priced_by_the_list_or_by_a_profile_of_its_own() {
    let free = AgentProfile {
        api_key: Some(Secret::new("k")),
        price_per_million_prompt_tokens: Some(Decimal::ZERO),
        price_per_million_completion_tokens: Some(Decimal::ZERO),
        ..profile(Provider::Openai, "mine")
    };
    let sums = |profiles: &[(&str, AgentProfile)], model: &str| {
        let config = config(profiles, Some(model));
        (unpriced(&config).is_none(), priced(&config.agent.summary_profile(&profiles[0].1)))
    };
    let main = [("main", free.clone())];
    let listed = Some("0.15 0.6".to_owned());
    assert_eq!(sums(&main, "mine"), (true, Some("0 0".into())), "its own model");
    assert_eq!(sums(&main, "gpt-4o-mini"), (true, listed), "a free profile makes no other model free");
    assert_eq!(sums(&main, "small"), (false, None));
    let small = AgentProfile { model: Some("small".into()), ..free };
    let [main] = main;
    assert_eq!(sums(&[main, ("small", small)], "small"), (true, Some("0 0".into())));
}
