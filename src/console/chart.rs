//! Charts as SVG, without a library: a line, a meter, and values over time with their axes.

use maud::{Markup, html};

/// A line of a figure, from zero to its highest value.
pub(super) fn line(title: &str, series: &[f64]) -> Markup {
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

/// Values over time with their axes: a bar for each part of the time.
pub(super) struct TimeChart<'a> {
    pub title: &'a str,
    /// The class and the name of each series.
    pub series: &'a [(&'a str, String)],
    /// The oldest first.
    pub bars: Vec<Bar>,
    /// A second, lighter line: its name, and a value at each bar.
    pub line: Option<(String, Vec<Option<f64>>)>,
    /// Below the first bar, the middle and the last one.
    pub times: [&'a str; 3],
    /// The end of the axis is at least here.
    pub least: f64,
    /// A value of the axis in words.
    pub words: fn(f64) -> String,
}

/// A part of the time.
pub(super) struct Bar {
    /// Of each series; `None`: none.
    pub values: Vec<Option<f64>>,
    /// On hover.
    pub words: String,
    /// The page that a click opens.
    pub link: Option<String>,
    /// Whether the values are on top of each other; otherwise each has a mark at its height.
    pub is_stacked: bool,
}

const HEIGHT: f64 = 100.0;
const WIDTH: usize = 10;

impl TimeChart<'_> {
    /// The picture is for the eye: the page has the same values in a table.
    pub(super) fn show(&self) -> Markup {
        let drawn = self.line.iter().flat_map(|(_, values)| values.iter().copied().flatten());
        let top = end_of_axis(self.bars.iter().map(Bar::top).chain(drawn).fold(self.least, f64::max));
        let height = |value: f64| value / top * HEIGHT;
        html! {
            figure.time {
                figcaption {
                    (self.title)
                    @if let Some((name, _)) = &self.line { span.key.before { (name) } }
                    @if self.series.iter().any(|(_, name)| name != self.title) { @for (class, name) in self.series { " " span class={ "key " (class) } { (name) } } }
                }
                div.plot {
                    div.axis { @for share in [1.0, 0.5, 0.0] { span { ((self.words)(top * share)) } } }
                    svg.chart viewBox={ "0 0 " (self.bars.len() * WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                        rect.grid x="0" width=(self.bars.len() * WIDTH) y="49.7" height="0.6" {}
                        @for (at, bar) in self.bars.iter().enumerate().filter(|(_, bar)| bar.values.iter().any(Option::is_some)) {
                            @match &bar.link {
                                Some(link) => a href=(link) tabindex="-1" { (self.bar(at * WIDTH, bar, height)) },
                                None => g { (self.bar(at * WIDTH, bar, height)) },
                            }
                        }
                        @if let Some((_, values)) = &self.line { polyline.before points=(points(values, height)) {} }
                    }
                }
                // A time of two bars is named once, below the last one.
                div.times { @for (at, time) in self.times.iter().enumerate() { span { @if !self.times.iter().skip(at + 1).any(|later| later == time) { (time) } } } }
            }
        }
    }

    fn bar(&self, x: usize, bar: &Bar, height: impl Fn(f64) -> f64) -> Markup {
        let mut below = 0.0;
        let parts = self.series.iter().zip(&bar.values).filter_map(|((class, _), value)| {
            let value = height((*value)?);
            if !bar.is_stacked {
                return Some((class, HEIGHT - value - 1.0, 2.0));
            }
            below += value;
            (value > 0.0).then_some((class, HEIGHT - below, value))
        });
        let parts: Vec<_> = parts.collect();
        html! {
            title { (bar.words) }
            rect.hit x=(x) width=(WIDTH) y="0" height=(HEIGHT) {}
            @for (class, y, height) in parts {
                rect class=(class) x=(x + 1) width=(WIDTH - 2) y=(format!("{y:.1}")) height=(format!("{height:.1}")) {}
            }
        }
    }
}

impl Bar {
    fn top(&self) -> f64 {
        let values = self.values.iter().copied().flatten();
        if self.is_stacked { values.sum() } else { values.fold(0.0, f64::max) }
    }
}

/// The line through the values, in the middle of their bars.
fn points(values: &[Option<f64>], height: impl Fn(f64) -> f64) -> String {
    let there = values.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?)));
    let points = there.map(|(at, value)| format!("{},{:.1}", at * WIDTH + WIDTH / 2, HEIGHT - height(value)));
    points.collect::<Vec<_>>().join(" ")
}

/// The number above a value that is 2, 4 or 10 times a power of ten: half of it has one digit.
fn end_of_axis(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().ceil() - 1.0);
    [2.0, 4.0].into_iter().map(|times| times * power).find(|end| *end >= value).unwrap_or(10.0 * power)
}

/// How much of something is used, from 0 to 1.
pub(super) fn meter(title: &str, share: f64) -> Markup {
    let class = if share >= 0.9 {
        "bad"
    } else if share >= 0.7 {
        "warn"
    } else {
        "good"
    };
    html! {
        svg.meter viewBox="0 0 100 4" preserveAspectRatio="none" role="img" {
            title { (title) }
            rect class=(class) x="0" y="0" width=(format!("{:.1}", share.clamp(0.0, 1.0) * 100.0)) height="4" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(bars: Vec<Bar>) -> String {
        chart_with(bars, None)
    }

    fn chart_with(bars: Vec<Bar>, line: Option<(String, Vec<Option<f64>>)>) -> String {
        let series = [("good", "works".to_owned()), ("bad", "fails".to_owned())];
        let words = |value: f64| format!("{value} calls");
        let times = ["a", "b", "c"];
        TimeChart { title: "t", series: &series, bars, line, times, least: 2.0, words }.show().into_string()
    }

    fn bar(values: [Option<f64>; 2], is_stacked: bool, link: Option<&str>) -> Bar {
        Bar { values: values.into(), words: "12:00 · <b>".to_owned(), link: link.map(str::to_owned), is_stacked }
    }

    #[test]
    fn the_parts_of_a_bar_are_on_top_of_each_other_and_lead_to_their_calls() {
        let chart =
            chart(vec![bar([Some(3.0), Some(1.0)], true, Some("/calls?a=1&b=2")), bar([None, None], true, Some("/x"))]);
        for part in [
            r#"<rect class="good" x="1" width="8" y="25.0" height="75.0">"#,
            r#"<rect class="bad" x="1" width="8" y="0.0" height="25.0">"#,
            r#"<a href="/calls?a=1&amp;b=2" tabindex="-1"><title>12:00 · &lt;b&gt;</title>"#,
            "<span>4 calls</span><span>2 calls</span><span>0 calls</span>",
        ] {
            assert!(chart.contains(part), "{part}: {chart}");
        }
        assert!(!chart.contains("/x"), "{chart}");
    }

    #[test]
    fn values_that_are_not_stacked_have_marks_at_their_heights() {
        let chart = chart(vec![bar([Some(1.0), Some(2.0)], false, None)]);
        assert!(chart.contains(r#"<rect class="good" x="1" width="8" y="49.0" height="2.0">"#), "{chart}");
        assert!(chart.contains(r#"<rect class="bad" x="1" width="8" y="-1.0" height="2.0">"#), "{chart}");
    }

    #[test]
    fn a_second_line_goes_through_its_values_and_the_axis_has_room_for_it() {
        let bars = || vec![bar([Some(1.0), Some(1.0)], true, None), bar([None, None], true, None)];
        let line = vec![Some(4.0), None, Some(2.0)];
        let drawn = chart_with(bars(), Some(("the day <before>".to_owned(), line)));
        for part in [
            r#"<polyline class="before" points="5,0.0 25,50.0">"#,
            "<span>4 calls</span>",
            r#"<span class="key before">the day &lt;before&gt;</span>"#,
        ] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(!chart(bars()).contains("polyline"));
    }

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (value, end) in
            [(0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (3.0, 4.0), (5.0, 10.0), (10.0, 10.0), (11.0, 20.0), (0.03, 0.04)]
        {
            assert!((end_of_axis(value) - end).abs() < 1e-9, "{value}: {}", end_of_axis(value));
        }
    }
}
