//! The settings of a profile or a request that only some models take.

use super::{claude, openai};
use crate::options::ModelOptions;
use sekisho_config::{AgentConfig, AgentProfile, ModelRow, Provider, RefusedFeature};

/// The temperature, and the `top_p`, of a model that chooses by itself.
const DEFAULT: f64 = 1.0;

/// Whether the model refuses any other temperature than its default. Anthropic's do while they think.
pub fn has_fixed_temperature(profile: &AgentProfile, options: &ModelOptions) -> bool {
    if refuses(profile, RefusedFeature::Temperature) {
        return true;
    }
    match profile.provider() {
        Provider::Openai => openai::is_reasoning(profile.model()),
        Provider::Anthropic | Provider::Bedrock => {
            claude::is_adaptive(profile.model()) || options.thinking_in(profile).is_some() && options.can_think()
        }
        Provider::Gemini | Provider::Replay => false,
    }
}

/// Whether the table of models says so. A script refuses nothing.
pub fn refuses(profile: &AgentProfile, feature: RefusedFeature) -> bool {
    profile.provider() != Provider::Replay && profile.row().is_some_and(|row| row.refuses(feature))
}

/// Whether the model refuses any other `top_p` than its default.
pub fn has_fixed_top_p(profile: &AgentProfile) -> bool {
    let is_of_anthropic = matches!(profile.provider(), Provider::Anthropic | Provider::Bedrock);
    is_of_anthropic && claude::is_adaptive(profile.model()) || refuses(profile, RefusedFeature::TopP)
}

/// Whether a value is asked for that is not the default.
pub fn is_other(asked: Option<f64>) -> bool {
    asked.is_some_and(|value| (value - DEFAULT).abs() > f64::EPSILON)
}

/// The settings of profiles that their models do not take, with a sentence about each: they are left out.
pub fn unused_settings(config: &AgentConfig) -> Vec<(String, String)> {
    let of_profile = |(name, profile): (&String, &AgentProfile)| {
        let at = format!("agent.profiles.{name}");
        let planner = profile.planner.as_ref().and_then(|planner| planner.temperature);
        let settings = [("temperature", profile.temperature.flatten()), ("planner.temperature", planner)];
        let is_fixed = has_fixed_temperature(profile, &ModelOptions::default());
        let unused = settings.into_iter().filter(move |(_, value)| is_fixed && is_other(*value));
        let model = profile.model().to_owned();
        unused.map(move |(setting, _)| {
            (
                format!("{at}.{setting}"),
                format!("is left out: the model {model:?} takes only its default, 1; remove it"),
            )
        })
    };
    config.profiles.iter().flat_map(of_profile).collect()
}

/// The profiles that can be used and whose models are in no row of the table, in one sentence; `None` where there are none.
pub fn unknown_models(config: &AgentConfig) -> Option<(String, String)> {
    let is_usable = |profile: &AgentProfile| {
        profile.api_key.is_some() || profile.base_url.is_some() || profile.aws.names_credentials()
    };
    let is_unknown = |profile: &AgentProfile| {
        let is_set = profile.max_tokens.is_some() && profile.timeout_seconds.is_some();
        profile.provider() != Provider::Replay && profile.row().is_none() && !is_set
    };
    let profiles = config.profiles.iter().filter(|(_, profile)| is_usable(profile) && is_unknown(profile));
    let names: Vec<_> = profiles.map(|(name, profile)| format!("{name} ({:?})", profile.model())).collect();
    let sentence = format!(
        "nothing is known of the models of {}: answers have at most {} tokens, and a silence of {} s is a time-out; \
         write rows about them in `agent.models_file`, or set `max_tokens` and `timeout_seconds`",
        names.join(", "),
        ModelRow::answer_tokens(None),
        ModelRow::silence(None).as_secs(),
    );
    (!names.is_empty()).then(|| ("models".to_owned(), sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::Thinking;

    fn profile(provider: Provider, model: &str, thinking: Option<Thinking>) -> AgentProfile {
        let (provider, model) = (Some(provider), Some(model.to_owned()));
        AgentProfile { provider, model, thinking, ..AgentProfile::default() }
    }

    #[test]
    fn models_with_a_fixed_temperature_are_known_by_name_and_by_their_thinking() {
        let thinking = Some(Thinking::BudgetTokens(2_000));
        for (profile, temperature, top_p) in [
            (profile(Provider::Openai, "gpt-4o", None), false, false),
            (profile(Provider::Openai, "o3-mini", None), true, false),
            (profile(Provider::Openai, "openai/gpt-5", None), true, false),
            (profile(Provider::Openai, "deepseek-reasoner", thinking), false, false),
            (profile(Provider::Anthropic, "claude-sonnet-4-5", None), false, false),
            (profile(Provider::Anthropic, "claude-sonnet-4-5", thinking), true, false),
            (profile(Provider::Anthropic, "claude-opus-4-7", None), true, true),
            (profile(Provider::Bedrock, "eu.anthropic.claude-opus-4-8-v1:0", None), true, true),
        ] {
            let found = (has_fixed_temperature(&profile, &ModelOptions::default()), has_fixed_top_p(&profile));
            assert_eq!(found, (temperature, top_p), "{}", profile.model());
        }
    }

    #[test]
    fn profiles_with_models_that_are_in_no_row_are_named() {
        let usable = |provider, model| AgentProfile {
            api_key: Some(sekisho_config::Secret::new("k")),
            ..profile(provider, model, None)
        };
        let profiles = [
            ("known", usable(Provider::Openai, "gpt-4o")),
            ("mine", usable(Provider::Openai, "qwen3")),
            ("unused", profile(Provider::Openai, "phi", None)),
            ("script", AgentProfile::replay("script.yaml")),
        ];
        let profiles = profiles.into_iter().map(|(name, profile)| (name.to_owned(), profile)).collect();
        let config = AgentConfig { profiles, ..AgentConfig::default() };
        let (_, sentence) = unknown_models(&config).unwrap();
        assert!(sentence.contains("of mine (\"qwen3\"):") && sentence.contains("8192"), "{sentence}");
        assert_eq!(unknown_models(&AgentConfig::default()), None);
    }

    #[test]
    fn a_temperature_in_the_configuration_that_its_model_does_not_take_is_named() {
        let of = |model: &str, temperature| AgentProfile {
            temperature: Some(temperature),
            ..profile(Provider::Openai, model, None)
        };
        let profiles = [
            ("unstated", profile(Provider::Openai, "o3", None)),
            ("stated", of("o3", Some(0.2))),
            ("default", of("o3", Some(1.0))),
            ("null", of("o3", None)),
            ("other", of("gpt-4o", Some(0.2))),
        ];
        let profiles = profiles.into_iter().map(|(name, profile)| (name.to_owned(), profile)).collect();
        let unused = unused_settings(&AgentConfig { profiles, ..AgentConfig::default() });
        let [(setting, problem)] = &unused[..] else { panic!("{unused:?}") };
        assert_eq!(setting, "agent.profiles.stated.temperature");
        assert!(problem.contains("\"o3\""), "{problem}");
    }
}
