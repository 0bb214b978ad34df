//! Running a permitted call: attempts, the waits between them, and the one outcome they have together.

use std::time::Duration;

use arc_swap::ArcSwap;
use rand::Rng;

use crate::breaker::BreakerPermit;
use crate::config::ExecutionConfig;
use crate::core::call::{CallContext, Deadline, ToolOutput, Upstream};
use crate::core::error::{Blame, CallError, ErrorCode};
use crate::policy::Permit;
use crate::tool::{Attempt, Tool};

/// How often and how far apart a call is attempted (E68).
#[derive(Debug)]
pub struct Retries {
    config: ArcSwap<ExecutionConfig>,
}

/// A tool's answer.
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

    /// Attempts the call until it is answered, may not be tried again, or is out of time.
    ///
    /// The breaker learns one outcome however many attempts there were.
    pub async fn execute(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        trial: BreakerPermit,
    ) -> Result<Executed, CallError> {
        let (result, attempts) = self.attempt_until_answered(call, tool, permit, &trial).await;
        trial.record(result.as_ref().err());
        match result {
            Ok(output) => Ok(Executed { output, attempts }),
            Err(error) => Err(error.after_attempts(attempts)),
        }
    }

    async fn attempt_until_answered(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        trial: &BreakerPermit,
    ) -> (Result<ToolOutput, CallError>, u32) {
        let config = self.config.load();
        let deadline = call.deadline(tool.timeout());
        let most = if tool.metadata.idempotent { config.max_attempts } else { 1 };
        let mut attempts = 1;
        loop {
            // A local tool is computing, not waiting for a lost packet, and what is tried only once has nothing to
            // save time for: they may use all their time at once.
            let attempt_deadline = match trial.upstream() {
                Some(_) if most > 1 => deadline.at_most(seconds(config.attempt_timeout_seconds)),
                _ => deadline,
            };
            let error = match attempt(call, tool, permit, attempt_deadline).await {
                Ok(output) => return (Ok(output), attempts),
                Err(error) => error,
            };
            let wait = backoff(&config, attempts);
            if !may_try_again(&error, attempts, most, wait, deadline) || trial.still_permitted().is_err() {
                return (Err(error), attempts);
            }
            tokio::time::sleep(wait).await;
            if trial.still_permitted().is_err() {
                return (Err(error), attempts);
            }
            attempts += 1;
        }
    }
}

/// What the circuit breaker guards for the permitted call.
pub(super) fn upstream_of(tool: &Tool, permit: &Permit) -> Option<Upstream> {
    tool.executor().upstream(permit.arguments())
}

/// Runs the tool once. Only here is a permit opened, and plain arguments handed over.
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
        call.sending.begin();
    }
    let execution = executor.execute(attempt, permit.arguments());
    call.within(deadline, execution).await.unwrap_or_else(|| Err(timed_out(tool)))
}

fn timed_out(tool: &Tool) -> CallError {
    let (name, limit) = (tool.name(), tool.metadata.timeout_seconds);
    CallError::new(ErrorCode::Timeout, format!("{name} did not answer in time (its limit is {limit} s)"))
        .blaming(Blame::Network)
}

/// Only the network's own failures are worth the same request again (fault 2), and only while there
/// is time to wait and still be answered.
fn may_try_again(error: &CallError, attempts: u32, most: u32, wait: Duration, deadline: Deadline) -> bool {
    error.blame() == Blame::Network && error.wait().is_none() && attempts < most && wait < deadline.remaining()
}

/// Exponential backoff with equal jitter: between half and the whole of base × 2^(attempts − 1), capped.
fn backoff(config: &ExecutionConfig, attempts: u32) -> Duration {
    let doubled = config.backoff_base_seconds * f64::from(2_u32.saturating_pow(attempts - 1));
    seconds(doubled.min(config.backoff_max_seconds)).mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// The configuration has refused what is not a positive number of seconds.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
