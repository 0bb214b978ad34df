//! What is refused and why, what is broken, what is slow: from the calls in memory that the visitor may see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use rust_decimal::Decimal;
use url::form_urlencoded;

use super::acts::Act;
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::Visit;
use super::{Console, format, tools};
use crate::core::error::CallError;
use crate::core::record::Status;
use crate::gateway::CallFilter;
use crate::infra::recent_calls::RecentCall;

/// How far back the figures go.
const WINDOW: Duration = Duration::from_secs(3_600);

/// Points of a sparkline.
const BUCKETS: usize = 30;

/// Lines of a list.
const MAX_LINES: usize = 6;

/// The calls of the window.
struct Recent<'a> {
    calls: Vec<&'a RecentCall>,
    began: SystemTime,
    length: Duration,
}

/// `GET /console`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    visit.answer(visit.require(Act::SeeOverview).and_then(|()| show(&console, &visit)))
}

fn show(console: &Console, visit: &Visit) -> Result<Markup, CallError> {
    let texts = visit.texts();
    let gateway = &console.gateway;
    let degraded = gateway.degraded();
    let all = gateway.recent_calls(&visit.caller, &CallFilter::default());
    let recent = Recent::of(&all, gateway.pipeline.settlement.recent.begins(), SystemTime::now());
    let refused = recent.count(|call| call.status == Status::Refused);
    let variables =
        [("degraded", degraded.len().into()), ("refused", refused.into()), ("count", recent.calls.len().into())];
    let title = texts.get("nav-overview");
    let head = Head { state: Some(html! { (texts.with("overview-state", variables)) }), ..Head::new(&title) };
    Ok(frame::page(
        visit,
        Some(Section::Overview),
        &head,
        &html! {
            (figures(&texts, &recent))
            p.quiet.small { (texts.with("overview-window", [("minutes", (recent.length.as_secs().div_ceil(60)).into())])) }
            div.columns {
                section aria-labelledby="refusals" { h2 #refusals { (texts.get("overview-refusals")) } (reasons(&texts, &recent)) }
                section aria-labelledby="degraded" {
                    h2 #degraded { (texts.get("overview-degraded")) }
                    (problems(&texts, &degraded, &gateway.setting_notes()))
                }
                section aria-labelledby="slowest" { h2 #slowest { (texts.get("overview-slowest")) } (slowest(&texts, &recent)) }
                section aria-labelledby="most" { h2 #most { (texts.get("overview-most-refused")) } (most_refused(&texts, &recent)) }
            }
        },
    ))
}

impl<'a> Recent<'a> {
    /// Of an hour; of less where the memory does not go back so far.
    fn of(all: &'a [Arc<RecentCall>], remembered_since: Option<SystemTime>, now: SystemTime) -> Self {
        let hour_ago = now.checked_sub(WINDOW).unwrap_or(SystemTime::UNIX_EPOCH);
        let began = remembered_since.map_or(hour_ago, |since| since.max(hour_ago));
        let calls = all.iter().map(|call| &**call).filter(|call| call.time >= began).collect();
        let length = now.duration_since(began).unwrap_or_default().max(Duration::from_secs(1));
        Self { calls, began, length }
    }

    fn count(&self, counts: impl Fn(&RecentCall) -> bool) -> usize {
        self.calls.iter().filter(|call| counts(call)).count()
    }

    /// A value for each part of the window.
    fn series(&self, value: impl Fn(&[&RecentCall]) -> f64) -> Vec<f64> {
        let mut parts = vec![Vec::new(); BUCKETS];
        for call in &self.calls {
            let since = call.time.duration_since(self.began).unwrap_or_default();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the buckets")]
            let at = (since.as_secs_f64() / self.length.as_secs_f64() * BUCKETS as f64) as usize;
            parts[at.min(BUCKETS - 1)].push(*call);
        }
        parts.iter().map(|part| value(part)).collect()
    }
}

/// The duration that this share of the calls does not exceed.
fn quantile(calls: &[&RecentCall], share: f64) -> Duration {
    let mut times: Vec<_> =
        calls.iter().filter(|call| call.status != Status::Refused).map(|call| call.duration).collect();
    times.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the list")]
    let at = (times.len() as f64 * share).ceil() as usize;
    times.get(at.max(1) - 1).copied().unwrap_or_default()
}

fn figures(texts: &Texts, recent: &Recent<'_>) -> Markup {
    let refused = |calls: &[&RecentCall]| calls.iter().filter(|call| call.status == Status::Refused).count();
    let share = |calls: &[&RecentCall]| refused(calls) as f64 / calls.len().max(1) as f64;
    let spent: Decimal = recent.calls.iter().map(|call| call.cost_usd).sum();
    let cost =
        |calls: &[&RecentCall]| calls.iter().map(|call| call.cost_usd).sum::<Decimal>().try_into().unwrap_or(0.0);
    let times = format!(
        "{} / {}",
        format::duration(quantile(&recent.calls, 0.5)),
        format::duration(quantile(&recent.calls, 0.95))
    );
    let figures = [
        ("figure-calls", format::count(recent.calls.len() as u64), recent.series(|calls| calls.len() as f64)),
        ("figure-refused", format!("{:.1} %", share(&recent.calls) * 100.0), recent.series(share)),
        ("figure-times", times, recent.series(|calls| quantile(calls, 0.95).as_secs_f64())),
        ("figure-spent", format::money(spent), recent.series(cost)),
    ];
    html! {
        div.figures {
            @for (name, value, series) in figures {
                div.figure {
                    h2 { (texts.get(name)) }
                    p { (value) }
                    (sparkline(&texts.get(name), &series))
                }
            }
        }
    }
}

fn sparkline(title: &str, series: &[f64]) -> Markup {
    const HEIGHT: f64 = 30.0;
    let max = series.iter().copied().fold(0.0, f64::max);
    let y = |value: f64| if max > 0.0 { HEIGHT - 1.0 - value / max * (HEIGHT - 3.0) } else { HEIGHT - 1.0 };
    let points = series.iter().enumerate().map(|(at, value)| format!("{},{:.1}", at * 10, y(*value)));
    let width = (series.len().max(2) - 1) * 10;
    html! {
        svg.spark viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
            title { (title) }
            polyline points=(points.collect::<Vec<_>>().join(" ")) {}
        }
    }
}

fn reasons(texts: &Texts, recent: &Recent<'_>) -> Markup {
    let mut by_code = BTreeMap::<&str, u64>::new();
    for code in recent.calls.iter().filter(|call| call.status != Status::Success).filter_map(|call| call.code) {
        *by_code.entry(code.as_str()).or_default() += 1;
    }
    let mut counted: Vec<_> = by_code.into_iter().collect();
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let most = counted.first().map_or(1, |(_, count)| *count);
    html! {
        @if counted.is_empty() { p.quiet { "✓ " (texts.get("overview-none-refused")) } }
        @else { ul.bars { @for (code, count) in counted {
            li { a href={ "/console/calls?code=" (code) } {
                code { (code) } span { (format::count(count)) }
                svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
                    rect width=(count * 100 / most) height="4" {}
                }
            } }
        } } }
    }
}

fn problems(texts: &Texts, degraded: &BTreeMap<String, String>, notes: &BTreeMap<String, String>) -> Markup {
    html! {
        @if degraded.is_empty() { p.quiet { "✓ " (texts.get("overview-none-degraded")) } }
        @else { ul.plain { @for (component, reason) in degraded {
            li.notice.warn { p { strong { "▲ " (component) } } p { (reason) } }
        } } }
        @if !notes.is_empty() {
            details { summary { (texts.with("overview-notes", [("n", notes.len().into())])) }
                ul.plain { @for (setting, note) in notes { li { code { (setting) } ": " (note) } } } }
        }
    }
}

fn by_tool<'a>(recent: &Recent<'a>) -> BTreeMap<&'a str, Vec<&'a RecentCall>> {
    let mut tools = BTreeMap::<&str, Vec<&RecentCall>>::new();
    for call in &recent.calls {
        tools.entry(&call.tool).or_default().push(call);
    }
    tools
}

fn slowest(texts: &Texts, recent: &Recent<'_>) -> Markup {
    let tools = by_tool(recent).into_iter().map(|(tool, calls)| (tool, quantile(&calls, 0.95)));
    let mut tools: Vec<_> = tools.filter(|(_, time)| !time.is_zero()).collect();
    tools.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    lines(
        texts,
        tools.into_iter().map(|(tool, time)| (tool, tools::path_of(tool), format!("p95 {}", format::duration(time)))),
    )
}

fn most_refused(texts: &Texts, recent: &Recent<'_>) -> Markup {
    let refused = |calls: &[&RecentCall]| calls.iter().filter(|call| call.status == Status::Refused).count() as u64;
    let mut tools: Vec<_> = by_tool(recent).into_iter().map(|(tool, calls)| (tool, refused(&calls))).collect();
    tools.retain(|(_, count)| *count > 0);
    tools.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    lines(
        texts,
        tools.into_iter().map(|(tool, count)| {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("tool", tool)
                .append_pair("status", "refused")
                .finish();
            (tool, format!("/console/calls?{query}"), format::count(count))
        }),
    )
}

fn lines<'a>(texts: &Texts, lines: impl Iterator<Item = (&'a str, String, String)>) -> Markup {
    let lines: Vec<_> = lines.take(MAX_LINES).collect();
    html! {
        @if lines.is_empty() { p.quiet { (texts.get("overview-nothing")) } }
        @else { ul.lines { @for (tool, address, value) in lines {
            li { a href=(address) { (format::name(tool)) } span { (value) } }
        } } }
    }
}
