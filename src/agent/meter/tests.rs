use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use rust_decimal::Decimal;
use tokio::time::sleep;

use super::*;
use crate::message::{Message, RequestedCall};
use crate::models::fallback::{WithFallbacks, longest_silence};
use crate::models::retry::{self, RetryPolicy};
use crate::models::{Fallback, StopReason};
use crate::options::ModelOptions;
use sekisho_config::{BudgetConfig, FailureClass, FallbackConfig, Provider};

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
    let metered = MeteredModel { model: &model, meter, profile, span: &span, end: None };
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
    assert!(matches!(&refused[..], [Err(ModelError::NotSent { code: ErrorCode::BudgetExceeded, .. })]), "{refused:?}");
    assert_eq!(cost(&meter), "0.4");
}

#[tokio::test]
async fn the_tokens_of_a_free_model_count_in_the_budget_of_a_day() {
    let (meter, budgets) =
        meter_with(&BudgetConfig { max_tokens_per_caller_per_day: Some(10_000), ..BudgetConfig::default() });
    let free = AgentProfile::replay("script.yaml");
    for _ in 0..2 {
        assert!(turn_of(&meter, &free, vec![end(4_950, 10)], 1).await[0].is_ok());
    }
    // 80 are left, and its answer may have 100.
    let refused = turn_of(&meter, &free, vec![end(1, 1)], 1).await;
    assert!(
        matches!(&refused[..], [Err(ModelError::NotSent { code: ErrorCode::TokenLimitExceeded, .. })]),
        "{refused:?}"
    );
    assert_eq!(budgets.held().tokens, 0);
}

#[tokio::test]
async fn an_answer_is_made_shorter_where_the_money_is_short() {
    let (meter, budgets) = meter();
    let (model, span, profile) = (ScriptedModel(vec![text("hi"), end(12, 3)]), Span::none(), profile());
    let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span, end: None };
    let request = ModelRequest { max_tokens: 128_000, ..ModelRequest::default() };
    // Two dollars for a thousand tokens: not even the fewest fit.
    let pieces: Vec<_> = metered.stream(Arc::new(request.clone())).take(1).collect().await;
    assert!(matches!(&pieces[..], [Err(ModelError::NotSent { .. })]), "{pieces:?}");
    let cheap = AgentProfile { price_per_million_completion_tokens: Some(Decimal::from(20)), ..profile.clone() };
    let metered = MeteredModel { profile: &cheap, ..metered };
    let mut pieces = metered.stream(Arc::new(request));
    assert!(matches!(pieces.next().await, Some(Ok(ModelChunk::Text(_)))));
    // 16,000 tokens of half a dollar; 32,000 cost more. Held of the request, and of the days of the caller and the tenant.
    assert_eq!(budgets.held().cost_usd, Decimal::new(3 * 32, 2));
}

#[tokio::test]
async fn an_answer_is_made_shorter_where_the_tokens_of_the_day_are_short() {
    let (meter, budgets) =
        meter_with(&BudgetConfig { max_tokens_per_caller_per_day: Some(10_000), ..BudgetConfig::default() });
    let (model, span, free) = (ScriptedModel(vec![text("hi")]), Span::none(), AgentProfile::replay("script.yaml"));
    let metered = MeteredModel { model: &model, meter: &meter, profile: &free, span: &span, end: None };
    let request = ModelRequest { max_tokens: 128_000, ..ModelRequest::default() };
    let mut pieces = metered.stream(Arc::new(request));
    assert!(matches!(pieces.next().await, Some(Ok(ModelChunk::Text(_)))));
    assert_eq!(budgets.held().tokens, 2 * 8_000, "of the days of the caller and the tenant");
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
        let other = AgentProfile {
            model: Some("another".into()),
            price_per_million_completion_tokens: Some(Decimal::ZERO),
            ..profile()
        };
        let config = FallbackConfig { profile: "other".into(), after };
        let fallback = Fallback { config, model: Arc::new(answers()), profile: Arc::new(other) };
        let model = WithFallbacks { model: Arc::new(FailingModel(failure)), fallbacks: vec![fallback] };
        let profile = AgentProfile { fallback_seconds: Some(2.0), ..profile() };
        let ((meter, budgets), span) = (meter(), Span::none());
        let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span, end: None };
        let messages = vec![Message::User("x".repeat(40).into())];
        let request = ModelRequest { messages, max_tokens: 100, ..ModelRequest::default() };
        let pieces: Vec<_> = metered.stream(Arc::new(request)).take(3).collect().await;
        match is_asked {
            true => {
                let [Ok(ModelChunk::Retry { message }), rest @ ..] = &pieces[..] else { panic!("{pieces:?}") };
                assert!(message.contains("\"other\""), "{message}");
                assert_eq!(rest, [text("hi"), end(12, 3)]);
                assert_eq!(cost(&meter), "0.012", "at the price of the other profile");
                let [row] = &meter.by_agent.rows()[..] else { panic!("of the model that answered alone") };
                assert_eq!((&*row.provider, &*row.model, row.used.prompt_tokens), ("anthropic", "another", 12));
            }
            false => assert!(matches!(&pieces[..], [Err(_)]), "{pieces:?}"),
        }
        assert!(budgets.held().cost_usd.is_zero());
    }
}

/// Is silent after it accepted the request: its answer ends, or never begins.
struct AcceptingModel {
    is_cut_off: bool,
}

impl Model for AcceptingModel {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        request.accepted.set();
        if self.is_cut_off { stream::empty().boxed() } else { stream::pending().boxed() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_accepted_the_request_is_charged_beside_the_one_that_answers_in_its_place() {
    for is_cut_off in [false, true] {
        let other = AgentProfile { model: Some("another".into()), ..profile() };
        let call = RequestedCall::new("functions.add:0".into(), "add".into(), "{}".into());
        let answer = ScriptedModel(vec![Ok(ModelChunk::Call(call.clone())), end(12, 3)]);
        let config = FallbackConfig { profile: "other".into(), after: Vec::new() };
        let fallback = Fallback { config, model: Arc::new(answer), profile: Arc::new(other) };
        let model = WithFallbacks { model: Arc::new(AcceptingModel { is_cut_off }), fallbacks: vec![fallback] };
        let profile = AgentProfile { fallback_seconds: Some(2.0), ..profile() };
        let ((meter, budgets), span) = (meter(), Span::none());
        let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span, end: None };
        let messages = vec![Message::User("x".repeat(40).into())];
        let request = ModelRequest { messages, max_tokens: 100, ..ModelRequest::default() };
        let pieces: Vec<_> = metered.stream(Arc::new(request)).take(3).collect().await;
        // Its id is not one of the run's API.
        let anonymous = RequestedCall { id: String::new(), ..call };
        assert_eq!(pieces[1..], [Ok(ModelChunk::Call(anonymous)), end(12, 3)], "{is_cut_off}");
        let rows = meter.by_agent.rows();
        let charged: Vec<_> = rows.iter().map(|row| (&*row.model, row.used.prompt_tokens > 0)).collect();
        assert_eq!(charged.len(), 2, "{charged:?}");
        assert!(charged.contains(&(profile.model(), true)) && charged.contains(&("another", true)), "{charged:?}");
        assert!(budgets.held().cost_usd.is_zero());
    }
}

/// Is silent for a time, and answers then.
struct SlowModel(Duration);

impl Model for SlowModel {
    fn stream(&self, _: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        stream::once(sleep(self.0)).flat_map(|()| stream::iter([text("hi"), end(12, 3)])).boxed()
    }
}

/// Each model of a chain has the silence of its own profile, and another one is asked while there is time for its answer.
#[tokio::test(start_paused = true)]
async fn a_chain_is_as_patient_as_each_of_its_models_and_ends_in_time() {
    let seconds = Duration::from_secs;
    let for_quota = || vec![FailureClass::Quota];
    // How long the first model and the other one are silent, after which failures the other one is asked, the time that is left, and how
    // many seconds pass until the answer or its failure.
    for (first, other, after, left, expected) in [
        (5, 0, vec![], None, Ok(2)),
        (5, 0, for_quota(), None, Ok(5)),
        (50, 0, for_quota(), None, Err(10)),
        (50, 100, vec![], None, Ok(102)),
        (50, 300, vec![], None, Err(202)),
        (50, 1, vec![], Some(3), Ok(2)),
    ] {
        let timeouts =
            |timeout| AgentProfile { timeout_seconds: Some(timeout), fallback_seconds: Some(2.0), ..profile() };
        let config = FallbackConfig { profile: "other".into(), after };
        let fallback =
            Fallback { config, model: Arc::new(SlowModel(seconds(other))), profile: Arc::new(timeouts(200.0)) };
        let model = WithFallbacks { model: Arc::new(SlowModel(seconds(first))), fallbacks: vec![fallback] };
        let ((meter, _), span, profile) = (meter(), Span::none(), timeouts(10.0));
        let end = left.map(|left| Instant::now() + seconds(left));
        let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span, end };
        let begun = Instant::now();
        let policy = RetryPolicy { timeout: longest_silence(&model, &profile), retries: 0, end: Some(begun) };
        let request = ModelRequest { max_tokens: 100, ..ModelRequest::default() };
        let pieces: Vec<_> = retry::ask(&metered, Arc::new(request), policy).collect().await;
        // Half of the three seconds that are left, and the second of the other model.
        let took = begun.elapsed().as_secs();
        let found = match pieces.last() {
            Some(Ok(ModelChunk::End { .. })) => Ok(took),
            Some(Err(ModelError::Timeout)) => Err(took),
            _ => panic!("{pieces:?}"),
        };
        assert_eq!(found, expected, "{first}, {other}, {left:?}");
    }
}

#[tokio::test]
async fn a_profile_that_cannot_keep_an_option_of_the_client_is_not_asked() {
    for (provider, seed, is_asked) in
        [(Provider::Anthropic, None, true), (Provider::Anthropic, Some(7), false), (Provider::Openai, Some(7), true)]
    {
        let other = AgentProfile { provider: Some(provider), model: Some("another".into()), ..profile() };
        let config = FallbackConfig { profile: "other".into(), after: Vec::new() };
        let answer = ScriptedModel(vec![text("hi")]);
        let fallback = Fallback { config, model: Arc::new(answer), profile: Arc::new(other) };
        let failing = FailingModel(Some(ModelError::Overloaded { retry_after: None }));
        let model = WithFallbacks { model: Arc::new(failing), fallbacks: vec![fallback] };
        let ((meter, _), span, profile) = (meter(), Span::none(), profile());
        let metered = MeteredModel { model: &model, meter: &meter, profile: &profile, span: &span, end: None };
        let options = ModelOptions { seed, temperature: Some(0.7), ..ModelOptions::default() };
        let request = ModelRequest { options, max_tokens: 100, ..ModelRequest::default() };
        let first = metered.stream(Arc::new(request)).next().await;
        assert_eq!(matches!(first, Some(Ok(ModelChunk::Retry { .. }))), is_asked, "{provider:?}, {seed:?}: {first:?}");
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
