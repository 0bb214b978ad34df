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
    assert_eq!(of("anthropic"), (Provider::Anthropic, "claude-sonnet-4-5", Some(0.2), 64_000));
    assert_eq!(of("openai"), (Provider::Openai, "gpt-4o-mini", Some(0.7), 7));
    assert_eq!(of("mine"), (Provider::Openai, "gpt-4o-mini", None, 16_384));
}

#[test]
fn a_model_that_needs_responses_gets_them_unless_the_profile_says_otherwise() {
    let wire = |settings: &str| {
        let config = load(&format!("agent: {{profiles: {{a: {{provider: openai, {settings}}}}}}}")).unwrap();
        config.agent.profiles["a"].wire()
    };
    for (settings, expected) in [
        ("model: gpt-5.6-sol", Wire::Responses),
        ("model: gpt-5.6-sol, wire: chat", Wire::Chat),
        ("model: openai/gpt-5.6-sol", Wire::Chat),
        ("model: gpt-4o", Wire::Chat),
        ("model: mine, wire: responses", Wire::Responses),
        ("model: mine", Wire::Chat),
    ] {
        assert_eq!(wire(settings), expected, "{settings}");
    }
}

#[test]
fn settings_of_the_way_to_a_provider_are_checked() {
    for (profile, problem) in [
        ("{provider: openai, fallbacks: [{profile: nobody}]}", "agent.profiles.a.fallbacks[0].profile"),
        ("{provider: openai, fallbacks: [{profile: a}]}", "agent.profiles.a.fallbacks[0].profile"),
        (
            "{provider: openai, fallbacks: [{profile: anthropic, after: [sunday]}]}",
            "agent.profiles.a.fallbacks[0].after[0]",
        ),
        ("{provider: anthropic, wire: responses}", "agent.profiles.a.wire"),
        ("{provider: openai, headers: {'a b': x}}", "agent.profiles.a.headers.a b"),
        ("{provider: openai, fallback_seconds: -1}", "agent.profiles.a.fallback_seconds"),
        ("{provider: openai, sign_in: {}}", "agent.profiles.a.sign_in"),
        ("{provider: openai, sign_in: {client_id: c, service_account_file: f}}", "agent.profiles.a.sign_in"),
        (
            "{provider: openai, sign_in: {token_url: 'https://a.example', client_id: c, client_secret: s, client_assertion_file: f}}",
            "agent.profiles.a.sign_in",
        ),
        ("{provider: openai, sign_in: {client_id: c, client_secret: s}}", "agent.profiles.a.sign_in"),
    ] {
        let errors = load(&format!("agent: {{profiles: {{a: {profile}}}}}")).unwrap_err();
        assert!(errors.iter().any(|error| error.to_string().contains(problem)), "{profile}: {errors:?}");
    }
    let valid = "{provider: openai, headers: {X-Team: a}, extra_body: {service_tier: flex}, \
                 fallbacks: [{profile: anthropic, after: [overloaded, rate]}, {profile: openai}]}";
    let config = load(&format!("agent: {{profiles: {{a: {valid}}}}}")).unwrap();
    let fallbacks = &config.agent.profiles["a"].fallbacks;
    let classes = [FailureClass::Overloaded, FailureClass::Timeout, FailureClass::Refused];
    assert_eq!(classes.map(|class| fallbacks[0].is_for(class)), [true, false, false]);
    assert_eq!(classes.map(|class| fallbacks[1].is_for(class)), [true, true, false]);
}

#[test]
fn a_file_about_models_extends_the_shipped_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models.yaml");
    let text =
        format!("agent: {{models_file: '{}', profiles: {{a: {{provider: openai, model: mine}}}}}}", file.display());
    assert!(load(&text).unwrap_err()[0].to_string().contains("cannot be read"));
    std::fs::write(&file, "rows: [{names: [mine], max_output_tokens: 77}]").unwrap();
    assert_eq!(load(&text).unwrap().agent.profiles["a"].max_tokens(), 77);
    std::fs::write(&file, "rows: [{names: [mine], tokens: 77}]").unwrap();
    assert!(load(&text).unwrap_err()[0].to_string().contains("tokens"));
}
