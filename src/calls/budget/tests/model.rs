//! Any order of calls against a naive model of the budget.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{MONDAY, call_of, cents, left, max_usage};
use crate::budget::{Budgets, Left};
use sekisho_config::BudgetConfig;
use sekisho_core::call::BudgetScopes;
use sekisho_core::error::ErrorCode;

#[derive(Debug, Clone)]
enum Step {
    Reserve { ids: [Option<u8>; 3], caller: u8, cost_cents: u64, tokens: u64 },
    Charge { which: prop::sample::Index, share: f64 },
    Drop { which: prop::sample::Index },
}

fn step() -> impl Strategy<Value = Step> {
    let id = || prop::option::of(0..2_u8);
    let reserve = ([id(), id(), id()], 0..2_u8, 0..30_u64, 0..700_u64)
        .prop_map(|(ids, caller, cost_cents, tokens)| Step::Reserve { ids, caller, cost_cents, tokens });
    let charge = (any::<prop::sample::Index>(), 0.0..=1.0).prop_map(|(which, share)| Step::Charge { which, share });
    let drop = any::<prop::sample::Index>().prop_map(|which| Step::Drop { which });
    prop_oneof![4 => reserve, 2 => charge, 1 => drop]
}

/// The naive model: for each scope by name, its usage, with one limit of money and one of tokens.
#[derive(Debug, Default)]
struct Model {
    used: HashMap<String, (u64, u64)>,
}

const NO_LIMIT: u64 = u64::MAX;

impl Model {
    /// The scopes of a call: name, most cents, most tokens.
    fn scopes(call_number: usize, ids: [Option<u8>; 3], caller: u8) -> [(String, u64, u64); 5] {
        let [request, agent, task] = ids.map(|id| id.map_or(format!("alone {call_number}"), |id| id.to_string()));
        [
            (format!("{caller} request {request}"), 60, 1_500),
            (format!("{caller} agent {agent}"), NO_LIMIT, 1_100),
            (format!("{caller} task {task}"), NO_LIMIT, 2_000),
            (format!("{caller} day"), 150, NO_LIMIT),
            ("tenant day".to_owned(), NO_LIMIT, 5_000),
        ]
    }

    fn left(&self, scopes: &[(String, u64, u64); 5]) -> (u64, u64) {
        scopes.iter().fold((NO_LIMIT, NO_LIMIT), |(cents, tokens), (name, most_cents, most_tokens)| {
            let (used_cents, used_tokens) = self.used.get(name).copied().unwrap_or_default();
            // Panics when more is used than allowed: the very thing that must never happen.
            (cents.min(most_cents.strict_sub(used_cents)), tokens.min(most_tokens.strict_sub(used_tokens)))
        })
    }

    fn add(&mut self, scopes: &[(String, u64, u64); 5], cents: u64, tokens: u64) {
        for (name, ..) in scopes {
            let used = self.used.entry(name.clone()).or_default();
            *used = (used.0 + cents, used.1 + tokens);
        }
    }

    fn give_back(&mut self, scopes: &[(String, u64, u64); 5], cents: u64, tokens: u64) {
        for (name, ..) in scopes {
            let used = self.used.entry(name.clone()).or_default();
            *used = (used.0.strict_sub(cents), used.1.strict_sub(tokens));
        }
    }
}

proptest! {
    #[test]
    fn any_order_of_calls_spends_what_a_naive_model_spends(steps in prop::collection::vec(step(), 1..120)) {
        let budgets = Budgets::new(&BudgetConfig {
            max_cost_per_request: cents(60),
            max_tokens_per_request: 1_500,
            token_budget_per_agent: 1_100,
            token_budget_per_task: 2_000,
            max_cost_per_caller_per_day: Some(cents(150)),
            max_tokens_per_tenant_per_day: Some(5_000),
            ..BudgetConfig::default()
        });
        let mut model = Model::default();
        let mut running = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Reserve { ids, caller, cost_cents, tokens } => {
                    let scopes = Model::scopes(number, ids, caller);
                    let (left_cents, left_tokens) = model.left(&scopes);
                    let needed = tokens.min(256);
                    let [request, agent, task] = ids.map(|id| id.map(|id| id.to_string()));
                    let named = BudgetScopes { request, agent, task, ..BudgetScopes::default() };
                    let call = call_of(&caller.to_string(), "acme", named);
                    let checked = budgets.check_on(MONDAY, &call, &max_usage(cost_cents, tokens));
                    match budgets.reserve_on(MONDAY, &call, &max_usage(cost_cents, tokens)) {
                        Ok(hold) => {
                            prop_assert!(cost_cents <= left_cents && left_tokens >= needed);
                            prop_assert_eq!(hold.before(), left(left_cents, left_tokens));
                            prop_assert_eq!(checked.unwrap(), hold.before());
                            prop_assert_eq!(hold.max_text_tokens(), tokens.min(left_tokens));
                            model.add(&scopes, cost_cents, hold.max_text_tokens());
                            running.push((hold, scopes, cost_cents));
                        }
                        Err(error) => {
                            let expected = if cost_cents > left_cents {
                                ErrorCode::BudgetExceeded
                            } else {
                                prop_assert!(left_tokens < needed);
                                ErrorCode::TokenLimitExceeded
                            };
                            prop_assert_eq!(error.code(), expected);
                            prop_assert_eq!(checked.unwrap_err().code(), expected);
                        }
                    }
                }
                Step::Charge { which, share } if !running.is_empty() => {
                    let (hold, scopes, cost_cents) = running.swap_remove(which.index(running.len()));
                    let reserved = hold.max_text_tokens();
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a few hundred")]
                    let used = (reserved as f64 * share) as u64;
                    let charge = hold.charge(used);
                    model.give_back(&scopes, 0, reserved - used);
                    let (left_cents, left_tokens) = model.left(&scopes);
                    prop_assert_eq!((charge.cost_usd, charge.tokens), (cents(cost_cents), used));
                    prop_assert_eq!(charge.after, left(left_cents, left_tokens));
                }
                Step::Drop { which } if !running.is_empty() => {
                    let (hold, scopes, cost_cents) = running.swap_remove(which.index(running.len()));
                    model.give_back(&scopes, cost_cents, hold.max_text_tokens());
                    drop(hold);
                }
                Step::Charge { .. } | Step::Drop { .. } => {}
            }
        }
        running.clear();
        prop_assert_eq!(budgets.held(), Left::default());
    }
}
