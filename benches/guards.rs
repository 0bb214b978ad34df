//! What a call costs more that no guard is for, where guards are configured for other tools; and, with a program of an
//! earlier state, what it costs more than with that. Each pair is measured in turns.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::console::processor_millis;
use crate::{CONFIG, LOAD_ROUNDS, LOAD_SECONDS, Sekisho, median, requests_a_second, row};

/// Parts of [`CONFIG`], and what takes their place: a guard of each kind, none for the tool that is called.
const GUARDS: [(&str, &str); 2] = [
    (
        "limits:\n",
        "limits:\n  rules: [{name: other, match: {tools: [file_*]}, per: caller, rate: 1000, max_concurrent: 10}]\n",
    ),
    (
        "tools:\n  overrides:\n",
        "tools:\n  transform:\n    arguments: [{name: other, tools: [file_*], detect: [secrets]}]\n    \
         results: [{name: other, tools: [file_*], detect: [secrets]}]\n  overrides:\n    file_write: {approval: always}\n",
    ),
];

/// A folder with the program of an earlier state, if one is given.
const BEFORE: &str = "SEKISHO_BEFORE";

pub(crate) fn rows(programs: &Path) {
    let percent = |more: f64| format!("{more:+.1} %");
    row("guards for other tools, processor time of a call", &percent(of_guards(programs)), "≤ +3 %");
    if let Some(before) = std::env::var_os(BEFORE).map(PathBuf::from) {
        row("  beside the program before", &percent(of_changes(&before, programs)), "≤ +3 %");
    }
}

/// Microseconds of the processor for a call of a gateway without guards.
pub(crate) fn call_micros(programs: &Path) -> f64 {
    let state = TempDir::new().unwrap();
    let gateway = Sekisho::start(programs, state.path(), Path::new(CONFIG));
    // The first round warms it up.
    median((0..=LOAD_ROUNDS).map(|_| processor_micros(&gateway)).skip(1))
}

fn of_guards(programs: &Path) -> f64 {
    let state = TempDir::new().unwrap();
    let mut guarded = std::fs::read_to_string(CONFIG).unwrap();
    for (part, with_guard) in GUARDS {
        assert!(guarded.contains(part), "{CONFIG} has no {part:?}");
        guarded = guarded.replacen(part, with_guard, 1);
    }
    let config = state.path().join("guards.yaml");
    std::fs::write(&config, guarded).unwrap();
    more_percent(
        &Sekisho::start(programs, &state.path().join("plain"), Path::new(CONFIG)),
        &Sekisho::start(programs, &state.path().join("guarded"), &config),
    )
}

fn of_changes(before: &Path, programs: &Path) -> f64 {
    let state = TempDir::new().unwrap();
    let start = |folder: &Path, name: &str| Sekisho::start(folder, &state.path().join(name), Path::new(CONFIG));
    more_percent(&start(before, "before"), &start(programs, "now"))
}

/// How much more processor time a call takes at the other gateway, in percent.
fn more_percent(one: &Sekisho, other: &Sekisho) -> f64 {
    let ratio = |_| {
        let of_one = processor_micros(one);
        processor_micros(other) / of_one
    };
    // The first round warms both up.
    100.0 * (median((0..=LOAD_ROUNDS).map(ratio).skip(1)) - 1.0)
}

/// Microseconds of the processor for a call, under load.
fn processor_micros(gateway: &Sekisho) -> f64 {
    let before = processor_millis(gateway.child.0.id());
    let calls = requests_a_second(&gateway.url) * LOAD_SECONDS as f64;
    (processor_millis(gateway.child.0.id()) - before) * 1_000.0 / calls
}
