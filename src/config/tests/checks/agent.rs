//! Profiles of the agent.

use super::*;

#[test]
fn the_thinking_of_a_profile_is_an_effort_or_a_number_of_tokens() {
    let thinking = |value: &str| {
        let config = load(&format!("agent: {{profiles: {{anthropic: {{thinking: {value}}}}}}}"))?;
        Ok::<_, Vec<ConfigError>>(config.agent.profiles["anthropic"].thinking)
    };
    assert_eq!(thinking("{effort: low}").unwrap(), Some(Thinking::Effort(Effort::Low)));
    assert_eq!(thinking("{budget_tokens: 2000}").unwrap(), Some(Thinking::BudgetTokens(2_000)));
    for (value, problem) in [
        ("{}", "set one of"),
        ("{effort: low, budget_tokens: 2000}", "set one of"),
        ("{effort: huge}", "effort"),
        ("{budget_tokens: 1000}", "1024"),
    ] {
        let errors = thinking(value).unwrap_err();
        assert!(errors.iter().any(|error| error.to_string().contains(problem)), "{value}: {errors:?}");
    }
}

#[test]
fn a_profile_beside_the_built_in_ones_leaves_them_and_has_its_providers_defaults() {
    let config =
        load("agent: {profiles: {openai: {max_tokens: 7}, mine: {provider: openai, temperature: null}}}").unwrap();
    let of = |name: &str| {
        let profile = &config.agent.profiles[name];
        (profile.provider(), profile.model(), profile.temperature(), profile.max_tokens())
    };
    assert_eq!(of("anthropic"), (Provider::Anthropic, "claude-sonnet-4-5", Some(0.2), 2_000));
    assert_eq!(of("openai"), (Provider::Openai, "gpt-4o-mini", Some(0.7), 7));
    assert_eq!(of("mine"), (Provider::Openai, "gpt-4o-mini", None, 1_000));
}
