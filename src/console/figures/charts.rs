//! The charts of figures, with their table.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use rust_decimal::Decimal;

use super::{BEFORE, PATH};
use crate::address::with_query;
use crate::chart::{Bar, TimeChart};
use crate::text::Texts;
use crate::{export, format};
use sekisho_core::call::Stage;
use sekisho_core::record::Status;
use sekisho_gateway::FiguresOf;
use sekisho_store::{CallSums, Figures, TimeRange};

/// How calls end, as the charts show it.
pub(super) const OUTCOMES: [(&str, &str, Status); 4] = [
    ("good", "status-success", Status::Success),
    ("bad", "status-error", Status::Error),
    ("warn", "status-refused", Status::Refused),
    ("other", "status-cancelled", Status::Cancelled),
];

/// Shares of calls that are not slower.
pub(super) const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// Where charts are.
pub(crate) struct Place<'a> {
    pub texts: &'a Texts,
    /// The page, without a range.
    pub page: &'a str,
    pub of: &'a FiguresOf,
}

impl Place<'_> {
    /// Links to other times, the charts that have values, and their table.
    pub(crate) fn charts(&self, figures: &Figures) -> Markup {
        let texts = self.texts;
        html! {
            (self.ranges(figures.range, figures.before.is_some()))
            (self.outcomes(figures))
            (self.refusals(figures))
            (self.durations(figures))
            (self.costs(figures))
            (self.tokens(figures))
            (self.table(figures))
            (export::links(texts, &self.own_address(figures.range)))
        }
    }

    fn own_address(&self, range: TimeRange) -> String {
        with_query(PATH, self.of.fields().into_iter().chain([("range", range.name)]))
    }

    fn beside_day_before(&self, range: TimeRange) -> String {
        with_query(PATH, self.of.fields().into_iter().chain([("range", range.name), ("before", BEFORE)]))
    }

    /// `is_beside`: the day before is shown, too.
    fn ranges(&self, chosen: TimeRange, is_beside: bool) -> Markup {
        let separator = if self.page.contains('?') { '&' } else { '?' };
        html! {
            nav.small aria-label=(self.texts.get("calls-times")) {
                @for (at, range) in TimeRange::ALL.into_iter().enumerate() {
                    @if at > 0 { " · " }
                    a href={ (self.page) (separator) "range=" (range.name) } aria-current=[(chosen == range).then_some("true")] { (range.name) }
                }
                @if chosen.has_day_before() {
                    " · " a href=(self.beside_day_before(chosen)) aria-current=[is_beside.then_some("true")] { (self.texts.get("figures-compare")) }
                }
            }
        }
    }

    /// The calls of a part of the time.
    fn calls(&self, figures: &Figures, start: Timestamp) -> String {
        let (since, until) = (start.to_string(), figures.end_of(start).to_string());
        let times = [("since", since.as_str()), ("until", until.as_str())];
        with_query("/console/calls", self.of.fields().into_iter().chain(times))
    }

    fn chart(
        &self,
        figures: &Figures,
        title: &str,
        series: &[(&str, String)],
        scale: Scale,
        values: impl Fn(&CallSums) -> Vec<Option<f64>>,
    ) -> Markup {
        let bar = |(start, sums): &(Timestamp, CallSums)| {
            let values = values(sums);
            let named = series.iter().zip(&values).filter_map(|((_, name), value)| Some((name, (*value)?)));
            let named: Vec<_> = named.map(|(name, value)| format!("{name} {}", (scale.words)(value))).collect();
            let words = scale.whole.map_or_else(|| named.join(" · "), |whole| whole(sums));
            Bar {
                words: format!("{} · {words}", moment(*start, figures.range)),
                link: Some(self.calls(figures, *start)),
                is_stacked: scale.is_stacked,
                values,
            }
        };
        let bars: Vec<_> = figures.parts.iter().map(bar).collect();
        let line = self.line(figures, series, scale, &values);
        let was_any = line.iter().flat_map(|(_, values)| values).flatten().any(|value| *value > 0.0);
        if !was_any && !bars.iter().any(|bar| bar.values.iter().flatten().any(|value| *value > 0.0)) {
            return html! {};
        }
        let starts: Vec<_> = figures.parts.iter().map(|(start, _)| moment(*start, figures.range)).collect();
        let at = |at: usize| starts.get(at).map_or("", String::as_str);
        let times = [at(0), at(starts.len() / 2), at(starts.len().saturating_sub(1))];
        TimeChart { title, series, bars, line, times, least: scale.least, words: scale.words }.show()
    }

    /// The day before: the sum of stacked values, of others the one in the middle.
    fn line(
        &self,
        figures: &Figures,
        series: &[(&str, String)],
        scale: Scale,
        values: impl Fn(&CallSums) -> Vec<Option<f64>>,
    ) -> Option<(String, Vec<Option<f64>>)> {
        let middle = series.len() / 2;
        let value = |sums: &CallSums| match scale.is_stacked {
            true => Some(values(sums).into_iter().flatten().sum::<f64>()),
            false => values(sums).get(middle).copied().flatten(),
        };
        let name = self.texts.get("figures-before");
        let name = match series.get(middle) {
            Some((_, of)) if !scale.is_stacked => format!("{of}: {name}"),
            _ => name.into_owned(),
        };
        Some((name, figures.before.as_ref()?.iter().map(value).collect()))
    }

    fn outcomes(&self, figures: &Figures) -> Markup {
        let series = OUTCOMES.map(|(class, id, _)| (class, self.texts.get(id).into_owned()));
        self.chart(figures, &self.texts.get("nav-calls"), &series, COUNTS, |sums| {
            counted(&OUTCOMES.map(|(_, _, status)| sums.of(status)))
        })
    }

    fn refusals(&self, figures: &Figures) -> Markup {
        let mut total = figures.total();
        figures.before.iter().flatten().for_each(|sums| total.add_all(sums));
        let stages = Stage::ALL.iter().map(|stage| stage.as_str());
        let stages: Vec<_> = stages.filter(|stage| total.refused_at(stage) > 0).collect();
        let classes: Vec<_> = stages.iter().map(|stage| format!("at-{stage}")).collect();
        let series: Vec<_> =
            classes.iter().zip(&stages).map(|(class, stage)| (class.as_str(), (*stage).to_owned())).collect();
        self.chart(figures, &self.texts.get("figures-refusals"), &series, COUNTS, |sums| {
            counted(&stages.iter().map(|stage| sums.refused_at(stage)).collect::<Vec<_>>())
        })
    }

    fn durations(&self, figures: &Figures) -> Markup {
        let series = QUANTILES.map(|(name, _)| (name, name.to_owned()));
        self.chart(figures, &self.texts.get("call-duration"), &series, DURATIONS, |sums| {
            let quantile = |(_, share)| sums.times.quantile(share).map(|took| took.as_secs_f64());
            QUANTILES.map(quantile).into()
        })
    }

    fn costs(&self, figures: &Figures) -> Markup {
        let series = [("money", self.texts.get("call-cost").into_owned())];
        self.chart(figures, &self.texts.get("call-cost"), &series, MONEY, |sums| {
            vec![f64::try_from(sums.cost_usd).ok().filter(|cost| *cost > 0.0)]
        })
    }

    fn tokens(&self, figures: &Figures) -> Markup {
        let series = [("other", self.texts.get("call-tokens").into_owned())];
        self.chart(figures, &self.texts.get("call-tokens"), &series, COUNTS, |sums| counted(&[sums.tokens]))
    }

    /// The parts with calls, the latest first.
    fn table(&self, figures: &Figures) -> Markup {
        let texts = self.texts;
        let before = |at: usize| Some(figures.before.as_ref()?.get(at)?.calls());
        let parts = figures.parts.iter().enumerate().rev().map(|(at, (start, sums))| (start, sums, before(at)));
        let used: Vec<_> = parts.filter(|(_, sums, was)| sums.calls() > 0 || was.is_some_and(|was| was > 0)).collect();
        let title = texts.get("figures-title");
        html! {
            @if used.is_empty() { p.quiet { (texts.get("figures-none")) } }
            @else {
                details {
                    summary { (texts.get("overview-as-table")) }
                    div.scroll tabindex="0" role="region" aria-label=(title) { table.list {
                        thead { tr {
                            th scope="col" { (texts.get("figures-from")) }
                            @for (_, id, _) in OUTCOMES { th.number scope="col" { (texts.get(id)) } }
                            @for (name, _) in QUANTILES { th.number scope="col" { (name) } }
                            th.number scope="col" { (texts.get("call-cost")) }
                            th.number scope="col" { (texts.get("call-tokens")) }
                            @if figures.before.is_some() {
                                th.number scope="col" { (texts.get("nav-calls")) ": " (texts.get("figures-before")) }
                                th.number scope="col" { (texts.get("figures-difference")) }
                            }
                        } }
                        tbody { @for (start, sums, was) in used { tr {
                            th scope="row" { a href=(self.calls(figures, *start)) { (start.strftime("%Y-%m-%d %H:%M").to_string()) } }
                            @for (_, _, status) in OUTCOMES { td.number { (format::count(sums.of(status))) } }
                            @for (_, share) in QUANTILES {
                                td.number { (sums.times.quantile(share).map_or_else(|| "–".to_owned(), format::duration)) }
                            }
                            td.number { (format::money(sums.cost_usd)) }
                            td.number { (format::count(sums.tokens)) }
                            @if let Some(was) = was {
                                td.number { (format::count(was)) }
                                td.number { (difference(sums.calls(), was)) }
                            }
                        } } }
                    } }
                }
            }
        }
    }
}

/// How the values of a chart are drawn and written.
#[derive(Clone, Copy)]
struct Scale {
    least: f64,
    is_stacked: bool,
    words: fn(f64) -> String,
    /// The words on hover, where the values of the chart are rounded.
    whole: Option<fn(&CallSums) -> String>,
}

const COUNTS: Scale = Scale { least: 2.0, is_stacked: true, words: in_counts, whole: None };
const DURATIONS: Scale = Scale { least: 0.0, is_stacked: false, words: in_time, whole: None };
const MONEY: Scale = Scale {
    least: 0.0,
    is_stacked: true,
    words: in_money,
    whole: Some(|sums: &CallSums| format::money(sums.cost_usd)),
};

#[expect(clippy::cast_possible_truncation, reason = "a count, or the end of the axis of counts")]
fn in_counts(number: f64) -> String {
    format::count(number.round() as u64)
}

fn in_time(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| String::new(), format::duration)
}

pub(crate) fn in_money(amount: f64) -> String {
    Decimal::try_from(amount).map_or_else(|_| String::new(), format::money)
}

/// With its sign.
fn difference(is: u64, was: u64) -> String {
    match is.cmp(&was) {
        Ordering::Less => format!("−{}", format::count(was - is)),
        Ordering::Equal => "0".to_owned(),
        Ordering::Greater => format!("+{}", format::count(is - was)),
    }
}

/// Nothing where all are zero.
fn counted(counts: &[u64]) -> Vec<Option<f64>> {
    let is_any = counts.iter().any(|count| *count > 0);
    counts.iter().map(|count| is_any.then_some(*count as f64)).collect()
}

/// Where a part begins, in UTC: the day of parts of many hours, otherwise the minute.
fn moment(start: Timestamp, range: TimeRange) -> String {
    let form = match range.width {
        86_400.. => "%m-%d",
        21_600.. => "%m-%d %H:%M",
        _ => "%H:%M",
    };
    start.strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::text::Language;
    use sekisho_core::call::{CallContext, Caller, Via};
    use sekisho_core::error::{CallError, ErrorCode};
    use sekisho_core::record::CallSummary;

    fn figures() -> Figures {
        let call = CallContext::new("crm__get", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
        let denied = CallError::new(ErrorCode::Denied, "no").at_stage(Stage::Policy);
        let mut sums = CallSums::default();
        let cost_usd = "164197.520000000001".parse().unwrap();
        sums.add(&CallSummary { cost_usd, ..CallSummary::new(&call, None, None, String::new()) }, 1);
        sums.add(&CallSummary::new(&call, None, Some(&denied), String::new()), 3);
        let start = |second| Timestamp::from_second(second).unwrap();
        let parts = vec![(start(1_800_000_000), sums), (start(1_800_003_600), CallSums::default())];
        Figures { range: TimeRange::ALL[3], parts, before: None }
    }

    #[test]
    fn charts_have_axes_exact_money_links_to_their_calls_and_a_table() {
        let of = FiguresOf::Tool("crm__get".to_owned());
        let texts = Texts::new(Language::English);
        let shown = Place { texts: &texts, page: "/console/tools/crm__get", of: &of }.charts(&figures()).into_string();
        let calls =
            "/console/calls?tool=crm__get&amp;since=2027-01-15T08%3A00%3A00Z&amp;until=2027-01-15T09%3A00%3A00Z";
        for part in [
            format!("<a href=\"{calls}\" tabindex=\"-1\">"),
            format!("<th scope=\"row\"><a href=\"{calls}\">2027-01-15 08:00</a>"),
            "$164\u{2009}197.520000000001</title>".to_owned(),
            "<td class=\"number\">$164\u{2009}197.520000000001</td>".to_owned(),
            "08:00 · policy 3".to_owned(),
            "<span>$200\u{2009}000.00</span>".to_owned(),
            "/console/tools/crm__get?range=30d".to_owned(),
            "/console/figures?tool=crm__get&amp;range=24h&amp;format=csv".to_owned(),
        ] {
            assert!(shown.contains(&part), "{part}: {shown}");
        }
        assert_eq!(shown.matches("<figure").count(), 3, "calls, refusals and costs: {shown}");
    }
    #[test]
    fn the_day_before_is_a_second_line_and_a_difference_in_the_table() {
        let of = FiguresOf::All { tenant: None };
        let texts = Texts::new(Language::English);
        let shown =
            |figures: &Figures| Place { texts: &texts, page: "/console", of: &of }.charts(figures).into_string();
        let compare = "/console/figures?range=24h&amp;before=day";
        let plain = shown(&figures());
        assert!(plain.contains(compare) && !plain.contains("polyline"), "{plain}");
        let sums: Vec<_> = figures().parts.into_iter().map(|(_, sums)| sums).rev().collect();
        let beside = shown(&Figures { before: Some(sums), ..figures() });
        for part in [
            r#"<polyline class="before""#,
            r#"<span class="key before">day before</span>"#,
            // The second hour had no calls, and four a day before.
            "<td class=\"number\">4</td><td class=\"number\">−4</td>",
            "<td class=\"number\">0</td><td class=\"number\">+4</td>",
        ] {
            assert!(beside.contains(part), "{part}: {beside}");
        }
        let days = Figures { range: TimeRange::ALL[5], ..figures() };
        assert!(!shown(&days).contains("before=day"), "a day is compared with the bar beside it");
    }
}
