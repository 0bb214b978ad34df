//! `${file:PATH}` and `${exec: [PROGRAM, …]}`: values that are in a file, or that a program prints. Only in the operator's own
//! configuration file: whatever came over an API never names a file or a program of this machine.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Deserializer;

use super::interpolate::Problem;
use crate::Secret;
use sekisho_core::bounded::BoundedMap;

/// Bytes of a value: a key, a token, a certificate.
const MAX_BYTES: u64 = 64 << 10;

/// Seconds that a program may take, by default and at most: a start waits for it.
const DEFAULT_TIMEOUT: u64 = 10;
const MAX_TIMEOUT: u64 = 60;

/// Seconds after which a program is run again, by default.
const DEFAULT_TTL: u64 = 300;

/// Maximum programs whose values are kept. Then those go that ran more than a day ago, or all: they are run again.
const MAX_PRINTED: usize = 1_000;
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval at which output and end of a program are looked for.
const POLL: Duration = Duration::from_millis(10);

/// The sources of a configuration's values besides its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// A change of one causes a reload.
    pub files: Vec<PathBuf>,
    /// When the values of programs are to be read again.
    pub renew_after: Option<Duration>,
}

/// A program that prints a value.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// Its path or name, and its arguments: no shell reads them.
    arguments: Vec<String>,
    timeout: Duration,
    ttl: Duration,
}

/// A value that a program printed.
struct Printed {
    at: Instant,
    value: Secret,
}

/// Values of programs, by their arguments.
static PRINTED: LazyLock<Mutex<BoundedMap<Vec<String>, Printed>>> =
    LazyLock::new(|| Mutex::new(BoundedMap::new(MAX_PRINTED)));

/// Whether the text after `${` names a file or a program.
pub(super) fn is_reference(text: &str) -> bool {
    text.starts_with("file:") || text.starts_with("exec:")
}

/// The value of a reference at the begin of `text`, after its `${`, and the rest after its `}`.
pub(super) fn resolve<'a>(text: &'a str, known: &mut References) -> Result<(String, &'a str), Problem> {
    match text.strip_prefix("file:") {
        Some(text) => {
            let (path, rest) = text.split_once('}').ok_or_else(unclosed)?;
            Ok((read_file(path.trim(), known)?, rest))
        }
        None => {
            let (program, rest) = Program::parse(text.strip_prefix("exec:").unwrap_or(text))?;
            known.renew_after = Some(known.renew_after.map_or(program.ttl, |earlier| earlier.min(program.ttl)));
            Ok((program.value()?, rest))
        }
    }
}

fn read_file(path: &str, known: &mut References) -> Result<String, Problem> {
    let file = Path::new(path);
    if !file.is_absolute() {
        return Err(problem(format!("{path:?} is not an absolute path"), "write it like `${file:/run/secrets/key}`"));
    }
    known.files.push(file.to_owned());
    let advice = "check that it is a file that this user may read, with a value of at most 64 KiB";
    let refused = |why: &dyn std::fmt::Display| problem(format!("the file {path} cannot be used: {why}"), advice);
    // Reading a pipe or a device would not end.
    if !file.is_file() {
        return Err(refused(&"it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| refused(&error))?;
    text_of(bytes).map_err(|why| refused(&why))
}

/// The value as text, without the end of its line.
fn text_of(bytes: Vec<u8>) -> Result<String, &'static str> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err("it is longer than 64 KiB");
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

impl Program {
    /// `["PROGRAM", "ARGUMENT", …] timeout=SECONDS ttl=SECONDS}`, and the rest after it.
    fn parse(text: &str) -> Result<(Self, &str), Problem> {
        let mut values = Deserializer::from_str(text).into_iter::<Vec<String>>();
        let arguments =
            values.next().and_then(Result::ok).filter(|all| all.first().is_some_and(|name| !name.is_empty()));
        let arguments = arguments.ok_or_else(|| {
            let advice = "write it like `${exec: [\"vault\", \"kv\", \"get\", \"-field=key\", \"secret/crm\"]}`";
            problem("the program of `${exec: …}` is not a list of texts in JSON".to_owned(), advice)
        })?;
        let (options, rest) = text[values.byte_offset()..].split_once('}').ok_or_else(unclosed)?;
        let mut program =
            Self { arguments, timeout: Duration::from_secs(DEFAULT_TIMEOUT), ttl: Duration::from_secs(DEFAULT_TTL) };
        for option in options.split_whitespace() {
            let seconds = option.split_once('=').and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
            match seconds {
                Some(("timeout", seconds @ 1..=MAX_TIMEOUT)) => program.timeout = Duration::from_secs(seconds),
                Some(("ttl", seconds @ 1..)) => program.ttl = Duration::from_secs(seconds),
                _ => {
                    let advice = "write `timeout=SECONDS`, at most 60, or `ttl=SECONDS`";
                    return Err(problem(format!("{option:?} is no option of `${{exec: …}}`"), advice));
                }
            }
        }
        Ok((program, rest))
    }

    /// Its output within its time to live, or of a run now.
    fn value(&self) -> Result<String, Problem> {
        if let Some(printed) = PRINTED.lock().get(&self.arguments)
            && printed.at.elapsed() < self.ttl
        {
            return Ok(printed.value.expose().to_owned());
        }
        let name = &self.arguments[0];
        let value = self.run().map_err(|why| {
            problem(format!("the program {name} gave no value: {why}"), "run it by hand, as the user of the gateway")
        })?;
        let printed = Printed { at: Instant::now(), value: Secret::new(value.clone()) };
        PRINTED.lock().insert_or_clear(self.arguments.clone(), printed, |printed| printed.at.elapsed() > OLD);
        Ok(value)
    }

    /// Its output is in no message, neither as output nor as an error.
    fn run(&self) -> Result<String, String> {
        let deadline = Instant::now() + self.timeout;
        let mut command = Command::new(&self.arguments[0]);
        command.args(&self.arguments[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
        let printed = self.printed(&mut child, deadline);
        match printed.and_then(|text| Ok((text, self.exited(&mut child, deadline)?))) {
            Ok((text, status)) if status.success() => Ok(text),
            Ok((_, status)) => Err(format!("it ended with {status}")),
            Err(problem) => {
                kill(&mut child);
                Err(problem)
            }
        }
    }

    /// Reads to the end of its output, which processes that it started may have open too.
    fn printed(&self, child: &mut Child, deadline: Instant) -> Result<String, String> {
        let output = child.stdout.take().ok_or("it has no output")?;
        // A read never waits, so that nothing holds this thread longer than to the deadline.
        rustix::io::ioctl_fionbio(&output, true).map_err(|error| error.to_string())?;
        let (mut output, mut bytes) = (output.take(MAX_BYTES + 1), Vec::new());
        loop {
            match output.read_to_end(&mut bytes) {
                Ok(_) => return text_of(bytes).map_err(str::to_owned),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.to_string()),
                Err(_) => self.wait(deadline)?,
            }
        }
    }

    fn exited(&self, child: &mut Child, deadline: Instant) -> Result<ExitStatus, String> {
        loop {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => return Ok(status),
                None => self.wait(deadline)?,
            }
        }
    }

    /// Waits a moment, unless the deadline has passed.
    fn wait(&self, deadline: Instant) -> Result<(), String> {
        if Instant::now() >= deadline {
            return Err(format!("it did not end within {} s (`timeout`)", self.timeout.as_secs()));
        }
        thread::sleep(POLL);
        Ok(())
    }
}

/// Kills a program that nobody has waited for yet, so that its id is still the id of its group, and all that it
/// started.
fn kill(child: &mut Child) {
    // It may have ended meanwhile.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

pub(super) fn unclosed() -> Problem {
    problem("`${` without its `}`".to_owned(), "close it, or write `$${` for a literal `${`")
}

fn problem(message: String, advice: &str) -> Problem {
    Problem { message, advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use serde_json::json;

    use super::*;
    use sekisho_core::slack::slack;

    fn value(text: &str) -> Result<(String, String), String> {
        let resolved = resolve(text, &mut References::default());
        resolved.map(|(value, rest)| (value, rest.to_owned())).map_err(|problem| problem.message)
    }

    #[test]
    fn a_file_has_a_value_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "hunter2\r\n").unwrap();
        let mut known = References::default();
        let text = format!("file:{}}}/rest", file.display());
        let (read, rest) = resolve(&text, &mut known).map_err(|problem| problem.message).unwrap();
        assert_eq!((&*read, rest, &known.files), ("hunter2", "/rest", &vec![file.clone()]));
        std::fs::write(&file, vec![b'x'; (64 << 10) + 1]).unwrap();
        for refused in [text.as_str(), "file:key}", "file:/dev/zero}", "file:/nowhere/key}", "file:/run/key"] {
            assert!(value(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_program_gets_its_arguments_without_a_shell() {
        let (printed, rest) = value("exec: [\"/bin/echo\", \"a;b $HOME }\"] timeout=5 ttl=60}!").unwrap();
        assert_eq!((&*printed, &*rest), ("a;b $HOME }", "!"));
        for refused in [
            "exec: /bin/echo}",
            "exec: []}",
            "exec: [\"\"]}",
            "exec: [\"/bin/echo\"",
            "exec: [\"/bin/echo\"] timeout=0}",
            "exec: [\"/bin/echo\"] timeout=61}",
            "exec: [\"/bin/echo\"] retries=1}",
            "exec: [\"/nowhere/program\"]}",
            "exec: [\"/bin/false\"]}",
        ] {
            assert!(value(refused).is_err(), "{refused}");
        }
        let late = value("exec: [\"/bin/sleep\", \"30\"] timeout=1}").unwrap_err();
        assert!(late.contains("within 1 s"), "{late}");
    }

    /// A program that it started holds its output, and a second pipe by which it is seen.
    #[test]
    fn a_program_that_is_late_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut held = File::options().read(true).custom_flags(nonblocking).open(&pipe).unwrap();
        let script = "exec 3>\"$0\"; echo started >&3; sleep 300 & wait";
        let late = value(&format!("exec: {} timeout=2}}", json!(["/bin/sh", "-c", script, pipe]))).unwrap_err();
        assert!(late.contains("within 2 s"), "{late}");
        let (mut read, end) = (Vec::new(), Instant::now() + slack(Duration::from_secs(10)));
        while let Err(error) = held.read_to_end(&mut read) {
            assert!(error.kind() == ErrorKind::WouldBlock && Instant::now() < end, "somebody holds it still: {error}");
            thread::sleep(POLL);
        }
        assert_eq!(read, b"started\n");
    }

    #[test]
    fn a_program_is_run_again_after_its_time_to_live() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("value");
        std::fs::write(&file, "first").unwrap();
        let arguments = vec!["/bin/cat".to_owned(), file.display().to_string()];
        let program = |ttl| Program { arguments: arguments.clone(), timeout: Duration::from_secs(10), ttl };
        let read = |ttl| program(ttl).value().map_err(|problem| problem.message).unwrap();
        assert_eq!(read(Duration::from_secs(60)), "first");
        std::fs::write(&file, "second").unwrap();
        assert_eq!(read(Duration::from_secs(60)), "first");
        assert_eq!(read(Duration::ZERO), "second");
    }
}
