//! The spending of callers and tenants, by day.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use rust_decimal::Decimal;
use serde::Deserialize;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::{self, Page};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, format};
use sekisho_api::UsageOfDay;
use sekisho_core::error::CallError;

/// The choices of days.
const DAYS: [u32; 4] = [1, 7, 30, 90];

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
}

/// The sum of all days.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    cost: Decimal,
    tokens: u64,
    days: u64,
}

/// `GET /console/costs`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let usage = read(&console, &visit, &wanted).await;
    list::respond(&visit, wanted.format, usage, |usage| usage, |usage| show(&visit, &wanted, usage))
}

async fn read(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<Vec<UsageOfDay>, CallError> {
    let days = wanted.days().to_string();
    let mut usage = list::fetch_all::<UsageOfDay>(console, visit, Act::SeeCosts, &[("days", &*days)]).await?;
    usage.retain(|usage| usage.caller.is_some() == (wanted.by == By::Caller));
    Ok(usage)
}

impl Wanted {
    fn address(&self, page: usize) -> String {
        let by = if self.by == By::Tenant { "tenant" } else { "caller" };
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
    let shown = Page::of(&sums, wanted.page);
    frame::page(
        visit,
        Some(Section::Costs),
        &head,
        &html! {
            (filters(&texts, wanted))
            @if sums.is_empty() { div.empty { p { (texts.get("costs-none")) } p { code { "GET /admin/usage" } } } }
            @else {
                (table(&texts, wanted.by, shown.entries, total))
                (shown.links(&texts, |page| wanted.address(page)))
                (export::links(&texts, &wanted.address(shown.at)))
            }
        },
    )
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
                        @if let Some(caller) = caller { th scope="row" { (format::name(caller)) } }
                        td { (format::name(tenant)) }
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
    }
}
