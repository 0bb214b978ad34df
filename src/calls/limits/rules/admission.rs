//! Admits calls by rules, after the limits that are no rules.

use std::sync::Arc;

use super::{RuleRate, RulesOfCall};
use crate::limits::{Limits, with_rate};
use crate::tool::Tool;
use sekisho_core::call::{CallContext, Caller, RateState};
use sekisho_core::error::CallError;
use sekisho_core::share::Lease;

impl Limits {
    /// Takes a call of each rule, and its slots, after the limits that are no rules have admitted it.
    pub(in crate::limits) async fn admit_by_rules(
        &self,
        rules: &RulesOfCall,
        call: &CallContext,
        tool: &Tool,
        rate: Option<RateState>,
    ) -> Result<(Option<RateState>, Option<Arc<str>>, Vec<Lease>), CallError> {
        let deadline = call.begin_by(tool.timeout());
        let of_rules = match &self.shared {
            None => rules.take(),
            Some(shared) => rules.take_shared(shared, deadline).await,
        };
        let of_rules = of_rules.inspect_err(|_| self.give_back(&call.caller, tool))?;
        let (rate, rule) = match of_rules {
            Some(RuleRate { rule, state }) if rate.is_none_or(|rate| state.remaining < rate.remaining) => {
                (Some(state), Some(rule))
            }
            _ => (rate, None),
        };
        let held = rules.enter(call, deadline).await.map_err(|refusal| with_rate(refusal, rate))?;
        Ok((rate, rule, held))
    }

    /// Gives back the calls that all limits but the rules took.
    fn give_back(&self, caller: &Caller, tool: &Tool) {
        for limit in &self.rates {
            match &self.shared {
                None => limit.give_back(caller, tool),
                Some(shared) => {
                    if let Ok(Some(bucket)) = limit.bucket(caller, tool) {
                        shared.give_back(&bucket.owner);
                    }
                }
            }
        }
    }
}
