//! Measures the detectors on sets of texts: `recall [--list missed|false] SET.jsonl|PAGE.md …`. A line of a set is
//! `{"kind", "attack", "text"}`; each paragraph of a page is an ordinary text.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a program for developers")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sekisho_guards::{Choice, Detector, Direction, Rules};
use serde::Deserialize;

#[derive(Deserialize)]
struct Sample {
    kind: String,
    attack: bool,
    text: String,
}

#[derive(Default)]
struct Counted {
    all: usize,
    found: usize,
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let list = arguments.next_if_eq("--list").and_then(|_| arguments.next());
    let detectors = [Detector::Injections, Detector::HiddenText, Detector::DataLinks];
    let choice = Choice::new(&Rules::shipped(), &detectors, &[], Direction::Answers);
    println!("rules {}", Rules::shipped().version());
    println!("{:<48} {:>6} {:>6} {:>8}", "set, kind", "texts", "found", "share");
    let (mut ordinary, mut took) = (0, Duration::ZERO);
    let mut kinds: BTreeMap<(String, bool, String), Counted> = BTreeMap::new();
    for file in arguments.map(PathBuf::from) {
        for Sample { kind, attack, text } in samples(&file) {
            let begun = Instant::now();
            let found = choice.find(&text);
            if !attack {
                (ordinary, took) = (ordinary + text.len(), took + begun.elapsed());
            }
            let is_listed = match list.as_deref() {
                Some("missed") => attack && found.is_empty(),
                Some("false") => !attack && !found.is_empty(),
                _ => false,
            };
            if is_listed {
                let rules: Vec<_> = found.iter().map(|found| &*found.rule).collect();
                println!("{kind} {rules:?}: {text:?}");
            }
            let set = if file.extension().is_some_and(|end| end == "md") { "pages".into() } else { stem(&file) };
            for kind in [kind.as_str(), "(all)"] {
                let counted = kinds.entry((set.clone(), attack, kind.to_owned())).or_default();
                counted.all += 1;
                counted.found += usize::from(!found.is_empty());
            }
        }
    }
    for ((set, attack, kind), Counted { all, found }) in kinds {
        let share = 100.0 * found as f64 / all as f64;
        let word = if attack { "recall" } else { "false" };
        println!("{:<48} {all:>6} {found:>6} {share:>6.1} % {word}", format!("{set}, {kind}"));
    }
    measure(&choice);
    println!("2 kB of ordinary texts: {:.2} µs", took.as_secs_f64() * 1e6 * 2_048.0 / ordinary as f64);
}

/// The time of a text of 2 kB in which nothing is found.
fn measure(choice: &Choice) {
    const ROUNDS: u32 = 20_000;
    let ascii = "The invoice of March was paid on time; the next one is due in April, as the customer wrote. ";
    let letters =
        "Überall: Die Rechnung für März wurde bezahlt – die nächste ist im April fällig, schreibt der Kunde. ";
    let japanese = "三月の請求書は期限内に支払われました。次の請求書は四月に届きます。";
    let normalized = "The invoice of March was paid\u{a0}on time; the ﬁrst one was not. ";
    for (name, part) in
        [("ASCII", ascii), ("other letters", letters), ("Japanese", japanese), ("text that is normalized", normalized)]
    {
        let mut text = part.repeat(2_048 / part.len() + 1);
        text.truncate(text.floor_char_boundary(2_048));
        assert!(choice.find(&text).is_empty(), "nothing is found in it");
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            std::hint::black_box(choice.find(std::hint::black_box(&text)));
        }
        println!("2 kB without a finding, {name}: {:.2} µs", begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
    }
}

fn samples(file: &Path) -> Vec<Sample> {
    let text = std::fs::read_to_string(file).expect("a set of texts");
    if file.extension().is_some_and(|end| end == "md") {
        let paragraphs = text.split("\n\n").filter(|paragraph| paragraph.len() >= 80);
        return paragraphs.map(|text| Sample { kind: stem(file), attack: false, text: text.to_owned() }).collect();
    }
    text.lines().map(|line| serde_json::from_str(line).expect("a sample")).collect()
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
