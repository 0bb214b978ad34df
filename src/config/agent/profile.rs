//! One agent: its provider, its model, and the limits of its runs.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use url::Url;
use utoipa::ToSchema;

use super::fallback::FallbackConfig;
use crate::Secret;
use crate::aws::AwsConfig;
use crate::check::Findings;
use crate::model_table::{ModelRow, ModelTable, Wire};
use crate::outbound::ProxyConfig;
use crate::planner::PlannerConfig;
use crate::schema::Money;
use crate::sign_in::SignInConfig;
use crate::thinking::{Thinking, ThinkingSettings};
use crate::tool_filter::ToolFilter;

/// One agent: its model, and its limits. Defaults that depend on the provider are `None` here until set; the methods
/// of the same names return the effective value.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentProfile {
    /// Optional for the profiles `anthropic` and `openai`.
    pub provider: Option<Provider>,
    /// The provider's name of the model; for `replay` the script's file.
    pub model: Option<String>,
    /// Base URL of the API, if it is not the provider's default.
    pub base_url: Option<Url>,
    pub api_key: Option<Secret>,
    /// Of `openai`: the API. Default: the one that the model needs (`src/config/model_table.yaml`), or `chat`.
    pub wire: Option<Wire>,
    /// Headers of each request, such as a proxy in front of the provider asks for.
    pub headers: BTreeMap<String, Secret>,
    /// Members of each request's body, in place of the gateway's own of the same name.
    pub extra_body: BTreeMap<String, Value>,
    /// The proxy of its requests, in place of `outbound.proxy`.
    pub proxy: ProxyConfig,
    /// In place of an API key.
    pub sign_in: Option<SignInConfig>,
    /// Of `bedrock`, in place of an API key.
    pub aws: AwsConfig,
    /// `null` uses the provider's default (A10, D21).
    #[serde(deserialize_with = "stated")]
    #[schemars(with = "Option<f64>")]
    pub temperature: Option<Option<f64>>,
    /// Maximum tokens of one answer (A11, D22), without those of its thinking. Default: the client's, or the model's own.
    pub max_tokens: Option<u32>,
    /// How much the model thinks before it answers. By default the provider's choice: most models do not.
    #[schemars(with = "Option<ThinkingSettings>")]
    pub thinking: Option<Thinking>,
    /// Maximum wait for the first content of an answer, and between two content chunks (A12); keep-alives do not
    /// reset it. Default: the time that the model may be silent (`src/config/model_table.yaml`).
    pub timeout_seconds: Option<f64>,
    /// Further attempts after a failure of the provider (A13); overload and timeouts have three (A65, A66).
    pub retries: u32,
    /// Other profiles, in this order, for failures before the first content of an answer.
    pub fallbacks: Vec<FallbackConfig>,
    /// Maximum wait for the first content before the next of `fallbacks` is asked. Default: half of `timeout_seconds`.
    pub fallback_seconds: Option<f64>,
    /// USD per million tokens sent to the model, 0 for a free one. Default: the vendor's price in the shipped list
    /// (`src/calls/budget/model_prices.yaml`). A model without a price is refused where `budget.max_cost_per_caller_per_day` or
    /// `max_cost_per_tenant_per_day` is set.
    #[schemars(with = "Option<Money>")]
    pub price_per_million_prompt_tokens: Option<Decimal>,
    /// USD per million tokens of its answers, with the same default.
    #[schemars(with = "Option<Money>")]
    pub price_per_million_completion_tokens: Option<Decimal>,
    /// The system prompt, in place of the gateway's own or after it. A client's own prompt follows.
    pub prompt: ProfilePrompt,
    /// The tools that this agent may use, of those that its caller may use.
    pub tools: ToolFilter,
    /// Whether its model sees `search_tools` and `run_python` in place of them, whose programs call them. `python_executor` must be one
    /// of them.
    pub code_mode: bool,
    /// Types of sub-agents that this agent may start with the tool `Task`; `*` for all.
    pub subagents: Vec<String>,
    /// Maximum number of tools offered to the model: those it has called and the best matches for the user's
    /// messages. OpenAI accepts at most 128. Where the model's provider searches tools, half as many are shown, and the others are
    /// for its search.
    pub max_tools: usize,
    /// Maximum turns of one run (A15).
    pub max_turns: u32,
    /// Maximum tool calls of one run.
    pub max_tool_calls: u32,
    /// Maximum duration of a run, in seconds.
    pub max_run_seconds: f64,
    /// A run ends when the same call of a tool has given the same answer for so many seconds, three times at least. The third such
    /// call waits a second, each later one twice as long as the one before, up to 30 s.
    pub same_answer_seconds: f64,
    /// The model's context window in tokens. Default: that of the shipped list (`src/agent/context_windows.yaml`); a model
    /// that is not in it has no known window. A conversation that does not fit is compacted.
    pub context_tokens: Option<u64>,
    /// Maximum tokens of all turns of a run, sent and received, without those that the provider has in its cache.
    pub run_tokens: u64,
    /// Tool calls of one turn that run at the same time.
    pub parallel_tool_calls: usize,
    /// A longer tool result is stored, and the model gets a preview, as with `results.max_inline_bytes`; other longer texts are
    /// truncated.
    pub max_result_bytes: usize,
    /// A turn whose text contains one of these, in any case, ends the run, even if it requests tools (D19). Empty: none.
    pub end_words: Vec<String>,
    /// Lets the agent plan before it acts.
    pub planner: Option<PlannerConfig>,
    /// The facts about models, of this version and of `agent.models_file`.
    #[serde(skip)]
    pub table: ModelTable,
}

/// A system prompt. `{current_date}` and `{tools_info}`, a line for each tool, are filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProfilePrompt {
    /// In place of the gateway's own; empty for none.
    pub replace: Option<String>,
    /// After it.
    pub append: Option<String>,
}

/// The API of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(transform = other_names)]
pub enum Provider {
    /// Anthropic Messages.
    #[serde(alias = "claude")]
    Anthropic,
    /// OpenAI Chat Completions, and compatible APIs; Responses for models that need it.
    Openai,
    /// Gemini's `generateContent`.
    Gemini,
    /// Amazon Bedrock's Converse, with an API key or credentials of AWS.
    Bedrock,
    /// A scripted conversation from a file.
    Replay,
}

/// Of requests beside the conversation: summaries, titles, and the choice of tools.
const MAX_BRIEF_TIMEOUT: Duration = Duration::from_secs(30);

/// Tokens of an answer of a script.
const REPLAY_ANSWER: u32 = 2_000;

impl Default for AgentProfile {
    fn default() -> Self {
        Self {
            provider: None,
            model: None,
            base_url: None,
            api_key: None,
            wire: None,
            headers: BTreeMap::new(),
            extra_body: BTreeMap::new(),
            proxy: ProxyConfig::default(),
            sign_in: None,
            aws: AwsConfig::default(),
            temperature: None,
            max_tokens: None,
            thinking: None,
            timeout_seconds: None,
            retries: 2,
            fallbacks: Vec::new(),
            fallback_seconds: None,
            price_per_million_prompt_tokens: None,
            price_per_million_completion_tokens: None,
            prompt: ProfilePrompt::default(),
            tools: ToolFilter::default(),
            code_mode: false,
            subagents: Vec::new(),
            max_tools: 128,
            max_turns: 50,
            max_tool_calls: 200,
            max_run_seconds: 600.0,
            same_answer_seconds: 60.0,
            context_tokens: None,
            run_tokens: 1_000_000,
            parallel_tool_calls: 8,
            max_result_bytes: 65_536,
            end_words: Vec::new(),
            planner: None,
            table: ModelTable::default(),
        }
    }
}

sekisho_core::as_str!(Provider);

impl Provider {
    /// Empty for a provider without a default model.
    fn default_model(self) -> &'static str {
        match self {
            Self::Anthropic => "claude-sonnet-4-5",
            Self::Openai => "gpt-4o-mini",
            Self::Gemini => "gemini-3.8-flash",
            Self::Bedrock | Self::Replay => "",
        }
    }
}

impl AgentProfile {
    /// A scripted conversation.
    pub fn replay(script: &str) -> Self {
        Self { provider: Some(Provider::Replay), model: Some(script.to_owned()), ..Self::default() }
    }

    /// This agent with the model of another one: its provider, address, key, prices and fallbacks, and the settings of its requests.
    #[must_use]
    pub fn with_model_of(&self, other: &Self) -> Self {
        let agent = self.clone();
        Self {
            prompt: agent.prompt,
            tools: agent.tools,
            code_mode: agent.code_mode,
            subagents: agent.subagents,
            max_turns: agent.max_turns,
            max_tool_calls: agent.max_tool_calls,
            max_run_seconds: agent.max_run_seconds,
            same_answer_seconds: agent.same_answer_seconds,
            run_tokens: agent.run_tokens,
            parallel_tool_calls: agent.parallel_tool_calls,
            max_result_bytes: agent.max_result_bytes,
            end_words: agent.end_words,
            planner: agent.planner,
            ..other.clone()
        }
    }

    pub fn provider(&self) -> Provider {
        self.provider.unwrap_or(Provider::Anthropic)
    }

    pub fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(self.provider().default_model())
    }

    /// `None` uses the provider's default.
    pub fn temperature(&self) -> Option<f64> {
        self.temperature.unwrap_or(Some(match self.provider() {
            Provider::Openai => 0.7,
            // Its vendor advises against any other.
            Provider::Gemini => 1.0,
            Provider::Anthropic | Provider::Bedrock | Provider::Replay => 0.2,
        }))
    }

    /// The facts about the model.
    pub fn row(&self) -> Option<&ModelRow> {
        self.table.find(self.model())
    }

    /// Maximum tokens of an answer for which the client sets none. A script has a number of its own, so that its cost does
    /// not depend on the table.
    pub fn max_tokens(&self) -> u32 {
        let own = || match self.provider() {
            Provider::Replay => REPLAY_ANSWER,
            _ => ModelRow::answer_tokens(self.row()),
        };
        self.max_tokens.unwrap_or_else(own)
    }

    /// The longest silence of the model.
    pub fn timeout(&self) -> Duration {
        self.timeout_seconds.map_or_else(|| ModelRow::silence(self.row()), seconds)
    }

    /// The longest silence in a request beside the conversation, for which a reply waits.
    pub fn brief_timeout(&self) -> Duration {
        self.timeout_seconds.map_or_else(|| self.timeout().min(MAX_BRIEF_TIMEOUT), seconds)
    }

    /// The wait for the beginning of an answer before another profile is asked.
    pub fn fallback_wait(&self) -> Duration {
        self.fallback_seconds.map_or_else(|| self.timeout() / 2, seconds)
    }

    /// The API of the provider `openai`. Routers, which write a vendor before the name of a model, have Chat Completions.
    pub fn wire(&self) -> Wire {
        let of_model = || self.row().filter(|_| !self.model().contains('/')).and_then(|row| row.wire);
        self.wire.or_else(of_model).unwrap_or(Wire::Chat)
    }

    /// How many tools the model's provider searches for it, beside those that it is shown.
    pub fn deferred_tools(&self) -> usize {
        let has_search = match self.provider() {
            Provider::Anthropic => true,
            Provider::Openai => self.wire() == Wire::Responses,
            Provider::Gemini | Provider::Bedrock | Provider::Replay => false,
        };
        self.row().filter(|_| has_search).map_or(0, |row| row.deferred_tools)
    }

    pub fn max_run(&self) -> Duration {
        seconds(self.max_run_seconds)
    }

    pub fn same_answer(&self) -> Duration {
        seconds(self.same_answer_seconds)
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        if self.provider.is_none() {
            findings.add(format!("{at}.provider"), "is missing", "set anthropic, openai, gemini, bedrock or replay");
        }
        if self.model().trim().is_empty() {
            findings.add(format!("{at}.model"), "is empty", "set the provider's model, or the path of a script");
        }
        if let Some(temperature) = self.temperature()
            && !(0.0..=2.0).contains(&temperature)
        {
            findings.add(format!("{at}.temperature"), "is not between 0 and 2", "0.2 is a usual value");
        }
        for (setting, price) in [
            ("price_per_million_prompt_tokens", self.price_per_million_prompt_tokens),
            ("price_per_million_completion_tokens", self.price_per_million_completion_tokens),
        ] {
            if price.is_some_and(|price| price.is_sign_negative()) {
                findings.add(format!("{at}.{setting}"), "is negative", "set the price in USD, 0 if it is free");
            }
        }
        findings.above_zero(&format!("{at}.max_tokens"), self.max_tokens());
        self.aws.check(&format!("{at}.aws"), findings);
        if let Some(sign_in) = &self.sign_in {
            sign_in.check(&format!("{at}.sign_in"), findings);
        }
        if let Some(Thinking::BudgetTokens(..1_024)) = self.thinking {
            let at = format!("{at}.thinking.budget_tokens");
            findings.add(at, "is below 1024, the least that providers accept", "set at least 1024, or remove it");
        }
        if self.code_mode && !self.tools.admits("python_executor") {
            let problem = "needs `python_executor`, which `tools` leaves out";
            findings.add(
                format!("{at}.code_mode"),
                problem,
                "add it to `tools.include`, or remove it from `tools.exclude`",
            );
        }
        findings.above_zero(&format!("{at}.max_tools"), self.max_tools);
        findings.above_zero(&format!("{at}.max_turns"), self.max_turns);
        findings.above_zero(&format!("{at}.run_tokens"), self.run_tokens);
        findings.above_zero_or_none(&format!("{at}.context_tokens"), self.context_tokens);
        findings.above_zero(&format!("{at}.parallel_tool_calls"), self.parallel_tool_calls);
        findings.above_zero(&format!("{at}.max_result_bytes"), self.max_result_bytes);
        for (setting, value) in [("timeout_seconds", self.timeout_seconds), ("fallback_seconds", self.fallback_seconds)]
        {
            if let Some(value) = value {
                findings.duration(&format!("{at}.{setting}"), value);
            }
        }
        if self.wire == Some(Wire::Responses) && self.provider() != Provider::Openai {
            findings.add(format!("{at}.wire"), "is for the provider `openai`", "remove it");
        }
        for (name, value) in &self.headers {
            let is_header = name.parse::<HeaderName>().is_ok() && HeaderValue::try_from(value.expose()).is_ok();
            if !is_header {
                let problem = "is not a header that can be sent";
                findings.add(format!("{at}.headers.{name}"), problem, "use letters, digits and hyphens in its name");
            }
        }
        self.proxy.check(&format!("{at}.proxy"), findings);
        findings.duration(&format!("{at}.max_run_seconds"), self.max_run_seconds);
        findings.duration(&format!("{at}.same_answer_seconds"), self.same_answer_seconds);
        if self.end_words.iter().any(|word| word.trim().is_empty()) {
            findings.add(format!("{at}.end_words"), "contains an empty word, which would end every run", "remove it");
        }
        if let Some(planner) = &self.planner {
            planner.check(&format!("{at}.planner"), findings);
        }
    }
}

/// The names that serde knows as aliases (D23).
fn other_names(schema: &mut Schema) {
    if let Some(names) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        names.push(json!({"type": "string", "const": "claude", "description": "Another name of `anthropic`."}));
    }
}

/// Distinguishes `null` from a missing key.
fn stated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Checked settings always fit; larger values mean no effective limit.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
