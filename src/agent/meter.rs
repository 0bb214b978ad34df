//! Counts the usage of a run, and charges it to the caller's budget.

use std::sync::Arc;

use async_stream::stream;
use futures_util::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::time::timeout;
use tracing::Span;

use super::context;
use super::event::RunUsage;
use super::message::{Extras, RequestedCall};
use super::models::{Fallback, Model, ModelChunk, ModelError, ModelRequest};
use super::usage::UsageByAgent;
use sekisho_calls::budget::model_prices::Prices;
use sekisho_calls::budget::{self, Budgets, Hold, ModelUsage};
use sekisho_config::{AgentProfile, Thinking};
use sekisho_core::call::{BudgetScopes, CallCharging, CallContext, Caller, ChargeSink, ReservedTurn, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_observe::metrics::Metrics;
use sekisho_observe::telemetry;

/// Counts the usage of one run, including one that is cut off; shared by the run and its recorder.
#[derive(Debug, Default)]
pub struct Meter {
    used: Mutex<RunUsage>,
    account: Option<Account>,
    agent: Arc<str>,
    /// Where the usage is added beside: by model, and with the usage of sub-agents.
    by_agent: UsageByAgent,
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

/// Fewer tokens are not tried where the money is short.
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

    /// The usage so far.
    pub fn used(&self) -> RunUsage {
        self.used.lock().clone()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut RunUsage)) {
        change(&mut self.used.lock());
    }

    /// Adds the numbers that are not counted turn by turn: of turns and calls, and the duration.
    /// `model`: its provider and id.
    pub(super) fn complete(&self, model: (&str, &str)) {
        let RunUsage { turns, tool_calls, duration_ms, .. } = self.used();
        let counts = RunUsage { turns, tool_calls, duration_ms, ..RunUsage::default() };
        self.by_agent.add(&self.agent, model, &counts);
    }

    /// Reserves the price of a turn. Where the money that is left is not enough for its maximum of tokens, half of them are
    /// tried, and so on, while they are enough for an answer.
    ///
    /// # Errors
    /// A scope has too little money left for the turn, or the model has no price while a daily cost limit applies.
    async fn open(&self, request: &ModelRequest, profile: &AgentProfile) -> Result<TurnCharge<'_>, ModelError> {
        let prompt_tokens = estimated_prompt(request);
        let prices = self.prices_of(profile)?;
        // A number of tokens for thinking must be below the maximum.
        let thinking = request.options.thinking.map_or(0, Thinking::tokens);
        let least_tokens = MIN_ANSWER_TOKENS.saturating_add(thinking);
        let mut max_tokens = request.max_tokens;
        let hold = loop {
            match self.reserve(profile, &prices, prompt_tokens, max_tokens).await {
                Err(ModelError::NotSent { code: ErrorCode::BudgetExceeded, .. }) if max_tokens / 2 >= least_tokens => {
                    max_tokens /= 2;
                }
                reserved => break reserved?,
            }
        };
        let (model, max_tokens) = (profile.model().to_owned(), max_tokens.into());
        Ok(TurnCharge { meter: self, model, prices, hold, prompt_tokens, max_tokens, said_bytes: 0, settled: false })
    }

    /// # Errors
    /// A scope has too little money left for so many tokens.
    async fn reserve(
        &self,
        profile: &AgentProfile,
        prices: &Prices,
        prompt_tokens: u64,
        max_tokens: u32,
    ) -> Result<Option<Hold>, ModelError> {
        let Some(account) = self.account.as_ref().filter(|_| !prices.is_free()) else { return Ok(None) };
        let max_usage = ModelUsage { prompt_tokens, completion_tokens: max_tokens.into(), ..ModelUsage::default() };
        let call = CallContext {
            charging: CallCharging {
                scopes: account.scopes.clone(),
                sink: self.by_agent.charges().map(|charges| Arc::clone(charges) as Arc<dyn ChargeSink>),
            },
            ..CallContext::new(String::new(), Arc::clone(&account.caller), Via::Agent)
        };
        let reserved = account.budgets.reserve_cost(&call, profile.model(), prices.cost(max_usage)).await;
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
        stream! {
            let mut fallbacks = self.model.fallbacks();
            let (mut model, mut profile, mut sent) = (self.model, self.profile, Arc::clone(&request));
            let mut is_own = true;
            loop {
                let opened = self.meter.open(&sent, profile).await;
                let mut bill = match opened {
                    Ok(bill) => bill,
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                };
                if let Err(error) = bill.store_reservation().await {
                    yield Err(error);
                    return;
                }
                if let Some(max_tokens) = bill.lowered(&sent) {
                    Arc::make_mut(&mut sent).max_tokens = max_tokens;
                }
                let span = telemetry::model_span(self.span, profile, sent.max_tokens, sent.options.temperature);
                let mut pieces = model.stream(Arc::clone(&sent));
                let wait = (!fallbacks.is_empty()).then(|| profile.fallback_wait());
                let mut is_silent = true;
                let failure = loop {
                    let next = match wait.filter(|_| is_silent) {
                        Some(wait) => timeout(wait, pieces.next()).await.unwrap_or(Some(Err(ModelError::Timeout))),
                        None => pieces.next().await,
                    };
                    let Some(piece) = next else { return };
                    failpoint::reach("turn.piece");
                    trace(&span, &piece);
                    bill.record(&piece);
                    match piece {
                        Err(error) if is_silent => break error,
                        Ok(piece) => {
                            is_silent &= matches!(piece, ModelChunk::Fragment { .. } | ModelChunk::Retry { .. });
                            let kept = if is_own { Some(piece) } else { without_foreign(piece) };
                            if let Some(piece) = kept {
                                yield Ok(piece);
                            }
                        }
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    }
                };
                drop(pieces);
                let class = failure.class();
                let is_for = |fallback: &Fallback| class.is_some_and(|class| fallback.config.is_for(class));
                let Some(index) = fallbacks.iter().position(is_for) else {
                    yield Err(failure);
                    return;
                };
                let fallback = &fallbacks[index];
                let name = &fallback.config.profile;
                tracing::warn!(error = %failure, profile = name, "the model of another profile is asked");
                yield Ok(ModelChunk::Retry { message: format!("{failure}; the profile {name:?} is asked in its place") });
                (model, profile, sent) = (&*fallback.model, &*fallback.profile, fallback.request(&request));
                (fallbacks, is_own) = (&fallbacks[index + 1..], false);
            }
        }
        .boxed()
    }
}

/// A chunk of another model than the run's: without the parts that only its own API takes back.
fn without_foreign(piece: ModelChunk) -> Option<ModelChunk> {
    match piece {
        ModelChunk::Thought(_) => None,
        ModelChunk::Call(call) => Some(ModelChunk::Call(RequestedCall { extras: Extras::new(), ..call })),
        piece => Some(piece),
    }
}

impl TurnCharge<'_> {
    /// The maximum of tokens, where it is less than the request's.
    fn lowered(&self, request: &ModelRequest) -> Option<u32> {
        u32::try_from(self.max_tokens).ok().filter(|max_tokens| *max_tokens < request.max_tokens)
    }

    /// Where the charges of the run are stored with it, stores the maximum cost of the turn before it is sent.
    ///
    /// # Errors
    /// The store does not take it.
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

fn trace(span: &Span, piece: &Result<ModelChunk, ModelError>) {
    match piece {
        Ok(ModelChunk::End { stop, usage }) => {
            telemetry::complete_model(span, stop.as_str(), &turn_of(*usage));
        }
        Err(error) => telemetry::fail_model(span, error.code().as_str()),
        Ok(_) => {}
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
mod tests {
    use futures_util::stream;
    use rust_decimal::Decimal;

    use super::*;
    use crate::message::Message;
    use crate::models::StopReason;
    use crate::models::fallback::WithFallbacks;
    use sekisho_config::{BudgetConfig, FailureClass, FallbackConfig};

    /// Sends its chunks, then nothing more.
    struct ScriptedModel(Vec<Result<ModelChunk, ModelError>>);

    impl Model for ScriptedModel {
        fn stream(&self, _: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            stream::iter(self.0.clone()).chain(stream::pending()).boxed()
        }
    }

    fn end(prompt_tokens: u64, completion_tokens: u64) -> Result<ModelChunk, ModelError> {
        let usage = ModelUsage { prompt_tokens, completion_tokens, ..ModelUsage::default() };
        Ok(ModelChunk::End { stop: StopReason::Stop, usage })
    }

    fn text(text: &str) -> Result<ModelChunk, ModelError> {
        Ok(ModelChunk::Text(text.into()))
    }

    /// A dollar for a thousand prompt tokens, two for a thousand completion tokens.
    fn profile() -> AgentProfile {
        AgentProfile {
            price_per_million_prompt_tokens: Some(Decimal::from(1_000)),
            price_per_million_completion_tokens: Some(Decimal::from(2_000)),
            ..AgentProfile::default()
        }
    }

    /// A meter whose request may cost half a dollar.
    fn meter() -> (Meter, Arc<Budgets>) {
        meter_with(&BudgetConfig::default())
    }

    fn meter_with(budget: &BudgetConfig) -> (Meter, Arc<Budgets>) {
        let budgets = Arc::new(Budgets::new(budget));
        let scopes = BudgetScopes { request: Some("r".into()), ..BudgetScopes::default() };
        let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
        let metrics = Arc::new(Metrics::new("ns").unwrap());
        (Meter::paid_by(Account { budgets: Arc::clone(&budgets), caller, scopes, metrics }), budgets)
    }

    /// Reads that many chunks of a turn with 40 bytes of prompt and at most 100 tokens, then disconnects.
    async fn turn(
        meter: &Meter,
        pieces: Vec<Result<ModelChunk, ModelError>>,
        reads: usize,
    ) -> Vec<Result<ModelChunk, ModelError>> {
        turn_of(meter, &profile(), pieces, reads).await
    }

    async fn turn_of(
        meter: &Meter,
        profile: &AgentProfile,
        pieces: Vec<Result<ModelChunk, ModelError>>,
        reads: usize,
    ) -> Vec<Result<ModelChunk, ModelError>> {
        let (model, span) = (ScriptedModel(pieces), Span::none());
        let metered = MeteredModel { model: &model, meter, profile, span: &span };
        let messages = vec![Message::User("x".repeat(40).into())];
        let request = ModelRequest { messages, max_tokens: 100, ..ModelRequest::default() };
        metered.stream(Arc::new(request)).take(reads).collect().await
    }

    fn cost(meter: &Meter) -> String {
        meter.used().cost_usd.normalize().to_string()
    }

    #[tokio::test]
    async fn a_turn_is_charged_by_the_reported_usage_and_the_rest_is_released() {
        let (meter, budgets) = meter();
        turn(&meter, vec![text("hi"), end(12, 3)], 2).await;
        assert_eq!((cost(&meter).as_str(), meter.used().prompt_tokens), ("0.018", 12));
        assert!(budgets.held().cost_usd.is_zero());
    }

    #[tokio::test]
    async fn a_client_that_disconnects_early_pays_the_estimated_cost_so_far() {
        let (meter, budgets) = meter();
        turn(&meter, vec![text("12345678")], 1).await;
        assert_eq!(cost(&meter), "0.014", "ten tokens of prompt, two of the answer");
        assert!(budgets.held().cost_usd.is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_measured_by_how_they_end() {
        let (meter, _) = meter();
        turn(&meter, vec![text("hi"), end(12, 3)], 2).await;
        turn(&meter, vec![Err(ModelError::Timeout)], 1).await;
        turn(&meter, vec![text("hi")], 1).await;
        let metrics = meter.account.as_ref().unwrap().metrics.render();
        let labels = format!("model=\"{}\"", profile().model());
        for outcome in ["ok", ModelError::Timeout.code().as_str(), "aborted"] {
            let sample = format!(
                "ns_agent_model_requests_total{{{labels},outcome=\"{outcome}\",provider=\"anthropic\",tenant=\"acme\"}} 1\n"
            );
            assert!(metrics.contains(&sample), "{sample}: {metrics}");
        }
        let begun = format!("ns_agent_model_first_token_seconds_count{{{labels},provider=\"anthropic\"}} 2\n");
        assert!(metrics.contains(&begun), "a refused request has no first piece: {metrics}");
    }

    #[tokio::test]
    async fn a_refused_request_costs_nothing() {
        let (meter, budgets) = meter();
        turn(&meter, vec![Err(ModelError::Unavailable("HTTP 500".into()))], 1).await;
        assert_eq!((cost(&meter).as_str(), budgets.held().cost_usd.is_zero()), ("0", true));
    }

    #[tokio::test]
    async fn turns_end_when_the_money_of_the_request_is_used_up() {
        let (meter, _) = meter();
        // Each turn reserves 0.21 and uses 0.2: the third does not fit.
        for _ in 0..2 {
            assert!(turn(&meter, vec![end(100, 50)], 1).await[0].is_ok());
        }
        let refused = turn(&meter, vec![end(100, 50)], 1).await;
        assert!(
            matches!(&refused[..], [Err(ModelError::NotSent { code: ErrorCode::BudgetExceeded, .. })]),
            "{refused:?}"
        );
        assert_eq!(cost(&meter), "0.4");
    }

    #[tokio::test]
    async fn an_answer_is_made_shorter_where_the_money_is_short() {
        let (meter, budgets) = meter();
        let (model, span, profile) = (ScriptedModel(vec![text("hi"), end(12, 3)]), Span::none(), profile());
        let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span };
        let request = ModelRequest { max_tokens: 128_000, ..ModelRequest::default() };
        // Two dollars for a thousand tokens: not even the fewest fit.
        let pieces: Vec<_> = metered.stream(Arc::new(request.clone())).take(1).collect().await;
        assert!(matches!(&pieces[..], [Err(ModelError::NotSent { .. })]), "{pieces:?}");
        let cheap = AgentProfile { price_per_million_completion_tokens: Some(Decimal::from(20)), ..profile.clone() };
        let metered = MeteredModel { profile: &cheap, ..metered };
        let mut pieces = metered.stream(Arc::new(request));
        assert!(matches!(pieces.next().await, Some(Ok(ModelChunk::Text(_)))));
        // 16,000 tokens of half a dollar; 32,000 cost more.
        assert_eq!(budgets.held().cost_usd, Decimal::new(32, 2));
    }

    /// Ends at once with a failure, or never begins.
    struct FailingModel(Option<ModelError>);

    impl Model for FailingModel {
        fn stream(&self, _: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            match &self.0 {
                Some(error) => stream::iter([Err(error.clone())]).boxed(),
                None => stream::pending().boxed(),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_profile_is_asked_after_the_failures_that_it_is_for() {
        let overloaded = || Some(ModelError::Overloaded { retry_after: None });
        let refused = || Some(ModelError::Refused("no".into()));
        let answers = || ScriptedModel(vec![text("hi"), end(12, 3)]);
        for (failure, after, is_asked) in [
            (overloaded(), vec![], true),
            (overloaded(), vec![FailureClass::Overloaded], true),
            (overloaded(), vec![FailureClass::Quota], false),
            (refused(), vec![], false),
            (refused(), vec![FailureClass::Refused], true),
            (None, vec![FailureClass::Timeout], true),
        ] {
            let other = AgentProfile { price_per_million_completion_tokens: Some(Decimal::ZERO), ..profile() };
            let config = FallbackConfig { profile: "other".into(), after };
            let fallback = Fallback { config, model: Arc::new(answers()), profile: Arc::new(other) };
            let model = WithFallbacks { model: Arc::new(FailingModel(failure)), fallbacks: vec![fallback] };
            let profile = AgentProfile { fallback_seconds: Some(2.0), ..profile() };
            let ((meter, budgets), span) = (meter(), Span::none());
            let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span };
            let messages = vec![Message::User("x".repeat(40).into())];
            let request = ModelRequest { messages, max_tokens: 100, ..ModelRequest::default() };
            let pieces: Vec<_> = metered.stream(Arc::new(request)).take(3).collect().await;
            match is_asked {
                true => {
                    let [Ok(ModelChunk::Retry { message }), rest @ ..] = &pieces[..] else { panic!("{pieces:?}") };
                    assert!(message.contains("\"other\""), "{message}");
                    assert_eq!(rest, [text("hi"), end(12, 3)]);
                    assert_eq!(cost(&meter), "0.012", "at the price of the other profile");
                }
                false => assert!(matches!(&pieces[..], [Err(_)]), "{pieces:?}"),
            }
            assert!(budgets.held().cost_usd.is_zero());
        }
    }

    #[tokio::test]
    async fn a_model_without_a_price_runs_only_without_a_daily_cost_limit() {
        let day = Some(Decimal::from(5));
        let by_caller = BudgetConfig { max_cost_per_caller_per_day: day, ..BudgetConfig::default() };
        let by_tenant = BudgetConfig { max_cost_per_tenant_per_day: day, ..BudgetConfig::default() };
        let unpriced = AgentProfile { model: Some("nobody-knows".into()), ..AgentProfile::default() };
        let free = AgentProfile {
            price_per_million_prompt_tokens: Some(Decimal::ZERO),
            price_per_million_completion_tokens: Some(Decimal::ZERO),
            ..unpriced.clone()
        };
        for (budget, profile, limit) in [
            (BudgetConfig::default(), &unpriced, None),
            (by_caller.clone(), &unpriced, Some("budget.max_cost_per_caller_per_day")),
            (by_tenant.clone(), &unpriced, Some("budget.max_cost_per_tenant_per_day")),
            (by_caller.clone(), &free, None),
            (by_caller.clone(), &AgentProfile::default(), None),
            (by_tenant, &AgentProfile::replay("script.yaml"), None),
        ] {
            let (meter, budgets) = meter_with(&budget);
            let chunks = turn_of(&meter, profile, vec![end(12, 3)], 1).await;
            let refused = limit.is_some_and(|limit| {
                matches!(&chunks[..], [Err(ModelError::NotSent { code: ErrorCode::BudgetExceeded, message })]
                    if message.contains(limit) && message.contains("price_per_million_prompt_tokens"))
            });
            assert_eq!((refused, chunks[0].is_err()), (limit.is_some(), limit.is_some()), "{chunks:?}");
            // A reloaded limit applies from the next turn.
            budgets.reconfigure(&by_caller);
            let chunks = turn_of(&meter, &unpriced, vec![end(12, 3)], 1).await;
            assert!(chunks[0].is_err(), "{chunks:?}");
        }
    }
}
