//! The numbers of `docs/specification.md` that are defaults of the configuration.

use super::*;

/// A9–A13, A15, A43–A45, D21 and D22.
#[test]
fn agents_have_the_numbers_of_their_documents() {
    let config = load("agent: {profiles: {o: {provider: openai}}}").unwrap();
    let of = |name: &str| {
        let profile = &config.agent.profiles[name];
        (profile.model().to_owned(), profile.temperature(), profile.max_tokens())
    };
    // A11, A12 and D22 are decided otherwise: the numbers are the model's.
    assert_eq!(of("anthropic"), ("claude-sonnet-4-5".into(), Some(0.2), 64_000));
    assert_eq!((of("o").1, of("o").2), (Some(0.7), 16_384));
    let profile = &config.agent.profiles["anthropic"];
    assert_eq!((profile.timeout().as_secs(), profile.retries, profile.max_turns), (300, 2, 50));
    let set = load("agent: {profiles: {anthropic: {max_tokens: 2000, timeout_seconds: 30}}}").unwrap();
    let profile = &set.agent.profiles["anthropic"];
    assert_eq!((profile.max_tokens(), profile.timeout().as_secs()), (2_000, 30));
    let memory = &config.agent.memory;
    assert_eq!((memory.summaries, memory.max_summaries, memory.summary_model.as_deref()), (true, 1_000, None));
    let variables = [
        ("ANTHROPIC_MODEL", "claude-x"),
        ("CONVERSATION_SUMMARY_ENABLED", "off"),
        ("CONVERSATION_SUMMARY_MAX_ENTRIES", "7"),
        ("SUMMARY_MODEL", "small"),
    ];
    let agent = load_with("", &variables).unwrap().agent;
    assert_eq!(agent.profiles["anthropic"].model(), "claude-x");
    let memory = (agent.memory.summaries, agent.memory.max_summaries, agent.memory.summary_model.as_deref());
    assert_eq!(memory, (false, 7, Some("small")));
}

/// C26.
#[test]
fn variables_name_the_models_of_anthropic() {
    let variables = [("ANTHROPIC_DEFAULT_HAIKU_MODEL", "eu.haiku-v1"), ("ANTHROPIC_DEFAULT_OPUS_MODEL", "opus-v2")];
    let models = |text: &str| {
        let models = load_with(text, &variables).unwrap().agent.models;
        models.into_iter().map(|(name, model)| (name, model.profile, model.model)).collect::<Vec<_>>()
    };
    let model = |name: &str, profile: Option<&str>, id: &str| {
        (name.to_owned(), profile.map(str::to_owned), Some(id.to_owned()))
    };
    assert_eq!(models(""), [model("haiku", None, "eu.haiku-v1"), model("opus", None, "opus-v2")]);
    let file = "agent: {models: {haiku: {profile: anthropic, model: x}}, default_profile: openai}";
    assert_eq!(models(file), [model("haiku", Some("anthropic"), "eu.haiku-v1")]);
    let own_profile = "agent: {profiles: {opus: {provider: anthropic}}}";
    assert_eq!(models(own_profile), [model("haiku", None, "eu.haiku-v1")]);
}

/// E25, E27, E29, E30, E46, E50–E54, E60–E63, E68–E71 and E73.
#[test]
fn tools_have_the_numbers_of_their_document() {
    let config = Config::default();
    assert_eq!((config.sandbox.memory_limit_mb, config.sandbox.timeout_seconds), (512, 60));
    assert_eq!((config.limits.mcp_tool_rate_limit, config.limits.parallelism), (60, 5));
    let breaker = &config.breaker;
    assert_eq!((breaker.consecutive_failures, breaker.recovery_seconds), (5, 60));
    assert_eq!((breaker.error_threshold, breaker.window_seconds, breaker.min_requests), (0.5, 30, 20));
    let budget = &config.budget;
    assert_eq!((budget.max_cost_per_request, budget.max_tokens_per_request), (Decimal::new(50, 2), 10_000));
    assert_eq!((budget.token_budget_per_agent, budget.token_budget_per_task), (5_000, 20_000));
    let execution = &config.execution;
    assert_eq!((execution.max_attempts, execution.attempt_timeout_seconds), (4, None));
    assert_eq!((execution.backoff_base_seconds, execution.backoff_max_seconds), (1.0, 10.0));
    let outbound = &config.outbound;
    let connections = (outbound.max_connections, outbound.max_connections_per_origin);
    assert_eq!((connections, outbound.dns_cache_seconds), ((100, 10), 300));
}
