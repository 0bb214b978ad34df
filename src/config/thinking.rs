use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ThinkingSettings", into = "ThinkingSettings")]
pub enum Thinking {
    /// In the provider's own terms; where it counts tokens, as many as [`Effort::tokens`]. `none`: it does not think.
    Effort(Effort),
    /// Maximum tokens; Anthropic's least is 1024. Where the provider knows only efforts, the one that fits.
    BudgetTokens(u32),
}

/// One of the two.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ThinkingSettings {
    effort: Option<Effort>,
    /// At least 1024.
    budget_tokens: Option<u32>,
}

impl From<Thinking> for ThinkingSettings {
    fn from(thinking: Thinking) -> Self {
        match thinking {
            Thinking::Effort(effort) => Self { effort: Some(effort), budget_tokens: None },
            Thinking::BudgetTokens(tokens) => Self { effort: None, budget_tokens: Some(tokens) },
        }
    }
}

impl TryFrom<ThinkingSettings> for Thinking {
    type Error = &'static str;

    fn try_from(settings: ThinkingSettings) -> Result<Self, &'static str> {
        match (settings.effort, settings.budget_tokens) {
            (Some(effort), None) => Ok(Self::Effort(effort)),
            (None, Some(tokens)) => Ok(Self::BudgetTokens(tokens)),
            _ => Err("set one of `effort` and `budget_tokens`"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

sekisho_core::as_str!(Effort);

impl Effort {
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Minimal => 1,
            Self::Low => 2,
            Self::Medium => 3,
            Self::High => 4,
            Self::Xhigh => 5,
            Self::Max => 6,
        }
    }

    fn tokens(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Minimal => 1_024,
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 24_576,
            Self::Xhigh => 32_768,
            Self::Max => 65_536,
        }
    }
}

impl Thinking {
    /// Maximum tokens.
    pub fn tokens(self) -> u32 {
        match self {
            Self::Effort(effort) => effort.tokens(),
            Self::BudgetTokens(tokens) => tokens,
        }
    }

    /// The effort that uses about as many tokens.
    pub fn effort(self) -> Effort {
        match self {
            Self::Effort(effort) => effort,
            Self::BudgetTokens(..=1_024) => Effort::Minimal,
            Self::BudgetTokens(..=4_096) => Effort::Low,
            Self::BudgetTokens(..=16_384) => Effort::Medium,
            Self::BudgetTokens(_) => Effort::High,
        }
    }
}
