//! The spending of callers and tenants by day, and what callers used of tools.

mod by_tool;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use rust_decimal::Decimal;
use serde::Deserialize;

use super::acts::Act;
use super::address::with_query;
use super::chart::{Bar, TimeChart};
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::{self, Page};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, figures, format};
use sekisho_api::{ModelUsageOfDay, UsageOfDay};
use sekisho_core::error::CallError;
use sekisho_gateway::FiguresOf;

/// The choices of days.
const DAYS: [u32; 4] = [1, 7, 30, 90];

/// The largest sums that the chart shows apart.
const SHOWN: usize = 5;

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    days: Option<u32>,
    by: By,
    page: usize,
    format: Format,
}

/// The subjects of the sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Caller,
    Tenant,
    Model,
    Tool,
}

/// The sum of all days.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    cost: Decimal,
    tokens: u64,
    days: u64,
}

/// What one model used in all days.
#[derive(Debug, Default, PartialEq)]
struct ModelSum {
    cost: Decimal,
    turns: u64,
    input: u64,
    cached: u64,
    output: u64,
    reasoning: u64,
}

/// `GET /console/costs`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    if wanted.by == By::Tool {
        return by_tool::page(&console, &visit, &wanted).await;
    }
    let usage = read(&console, &visit, &wanted).await;
    list::respond(&visit, wanted.format, usage, |usage| usage, |usage| show(&visit, &wanted, usage))
}

async fn read(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<Vec<UsageOfDay>, CallError> {
    let days = wanted.days().to_string();
    let mut usage = list::fetch_all::<UsageOfDay>(console, visit, Act::SeeCosts, &[("days", &*days)]).await?;
    usage.retain(|usage| usage.caller.is_some() == (wanted.by != By::Tenant));
    Ok(usage)
}

impl Wanted {
    fn address(&self, page: usize) -> String {
        let by = match self.by {
            By::Caller => "caller",
            By::Tenant => "tenant",
            By::Model => "model",
            By::Tool => "tool",
        };
        with_query("/console/costs", [("days", &*self.days().to_string()), ("by", by), ("page", &*page.to_string())])
    }

    fn days(&self) -> u32 {
        self.days.filter(|days| DAYS.contains(days)).unwrap_or(30)
    }
}

/// The sums by tenant and caller, the largest first.
fn sums(usage: &[UsageOfDay]) -> Vec<((&str, Option<&str>), Sum)> {
    let mut sums = BTreeMap::<_, Sum>::new();
    for usage in usage {
        let sum = sums.entry((usage.tenant.as_str(), usage.caller.as_deref())).or_default();
        sum.cost += usage.cost_usd;
        sum.tokens += usage.tokens;
        sum.days += 1;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.cost, sum.tokens)));
    sums
}

/// The sums by provider and model, the largest first.
fn model_sums(usage: &[UsageOfDay]) -> Vec<((&str, &str), ModelSum)> {
    let mut sums = BTreeMap::<_, ModelSum>::new();
    for used in usage.iter().flat_map(|usage| &usage.models) {
        let ModelUsageOfDay { provider, model, turns, input_tokens, cached_tokens, output_tokens, .. } = used;
        let sum = sums.entry((provider.as_str(), model.as_str())).or_default();
        sum.cost += used.cost_usd;
        sum.turns += turns;
        sum.input += input_tokens;
        sum.cached += cached_tokens;
        sum.output += output_tokens;
        sum.reasoning += used.reasoning_tokens;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.cost, sum.input)));
    sums
}

fn show(visit: &Visit, wanted: &Wanted, usage: &[UsageOfDay]) -> Markup {
    let texts = visit.texts();
    let sums = sums(usage);
    let total: Decimal = sums.iter().map(|(_, sum)| sum.cost).sum();
    let tokens: u64 = sums.iter().map(|(_, sum)| sum.tokens).sum();
    let title = texts.get("nav-costs");
    let variables = [
        ("cost", format::money(total).into()),
        ("tokens", format::count(tokens).into()),
        ("days", wanted.days().into()),
    ];
    let head = Head { state: Some(html! { (texts.with("costs-state", variables)) }), ..Head::new(&title) };
    let (shown, models) = (Page::of(&sums, wanted.page), model_sums(usage));
    let shown_models = Page::of(&models, wanted.page);
    frame::page(
        visit,
        Some(Section::Costs),
        &head,
        &html! {
            (filters(&texts, wanted))
            (chart(&texts, wanted.by, usage))
            @if sums.is_empty() { div.empty { p { (texts.get("costs-none")) } p { code { "sekisho usage" } } } }
            @else if wanted.by == By::Model {
                (table_of_models(&texts, shown_models.entries))
                (shown_models.links(&texts, |page| wanted.address(page)))
                (export::links(&texts, &wanted.address(shown_models.at)))
            }
            @else {
                (table(&texts, wanted.by, shown.entries, total))
                (shown.links(&texts, |page| wanted.address(page)))
                (export::links(&texts, &wanted.address(shown.at)))
            }
        },
    )
}

/// The page of the charts of a caller or a tenant.
fn figures_of(tenant: &str, caller: Option<&str>) -> String {
    let tenant = Some(tenant.to_owned());
    figures::path_of(&match caller {
        Some(caller) => FiguresOf::Caller { tenant, id: caller.to_owned() },
        None => FiguresOf::All { tenant },
    })
}

/// The money of each of the last 30 days that the wanted models cost: a part of another page.
/// Errors: `denied`, and the errors of the route.
#[cfg(feature = "agent")]
pub(super) async fn of_models(
    console: &Console,
    visit: &Visit,
    is_wanted: impl Fn(&ModelUsageOfDay) -> bool,
) -> Result<Markup, CallError> {
    let mut usage = list::fetch_all::<UsageOfDay>(console, visit, Act::SeeCosts, &[("days", "30")]).await?;
    usage.retain(|usage| usage.caller.is_some());
    usage.iter_mut().for_each(|usage| usage.models.retain(&is_wanted));
    Ok(chart(&visit.texts(), By::Model, &usage))
}

/// The money of each day: of those with the largest sums apart, and of all others together.
fn chart(texts: &Texts, by: By, usage: &[UsageOfDay]) -> Markup {
    let (mut days, mut sums) = (BTreeMap::<&str, BTreeMap<String, Decimal>>::new(), BTreeMap::<String, Decimal>::new());
    for (day, name, cost) in usage.iter().flat_map(|usage| costs_of(by, usage)) {
        *days.entry(day).or_default().entry(name.clone()).or_default() += cost;
        *sums.entry(name).or_default() += cost;
    }
    let mut names: Vec<_> = sums.into_iter().filter(|(_, cost)| !cost.is_zero()).collect();
    names.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
    if names.is_empty() {
        return html! {};
    }
    let others = (names.len() > SHOWN).then(|| texts.get("costs-others"));
    let names: Vec<_> = names.into_iter().take(SHOWN).map(|(name, _)| name).collect();
    let classes: Vec<_> = (0..=SHOWN).map(|at| format!("sum-{at}")).collect();
    let titles = names.iter().map(String::as_str).chain(others.as_deref()).map(|name| format::text(name).into_owned());
    let series: Vec<_> = classes.iter().map(String::as_str).zip(titles).collect();
    let bars = days.iter().map(|(day, costs)| {
        let mut values: Vec<_> = names.iter().map(|name| costs.get(name).copied().unwrap_or_default()).collect();
        values.push(costs.values().sum::<Decimal>() - values.iter().sum::<Decimal>());
        let used = series.iter().zip(&values).filter(|(_, cost)| !cost.is_zero());
        let words = used.map(|((_, name), cost)| format!("{name} {}", format::money(*cost))).collect::<Vec<_>>();
        let values = values.into_iter().map(|cost| f64::try_from(cost).ok()).collect();
        Bar { values, words: format!("{day} · {}", words.join(" · ")), link: None, is_stacked: true }
    });
    let bars: Vec<_> = bars.collect();
    let all: Vec<_> = days.keys().copied().collect();
    let day = |at: usize| all.get(at).copied().unwrap_or_default();
    let times = [day(0), day(all.len() / 2), day(all.len().saturating_sub(1))];
    let title = texts.get("call-cost");
    TimeChart { title: &title, series: &series, bars, line: None, times, least: 0.0, words: figures::in_money }.show()
}

/// The days, names and costs of one entry.
fn costs_of(by: By, usage: &UsageOfDay) -> Vec<(&str, String, Decimal)> {
    let UsageOfDay { day, tenant, caller, cost_usd, models, .. } = usage;
    match (by, caller) {
        (By::Model, _) => models.iter().map(|used| (day.as_str(), used.model.clone(), used.cost_usd)).collect(),
        (_, Some(caller)) => vec![(day.as_str(), format!("{caller} ({tenant})"), *cost_usd)],
        (_, None) => vec![(day.as_str(), tenant.clone(), *cost_usd)],
    }
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    html! {
        form.filters method="get" action="/console/costs" {
            div.field {
                label for="days" { (texts.get("costs-days")) }
                select #days name="days" data-search {
                    @for days in DAYS { option value=(days) selected[days == wanted.days()] { (texts.with("costs-last", [("n", days.into())])) } }
                }
            }
            div.field {
                label for="by" { (texts.get("costs-by")) }
                select #by name="by" {
                    option value="caller" { (texts.get("costs-by-caller")) }
                    option value="tenant" selected[wanted.by == By::Tenant] { (texts.get("call-tenant")) }
                    option value="model" selected[wanted.by == By::Model] { (texts.get("costs-model")) }
                    option value="tool" selected[wanted.by == By::Tool] { (texts.get("costs-by-tool")) }
                }
            }
            button { (texts.get("filter-apply")) }
        }
    }
}

fn table(texts: &Texts, by: By, sums: &[((&str, Option<&str>), Sum)], total: Decimal) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-costs")) {
            table.list {
                thead { tr {
                    @if by == By::Caller { th scope="col" { (texts.get("costs-by-caller")) } }
                    th scope="col" { (texts.get("call-tenant")) }
                    th.number scope="col" { (texts.get("call-cost")) }
                    th.number scope="col" { (texts.get("costs-share")) }
                    th.number scope="col" { (texts.get("call-tokens")) }
                    th.number scope="col" { (texts.get("costs-active")) }
                } }
                tbody { @for ((tenant, caller), sum) in sums {
                    tr {
                        @if let Some(caller) = caller {
                            th scope="row" { a href=(figures_of(tenant, Some(*caller))) { (format::name(caller)) } }
                        }
                        td { a href=(figures_of(tenant, None)) { (format::name(tenant)) } }
                        td.number { (format::money(sum.cost)) }
                        td.number { (share(sum.cost, total)) }
                        td.number { (format::count(sum.tokens)) }
                        td.number { (sum.days) }
                    }
                } }
            }
        }
    }
}

fn table_of_models(texts: &Texts, sums: &[((&str, &str), ModelSum)]) -> Markup {
    let counts = ["costs-turns", "costs-input", "costs-cached", "costs-output", "costs-reasoning"];
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-costs")) {
            table.list {
                thead { tr {
                    th scope="col" { (texts.get("costs-model")) }
                    th scope="col" { (texts.get("costs-provider")) }
                    th.number scope="col" { (texts.get("call-cost")) }
                    @for count in counts { th.number scope="col" { (texts.get(count)) } }
                } }
                tbody { @for ((provider, model), sum) in sums {
                    tr {
                        th scope="row" { (format::name(model)) }
                        td { (format::name(provider)) }
                        td.number { (format::money(sum.cost)) }
                        @for count in [sum.turns, sum.input, sum.cached, sum.output, sum.reasoning] {
                            td.number { (format::count(count)) }
                        }
                    }
                } }
            }
        }
    }
}

fn share(cost: Decimal, total: Decimal) -> String {
    match cost.checked_div(total) {
        Some(share) => format!("{:.1} %", (share * Decimal::ONE_HUNDRED).round_dp(1)),
        None => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_a_caller_are_summed_and_the_largest_sum_is_first() {
        let usage = |day: &str, caller: &str, cost: &str, tokens| UsageOfDay {
            day: day.into(),
            tenant: "acme".into(),
            caller: Some(caller.into()),
            cost_usd: cost.parse().unwrap(),
            tokens,
            models: Vec::new(),
        };
        let all = [
            usage("2026-11-25", "ann", "0.1", 1),
            usage("2026-11-25", "bob", "0.25", 0),
            usage("2026-11-24", "ann", "0.2", 2),
        ];
        let sums = sums(&all);
        let ann = Sum { cost: "0.3".parse().unwrap(), tokens: 3, days: 2 };
        assert_eq!(sums[0], (("acme", Some("ann")), ann));
        assert_eq!(share(sums[1].1.cost, "0.55".parse().unwrap()), "45.5 %");
        assert_eq!(share(Decimal::ZERO, Decimal::ZERO), "–");
        let chart = chart(&Texts::new(crate::text::Language::English), By::Caller, &all).into_string();
        assert!(chart.contains("<title>2026-11-25 · ann (acme) $0.10 · bob (acme) $0.25</title>"), "{chart}");
        assert!(chart.contains("<title>2026-11-24 · ann (acme) $0.20</title>"), "{chart}");
    }

    #[test]
    fn the_days_and_callers_of_a_model_are_summed() {
        let used = |model: &str, cost: &str| ModelUsageOfDay {
            agent: "main".into(),
            provider: "openai".into(),
            model: model.into(),
            turns: 1,
            input_tokens: 10,
            cached_tokens: 8,
            cache_write_tokens: 0,
            output_tokens: 3,
            reasoning_tokens: 2,
            cost_usd: cost.parse().unwrap(),
        };
        let usage = |caller: &str, models| UsageOfDay {
            day: "2026-11-25".into(),
            tenant: "acme".into(),
            caller: Some(caller.into()),
            cost_usd: Decimal::ONE,
            tokens: 13,
            models,
        };
        let all = [usage("ann", vec![used("a", "0.1"), used("b", "0.25")]), usage("bob", vec![used("a", "0.2")])];
        let cost = "0.3".parse().unwrap();
        let of_a = ModelSum { cost, turns: 2, input: 20, cached: 16, output: 6, reasoning: 4 };
        let sums = model_sums(&all);
        assert_eq!((&sums[0], sums.len(), sums[1].0), (&(("openai", "a"), of_a), 2, ("openai", "b")));
    }
}
