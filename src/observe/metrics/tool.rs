//! The metrics of one tool, looked up once, with its first call: counting a call is then a few atomic additions.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter, IntGauge};
use rust_decimal::prelude::ToPrimitive;

use super::families::Families;
use sekisho_core::call::Stage;
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, Status};

/// The metrics of one tool, from its first call on: most of thousands of tools are never called, and each would add a
/// hundred lines of zeros to every scrape.
#[derive(Debug)]
pub struct ToolMetrics {
    name: Box<str>,
    families: Arc<Families>,
    counted_tools: Arc<CountedTools>,
    counted: OnceLock<Box<Counted>>,
}

/// The names of tools that have metrics. A name is added after a metric was made, so that none is left of a name that is taken.
#[derive(Debug, Default)]
pub(super) struct CountedTools(Mutex<BTreeSet<Box<str>>>);

#[derive(Debug)]
struct Counted {
    executions: [IntCounter; Status::ALL.len()],
    duration: Histogram,
    cost: Histogram,
    cancellations: IntCounter,
    output_schema_violations: IntCounter,
    /// The same under its deprecated name.
    output_misfits: IntCounter,
    rate_limit_exceeded: IntCounter,
    /// Created with the first call, which sets the bucket.
    rate_limit_tokens: OnceLock<IntGauge>,
    /// Created on first use: few of the codes ever occur.
    errors: [OnceLock<IntCounter>; ERROR_CODES],
}

const ERROR_CODES: usize = ErrorCode::ALL.len();

impl CountedTools {
    fn add(&self, name: &str) {
        let mut names = self.0.lock();
        if !names.contains(name) {
            names.insert(name.into());
        }
    }

    /// Takes the names for which this is true.
    pub(super) fn take_if(&self, is_to_go: impl Fn(&str) -> bool) -> BTreeSet<Box<str>> {
        let mut names = self.0.lock();
        let (gone, left) = mem::take(&mut *names).into_iter().partition(|name| is_to_go(name));
        *names = left;
        gone
    }
}

impl ToolMetrics {
    pub(super) fn new(families: &Arc<Families>, counted_tools: &Arc<CountedTools>, name: &str) -> Self {
        let (families, counted_tools) = (Arc::clone(families), Arc::clone(counted_tools));
        Self { name: name.into(), families, counted_tools, counted: OnceLock::new() }
    }

    fn counted(&self) -> &Counted {
        self.counted.get_or_init(|| {
            let counted = Box::new(Counted::new(&self.families, &self.name));
            self.counted_tools.add(&self.name);
            // So that the rate of errors over calls starts at zero.
            self.errors_of(&counted, ErrorCode::ToolError);
            counted
        })
    }

    pub(super) fn record(&self, call: &CallSummary) {
        let counted = self.counted();
        counted.executions[call.status as usize].inc();
        if call.was_executed() {
            counted.duration.observe(call.duration.as_secs_f64());
            counted.cost.observe(call.cost_usd.to_f64().unwrap_or_default());
        }
        if call.status == Status::Cancelled {
            counted.cancellations.inc();
        }
        if call.output_schema_violation {
            counted.output_schema_violations.inc();
            counted.output_misfits.inc();
        }
        if let Some(rate) = call.rate {
            let all = &self.families.rate_limit_tokens;
            let tokens = counted.rate_limit_tokens.get_or_init(|| self.made(all.with_label_values(&[&*self.name])));
            tokens.set(rate.remaining.into());
        }
        if let Some(code) = call.code {
            self.errors_of(counted, code).inc();
            if code == ErrorCode::RateLimited && call.stage == Some(Stage::Limits) {
                counted.rate_limit_exceeded.inc();
            }
        }
    }

    fn errors_of<'a>(&self, counted: &'a Counted, code: ErrorCode) -> &'a IntCounter {
        let all = &self.families.tool_errors;
        counted.errors[code as usize].get_or_init(|| self.made(all.with_label_values(&[&*self.name, code.as_str()])))
    }

    /// A metric that was made after the others. They may have been removed meanwhile, since the tool is not offered any more.
    fn made<T>(&self, metric: T) -> T {
        self.counted_tools.add(&self.name);
        metric
    }
}

/// Removes all metrics of a tool.
pub(super) fn forget(families: &Families, name: &str) {
    // Each fails only for a metric that was not made.
    for status in Status::ALL.iter().copied() {
        let _ = families.tool_executions.remove_label_values(&[name, status.as_str()]);
    }
    for code in ErrorCode::ALL.iter().copied() {
        let _ = families.tool_errors.remove_label_values(&[name, code.as_str()]);
    }
    for counters in [
        &families.tool_cancellations,
        &families.tool_output_schema_violations,
        &families.tool_output_misfits,
        &families.rate_limit_exceeded,
    ] {
        let _ = counters.remove_label_values(&[name]);
    }
    for histograms in [&families.tool_duration, &families.tool_cost] {
        let _ = histograms.remove_label_values(&[name]);
    }
    let _ = families.rate_limit_tokens.remove_label_values(&[name]);
}

impl Counted {
    fn new(families: &Families, name: &str) -> Self {
        let label = [name];
        Self {
            executions: std::array::from_fn(|at| {
                families.tool_executions.with_label_values(&[name, Status::ALL[at].as_str()])
            }),
            duration: families.tool_duration.with_label_values(&label),
            cost: families.tool_cost.with_label_values(&label),
            cancellations: families.tool_cancellations.with_label_values(&label),
            output_schema_violations: families.tool_output_schema_violations.with_label_values(&label),
            output_misfits: families.tool_output_misfits.with_label_values(&label),
            rate_limit_exceeded: families.rate_limit_exceeded.with_label_values(&label),
            rate_limit_tokens: OnceLock::new(),
            errors: [const { OnceLock::new() }; ERROR_CODES],
        }
    }
}
