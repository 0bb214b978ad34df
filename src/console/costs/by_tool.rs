//! What each caller used of each tool: its calls, their cost and their tokens.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::response::Response;
use maud::{Markup, html};
use rust_decimal::Decimal;

use super::{Wanted, figures_of, filters};
use crate::acts::Act;
use crate::address::with_query;
use crate::frame::{self, Head, Section};
use crate::list::{self, Page};
use crate::text::Texts;
use crate::visit::Visit;
use crate::{Console, export, format};
use sekisho_api::ToolUseOfDay;

/// The sum of all days.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    calls: u64,
    errors: u64,
    refused: u64,
    cost: Decimal,
    tokens: u64,
}

impl Sum {
    /// In the order of the columns: calls, errors, refusals, cost and tokens.
    fn words(&self) -> [String; 5] {
        let [calls, errors, refused, tokens] = [self.calls, self.errors, self.refused, self.tokens].map(format::count);
        [calls, errors, refused, format::money(self.cost), tokens]
    }
}

/// A tenant, a caller and a tool.
type User<'a> = (&'a str, &'a str, &'a str);

pub(super) async fn page(console: &Console, visit: &Visit, wanted: &Wanted) -> Response {
    let days = wanted.days().to_string();
    let uses = list::fetch_all::<ToolUseOfDay>(console, visit, Act::SeeCosts, &[("days", &*days)]).await;
    list::respond(visit, wanted.format, uses, |uses| uses, |uses| show(visit, wanted, uses))
}

/// The most expensive first.
fn sums(uses: &[ToolUseOfDay]) -> Vec<(User<'_>, Sum)> {
    let mut sums = BTreeMap::<_, Sum>::new();
    for used in uses {
        let sum = sums.entry((used.tenant.as_str(), used.caller.as_str(), used.tool.as_str())).or_default();
        sum.calls += used.calls;
        sum.errors += used.errors;
        sum.refused += used.refused;
        sum.cost += used.cost_usd;
        sum.tokens += used.tokens;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse((sum.cost, sum.calls)));
    sums
}

fn show(visit: &Visit, wanted: &Wanted, uses: &[ToolUseOfDay]) -> Markup {
    let (texts, sums) = (visit.texts(), sums(uses));
    let shown = Page::of(&sums, wanted.page);
    let title = texts.get("nav-costs");
    let variables = [
        ("cost", format::money(sums.iter().map(|(_, sum)| sum.cost).sum()).into()),
        ("tokens", format::count(sums.iter().map(|(_, sum)| sum.tokens).sum()).into()),
        ("days", wanted.days().into()),
    ];
    let head = Head { state: Some(html! { (texts.with("costs-state", variables)) }), ..Head::new(&title) };
    let body = html! {
        (filters(&texts, wanted))
        @if sums.is_empty() { div.empty { p { (texts.get("figures-none")) } p { code { "sekisho usage" } } } }
        @else {
            (table(&texts, shown.entries))
            (shown.links(&texts, |page| wanted.address(page)))
            (export::links(&texts, &wanted.address(shown.at)))
        }
    };
    frame::page(visit, Some(Section::Costs), &head, &body)
}

fn table(texts: &Texts, sums: &[(User<'_>, Sum)]) -> Markup {
    let titles = ["nav-calls", "status-error", "status-refused", "call-cost", "call-tokens"];
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-costs")) {
            table.list.cards {
                thead { tr {
                    @for title in ["costs-by-caller", "call-tenant", "tool-name"] { th scope="col" { (texts.get(title)) } }
                    @for title in titles { th.number scope="col" { (texts.get(title)) } }
                } }
                tbody { @for ((tenant, caller, tool), sum) in sums {
                    tr {
                        th scope="row" { a href=(figures_of(tenant, Some(*caller))) { (format::name(caller)) } }
                        td { (format::name(tenant)) }
                        td { a href=(with_query("/console/calls", [("tool", *tool), ("caller", *caller), ("tenant", *tenant)])) { (format::name(tool)) } }
                        @for (title, value) in titles.iter().zip(sum.words()) { td.number data-label=(texts.get(title)) { (value) } }
                    }
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_a_caller_and_a_tool_are_summed_and_the_largest_sum_is_first() {
        let used = |day: &str, caller: &str, cost: &str| ToolUseOfDay {
            day: day.into(),
            tenant: "acme".into(),
            caller: caller.into(),
            tool: "echo".into(),
            calls: 2,
            errors: 1,
            refused: 0,
            cost_usd: cost.parse().unwrap(),
            tokens: 10,
        };
        let all =
            [used("2026-11-25", "ann", "0.1"), used("2026-11-24", "ann", "0.2"), used("2026-11-24", "bob", "0.25")];
        let ann = Sum { calls: 4, errors: 2, refused: 0, cost: "0.3".parse().unwrap(), tokens: 20 };
        let sums = sums(&all);
        assert_eq!((&sums[0], sums.len()), (&(("acme", "ann", "echo"), ann), 2));
    }
}
