//! What an error says about the rules, limits and attempts of its call. The notes are only for the record: no reply has them.

use std::sync::Arc;

use super::{CallError, Detail};
use crate::breaker_state::BreakerState;
use crate::record::{AttemptNote, CountedCalls, FailureNotes, LimitNote, MAX_ATTEMPTS, MAX_RULES, shortened};

/// The path of a detail that names a rule of `limits.rules`.
const LIMIT_RULES: &str = "limits.rules";

impl CallError {
    /// The rule of `limits.rules` that refused the call.
    #[must_use]
    pub fn limited_by(self, rule: &str) -> Self {
        let message = self.message().to_owned();
        self.with_detail(Detail { path: LIMIT_RULES.into(), rule: rule.to_owned(), message })
    }

    /// The rule of `limits.rules` that refused the call, if one did.
    pub fn limit_rule(&self) -> Option<&str> {
        self.details().iter().find(|detail| detail.path == LIMIT_RULES).map(|detail| &*detail.rule)
    }

    /// Its attempts, of which the record has the last ones.
    #[must_use]
    pub fn with_attempts(mut self, mut attempts: Vec<AttemptNote>) -> Self {
        attempts.drain(..attempts.len().saturating_sub(MAX_ATTEMPTS));
        attempts.shrink_to_fit();
        self.notes_mut().attempts = attempts;
        self
    }

    /// The rules that refused it, each with file and line.
    #[must_use]
    pub fn of_rules(mut self, rules: Vec<String>) -> Self {
        if !rules.is_empty() {
            self.notes_mut().rules =
                rules.into_iter().take(MAX_RULES).map(|rule| shortened(&rule).to_owned()).collect();
        }
        self
    }

    /// The limit that it reached counts these calls together.
    #[must_use]
    pub fn of_limit(mut self, counts: CountedCalls) -> Self {
        self.notes_mut().limit = Some(LimitNote { counts, rule: None });
        self
    }

    /// The state of the circuit breaker that refused it.
    #[must_use]
    pub fn of_breaker(mut self, upstream: Arc<str>, state: BreakerState) -> Self {
        self.0.breaker = Some((upstream, state));
        self
    }

    pub fn notes(&self) -> Option<&FailureNotes> {
        self.0.notes.as_deref()
    }

    /// The upstream and the state of its circuit breaker, where that refused the call.
    pub fn breaker(&self) -> Option<&(Arc<str>, BreakerState)> {
        self.0.breaker.as_ref()
    }

    fn notes_mut(&mut self) -> &mut FailureNotes {
        self.0.notes.get_or_insert_default()
    }
}
