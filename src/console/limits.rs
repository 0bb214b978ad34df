//! The rest of the rules, the rate limits and today's budgets, by tool, caller and tenant.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, chart, error_page, format};
use sekisho_api::column::Column;
use sekisho_api::{BudgetBody, LevelBody, RuleBody};
use sekisho_config::{LimitsConfig, RuleSubject};
use sekisho_gateway::{LevelFilter, RuleLevel};
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
    table: File,
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum File {
    #[default]
    Rates,
    Budgets,
    Rules,
}

/// The data of the page.
struct Found {
    rules: Vec<RuleBody>,
    levels: Vec<LevelBody>,
    budgets: Vec<BudgetBody>,
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
    let status = gateway.status();
    let rules = status.rule_levels(caller).into_iter().filter(|level| wanted.admits_rule(level));
    let budgets = status.budgets(caller).into_iter().filter(|day| wanted.admits(day));
    let found = Found {
        rules: rules.map(RuleBody::from).collect(),
        levels: status.levels(caller, &wanted.filter()).into_iter().map(LevelBody::from).collect(),
        budgets: budgets.map(BudgetBody::from).collect(),
    };
    match (wanted.format, wanted.table) {
        (Format::Html, _) => visit.answer(Ok(show(&console, &visit, &wanted, &found))),
        (format, File::Rates) => export::listed(&found.levels, format),
        (format, File::Budgets) => export::listed(&found.budgets, format),
        (format, File::Rules) => export::listed(&found.rules, format),
    }
}

fn show(console: &Console, visit: &Visit, wanted: &Wanted, Found { rules, levels, budgets }: &Found) -> Markup {
    let texts = visit.texts();
    let used_up = levels.iter().filter(|level| level.remaining == 0).count();
    let title = texts.get("nav-limits");
    let state = texts.with("limits-state", [("count", levels.len().into()), ("empty", used_up.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let meter = |level: &LevelBody| html! { div.bar { (chart::meter(&texts.get("limits-used"), used(level))) } };
    let rule_table =
        Table { cell: rule_cell, ..Table::new(&texts, "limits-rules", ("overview-nothing", "sekisho limits")) };
    let rate_table = Table {
        cell: rate_cell,
        action: Some(("limits-used", &meter)),
        ..Table::new(&texts, "limits-rates", ("limits-full", "sekisho limits"))
    };
    let budget_table =
        Table { cell: budget_cell, ..Table::new(&texts, "overview-budgets", ("overview-nothing", "sekisho limits")) };
    frame::page(
        visit,
        Some(Section::Limits),
        &head,
        &html! {
            (filters(&texts, wanted))
            @if !rules.is_empty() {
                section {
                    h2 { (texts.get("limits-rules")) }
                    (rule_table.show_part(rules, wanted.rules, |rules| Wanted { rules, ..wanted.clone() }.address(""), &wanted.first("rules")))
                }
            }
            section {
                h2 { (texts.get("limits-rates")) }
                (rate_table.show_part(levels, wanted.page, |page| Wanted { page, ..wanted.clone() }.address(""), &wanted.first("rates")))
            }
            section {
                h2 { (texts.get("overview-budgets")) }
                (budget_table.show_part(budgets, wanted.budgets, |budgets| Wanted { budgets, ..wanted.clone() }.address(""), &wanted.first("budgets")))
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

fn rule_cell(texts: &Texts, rule: &RuleBody, column: &Column) -> Option<Markup> {
    (column.name == "per").then(|| {
        html! {
            (texts.get(per_text(rule.per))) " " (format::name(&rule.subject))
            @if let Some(tenant) = &rule.tenant { " " span.quiet { (format::text(tenant)) } }
        }
    })
}

/// The id of the text for whose calls are counted together.
fn per_text(per: RuleSubject) -> &'static str {
    match per {
        RuleSubject::Key => "limits-per-key",
        RuleSubject::Caller => "call-caller",
        RuleSubject::Tenant => "call-tenant",
        RuleSubject::Tool => "tool-name",
        RuleSubject::Role => "limits-per-role",
    }
}

fn rate_cell(texts: &Texts, level: &LevelBody, column: &Column) -> Option<Markup> {
    match column.name {
        "caller" => Some(caller_of(texts, level.caller.as_deref(), &level.tenant)),
        "tool" if level.tool.is_none() => Some(html! { (texts.get("limits-all-tools")) }),
        _ => None,
    }
}

fn budget_cell(texts: &Texts, budget: &BudgetBody, column: &Column) -> Option<Markup> {
    (column.name == "caller").then(|| caller_of(texts, budget.caller.as_deref(), &budget.tenant))
}

fn caller_of(texts: &Texts, caller: Option<&str>, tenant: &str) -> Markup {
    html! {
        @match caller { Some(caller) => (format::name(caller)), None => (texts.get("limits-all-callers")) }
        " " span.quiet { (format::text(tenant)) }
    }
}

fn used(level: &LevelBody) -> f64 {
    1.0 - f64::from(level.remaining) / f64::from(level.limit.max(1))
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
