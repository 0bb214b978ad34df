//! The usage of a run and everything that it started, by agent and model (C27, C28).

use std::sync::Arc;

use parking_lot::Mutex;

use super::event::RunUsage;
use sekisho_calls::budget::{DeferredCharges, TakenCharges};

/// The usage of one model by one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentUsage {
    /// The name of the run's agent, or the type of the sub-agent.
    pub agent: Arc<str>,
    /// As in profiles.
    pub provider: Arc<str>,
    /// The provider's id.
    pub model: Arc<str>,
    pub used: RunUsage,
}

/// The usage of a run. Clones share it: it grows while the run lives, and is complete when the run's stream has ended
/// or was dropped. Its costs sum to the charges.
#[derive(Debug, Clone, Default)]
pub struct UsageByAgent {
    rows: Arc<Mutex<Vec<AgentUsage>>>,
    /// The usage of the run that started this one.
    of_parent: Option<Arc<UsageByAgent>>,
    /// The charges for it, where they are stored with its rows.
    charges: Option<Arc<DeferredCharges>>,
    turns: Arc<Mutex<OwnTurns>>,
}

/// The usage of each turn of the run itself. `None`: its model was cut off.
#[derive(Debug, Default)]
struct OwnTurns {
    /// Of the turn that the model has answered last, until that is kept.
    answered: Option<RunUsage>,
    /// Of the turns that are messages of the conversation: at most as many as the run may have.
    kept: Vec<Option<RunUsage>>,
}

impl UsageByAgent {
    /// The usage of a run whose charges are stored with its rows.
    pub(super) fn stored_with_charges(charges: Arc<DeferredCharges>) -> Self {
        Self { charges: Some(charges), ..Self::default() }
    }

    /// The usage of a sub-agent: every addition to it is added to this one at once.
    pub(super) fn of_sub_agent(&self) -> Self {
        Self { of_parent: Some(Arc::new(self.clone())), charges: self.charges.clone(), ..Self::default() }
    }

    /// The usage of a part of the run. Its charges are stored with its own rows unless the charges of the run are
    /// stored.
    pub(super) fn of_part(&self, charges: impl FnOnce() -> Arc<DeferredCharges>) -> Self {
        let charges = Some(self.charges.clone().unwrap_or_else(charges));
        Self { charges, ..self.of_sub_agent() }
    }

    /// Whether its charges are stored with its rows.
    pub(super) fn has_charges(&self) -> bool {
        self.charges.is_some()
    }

    /// Whether there are charges that are not stored.
    pub(super) fn has_new_charges(&self) -> bool {
        self.charges.as_ref().is_some_and(|charges| !charges.is_empty())
    }

    pub(super) fn charges(&self) -> Option<&Arc<DeferredCharges>> {
        self.charges.as_ref()
    }

    /// The rows, and the charges since they were last taken. Both at once: no turn's charges are there without its
    /// rows.
    pub(super) fn take_charges(&self) -> (Vec<AgentUsage>, Option<TakenCharges>) {
        let rows = self.rows.lock();
        (rows.clone(), self.charges.as_ref().map(|charges| charges.take()))
    }

    /// One row for each agent, provider and model. Their order stays when others are added.
    pub fn rows(&self) -> Vec<AgentUsage> {
        self.rows.lock().clone()
    }

    /// The sum of all rows.
    pub fn total(&self) -> RunUsage {
        let mut total = RunUsage::default();
        self.rows.lock().iter().for_each(|row| total.add(&row.used));
        total
    }

    /// The model has answered, and used so much for the turn.
    pub(super) fn answer_turn(&self, used: RunUsage) {
        self.turns.lock().answered = Some(used);
    }

    /// The usage of the turn that the model has answered last.
    pub(super) fn of_turn(&self) -> Option<RunUsage> {
        self.turns.lock().answered.clone()
    }

    /// The turn is a message of the conversation from now on.
    pub(super) fn keep_turn(&self) {
        let mut turns = self.turns.lock();
        let used = turns.answered.take();
        turns.kept.push(used);
    }

    /// The usage of the turns that became messages, in their order.
    pub(super) fn take_turns(&self) -> Vec<Option<RunUsage>> {
        std::mem::take(&mut self.turns.lock().kept)
    }

    /// `model`: its provider and id.
    pub(super) fn add(&self, agent: &Arc<str>, model: (&str, &str), used: &RunUsage) {
        self.add_charged(agent, model, used, || {});
    }

    /// Adds the usage and runs `charge`, both at once for whoever takes the charges.
    pub(super) fn add_charged(&self, agent: &Arc<str>, model: (&str, &str), used: &RunUsage, charge: impl FnOnce()) {
        match &self.of_parent {
            // The outermost one with these charges is where they are taken.
            Some(parent) if parent.charges.is_some() || self.charges.is_none() => {
                parent.add_charged(agent, model, used, charge);
                add_to(&mut self.rows.lock(), agent, model, used);
            }
            parent => {
                let mut rows = self.rows.lock();
                charge();
                add_to(&mut rows, agent, model, used);
                drop(rows);
                if let Some(parent) = parent {
                    parent.add(agent, model, used);
                }
            }
        }
    }
}

fn add_to(rows: &mut Vec<AgentUsage>, agent: &Arc<str>, (provider, model): (&str, &str), used: &RunUsage) {
    let is_of = |row: &&mut AgentUsage| row.agent == *agent && *row.provider == *provider && *row.model == *model;
    if let Some(row) = rows.iter_mut().find(is_of) {
        return row.used.add(used);
    }
    let (agent, provider, model) = (Arc::clone(agent), provider.into(), model.into());
    rows.push(AgentUsage { agent, provider, model, used: used.clone() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_its_own_usage_and_no_usage_of_a_sub_agent() {
        let used = |prompt_tokens| RunUsage { prompt_tokens, ..RunUsage::default() };
        let usage = UsageByAgent::default();
        usage.answer_turn(used(1));
        assert_eq!(usage.of_turn(), Some(used(1)));
        usage.keep_turn();
        let of_child = usage.of_sub_agent();
        of_child.answer_turn(used(2));
        of_child.keep_turn();
        // Its model was cut off.
        usage.keep_turn();
        assert_eq!((usage.of_turn(), usage.take_turns()), (None, vec![Some(used(1)), None]));
    }

    #[test]
    fn rows_are_by_agent_and_model_and_sum_exactly() {
        let used = |prompt_tokens: u64, cost: &str| RunUsage {
            prompt_tokens,
            cost_usd: cost.parse().unwrap(),
            ..RunUsage::default()
        };
        let (main, child) = (Arc::<str>::from("main"), Arc::<str>::from("child"));
        let usage = UsageByAgent::default();
        let of_child = usage.of_sub_agent();
        usage.add(&main, ("openai", "large"), &used(1, "0.1000001"));
        usage.add(&main, ("openai", "small"), &used(2, "0.2"));
        of_child.add(&child, ("openai", "small"), &used(4, "0.0000003"));
        of_child.add(&child, ("openai", "small"), &used(8, "0.0000004"));
        let rows: Vec<_> = usage.rows().into_iter().map(|row| (row.agent, row.model, row.used.prompt_tokens)).collect();
        let expected = [(&main, "large", 1), (&main, "small", 2), (&child, "small", 12)];
        assert_eq!(rows, expected.map(|(agent, model, tokens)| (Arc::clone(agent), model.into(), tokens)));
        assert_eq!(usage.total(), used(15, "0.3000008"));
        assert_eq!(of_child.total(), used(12, "0.0000007"));
    }
}
