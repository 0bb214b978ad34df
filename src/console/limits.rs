//! What is left of the rate limits and of today's budgets, by tool, caller and tenant.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::acts::Act;
use super::address::with_query;
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, chart, format, list};
use crate::config::LimitsConfig;
use crate::gateway::{Level, LevelFilter};
use crate::infra::metrics::DayBudget;

const PATH: &str = "/console/limits";

/// Lines of a page.
const PAGE: usize = 50;

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    tool: String,
    caller: String,
    tenant: String,
    page: usize,
}

/// `GET /console/limits`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    visit.answer(visit.require(Act::SeeLimits).map(|()| show(&console, &visit, &wanted)))
}

fn show(console: &Console, visit: &Visit, wanted: &Wanted) -> Markup {
    let texts = visit.texts();
    let levels = console.gateway.levels(&visit.caller, &wanted.filter());
    let used_up = levels.iter().filter(|level| level.state.remaining == 0).count();
    let pages = levels.len().div_ceil(PAGE).max(1);
    let at = wanted.page.clamp(1, pages);
    let shown = &levels[(at - 1) * PAGE..levels.len().min(at * PAGE)];
    let title = texts.get("nav-limits");
    let state = texts.with("limits-state", [("count", levels.len().into()), ("empty", used_up.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let budgets: Vec<_> = console.gateway.budgets(&visit.caller).into_iter().filter(|day| wanted.admits(day)).collect();
    frame::page(
        visit,
        Some(Section::Limits),
        &head,
        &html! {
            (filters(&texts, wanted))
            section {
                h2 { (texts.get("limits-rates")) }
                @if shown.is_empty() { div.empty { p { (texts.get("limits-full")) } } }
                @else { (rates(&texts, shown)) (list::paging(&texts, at, pages, |page| wanted.address(page))) }
            }
            section {
                h2 { (texts.get("overview-budgets")) }
                @if budgets.is_empty() { p.quiet { (texts.get("overview-nothing")) } }
                @else { (self::budgets(&texts, &budgets)) }
            }
            section aria-labelledby="general" {
                h2 #general { (texts.get("limits-general")) }
                (general(&texts, &console.gateway.config().limits, console.gateway.pipeline.limits.in_flight()))
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

    fn address(&self, page: usize) -> String {
        let page = page.to_string();
        with_query(
            PATH,
            [("tool", &*self.tool), ("caller", &*self.caller), ("tenant", &*self.tenant), ("page", &*page)],
        )
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

fn rates(texts: &Texts, levels: &[Level]) -> Markup {
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

fn budgets(texts: &Texts, budgets: &[DayBudget]) -> Markup {
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
                tbody { @for budget in budgets.iter().take(PAGE) { tr {
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
