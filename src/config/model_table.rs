//! What models take and give, as data: the shipped table, and a file of the operator's before it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::thinking::Effort;

/// The table of this version.
const SHIPPED: &str = include_str!("model_table.yaml");

static SHIPPED_TABLE: LazyLock<ModelTable> = LazyLock::new(|| ModelTable::parse(SHIPPED).unwrap_or(ModelTable::EMPTY));

/// Seconds without a byte from a model that is in no row.
const DEFAULT_SILENCE: Duration = Duration::from_secs(120);

/// Tokens of an answer of a model that is in no row: it fits most servers, whatever model they have.
const DEFAULT_ANSWER: u32 = 8_192;

/// The rows, the first that fits first.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTable(Option<Arc<Vec<ModelRow>>>);

/// What one or several models take and give.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelRow {
    /// Names, with a final `*` for any rest.
    pub names: Vec<String>,
    /// The API of OpenAI that it needs.
    pub wire: Option<Wire>,
    /// Maximum tokens of an answer, with its thinking.
    pub max_output_tokens: Option<u32>,
    /// The context window in tokens.
    pub context_tokens: Option<u64>,
    /// How long it may send nothing.
    pub silent_seconds: Option<u32>,
    /// Whether it thinks without being asked to.
    pub reasons: bool,
    /// The efforts that it takes; empty: any.
    pub efforts: Vec<Effort>,
    pub refuses: Vec<RefusedFeature>,
    /// How many tools its provider searches for the model, beside those that it is shown.
    pub deferred_tools: usize,
    pub prices: Option<RowPrices>,
}

/// The API of the provider `openai`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Chat Completions, which compatible servers have.
    Chat,
    /// Responses.
    Responses,
}

/// A part of a request that a model refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedFeature {
    Temperature,
    TopP,
    /// A call that must be made.
    ForcedTools,
    /// Tools together with reasoning, in Chat Completions.
    ToolsWithReasoning,
}

/// USD for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPrices {
    pub prompt: Decimal,
    pub completion: Decimal,
    /// Of prompt tokens read from the provider's cache, and written to it. Default: the prompt's.
    pub cached: Option<Decimal>,
    pub cache_write: Option<Decimal>,
}

/// The file. Its date is for readers.
#[derive(Deserialize)]
struct TableFile {
    rows: Vec<ModelRow>,
}

impl ModelTable {
    const EMPTY: Self = Self(None);

    fn parse(yaml: &str) -> Result<Self, String> {
        let file: TableFile = serde_saphyr::from_str(yaml).map_err(|problem| problem.to_string())?;
        match file.rows.iter().position(|row| row.names.is_empty()) {
            Some(index) => Err(format!("the row {} has no `names`", index + 1)),
            None => Ok(Self(Some(Arc::new(file.rows)))),
        }
    }

    /// The shipped table, with the rows of this text before its own.
    /// Errors: the text is not a table; the error says where.
    pub fn with(yaml: &str) -> Result<Self, String> {
        let own = Self::parse(yaml)?;
        let rows = own.rows().iter().chain(SHIPPED_TABLE.rows()).cloned().collect();
        Ok(Self(Some(Arc::new(rows))))
    }

    /// The row of a model; `None` for an unknown one.
    pub fn find(&self, model: &str) -> Option<&ModelRow> {
        let name = bare_name(model);
        self.rows().iter().find(|row| row.has(name))
    }

    fn rows(&self) -> &[ModelRow] {
        self.0.as_ref().map(|rows| rows.as_slice()).unwrap_or_default()
    }
}

impl Default for ModelTable {
    fn default() -> Self {
        SHIPPED_TABLE.clone()
    }
}

impl ModelRow {
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == known,
        })
    }

    pub fn refuses(&self, feature: RefusedFeature) -> bool {
        self.refuses.contains(&feature)
    }

    /// The effort that the model takes, nearest to the one asked for; of two that are as near, the lesser.
    pub fn nearest_effort(&self, asked: Effort) -> Effort {
        let distance = |effort: &&Effort| (effort.rank().abs_diff(asked.rank()), effort.rank());
        // `none` is no less thinking, but none: only who asks for it gets it.
        let is_alike = |effort: &&Effort| (**effort == Effort::None) == (asked == Effort::None);
        self.efforts.iter().filter(is_alike).min_by_key(distance).copied().unwrap_or(asked)
    }

    /// How long the model may send nothing.
    pub fn silence(row: Option<&Self>) -> Duration {
        let seconds = row.and_then(|row| row.silent_seconds);
        seconds.map_or(DEFAULT_SILENCE, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Tokens of an answer for which nobody has set a maximum.
    pub fn answer_tokens(row: Option<&Self>) -> u32 {
        row.and_then(|row| row.max_output_tokens).unwrap_or(DEFAULT_ANSWER)
    }
}

/// Without the vendor that a router writes before it, and without Amazon's geography and vendor.
fn bare_name(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.split_once("anthropic.").map_or(name, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentProfile, Provider};

    #[test]
    fn the_shipped_table_can_be_read_and_knows_the_newest_models() {
        ModelTable::parse(SHIPPED).unwrap();
        let table = ModelTable::default();
        let found = |model: &str| {
            let row = table.find(model);
            (
                row.and_then(|row| row.wire),
                row.and_then(|row| row.max_output_tokens),
                row.is_some_and(|row| row.reasons),
            )
        };
        for (model, expected) in [
            ("gpt-5.6-sol", (Some(Wire::Responses), Some(128_000), true)),
            ("openai/gpt-6-luna", (Some(Wire::Responses), Some(128_000), true)),
            ("gpt-5-mini", (None, Some(128_000), true)),
            ("gpt-5-chat-latest", (None, Some(16_384), false)),
            ("gpt-4o-mini-2024-07-18", (None, Some(16_384), false)),
            ("claude-sonnet-4-5-20250929", (None, Some(64_000), false)),
            ("eu.anthropic.claude-opus-4-8-20260301-v1:0", (None, Some(128_000), false)),
            ("claude-fable-5-1", (None, Some(128_000), true)),
            ("claude-opus-4-1", (None, Some(32_000), false)),
            ("qwen3", (None, None, false)),
        ] {
            assert_eq!(found(model), expected, "{model}");
        }
    }

    #[test]
    fn tools_are_searched_by_the_apis_that_can_for_the_models_that_have_it() {
        for (provider, model, expected) in [
            (Provider::Anthropic, "claude-sonnet-4-5-20250929", 1_000),
            (Provider::Anthropic, "claude-fable-5-1", 1_000),
            (Provider::Anthropic, "claude-sonnet-4-20250514", 0),
            (Provider::Anthropic, "claude-opus-4-1", 0),
            (Provider::Anthropic, "qwen3", 0),
            (Provider::Bedrock, "anthropic.claude-sonnet-4-5-20250929-v1:0", 0),
            (Provider::Openai, "gpt-5.6-sol", 500),
            (Provider::Openai, "gpt-5.4-mini", 500),
            (Provider::Openai, "gpt-5.4-nano-2026-03-17", 0),
            // A router has Chat Completions.
            (Provider::Openai, "openai/gpt-5.6-sol", 0),
            (Provider::Openai, "gpt-5.1", 0),
        ] {
            let profile =
                AgentProfile { provider: Some(provider), model: Some(model.to_owned()), ..AgentProfile::default() };
            assert_eq!(profile.deferred_tools(), expected, "{provider:?} {model}");
        }
    }

    #[test]
    fn rows_of_an_operator_come_before_the_shipped_ones() {
        let own =
            "rows: [{names: [qwen3*], max_output_tokens: 9000, silent_seconds: 5}, {names: [gpt-5.6-sol], wire: chat}]";
        let table = ModelTable::with(own).unwrap();
        assert_eq!(ModelRow::answer_tokens(table.find("qwen3-32b")), 9_000);
        assert_eq!(ModelRow::silence(table.find("qwen3-32b")), Duration::from_secs(5));
        assert_eq!(table.find("gpt-5.6-sol").and_then(|row| row.wire), Some(Wire::Chat));
        assert_eq!(table.find("gpt-5.6-luna").and_then(|row| row.wire), Some(Wire::Responses));
        assert_eq!(ModelRow::answer_tokens(table.find("unknown")), DEFAULT_ANSWER);
        assert_eq!(ModelRow::silence(None), DEFAULT_SILENCE);
        for broken in ["rows: [{max_output_tokens: 1}]", "rows: [{names: [a], wires: chat}]", "rows: 1", "[]"] {
            assert!(ModelTable::with(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_effort_that_a_model_does_not_take_becomes_the_nearest() {
        let row = |efforts: &[Effort]| ModelRow { efforts: efforts.to_vec(), ..ModelRow::default() };
        for (efforts, asked, expected) in [
            (&[Effort::Low, Effort::Medium, Effort::High][..], Effort::Max, Effort::High),
            (&[Effort::Low, Effort::Medium, Effort::High], Effort::Minimal, Effort::Low),
            (&[Effort::None, Effort::Low], Effort::Minimal, Effort::Low),
            (&[Effort::None, Effort::Low], Effort::None, Effort::None),
            (&[Effort::Low], Effort::None, Effort::None),
            (&[Effort::Low, Effort::High], Effort::Medium, Effort::Low),
            (&[], Effort::Xhigh, Effort::Xhigh),
        ] {
            assert_eq!(row(efforts).nearest_effort(asked), expected, "{efforts:?}, {asked:?}");
        }
    }
}
