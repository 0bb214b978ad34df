//! Numbers, durations, money and times as people read them.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use maud::{Markup, html};
use rust_decimal::Decimal;

use super::text::Texts;
use sekisho_core::text_direction;

/// The ids of the texts for times, by their unit.
const AGO: [&str; 4] = ["time-seconds", "time-minutes", "time-hours", "time-days"];
const AHEAD: [&str; 4] = ["time-in-seconds", "time-in-minutes", "time-in-hours", "time-in-days"];

/// In µs, ms or s, with three significant digits.
pub(super) fn duration(took: Duration) -> String {
    let micros = took.as_secs_f64() * 1e6;
    let (number, unit) = match micros {
        micros if micros < 999.5 => (micros, "µs"),
        micros if micros < 999_500.0 => (micros / 1e3, "ms"),
        micros => (micros / 1e6, "s"),
    };
    let digits = match number {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{number:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// USD, exact: with cents at least, and a thin space before each three digits of dollars.
pub(super) fn money(amount: Decimal) -> String {
    let text = amount.normalize().to_string();
    let (dollars, part) = text.split_once('.').unwrap_or((&text, ""));
    let dollars = dollars.parse().map_or_else(|_| dollars.to_owned(), count);
    format!("${dollars}.{part:0<2}")
}

/// With a thin space before each three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

/// A text of another author. Characters that change its direction are escaped, so that it cannot be read as another.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    text_direction::escaped(text)
}

/// A moment: relative, in UTC on hover; the script of the page shows the local time there too.
pub(super) fn time(texts: &Texts, at: SystemTime) -> Markup {
    let utc = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    let exact = utc.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    let now = SystemTime::now();
    let relative = match at.duration_since(now).map(|ahead| ahead.as_secs()) {
        Ok(ahead @ 1..) => relative(texts, ahead, AHEAD),
        _ => relative(texts, now.duration_since(at).unwrap_or_default().as_secs(), AGO),
    };
    html! { time datetime=(exact) title=(exact) { (relative) } }
}

/// So many seconds, in the largest unit that is filled.
fn relative(texts: &Texts, seconds: u64, [in_seconds, in_minutes, in_hours, in_days]: [&str; 4]) -> Cow<'static, str> {
    match seconds {
        0..60 => texts.with(in_seconds, [("n", seconds.into())]),
        60..3_600 => texts.with(in_minutes, [("n", (seconds / 60).into())]),
        3_600..172_800 => texts.with(in_hours, [("n", (seconds / 3_600).into())]),
        // Thirty days from now are not 29 a moment later.
        _ => texts.with(in_days, [("n", ((seconds + 43_200) / 86_400).into())]),
    }
}

/// The same, of a moment in RFC 3339.
pub(super) fn moment(texts: &Texts, at: &str) -> Markup {
    at.parse::<Timestamp>().map_or_else(|_| html! { (at) }, |at| time(texts, at.into()))
}

/// The beginning of a text, in one line.
pub(super) fn first_line(whole: &str) -> String {
    const MAX: usize = 140;
    let line = whole.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", text(&line[..end])),
        None => text(line).into_owned(),
    }
}

/// A name in one line: a long one is cut in the middle, with the whole on hover.
pub(super) fn name(name: &str) -> Markup {
    const MAX: usize = 44;
    const END: usize = 14;
    let name = &*text(name);
    let length = name.chars().count();
    if length <= MAX {
        return html! { code.name { (name) } };
    }
    let start: String = name.chars().take(MAX - END).collect();
    let end: String = name.chars().skip(length - END).collect();
    html! { code.name title=(name) { (start) "…" (end) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn a_moment_is_ago_or_ahead() {
        let texts = Texts::new(Language::English);
        let minutes = Duration::from_secs(7 * 60 + 30);
        let shown = |at: SystemTime| time(&texts, at).into_string();
        assert!(shown(SystemTime::now() - minutes).contains(">7 min ago<"));
        assert!(shown(SystemTime::now() + minutes).contains(">in 7 min<"));
    }

    #[test]
    fn a_name_cannot_be_read_in_another_direction() {
        assert_eq!(name("a\u{202e}gnp.exe").into_string(), r#"<code class="name">a\u202egnp.exe</code>"#);
    }

    #[test]
    fn numbers_are_short_and_exact_enough() {
        for (nanos, text) in [
            (0, "0 µs"),
            (400, "0.4 µs"),
            (12_340, "12.3 µs"),
            (999_400, "999 µs"),
            (1_000_000, "1 ms"),
            (45_600_000, "45.6 ms"),
            (2_346_000_000, "2.35 s"),
            (120_000_000_000, "120 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text, "{nanos}");
        }
        for (amount, text) in [
            ("0", "$0.00"),
            ("0.100000", "$0.10"),
            ("12.345678", "$12.345678"),
            ("0.000000000001", "$0.000000000001"),
            ("164197.52", "$164\u{2009}197.52"),
            ("40000000", "$40\u{2009}000\u{2009}000.00"),
        ] {
            assert_eq!(money(amount.parse().unwrap()), text);
        }
        let counts = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1\u{2009}000", "1\u{2009}234\u{2009}567"]);
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        let long = format!("{}_delete", "é".repeat(100));
        let shown = name(&long).into_string();
        assert!(shown.contains(&format!("title=\"{long}\"")) && shown.contains("…éééé"), "{shown}");
        assert!(shown.ends_with("_delete</code>"), "{shown}");
    }
}
