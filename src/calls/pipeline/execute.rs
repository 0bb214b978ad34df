//! Executes a permitted call: the attempts, the backoff between them, and their single outcome.

use std::time::Duration;

use arc_swap::ArcSwap;
use rand::Rng;
use tokio::time::Instant;

use super::Pipeline;
use super::charging::Charging;
use crate::breaker::BreakerPermit;
use crate::policy::Permit;
use crate::tool::{Attempt, Tool};
use sekisho_config::ExecutionConfig;
use sekisho_core::call::{CallContext, Deadline, ToolOutput, Upstream};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::record::AttemptNote;

/// The number of attempts of a call, and the backoff between them.
#[derive(Debug)]
pub struct Retries {
    config: ArcSwap<ExecutionConfig>,
}

/// A tool's output, and how many attempts it took.
#[derive(Debug)]
pub struct Executed {
    pub output: ToolOutput,
    pub attempts: u32,
}

impl Retries {
    pub fn new(config: &ExecutionConfig) -> Self {
        Self { config: ArcSwap::from_pointee(config.clone()) }
    }

    pub fn reconfigure(&self, config: &ExecutionConfig) {
        self.config.store(config.clone().into());
    }

    /// Attempts the call until it succeeds, must not be retried, or reaches its deadline.
    ///
    /// The breaker records one outcome for all attempts.
    pub(super) async fn execute(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        breaker: BreakerPermit,
        _charging: &Charging,
    ) -> Result<Executed, CallError> {
        let mut failed = Vec::new();
        let (result, attempts) = self.attempt_until_answered(call, tool, permit, &breaker, &mut failed).await;
        breaker.record(result.as_ref().err());
        match result {
            Ok(output) => Ok(Executed { output, attempts }),
            Err(error) => Err(error.after_attempts(attempts).with_attempts(failed)),
        }
    }

    async fn attempt_until_answered(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        breaker: &BreakerPermit,
        failed: &mut Vec<AttemptNote>,
    ) -> (Result<ToolOutput, CallError>, u32) {
        let config = self.config.load();
        let max_attempts = if tool.metadata.idempotent { config.max_attempts } else { 1 };
        let mut attempts = 1;
        loop {
            // An attempt may use the whole deadline when the tool is local (no packet can be lost) or when there is
            // only one attempt (no time needs to be saved for another).
            let time = match (breaker.upstream(), config.attempt_timeout_seconds) {
                (Some(_), Some(timeout)) if max_attempts > 1 => tool.timeout().min(seconds(timeout)),
                _ => tool.timeout(),
            };
            let attempt_deadline = call.deadline(tool.timeout()).at_most(time);
            let (began, paused) = (Instant::now(), call.paused());
            let error = match attempt(call, tool, permit, attempt_deadline).await {
                Ok(output) => return (Ok(output), attempts),
                Err(error) => error,
            };
            let had = began.elapsed().saturating_sub(call.paused().saturating_sub(paused));
            let error = if attempts == 1 { judged(error, had, time) } else { error };
            failed.push(AttemptNote::new(began.duration_since(call.received), began.elapsed(), &error));
            let (wait, deadline) = (backoff(&config, attempts), call.deadline(tool.timeout()));
            if !may_retry(&error, attempts, max_attempts, wait, deadline) || breaker.still_permitted().is_err() {
                return (Err(error), attempts);
            }
            tokio::time::sleep(wait).await;
            if breaker.still_permitted().is_err() {
                return (Err(error), attempts);
            }
            attempts += 1;
        }
    }
}

impl Pipeline {
    /// Admits a permitted call to its upstream.
    /// Errors: `circuit_open` while the upstream is known to be down.
    pub(super) fn admit_upstream(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
    ) -> Result<BreakerPermit, CallError> {
        self.breakers.admit(upstream_of(call, tool, permit), &call.caller.tenant)
    }
}

/// The upstream of the permitted call, which its circuit breaker guards.
pub(super) fn upstream_of(call: &CallContext, tool: &Tool, permit: &Permit) -> Option<Upstream> {
    let executor = tool.executor();
    let upstream = executor.upstream(permit.sent_arguments())?;
    let chosen_by = executor.callers_choose_upstream().then(|| call.caller.owner.clone());
    Some(Upstream { chosen_by, ..upstream })
}

/// Runs the tool once. Only here are the arguments taken out of a permit and passed to an executor.
async fn attempt(
    call: &CallContext,
    tool: &Tool,
    permit: &Permit,
    deadline: Deadline,
) -> Result<ToolOutput, CallError> {
    let executor = tool.executor();
    let attempt = Attempt {
        call,
        deadline,
        memory_limit_bytes: tool.memory_limit_bytes(),
        max_output_bytes: tool.max_output_bytes(),
    };
    if !executor.marks_sent() {
        call.progress.sending.begin();
    }
    let execution = executor.execute(attempt, permit.sent_arguments());
    call.within(deadline, execution).await.unwrap_or_else(|| Err(timed_out(tool)))
}

/// An upstream is blamed for no answer only if it had at least half of the tool's time: the deadline of the caller, or
/// the earlier work of the gateway, may have left less.
fn judged(error: CallError, had: Duration, time: Duration) -> CallError {
    let is_early = error.code() == ErrorCode::Timeout && error.blame() == Blame::Network && had < time / 2;
    if is_early { error.blaming(Blame::Call) } else { error }
}

fn timed_out(tool: &Tool) -> CallError {
    let (name, limit) = (tool.name(), tool.metadata.timeout_seconds);
    CallError::new(ErrorCode::Timeout, format!("{name} did not answer in time (its limit is {limit} s)"))
        .blaming(Blame::Network)
}

/// Only network failures are retried, because an upstream's own error would come again, and only if the backoff ends
/// before the deadline.
fn may_retry(error: &CallError, attempts: u32, max_attempts: u32, wait: Duration, deadline: Deadline) -> bool {
    error.blame() == Blame::Network && error.wait().is_none() && attempts < max_attempts && wait < deadline.remaining()
}

/// Exponential backoff with equal jitter: between 50 % and 100 % of base × 2^(attempts − 1), capped.
fn backoff(config: &ExecutionConfig, attempts: u32) -> Duration {
    let doubled = config.backoff_base_seconds * f64::from(2_u32.saturating_pow(attempts - 1));
    seconds(doubled.min(config.backoff_max_seconds)).mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// The configuration accepts only positive numbers, so the fallback covers numbers too large for a [`Duration`].
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
