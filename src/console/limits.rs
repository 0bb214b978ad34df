//! The rest of the rules, the rate limits and today's budgets, by tool, caller and tenant.

mod rules;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::list::{self, Page};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, chart, error_page, format};
use sekisho_config::{LimitsConfig, RuleSubject};
use sekisho_gateway::{Level, LevelFilter, RuleLevel};
use sekisho_observe::metrics::DayBudget;

const PATH: &str = "/console/limits";

/// The fields of the address.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    tool: String,
    caller: String,
    tenant: String,
    /// The page of the rate limits.
    page: usize,
    /// The page of the budgets.
    budgets: usize,
    /// The page of the rules.
    rules: usize,
    /// Which table is wanted as a file.
    table: Table,
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Table {
    #[default]
    Rates,
    Budgets,
    Rules,
}

/// The data of the page.
struct Found {
    rules: Vec<RuleLevel>,
    levels: Vec<Level>,
    budgets: Vec<DayBudget>,
}

/// `GET /console/limits`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    if let Err(error) = visit.require(Act::SeeLimits) {
        return error_page::of_visit(&visit, &error);
    }
    let (gateway, caller) = (&console.gateway, &visit.caller);
    let found = Found {
        rules: gateway.status().rule_levels(caller).into_iter().filter(|level| wanted.admits_rule(level)).collect(),
        levels: gateway.status().levels(caller, &wanted.filter()),
        budgets: gateway.status().budgets(caller).into_iter().filter(|day| wanted.admits(day)).collect(),
    };
    match (wanted.format, wanted.table) {
        (Format::Html, _) => visit.answer(Ok(show(&console, &visit, &wanted, &found))),
        (format, Table::Rates) => rate_rows(&found.levels).respond(format),
        (format, Table::Budgets) => budget_rows(&found.budgets).respond(format),
        (format, Table::Rules) => rules::rows(&found.rules).respond(format),
    }
}

fn rate_rows(levels: &[Level]) -> Rows<'static, 6> {
    let row = |level: &Level| {
        let Level { tenant, caller, tool, state } = level;
        [
            json!(tenant),
            json!(caller),
            json!(tool),
            json!(state.remaining),
            json!(state.limit),
            json!(state.reset_seconds),
        ]
    };
    let columns = ["tenant", "caller", "tool", "left", "limit", "full_in_seconds"];
    Rows { name: "rate-limits", columns, rows: levels.iter().map(row).collect() }
}

fn budget_rows(budgets: &[DayBudget]) -> Rows<'static, 7> {
    let row = |budget: &DayBudget| {
        let DayBudget { tenant, caller, spent, held, limit, tokens, token_limit } = budget;
        [json!(tenant), json!(caller), json!(spent), json!(held), json!(limit), json!(tokens), json!(token_limit)]
    };
    let columns = ["tenant", "caller", "spent_usd", "held_usd", "limit_usd", "tokens", "token_limit"];
    Rows { name: "budgets", columns, rows: budgets.iter().map(row).collect() }
}

fn show(console: &Console, visit: &Visit, wanted: &Wanted, Found { rules, levels, budgets }: &Found) -> Markup {
    let texts = visit.texts();
    let used_up = levels.iter().filter(|level| level.state.remaining == 0).count();
    let (rates, days) = (Page::of(levels, wanted.page), Page::of(budgets, wanted.budgets));
    let shown_rules = Page::of(rules, wanted.rules);
    let title = texts.get("nav-limits");
    let state = texts.with("limits-state", [("count", levels.len().into()), ("empty", used_up.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Limits),
        &head,
        &html! {
            (filters(&texts, wanted))
            @if !rules.is_empty() {
                section {
                    h2 { (texts.get("limits-rules")) }
                    (rules::table(&texts, shown_rules.entries))
                    (shown_rules.links(&texts, |page| Wanted { rules: page, ..wanted.clone() }.address("")))
                    (export::links(&texts, &wanted.first("rules")))
                }
            }
            section {
                h2 { (texts.get("limits-rates")) }
                @if levels.is_empty() { div.empty { p { (texts.get("limits-full")) } } }
                @else {
                    (rate_table(&texts, rates.entries))
                    (rates.links(&texts, |page| Wanted { page, ..wanted.clone() }.address("")))
                    (export::links(&texts, &wanted.first("rates")))
                }
            }
            section {
                h2 { (texts.get("overview-budgets")) }
                @if budgets.is_empty() { p.quiet { (texts.get("overview-nothing")) } }
                @else {
                    (budget_table(&texts, days.entries))
                    (days.links(&texts, |page| Wanted { budgets: page, ..wanted.clone() }.address("")))
                    (export::links(&texts, &wanted.first("budgets")))
                }
            }
            section aria-labelledby="general" {
                h2 #general { (texts.get("limits-general")) }
                (general(&texts, &console.gateway.configuration().current().limits, console.gateway.pipeline.limits.in_flight()))
            }
        },
    )
}

impl Wanted {
    fn filter(&self) -> LevelFilter {
        let set = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        LevelFilter { tool: set(&self.tool), caller: set(&self.caller), tenant: set(&self.tenant) }
    }

    /// Budgets are of no tool.
    fn admits(&self, budget: &DayBudget) -> bool {
        let LevelFilter { caller, tenant, .. } = self.filter();
        tenant.is_none_or(|tenant| tenant == budget.tenant) && (caller.is_none() || caller == budget.caller)
    }

    /// A rule is of a tool, caller or tenant if it counts for one.
    fn admits_rule(&self, level: &RuleLevel) -> bool {
        let LevelFilter { tool, caller, tenant } = self.filter();
        let is_of = |wanted: &Option<String>, per: RuleSubject| {
            wanted.as_ref().is_none_or(|wanted| level.rule.per == per && *wanted == level.subject)
        };
        is_of(&tool, RuleSubject::Tool)
            && is_of(&caller, RuleSubject::Caller)
            && (is_of(&tenant, RuleSubject::Tenant) || tenant == level.tenant)
    }

    /// The beginnings of the lists, for one of them as a file.
    fn first(&self, table: &str) -> String {
        Self { page: 1, budgets: 1, rules: 1, ..self.clone() }.address(table)
    }

    /// The address with the same filters and parts of the lists, and with the table.
    fn address(&self, table: &str) -> String {
        let [rates, budgets, rules] = [self.page, self.budgets, self.rules].map(|at| at.to_string());
        let fields = [
            ("tool", &*self.tool),
            ("caller", &*self.caller),
            ("tenant", &*self.tenant),
            ("page", &*rates),
            ("budgets", &*budgets),
            ("rules", &*rules),
            ("table", table),
        ];
        with_query(PATH, fields)
    }
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    let field = |name: &str, label: &str, value: &str| list::filter_field(texts, name, label, value, "text");
    html! {
        form.filters method="get" action=(PATH) role="search" {
            (field("tool", "tool-name", &wanted.tool))
            (field("caller", "call-caller", &wanted.caller))
            (field("tenant", "call-tenant", &wanted.tenant))
            button { (texts.get("filter-apply")) }
        }
    }
}

fn rate_table(texts: &Texts, levels: &[Level]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("limits-rates")) {
            table.list {
                thead { tr {
                    th scope="col" { (texts.get("tool-name")) }
                    th scope="col" { (texts.get("call-caller")) }
                    th.number scope="col" { (texts.get("limits-left")) }
                    th scope="col" { (texts.get("limits-used")) }
                    th.number scope="col" { (texts.get("limits-full-in")) }
                } }
                tbody { @for level in levels { tr {
                    td { @match &level.tool { Some(tool) => (format::name(tool)), None => (texts.get("limits-all-tools")) } }
                    td {
                        @match &level.caller { Some(caller) => (format::name(caller)), None => (texts.get("limits-all-callers")) }
                        " " span.quiet { (format::text(&level.tenant)) }
                    }
                    td.number { (format::count(level.state.remaining.into())) " / " (format::count(level.state.limit.into())) }
                    td.bar { (chart::meter(&texts.get("limits-used"), used(level))) }
                    td.number { (format::duration(std::time::Duration::from_secs(level.state.reset_seconds))) }
                } } }
            }
        }
    }
}

fn used(level: &Level) -> f64 {
    1.0 - f64::from(level.state.remaining) / f64::from(level.state.limit.max(1))
}

fn budget_table(texts: &Texts, budgets: &[DayBudget]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("overview-budgets")) {
            table.list {
                thead { tr {
                    th scope="col" { (texts.get("call-caller")) }
                    th.number scope="col" { (texts.get("figure-spent")) }
                    th.number scope="col" { (texts.get("limits-held")) }
                    th.number scope="col" { (texts.get("limits-limit")) }
                    th.number scope="col" { (texts.get("call-tokens")) }
                    th.number scope="col" { (texts.get("limits-limit")) }
                } }
                tbody { @for budget in budgets { tr {
                    td {
                        @match &budget.caller { Some(caller) => (format::name(caller)), None => (texts.get("limits-all-callers")) }
                        " " span.quiet { (format::text(&budget.tenant)) }
                    }
                    td.number { (format::money(budget.spent)) }
                    td.number { (format::money(budget.held)) }
                    td.number { (budget.limit.map_or_else(|| "–".to_owned(), format::money)) }
                    td.number { (format::count(budget.tokens)) }
                    td.number { (budget.token_limit.map_or_else(|| "–".to_owned(), format::count)) }
                } } }
            }
        }
    }
}

fn general(texts: &Texts, limits: &LimitsConfig, running: usize) -> Markup {
    let per_minute = |rate: Option<u32>| {
        rate.map_or_else(|| "–".to_owned(), |n| texts.with("limit-per-minute", [("n", n.into())]).into_owned())
    };
    let facts = [
        ("limits-tenant-rate", per_minute(limits.tenant_rate_limit)),
        ("limits-caller-rate", per_minute(limits.caller_rate_limit)),
        ("limits-mcp-rate", per_minute(Some(limits.mcp_tool_rate_limit))),
        (
            "limits-concurrent",
            format!("{} / {}", format::count(running as u64), format::count(limits.max_concurrent.into())),
        ),
        ("limits-concurrent-tool", format::count(limits.max_concurrent_per_tool.into())),
        ("limits-queue", format::count(limits.max_queued.into())),
    ];
    html! { dl.facts { @for (name, value) in facts { div { dt { (texts.get(name)) } dd { (value) } } } } }
}
