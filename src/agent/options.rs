//! The options of a client for its answer, beside the profile. A provider that cannot keep one is not asked: the
//! client's request is refused with the name of the option.

use serde::{Deserialize, Serialize};

use super::models::sampling;
use super::output_format::OutputFormat;
use sekisho_config::{AgentProfile, Effort, Provider, RefusedFeature, Thinking, Wire};
use sekisho_core::error::{CallError, ErrorCode};

/// `None` and empty values leave it to the profile, or to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelOptions {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub seed: Option<i64>,
    /// Tokens of one turn, at most the maximum of the profile.
    pub max_tokens: Option<u32>,
    /// The turn ends before any of these texts.
    pub stop: Vec<String>,
    /// For the first turn of the run: the calls of later turns are the model's choice.
    pub tool_choice: ToolChoice,
    /// Whether one turn may have several calls.
    pub parallel_tool_calls: Option<bool>,
    pub thinking: Option<Thinking>,
    /// No thinking, also where the profile has some.
    pub without_thinking: bool,
    /// The form of the run's answer.
    pub output: Option<OutputFormat>,
    /// The part of a plan that the run is for: scripts select their turns by it.
    pub part_of_plan: Option<PartOfPlan>,
}

/// The part of a plan that a run does; numbers begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartOfPlan {
    /// Makes or changes the plan.
    Planner(u32),
    Evaluator(u32),
    /// An attempt at one or several steps.
    Attempt(u32),
    /// The final answer.
    Answer,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    #[default]
    Auto,
    /// No calls.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Tool(String),
}

impl ModelOptions {
    /// How much the model thinks: as asked, else as the profile says.
    pub(super) fn thinking_in(&self, profile: &AgentProfile) -> Option<Thinking> {
        self.thinking.or(profile.thinking.filter(|_| !self.without_thinking))
    }

    /// Tokens for thinking, beside the answer's. A model that thinks without being asked to needs them, too.
    pub(super) fn thinking_tokens(&self, profile: &AgentProfile) -> u32 {
        let thinks = profile.provider() != Provider::Replay && profile.row().is_some_and(|row| row.reasons);
        let by_itself = thinks.then_some(Thinking::Effort(Effort::Medium)).filter(|_| !self.without_thinking);
        self.thinking_in(profile).or(by_itself).map_or(0, Thinking::tokens)
    }

    /// Anthropic's models do not think in a turn that must call a tool.
    pub(super) fn can_think(&self) -> bool {
        !matches!(self.tool_choice, ToolChoice::Required | ToolChoice::Tool(_))
    }

    /// Errors: `invalid_request` with the first option that the profile's provider or its model cannot keep.
    pub fn check(&self, profile: &AgentProfile) -> Result<(), CallError> {
        let provider = profile.provider();
        let is_openai = matches!(provider, Provider::Openai | Provider::Replay);
        let is_bedrock = provider == Provider::Bedrock;
        let is_gemini = provider == Provider::Gemini;
        let is_responses = provider == Provider::Openai && profile.wire() == Wire::Responses;
        let is_forced = matches!(self.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
        if is_forced && sampling::refuses(profile, RefusedFeature::ForcedTools) {
            let message =
                "`tool_choice` cannot be kept: the agent's model takes no call that must be made; leave it out";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        let fixed = [
            ("temperature", sampling::is_other(self.temperature) && sampling::has_fixed_temperature(profile, self)),
            ("top_p", sampling::is_other(self.top_p) && sampling::has_fixed_top_p(profile)),
        ];
        if let Some((name, _)) = fixed.into_iter().find(|(_, is_asked)| *is_asked) {
            let message = format!("`{name}` cannot be kept: the agent's model takes only its default, 1; leave it out");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        let impossible = [
            ("presence_penalty", self.presence_penalty.is_some() && (is_responses || !is_openai && !is_gemini)),
            ("frequency_penalty", self.frequency_penalty.is_some() && (is_responses || !is_openai && !is_gemini)),
            ("seed", self.seed.is_some() && (is_responses || !is_openai && !is_gemini)),
            ("stop", !self.stop.is_empty() && is_responses),
            ("tool_choice", self.tool_choice == ToolChoice::None && is_bedrock),
            ("parallel_tool_calls", self.parallel_tool_calls == Some(false) && (is_bedrock || is_gemini)),
        ];
        match impossible.into_iter().find(|(_, is_asked)| *is_asked) {
            None => Ok(()),
            Some((name, _)) => {
                let provider = provider.as_str();
                let message = format!("`{name}` cannot be kept: the agent's provider, {provider}, has nothing like it");
                Err(CallError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_ask_for_other_thinking_than_the_profiles_or_for_none() {
        let (of_profile, asked) = (Thinking::BudgetTokens(2_000), Thinking::BudgetTokens(5_000));
        let profile = AgentProfile { thinking: Some(of_profile), ..AgentProfile::default() };
        for (thinking, without_thinking, expected) in
            [(None, false, Some(of_profile)), (Some(asked), false, Some(asked)), (None, true, None)]
        {
            let options = ModelOptions { thinking, without_thinking, ..ModelOptions::default() };
            assert_eq!(options.thinking_in(&profile), expected);
        }
    }

    #[test]
    fn an_option_that_the_provider_has_nothing_like_is_refused_by_name() {
        let seed = ModelOptions { seed: Some(1), ..ModelOptions::default() };
        let no_tools = ModelOptions { tool_choice: ToolChoice::None, ..ModelOptions::default() };
        let one_call = ModelOptions { parallel_tool_calls: Some(false), ..ModelOptions::default() };
        for (options, provider, refused) in [
            (&seed, Provider::Openai, None),
            (&seed, Provider::Anthropic, Some("`seed`")),
            (&no_tools, Provider::Anthropic, None),
            (&no_tools, Provider::Bedrock, Some("`tool_choice`")),
            (&one_call, Provider::Bedrock, Some("`parallel_tool_calls`")),
            (&ModelOptions::default(), Provider::Bedrock, None),
        ] {
            let profile = AgentProfile { provider: Some(provider), ..AgentProfile::default() };
            assert_refused(options, &profile, refused);
        }
    }

    #[test]
    fn a_temperature_that_the_model_does_not_take_is_refused_by_name_and_its_default_is_not() {
        let (warm, default) = (Some(0.5), Some(1.0));
        let asked = |temperature, top_p| ModelOptions { temperature, top_p, ..ModelOptions::default() };
        for (options, provider, model, refused) in [
            (asked(warm, None), Provider::Openai, "o3", Some("`temperature`")),
            (asked(default, None), Provider::Openai, "o3", None),
            (asked(warm, None), Provider::Openai, "gpt-4o", None),
            (asked(warm, None), Provider::Anthropic, "claude-sonnet-4-5", None),
            (asked(warm, None), Provider::Anthropic, "claude-opus-4-7", Some("`temperature`")),
            (asked(None, warm), Provider::Anthropic, "claude-opus-4-7", Some("`top_p`")),
            (asked(None, None), Provider::Anthropic, "claude-opus-4-7", None),
        ] {
            let (provider, model) = (Some(provider), Some(model.to_owned()));
            assert_refused(&options, &AgentProfile { provider, model, ..AgentProfile::default() }, refused);
        }
    }

    fn assert_refused(options: &ModelOptions, profile: &AgentProfile, refused: Option<&str>) {
        let (provider, error) = (profile.provider(), options.check(profile).err());
        let is_expected = match (&error, refused) {
            (Some(error), Some(name)) => error.code() == ErrorCode::InvalidRequest && error.message().starts_with(name),
            (error, refused) => error.is_none() && refused.is_none(),
        };
        assert!(is_expected, "{provider:?}: {error:?}");
    }
}
