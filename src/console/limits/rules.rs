//! The rest of the rules of `limits.rules`, as `GET /limits` gives it.

use std::time::Duration;

use maud::{Markup, html};
use rust_decimal::Decimal;
use serde_json::json;

use crate::export::Rows;
use crate::format;
use crate::text::Texts;
use sekisho_config::RuleSubject;
use sekisho_gateway::RuleLevel;

pub(super) fn rows(levels: &[RuleLevel]) -> Rows<'static, 13> {
    let row = |level: &RuleLevel| {
        let RuleLevel { rule, subject, tenant, rate, running, .. } = level;
        [
            json!(rule.name),
            json!(rule.per),
            json!(subject),
            json!(tenant),
            json!(rate.map(|rate| rate.remaining)),
            json!(rule.rate),
            json!(rate.map(|rate| rate.reset_seconds)),
            json!(rule.max_concurrent.map(|_| running)),
            json!(rule.max_concurrent),
            json!(cost_left(level)),
            json!(rule.cost_per_day),
            json!(tokens_left(level)),
            json!(rule.tokens_per_day),
        ]
    };
    Rows {
        name: "limit-rules",
        columns: [
            "rule",
            "per",
            "subject",
            "tenant",
            "calls_left",
            "rate",
            "full_in_seconds",
            "running",
            "max_concurrent",
            "cost_left_usd",
            "cost_per_day_usd",
            "tokens_left",
            "tokens_per_day",
        ],
        rows: levels.iter().map(row).collect(),
    }
}

pub(super) fn table(texts: &Texts, levels: &[RuleLevel]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("limits-rules")) {
            table.list {
                thead { tr {
                    th scope="col" { (texts.get("policies-rule")) }
                    th scope="col" { (texts.get("limits-per")) }
                    th.number scope="col" { (texts.get("limits-calls-left")) }
                    th.number scope="col" { (texts.get("limits-full-in")) }
                    th.number scope="col" { (texts.get("limits-concurrent")) }
                    th.number scope="col" { (texts.get("limits-money-left")) }
                    th.number scope="col" { (texts.get("limits-tokens-left")) }
                } }
                tbody { @for level in levels { (line(texts, level)) } }
            }
        }
    }
}

fn line(texts: &Texts, level: &RuleLevel) -> Markup {
    let RuleLevel { rule, subject, tenant, rate, running, .. } = level;
    let count = |number: u32| format::count(number.into());
    let full_in = rate.map(|rate| format::duration(Duration::from_secs(rate.reset_seconds)));
    html! {
        tr {
            th scope="row" { (format::name(&rule.name)) }
            td {
                (texts.get(per_text(rule.per))) " " (format::name(subject))
                @if let Some(tenant) = tenant { " " span.quiet { (format::text(tenant)) } }
            }
            td.number { (of(rate.map(|rate| count(rate.remaining)), rule.rate.map(count))) }
            td.number { (full_in.as_deref().unwrap_or("–")) }
            td.number { (of(Some(format::count(*running)), rule.max_concurrent.map(count))) }
            td.number { (of(cost_left(level).map(format::money), rule.cost_per_day.map(format::money))) }
            td.number { (of(tokens_left(level).map(format::count), rule.tokens_per_day.map(format::count))) }
        }
    }
}

/// A number of its limit; a dash where there is no limit.
fn of(number: Option<String>, limit: Option<String>) -> String {
    match number.zip(limit) {
        Some((number, limit)) => format!("{number} / {limit}"),
        None => "–".to_owned(),
    }
}

fn cost_left(level: &RuleLevel) -> Option<Decimal> {
    level.rule.cost_per_day.map(|most| most.saturating_sub(level.used.cost_usd).max(Decimal::ZERO))
}

fn tokens_left(level: &RuleLevel) -> Option<u64> {
    level.rule.tokens_per_day.map(|most| most.saturating_sub(level.used.tokens))
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
