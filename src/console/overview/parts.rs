//! The parts of the overview. Each of them is replaced by itself while the page is open.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rust_decimal::Decimal;

use crate::address::with_query;
use crate::figures::Place;
use crate::text::Texts;
use crate::{chart, export, format, tools};
use sekisho_core::record::Status;
use sekisho_gateway::{FiguresOf, Overview};
use sekisho_observe::metrics::DayBudget;
use sekisho_sandbox::SandboxLoad;
use sekisho_store::{CallSums, Times};

/// Lines of a list.
const MAX_LINES: usize = 6;

/// The contents of the elements with these ids.
pub(super) struct Parts {
    pub(super) state: Markup,
    pub(super) figures: Markup,
    pub(super) charts: Markup,
    pub(super) refusals: Markup,
    pub(super) attention: Markup,
    pub(super) slowest: Markup,
    pub(super) most_refused: Markup,
    pub(super) budgets: Markup,
    pub(super) load: Markup,
}

impl Parts {
    /// `sees_servers`: whether degraded components lead to the pages of servers.
    pub(super) fn of(texts: &Texts, overview: &Overview, sees_servers: bool) -> Self {
        let (totals, of) = (overview.figures.total(), FiguresOf::All { tenant: None });
        Self {
            state: state(texts, overview, &totals),
            figures: figures(texts, overview, &totals),
            charts: Place { texts, page: "/console", of: &of }.charts(&overview.figures),
            refusals: refusals(texts, overview, &totals),
            attention: attention(texts, overview, sees_servers),
            slowest: slowest(texts, overview),
            most_refused: most_refused(texts, overview),
            budgets: budgets(texts, &overview.budgets),
            load: load(texts, overview.running, overview.sandbox),
        }
    }

    pub(super) fn into_named(self) -> Vec<(&'static str, String)> {
        let Self { state, figures, charts, refusals, attention, slowest, most_refused, budgets, load } = self;
        let named = [
            ("state", state),
            ("figures", figures),
            ("charts", charts),
            ("refusals", refusals),
            ("attention", attention),
            ("slowest", slowest),
            ("most-refused", most_refused),
            ("budgets", budgets),
            ("load", load),
        ];
        named.into_iter().map(|(id, part)| (id, part.into_string())).collect()
    }
}

fn state(texts: &Texts, overview: &Overview, totals: &CallSums) -> Markup {
    let (calls, refused) = (totals.calls(), totals.of(Status::Refused));
    let degraded = overview.degraded.len();
    let variables = [("degraded", degraded.into()), ("refused", refused.into()), ("count", calls.into())];
    html! { (texts.with("overview-state", variables)) }
}

fn figures(texts: &Texts, overview: &Overview, totals: &CallSums) -> Markup {
    let refused = |sums: &CallSums| sums.of(Status::Refused) as f64 / sums.calls().max(1) as f64;
    let p95 = |sums: &CallSums| sums.times.quantile(0.95).unwrap_or_default().as_secs_f64();
    let cost = |sums: &CallSums| f64::try_from(sums.cost_usd).unwrap_or(0.0);
    let each = |value: &dyn Fn(&CallSums) -> f64| overview.figures.parts.iter().map(|(_, sums)| value(sums)).collect();
    let figures: [(_, _, Vec<f64>); 4] = [
        ("nav-calls", format::count(totals.calls()), each(&|sums: &CallSums| sums.calls() as f64)),
        ("figure-refused", format!("{:.1} %", refused(totals) * 100.0), each(&refused)),
        ("figure-times", times(&totals.times), each(&p95)),
        ("figure-spent", format::money(totals.cost_usd), each(&cost)),
    ];
    html! {
        div.figures {
            @for (name, value, series) in figures {
                div.figure {
                    h2 { (texts.get(name)) " " span.window { (overview.figures.range.name) } }
                    p { (value) }
                    (chart::line(&texts.get(name), &series))
                }
            }
        }
    }
}

fn times(times: &Times) -> String {
    let quantile = |share| times.quantile(share).map_or_else(|| "–".to_owned(), format::duration);
    let all = [0.5, 0.95, 0.99].map(quantile);
    // A unit that all have is written once.
    let unit = all[0].split_once(' ').map(|(_, unit)| format!(" {unit}")).unwrap_or_default();
    match all.each_ref().map(|one| one.strip_suffix(unit.as_str())) {
        [Some(one), Some(two), Some(three)] => format!("{one} / {two} / {three}{unit}"),
        _ => all.join(" / "),
    }
}

/// The links to a table of the overview as a file.
pub(super) fn files(texts: &Texts, table: &str) -> Markup {
    export::links(texts, &with_query("/console", [("table", table)]))
}

/// The same, of a table about the time of the figures.
fn files_of_time(texts: &Texts, table: &str, overview: &Overview) -> Markup {
    export::links(texts, &with_query("/console", [("table", table), ("range", overview.figures.range.name)]))
}

fn refusals(texts: &Texts, overview: &Overview, totals: &CallSums) -> Markup {
    let codes = totals.codes();
    let most = codes.first().map_or(1, |(_, count)| *count);
    html! {
        @if codes.is_empty() { p.quiet { "✓ " (texts.get("overview-none-refused")) } }
        @else {
            ul.bars { @for (code, count) in codes {
                li { a href=(with_query("/console/calls", [("code", code.as_str()), ("since", overview.figures.range.name)])) {
                    code { (code.as_str()) } span { (format::count(count)) }
                    svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
                        rect width=(count.saturating_mul(100) / most) height="4" {}
                    }
                } }
            } }
            (files_of_time(texts, "codes", overview))
        }
    }
}

fn attention(texts: &Texts, overview: &Overview, sees_servers: bool) -> Markup {
    let Overview { degraded, notes, .. } = overview;
    html! {
        @if degraded.is_empty() { p.quiet { "✓ " (texts.get("overview-none-degraded")) } }
        @else { (degraded_parts(texts, degraded, sees_servers)) }
        @if !notes.is_empty() {
            details { summary { (texts.with("overview-notes", [("n", notes.len().into())])) }
                ul.plain { @for (setting, note) in notes { li { code { (setting) } ": " (format::text(note)) } } } }
        }
    }
}

/// The components that do not work, each with its reason and what to do.
pub(crate) fn degraded_parts(texts: &Texts, degraded: &BTreeMap<String, String>, sees_servers: bool) -> Markup {
    html! {
        ul.plain { @for (component, reason) in degraded {
            li.notice.warn {
                p { strong { "▲ " @match page_of(component).filter(|_| sees_servers) {
                    Some(page) => { a href=(page) { (format::text(component)) } },
                    None => (format::text(component)),
                } } }
                p { (format::text(reason)) }
                p.quiet { "→ " (texts.get(advice(component))) }
            }
        } }
    }
}

/// The page about a component that does not work.
fn page_of(component: &str) -> Option<String> {
    match component.split_once(':') {
        Some((kind @ ("mcp" | "openapi"), name)) => {
            Some(format!("/console/servers/{kind}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC)))
        }
        None if component == "quarantine" => Some("/console/servers".to_owned()),
        _ => None,
    }
}

/// The advice about a component that does not work.
fn advice(component: &str) -> &'static str {
    match component.split_once(':').map_or(component, |(kind, _)| kind) {
        "circuit" => "advice-circuit",
        "mcp" => "advice-mcp",
        "openapi" => "advice-openapi",
        "policy" | "configuration" | "configuration_changes" => "advice-configuration",
        "tools.lock" => "advice-lock",
        "quarantine" => "advice-quarantine",
        "agent.prices" => "advice-prices",
        "sandbox" | "sandbox_profiles" => "advice-sandbox",
        "audit" | "store" => "advice-storage",
        _ => "advice-other",
    }
}

fn slowest(texts: &Texts, overview: &Overview) -> Markup {
    let timed = overview.tools.iter().filter_map(|(tool, totals)| Some((tool, totals, totals.times.quantile(0.95)?)));
    let mut timed: Vec<(_, _, Duration)> = timed.collect();
    timed.sort_by_key(|(_, _, p95)| Reverse(*p95));
    let shown = timed.into_iter().take(MAX_LINES);
    let lines =
        lines(texts, shown.map(|(tool, totals, _)| (tool.as_str(), tools::path_of(tool), times(&totals.times))));
    html! { (lines) @if !overview.tools.is_empty() { (files_of_time(texts, "tools", overview)) } }
}

fn most_refused(texts: &Texts, overview: &Overview) -> Markup {
    let refused = overview.tools.iter().map(|(tool, totals)| (tool, totals.of(Status::Refused)));
    let mut refused: Vec<_> = refused.filter(|(_, count)| *count > 0).collect();
    refused.sort_by_key(|(_, count)| Reverse(*count));
    let shown = refused.into_iter().take(MAX_LINES);
    lines(
        texts,
        shown.map(|(tool, count)| {
            let since = overview.figures.range.name;
            let address =
                with_query("/console/calls", [("tool", tool.as_str()), ("status", "refused"), ("since", since)]);
            (tool.as_str(), address, format::count(count))
        }),
    )
}

fn lines<'a>(texts: &Texts, lines: impl Iterator<Item = (&'a str, String, String)>) -> Markup {
    let mut lines = lines.peekable();
    html! {
        @if lines.peek().is_none() { p.quiet { (texts.get("overview-nothing")) } }
        @else { ul.lines { @for (tool, address, value) in lines {
            li { a href=(address) { (format::name(tool)) } span { (value) } }
        } } }
    }
}

/// The budgets of today that are used most.
fn budgets(texts: &Texts, budgets: &[DayBudget]) -> Markup {
    let mut budgets: Vec<_> = budgets.iter().collect();
    budgets.sort_by(|one, other| used_share(other).total_cmp(&used_share(one)));
    html! {
        @if budgets.is_empty() { p.quiet { (texts.get("overview-nothing")) } }
        @else { ul.lines.budgets { @for budget in budgets.into_iter().take(MAX_LINES) { (self::budget(texts, budget)) } } }
    }
}

/// One budget as a line, with how much of it is used.
fn budget(texts: &Texts, budget: &DayBudget) -> Markup {
    let of =
        |used: String, limit: Option<String>| limit.map_or_else(|| used.clone(), |limit| format!("{used} / {limit}"));
    let money = of(format::money(budget.spent.saturating_add(budget.held)), budget.limit.map(format::money));
    let tokens = of(format::count(budget.tokens), budget.token_limit.map(format::count));
    let has_limit = budget.limit.is_some() || budget.token_limit.is_some();
    html! {
        li {
            span {
                (format::name(budget.caller.as_deref().unwrap_or(&budget.tenant)))
                " " span.quiet { @match &budget.caller {
                    Some(_) => (format::text(&budget.tenant)),
                    None => (texts.get("call-tenant")),
                } }
            }
            span { (money) " · " (texts.with("overview-tokens", [("n", tokens.into())])) }
            @if has_limit { (chart::meter(&texts.get("overview-used"), used_share(budget))) }
        }
    }
}

/// How much is used of the limit that is nearer, from 0 to 1.
fn used_share(budget: &DayBudget) -> f64 {
    let share = |used: Decimal, limit: Decimal| match limit.is_zero() {
        true => 1.0,
        false => used.checked_div(limit).and_then(|share| share.try_into().ok()).unwrap_or(1.0),
    };
    let money = budget.limit.map_or(0.0, |limit| share(budget.spent.saturating_add(budget.held), limit));
    let tokens = budget.token_limit.map_or(0.0, |limit| share(budget.tokens.into(), limit.into()));
    f64::max(money, tokens)
}

fn load(texts: &Texts, running: usize, sandbox: SandboxLoad) -> Markup {
    let SandboxLoad { runs, max_runs, queued, memory_bytes, max_memory_bytes } = sandbox;
    let memory = format!("{} / {} MiB", format::count(memory_bytes >> 20), format::count(max_memory_bytes >> 20));
    let lines = [
        ("load-running", format::count(running as u64), None),
        ("load-sandbox", format!("{runs} / {max_runs}"), Some(runs as f64 / max_runs.max(1) as f64)),
        ("load-queued", format::count(queued as u64), None),
        ("load-memory", memory, Some(memory_bytes as f64 / max_memory_bytes.max(1) as f64)),
    ];
    html! {
        ul.lines.budgets {
            @for (name, value, share) in lines {
                li {
                    span { (texts.get(name)) } span { (value) }
                    @if let Some(share) = share { (chart::meter(&texts.get(name), share)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(spent: u32, limit: Option<u32>, tokens: u64, token_limit: Option<u64>) -> DayBudget {
        let (spent, held, limit) = (spent.into(), Decimal::ZERO, limit.map(Decimal::from));
        DayBudget { tenant: "acme".into(), caller: None, spent, held, limit, tokens, token_limit }
    }

    #[test]
    fn a_unit_that_all_quantiles_have_is_written_once() {
        assert_eq!(times(&Times::default()), "– / – / –");
        let text = times(&Times::of([Duration::from_millis(4), Duration::from_millis(5)]));
        assert!(text.matches("ms").count() == 1 && text.ends_with(" ms"), "{text}");
        let text = times(&Times::of([Duration::from_micros(4), Duration::from_millis(5)]));
        assert!(text.contains("µs /") && text.ends_with(" ms"), "{text}");
    }

    #[test]
    fn the_nearer_limit_decides_how_much_of_a_budget_is_used() {
        for (budget, share) in [
            (budget(5, None, 100, None), 0.0),
            (budget(5, Some(10), 100, None), 0.5),
            (budget(5, Some(10), 90, Some(100)), 0.9),
            (budget(0, Some(0), 0, None), 1.0),
        ] {
            assert!((used_share(&budget) - share).abs() < 1e-9, "{budget:?}");
        }
    }
}
