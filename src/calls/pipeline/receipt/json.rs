//! The JSON of replies and their receipts.

use std::sync::Arc;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::Map;

use super::Reply;
use crate::budget::Left;
use crate::tool::{JudgedCall, Tool};
use sekisho_core::call::{Stage, StageTimes};
use sekisho_core::error::{CallError, Detail, NeededApproval, NeededSignIn};

/// The JSON shape of the specification. Further fields are additions only.
impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(stored) = &self.stored {
            return stored.serialize(serializer);
        }
        let error = self.outcome.as_ref().err();
        let content = self.media();
        let fields = 8 + usize::from(error.is_some()) + usize::from(content.is_some());
        let mut reply = serializer.serialize_struct("Reply", fields)?;
        reply.serialize_field("success", &self.outcome.is_ok())?;
        match &self.outcome {
            Ok(answer) => {
                reply.serialize_field("output", answer.preview.as_deref().unwrap_or(&answer.output))?;
                reply.serialize_field("text", &answer.text)?;
                reply.serialize_field("error", &None::<()>)?;
                reply.serialize_field("metadata", &answer.metadata)?;
            }
            Err(error) => {
                reply.serialize_field("output", &error.output())?;
                reply.serialize_field("text", error.message())?;
                reply.serialize_field("error", error.message())?;
                reply.serialize_field("metadata", &Map::new())?;
            }
        }
        if let Some(content) = content {
            reply.serialize_field("content", &content)?;
        }
        reply.serialize_field("execution_time_ms", &u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX))?;
        reply.serialize_field("usage", &Usage { tokens: self.tokens, cost_usd: number(self.cost_usd) })?;
        if let Some(error) = error {
            reply.serialize_field("error_info", &ErrorInfo::from(error))?;
        }
        reply.serialize_field("receipt", &self.receipt)?;
        reply.end()
    }
}

#[derive(Serialize)]
struct Usage {
    tokens: u64,
    cost_usd: f64,
}

/// The error as typed fields, beside its message in `error`.
#[derive(Debug, Serialize)]
pub struct ErrorInfo<'a> {
    code: &'static str,
    message: &'a str,
    stage: Option<Stage>,
    retryable: bool,
    retry_after_ms: Option<u64>,
    details: &'a [Detail],
    alternatives: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<&'a NeededApproval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_in: Option<&'a NeededSignIn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
}

impl<'a> From<&'a CallError> for ErrorInfo<'a> {
    fn from(error: &'a CallError) -> Self {
        Self {
            code: error.code().as_str(),
            message: error.message(),
            stage: error.stage(),
            retryable: error.retryable(),
            retry_after_ms: error.retry_wait().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            details: error.details(),
            alternatives: error.alternatives(),
            approval: error.approval(),
            sign_in: error.sign_in(),
            run: error.run().map(|run| &**run),
        }
    }
}

/// The rest of the narrowest budget, before and after the call. `after` is null when nothing was charged.
#[derive(Debug, Serialize)]
pub struct BudgetNote {
    pub before: LeftNote,
    pub after: Option<LeftNote>,
}

#[derive(Debug, Serialize)]
pub struct LeftNote {
    cost_usd: f64,
    tokens: u64,
}

impl From<Left> for LeftNote {
    fn from(left: Left) -> Self {
        Self { cost_usd: number(left.cost_usd), tokens: left.tokens }
    }
}

/// Stage → microseconds, in the order of the stages.
pub(super) fn in_microseconds<S: Serializer>(times: &StageTimes, serializer: S) -> Result<S::Ok, S::Error> {
    let mut stages = serializer.serialize_map(Some(times.len()))?;
    for &(stage, took) in times {
        // The clock is not more exact than a tenth of a microsecond.
        let tenths = u32::try_from(took.as_nanos() / 100).unwrap_or(u32::MAX);
        stages.serialize_entry(stage.as_str(), &(f64::from(tenths) / 10.0))?;
    }
    stages.end()
}

/// The hash of the tool's input schema.
pub(super) fn schema_hash<S: Serializer>(tool: &Option<Arc<Tool>>, serializer: S) -> Result<S::Ok, S::Error> {
    tool.as_ref().map(|tool| tool.input.hash()).serialize(serializer)
}

/// The questions about the call.
pub(super) fn flow<S: Serializer>(judged: &Option<Arc<JudgedCall>>, serializer: S) -> Result<S::Ok, S::Error> {
    judged.as_ref().map(|judged| judged.notes()).serialize(serializer)
}

/// Whether there is no question about the call.
pub(super) fn is_undisputed(judged: &Option<Arc<JudgedCall>>) -> bool {
    judged.as_ref().is_none_or(|judged| !judged.is_disputed())
}

/// Amounts are exact decimals inside the gateway; the specification has JSON numbers in replies.
fn number(amount: Decimal) -> f64 {
    amount.to_f64().unwrap_or(f64::MAX)
}
