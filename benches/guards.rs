//! What a call costs more that no guard is for, where guards are configured for other tools; what it costs more where it is judged by
//! the values of its session; and, with a program of an earlier state, what it costs more than with that. Each pair is measured in turns.

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

/// Part of [`CONFIG`], and what takes its place: the tool that is called has effects.
const EFFECTS: (&str, &str) = (
    "calculator: {rate_limit: 1000000000}",
    "calculator: {rate_limit: 1000000000, sink: {kind: send, destination: ['$.expression']}}",
);

/// A folder with the program of an earlier state, if one is given.
const BEFORE: &str = "SEKISHO_BEFORE";

pub(crate) fn rows(programs: &Path) {
    let percent = |more: f64| format!("{more:+.1} %");
    row("guards for other tools, processor time of a call", &percent(of_guards(programs)), "≤ +3 %");
    for (mode, name) in [("observe", "policy.flow: observe, processor time of a call"), ("enforce", "  enforce")] {
        row(name, &percent(of_flow(programs, mode, false)), "≤ +10 %");
    }
    row("  enforce, of a tool with effects", &percent(of_flow(programs, "enforce", true)), "≤ +10 %");
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
    with_config(programs, &changed(GUARDS))
}

/// The session of all calls has as many values as it may have.
fn of_flow(programs: &Path, mode: &str, has_effects: bool) -> f64 {
    let config = if has_effects { changed([EFFECTS]) } else { changed([]) };
    with_config(programs, &format!("{config}policy: {{flow: {mode}}}\n"))
}

/// [`CONFIG`] with other parts.
fn changed<const PARTS: usize>(parts: [(&str, &str); PARTS]) -> String {
    let mut config = std::fs::read_to_string(CONFIG).unwrap();
    for (part, other) in parts {
        assert!(config.contains(part), "{CONFIG} has no {part:?}");
        config = config.replacen(part, other, 1);
    }
    config
}

/// How much more processor time a call takes with this configuration, in percent.
fn with_config(programs: &Path, other: &str) -> f64 {
    let state = TempDir::new().unwrap();
    let config = state.path().join("other.yaml");
    std::fs::write(&config, other).unwrap();
    more_percent(
        &Sekisho::start(programs, &state.path().join("plain"), Path::new(CONFIG)),
        &Sekisho::start(programs, &state.path().join("other"), &config),
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
