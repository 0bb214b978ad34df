//! Charts as SVG, without a library: a line, and bars in parts.

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

/// One bar for each entry; its parts, from the bottom up, have the classes.
pub(super) fn bars<const N: usize>(title: &str, classes: [&str; N], series: &[[u64; N]]) -> Markup {
    const HEIGHT: f64 = 100.0;
    const WIDTH: usize = 10;
    let max = series.iter().map(|parts| parts.iter().sum()).max().unwrap_or(0).max(1);
    let share = |count: u64| count as f64 / max as f64 * HEIGHT;
    html! {
        svg.chart viewBox={ "0 0 " (series.len() * WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
            title { (title) }
            @for (at, parts) in series.iter().enumerate() {
                @for (part, class) in classes.iter().enumerate().filter(|(part, _)| parts[*part] > 0) {
                    rect class=(class) x=(at * WIDTH + 1) width=(WIDTH - 2) height=(format!("{:.1}", share(parts[part])))
                        y=(format!("{:.1}", HEIGHT - share(parts[..=part].iter().sum()))) {}
                }
            }
        }
    }
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

    #[test]
    fn the_parts_of_a_bar_are_on_top_of_each_other() {
        let chart = bars("calls", ["good", "bad"], &[[3, 1], [0, 0], [1, 0]]).into_string();
        for part in [
            r#"<rect class="good" x="1" width="8" height="75.0" y="25.0">"#,
            r#"<rect class="bad" x="1" width="8" height="25.0" y="0.0">"#,
            r#"<rect class="good" x="21" width="8" height="25.0" y="75.0">"#,
        ] {
            assert!(chart.contains(part), "{chart}");
        }
        assert_eq!(chart.matches("<rect").count(), 3);
    }
}
