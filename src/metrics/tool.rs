//! The metrics of one tool, looked up once when it is registered: counting a call is then a few
//! atomic additions.

use std::sync::OnceLock;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use rust_decimal::prelude::ToPrimitive;

use super::families::Families;
use crate::call::Stage;
use crate::error::ErrorCode;
use crate::record::{CallRecord, Status};

/// What is counted of one tool.
#[derive(Debug)]
pub struct ToolMetrics {
    name: Box<str>,
    executions: [IntCounter; Status::ALL.len()],
    duration: Histogram,
    cost: Histogram,
    cancellations: IntCounter,
    output_misfits: IntCounter,
    rate_limit_exceeded: IntCounter,
    /// Made with the first call: before it, no bucket is known.
    rate_limit_tokens: OnceLock<IntGauge>,
    all_rate_limit_tokens: IntGaugeVec,
    /// Made when they first happen: few of the codes ever do.
    errors: [OnceLock<IntCounter>; ERROR_CODES],
    all_errors: IntCounterVec,
}

/// `Cancelled` is the last of the codes.
const ERROR_CODES: usize = ErrorCode::Cancelled as usize + 1;

impl ToolMetrics {
    pub(super) fn new(families: &Families, name: &str) -> Self {
        let label = [name];
        let tool = Self {
            name: name.into(),
            executions: Status::ALL.map(|status| families.tool_executions.with_label_values(&[name, status.as_str()])),
            duration: families.tool_duration.with_label_values(&label),
            cost: families.tool_cost.with_label_values(&label),
            cancellations: families.tool_cancellations.with_label_values(&label),
            output_misfits: families.tool_output_misfits.with_label_values(&label),
            rate_limit_exceeded: families.rate_limit_exceeded.with_label_values(&label),
            rate_limit_tokens: OnceLock::new(),
            all_rate_limit_tokens: families.rate_limit_tokens.clone(),
            errors: [const { OnceLock::new() }; ERROR_CODES],
            all_errors: families.tool_errors.clone(),
        };
        // So that a rate of errors over calls has something to start from.
        tool.errors_of(ErrorCode::ToolError);
        tool
    }

    pub(super) fn record(&self, record: &CallRecord<'_>) {
        self.executions[record.status as usize].inc();
        if was_executed(record) {
            self.duration.observe(record.duration.as_secs_f64());
            self.cost.observe(record.cost_usd.to_f64().unwrap_or_default());
        }
        if record.status == Status::Cancelled {
            self.cancellations.inc();
        }
        if record.output_misfit {
            self.output_misfits.inc();
        }
        if let Some(rate) = record.rate {
            let tokens =
                self.rate_limit_tokens.get_or_init(|| self.all_rate_limit_tokens.with_label_values(&[&*self.name]));
            tokens.set(rate.remaining.into());
        }
        if let Some(error) = record.error {
            self.errors_of(error.code()).inc();
            if error.code() == ErrorCode::RateLimited && error.stage() == Some(Stage::Limits) {
                self.rate_limit_exceeded.inc();
            }
        }
    }

    fn errors_of(&self, code: ErrorCode) -> &IntCounter {
        self.errors[code as usize].get_or_init(|| self.all_errors.with_label_values(&[&*self.name, code.as_str()]))
    }
}

/// Calls that were refused, or that nobody meant to run, take microseconds and cost nothing: they would drown
/// those that ran. One whose caller hung up meanwhile, or whose tool panicked, has no time noted for its
/// execution, but passed the last stage before.
fn was_executed(record: &CallRecord<'_>) -> bool {
    let was_let_through = record.stages.iter().any(|(stage, _)| *stage == Stage::Breaker);
    was_let_through && record.status != Status::Refused && !record.call.dry_run
}
