//! Progress of a preparation: bars on a terminal, otherwise one line per step.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// Redraw interval of a spinner.
const TICK: Duration = Duration::from_millis(120);

/// The output for progress.
pub struct Progress(Shown);

enum Shown {
    Bars,
    Lines(Mutex<Box<dyn Write + Send>>),
}

/// A step under way; one dropped before it is done has failed, and its bar disappears.
#[derive(Debug)]
pub struct Step<'a> {
    progress: &'a Progress,
    what: String,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// On standard error: bars if it is a terminal, otherwise lines.
    pub fn on_stderr() -> Self {
        if io::stderr().is_terminal() { Self(Shown::Bars) } else { Self::as_lines(io::stderr()) }
    }

    /// A line as each step begins, and one when it is done.
    pub fn as_lines(out: impl Write + Send + 'static) -> Self {
        Self(Shown::Lines(Mutex::new(Box::new(out))))
    }

    /// A message between two steps.
    pub fn report(&self, text: &str) {
        // Ignored when the reader has closed the stream; the work continues.
        let _ = match &self.0 {
            Shown::Bars => writeln!(io::stderr(), "{text}"),
            Shown::Lines(out) => writeln!(out.lock(), "{text}"),
        };
    }

    /// Starts a step; of `total` bytes if that is known.
    pub fn step(&self, what: &str, total: Option<u64>) -> Step<'_> {
        let bar = match &self.0 {
            Shown::Bars => Some(bar(what, total)),
            Shown::Lines(_) => {
                self.report(&format!("{what} …"));
                None
            }
        };
        Step { progress: self, what: what.to_owned(), began: Instant::now(), bar }
    }
}

sekisho_core::debug_fields!(Progress {});

impl Step<'_> {
    pub fn advance(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    pub fn done(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.progress.report(&format!("{}: done in {:.1} s", self.what, self.began.elapsed().as_secs_f64()));
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{msg} {wide_bar} {bytes}/{total_bytes}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}
