//! Agents: at which provider their models are, which tools they have, and how long they run.

use super::Comparison;
use crate::agent::AgentProfile;
use crate::aws::AwsConfig;
use crate::subagents::SubAgentsConfig;
use crate::{AgentConfig, BackgroundConfig, EmbeddingsConfig, ModelConfig, ResourceStatus, SubAgentType, ToolFilter};

pub(super) fn agent(at: &mut Comparison<'_>, was: &AgentConfig, is: &AgentConfig) {
    let AgentConfig {
        default_profile: _,
        profiles,
        models,
        models_file,
        // These take effect at the next start.
        skills_directory: _,
        prompts_directory: _,
        subagents,
        memory: _,
        conversations: _,
        // Runs go on with the rights that their callers have then.
        recover: _,
        background,
        embeddings,
    } = was;
    let BackgroundConfig { max_running_per_tenant: running, max_waiting_per_tenant: waiting } = background;
    at.higher("background.max_running_per_tenant", running, &is.background.max_running_per_tenant);
    at.higher("background.max_waiting_per_tenant", waiting, &is.background.max_waiting_per_tenant);
    // Budgets count with its prices.
    at.changed("models_file", models_file, &is.models_file);
    at.below("profiles").in_both(profiles, &is.profiles, profile);
    at.below("models").in_both(models, &is.models, |at, was, is| {
        let ModelConfig {
            profile,
            model: _,
            status,
            price_per_million_prompt_tokens: prompt,
            price_per_million_completion_tokens: completion,
            context_tokens: _,
        } = was;
        at.changed("profile", profile, &is.profile);
        at.rises("status", status, &is.status, |status: &ResourceStatus| status.is_active());
        at.lower_or_gone("price_per_million_prompt_tokens", prompt, &is.price_per_million_prompt_tokens);
        at.lower_or_gone("price_per_million_completion_tokens", completion, &is.price_per_million_completion_tokens);
    });
    let SubAgentsConfig { types, directory: _, model: _ } = subagents;
    at.below("subagents.types").in_both(types, &is.subagents.types, sub_agent);
    if let (Some(was), Some(is)) = (embeddings, &is.embeddings) {
        let EmbeddingsConfig { model: _, base_url, api_key: _, timeout_seconds: _, price_per_million_tokens } = was;
        at.changed("embeddings.base_url", base_url, &is.base_url);
        let price = &is.price_per_million_tokens;
        at.lower_or_gone("embeddings.price_per_million_tokens", price_per_million_tokens, price);
    }
}

fn profile(at: &mut Comparison<'_>, was: &AgentProfile, is: &AgentProfile) {
    let AgentProfile {
        provider,
        model: _,
        base_url,
        api_key: _,
        wire: _,
        headers: _,
        extra_body: _,
        proxy,
        sign_in,
        aws,
        temperature: _,
        max_tokens: _,
        thinking: _,
        timeout_seconds: _,
        retries: _,
        fallbacks,
        fallback_seconds: _,
        price_per_million_prompt_tokens: prompt,
        price_per_million_completion_tokens: completion,
        prompt: _,
        tools,
        code_mode: _,
        subagents,
        max_tools: _,
        max_turns,
        max_tool_calls,
        max_run_seconds,
        same_answer_seconds: _,
        context_tokens: _,
        run_tokens,
        parallel_tool_calls,
        max_result_bytes: _,
        end_words: _,
        planner: _,
        table: _,
    } = was;
    at.altered("proxy", *proxy != is.proxy);
    at.altered("sign_in", *sign_in != is.sign_in);
    at.altered("fallbacks", *fallbacks != is.fallbacks);
    at.changed("provider", provider, &is.provider);
    at.changed("base_url", base_url, &is.base_url);
    aws_of_profile(&mut at.below("aws"), aws, &is.aws);
    at.lower_or_gone("price_per_million_prompt_tokens", prompt, &is.price_per_million_prompt_tokens);
    at.lower_or_gone("price_per_million_completion_tokens", completion, &is.price_per_million_completion_tokens);
    filter(at, tools, &is.tools);
    at.wider("subagents", subagents, &is.subagents);
    at.higher("max_turns", max_turns, &is.max_turns);
    at.higher("max_tool_calls", max_tool_calls, &is.max_tool_calls);
    at.higher("max_run_seconds", max_run_seconds, &is.max_run_seconds);
    at.higher("run_tokens", run_tokens, &is.run_tokens);
    at.higher("parallel_tool_calls", parallel_tool_calls, &is.parallel_tool_calls);
}

fn aws_of_profile(at: &mut Comparison<'_>, was: &AwsConfig, is: &AwsConfig) {
    let AwsConfig {
        region,
        access_key_id: _,
        secret_access_key: _,
        session_token: _,
        profile: _,
        credentials_file: _,
        config_file: _,
        role_arn,
        web_identity_token_file: _,
        role_session_name: _,
        sts_url,
    } = was;
    // It is a part of the provider's address.
    at.changed("region", region, &is.region);
    at.changed("role_arn", role_arn, &is.role_arn);
    at.changed("sts_url", sts_url, &is.sts_url);
}

fn sub_agent(at: &mut Comparison<'_>, was: &SubAgentType, is: &SubAgentType) {
    let SubAgentType {
        description: _,
        prompt: _,
        tools,
        model: _,
        subagents,
        max_turns,
        max_tool_calls,
        max_run_seconds,
        run_tokens,
    } = was;
    filter(at, tools, &is.tools);
    at.wider("subagents", subagents, &is.subagents);
    at.higher_or_gone("max_turns", max_turns, &is.max_turns);
    at.higher_or_gone("max_tool_calls", max_tool_calls, &is.max_tool_calls);
    at.higher_or_gone("max_run_seconds", max_run_seconds, &is.max_run_seconds);
    at.higher_or_gone("run_tokens", run_tokens, &is.run_tokens);
}

fn filter(at: &mut Comparison<'_>, was: &ToolFilter, is: &ToolFilter) {
    let ToolFilter { include, exclude } = was;
    at.wider_choice("tools.include", include, &is.include);
    at.fewer("tools.exclude", exclude, &is.exclude);
}
