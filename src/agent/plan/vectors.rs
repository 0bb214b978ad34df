//! The entries of a plan's memory that are close in meaning to a question, where a provider of embeddings is
//! configured.

use std::collections::HashMap;
use std::sync::Arc;

use rust_decimal::Decimal;
use sha2::{Digest, Sha256};

use super::work::Work;
use crate::RunUsage;
use crate::meter::tokens_of;
use crate::models::ModelError;
use crate::models::embeddings::{Embedded, embed, similarity};
use sekisho_calls::budget::{Amount, rounded};
use sekisho_config::{EmbeddingsConfig, Provider};
use sekisho_core::call::{ModelTurns, ReservedTurn, UsedModel};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::StoreError;

/// The positions of the texts that can be compared, the closest first. Empty without a provider, or where it fails.
pub(super) async fn closest(work: &Work, texts: &[&str], query: &str) -> Vec<usize> {
    let Some(config) = &work.agents.gateway().configuration().current().agent.embeddings else { return Vec::new() };
    if texts.is_empty() {
        return Vec::new();
    }
    match ranked(work, config, texts, query).await {
        Ok(ranked) => ranked,
        Err(error) => {
            tracing::warn!(%error, plan = %work.id, "the memory of a plan is searched by its words alone");
            Vec::new()
        }
    }
}

async fn ranked(work: &Work, config: &EmbeddingsConfig, texts: &[&str], query: &str) -> Result<Vec<usize>, ModelError> {
    let digests: Vec<_> = texts.iter().map(|text| hex::encode(Sha256::digest(text))).collect();
    let mut known = work.store().plans().vectors(&work.id, &config.model).await.map_err(|error| unavailable(&error))?;
    let query = paid(work, config, &[query]).await?.vectors.pop().unwrap_or_default();
    // Where the provider has another model behind the name now, its vectors differ in their lengths.
    known.retain(|_, vector| vector.len() == query.len());
    let mut new: HashMap<&String, &str> = digests.iter().zip(texts.iter().copied()).collect();
    new.retain(|digest, _| !known.contains_key(*digest));
    let (new_digests, new_texts): (Vec<_>, Vec<_>) = new.into_iter().unzip();
    let vectors = paid(work, config, &new_texts).await?.vectors;
    let made: Vec<_> = new_digests.into_iter().cloned().zip(vectors).collect();
    work.store().plans().keep_vectors(&work.id, &config.model, &made).await.map_err(|error| unavailable(&error))?;
    known.extend(made);
    let close = |(position, digest)| Some((position, similarity(known.get(digest)?, &query)?));
    let mut close: Vec<(usize, f32)> = digests.iter().enumerate().filter_map(close).collect();
    close.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    Ok(close.into_iter().map(|(position, _)| position).collect())
}

/// The vectors of the texts, whose price the caller of the plan pays.
async fn paid(work: &Work, config: &EmbeddingsConfig, texts: &[&str]) -> Result<Embedded, ModelError> {
    let gateway = work.agents.gateway();
    let (budgets, tenant) = (&gateway.pipeline.budget, &work.caller().tenant);
    let price = match (config.price_per_million_tokens, budgets.daily_cost_limit(tenant)) {
        (Some(price), _) => price,
        (None, None) => Decimal::ZERO,
        (None, Some(limit)) => {
            let message = format!("set `agent.embeddings.price_per_million_tokens`, since {limit} is set");
            return Err(ModelError::NotSent { code: ErrorCode::BudgetExceeded, message });
        }
    };
    let cost = |tokens: u64| rounded(price * Decimal::from(tokens) / Decimal::from(1_000_000));
    let amount = |tokens: u64| Amount { cost_usd: cost(tokens), tokens };
    let estimate = texts.iter().map(|text| tokens_of(text.len())).sum();
    let reserved = budgets.reserve_turn(&work.paid_call(), &config.model, amount(estimate)).await;
    let mut hold = reserved.map_err(|error| not_sent(&error))?;
    let (agent, model) = (Arc::clone(&work.agent), config.model.as_str().into());
    let model = UsedModel { agent, provider: Provider::Openai.as_str().into(), model };
    let turn = ReservedTurn { model: model.clone(), prompt_tokens: estimate, completion_tokens: 0 };
    hold.store(Some(turn)).await.map_err(|error| not_sent(&error))?;
    let embedded = embed(gateway.outbound(), config, texts).await?;
    let used = RunUsage { prompt_tokens: embedded.tokens, cost_usd: cost(embedded.tokens), ..RunUsage::default() };
    let (prompt_tokens, cost_usd) = (used.prompt_tokens, used.cost_usd);
    let turns = ModelTurns { turns: 1, prompt_tokens, cost_usd, ..ModelTurns::default() };
    let charge = || hold.charge_turn(budgets, work.caller(), &model, turns);
    work.usage().add_charged(&work.agent, (&model.provider, &model.model), &used, charge);
    Ok(embedded)
}

fn not_sent(error: &CallError) -> ModelError {
    ModelError::NotSent { code: error.code(), message: error.message().to_owned() }
}

fn unavailable(error: &StoreError) -> ModelError {
    ModelError::Unavailable(error.to_string())
}
