//! Steps in time, as a table whose last column is drawn: runs of agents, plans, and runs of programs.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use rust_decimal::Decimal;

use super::text::Texts;
use super::{calls, format};
use sekisho_core::record::{CallSummary, Status};

/// Maximum steps that a page draws.
pub(super) const MAX_DRAWN: usize = 200;

/// The width of the drawn column, and the least width of a step in it.
const WIDTH: f64 = 1_000.0;
const LEAST: f64 = 8.0;

/// A step.
#[derive(Debug)]
pub(super) struct Row {
    /// The id of the row in its page.
    pub id: Option<String>,
    /// 0 for the outermost ones.
    pub depth: usize,
    /// Of its bar.
    pub class: &'static str,
    pub name: Markup,
    pub begun: Timestamp,
    /// `None`: it goes on.
    pub ended: Option<Timestamp>,
    /// Of its prompt and its answer.
    pub tokens: Option<(u64, u64)>,
    pub cost: Option<Decimal>,
}

/// The time of the drawn column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Axis {
    /// The time of all these; `None` without any.
    fn of(rows: &[Row]) -> Option<Self> {
        let from = rows.iter().map(|row| row.begun).min()?;
        let until = rows.iter().map(|row| row.ended.unwrap_or_else(Timestamp::now)).max()?;
        Some(Self { from, until })
    }

    /// Where a step begins in the drawn column, and its width.
    fn place(self, begun: Timestamp, ended: Option<Timestamp>) -> (f64, f64) {
        let whole = self.until.duration_since(self.from).as_secs_f64();
        if whole <= 0.0 {
            return (0.0, WIDTH);
        }
        let x = |at: Timestamp| (at.duration_since(self.from).as_secs_f64() / whole).clamp(0.0, 1.0) * WIDTH;
        let width = (x(ended.unwrap_or(self.until)) - x(begun)).max(LEAST);
        (x(begun).min(WIDTH - width), width)
    }
}

/// The table. `label` is the id of its name.
pub(super) fn show(texts: &Texts, label: &str, axis: Axis, rows: &[Row]) -> Markup {
    let has_tokens = rows.iter().any(|row| row.tokens.is_some());
    html! {
        div.scroll tabindex="0" role="group" aria-label=(texts.get(label)) {
            table.list.cards.timeline {
                thead { tr {
                    th scope="col" { (texts.get("timeline-step")) }
                    th.number scope="col" { (texts.get("timeline-after")) }
                    th.number scope="col" { (texts.get("call-duration")) }
                    @if has_tokens { th.number scope="col" { (texts.get("call-tokens")) } }
                    th.number scope="col" { (texts.get("call-cost")) }
                    th scope="col" { (texts.get("timeline-time")) " · " (span(axis.from, axis.until)) }
                } }
                tbody { @for row in rows { (one(texts, axis, row, has_tokens)) } }
            }
        }
    }
}

fn one(texts: &Texts, axis: Axis, row: &Row, has_tokens: bool) -> Markup {
    let (x, width) = axis.place(row.begun, row.ended);
    let indent = (row.depth > 0).then(|| format!("d{}", row.depth.min(5)));
    html! {
        tr id=[row.id.as_deref()] {
            th class=[indent] scope="row" { (row.name) }
            td.number data-label=(texts.get("timeline-after")) { (span(axis.from, row.begun)) }
            td.number data-label=(texts.get("call-duration")) {
                @match row.ended { Some(ended) => (span(row.begun, ended)), None => (texts.get("timeline-goes-on")) }
            }
            @if has_tokens {
                td.number data-label=(texts.get("call-tokens")) {
                    @match row.tokens { Some((prompt, answer)) => { (format::count(prompt)) " → " (format::count(answer)) }, None => "–" }
                }
            }
            td.number data-label=(texts.get("call-cost")) { (row.cost.map_or_else(|| "–".to_owned(), format::money)) }
            td.drawn {
                svg viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
                    rect class=(row.class) x=(format!("{x:.1}")) width=(format!("{width:.1}")) y="0" height="10" {}
                }
            }
        }
    }
}

/// The time between two moments.
pub(super) fn span(from: Timestamp, until: Timestamp) -> String {
    let seconds = until.duration_since(from).max(SignedDuration::ZERO).as_secs_f64();
    format::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// The row of a call of the index, which leads to its page.
pub(super) fn row_of_call(texts: &Texts, call: &CallSummary, depth: usize) -> Row {
    let ended = moment(call.time);
    let took = SignedDuration::try_from(call.duration).unwrap_or_default();
    let name = html! {
        a href=(calls::path_of(call.id)) { (format::name(&call.tool)) } " " (calls::outcome(texts, call))
    };
    let class = match call.status {
        Status::Success => "good",
        Status::Refused => "warn",
        Status::Error | Status::Cancelled => "bad",
    };
    let begun = ended.checked_sub(took).unwrap_or(ended);
    Row { id: None, depth, class, name, begun, ended: Some(ended), tokens: None, cost: Some(call.cost_usd) }
}

fn moment(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A section with these steps, in the order of their beginnings; nothing without any.
pub(super) fn section(texts: &Texts, mut rows: Vec<Row>) -> Markup {
    rows.sort_by_key(|row| (row.begun, row.depth));
    let others = rows.len().saturating_sub(MAX_DRAWN);
    rows.drain(..others);
    html! {
        @if let Some(axis) = Axis::of(&rows) {
            section aria-labelledby="timeline" {
                h2 #timeline { (texts.get("timeline-title")) }
                @if others > 0 { p.quiet.small { (texts.with("timeline-others", [("n", others.into())])) } }
                (show(texts, "timeline-title", axis, &rows))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_step_is_where_its_time_is() {
        let axis = Axis { from: at(100), until: at(200) };
        for (begun, ended, place) in [
            (100, Some(200), (0.0, 1_000.0)),
            (150, Some(175), (500.0, 250.0)),
            // Wide enough to be seen, and within the column.
            (150, Some(150), (500.0, LEAST)),
            (200, Some(200), (WIDTH - LEAST, LEAST)),
            // It goes on.
            (180, None, (800.0, 200.0)),
            // By clocks that differ.
            (90, Some(300), (0.0, 1_000.0)),
            (300, Some(90), (WIDTH - LEAST, LEAST)),
        ] {
            let (x, width) = axis.place(at(begun), ended.map(at));
            let is_there = (x - place.0).abs() < 1e-6 && (width - place.1).abs() < 1e-6;
            assert!(is_there, "{begun} {ended:?}: {x} {width}");
        }
        assert_eq!(Axis { from: at(1), until: at(1) }.place(at(1), Some(at(1))), (0.0, WIDTH));
    }

    #[test]
    fn steps_are_drawn_in_their_order_and_only_the_latest_of_many() {
        let texts = Texts::new(Language::English);
        let row = |second: i64, depth| Row {
            id: Some(format!("s{second}")),
            depth,
            class: "good",
            name: html! { (format::text("<b>")) },
            begun: at(second),
            ended: Some(at(second + 1)),
            tokens: Some((1_000, 7)),
            cost: None,
        };
        let drawn = section(&texts, vec![row(5, 1), row(3, 0)]).into_string();
        let first = r#"<tr id="s3"><th scope="row">&lt;b&gt;</th>"#;
        let second = r#"<tr id="s5"><th class="d1" scope="row">&lt;b&gt;</th>"#;
        assert!(drawn.find(first).unwrap() < drawn.find(second).unwrap(), "{drawn}");
        assert!(drawn.contains("1\u{2009}000 → 7") && drawn.contains(r#"x="666.7" width="333.3""#), "{drawn}");
        assert_eq!(section(&texts, Vec::new()).into_string(), "");
        let many = i64::try_from(MAX_DRAWN).unwrap() + 1;
        let drawn = section(&texts, (0..many).map(|second| row(second, 0)).collect()).into_string();
        assert!(!drawn.contains(r#"id="s0""#) && drawn.contains(r#"id="s1""#), "{drawn}");
        assert!(drawn.contains("One earlier step"), "{drawn}");
    }
}
