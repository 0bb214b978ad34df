//! The usage of each run of an agent.

use std::sync::Arc;

use super::{AtStore, StoreError, UsageStore};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::record::RunUsage;

/// A finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRun {
    pub begun: DatabaseTime,
    pub caller_key: Arc<str>,
    /// The profile's name.
    pub agent: String,
    pub model: String,
    pub reason: String,
    pub used: RunUsage,
}

impl UsageStore {
    pub async fn add_run(&self, run: &AgentRun) -> Result<(), StoreError> {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        sqlx::query(
            "INSERT INTO agent_runs (begun, caller_key, agent, model, reason, turns, tool_calls, prompt_tokens,
             completion_tokens, cached_tokens, cache_write_tokens, cost_usd, duration_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(text_of(run.begun))
        .bind(&*run.caller_key)
        .bind(&run.agent)
        .bind(&run.model)
        .bind(&run.reason)
        .bind(i64::from(run.used.turns))
        .bind(i64::from(run.used.tool_calls))
        .bind(count(run.used.prompt_tokens))
        .bind(count(run.used.completion_tokens))
        .bind(count(run.used.cached_tokens))
        .bind(count(run.used.cache_write_tokens))
        .bind(run.used.cost_usd.to_string())
        .bind(count(run.used.duration_ms))
        .execute(&self.0.pool)
        .await
        .at(&self.0)?;
        Ok(())
    }

    /// Removes runs that began before a moment.
    pub async fn forget_runs_before(&self, moment: DatabaseTime) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM agent_runs WHERE begun < $1")
            .bind(text_of(moment))
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(())
    }
}

/// With as many decimals always, so that texts are in the order of their moments.
fn text_of(moment: DatabaseTime) -> String {
    format!("{:.6}", *moment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    fn run(begun: &str, caller_key: &str) -> AgentRun {
        let used = RunUsage {
            turns: 2,
            tool_calls: 1,
            prompt_tokens: 290,
            completion_tokens: 42,
            cost_usd: "0.00042".parse().unwrap(),
            cached_tokens: 200,
            cache_write_tokens: 30,
            duration_ms: 7,
        };
        let begun = DatabaseTime::of_database(begun.parse().unwrap());
        let (agent, model, reason) = ("weather".into(), "m".into(), "stop".into());
        AgentRun { begun, caller_key: caller_key.into(), agent, model, reason, used }
    }

    #[tokio::test]
    async fn runs_are_kept_for_their_caller_until_they_are_old() {
        let store = test_store().await;
        let runs = [
            run("2026-11-21T10:00:00Z", "ann"),
            run("2026-11-21T10:00:00.5Z", "ann"),
            run("2026-11-21T11:00:00Z", "bob"),
        ];
        for run in &runs {
            store.usage().add_run(run).await.unwrap();
        }
        assert_eq!(store.usage().runs_of("ann", 10).await.unwrap(), [runs[1].clone(), runs[0].clone()]);
        assert_eq!(store.usage().runs_of("ann", 1).await.unwrap(), [runs[1].clone()]);
        store.usage().forget_runs_before(runs[1].begun).await.unwrap();
        assert_eq!(store.usage().runs_of("ann", 10).await.unwrap(), [runs[1].clone()]);
        assert_eq!(store.usage().runs_of("bob", 10).await.unwrap().len(), 1);
    }
}
