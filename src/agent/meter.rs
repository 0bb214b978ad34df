//! Counts the usage of a run, and charges it to the caller's budget.

mod content;
mod fallbacks;

use std::sync::Arc;

use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Span;

use super::context;
use super::event::RunUsage;
use super::models::{Model, ModelChunk, ModelError, ModelRequest};
use super::run_file::RunRecord;
use super::usage::UsageByAgent;
use sekisho_calls::budget::model_prices::Prices;
use sekisho_calls::budget::{self, Amount, Budgets, Hold, ModelUsage};
use sekisho_config::{AgentProfile, Thinking};
use sekisho_core::call::{
    BudgetScopes, CallCharging, CallContext, Caller, ChargeSink, ModelTurns, ReservedTurn, UsedModel, Via,
};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_observe::metrics::Metrics;

/// Counts the usage of one run, including one that is cut off; shared by the run and its recorder.
#[derive(Debug, Default)]
pub struct Meter {
    used: Mutex<RunUsage>,
    account: Option<Account>,
    agent: Arc<str>,
    /// Where the usage is added beside: by model, and with the usage of sub-agents.
    by_agent: UsageByAgent,
    /// Gets each answer of a model, where the run is recorded.
    record: Option<Arc<RunRecord>>,
    /// Whether spans of its turns have their content.
    traces_content: bool,
}

/// The account that pays for a run's model. Its tokens count in the budgets of a day; the budget of a request counts the
/// text of tools.
#[derive(Debug)]
pub struct Account {
    pub budgets: Arc<Budgets>,
    pub caller: Arc<Caller>,
    pub scopes: BudgetScopes,
    pub metrics: Arc<Metrics>,
}

/// A model whose turns are counted, charged, and traced under a span each.
pub(super) struct MeteredModel<'a> {
    pub(super) model: &'a dyn Model,
    pub(super) meter: &'a Meter,
    pub(super) profile: &'a AgentProfile,
    /// Parent span of the turns.
    pub(super) span: &'a Span,
    /// When the work of which the requests are a part ends.
    pub(super) end: Option<Instant>,
}

/// The price of one turn, reserved before the request. If a turn is cut off, its usage is estimated; otherwise a
/// client that disconnects early would never pay.
struct TurnCharge<'a> {
    meter: &'a Meter,
    model: UsedModel,
    prices: Prices,
    hold: Option<Hold>,
    /// Estimated.
    prompt_tokens: u64,
    /// Maximum tokens of its answer.
    max_tokens: u64,
    said_bytes: usize,
    settled: bool,
    begun: Instant,
    /// Whether a piece of the answer has arrived.
    has_begun_to_answer: bool,
    /// Whether its end is counted.
    is_over: bool,
}

/// Fewer tokens are not tried where the money or the tokens of a day are short.
const MIN_ANSWER_TOKENS: u32 = 1_000;

/// Estimated bytes of a model's token.
const BYTES_OF_A_TOKEN: usize = 4;

impl Meter {
    /// Charges to an account.
    pub fn paid_by(account: Account) -> Self {
        Self { account: Some(account), ..Self::default() }
    }

    /// Adds the usage to the usage of a run, as this agent's.
    pub(super) fn of_agent(self, agent: &Arc<str>, by_agent: &UsageByAgent) -> Self {
        Self { agent: Arc::clone(agent), by_agent: by_agent.clone(), ..self }
    }

    pub(super) fn recorded_in(self, record: Option<Arc<RunRecord>>) -> Self {
        Self { record, ..self }
    }

    /// With the content of its turns in their spans, or without.
    pub(super) fn tracing_content(self, traces_content: bool) -> Self {
        Self { traces_content, ..self }
    }

    /// The usage so far.
    pub fn used(&self) -> RunUsage {
        self.used.lock().clone()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut RunUsage)) {
        change(&mut self.used.lock());
    }

    /// The model has answered a turn that began with this usage, at this moment.
    pub(super) fn answer_turn(&self, (before, begun): &(RunUsage, Instant)) {
        let now = self.used();
        self.by_agent.answer_turn(RunUsage {
            turns: 1,
            tool_calls: 0,
            prompt_tokens: now.prompt_tokens.saturating_sub(before.prompt_tokens),
            completion_tokens: now.completion_tokens.saturating_sub(before.completion_tokens),
            cached_tokens: now.cached_tokens.saturating_sub(before.cached_tokens),
            cache_write_tokens: now.cache_write_tokens.saturating_sub(before.cache_write_tokens),
            cost_usd: now.cost_usd.saturating_sub(before.cost_usd),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// The current turn is a message of the conversation from now on.
    pub(super) fn keep_turn(&self) {
        self.by_agent.keep_turn();
    }

    /// Adds the numbers that are not counted turn by turn: of turns and calls, and the duration.
    /// `model`: its provider and id.
    pub(super) fn complete(&self, model: (&str, &str)) {
        let RunUsage { turns, tool_calls, duration_ms, .. } = self.used();
        let counts = RunUsage { turns, tool_calls, duration_ms, ..RunUsage::default() };
        self.by_agent.add(&self.agent, model, &counts);
    }

    /// Reserves the price and the tokens of a turn. Where the rest is not enough for its maximum of tokens, half of them
    /// are tried, and so on, while they are enough for an answer.
    /// Errors: a scope has too little money or too few tokens left for the turn, or the model has no price while a
    /// daily cost limit applies.
    async fn open(&self, request: &ModelRequest, profile: &AgentProfile) -> Result<TurnCharge<'_>, ModelError> {
        let prompt_tokens = estimated_prompt(request);
        let prices = self.prices_of(profile)?;
        // A number of tokens for thinking must be below the maximum.
        let thinking = request.options.thinking.map_or(0, Thinking::tokens);
        let least_tokens = MIN_ANSWER_TOKENS.saturating_add(thinking);
        let mut max_tokens = request.max_tokens;
        let hold = loop {
            match self.reserve(profile, &prices, prompt_tokens, max_tokens).await {
                Err(ModelError::NotSent {
                    code: ErrorCode::BudgetExceeded | ErrorCode::TokenLimitExceeded, ..
                }) if max_tokens / 2 >= least_tokens => {
                    max_tokens /= 2;
                }
                reserved => break reserved?,
            }
        };
        let (agent, provider) = (Arc::clone(&self.agent), profile.provider().as_str().into());
        let model = UsedModel { agent, provider, model: profile.model().into() };
        Ok(TurnCharge {
            meter: self,
            model,
            prices,
            hold,
            prompt_tokens,
            max_tokens: max_tokens.into(),
            said_bytes: 0,
            settled: false,
            begun: Instant::now(),
            has_begun_to_answer: false,
            is_over: false,
        })
    }

    /// Errors: a scope has too little money or too few tokens left for so many.
    async fn reserve(
        &self,
        profile: &AgentProfile,
        prices: &Prices,
        prompt_tokens: u64,
        max_tokens: u32,
    ) -> Result<Option<Hold>, ModelError> {
        let Some(account) = &self.account else { return Ok(None) };
        let max_usage = ModelUsage { prompt_tokens, completion_tokens: max_tokens.into(), ..ModelUsage::default() };
        let call = CallContext {
            charging: CallCharging {
                scopes: account.scopes.clone(),
                sink: self.by_agent.charges().map(|charges| Arc::clone(charges) as Arc<dyn ChargeSink>),
            },
            ..CallContext::new(String::new(), Arc::clone(&account.caller), Via::Agent)
        };
        let reserved = account.budgets.reserve_turn_or_wait(&call, profile.model(), amount(prices, max_usage)).await;
        let not_sent =
            |error: CallError| ModelError::NotSent { code: error.code(), message: error.message().to_owned() };
        reserved.map(Some).map_err(not_sent)
    }

    /// A model without a price is free only if no daily cost limit applies.
    fn prices_of(&self, profile: &AgentProfile) -> Result<Prices, ModelError> {
        let limit = self.account.as_ref().and_then(|account| account.budgets.daily_cost_limit(&account.caller.tenant));
        match (Prices::of(profile), limit) {
            (Ok(prices), _) => Ok(prices),
            (Err(_), None) => Ok(Prices::free()),
            (Err(unpriced), Some(limit)) => {
                Err(ModelError::NotSent { code: ErrorCode::BudgetExceeded, message: unpriced.refusal(limit) })
            }
        }
    }
}

impl Model for MeteredModel<'_> {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        match &self.meter.record {
            None => self.metered(request),
            Some(record) => {
                let pieces = self.metered(Arc::clone(&request));
                Arc::clone(record).answers(&request, pieces)
            }
        }
    }
}

impl TurnCharge<'_> {
    /// The maximum of tokens, where it is less than the request's.
    fn lowered(&self, request: &ModelRequest) -> Option<u32> {
        u32::try_from(self.max_tokens).ok().filter(|max_tokens| *max_tokens < request.max_tokens)
    }

    /// Where the charges of the run are stored with it, stores the maximum cost of the turn before it is sent.
    /// Errors: the store does not take it.
    async fn store_reservation(&mut self) -> Result<(), ModelError> {
        let Some(hold) = &mut self.hold else { return Ok(()) };
        let (model, prompt_tokens) = (self.model.clone(), self.prompt_tokens);
        let turn = ReservedTurn { model, prompt_tokens, completion_tokens: self.max_tokens };
        // Dropped before it is sent, it costs nothing.
        self.settled = true;
        let stored = hold.store(Some(turn)).await;
        stored.map_err(|error| ModelError::NotSent { code: error.code(), message: error.message().to_owned() })?;
        self.settled = false;
        Ok(())
    }

    fn record(&mut self, piece: &Result<ModelChunk, ModelError>) {
        self.measure(piece);
        match piece {
            Ok(ModelChunk::End { usage, .. }) => self.settle(*usage),
            Ok(ModelChunk::Text(text) | ModelChunk::Thinking(text)) => self.said_bytes += text.len(),
            Ok(ModelChunk::Call(call)) => self.said_bytes += call.arguments.len(),
            Ok(ModelChunk::Fragment { bytes }) => self.said_bytes += bytes,
            // The text of thoughts was counted before.
            Ok(ModelChunk::Thought(_) | ModelChunk::Retry { .. }) => {}
            // The provider refused: nothing is charged, and the hold is released.
            Err(_) if self.said_bytes == 0 => self.settled = true,
            Err(_) => {}
        }
    }

    fn measure(&mut self, piece: &Result<ModelChunk, ModelError>) {
        match piece {
            Ok(ModelChunk::End { .. }) => self.end("ok"),
            Err(error) => self.end(error.code().as_str()),
            Ok(ModelChunk::Retry { .. }) => {}
            Ok(_) if self.has_begun_to_answer => {}
            Ok(_) => {
                self.has_begun_to_answer = true;
                if let Some(account) = &self.meter.account {
                    account.metrics.record_first_token(&self.model, self.begun.elapsed());
                }
            }
        }
    }

    /// Counts the request as over, once.
    fn end(&mut self, outcome: &'static str) {
        if let Some(account) = self.meter.account.as_ref().filter(|_| !self.is_over) {
            let took = self.begun.elapsed();
            account.metrics.record_model_request(&account.caller.tenant, &self.model, outcome, took);
        }
        self.is_over = true;
    }

    fn settle(&mut self, used: ModelUsage) {
        self.settled = true;
        let cost_usd = amount(&self.prices, used).cost_usd;
        let turn = ModelTurns { cost_usd, ..turn_of(used) };
        let ModelTurns { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, .. } = turn;
        let added = RunUsage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cache_write_tokens,
            cost_usd,
            ..RunUsage::default()
        };
        let hold = self.hold.take();
        let (meter, model) = (self.meter, &self.model);
        meter.by_agent.add_charged(&meter.agent, (&model.provider, &model.model), &added, || {
            if let Some((hold, account)) = hold.zip(meter.account.as_ref()) {
                account.metrics.record_model_tokens(&account.caller.tenant, model, &turn);
                hold.charge_turn(&account.budgets, &account.caller, model, turn);
            }
        });
        self.meter.count(|sum| sum.add(&added));
    }
}

impl Drop for TurnCharge<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.end("aborted");
            let completion_tokens = tokens_of(self.said_bytes);
            let prompt_tokens = self.prompt_tokens;
            self.settle(ModelUsage { prompt_tokens, completion_tokens, ..ModelUsage::default() });
        }
    }
}

/// The cost and the tokens of a turn, as they are charged.
fn amount(prices: &Prices, used: ModelUsage) -> Amount {
    let tokens = used.prompt_tokens.saturating_add(used.completion_tokens);
    Amount { cost_usd: budget::rounded(prices.cost(used)), tokens }
}

/// A turn without its cost.
fn turn_of(used: ModelUsage) -> ModelTurns {
    let ModelUsage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens } = used;
    ModelTurns {
        turns: 1,
        prompt_tokens,
        cached_tokens,
        cache_write_tokens,
        completion_tokens,
        reasoning_tokens,
        ..ModelTurns::default()
    }
}

/// Estimated tokens of a text of that many bytes.
pub(super) fn tokens_of(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_OF_A_TOKEN)).unwrap_or(u64::MAX)
}

/// Estimated tokens of a request.
pub(super) fn estimated_prompt(request: &ModelRequest) -> u64 {
    context::tokens_of(&request.messages, &request.tools)
}

#[cfg(test)]
mod tests;
